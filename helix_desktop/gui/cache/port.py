"""What the cache page needs of a workspace, as a Protocol. `store.catalogue` has the same shapes behind the workbench."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import About, Hit


class Sort(StrEnum):
    """The columns the entries are sorted by."""

    TIME = "time"
    TOOL = "tool"
    SOURCE = "source"
    SIZE = "size"
    TOKENS = "tokens"
    USES = "uses"
    RECALLED = "recalled"
    HASH = "digest"


@dataclass(frozen=True, slots=True)
class Filter:
    """What is shown; everything by default. Times in seconds since 1970, sizes in bytes; 0: no limit."""

    tool: str = ""
    conversation: str = ""
    since: float = 0.0
    until: float = 0.0
    least: int = 0
    most: int = 0
    pinned: bool = False
    unused: bool = False
    text: str = ""
    gone: bool = False


class Row(Protocol):
    """One entry as the table shows it. `recalled`: when last, or 0. `gone`: collected, only this is left."""

    @property
    def stored(self) -> Stored: ...
    @property
    def about(self) -> About: ...
    @property
    def kept(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def uses(self) -> int: ...
    @property
    def recalled(self) -> float: ...
    @property
    def pinned(self) -> bool: ...
    @property
    def gone(self) -> bool: ...


class Use(Protocol):
    """A place that uses an entry. `how`: output, attachment, image, change, fold or recall."""

    @property
    def conversation(self) -> str: ...
    @property
    def seq(self) -> int: ...
    @property
    def time(self) -> float: ...
    @property
    def how(self) -> str: ...


class Stats(Protocol):
    """The workspace's entries in figures. `kept`: bytes on the disk. `repeated`: stored once, used again."""

    @property
    def entries(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def kept(self) -> int: ...
    @property
    def gone(self) -> int: ...
    @property
    def repeated(self) -> int: ...
    @property
    def repeated_size(self) -> int: ...


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
