"""Ranges of rows behave as the set of their rows."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gui.shared.row_ranges import RowRanges

ACTS = st.lists(st.tuples(st.sampled_from(["add", "remove", "toggle"]), st.integers(0, 30), st.integers(0, 30)))


@given(ACTS)
def test_they_are_the_set_of_their_rows(acts: list[tuple[str, int, int]]) -> None:
    ranges, rows = RowRanges(), set[int]()
    for act, a, b in acts:
        some = set(range(min(a, b), max(a, b) + 1))
        if act == "add":
            ranges.add_range(a, b)
            rows |= some
        elif act == "remove":
            ranges.remove_range(a, b)
            rows -= some
        else:
            ranges.toggle_row(a)
            rows ^= {a}
    assert list(ranges.iterate_rows()) == sorted(rows)
    assert len(ranges) == len(rows)
    assert [row for row in range(-1, 32) if row in ranges] == sorted(rows)
    edges = list(ranges)
    assert all(last + 1 < first for (_, last), (first, _) in pairwise(edges))


def test_a_million_rows_are_one_range() -> None:
    ranges = RowRanges()
    ranges.set_only_range(0, 999_999)
    ranges.remove_range(5, 5)
    ranges.shift_rows(10)
    assert list(ranges) == [(10, 14), (16, 1_000_009)]
    assert len(ranges) == 999_999
