"""The heads of shared conversations: one row each, moved on by compare-and-set, with one writer at a time by a lease.

The engine's clock alone measures a lease: a machine only ever learns how many seconds are left. A row's contents are
sealed; the engine sees its name (a keyed digest), a random name of the machine that writes, and when it changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Protocol

from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class ConversationHead:
    """A row as the engine has it. `version` grows with every change; `lease_seconds_left`: seconds for which only `writer` may change it."""

    name: bytes
    version: int
    writer: bytes
    lease_seconds_left: float
    sealed: bytes


@dataclass(frozen=True, slots=True)
class HeadUpdate:
    """What a machine wants of a row that it last saw at `version` (0: there is none yet). `sealed`: its new contents, or None
    for the same. `lease_seconds`: how long nobody else may write. `force`: also where another machine's lease still runs.
    """

    name: bytes
    version: int
    writer: bytes
    sealed: bytes | None
    lease_seconds: float
    force: bool = False


class ConversationHeads(Protocol):
    """Compare-and-set over named rows of one workspace. All calls block, and may be made again after an error."""

    def update_head(self, move: HeadUpdate) -> tuple[bool, ConversationHead | None]:
        """Whether it was done, and the row as it is now; None where there is none."""
        ...

    def fetch_changed_heads(self, since: int) -> tuple[Sequence[ConversationHead], int]:
        """The rows that changed behind a mark (0 means all), each at least once, and the mark to ask with next time."""
        ...

    def fetch_heads(self, names: Collection[bytes]) -> Sequence[ConversationHead]:
        """Those of these that are there."""
        ...


class MemoryHeads:
    """The heads of one workspace in memory, for machines of one process. `now`: the engine's clock."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # Each head with the end of its lease and the time of its last change.
        self._rows: dict[bytes, tuple[ConversationHead, float, int]] = {}
        self._changes = 0

    def update_head(self, move: HeadUpdate) -> tuple[bool, ConversationHead | None]:
        held = self._rows.get(move.name)
        if held is None:
            if move.version or move.sealed is None:
                return False, None
            return True, self._store_head(ConversationHead(move.name, 1, move.writer, move.lease_seconds, move.sealed))
        row, until, _ = held
        free = row.writer == move.writer or until <= self._now() or move.force
        if row.version != move.version or not free:
            return False, self._with_seconds_left(row, until)
        sealed = row.sealed if move.sealed is None else move.sealed
        return True, self._store_head(
            replace(
                row, version=row.version + 1, writer=move.writer, lease_seconds_left=move.lease_seconds, sealed=sealed
            )
        )

    def fetch_changed_heads(self, since: int) -> tuple[Sequence[ConversationHead], int]:
        rows = [(at, self._with_seconds_left(row, until)) for row, until, at in self._rows.values() if at > since]
        return [row for _, row in sorted(rows, key=lambda each: each[0])], self._changes

    def fetch_heads(self, names: Collection[bytes]) -> Sequence[ConversationHead]:
        return [self._with_seconds_left(row, until) for row, until, _ in self._rows.values() if row.name in names]

    def _store_head(self, row: ConversationHead) -> ConversationHead:
        self._changes += 1
        self._rows[row.name] = (row, self._now() + row.lease_seconds_left, self._changes)
        return row

    def _with_seconds_left(self, row: ConversationHead, until: float) -> ConversationHead:
        return replace(row, lease_seconds_left=max(0.0, until - self._now()))
