"""A workspace's entries for the cache page: what `gui/cache/port.py` asks for, answered by its index and its cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from helix_desktop.engine.catalogue import Filter, Row, Sort, Stats, Use
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import Hit
from helix_desktop.errors import CacheCorrupt
from helix_desktop.gui.ports import Workbench as Shown

if TYPE_CHECKING:
    from helix_desktop.store.workspace import Workspace
    from helix_desktop.workbench.bench import Workbench


class Browsing:
    """The catalogue of one open workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._index = workspace.index
        self._cache = workspace.cache

    async def entries(self, chosen: Filter, *, sort: Sort, descending: bool, offset: int, limit: int) -> Sequence[Row]:
        return await self._index.entries(chosen, sort=sort, descending=descending, offset=offset, limit=limit)

    async def count(self, chosen: Filter) -> int:
        return await self._index.count(chosen)

    async def stats(self) -> Stats:
        return await self._index.stats()

    async def tools(self) -> Sequence[tuple[str, int]]:
        return await self._index.tools()

    async def row(self, digest: Digest) -> Row | None:
        return await self._index.row(digest)

    async def uses(self, digest: Digest) -> Sequence[Use]:
        return await self._index.uses(digest)

    async def resolve(self, prefix: str) -> Digest:
        return await self._cache.resolve(prefix)

    async def search(self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False) -> Sequence[Hit]:
        return await self._index.search(query, tool=tool, limit=limit, entries_only=entries_only)

    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        return await self._cache.read(digest, start, length)

    async def verify(self, digest: Digest) -> None:
        """CacheCorrupt where the bytes of the entry do not match its hash."""
        found = await self._cache.verify_entry(digest)
        if found.damaged:
            raise CacheCorrupt(found.damaged[0][1])

    async def pin_entry(self, digest: Digest, *, pinned: bool) -> None:
        await self._cache.pin(digest, pinned=pinned)

    async def forget_entry(self, digest: Digest) -> None:
        """Everywhere: from cache, journal, index and backups. A tombstone is left."""
        from helix_desktop.workbench import bench

        await bench.forgetting(self._workspace)(entries=[digest])


def of(bench: Shown) -> Browsing:
    """The catalogue behind a workbench the window shows."""
    return Browsing(cast("Workbench", bench).workspace)
