"""One suite for every engine: what the port promises."""

from __future__ import annotations

import secrets

import pytest

from helix_desktop.errors import StoreFull
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import ROW_KEY_BYTES, RowStore, Tombstone, is_private_host
from tests.store.shared.conftest import Another


def _rows(count: int, size: int = 512) -> dict[bytes, bytes]:
    return {
        secrets.token_bytes(32): secrets.token_bytes(ROW_KEY_BYTES + size) for _ in range(count)
    }


@pytest.mark.parametrize(
    ("host", "private"),
    [
        *(
            (host, True)
            for host in (
                "",
                "localhost",
                "/run/postgresql",
                "@abstract",
                "127.0.0.1",
                "::1",
                "10.1.2.3",
            )
        ),
        *(
            (host, False)
            for host in ("example.org", "localhost.example.org", "8.8.8.8", "2001:4860:4860::8888")
        ),
    ],
)
def test_a_name_may_be_anywhere_and_an_address_says_where_it_is(host: str, private: bool) -> None:
    assert is_private_host(host) is private


def test_rows_come_back_as_they_were_put_and_what_is_there_is_not_changed(engine: RowStore) -> None:
    rows = _rows(20)
    engine.store_rows(rows)
    engine.store_rows({name: secrets.token_bytes(ROW_KEY_BYTES + 512) for name in rows} | _rows(1))
    assert engine.fetch_rows(list(rows) + [secrets.token_bytes(32)]) == rows


def test_nothing_asked_is_nothing_answered(engine: RowStore) -> None:
    engine.store_rows({})
    assert engine.fetch_rows([]) == {}
    assert engine.find_missing_rows([]) == frozenset()


def test_it_says_which_rows_it_lacks(engine: RowStore) -> None:
    rows = _rows(5)
    others = _rows(5)
    engine.store_rows(rows)
    assert engine.find_missing_rows(list(rows) + list(others)) == frozenset(others)


def test_a_large_row_and_many_small_ones_come_back(engine: RowStore) -> None:
    rows = _rows(2, 3 << 20) | _rows(400)
    engine.store_rows(rows)
    assert engine.fetch_rows(list(rows)) == rows


def test_what_was_dropped_may_come_again(engine: RowStore) -> None:
    rows = _rows(3)
    engine.store_rows(rows)
    engine.remove_rows(list(rows)[:2])
    assert set(engine.fetch_rows(list(rows))) == set(list(rows)[2:])
    engine.store_rows(rows)
    assert engine.fetch_rows(list(rows)) == rows


def test_what_was_forgotten_is_gone_for_all_and_cannot_come_again(another: Another) -> None:
    here = another()
    there = another()
    rows = _rows(3)
    here.store_rows(rows)
    gone, *left = rows
    here.forget_rows([Tombstone(gone, b"sealed word")])
    assert set(there.fetch_rows(list(rows))) == set(left)
    there.store_rows(rows)
    assert set(here.fetch_rows(list(rows))) == set(left)
    assert there.find_missing_rows(list(rows)) == frozenset()


def test_other_machines_hear_of_what_was_forgotten_since_they_last_asked(another: Another) -> None:
    here = another()
    there = another()
    first, second, never_put = _rows(3)
    here.forget_rows([Tombstone(first, b"1")])
    tombs, mark = there.fetch_tombstones(0)
    assert [tomb.name for tomb in tombs] == [first]
    here.forget_rows(
        [Tombstone(second, b"2"), Tombstone(never_put, b"3"), Tombstone(first, b"again")]
    )
    tombs, _ = there.fetch_tombstones(mark)
    assert {second, never_put} <= {tomb.name for tomb in tombs}
    assert {tomb.sealed_digest for tomb in there.fetch_tombstones(0)[0]} == {b"1", b"2", b"3"}


def test_each_machine_publishes_one_list(another: Another) -> None:
    here = another()
    there = another()
    here.publish_used_rows(b"a" * 16, b"old")
    here.publish_used_rows(b"a" * 16, b"new")
    there.publish_used_rows(b"b" * 16, b"theirs")
    assert here.fetch_published_uses() == {b"a" * 16: b"new", b"b" * 16: b"theirs"}
    there.publish_used_rows(b"b" * 16, b"")
    assert here.fetch_published_uses() == {b"a" * 16: b"new"}


def test_old_rows_are_listed_by_name_for_collecting(engine: RowStore) -> None:
    rows = _rows(7)
    engine.store_rows(rows)
    assert engine.list_old_rows(3600) == []
    first = engine.list_old_rows(-60, limit=4)
    assert list(first) + list(engine.list_old_rows(-60, first[-1])) == sorted(rows)


def test_the_rows_of_another_workspace_are_not_counted_and_not_listed(
    engine: RowStore, another: Another
) -> None:
    rows = _rows(4)
    engine.store_rows(rows)
    used = engine.fetch_row_usage()
    assert used.rows == 4
    assert used.bytes == 4 * (ROW_KEY_BYTES + 512)
    engine.remove_rows(list(rows)[:1])
    assert engine.fetch_row_usage().rows == 3


def test_a_quota_stops_puts_with_a_sentence_and_raising_it_lets_them(engine: RowStore) -> None:
    engine.set_quota(10 * (ROW_KEY_BYTES + 512))
    engine.store_rows(_rows(9))
    engine.set_quota(10 * (ROW_KEY_BYTES + 512))
    more = _rows(2)
    with pytest.raises(StoreFull, match="limit of"):
        engine.store_rows(more)
    assert engine.fetch_rows(list(more)) == {}
    engine.set_quota(0)
    engine.store_rows(more)
    assert engine.fetch_rows(list(more)) == more


def test_it_says_what_it_is(engine: RowStore, seal: RowCipher) -> None:
    assert engine.describe_server()
    assert all(sentence.endswith(".") for sentence in engine.describe_remaining_copies())
