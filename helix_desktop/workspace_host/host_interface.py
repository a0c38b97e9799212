"""What a host does for those who show or drive its workspace.

The host is the process that has the workspace open. `WorkspaceHost` is the same in that process
(`local_workspace_host.py`) and in any other (`remote_workspace_host.py`), so whoever uses it does
not know where the host is. A client sends commands, follows conversations and the list of them,
and reads content by its digest. What it knows of a conversation it computes from the facts
(`followed_conversation.py`), by the engine's own functions.
"""

import secrets
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec

from helix_desktop.engine import facts, session_events
from helix_desktop.engine.cache_entry_rows import (
    CacheEntryFigures,
    EntryFilter,
    EntryRow,
    EntrySort,
    EntryUse,
)
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.messages import CallDelta, ReasoningDelta, TextDelta
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion, SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.workspace_host import sent_changes

# The most bytes that one answer carries. Longer content is read range by range.
LONGEST_RANGE = 1 << 20


# --- Commands


class _TaggedCommand(msgspec.Struct, frozen=True, tag_field="command", tag=True):
    """What a host can be asked to do. The names are part of the protocol between processes."""


class StartConversation(_TaggedCommand, frozen=True):
    title: str = ""


class SendMessage(_TaggedCommand, frozen=True):
    """Sends a message of the user. `steer`: after the turn's present step, not after the turn."""

    conversation: str
    text: str
    attachments: tuple[facts.Attachment, ...] = ()
    steer: bool = False


class CheckMessage(_TaggedCommand, frozen=True):
    """Raises what is wrong with a message, before anything is begun for it. `conversation`: empty
    for a new one.
    """

    text: str
    model: str = ""
    conversation: str = ""


class TakeBackMessage(_TaggedCommand, frozen=True):
    """Takes back the last waiting message with this text. NotFound if it does not wait any more.

    `sent_by`: the id of the command that sent it, if its sender takes it back. Then the text does
    not matter, because that of a slash command is not what its user typed.
    """

    conversation: str
    text: str
    sent_by: str = ""


class StopTurn(_TaggedCommand, frozen=True):
    conversation: str


class ResumeTurn(_TaggedCommand, frozen=True):
    conversation: str


class AnswerQuestion(_TaggedCommand, frozen=True):
    """Answers a permission question. `fingerprint`: of the question that the user has read, as
    another one may have its number by now.
    """

    conversation: str
    number: int
    fingerprint: str
    answer: PermissionAnswer


class FoldConversation(_TaggedCommand, frozen=True):
    conversation: str
    kind: facts.FoldKind
    wish: str = ""


class UndoFold(_TaggedCommand, frozen=True):
    conversation: str
    fold: str


class RepeatFold(_TaggedCommand, frozen=True):
    conversation: str
    fold: str


class EditFold(_TaggedCommand, frozen=True):
    """Puts the user's text in the place of a summary's or of dated notes."""

    conversation: str
    fold: str
    text: str


class RewindConversation(_TaggedCommand, frozen=True):
    conversation: str
    seq: int


class AnswerAgain(_TaggedCommand, frozen=True):
    """Asks the model again for the answer at `seq`, or for the last one."""

    conversation: str
    seq: int = 0


class ForkConversation(_TaggedCommand, frozen=True):
    conversation: str
    last_seq: int = 0
    title: str = ""


class UndoFileChanges(_TaggedCommand, frozen=True):
    """Undoes what was done to files after the fact `seq`. What others have changed since stays."""

    conversation: str
    seq: int


class ChangeConversation(_TaggedCommand, frozen=True):
    """Changes what is not None."""

    conversation: str
    title: str | None = None
    is_archived: bool | None = None
    is_trashed: bool | None = None
    is_pinned: bool | None = None


class StoreContent(_TaggedCommand, frozen=True):
    """Stores what the user attaches to a message."""

    name: str
    content: bytes
    conversation: str = ""


class ChooseModel(_TaggedCommand, frozen=True):
    """Answers a conversation with this model (`provider/model`) until the workspace is closed.
    `becomes_usual`: it is also the workspace's, if that has none.
    """

    conversation: str
    model: str
    becomes_usual: bool = False


class DescribeWorkspace(_TaggedCommand, frozen=True):
    """Asks for what a client shows of the workspace itself. `conversation`: some slash commands
    are for one conversation alone.
    """

    conversation: str = ""


class QueueChange(StrEnum):
    """What becomes of a message that waits. `STEER`: sent after the running step, `QUEUE`: after
    the turn.
    """

    TAKE_BACK = "take back"
    MOVE = "move"
    STEER = "steer"
    QUEUE = "queue"


class ChangeWaitingMessage(_TaggedCommand, frozen=True):
    """Changes the message at `index` of the queue. `fingerprint`: of the message that the user
    sees there, as others may have been sent since. `new_index`: where a moved one goes.
    """

    conversation: str
    index: int
    fingerprint: str
    change: QueueChange
    new_index: int = 0


class EditAndResend(_TaggedCommand, frozen=True):
    """Sends a message in place of the one at `seq`. What followed that one is left behind."""

    conversation: str
    seq: int
    text: str
    attachments: tuple[facts.Attachment, ...] = ()
    command_id: str = ""  # Becomes `UserSaid.command`.


class SwitchToAnswer(_TaggedCommand, frozen=True):
    """Continues with the answer that ends with the fact `seq`."""

    conversation: str
    seq: int


class RetryModelNow(_TaggedCommand, frozen=True):
    """Ends the pause before a failed request is sent again."""

    conversation: str


class StopFold(_TaggedCommand, frozen=True):
    conversation: str


class PartChange(StrEnum):
    """What becomes of a part of a conversation. `PIN`: it is in every request as it is. `EXCLUDE`:
    it is in none.
    """

    PIN = "pin"
    UNPIN = "unpin"
    EXCLUDE = "exclude"
    INCLUDE = "include"


class ChangePart(_TaggedCommand, frozen=True):
    """Changes how a part is sent. `last_seq`: of several facts, the last. Of one part of a fact, 0."""

    conversation: str
    change: PartChange
    seq: int
    part: int = 0
    last_seq: int = 0


class ChooseLastingModel(_TaggedCommand, frozen=True):
    """Sets the model of the workspace, or of one conversation for good. No `model`: the
    conversation takes the workspace's again.
    """

    model: str
    conversation: str = ""


class ChoosePermissionMode(_TaggedCommand, frozen=True):
    name: str


class AttachEntry(_TaggedCommand, frozen=True):
    """Asks for stored content as an attachment for the next message. `first_line`, `last_line`:
    of a part of it.
    """

    conversation: str
    digest: str
    first_line: int = 0
    last_line: int = 0


class CountSentTokens(_TaggedCommand, frozen=True):
    """Asks how many tokens are sent of an attachment of a message that is being written. The
    answer is the attachment with these tokens. `instead_of`: an earlier message that it replaces.
    """

    conversation: str
    attachment: facts.Attachment
    text: str = ""
    attachments: tuple[facts.Attachment, ...] = ()
    instead_of: int = 0


class CompletePaths(_TaggedCommand, frozen=True):
    """Asks for paths below the workspace's folder that contain `letters`."""

    letters: str
    limit: int = 20


class ReadFile(_TaggedCommand, frozen=True):
    """Asks for a file of the workspace's folders, as somebody wrote its path, for a preview."""

    conversation: str
    path: str


class ListChangesAfter(_TaggedCommand, frozen=True):
    """Asks which files were changed after the fact `seq`, and so can be undone with it."""

    conversation: str
    seq: int


class TakeKeyBack(_TaggedCommand, frozen=True):
    """Ends a key that the user has lent for this conversation. NotFound if none is lent."""

    conversation: str


# --- Stored outputs


class ListEntries(_TaggedCommand, frozen=True):
    """Asks for a page of the list of stored outputs."""

    chosen: EntryFilter
    sort: EntrySort
    descending: bool
    offset: int
    limit: int


class CountEntries(_TaggedCommand, frozen=True):
    chosen: EntryFilter


class MeasureEntries(_TaggedCommand, frozen=True):
    """Asks for figures about all entries."""


class CountEntriesByTool(_TaggedCommand, frozen=True):
    """Asks which tools the entries are from."""


class FindEntries(_TaggedCommand, frozen=True):
    """Asks for the rows of these entries. Those that are not there are left out."""

    digests: tuple[Digest, ...]


class FindEntryUses(_TaggedCommand, frozen=True):
    digest: Digest


class SearchEntries(_TaggedCommand, frozen=True):
    """Asks which entries contain the words. `tool`: only those of this tool. `with_messages`: also
    which messages.
    """

    words: str
    tool: str
    limit: int
    with_messages: bool = False


class ResolveEntry(_TaggedCommand, frozen=True):
    """Asks for the only entry whose hash begins so."""

    beginning: str


class VerifyEntry(_TaggedCommand, frozen=True):
    """Compares the content with its hash. CacheCorrupt if they differ."""

    digest: Digest


class PinEntry(_TaggedCommand, frozen=True):
    digest: Digest
    is_pinned: bool


# --- Changed files. `conversation` says whose folders it is about, as some work in a copy of them.


class ListTurnsWithChanges(_TaggedCommand, frozen=True):
    """Asks which turns have changed files, with what their sub-agents have changed."""

    conversation: str


class ListChangesOfSteps(_TaggedCommand, frozen=True):
    """Asks what each group of steps has changed. `with_folders`: everything that must be undone
    together, and no line counts.
    """

    conversation: str
    groups: tuple[tuple[sent_changes.SentStep, ...], ...]
    with_folders: bool = False


class ListChangesSinceCheckpoint(_TaggedCommand, frozen=True):
    conversation: str
    checkpoint: Digest
    with_folders: bool = False


class ListChangesSinceRevision(_TaggedCommand, frozen=True):
    """Asks what differs from a revision of the user's repository."""

    conversation: str
    revision: str


class CompareWithLastCommit(_TaggedCommand, frozen=True):
    """Asks which of these paths are as in the last commit. `changed_since`: which are not any more."""

    conversation: str
    changes: tuple[sent_changes.SentChange, ...]
    changed_since: bool = False


class DescribeCoverage(_TaggedCommand, frozen=True):
    """Asks what checkpoints cover, and how far the first one is."""

    conversation: str


class PlanUndo(_TaggedCommand, frozen=True):
    """Asks what an undo of these changes would do."""

    conversation: str
    files: sent_changes.SentFiles


class UndoChangedFiles(_TaggedCommand, frozen=True):
    """Restores these files. `choices`: for those that others have changed since, by path, as
    `FileChanges.undo_file_changes` takes them. `undoes`: the facts that are undone.
    """

    conversation: str
    files: sent_changes.SentFiles
    choices: tuple[tuple[bytes, str], ...] = ()
    undoes: tuple[int, ...] = ()


class UndoHunks(_TaggedCommand, frozen=True):
    """Undoes some hunks of the only file in `files`."""

    conversation: str
    files: sent_changes.SentFiles
    hunks: tuple[str, ...]


class KeepHunk(_TaggedCommand, frozen=True):
    """Records that the user has looked at a hunk and keeps it. No `hunk`: the whole file."""

    conversation: str
    path: bytes
    hunk: str = ""


# All commands. Whatever else a client sends is not understood.
HostCommand = (
    StartConversation
    | CheckMessage
    | SendMessage
    | TakeBackMessage
    | StopTurn
    | ResumeTurn
    | AnswerQuestion
    | FoldConversation
    | UndoFold
    | RepeatFold
    | EditFold
    | RewindConversation
    | AnswerAgain
    | ForkConversation
    | UndoFileChanges
    | ChangeConversation
    | StoreContent
    | ChooseModel
    | DescribeWorkspace
    | ChangeWaitingMessage
    | EditAndResend
    | SwitchToAnswer
    | RetryModelNow
    | StopFold
    | ChangePart
    | ChooseLastingModel
    | ChoosePermissionMode
    | AttachEntry
    | CountSentTokens
    | CompletePaths
    | ReadFile
    | ListChangesAfter
    | TakeKeyBack
    | ListEntries
    | CountEntries
    | MeasureEntries
    | CountEntriesByTool
    | FindEntries
    | FindEntryUses
    | SearchEntries
    | ResolveEntry
    | VerifyEntry
    | PinEntry
    | ListTurnsWithChanges
    | ListChangesOfSteps
    | ListChangesSinceCheckpoint
    | ListChangesSinceRevision
    | CompareWithLastCommit
    | DescribeCoverage
    | PlanUndo
    | UndoChangedFiles
    | UndoHunks
    | KeepHunk
)


class OfferedCommand(msgspec.Struct, frozen=True):
    """A slash command, and a few words about it."""

    name: str
    about: str = ""


class LentKey(msgspec.Struct, frozen=True):
    """A process beside the host holds the keys of these providers, for one conversation alone."""

    conversation: str
    providers: tuple[str, ...]


class WorkspaceDescription(msgspec.Struct, frozen=True):
    """What a client shows of a workspace besides its conversations."""

    folders: tuple[str, ...] = ()
    main_model: str = ""
    policy: str = ""
    permission_mode: str = ""
    everything_allowed_until: float = 0.0  # In seconds since 1970. 0: no hour was chosen.
    permission_modes: tuple[tuple[str, str], ...] = ()  # Each with what it means.
    # What rules allow although the mode asks: of each conversation, and of all others under "".
    allowed_by_rules: tuple[tuple[str, tuple[str, ...]], ...] = ()
    slash_commands: tuple[OfferedCommand, ...] = ()
    lent_keys: tuple[LentKey, ...] = ()


class FileForPreview(msgspec.Struct, frozen=True):
    """A file as the host has read it. `kind`: how it is shown. `text`: of a document, what was read
    from it. `page_count`: a PDF's pages.
    """

    shown_path: str
    full_path: str
    kind: str
    content: bytes
    text: str = ""
    page_count: int = 0


class ChangedPath(msgspec.Struct, frozen=True):
    """A file that was changed. `by`: who did it last. `has_conflict`: others have changed it since,
    so it is not undone.
    """

    path: str
    by: str = ""
    has_conflict: bool = False


class EntryAnswer(msgspec.Struct, frozen=True):
    """What was asked about stored outputs. `tools`: by name, how many entries are of each."""

    rows: tuple[EntryRow, ...] = ()
    count: int = 0
    figures: CacheEntryFigures | None = None
    tools: tuple[tuple[str, int], ...] = ()
    uses: tuple[EntryUse, ...] = ()
    hits: tuple[SearchHit, ...] = ()
    digest: Digest | None = None


class ChangesAnswer(msgspec.Struct, frozen=True):
    """What was asked about changed files. `groups`: files, one for each group of steps."""

    turns: tuple[sent_changes.SentTurn, ...] = ()
    groups: tuple[sent_changes.SentFiles, ...] = ()
    planned: tuple[sent_changes.SentPlan, ...] = ()
    paths: tuple[bytes, ...] = ()
    coverage: sent_changes.SentCoverage | None = None
    undone: sent_changes.SentUndo | None = None


class CommandResult(msgspec.Struct, frozen=True):
    """`conversation`: that was started or forked. `paths`: of files that an undo has restored.
    `left_alone`: those that it has not. `attachments`: what content was stored as. `changed`:
    files, as ListChangesAfter asks for them. `file`: as ReadFile asks for it. `entries`: what was
    asked about stored outputs. `changes`: what was asked about changed files. `sent_text`: what a
    slash command was sent as.
    """

    conversation: str = ""
    paths: tuple[str, ...] = ()
    left_alone: tuple[str, ...] = ()
    attachments: tuple[facts.Attachment, ...] = ()
    description: WorkspaceDescription | None = None
    changed: tuple[ChangedPath, ...] = ()
    file: FileForPreview | None = None
    entries: EntryAnswer | None = None
    changes: ChangesAnswer | None = None
    sent_text: str = ""


# What carries out commands of one class, and takes one of them.
CommandRunner = Callable[[Any], Awaitable[CommandResult]]


def new_command_id() -> str:
    """A command that is sent twice with the same id is done once."""
    return secrets.token_hex(12)


# --- What is told of a conversation


@dataclass(frozen=True, slots=True)
class FactsAdded:
    """Facts in the order of their numbers, without a gap to those told before."""

    facts: tuple[facts.Recorded, ...]


@dataclass(frozen=True, slots=True)
class NewestFacts:
    """The newest messages of a long history, before all of its facts: see `newest_facts.py`. They
    follow again in their order, and whoever applies facts in order does not need these.
    """

    facts: tuple[facts.Recorded, ...]


@dataclass(frozen=True, slots=True)
class HistoryReplaced:
    """Recorded facts have changed. All of them follow again, from the first."""


@dataclass(frozen=True, slots=True)
class ReplyDelayed:
    """The model is asked again after a pause."""

    conversation: str
    why: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LiveState:
    """What is not stored, at the moment when all facts have been told: at the beginning, and again
    when events were left out because the client was slow.

    `is_early`: behind the newest facts, and again when it changes, it is told before all facts have been.
    """

    running: session_events.ConversationActivity
    why: str
    questions: tuple[session_events.QuestionAsked, ...]
    queued: session_events.MessagesQueued
    reply_text: str  # What the model has written of the reply that is not a fact yet.
    is_early: bool = False
    fold: session_events.FoldProgress | None = None  # What is being made and, if so, waited for.
    retry: ReplyDelayed | None = None  # With what is left of the pause that the turn is in.


ConversationEvent = (
    FactsAdded
    | NewestFacts
    | HistoryReplaced
    | LiveState
    | ReplyDelayed
    | session_events.ReplyStreamed
    | session_events.ToolPrinted
    | session_events.CallStageChanged
    | session_events.ActivityChanged
    | session_events.QuestionAsked
    | session_events.QuestionAnswered
    | session_events.FoldProgress
    | session_events.MessagesQueued
    | session_events.MeterChanged
)
# The end of a stream has the whole reply, which follows as a fact, and is not told.
ToldDelta = TextDelta | ReasoningDelta | CallDelta


class HostListRow(msgspec.Struct, frozen=True):
    """A conversation in the list. `why`: what it waits for, or why it failed. `is_deleted`: it was
    deleted for good, and only its id means anything.
    """

    row: ConversationListRow
    running: session_events.ConversationActivity
    why: str = ""
    is_deleted: bool = False


class ConversationFollower(Protocol):
    async def next_events(self) -> tuple[ConversationEvent, ...]:
        """Waits for the next event, and returns all that have come. OwnerEnded if the host ended."""

    async def close_follower(self) -> None: ...


class ListFollower(Protocol):
    @property
    def settings_changes(self) -> int:
        """Return how often the workspace's settings have changed since this began to follow."""

    async def next_rows(self) -> tuple[HostListRow, ...]:
        """Waits for rows that are new or have changed: at first all. Returns none if only the
        workspace's settings have changed. OwnerEnded as above.
        """

    async def close_follower(self) -> None: ...


class WorkspaceHost(Protocol):
    """One workspace, wherever it is open."""

    @property
    def workspace(self) -> str:
        """Return the workspace's id."""

    @property
    def workspace_name(self) -> str: ...

    async def run_host_command(self, command: HostCommand, command_id: str = "") -> CommandResult:
        """Does it, or raises the HelixError that the session raised."""

    async def follow_conversation(
        self, conversation: str, after: int = 0, *, newest_first: bool = False
    ) -> ConversationFollower:
        """Tells the facts after `after`, and then what happens. `newest_first`: of a long history,
        NewestFacts is told before, while the conversation may still have to be opened.
        """
        ...

    async def follow_list(self) -> ListFollower: ...

    async def read_content_range(self, digest: Digest, start: int, length: int) -> bytes:
        """Reads at most LONGEST_RANGE bytes."""

    async def close_host(self) -> None: ...


async def read_stored_content(host: WorkspaceHost, stored: facts.Stored) -> bytes:
    """Reads whole content range by range, and checks it against its digest."""
    content = bytearray()
    while len(content) < stored.size:
        length = min(LONGEST_RANGE, stored.size - len(content))
        piece = await host.read_content_range(stored.digest, len(content), length)
        if not piece:
            break
        content += piece
    whole = bytes(content)
    if Digest.of_content(whole) != stored.digest:
        raise CacheCorrupt(
            f"The content {stored.digest.short_hex} arrived damaged. It was not used.",
            remedy="Try again, or check the workspace where it is open.",
        )
    return whole


def message_fingerprint(parts: Sequence[facts.UserPart]) -> str:
    """Stands for a message that waits, whatever its tokens were counted as."""
    names: list[str] = []
    for part in parts:
        if isinstance(part, facts.Text):
            names.append(part.text)
        else:
            names.append(part.stored.digest.hex)
    return Digest.of_content(msgspec.msgpack.encode(names)).hex


def question_fingerprint(question: PermissionQuestion) -> str:
    """Stands for every word of a question, so that nobody allows another one by mistake."""
    return Digest.of_content(msgspec.msgpack.encode(question)).hex
