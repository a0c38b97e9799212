"""The heads of shared conversations: one row each, moved on by compare-and-set, with one writer at a time by a lease.

The engine's clock alone measures a lease: a machine only ever learns how many seconds are left. A row's contents are
sealed; the engine sees its name (a keyed digest), a random name of the machine that writes, and when it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol

from helix_desktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Head:
    """A row as the engine has it. `version` grows with every change; `left`: seconds for which only `writer` may change it."""

    name: bytes
    version: int
    writer: bytes
    left: float
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Move:
    """What a machine wants of a row that it last saw at `version` (0: there is none yet). `sealed`: its new contents, or None
    for the same. `seconds`: how long nobody else may write. `force`: also where another machine's lease still runs.
    """

    name: bytes
    version: int
    writer: bytes
    sealed: bytes | None
    seconds: float
    force: bool = False


class Heads(Protocol):
    """Compare-and-set over named rows of one workspace. All calls block, and may be made again after an error."""

    def move(self, move: Move) -> tuple[bool, Head | None]:
        """Whether it was done, and the row as it is now; None where there is none."""
        ...

    def changed(self, since: int) -> tuple[Sequence[Head], int]:
        """The rows that changed behind a mark (0 means all), each at least once, and the mark to ask with next time."""
        ...

    def get(self, names: Collection[bytes]) -> Sequence[Head]:
        """Those of these that are there."""
        ...


class Memory:
    """The heads of one workspace in memory, for machines of one process. `now`: the engine's clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._rows: dict[bytes, tuple[Head, float, int]] = {}  # with the end of the lease, and when it changed
        self._changes = 0

    def move(self, move: Move) -> tuple[bool, Head | None]:
        held = self._rows.get(move.name)
        if held is None:
            if move.version or move.sealed is None:
                return False, None
            return True, self._put(Head(move.name, 1, move.writer, move.seconds, move.sealed))
        row, until, _ = held
        free = row.writer == move.writer or until <= self._now() or move.force
        if row.version != move.version or not free:
            return False, self._seen(row, until)
        sealed = row.sealed if move.sealed is None else move.sealed
        return True, self._put(
            replace(row, version=row.version + 1, writer=move.writer, left=move.seconds, sealed=sealed)
        )

    def changed(self, since: int) -> tuple[Sequence[Head], int]:
        rows = [(at, self._seen(row, until)) for row, until, at in self._rows.values() if at > since]
        return [row for _, row in sorted(rows, key=lambda each: each[0])], self._changes

    def get(self, names: Collection[bytes]) -> Sequence[Head]:
        return [self._seen(row, until) for row, until, _ in self._rows.values() if row.name in names]

    def _put(self, row: Head) -> Head:
        self._changes += 1
        self._rows[row.name] = (row, self._now() + row.left, self._changes)
        return row

    def _seen(self, row: Head, until: float) -> Head:
        return replace(row, left=max(0.0, until - self._now()))
