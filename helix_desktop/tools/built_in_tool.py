"""What a built-in tool is: a name, a schema, and a coroutine that is given its arguments and what it may use."""

from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FileChanged, Stored, ToolCall
from helix_desktop.engine.ports import CallContext, ContentCache, EntryOrigin, SearchIndex, TokenCounter
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.permission import ToolAction
from helix_desktop.tools.workspace_roots import WorkspaceRoots

Schema = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ToolArguments:
    """A call's arguments after they were checked against the schema."""

    values: Mapping[str, object]

    def text_argument(self, name: str, default: str = "") -> str:
        value = self.values.get(name, default)
        return value if isinstance(value, str) else default

    def number_argument(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        return int(value) if isinstance(value, int | float) else default

    def flag_argument(self, name: str) -> bool:
        return self.values.get(name) is True

    def list_argument(self, name: str) -> Sequence[object]:
        value = self.values.get(name)
        return value if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool has to say: `output` goes into the cache, or `stored` is there already."""

    output: str | bytes | AsyncIterable[bytes] = ""
    stored: Stored | None = None
    source: str = ""
    media_type: str = "text/plain"
    ok: bool = True
    exit_code: int | None = None
    images: tuple[Stored, ...] = ()
    changes: tuple[FileChanged, ...] = ()
    child: str = ""
    todo: tuple[tuple[str, str], ...] | None = None
    repeat_of: str = ""
    stopped: bool = False


# Returns if the action is allowed; otherwise raises ActionRefused with the reason.
PermitAction = Callable[[ToolAction], Awaitable[None]]
ReadEditorFile = Callable[[Path], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class AnsweredRead:
    """A read that was answered: of a file with this time of change, size and inode."""

    stamp: tuple[int, int, int]
    result: ToolOutput
    call: str


@dataclass(slots=True)
class FilesSeen:
    """What one conversation knows of the files, by path: the content it last read or wrote, the content last known to
    be there (a command may have changed it since), the last reads of its lines, and the outputs that showed its text.
    """

    digests_seen_by_agent: dict[str, Digest] = field(default_factory=dict)
    digests_known_on_disk: dict[str, Digest] = field(default_factory=dict)
    answered_reads: dict[tuple[str, int, int], AnsweredRead] = field(default_factory=dict)
    outputs_with_text: dict[str, set[Digest]] = field(default_factory=dict)

    def set_content_seen(self, path: Path, content: Digest | None) -> None:
        """The agent has read or written all of a file; None: it has deleted it."""
        for known in (self.digests_seen_by_agent, self.digests_known_on_disk):
            known.pop(str(path), None)
            if content is not None:
                known[str(path)] = content


@dataclass(frozen=True, slots=True)
class WorkspaceResources:
    """What all tools of a workspace work on. `files_seen`: by conversation; it outlives the session. `editor_files`:
    by conversation, where an editor works in it: the text of a file as it has it, saved or not.
    """

    roots: WorkspaceRoots
    cache: ContentCache
    index: SearchIndex
    tokens: TokenCounter
    files_seen: dict[str, FilesSeen] = field(default_factory=dict)
    checkpoints: Checkpoints | None = None
    editor_files: dict[str, ReadEditorFile] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolResources:
    call: ToolCall
    context: CallContext
    permit: PermitAction
    workspace_resources: WorkspaceResources
    files_seen: FilesSeen
    is_readable: Callable[[str], bool] = lambda _: True  # Tells whether the rules allow reading this path.

    @property
    def roots(self) -> WorkspaceRoots:
        return self.workspace_resources.roots

    @property
    def cache(self) -> ContentCache:
        return self.workspace_resources.cache

    @property
    def index(self) -> SearchIndex:
        return self.workspace_resources.index

    @property
    def tokens(self) -> TokenCounter:
        return self.workspace_resources.tokens

    async def store_result(
        self, content: bytes | AsyncIterable[bytes], source: str, media_type: str = "text/plain"
    ) -> Stored:
        return await self.cache.store_content(content, EntryOrigin(self.call.name, source, media_type))


RunTool = Callable[[ToolArguments, ToolResources], Awaitable[ToolOutput]]


@dataclass(frozen=True, slots=True)
class BuiltInTool:
    """`schema` is the JSON schema of the arguments, without the `keep` the runner adds. `runs_alone`: it changes what other
    calls of the same reply look at, and takes its place in their order. `is_rare`: its definition is not sent; the model finds
    it when it searches for such a tool. `is_brief`: its output is never long, so it takes no `keep`.
    """

    name: str
    description: str
    schema: Schema
    run_tool: RunTool
    runs_alone: bool = False
    is_rare: bool = False
    is_brief: bool = False


def object_schema(*required: str, **properties: Schema) -> Schema:
    """The named properties, of which `required` must be there; one that is only required is a text. It stands in
    every request, so it says nothing twice: what is not a property is refused by `argument_schema`.
    """
    texts = {name: text_schema() for name in required if name not in properties}
    return {"type": "object", "properties": {**texts, **properties}, "required": list(required)}


def text_schema(description: str = "") -> Schema:
    return _described_schema("string", description)


def whole_number_schema(description: str = "", least: int = 0) -> Schema:
    return {**_described_schema("integer", description), **({"minimum": least} if least else {})}


def flag_schema(description: str = "") -> Schema:
    return _described_schema("boolean", description)


def _described_schema(kind: str, description: str) -> Schema:
    """A name that says it all needs no description."""
    return {"type": kind, **({"description": description} if description else {})}
