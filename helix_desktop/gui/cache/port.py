"""What the cache page needs of a workspace, as a Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from helix_desktop.engine.catalogue import Filter, Row, Sort, Stats, Use
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import Hit


class Catalogue(Protocol):
    """Each call may raise a HelixError; CacheCorrupt where the bytes of an entry do not match its hash."""

    async def entries(
        self, chosen: Filter, *, sort: Sort, descending: bool, offset: int, limit: int
    ) -> Sequence[Row]: ...

    async def count(self, chosen: Filter) -> int: ...

    async def stats(self) -> Stats: ...

    async def tools(self) -> Sequence[tuple[str, int]]: ...

    async def row(self, digest: Digest) -> Row | None: ...

    async def uses(self, digest: Digest) -> Sequence[Use]: ...

    async def resolve(self, prefix: str) -> Digest: ...

    async def search(
        self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False
    ) -> Sequence[Hit]: ...

    async def read(self, digest: Digest, start: int, length: int) -> bytes: ...

    async def verify(self, digest: Digest) -> None: ...

    async def pin_entry(self, digest: Digest, *, pinned: bool) -> None: ...

    async def forget_entry(self, digest: Digest) -> None: ...
