"""What the engine needs from outside, as Protocols. Each has an implementation in
memory and a real one.

The calls are coroutines, since the real ones run on threads. Errors are those of
`helix_desktop.errors`.
"""

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from dataclasses import field
from typing import Protocol, runtime_checkable

from helix_desktop.engine.facts import (
    Decided,
    Fact,
    FileChanged,
    FilesChanged,
    Recorded,
    Stored,
    ToolCall,
    ToolSpec,
)
from helix_desktop.engine.messages import Delta, Request
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass


class JournalPort(Protocol):
    """The facts of one workspace. Appending returns once all facts are on disk, or writes none."""

    async def append_to_journal(
        self, conversation: str, facts: Sequence[Fact]
    ) -> Sequence[Recorded]: ...
    async def read_facts(
        self, conversation: str, after: int = 0, limit: int = 0
    ) -> Sequence[Recorded]: ...


@dataclass(frozen=True, slots=True)
class EntryOrigin:
    """Where content comes from: the tool, and its main argument (a path, command or name)."""

    tool: str = ""
    source: str = ""
    media_type: str = "text/plain"


# Of the words that take the place of an output where a call was not run. It names no command: the
# cache would list it as one that ran, and one text takes the place of many outputs.
NOT_RUN = EntryOrigin("not run")
VERSION = "version"  # What is called the tool of a file's content before or after a change.


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """`tokens` is 0 if nobody has counted them."""

    stored: Stored
    about: EntryOrigin
    time: float
    beginning: bytes = b""
    tokens: int = 0


class ContentReader(Protocol):
    """Content by its SHA-256, wherever it is stored. See `ContentCache`."""

    async def read_content(self, digest: Digest) -> bytes: ...
    async def read_range(self, digest: Digest, start: int, length: int) -> bytes: ...
    async def read_contents(self, digests: Collection[Digest]) -> Mapping[Digest, bytes]: ...


class ContentCache(Protocol):
    """Content by its SHA-256. `store_content` returns once it is on disk. Content may
    be stored again.

    Every read is checked: it raises CacheCorrupt rather than return wrong bytes, and NotFound for
    unknown content. `media_type` is that of the last time it was stored.
    """

    async def store_content(
        self, content: bytes | AsyncIterable[bytes], about: EntryOrigin
    ) -> Stored: ...
    async def read_content(self, digest: Digest) -> bytes: ...
    async def read_range(self, digest: Digest, start: int, length: int) -> bytes: ...

    async def read_contents(self, digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        """Return those that exist and are intact. One call for all is faster with a
        distant store.
        """

    async def find_missing_content(self, digests: Collection[Digest]) -> frozenset[Digest]: ...

    async def describe_entry(self, digest: Digest, beginning: int = 0) -> CacheEntry:
        """Return an entry with so many of its first bytes, and its tokens if known."""

    async def resolve_prefix(self, prefix: str) -> Digest:
        """Return the only entry whose hash begins so (4 digits or more)."""


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A hit in an entry (`digest`) or in a fact (`conversation`, `seq`), with all words
    or only some.

    `said_by`: who said a fact: user, agent, or the kind of fold whose text it is.
    `page_unit` and `page`: where in a document it is, such as page 3. `time`: when it was stored
    or said; 0 if that is unknown.
    """

    snippet: str
    digest: Digest | None = None
    conversation: str = ""
    seq: int = 0
    line: int = 0
    about: EntryOrigin = EntryOrigin()
    has_all_words: bool = True
    said_by: str = ""
    page_unit: str = ""
    page: int = 0
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class ClosedSearchResult:
    """Results of a search. `titles`: by conversation. `behind`: the index is not complete."""

    hits: Sequence[SearchHit] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    behind: bool = False


class SearchIndex(Protocol):
    """Full-text search over the workspace's entries and messages."""

    async def search_index(
        self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False
    ) -> Sequence[SearchHit]: ...

    async def find_left_entries(
        self, digests: Collection[Digest]
    ) -> Mapping[Digest, frozenset[str]]:
        """Return those of these entries that are only in parts of conversations that users left
        by a rewind, each with these conversations.
        """


@dataclass(frozen=True, slots=True)
class ForgetResult:
    """`conversations`: those with changed facts. `elsewhere`: sentences on what the
    user must do.

    `outside_facts`: how many texts were removed or changed that are no entries and not in facts,
    such as replies that were cut off, messages that wait and descriptions of entries that stay.
    """

    entries: tuple[Digest, ...]
    facts: int
    conversations: tuple[str, ...]
    backups: int
    elsewhere: tuple[str, ...] = ()
    ciphertext: tuple[str, ...] = ()  # Places in a shared store that may still hold it, encrypted.
    outside_facts: int = 0

    @property
    def has_removed(self) -> bool:
        return bool(self.entries or self.facts or self.backups or self.outside_facts)


@dataclass(frozen=True, slots=True)
class EmptyTrashResult:
    """What emptying the trash removed: conversations, entries, and the entries' bytes on disk."""

    conversations: tuple[str, ...] = ()
    entries: int = 0
    bytes: int = 0


class ContentForgetter(Protocol):
    """Removes a text and entries from the whole workspace, while no session works."""

    async def __call__(self, *, text: str = "", entries: Sequence[Digest] = ()) -> ForgetResult: ...


class TokenCounter(Protocol):
    """Counts any text with the base encoding, without the network. Fast for text counted before."""

    def count_tokens(self, text: str) -> int: ...


class Clock(Protocol):
    """`current_time` is the date, in seconds since 1970, which can be set at any moment. Lengths
    are differences of `steady_time`, which nobody can set and which says no date.
    """

    def current_time(self) -> float: ...
    def steady_time(self) -> float: ...
    async def sleep_seconds(self, seconds: float) -> None: ...


class ModelClient(Protocol):
    """A configured model. `stream_reply` yields deltas and at last one Reply, or raises
    ModelFailed.

    It retries by itself and yields a RetryDelay then. Cancelling closes the connection.
    """

    @property
    def model_name(self) -> str: ...

    def stream_reply(self, request: Request) -> AsyncIterator[Delta]: ...


@runtime_checkable
class CountingModelClient(Protocol):
    """A ModelClient that knows something of the model's own tokenizer."""

    async def count_request_tokens(self, request: Request) -> int:
        """Return what the model's server counts, or 0 if it does not count."""

    async def estimate_request_tokens(self, request: Request) -> int:
        """Return about how many tokens the model needs for a request, or 0 if unknown."""


@runtime_checkable
class CuttingModelClient(Protocol):
    """A ModelClient that knows whether the model's server shortens long requests by itself."""

    @property
    def may_cut_silently(self) -> bool:
        """Whether the server may leave out the beginning of a request that is longer than the
        window, without a word.
        """


@runtime_checkable
class HistoryKeepingModelClient(Protocol):
    """A ModelClient that may write behind another history than the conversation's here."""

    @property
    def has_own_history(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """The outcome of a tool call, whose output is already in the cache."""

    output: Stored
    ok: bool = True
    exit_code: int | None = None
    images: tuple[Stored, ...] = ()
    changes: tuple[FileChanged, ...] = ()
    child: str = ""
    todo: tuple[tuple[str, str], ...] | None = None
    decided_by: str = ""  # Who allowed or refused it: "user", "rule", "mode" or nobody ("").
    decided_scope: str = "once"
    decided_on: str = ""  # The paired device on which the user decided. Empty: this computer.
    # What to keep of a long output, from the call's `keep` argument. The tool never
    # gets it.
    keep: str = ""
    repeated: bool = False  # Whether this repeats an earlier read of unchanged content.
    refused: bool = False  # Whether the user or a rule refused this call, so that nothing was done.
    stopped: bool = False  # Whether this call was cancelled, so that its output ends early.
    files: FilesChanged | None = None  # The files that the call changed in the workspace's folders.
    content: bytes | None = None  # The whole output, if it is in memory and need not be read again.

    def decision_on_call(self, call_id: str) -> Decided:
        """Return the fact that says who allowed or refused this call."""
        return Decided(
            call=call_id,
            allowed=not self.refused,
            by=self.decided_by,
            scope=self.decided_scope,
            device=self.decided_on,
        )


@dataclass(frozen=True, slots=True)
class AskedProgram:
    """A program that a command line would start: `name` as a person says it, and whether a rule
    allows it already.

    `writes`, `deletes`: the files that its words and redirections name as written or deleted.
    `risk`: what to notice about this use, a key of "risk of a program" in `shown_names.json`.
    """

    name: str
    is_allowed: bool = False
    writes: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    risk: str = ""


# How the reasons of this program begin. Others begin with a path, a host or another's words.
_FIRST_WORDS_OF_OWN_REASONS = frozenset({"a", "it", "other", "the", "there", "this"})


@dataclass(frozen=True, slots=True)
class PermissionQuestion:
    """Asks whether something may be done. `preview`: a command line, diff or URL."""

    call: ToolCall
    title: str
    preview: str
    why: str = ""  # A sentence that explains why this question is asked.
    scopes: tuple[str, ...] = ("once", "conversation", "always")
    form: str = ""  # If an MCP server asks for values: the form to fill in, as a JSON schema.
    by: str = ""  # The task of the sub-agent that asks; empty for the main agent.
    # The rules that would allow this for longer, as text. The first one is preselected.
    rules: tuple[str, ...] = ()
    # For an edit: the folder that each of `rules` covers, "." for the whole workspace.
    rule_folders: tuple[str, ...] = ()
    # Why this needs separate permission: outside_sandbox, runs_later, opened, hidden or
    # held.
    apart: str = ""
    command: str = ""  # The slash command that asks this, if the user ran one.
    plan: bool = False  # Whether a plan is to be approved. `values` returns it as edited.
    programs: tuple[AskedProgram, ...] = ()  # What a command line would start.
    # Where a command of ours would run: sandbox, sandbox_network or no_sandbox. Empty: not said.
    command_access: str = ""

    @property
    def program_names(self) -> list[str]:
        return [program.name for program in self.programs]

    @property
    def why_as_sentence(self) -> str:
        """Why this is asked, with a capital letter unless it begins with what is not our own."""
        first_word, _, _ = self.why.partition(" ")
        if first_word not in _FIRST_WORDS_OF_OWN_REASONS:
            return self.why
        return self.why[0].upper() + self.why[1:]


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    allowed: bool
    scope: str = "once"
    words: str = ""  # What the user told the model instead of giving permission.
    values: str = ""  # A form's values as JSON, or the text of an approved plan.
    rule: int = 0  # The index, in the question's `rules`, of the rule the user chose.
    device: str = ""  # The paired device that answered. Empty: this computer.


@dataclass(frozen=True, slots=True)
class CallContext:
    """What a tool can use while it runs, such as whom to ask and where to show live output.

    `whole_tokens`: entries up to this size are recalled whole; 0: unknown. `note_begun`
    is called once nothing delays the call, and `note_waiting` if it has done nothing
    yet and the user is asked. `is_shown`: whether the view has an output with this
    content in full.
    """

    conversation: str
    ask: Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
    show: Callable[[str], None]
    whole_tokens: int = 0
    note_begun: Callable[[], object] = bool
    note_waiting: Callable[[], object] = bool
    is_shown: Callable[[Digest], bool] = bool


@dataclass(frozen=True, slots=True)
class ForeignToolResult:
    """The result of an MCP server's tool. `images` are pairs of media type and bytes, `files`
    pairs of a name and other bytes, which may be documents.
    """

    text: str
    ok: bool = True
    images: tuple[tuple[str, bytes], ...] = ()
    files: tuple[tuple[str, bytes], ...] = ()


class ToolSet(Protocol):
    """All tools of a conversation: built in, recall, sub-agents, the user's MCP servers.

    `run_tool_call` asks for permission if needed. A model's mistake or a user's refusal
    is no exception but an outcome with `ok=False`. Cancelling stops the tool and all it
    started, and may return output so far.
    """

    def offered_specs(self) -> tuple[ToolSpec, ...]: ...

    def runs_alone(self, name: str) -> bool:
        """Whether its calls wait for earlier calls of the reply, and later ones wait for them."""

    async def run_tool_call(self, call: ToolCall, context: CallContext) -> CallOutcome: ...
