"""The events that a session sends to its listeners, in order, on the event loop's thread.

A window, the command line and an MCP progress report are listeners. Events are plain values and are
not stored: what must last is a fact, which arrives as `FactAppended`.
"""

from collections.abc import Sequence
from enum import StrEnum

from helix_desktop.engine.facts import FoldKind, Recorded, UserPart
from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.engine.messages import Delta
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.fast_dataclass import dataclass

CLOSED = "The program stopped during this turn."
# The cause of a turn that ended because the reply repeated itself.
TEXT_CAUSE = "repeated text"
WAITS_FOR_SUMMARY = "Waiting until the older messages are summarized."
MessageWithId = tuple[tuple[UserPart, ...], str]  # The id: see `UserSaid.command`.


class ConversationActivity(StrEnum):
    """What a conversation is doing, as the rail's dots and the composer's button show."""

    IDLE = "idle"
    THINKING = "thinking"
    TOOLS = "running tools"
    ASKING = "waiting for you"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class FactAppended:
    """A fact was recorded and is in the state."""

    recorded: Recorded


@dataclass(frozen=True, slots=True)
class ReplyStreamed:
    """A piece of the reply being written. The whole reply follows as a fact."""

    conversation: str
    delta: Delta


@dataclass(frozen=True, slots=True)
class ToolPrinted:
    """A running tool printed something. Its whole output follows as a fact."""

    conversation: str
    call: str
    text: str


class CallStage(StrEnum):
    """How far a call is before its result is a fact. Parallel calls are recorded together."""

    IN_LINE = "in line"
    RUNNING = "running"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class CallStageChanged:
    """A call waits in line, runs or is done. Its result follows as a fact."""

    conversation: str
    call: str
    stage: CallStage


@dataclass(frozen=True, slots=True)
class ActivityChanged:
    """A conversation does something else now. `why`: what failed, or what the user is asked."""

    conversation: str
    running: ConversationActivity
    why: str = ""


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """To be answered by `session.answer_question(number, PermissionAnswer(...))`."""

    conversation: str
    number: int
    question: PermissionQuestion


@dataclass(frozen=True, slots=True)
class QuestionDenied:
    """The user has just denied a question, with or without `words`. QuestionAnswered follows."""

    conversation: str
    number: int
    words: str
    device: str


@dataclass(frozen=True, slots=True)
class QuestionAnswered:
    """A question is no longer open: it was answered, or the turn was stopped."""

    conversation: str
    number: int


@dataclass(frozen=True, slots=True)
class FoldProgress:
    """A fold is being made in the background, or was, if `done` is true. `why`: the rule for it.

    `is_update`: it was told before that the fold is being made, and this is how it goes on.
    `is_waited_for`: the next request of the turn is sent once it is made. `retry_why`: the model
    that writes it has failed for this reason, and is asked again in `retry_seconds`. Empty: it is
    at work.
    """

    conversation: str
    kind: FoldKind
    why: str = ""
    done: bool = False
    is_update: bool = False
    is_waited_for: bool = False
    retry_why: str = ""
    retry_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MessagesQueued:
    """The messages that wait for the end of the turn or, if they steer, for the next
    step. The first `steering_count` of them steer. `taken_back`: will not be sent, unlike
    others that have left the queue.
    """

    conversation: str
    messages: tuple[tuple[UserPart, ...], ...]
    taken_back: tuple[tuple[UserPart, ...], ...] = ()
    steering_count: int = 0
    # Those that had left the queue, were not recorded, and wait again.
    put_back: tuple[tuple[UserPart, ...], ...] = ()
    # Of `messages`: see `UserSaid.command`. Empty if a host of an earlier version tells it.
    command_ids: tuple[str, ...] = ()
    taken_back_ids: tuple[str, ...] = ()  # Of `taken_back`.

    def messages_with_ids(self) -> list[MessageWithId]:
        return _pair_with_ids(self.messages, self.command_ids)

    def taken_back_with_ids(self) -> list[MessageWithId]:
        return _pair_with_ids(self.taken_back, self.taken_back_ids)


def _pair_with_ids(
    messages: Sequence[tuple[UserPart, ...]], ids: Sequence[str]
) -> list[MessageWithId]:
    """Returns each message with its id, or "" where a host of an earlier version told none."""
    missing_ids = [""] * (len(messages) - len(ids))
    return list(zip(messages, (*ids, *missing_ids), strict=True))


@dataclass(frozen=True, slots=True)
class ConversationReplaced:
    """Recorded facts have changed because something was forgotten: show everything again."""

    conversation: str


@dataclass(frozen=True, slots=True)
class MeterChanged:
    """The next request was measured again, as the model, policy or tools may have changed."""

    conversation: str


Event = (
    FactAppended | ReplyStreamed | ToolPrinted | CallStageChanged | ActivityChanged
    | QuestionAsked | QuestionDenied | QuestionAnswered | FoldProgress | MessagesQueued
    | ConversationReplaced | MeterChanged
)  # fmt: skip


def describe_retry(seconds: float, why: str) -> str:
    """Return what people read while a model is asked again, where there is no window."""
    seconds_left = max(0, round(seconds))
    reason = mark_on_one_line(why)
    if not seconds_left:
        return f"Retrying: {reason}"
    return f"Retrying in {seconds_left} s: {reason}"


def describe_wait_for_summary(progress: FoldProgress) -> str:
    """Return what the turn waits for, or an empty string if it does not wait."""
    if progress.done or not progress.is_waited_for:
        return ""
    if progress.retry_why:
        return describe_retry(progress.retry_seconds, progress.retry_why)
    return WAITS_FOR_SUMMARY
