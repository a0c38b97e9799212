from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from functools import partial

import psycopg
import pytest

from helix_desktop import concurrency
from helix_desktop.store.shared.conversation_heads import ConversationHeads, HeadUpdate
from helix_desktop.store.shared.postgres_heads import PostgresHeads
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import RowStore
from tests.store.shared.memory_rows import MemoryHeads, MemoryRowStore, MemoryServer

HERE = b"here" * 4
THERE = b"there" * 3 + b"."
ONE = b"name of one".ljust(32)
Another = Callable[[], ConversationHeads]
AnotherWithRows = Callable[[], tuple[ConversationHeads, RowStore]]


@pytest.fixture(params=["memory", "postgres", "pgbouncer"])
def another_with_rows(request: pytest.FixtureRequest, seal: RowCipher) -> Iterator[AnotherWithRows]:
    """The same heads for one machine more, with the engine that they are in."""
    opened: list[PostgresRowStore] = []
    memory = MemoryHeads(time.monotonic)
    memory_rows = MemoryRowStore(MemoryServer(), seal.space)

    def one() -> tuple[ConversationHeads, RowStore]:
        if request.param == "memory":
            return memory, memory_rows
        peer = "pooler" if request.param == "pgbouncer" else "server"
        opened.append(PostgresRowStore(request.getfixturevalue(peer).url, seal.space))
        return PostgresHeads(opened[-1], seal.space), opened[-1]

    yield one
    for engine in opened:
        engine.close()


@pytest.fixture
def another(another_with_rows: AnotherWithRows) -> Another:
    return lambda: another_with_rows()[0]


@pytest.fixture
def heads(another: Another) -> ConversationHeads:
    return another()


def test_the_first_to_move_a_head_is_its_writer_for_as_long_as_was_asked(
    heads: ConversationHeads,
) -> None:
    done, head = heads.update_heads([HeadUpdate(ONE, 0, HERE, b"first", 30)])[0]
    assert done
    assert head is not None
    assert (head.name, head.version, head.writer, head.sealed) == (ONE, 1, HERE, b"first")
    assert 25 < head.lease_seconds_left <= 30
    done, seen = heads.update_heads([HeadUpdate(ONE, 0, THERE, b"mine", 30)])[0]
    assert not done
    assert seen is not None
    assert (seen.writer, seen.sealed) == (HERE, b"first")


def test_a_head_moves_only_from_the_version_that_was_seen(heads: ConversationHeads) -> None:
    heads.update_heads([HeadUpdate(ONE, 0, HERE, b"first", 30)])[0]
    assert heads.update_heads([HeadUpdate(ONE, 1, HERE, b"second", 30)])[0][0]
    done, head = heads.update_heads([HeadUpdate(ONE, 1, HERE, b"other", 30)])[0]
    assert not done
    assert head is not None
    assert (head.version, head.sealed) == (2, b"second")


def test_several_heads_that_move_at_once_are_told_in_order(heads: ConversationHeads) -> None:
    names = [f"name {number}".encode().ljust(32) for number in range(4)]
    heads.update_heads([HeadUpdate(names[2], 0, THERE, b"theirs", 30)])
    told = heads.update_heads([HeadUpdate(name, 0, HERE, name[:6], 30) for name in names])
    assert [done for done, _ in told] == [True, True, False, True]
    found = [(head.name, head.writer, head.sealed) for _, head in told if head is not None]
    expected = [(name, HERE, name[:6]) for name in names]
    expected[2] = (names[2], THERE, b"theirs")
    assert found == expected


def test_another_machine_waits_for_the_lease_or_takes_it(heads: ConversationHeads) -> None:
    heads.update_heads([HeadUpdate(ONE, 0, HERE, b"first", 30)])[0]
    assert not heads.update_heads([HeadUpdate(ONE, 1, THERE, b"there", 30)])[0][0]
    done, head = heads.update_heads([HeadUpdate(ONE, 1, THERE, None, 30, force=True)])[0]
    assert done
    assert head is not None
    assert (head.writer, head.sealed, head.version) == (THERE, b"first", 2)
    assert not heads.update_heads([HeadUpdate(ONE, 2, HERE, b"late", 30)])[0][0]


def test_a_lease_that_is_over_holds_nobody_back(heads: ConversationHeads) -> None:
    heads.update_heads([HeadUpdate(ONE, 0, HERE, b"first", 0)])[0]
    done, head = heads.update_heads([HeadUpdate(ONE, 1, THERE, b"there", 30)])[0]
    assert done
    assert head is not None
    assert head.writer == THERE


def test_a_head_that_is_not_there_is_not_moved_on(heads: ConversationHeads) -> None:
    assert heads.update_heads([HeadUpdate(ONE, 3, HERE, b"lost", 30)])[0] == (False, None)


def test_what_changed_is_seen_from_the_mark_on(another: Another) -> None:
    here = another()
    there = another()
    nothing, mark = there.fetch_changed_heads(0)
    assert list(nothing) == []
    names = [bytes([number]) * 32 for number in range(5)]
    for name in names:
        here.update_heads([HeadUpdate(name, 0, HERE, b"one", 30)])[0]
    found, mark = there.fetch_changed_heads(mark[1])
    assert {head.name for head in found} == set(names)
    here.update_heads([HeadUpdate(names[3], 1, HERE, b"two", 30)])[0]
    found, mark = there.fetch_changed_heads(mark[1])
    assert (names[3], b"two") in {(head.name, head.sealed) for head in found}
    assert {head.name for head in there.fetch_heads(names[:2])} == set(names[:2])


def test_rows_change_with_the_heads_that_name_them(another_with_rows: AnotherWithRows) -> None:
    """A row that is replaced stays where another machine's head may name it."""
    heads, engine = another_with_rows()
    segments = {secrets.token_bytes(32): bytes(600) for _ in range(4)}
    first, second, third, late = segments
    other = b"name of another".ljust(32)
    updates = [HeadUpdate(ONE, 0, HERE, b"1", 30), HeadUpdate(other, 0, HERE, b"1", 30)]
    rows = {first: segments[first], second: segments[second]}
    assert all(done for done, _ in heads.update_heads_with_rows(engine, rows, updates))
    updates = [
        HeadUpdate(ONE, 1, HERE, b"2", 30, replaced_rows=(first,)),
        HeadUpdate(other, 0, HERE, b"2", 30, replaced_rows=(second,)),
    ]
    answers = heads.update_heads_with_rows(engine, {third: segments[third]}, updates)
    assert [done for done, _ in answers] == [True, False]
    assert [head.sealed for _, head in answers if head is not None] == [b"2", b"1"]
    assert engine.find_missing_rows(segments) == {first, late}
    assert engine.fetch_row_usage().rows == 2
    again = HeadUpdate(ONE, 1, HERE, b"3", 30, replaced_rows=(third,))
    ((done, _),) = heads.update_heads_with_rows(engine, {late: segments[late]}, [again])
    assert not done
    assert engine.find_missing_rows(segments) == {first}


def test_of_many_that_move_at_once_one_wins(another: Another) -> None:
    machines = [(bytes([number]) * 16, another()) for number in range(6)]
    machines[0][1].update_heads([HeadUpdate(ONE, 0, HERE, b"first", 0)])[0]
    won: list[bytes] = []

    def move(machine: bytes, heads: ConversationHeads) -> None:
        if heads.update_heads([HeadUpdate(ONE, 1, machine, machine, 30)])[0][0]:
            won.append(machine)

    threads = [concurrency.start_thread(partial(move, *each), name="machine") for each in machines]
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert [head.sealed for head in machines[0][1].fetch_heads([ONE])] == won


def test_a_change_that_is_committed_late_is_not_missed(
    seal: RowCipher, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("server").url
    engine = PostgresRowStore(url, seal.space)
    heads = PostgresHeads(engine, seal.space)
    try:
        heads.fetch_heads([ONE])  # the tables are there
        with psycopg.connect(url) as late:
            statement, values = heads._update_statement(HeadUpdate(ONE, 0, HERE, b"late", 30))
            late.execute(statement.encode(), values)
            heads.update_heads([HeadUpdate(b"2" * 32, 0, THERE, b"soon", 30)])[0]
            found, mark = heads.fetch_changed_heads(0)
            assert [head.sealed for head in found] == [b"soon"]
        found, _ = heads.fetch_changed_heads(mark[1])
        assert b"late" in {head.sealed for head in found}
    finally:
        engine.close()
