"""What two texts have in common is found in order, and is the same in both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.changes.diff_hunks import find_matching_lines

LINES = st.lists(st.sampled_from([*"abcdef", "", "  x"]), max_size=30)


@given(LINES, LINES)
def test_what_is_common_stands_in_both_in_order(left: list[str], right: list[str]) -> None:
    a = b = 0
    for same in find_matching_lines(left, right):
        assert (same.left >= a, same.right >= b, same.count > 0) == (True, True, True)
        a = same.left + same.count
        b = same.right + same.count
        assert left[same.left : a] == right[same.right : b]


@given(LINES)
def test_a_text_does_not_differ_from_itself(lines: list[str]) -> None:
    assert sum(same.count for same in find_matching_lines(lines, lines)) == len(lines)


def test_one_changed_line_is_all_that_differs() -> None:
    left = [f"line {i}" for i in range(10_000)]
    right = [*left[:5_000], "new", *left[5_001:]]
    assert [(same.left, same.right, same.count) for same in find_matching_lines(left, right)] == [
        (0, 0, 5_000),
        (5_001, 5_001, 4_999),
    ]


def test_moved_and_repeated_lines() -> None:
    found = find_matching_lines(["a", "x", "b", "x", "c"], ["a", "x", "c", "x", "b"])
    assert sum(same.count for same in found) >= 3


def test_texts_without_a_common_line_are_replaced() -> None:
    assert list(find_matching_lines(["a"] * 5_000, ["b"] * 5_000)) == []
