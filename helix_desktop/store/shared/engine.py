"""The port of an engine that machines share: opaque rows by name. It reads nothing and needs to know nothing.

A row is sealed bytes (`sealing`): first `KEY` bytes that make its key together with the workspace's, then padded ciphertext. An
engine may store the two apart; to forget a row it destroys both. All calls block and may come from any thread; each may be made
again after an error. `Away` says that asking later may help; every other StoreFailed needs a person.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from helix_desktop.values import dataclass

KEY = 32  # bytes at the beginning of a row without which the rest cannot be opened
MANY = 500  # rows in one call
MUCH = 8 << 20  # bytes in one call, unless one row alone is larger


@dataclass(frozen=True, slots=True)
class Usage:
    """What the rows of this workspace take there, and what they may take at most; 0: no limit."""

    rows: int
    bytes: int
    quota: int = 0


@dataclass(frozen=True, slots=True)
class Tomb:
    """A row that was forgotten. `word`: sealed, for the workspace's other machines."""

    name: bytes
    word: bytes


class Engine(Protocol):
    """The rows of one workspace. `server`: the same for all engines that reach the same one; they share threads."""

    server: str

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        """Store those that are not there; durable when it returns. A name that was forgotten takes nothing any more."""
        ...

    def get(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        """Those of these that are there; not checked in any way."""
        ...

    def lacking(self, names: Collection[bytes]) -> frozenset[bytes]:
        """Which of these it has not and would take."""
        ...

    def drop(self, names: Collection[bytes]) -> None:
        """Remove them to make room; they may come again."""
        ...

    def forget(self, tombs: Sequence[Tomb]) -> None:
        """Destroy keys and rows for good. When it returns, no machine can read them there or put them again."""
        ...

    def forgotten(self, after: int) -> tuple[Sequence[Tomb], int]:
        """What was forgotten behind a mark (0: ever), each at least once, and the mark to ask with next time."""
        ...

    def publish(self, machine: bytes, sealed: bytes) -> None:
        """Put what this machine uses in the place of what it published before; empty: it is no part of this any more."""
        ...

    def published(self) -> Mapping[bytes, bytes]:
        """What each machine uses."""
        ...

    def names(self, older: float, after: bytes = b"", limit: int = 10_000) -> Sequence[bytes]:
        """Rows that were put more than `older` seconds ago by the engine's clock, in the order of their names: for collecting."""
        ...

    def usage(self) -> Usage: ...

    def limit(self, quota: int) -> None:
        """How many bytes this workspace's rows may take; 0: no limit."""
        ...

    def about(self) -> str:
        """What it is, in a few words for people."""
        ...

    def elsewhere(self) -> Sequence[str]:
        """What may still hold ciphertext of a forgotten row, in sentences."""
        ...

    def close(self) -> None: ...
