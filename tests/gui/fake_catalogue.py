"""The entries of a workspace, in memory: those of the story. Its index and its cache are one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from helix_desktop.engine.cache_entry_rows import (
    CacheEntryFigures,
    EntryFilter,
    EntryRow,
    EntrySort,
    EntryUse,
)
from helix_desktop.engine.ports import EntryOrigin, ForgetResult, SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import NotFound
from tests.gui import story
from tests.gui.fake_setup import SONNET

_ABOUT = {
    story.TABLE: EntryOrigin("read_file", "src/lock/table.rs"),
    story.TESTS: EntryOrigin("run_command", "cargo test --workspace"),
    "ok\n": EntryOrigin("edit_file", "src/lock/manager.rs"),
}


@dataclass
class Chosen:
    models: dict[str, str] = field(default_factory=lambda: {"main": SONNET.name})
    effort: str = ""
    temperature: float | None = None
    top_p: float | None = None
    instructions: str = ""
    preset: str = "layered"
    policy: dict[str, Any] = field(default_factory=dict)
    rules: list[Mapping[str, Any]] = field(default_factory=list)
    mcp: dict[str, dict[str, Any]] = field(default_factory=dict)
    limit: int = 0
    limits: dict[str, Any] = field(default_factory=dict)
    copies: dict[str, Any] = field(default_factory=dict)
    roots: Sequence[str] = ("/home/me/code",)
    openings: Sequence[str] = ("gh",)
    readable: Sequence[str] = ("~/data",)


class FakeCatalogue:
    """Newest first, whatever order is asked for."""

    def __init__(self) -> None:
        self.settings = Chosen()
        self.folder = Path("/data/x")
        self.gone: set[Digest] = set()
        self.watching: list[Callable[[], object]] = []
        self.rows = [
            EntryRow(
                story.stored(text),
                about,
                len(text) // 3,
                len(text) // 4,
                1_795_162_800.0 - 60 * at,
                uses=1,
            )
            for at, (text, about) in enumerate(_ABOUT.items())
        ]

    @property
    def index(self) -> FakeCatalogue:
        return self

    @property
    def cache(self) -> FakeCatalogue:
        return self

    async def measure_checkpoint_bytes(self) -> tuple[int, int]:
        return 3, 4_000

    async def read_content(self, digest: Digest) -> bytes:
        raise NotFound("it is gone")

    async def entries_page(
        self, chosen: EntryFilter, *, sort: EntrySort, descending: bool, offset: int, limit: int
    ) -> Sequence[EntryRow]:
        return self._fitting(chosen)[offset : offset + limit]

    async def count_entries(self, chosen: EntryFilter) -> int:
        return len(self._fitting(chosen))

    async def compute_figures(self) -> CacheEntryFigures:
        return CacheEntryFigures(
            len(self.rows), sum(r.stored.size for r in self.rows), sum(r.kept for r in self.rows)
        )

    async def count_tools(self) -> Sequence[tuple[str, int]]:
        return [(about.tool, 1) for about in _ABOUT.values()]

    async def find_entry_row(self, digest: Digest) -> EntryRow | None:
        return next((row for row in self.rows if row.stored.digest == digest), None)

    async def find_entry_rows(self, digests: Collection[Digest]) -> Mapping[Digest, EntryRow]:
        return {row.stored.digest: row for row in self.rows if row.stored.digest in digests}

    async def find_entry_uses(self, digest: Digest) -> Sequence[EntryUse]:
        return [EntryUse(story.CONVERSATION, 7, 0.0, "output")]

    async def resolve_prefix(self, prefix: str) -> Digest:
        found = [row.stored.digest for row in self.rows if row.stored.digest.hex.startswith(prefix)]
        if len(found) != 1:
            raise NotFound(f"No entry begins with {prefix}.")
        return found[0]

    async def search_index(
        self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False
    ) -> Sequence[SearchHit]:
        found = [
            SearchHit(text.splitlines()[0], digest=digest)
            for digest, text in story.CONTENT.items()
            if query in text
        ]
        said = (
            []
            if entries_only
            else [SearchHit(f"… {query} …", conversation=story.CONVERSATION, seq=14)]
        )
        return [*found, *said][:limit]

    async def read_range(self, digest: Digest, start: int, length: int) -> bytes:
        return story.CONTENT[digest].encode()[start : start + length]

    async def read_contents(self, digests: Collection[Digest]) -> dict[Digest, bytes]:
        return {
            digest: story.CONTENT[digest].encode() for digest in digests if digest not in self.gone
        }

    def watch_settings(self, listener: Callable[[], object]) -> Callable[[], None]:
        self.watching.append(listener)
        return lambda: self.watching.remove(listener)

    async def verify_entry(self, digest: Digest) -> None:
        await self.resolve_prefix(digest.hex)

    async def pin_entry(self, digest: Digest, *, pinned: bool) -> None:
        await self.resolve_prefix(digest.hex)

    async def content_forgetter(
        self, *, text: str = "", entries: Sequence[Digest] = ()
    ) -> ForgetResult:
        self.rows = [row for row in self.rows if row.stored.digest not in entries]
        return ForgetResult(tuple(entries), 0, (), 0)

    def _fitting(self, chosen: EntryFilter) -> list[EntryRow]:
        return [row for row in self.rows if not chosen.tool or row.about.tool == chosen.tool]
