"""An engine of rows and of heads in memory: the reference of the conformance suite, and
what trials use where no process is wanted.

Several machines of one process share a `MemoryServer` and have a `MemoryRowStore` each.
`is_away` cuts one off; a full shelf takes nothing.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace

from helix_desktop.errors import SharedStoreUnreachable, StoreFull
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.shared.conversation_heads import ConversationHead, HeadMark, HeadUpdate
from helix_desktop.store.shared.row_store import RowStore, RowUsage, Tombstone, quota_reached_error


@dataclass(slots=True)
class MemoryServer:
    """What an engine holds of all workspaces. `now`: its clock; `most_bytes`: bytes it
    takes at most, 0 for any number.
    """

    now: Callable[[], float] = clock.time
    most_bytes: int = 0
    # The encrypted row, the time of its put, and its space.
    rows: dict[bytes, tuple[bytes, float, bytes]] = field(default_factory=dict)
    tombs: list[tuple[bytes, Tombstone]] = field(default_factory=list)
    machines: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    quotas: dict[bytes, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryRowStore:
    """row_store.RowStore on a shelf."""

    def __init__(self, shelf: MemoryServer, space: bytes) -> None:
        self._shelf = shelf
        self._space = space
        self.server = f"memory {id(shelf)}"
        self.is_away = False

    def _lock_if_reachable(self) -> threading.Lock:
        if self.is_away:
            raise SharedStoreUnreachable(
                "The shared store is not responding.",
                remedy="You can keep working. Your changes are stored on this computer until the shared store responds.",
            )
        return self._shelf.lock

    def store_rows(self, rows: Mapping[bytes, bytes]) -> None:
        with self._lock_if_reachable():
            shelf = self._shelf
            gone = self._forgotten_names()
            new = {
                name: bytes(row)
                for name, row in rows.items()
                if name not in shelf.rows and name not in gone
            }
            more = sum(map(len, new.values()))
            quota = shelf.quotas.get(self._space, 0)
            if quota and self._measure_usage().bytes + more > quota:
                raise quota_reached_error(quota)
            if (
                shelf.most_bytes
                and sum(len(row) for row, *_ in shelf.rows.values()) + more > shelf.most_bytes
            ):
                raise StoreFull(
                    "The shared store is full.",
                    remedy="Nothing was lost. Free up space in the shared store.",
                )
            now = shelf.now()
            shelf.rows |= {name: (row, now, self._space) for name, row in new.items()}

    def _forgotten_names(self) -> frozenset[bytes]:
        return frozenset(tomb.name for space, tomb in self._shelf.tombs if space == self._space)

    def _measure_usage(self) -> RowUsage:
        sizes = [len(row) for row, _, space in self._shelf.rows.values() if space == self._space]
        return RowUsage(len(sizes), sum(sizes), self._shelf.quotas.get(self._space, 0))

    def fetch_rows(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        with self._lock_if_reachable():
            return {name: self._shelf.rows[name][0] for name in names if name in self._shelf.rows}

    def find_missing_rows(self, names: Collection[bytes]) -> frozenset[bytes]:
        with self._lock_if_reachable():
            return frozenset(names) - self._shelf.rows.keys() - self._forgotten_names()

    def remove_rows(self, names: Collection[bytes]) -> None:
        with self._lock_if_reachable():
            for name in names:
                self._shelf.rows.pop(name, None)

    def forget_rows(self, tombs: Sequence[Tombstone]) -> None:
        with self._lock_if_reachable():
            gone = self._forgotten_names()
            for tomb in tombs:
                self._shelf.rows.pop(tomb.name, None)
            self._shelf.tombs += [(self._space, tomb) for tomb in tombs if tomb.name not in gone]

    def fetch_tombstones(self, after: int) -> tuple[Sequence[Tombstone], int]:
        with self._lock_if_reachable():
            tombs = self._shelf.tombs
            return [tomb for space, tomb in tombs[after:] if space == self._space], len(tombs)

    def publish_used_rows(self, machine: bytes, sealed: bytes) -> None:
        with self._lock_if_reachable():
            self._shelf.machines.pop((self._space, machine), None)
            if sealed:
                self._shelf.machines[self._space, machine] = sealed

    def fetch_published_uses(self) -> Mapping[bytes, bytes]:
        with self._lock_if_reachable():
            each = self._shelf.machines.items()
            return {machine: sealed for (space, machine), sealed in each if space == self._space}

    def list_old_rows(
        self, older: float, after: bytes = b"", limit: int = 10_000
    ) -> Sequence[bytes]:
        with self._lock_if_reachable():
            until = self._shelf.now() - older
            rows = self._shelf.rows.items()
            old = (
                name
                for name, (_, put, space) in rows
                if space == self._space and put < until and name > after
            )
            return sorted(old)[:limit]

    def fetch_row_usage(self) -> RowUsage:
        with self._lock_if_reachable():
            return self._measure_usage()

    def set_quota(self, quota: int) -> None:
        with self._lock_if_reachable():
            self._shelf.quotas[self._space] = quota

    def describe_server(self) -> str:
        with self._lock_if_reachable():
            return "memory of this process"

    def describe_remaining_copies(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        """Nothing is held."""


class MemoryHeads:
    """The heads of one workspace in memory, for machines of one process. `now`: the
    engine's clock.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # Each head with the end of its lease and the time of its last change.
        self._rows: dict[bytes, tuple[ConversationHead, float, int]] = {}
        self._changes = 0
        self.timeline = 1

    def update_heads(
        self, moves: Sequence[HeadUpdate]
    ) -> list[tuple[bool, ConversationHead | None]]:
        return [self._update_head(move) for move in moves]

    def update_heads_with_rows(
        self, engine: RowStore, rows: Mapping[bytes, bytes], moves: Sequence[HeadUpdate]
    ) -> list[tuple[bool, ConversationHead | None]]:
        engine.store_rows(rows)
        answers = self.update_heads(moves)
        for move, (done, _) in zip(moves, answers, strict=True):
            if done:
                engine.remove_rows(move.replaced_rows)
        return answers

    def _update_head(self, move: HeadUpdate) -> tuple[bool, ConversationHead | None]:
        held = self._rows.get(move.name)
        if held is None:
            if move.version or move.sealed is None:
                return False, None
            return True, self._store_head(
                ConversationHead(move.name, 1, move.writer, move.lease_seconds, move.sealed)
            )
        row, until, _ = held
        free = row.writer == move.writer or until <= self._now() or move.force
        if row.version != move.version or not free:
            return False, self._with_seconds_left(row, until)
        sealed = row.sealed if move.sealed is None else move.sealed
        return True, self._store_head(
            replace(
                row,
                version=row.version + 1,
                writer=move.writer,
                lease_seconds_left=move.lease_seconds,
                sealed=sealed,
            )
        )

    def fetch_changed_heads(self, since: int) -> tuple[Sequence[ConversationHead], HeadMark]:
        rows = [
            (at, self._with_seconds_left(row, until))
            for row, until, at in self._rows.values()
            if at > since
        ]
        return [row for _, row in sorted(rows, key=lambda each: each[0])], (
            f"memory {self.timeline}",
            self._changes,
        )

    def fetch_heads(self, names: Collection[bytes]) -> Sequence[ConversationHead]:
        return [
            self._with_seconds_left(row, until)
            for row, until, _ in self._rows.values()
            if row.name in names
        ]

    def fail_over(self) -> MemoryHeads:
        """A standby that has all until now, and takes over when it is asked instead."""
        standby = MemoryHeads(self._now)
        standby._rows = dict(self._rows)
        standby._changes = self._changes
        standby.timeline = self.timeline + 1
        return standby

    def _store_head(self, row: ConversationHead) -> ConversationHead:
        self._changes += 1
        self._rows[row.name] = (row, self._now() + row.lease_seconds_left, self._changes)
        return row

    def _with_seconds_left(self, row: ConversationHead, until: float) -> ConversationHead:
        return replace(row, lease_seconds_left=max(0.0, until - self._now()))
