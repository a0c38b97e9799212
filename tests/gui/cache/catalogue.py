"""A catalogue in memory, as large as a test wants, with the contents of a few entries. Its
index and its cache are one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from helix_desktop.engine.cache_entry_rows import (
    CacheEntryFigures,
    EntryFilter,
    EntryRow,
    EntrySort,
    EntryUse,
)
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin, ForgetResult, SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, NotFound
from tests.gui.stand_in import StandIn

NOW = 1_795_162_800.0
USUAL = {"kept": 50, "tokens": 100, "uses": 1}


_ORDER: dict[EntrySort, Callable[[EntryRow], object]] = {
    EntrySort.TIME: lambda row: row.time,
    EntrySort.TOOL: lambda row: row.about.tool,
    EntrySort.SOURCE: lambda row: row.about.source,
    EntrySort.SIZE: lambda row: row.stored.size,
    EntrySort.TOKENS: lambda row: row.tokens,
    EntrySort.USES: lambda row: row.uses,
    EntrySort.RECALLED: lambda row: row.recalled,
    EntrySort.HASH: lambda row: row.stored.digest,
}


@dataclass
class MemoryCatalogue(StandIn):
    """`asked` keeps the offsets that were read, `done` the commands."""

    lines: list[EntryRow] = field(default_factory=list)
    contents: dict[Digest, bytes] = field(default_factory=dict)
    used: dict[Digest, list[EntryUse]] = field(default_factory=dict)
    damaged: set[Digest] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)
    done: list[tuple[str, Digest]] = field(default_factory=list)

    def put(
        self, content: bytes, tool: str = "read_file", source: str = "a.txt", **more: object
    ) -> EntryRow:
        media = str(more.pop("media", "text/plain"))
        digest = Digest.of_content(content)
        self.contents[digest] = content
        stored = Stored(digest, len(content), content.count(b"\n"), media)
        line = EntryRow(
            stored,
            EntryOrigin(tool, source, media),
            **{**USUAL, "time": NOW + len(self.lines), **more},  # type: ignore[arg-type]
        )
        self.lines.append(line)
        return line

    def _chosen(self, chosen: EntryFilter) -> list[EntryRow]:
        return [
            line
            for line in self.lines
            if (not chosen.tool or line.about.tool == chosen.tool)
            and line.stored.size >= chosen.least
            and (not chosen.pinned or line.pinned)
            and (not chosen.unused or not line.uses)
            and line.time >= chosen.since
            and chosen.text in line.about.source
        ]

    @property
    def index(self) -> MemoryCatalogue:
        return self

    @property
    def cache(self) -> MemoryCatalogue:
        return self

    async def entries_page(
        self, chosen: EntryFilter, *, sort: EntrySort, descending: bool, offset: int, limit: int
    ) -> Sequence[EntryRow]:
        self.asked.append(offset)
        found = sorted(self._chosen(chosen), key=_ORDER[sort], reverse=descending)  # type: ignore[arg-type]
        return found[offset : offset + limit]

    async def count_entries(self, chosen: EntryFilter) -> int:
        return len(self._chosen(chosen))

    async def compute_figures(self) -> CacheEntryFigures:
        total = sum(line.stored.size for line in self.lines)
        return CacheEntryFigures(len(self.lines), total, total // 4, repeated=2)

    async def count_tools(self) -> Sequence[tuple[str, int]]:
        names = sorted({line.about.tool for line in self.lines})
        return [(name, sum(line.about.tool == name for line in self.lines)) for name in names]

    async def find_entry_row(self, digest: Digest) -> EntryRow | None:
        return next((line for line in self.lines if line.stored.digest == digest), None)

    async def find_entry_rows(self, digests: Collection[Digest]) -> Mapping[Digest, EntryRow]:
        return {line.stored.digest: line for line in self.lines if line.stored.digest in digests}

    async def find_entry_uses(self, digest: Digest) -> Sequence[EntryUse]:
        return self.used.get(digest, [])

    async def resolve_prefix(self, prefix: str) -> Digest:
        found = [
            line.stored.digest for line in self.lines if line.stored.digest.hex.startswith(prefix)
        ]
        if len(found) != 1:
            raise NotFound(f"No entry's hash begins with {prefix}.")
        return found[0]

    async def search_index(
        self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False
    ) -> Sequence[SearchHit]:
        hits = []
        for digest, content in self.contents.items():
            text = content.decode("utf-8", "replace")
            at = text.lower().find(query.lower())
            if at >= 0:
                hits.append(
                    SearchHit(
                        text[max(0, at - 20) : at + 40], digest, line=text.count("\n", 0, at) + 1
                    )
                )
        return hits[:limit]

    async def read_range(self, digest: Digest, start: int, length: int) -> bytes:
        if digest in self.damaged:
            raise CacheCorrupt(
                f"The bytes of {digest.short_hex} do not match their hash.",
                remedy="Restore a backup.",
            )
        return self.contents[digest][start : start + length]

    async def verify_entry(self, digest: Digest) -> None:
        self.done.append(("verify", digest))
        await self.read_range(digest, 0, 1)

    async def pin_entry(self, digest: Digest, *, pinned: bool) -> None:
        self.done.append(("pin" if pinned else "unpin", digest))
        self.lines = [
            replace(each, pinned=pinned) if each.stored.digest == digest else each
            for each in self.lines
        ]

    async def content_forgetter(
        self, *, text: str = "", entries: Sequence[Digest] = ()
    ) -> ForgetResult:
        self.done += [("forget", digest) for digest in entries]
        self.lines = [each for each in self.lines if each.stored.digest not in entries]
        return ForgetResult(tuple(entries), 0, (), 0)
