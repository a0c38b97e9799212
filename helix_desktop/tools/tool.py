"""What a built-in tool is: a name, a schema, and a coroutine that is given its arguments and what it may use."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from dataclasses import field

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FileChanged, Stored, ToolCall
from helix_desktop.engine.ports import About, Cache, CallContext, Index, Tokens
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.confine import Roots
from helix_desktop.tools.permission import Action
from helix_desktop.values import dataclass

Schema = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Arguments:
    """A call's arguments after they were checked against the schema."""

    values: Mapping[str, object]

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name, default)
        return value if isinstance(value, str) else default

    def number(self, name: str, default: int) -> int:
        value = self.values.get(name, default)
        return int(value) if isinstance(value, int | float) else default

    def flag(self, name: str) -> bool:
        return self.values.get(name) is True

    def items(self, name: str) -> Sequence[object]:
        value = self.values.get(name)
        return value if isinstance(value, list) else ()


@dataclass(frozen=True, slots=True)
class Result:
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


# Returns when the action is allowed; raises Refused with the reason when it is not.
Permit = Callable[[Action], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Read:
    """A read that was answered: of a file with this time of change, size and inode."""

    stamp: tuple[int, int, int]
    result: Result
    call: str


@dataclass(slots=True)
class Seen:
    """What one conversation knows of the files, by path: the content it last read or wrote, the content last known to
    be there (a command may have changed it since), and the last reads of its lines.
    """

    content: dict[str, Digest] = field(default_factory=dict)
    known: dict[str, Digest] = field(default_factory=dict)
    reads: dict[tuple[str, int, int], Read] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Around:
    """What all tools of a workspace work on. `seen`: by conversation; it outlives the session."""

    roots: Roots
    cache: Cache
    index: Index
    tokens: Tokens
    seen: dict[str, Seen] = field(default_factory=dict)
    checkpoints: Checkpoints | None = None


@dataclass(frozen=True, slots=True)
class Use:
    """What a tool may use while it runs."""

    call: ToolCall
    context: CallContext
    permit: Permit
    around: Around
    seen: Seen
    readable: Callable[[str], bool] = lambda _: True  # whether no rule keeps this path from being read

    @property
    def roots(self) -> Roots:
        return self.around.roots

    @property
    def cache(self) -> Cache:
        return self.around.cache

    @property
    def index(self) -> Index:
        return self.around.index

    @property
    def tokens(self) -> Tokens:
        return self.around.tokens

    async def keep(self, content: bytes | AsyncIterable[bytes], source: str, media_type: str = "text/plain") -> Stored:
        return await self.cache.put(content, About(self.call.name, source, media_type))


Run = Callable[[Arguments, Use], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Tool:
    """`schema` is the JSON schema of the arguments, without the `keep` the runner adds. `alone`: it changes what other
    calls of the same reply look at, and takes its place in their order. `rare`: its definition is not sent; the model finds
    it when it searches for such a tool.
    """

    name: str
    description: str
    schema: Schema
    run: Run
    alone: bool = False
    rare: bool = False


def fields(*required: str, **properties: Schema) -> Schema:
    """An object schema: the named properties, of which `required` must be there. It stands in every request, so it says
    nothing twice: what is not a property is refused by `schema.check`.
    """
    return {"type": "object", "properties": properties, "required": list(required)}


def text(description: str = "") -> Schema:
    return _described("string", description)


def whole(description: str = "", least: int = 0) -> Schema:
    return {**_described("integer", description), **({"minimum": least} if least else {})}


def flag(description: str = "") -> Schema:
    return _described("boolean", description)


def _described(kind: str, description: str) -> Schema:
    """A name that says it all needs no description."""
    return {"type": kind, **({"description": description} if description else {})}
