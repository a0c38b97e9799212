"""An engine in memory: the reference of the conformance suite, and what trials use where no process is wanted.

Several machines of one process share a `MemoryServer` and have a `MemoryRowStore` each. `is_away` cuts one off; a full shelf takes nothing.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

from helix_desktop.errors import SharedStoreUnreachable, StoreFull
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.shared.row_store import RowUsage, Tombstone


@dataclass(slots=True)
class MemoryServer:
    """What an engine holds of all workspaces. `now`: its clock; `most_bytes`: bytes it takes at most, 0 for any number."""

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
                remedy="You can keep working. Your changes are stored on this computer until it responds.",
            )
        return self._shelf.lock

    def store_rows(self, rows: Mapping[bytes, bytes]) -> None:
        with self._lock_if_reachable():
            shelf, gone = self._shelf, self._forgotten_names()
            new = {name: bytes(row) for name, row in rows.items() if name not in shelf.rows and name not in gone}
            more = sum(map(len, new.values()))
            quota = shelf.quotas.get(self._space, 0)
            if quota and self._measure_usage().bytes + more > quota:
                raise quota_reached_error(quota)
            if shelf.most_bytes and sum(len(row) for row, *_ in shelf.rows.values()) + more > shelf.most_bytes:
                raise StoreFull("The shared store is full.", remedy="Nothing was lost. Free up space in the store.")
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

    def list_old_rows(self, older: float, after: bytes = b"", limit: int = 10_000) -> Sequence[bytes]:
        with self._lock_if_reachable():
            until = self._shelf.now() - older
            rows = self._shelf.rows.items()
            old = (name for name, (_, put, space) in rows if space == self._space and put < until and name > after)
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


def quota_reached_error(quota: int) -> StoreFull:
    """The sentence for a workspace that has reached its quota."""
    return StoreFull(
        f"This workspace has reached its limit of {quota:,} bytes in the shared store.",
        remedy="Your changes are stored on this computer until they can be sent. Raise the limit, or run `workspace sync --collect`.",
    )
