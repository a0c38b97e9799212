"""The journal's vocabulary: everything that can happen in a conversation, as frozen values.

Numbers: `seq` counts a conversation's facts from 1, so a fork's copied facts keep their
numbers and every reference into them stays true. Tokens are counted once, when a fact
is made, with one base encoding (o200k_base); `context_usage.py` corrects them per
model. Texts of any size live in the fact, except tool outputs, attachments and
oversized messages: those are entries of the cache and the fact carries a `Stored`.

How a fact becomes JSON, and back from any version, is in `fact_encoding.py`. To change a fact:
give every new field a default (old journals lack it), or raise its version there and add the step.
"""

from dataclasses import field
from enum import StrEnum

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Stored:
    """A reference to an entry of the cache."""

    digest: Digest
    size: int
    lines: int = 0
    media_type: str = "text/plain"


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class DocumentOrigin:
    """The document that an attachment's text was read from. `unit` is what its pages are called."""

    original: Stored
    unit: str = "page"
    count: int = 0


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file, image or oversized text that the user attached. Its content is in the cache. Of a
    document, it is the text that was read, or a page's picture.
    """

    name: str
    stored: Stored
    tokens: int = 0
    document: DocumentOrigin | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model's thinking. `opaque` is what the provider needs back verbatim (a
    signature, encrypted content, JSON).

    `model`: the only model that may get it, if another program recorded it. Empty: any
    model of its provider.
    """

    text: str
    tokens: int = 0
    opaque: str = ""
    provider: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments`: JSON text as the model wrote it, valid or not, without `keep`, which
    says what to keep of a long output. `via`: the tool through which the model called
    this one, as requests show it.
    """

    id: str
    name: str
    arguments: str
    tokens: int = 0
    keep: str = ""
    via: str = ""


UserPart = Text | Attachment
ReplyPart = Text | Reasoning | ToolCall


class Stop(StrEnum):
    """Why a reply ended. `CUT`: the stream broke or gave no reason; it can be continued."""

    END = "end"
    CALLS = "calls"
    LENGTH = "length"
    FILTERED = "filtered"
    CUT = "cut"
    STOPPED = "stopped"


# Anthropic charges 2 times the input price for caching for an hour, and 1.25 times for
# 5 min. Prices of models are those for 5 min.
HOUR_WRITE_PRICE = 2.0
HOUR_WRITE = HOUR_WRITE_PRICE / 1.25


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider reported them; 0: not reported. `input` includes the cached ones."""

    input: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    cost: float = 0.0  # In US dollars, by the price list; 0 if the prices are unknown.
    cache_write_hour: int = (
        0  # Tokens of `cache_write` that are kept for an hour, at a higher price.
    )

    @property
    def priced_cache_write(self) -> float:
        """Return `cache_write`, with tokens cached for an hour counted at their higher price."""
        return self.cache_write + (HOUR_WRITE - 1) * self.cache_write_hour

    @property
    def is_cached_for_an_hour(self) -> bool:
        """Whether most of what was written is kept for an hour."""
        return self.cache_write < 2 * self.cache_write_hour


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as offered to the model. `schema` is text, so that facts stay hashable and exact."""

    name: str
    description: str
    schema: str


# --- Folds, and the parts they cover ---


class FoldKind(StrEnum):
    MARKER = "marker"
    EXCERPT = "excerpt"
    OBSERVATIONS = "observations"
    REFLECTION = "reflection"
    HANDOVER = "handover"
    TRUNCATION = "truncation"


@dataclass(frozen=True, slots=True, order=True)
class PartRef:
    """One part of one fact: a message's part by its index, or an output (part 0)."""

    seq: int
    part: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """All facts from `first` to `last`, both included."""

    first: int
    last: int


Cover = Span | PartRef


@dataclass(frozen=True, slots=True)
class DetailsKept:
    """How many details of a fold the model kept, how many the program added, and how
    many are in the entry.
    """

    found: int = 0
    kept: int = 0
    added: int = 0
    entry: int = 0


@dataclass(frozen=True, slots=True)
class Folded:
    """The model is shown `text` in place of `cover`. Folds of one `batch` change the
    prefix only once.
    """

    fold: str
    kind: FoldKind
    cover: Cover
    text: str
    tokens: int
    tokens_before: int
    batch: str = ""
    # The cache entries that this text refers to: originals, or the stored details of a handover.
    entries: tuple[Digest, ...] = ()
    details: DetailsKept = DetailsKept()
    number: int = 0  # A number for the title, such as 3 in "Handover 3".
    model: str = ""  # The model that wrote this text; empty if none did.
    seconds: float = 0.0
    why: str = ""  # A sentence that states which rule led to the fold, with its figures.
    asked: str = ""  # What the agent or the user asked to keep.
    panic: bool = False
    # The connected agent itself sends this text in place of an output, whatever is folded here.
    is_by_agent: bool = False


@dataclass(frozen=True, slots=True)
class Unfolded:
    fold: str


@dataclass(frozen=True, slots=True)
class Refolded:
    fold: str


@dataclass(frozen=True, slots=True)
class DocumentEdited:
    """The user's own wording of what a fold shows."""

    fold: str
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class FoldFailed:
    """A strategy failed. Three failures in a row open its breaker until `BreakerClosed`
    or a success.
    """

    kind: FoldKind
    why: str


@dataclass(frozen=True, slots=True)
class BreakerClosed:
    kind: FoldKind


@dataclass(frozen=True, slots=True)
class Pinned:
    ref: Cover


@dataclass(frozen=True, slots=True)
class Unpinned:
    ref: Cover


@dataclass(frozen=True, slots=True)
class Excluded:
    """The user took a part out of the view. If a provider's rules need one, a note replaces it."""

    ref: Cover


@dataclass(frozen=True, slots=True)
class Included:
    ref: Cover


# --- Messages, replies and results ---


# Replaces an earlier note when a newer one has its name.
NO_LONGER = "[What stood here before, under the same name, no longer holds.]"


@dataclass(frozen=True, slots=True)
class UserSaid:
    """`steering`: it was sent while the agent worked, and follows all results of that
    step. `by`: where a message of the program comes from, such as
    `rules:src/AGENTS.md`, `skill:pdf`, `plan`, `hook:Stop` or `agent`. `command`: tells it from
    other messages with equal words. No model is sent it.
    """

    parts: tuple[UserPart, ...]
    steering: bool = False
    by: str = ""
    command: str = ""


@dataclass(frozen=True, slots=True)
class ModelReplied:
    """`saw`: the newest fact in the view that this reply answers, with which the
    request can be shown again (0: unknown, so the fact before the reply). `request`:
    the digest of the request (`state/request_digest.py`), to check what is shown.
    """

    parts: tuple[ReplyPart, ...]
    model: str
    stop: Stop
    usage: Usage = Usage()
    saw: int = 0
    seconds: float = 0.0
    request: Digest | None = None
    raw: str = ""  # The provider's whole reply as JSON, if the agent was shown only a part of it.
    # `Request.stable` and `Request.settled` of this request: where cache marks were set.
    stable: int | None = None
    settled: int = 0
    room: int = 0  # `Request.room` of this request, which limited the reply.


@dataclass(frozen=True, slots=True)
class FileChanged:
    """A file that a tool changed: created if `before` is None, or deleted if `after` is None."""

    path: str
    before: Digest | None
    after: Digest | None


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """`head`: the output itself if it is short (up to 2,000 characters), only for
    display and search.
    """

    call: str
    output: Stored
    tokens: int
    ok: bool = True
    exit_code: int | None = None
    seconds: float = 0.0
    head: str = ""
    images: tuple[Stored, ...] = ()
    changes: tuple[FileChanged, ...] = ()
    repeat_of: int = 0  # The number of the earlier, equal read whose output answered this call.
    child: str = ""  # The id of the sub-agent's conversation, if this call started one.
    stopped: bool = False  # True if the user stopped the call; its output then ends at that point.


@dataclass(frozen=True, slots=True)
class FilesChanged:
    """What a step did to the workspace's folders. `difference`: the entry that names
    each path with its content before and after; `before` and `after`: the checkpoints
    around it. `by`: tool, command, server, background or undo. `undoes`: the facts of
    this conversation that an undo reverted; `is_whole`: none of their changes is left.
    """

    difference: Stored
    before: Digest
    after: Digest
    files: int = 0
    added: int = 0  # How many lines this change added to the file.
    removed: int = 0
    call: str = ""
    by: str = "command"
    undoes: tuple[int, ...] = ()
    names: tuple[str, ...] = ()  # Some of the changed paths, to be named in a line of text.
    left_out: tuple[
        str, ...
    ] = ()  # Some of the files that this step created but an undo does not remove.
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class ChangeKept:
    """The user has looked at a change and keeps it. `hunk`: which part; empty: the whole file."""

    path: str
    hunk: str = ""


@dataclass(frozen=True, slots=True)
class FilesCommitted:
    """The user has committed these changed files in the window. `answer`: what git said."""

    paths: tuple[str, ...]
    answer: str


@dataclass(frozen=True, slots=True)
class Decided:
    """A permission decision, for the record. No summary repeats it, and it authorises nothing."""

    call: str
    allowed: bool
    by: str  # Who decided: "user", "rule" or "mode" (the permission mode).
    scope: str = "once"  # How long the decision holds: "once", "conversation" or "always".
    why: str = ""
    device: str = ""  # The paired phone or browser where the user decided, as the user named it.


@dataclass(frozen=True, slots=True)
class TodoSet:
    items: tuple[tuple[str, str], ...]  # Each item's text and its state: "open", "doing" or "done".


class Purpose(StrEnum):
    """What a model is asked for. A word from a later version is read as OTHER."""

    STEP = "step"
    HANDOVER = "handover"
    OBSERVATIONS = "observations"
    REFLECTION = "reflection"
    COMPACTION = "compaction"
    ADMISSION = "admission"
    TITLE = "title"
    TEST = "test"
    KEEP_ALIVE = "keeping the cache alive"
    OTHER = "other"

    @classmethod
    def _missing_(cls, value: object) -> "Purpose":  # noqa: ARG003 -- the enum's signature
        return cls.OTHER


@dataclass(frozen=True, slots=True)
class Spent:
    """What a request besides the steps cost: to shorten outputs, write a summary or
    compact an entry. `is_estimate`: its answer never came, or broke off, so the provider has not
    said what it bills.
    """

    purpose: Purpose
    model: str
    usage: Usage
    is_estimate: bool = False


class TurnEnd(StrEnum):
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"
    STEP_LIMIT = "step limit"
    SPENDING_LIMIT = "spending limit"
    REPEATING = "repeating"


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """`cause`: what failed, to offer a way on: key, credit, model, window, busy,
    connection or store. "length": a reply that is too long. "repeated text": a reply that
    was stopped because it repeated itself.
    """

    reason: TurnEnd
    why: str = ""
    cause: str = ""


@dataclass(frozen=True, slots=True)
class Rewound:
    """The view continues from `to`. Later facts stay in the journal and are shown collapsed.

    `again`: the user wants another answer to a message, or returns to one; all answers
    can be chosen.
    """

    to: int
    again: bool = False


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an imported history is from: the program, its session, the file and the
    program's version.
    """

    kind: str = ""
    session: str = ""
    path: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class ConversationStarted:
    title: str = ""
    parent: str = ""  # The conversation whose agent delegated this work.
    parent_call: str = ""
    forked_from: str = ""
    forked_at: int = 0
    origin: Origin = Origin()
    agent: str = ""  # The connected agent that writes here, such as "Codex"; or empty.
    role: str = ""  # The agent of the workspace that this work was delegated to, by name.
    copy: str = ""  # The name of the private copy of the folders that it works in; empty: no copy.
    acp_agent: str = ""  # The foreign agent that works here over ACP; empty: this program's own.


@dataclass(frozen=True, slots=True)
class BroughtIn:
    """The facts from `first` to this one were imported from `origin`, from a file that
    had `size` bytes and was `modified` at this time (nanoseconds since 1970). `run`
    names the import. `undone`: it was undone. `cost`: the dollars that the other
    program paid for these facts. `unread`: the lines of the file that this program does
    not understand, unchanged, without those of earlier imports. `lines`: all lines of the
    file, for the agent that wrote them, without those of earlier imports.
    """

    origin: Origin
    run: str
    first: int = 0
    size: int = 0
    modified: int = 0
    undone: bool = False
    cost: float = 0.0
    unread: Stored | None = None
    lines: Stored | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """How a connected agent's messages became facts: for each, the hash of all messages
    up to it and the last fact that it became. So the agent's next request is
    recognised, even after a restart. `session`: the name the agent gives its
    conversation; `head`: a hash of its instructions and tools. `replaced`: these messages
    stand for so many of the last ones again, whose outputs the agent has shortened.
    """

    chain: tuple[str, ...]
    seqs: tuple[int, ...]
    session: str = ""
    head: str = ""
    replaced: int = 0


@dataclass(frozen=True, slots=True)
class ConversationChanged:
    """Values that are not None have changed. `model`: its own main model, or empty for
    the workspace's.

    `copy`: as in `ConversationStarted`. `choice`: the user's choice for a foreign
    agent, as `ID=VALUE`.
    """

    title: str | None = None
    pinned: bool | None = None
    archived: bool | None = None
    trashed: bool | None = None
    model: str | None = None
    copy: str | None = None
    choice: str | None = None


@dataclass(frozen=True, slots=True)
class SystemSet:
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class RulesSet:
    """A trusted rules file, word for word. An empty text removes it."""

    path: str
    text: str
    tokens: int


@dataclass(frozen=True, slots=True)
class ToolsOffered:
    """`withheld`: definitions that must be searched for instead, and about how large they are."""

    tools: tuple[ToolSpec, ...]
    tokens: int
    withheld: int = 0
    withheld_tokens: int = 0


@dataclass(frozen=True, slots=True)
class PolicySet:
    """The policy's preset, and every value that differs from it."""

    preset: str
    values: tuple[tuple[str, float | int | str | bool], ...] = ()


class ModelRole(StrEnum):
    """What a model is used for: the steps, small jobs, or what fits no other window."""

    MAIN = "main"
    FAST = "fast"
    LONG = "long"


@dataclass(frozen=True, slots=True)
class ModelSet:
    """Prices are in dollars per million tokens; 0: unknown. `effort`: how long to think ("low",
    "medium", "high"; empty: the default). `temperature`, `top_p`: None: the provider's default.
    `cache_seconds`: how long the provider caches a request; 0: unknown. `is_free`: nobody
    charges for the model, because it runs on the user's computer. `can_call_tools`: False
    if its chat template leaves tools out.
    """

    role: ModelRole
    model: str
    window: int
    max_output: int = 0
    price_input: float = 0.0
    price_output: float = 0.0
    price_cache_read: float = 0.0
    price_cache_write: float = 0.0
    effort: str = ""
    temperature: float | None = None
    top_p: float | None = None
    cache_seconds: int = 0
    is_free: bool = False
    can_call_tools: bool = True


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Records that something was removed for good. What it was is counted, not named."""

    entries: tuple[Digest, ...] = field(default=())
    facts: int = 0
    why: str = ""


Fact = (
    UserSaid | ModelReplied | ToolReturned | FilesChanged | ChangeKept | FilesCommitted | Decided
    | TodoSet | Spent | TurnEnded | Rewound | Folded | Unfolded | Refolded | DocumentEdited | FoldFailed
    | BreakerClosed | Pinned | Unpinned | Excluded | Included | ConversationStarted | BroughtIn
    | Received | ConversationChanged | SystemSet | RulesSet | ToolsOffered | PolicySet
    | ModelSet | Forgotten
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recorded:
    """A fact with its conversation, its number there, and its time (seconds since 1970)."""

    conversation: str
    seq: int
    time: float
    fact: Fact
