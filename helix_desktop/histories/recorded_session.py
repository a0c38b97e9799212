"""A session of an agent as its program recorded it: messages in order, branches and compactions."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall, Usage
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass

Speaker = Literal["system", "user", "assistant", "tool", "failure"]


class HistoryUnreadable(InvalidInput):
    """A file of a history is damaged. The message is the end of the sentence "… cannot be read:"."""


@dataclass(frozen=True, slots=True)
class RecordedPicture:
    """A picture or another file in a message. `text`: that of a document, for agents whose
    sessions cannot contain the document.
    """

    media_type: str
    data: bytes
    name: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class RecordedMessage:
    """A message. `answers`: a tool result's call id. `ok`: False if the call is recorded as failed.

    `parts`: a reply's parts in order, with signatures. Without them, the order is
    reasoning, text, calls. `shown`: what the model saw of a tool's output, if not
    `text`. `beside`: whether no person typed it, or one did while the agent worked. A
    `failure` is not a message but a note that a request failed. `is_summary`: whether
    it is the summary of a compaction whose originals are not in the file. `sealed`: the items of
    the Responses API, as JSON, for each of which `text` has SEALED_SUMMARY.
    """

    role: Speaker
    text: str
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    ok: bool = True
    reasoning: str = ""
    parts: tuple[ReplyPart, ...] = ()
    time: float = 0.0
    model: str = ""
    usage: Usage = Usage()
    pictures: tuple[RecordedPicture, ...] = ()
    shown: str = ""
    child: str = ""
    beside: bool = False
    is_summary: bool = False
    seconds: float = 0.0  # How many seconds the reply took; 0 if unknown.
    sealed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordedCompaction:
    """Before message `at`, the other program replaced everything before message `keep`
    by `text`.
    """

    at: int
    keep: int
    text: str
    time: float = 0.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """`name` says where it comes from: the file, and a number if a file has several sessions.

    `kind` and `session` identify it. Its first `forked_at` messages are those of the session
    `forked_from`. A sub-agent's session was started by `parent_call` of the session `parent`.
    """

    name: str
    messages: tuple[RecordedMessage, ...]
    kind: str = ""
    session: str = ""
    title: str = ""
    folder: str = ""
    version: str = ""
    compactions: tuple[RecordedCompaction, ...] = ()
    forked_from: str = ""
    forked_at: int = 0
    parent: str = ""
    parent_call: str = ""
    own_lines: tuple[bytes, ...] = ()  # Stored lines of its file that are no messages.
    # All lines of its file, if its agent continues there with this session: see `kept_lines`.
    lines: tuple[bytes, ...] = ()

    @property
    def identity_of_session(self) -> tuple[str, str]:
        return self.kind, self.session


def time_of_newest_message(session: RecordedSession) -> float:
    times = [message.time for message in session.messages]
    return max(times, default=0.0)


def message_texts(message: RecordedMessage) -> Sequence[str]:
    """Return what the message says: its text and its calls' arguments."""
    texts = [message.text]
    for call in message.calls:
        texts.append(call.arguments)
    return texts


def texts_to_count(message: RecordedMessage) -> Sequence[str]:
    """Return the texts of which tokens are counted, each by itself."""
    texts = [message.text, message.reasoning]
    for call in message.calls:
        texts.append(call.name)
        texts.append(call.arguments)
    # What a provider sealed is counted, too.
    for part in message.parts:
        if not isinstance(part, ToolCall):
            texts.append(part.text)
    return [text for text in texts if text]


def texts_in_context(session: RecordedSession) -> Iterator[str]:
    """Yield the texts that the agent will send: the last summary, which is empty if there is none,
    and all messages that it kept.
    """
    summary = ""
    first_kept = 0
    if session.compactions:
        last_compaction = session.compactions[-1]
        summary = last_compaction.text
        first_kept = last_compaction.keep
    yield summary
    for message in session.messages[first_kept:]:
        yield from texts_to_count(message)


def reply_parts_from_message(message: RecordedMessage) -> Iterator[ReplyPart]:
    if message.reasoning:
        yield Reasoning(message.reasoning)
    if message.text:
        yield Text(message.text)
    yield from message.calls


def build_recorded_reply(
    parts: Iterable[ReplyPart], *, model: str = "", time: float = 0.0, usage: Usage | None = None
) -> RecordedMessage:
    """Build a reply from its parts, without empty texts."""
    nonempty_parts: list[ReplyPart] = []
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[ToolCall] = []
    for part in parts:
        match part:
            case Text(text=text):
                if text:
                    nonempty_parts.append(part)
                    texts.append(text)
            case ToolCall():
                nonempty_parts.append(part)
                call = ToolCall(part.id, part.name, part.arguments)
                calls.append(call)
            case Reasoning(text=thought):
                nonempty_parts.append(part)
                if thought:
                    thoughts.append(thought)
    text = "\n".join(texts)
    reasoning = "\n".join(thoughts)
    return RecordedMessage(
        "assistant",
        text,
        tuple(calls),
        reasoning=reasoning,
        parts=tuple(nonempty_parts),
        model=model,
        time=time,
        usage=usage or Usage(),
    )


def has_text_or_call(parts: Iterable[ReplyPart]) -> bool:
    """Whether a reply with these parts says or calls something."""
    for part in parts:
        if isinstance(part, ToolCall):
            return True
        if isinstance(part, Text) and part.text:
            return True
    return False


def format_opaque_json(**fields: object) -> str:
    """Return what a provider needs back as compact JSON for `Reasoning.opaque`."""
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
