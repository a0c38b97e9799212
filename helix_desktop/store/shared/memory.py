"""An engine in memory: the reference of the conformance suite, and what trials use where no process is wanted.

Several machines of one process share a `Shelf` and have a `MemoryEngine` each. `away` cuts one off; a full shelf takes nothing.
"""

from __future__ import annotations

import threading
import time as clock
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field

from helix_desktop.errors import Away, StoreFull
from helix_desktop.store.shared.engine import Tomb, Usage
from helix_desktop.values import dataclass


@dataclass(slots=True)
class Shelf:
    """What an engine holds of all workspaces. `now`: its clock; `room`: bytes it takes at most, 0 for any number."""

    now: Callable[[], float] = clock.time
    room: int = 0
    rows: dict[bytes, tuple[bytes, float, bytes]] = field(default_factory=dict)  # sealed, when it was put, space
    tombs: list[tuple[bytes, Tomb]] = field(default_factory=list)
    machines: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict)
    quotas: dict[bytes, int] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryEngine:
    """engine.Engine on a shelf."""

    def __init__(self, shelf: Shelf, space: bytes) -> None:
        self._shelf = shelf
        self._space = space
        self.server = f"memory {id(shelf)}"
        self.away = False

    def _held(self) -> threading.Lock:
        if self.away:
            raise Away(
                "The shared store is not responding.",
                remedy="You can keep working. Your changes are stored on this computer until it responds.",
            )
        return self._shelf.lock

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        with self._held():
            shelf, gone = self._shelf, self._gone()
            new = {name: bytes(row) for name, row in rows.items() if name not in shelf.rows and name not in gone}
            more = sum(map(len, new.values()))
            quota = shelf.quotas.get(self._space, 0)
            if quota and self._used().bytes + more > quota:
                raise full_for_workspace(quota)
            if shelf.room and sum(len(row) for row, *_ in shelf.rows.values()) + more > shelf.room:
                raise StoreFull("The shared store is full.", remedy="Nothing was lost. Free up space in the store.")
            now = shelf.now()
            shelf.rows |= {name: (row, now, self._space) for name, row in new.items()}

    def _gone(self) -> frozenset[bytes]:
        return frozenset(tomb.name for space, tomb in self._shelf.tombs if space == self._space)

    def _used(self) -> Usage:
        sizes = [len(row) for row, _, space in self._shelf.rows.values() if space == self._space]
        return Usage(len(sizes), sum(sizes), self._shelf.quotas.get(self._space, 0))

    def get(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        with self._held():
            return {name: self._shelf.rows[name][0] for name in names if name in self._shelf.rows}

    def lacking(self, names: Collection[bytes]) -> frozenset[bytes]:
        with self._held():
            return frozenset(names) - self._shelf.rows.keys() - self._gone()

    def drop(self, names: Collection[bytes]) -> None:
        with self._held():
            for name in names:
                self._shelf.rows.pop(name, None)

    def forget(self, tombs: Sequence[Tomb]) -> None:
        with self._held():
            gone = self._gone()
            for tomb in tombs:
                self._shelf.rows.pop(tomb.name, None)
            self._shelf.tombs += [(self._space, tomb) for tomb in tombs if tomb.name not in gone]

    def forgotten(self, after: int) -> tuple[Sequence[Tomb], int]:
        with self._held():
            tombs = self._shelf.tombs
            return [tomb for space, tomb in tombs[after:] if space == self._space], len(tombs)

    def publish(self, machine: bytes, sealed: bytes) -> None:
        with self._held():
            self._shelf.machines.pop((self._space, machine), None)
            if sealed:
                self._shelf.machines[self._space, machine] = sealed

    def published(self) -> Mapping[bytes, bytes]:
        with self._held():
            each = self._shelf.machines.items()
            return {machine: sealed for (space, machine), sealed in each if space == self._space}

    def names(self, older: float, after: bytes = b"", limit: int = 10_000) -> Sequence[bytes]:
        with self._held():
            until = self._shelf.now() - older
            rows = self._shelf.rows.items()
            old = (name for name, (_, put, space) in rows if space == self._space and put < until and name > after)
            return sorted(old)[:limit]

    def usage(self) -> Usage:
        with self._held():
            return self._used()

    def limit(self, quota: int) -> None:
        with self._held():
            self._shelf.quotas[self._space] = quota

    def about(self) -> str:
        with self._held():
            return "memory of this process"

    def elsewhere(self) -> Sequence[str]:
        return ()

    def close(self) -> None:
        """Nothing is held."""


def full_for_workspace(quota: int) -> StoreFull:
    """The sentence for a workspace that has reached its quota."""
    return StoreFull(
        f"This workspace has reached its limit of {quota:,} bytes in the shared store.",
        remedy="Your changes are stored on this computer until they can be sent. Raise the limit, or run `workspace sync --collect`.",
    )
