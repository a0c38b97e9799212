"""Calls of a store on threads: split so that none is large, and shared by all
workspaces on one server.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pytest

from helix_desktop.errors import SharedStoreUnreachable
from helix_desktop.store.shared import async_rows
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.row_store import MOST_BYTES_IN_CALL, MOST_ROWS_IN_CALL, Tombstone
from tests.store.shared.memory_rows import MemoryRowStore, MemoryServer

SPACE = b"s" * 16


class Counted(MemoryRowStore):
    """How much each call has."""

    def __init__(self, shelf: MemoryServer) -> None:
        super().__init__(shelf, SPACE)
        self.calls: list[int] = []

    def store_rows(self, rows: Mapping[bytes, bytes]) -> None:
        self.calls.append(len(rows))
        super().store_rows(rows)

    def fetch_rows(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        self.calls.append(len(names))
        return super().fetch_rows(names)

    def find_missing_rows(self, names: Collection[bytes]) -> frozenset[bytes]:
        self.calls.append(len(names))
        return super().find_missing_rows(names)

    def remove_rows(self, names: Collection[bytes]) -> None:
        self.calls.append(len(names))
        super().remove_rows(names)

    def forget_rows(self, tombs: Sequence[Tombstone]) -> None:
        self.calls.append(len(tombs))
        super().forget_rows(tombs)


def rows(count: int, size: int = 40) -> dict[bytes, bytes]:
    return {number.to_bytes(32, "big"): bytes(size) for number in range(count)}


async def test_no_call_is_much_larger_than_it_may_be() -> None:
    engine = Counted(MemoryServer())
    remote = AsyncRowStore(engine)
    many = rows(MOST_ROWS_IN_CALL + 3)
    await remote.store_in_batches(many)
    assert await remote.fetch_in_batches([*many, b"n" * 32]) == many
    assert await remote.find_missing_in_batches([*many, b"n" * 32]) == {b"n" * 32}
    await remote.remove_in_batches(list(many)[: MOST_ROWS_IN_CALL + 1])
    await remote.forget_in_batches([Tombstone(name, b"") for name in many])
    assert engine.calls == [
        *(MOST_ROWS_IN_CALL, 3), *(MOST_ROWS_IN_CALL, 4), *(MOST_ROWS_IN_CALL, 4), *(MOST_ROWS_IN_CALL, 1),
        *(MOST_ROWS_IN_CALL, 3),
    ]  # fmt: skip
    assert (await remote.fetch_usage()).rows == 0
    await remote.aclose()


async def test_large_rows_go_by_their_bytes() -> None:
    engine = Counted(MemoryServer())
    remote = AsyncRowStore(engine)
    await remote.store_in_batches(rows(5, MOST_BYTES_IN_CALL // 2))
    await remote.store_in_batches({b"a" * 32: bytes(MOST_BYTES_IN_CALL + 1), b"b" * 32: b"x" * 40})
    assert engine.calls == [2, 2, 1, 1, 1]
    await remote.store_in_batches({})
    assert len(engine.calls) == 5
    assert await remote.find_missing_in_batches([]) == frozenset()
    await remote.aclose()


async def test_workspaces_on_one_server_share_its_threads_until_the_last_is_closed() -> None:
    shelf = MemoryServer()
    first = AsyncRowStore(Counted(shelf))
    second = AsyncRowStore(Counted(shelf))
    other = AsyncRowStore(Counted(MemoryServer()))
    assert first._shared is second._shared
    assert first._shared is not other._shared
    server = first.engine.server
    await first.aclose()
    assert server in async_rows._threads
    await second.store_in_batches(rows(1))
    with pytest.raises(SharedStoreUnreachable, match="disconnected"):
        await first.store_in_batches(rows(1))
    await second.aclose()
    assert server not in async_rows._threads
    await other.aclose()
