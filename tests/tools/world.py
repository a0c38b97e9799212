"""What tools need around them: a folder, a cache in memory, and a user who answers."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored, ToolCall
from helix_desktop.engine.ports import About, Answer, CallContext, Entry, Hit, Outcome, Question
from helix_desktop.errors import Ambiguous, NotThere
from helix_desktop.tasks import Tasks
from helix_desktop.tools.kit import Kit, Options
from helix_desktop.tools.permission import Mode
from helix_desktop.tools.runner import Permissions, Toolbox


class MemoryCache:
    """A cache whose content is kept in a dictionary."""

    def __init__(self) -> None:
        self.entries: dict[Digest, tuple[bytes, Entry]] = {}

    async def put(self, content: bytes | AsyncIterable[bytes], about: About) -> Stored:
        data = content if isinstance(content, bytes) else b"".join([piece async for piece in content])
        lines = data.count(b"\n") + (bool(data) and not data.endswith(b"\n"))
        stored = Stored(Digest.of(data), len(data), lines, about.media_type)
        self.entries.setdefault(stored.digest, (data, Entry(stored, about, 0.0)))
        return stored

    async def get(self, digest: Digest) -> bytes:
        return self._found(digest)[0]

    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        return self._found(digest)[0][start : start + length]

    async def about(self, digest: Digest) -> Entry:
        return self._found(digest)[1]

    async def resolve(self, prefix: str) -> Digest:
        fitting = [digest for digest in self.entries if digest.hex.startswith(prefix)]
        if len(fitting) > 1:
            raise Ambiguous(f"{prefix} fits {len(fitting)} entries.")
        if not fitting:
            raise NotThere(f"No entry begins with {prefix}.")
        return fitting[0]

    def _found(self, digest: Digest) -> tuple[bytes, Entry]:
        if digest not in self.entries:
            raise NotThere(f"{digest} is not in the cache.")
        return self.entries[digest]


class MemoryIndex:
    """Finds the entries that contain the query."""

    def __init__(self, cache: MemoryCache) -> None:
        self._cache = cache

    async def search(self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False) -> Sequence[Hit]:
        hits = []
        for digest, (data, entry) in self._cache.entries.items():
            for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
                if query in line and tool in ("", entry.about.tool):
                    hits.append(Hit(line, digest, line=number, about=entry.about))
        return hits[:limit]


class Words:
    """Counts a token for every four characters."""

    def count(self, text: str) -> int:
        return -(-len(text) // 4)


@dataclass
class Person:
    """Answers every question with `answer`, and remembers what was asked and shown."""

    answer: Answer = Answer(allowed=True)
    asked: list[Question] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        return self.answer


@dataclass
class World:
    """A workspace in `folder` and a toolbox on it."""

    folder: Path
    cache: MemoryCache
    person: Person
    kit: Kit
    box: Toolbox
    numbers: int = 0

    async def run(self, tool: str, conversation: str = "c", **arguments: object) -> Outcome:
        return await self.raw(tool, json.dumps(arguments), conversation)

    async def raw(self, tool: str, arguments: str, conversation: str = "c") -> Outcome:
        self.numbers += 1
        call = ToolCall(f"call{self.numbers}", tool, arguments)
        return await self.box.run(call, CallContext(conversation, self.person.ask, self.person.shown.append))

    async def said(self, tool: str, conversation: str = "c", **arguments: object) -> str:
        return self.text(await self.run(tool, conversation, **arguments))

    def text(self, outcome: Outcome) -> str:
        return self.cache.entries[outcome.output.digest][0].decode("utf-8", "replace")

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@asynccontextmanager
async def world(tmp_path: Path, *, mode: Mode = Mode.ALLOW_ALL, closed: Sequence[Path] = ()) -> AsyncIterator[World]:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    cache, tasks = MemoryCache(), Tasks("test")
    permissions = Permissions(mode)
    kit = await Kit.open(
        [folder],
        (cache, MemoryIndex(cache), Words()),
        permissions=permissions,
        spawn=tasks.spawn,
        options=Options(closed=tuple(closed)),
    )
    try:
        yield World(folder, cache, Person(), kit, kit.toolbox())
    finally:
        await kit.aclose()
        await tasks.aclose()
