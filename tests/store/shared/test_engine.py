"""One suite for every engine: what the port promises."""

from __future__ import annotations

import secrets

import pytest

from helix_desktop.errors import StoreFull
from helix_desktop.store.shared.engine import KEY, Engine, Tomb
from helix_desktop.store.shared.sealing import Seal
from tests.store.shared.conftest import Another


def _rows(count: int, size: int = 512) -> dict[bytes, bytes]:
    return {secrets.token_bytes(32): secrets.token_bytes(KEY + size) for _ in range(count)}


def test_rows_come_back_as_they_were_put_and_what_is_there_is_not_changed(engine: Engine) -> None:
    rows = _rows(20)
    engine.put(rows)
    engine.put({name: secrets.token_bytes(KEY + 512) for name in rows} | _rows(1))
    assert engine.get([*rows, secrets.token_bytes(32)]) == rows


def test_nothing_asked_is_nothing_answered(engine: Engine) -> None:
    engine.put({})
    assert engine.get([]) == {}
    assert engine.lacking([]) == frozenset()


def test_it_says_which_rows_it_lacks(engine: Engine) -> None:
    rows, others = _rows(5), _rows(5)
    engine.put(rows)
    assert engine.lacking([*rows, *others]) == frozenset(others)


def test_a_large_row_and_many_small_ones_come_back(engine: Engine) -> None:
    rows = _rows(2, 3 << 20) | _rows(400)
    engine.put(rows)
    assert engine.get(list(rows)) == rows


def test_what_was_dropped_may_come_again(engine: Engine) -> None:
    rows = _rows(3)
    engine.put(rows)
    engine.drop(list(rows)[:2])
    assert set(engine.get(list(rows))) == set(list(rows)[2:])
    engine.put(rows)
    assert engine.get(list(rows)) == rows


def test_what_was_forgotten_is_gone_for_all_and_cannot_come_again(another: Another) -> None:
    here, there = another(), another()
    rows = _rows(3)
    here.put(rows)
    gone, *left = rows
    here.forget([Tomb(gone, b"sealed word")])
    assert set(there.get(list(rows))) == set(left)
    there.put(rows)
    assert set(here.get(list(rows))) == set(left)
    assert there.lacking(list(rows)) == frozenset()


def test_other_machines_hear_of_what_was_forgotten_since_they_last_asked(another: Another) -> None:
    here, there = another(), another()
    first, second, never_put = _rows(3)
    here.forget([Tomb(first, b"1")])
    tombs, mark = there.forgotten(0)
    assert [tomb.name for tomb in tombs] == [first]
    here.forget([Tomb(second, b"2"), Tomb(never_put, b"3"), Tomb(first, b"again")])
    tombs, _ = there.forgotten(mark)
    assert {second, never_put} <= {tomb.name for tomb in tombs}
    assert {tomb.word for tomb in there.forgotten(0)[0]} == {b"1", b"2", b"3"}


def test_each_machine_publishes_one_list(another: Another) -> None:
    here, there = another(), another()
    here.publish(b"a" * 16, b"old")
    here.publish(b"a" * 16, b"new")
    there.publish(b"b" * 16, b"theirs")
    assert here.published() == {b"a" * 16: b"new", b"b" * 16: b"theirs"}
    there.publish(b"b" * 16, b"")
    assert here.published() == {b"a" * 16: b"new"}


def test_old_rows_are_listed_by_name_for_collecting(engine: Engine) -> None:
    rows = _rows(7)
    engine.put(rows)
    assert engine.names(3600) == []
    first = engine.names(-60, limit=4)
    assert [*first, *engine.names(-60, first[-1])] == sorted(rows)


def test_the_rows_of_another_workspace_are_not_counted_and_not_listed(engine: Engine, another: Another) -> None:
    rows = _rows(4)
    engine.put(rows)
    used = engine.usage()
    assert used.rows == 4
    assert used.bytes == 4 * (KEY + 512)
    engine.drop(list(rows)[:1])
    assert engine.usage().rows == 3


def test_a_quota_stops_puts_with_a_sentence_and_raising_it_lets_them(engine: Engine) -> None:
    engine.limit(10 * (KEY + 512))
    engine.put(_rows(9))
    engine.limit(10 * (KEY + 512))
    more = _rows(2)
    with pytest.raises(StoreFull, match="limit of"):
        engine.put(more)
    assert engine.get(list(more)) == {}
    engine.limit(0)
    engine.put(more)
    assert engine.get(list(more)) == more


def test_it_says_what_it_is(engine: Engine, seal: Seal) -> None:
    assert engine.about()
    assert all(sentence.endswith(".") for sentence in engine.elsewhere())
