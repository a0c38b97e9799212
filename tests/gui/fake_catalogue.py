"""The entries of a workspace, in memory: those of the story."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import About, Hit
from helix_desktop.errors import NotThere
from helix_desktop.gui.cache.port import Filter, Sort
from tests.gui import story


@dataclass(frozen=True)
class EntryRow:
    stored: Stored
    about: About
    kept: int
    tokens: int
    time: float
    uses: int = 1
    recalled: float = 0.0
    pinned: bool = False
    gone: bool = False


@dataclass(frozen=True)
class EntryUse:
    conversation: str
    seq: int
    time: float
    how: str


@dataclass(frozen=True)
class EntryStats:
    entries: int
    size: int
    kept: int
    gone: int = 0
    repeated: int = 0
    repeated_size: int = 0


_ABOUT = {
    story.TABLE: About("read_file", "src/lock/table.rs"),
    story.TESTS: About("run_command", "cargo test --workspace"),
    "ok\n": About("edit_file", "src/lock/manager.rs"),
}


class FakeCatalogue:
    """Newest first, whatever order is asked for."""

    def __init__(self) -> None:
        self.rows = [
            EntryRow(story.stored(text), about, len(text) // 3, len(text) // 4, 1_795_162_800.0 - 60 * at)
            for at, (text, about) in enumerate(_ABOUT.items())
        ]

    async def entries(
        self, chosen: Filter, *, sort: Sort, descending: bool, offset: int, limit: int
    ) -> Sequence[EntryRow]:
        return self._fitting(chosen)[offset : offset + limit]

    async def count(self, chosen: Filter) -> int:
        return len(self._fitting(chosen))

    async def stats(self) -> EntryStats:
        return EntryStats(len(self.rows), sum(r.stored.size for r in self.rows), sum(r.kept for r in self.rows))

    async def tools(self) -> Sequence[tuple[str, int]]:
        return [(about.tool, 1) for about in _ABOUT.values()]

    async def row(self, digest: Digest) -> EntryRow | None:
        return next((row for row in self.rows if row.stored.digest == digest), None)

    async def uses(self, digest: Digest) -> Sequence[EntryUse]:
        return [EntryUse(story.CONVERSATION, 7, 0.0, "output")]

    async def resolve(self, prefix: str) -> Digest:
        found = [row.stored.digest for row in self.rows if row.stored.digest.hex.startswith(prefix)]
        if len(found) != 1:
            raise NotThere(f"No entry begins with {prefix}.")
        return found[0]

    async def search(self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False) -> Sequence[Hit]:
        return [Hit(text[:60], digest=digest) for digest, text in story.CONTENT.items() if query in text][:limit]

    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        return story.CONTENT[digest].encode()[start : start + length]

    async def verify(self, digest: Digest) -> None:
        await self.resolve(digest.hex)

    async def pin_entry(self, digest: Digest, *, pinned: bool) -> None:
        await self.resolve(digest.hex)

    async def forget_entry(self, digest: Digest) -> None:
        self.rows = [row for row in self.rows if row.stored.digest != digest]

    def _fitting(self, chosen: Filter) -> list[EntryRow]:
        return [row for row in self.rows if not chosen.tool or row.about.tool == chosen.tool]
