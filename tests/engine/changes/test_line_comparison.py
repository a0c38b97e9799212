"""A difference holds both texts, whole and in order, and finds what they have in common."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.changes.line_comparison import diff_rows, pair_rows

LINES = st.lists(st.sampled_from([*"abcdef", "", "  x"]), max_size=30)


@given(LINES, LINES)
def test_both_texts_are_in_it(left: list[str], right: list[str]) -> None:
    rows = list(diff_rows(left, right))
    assert [row.text for row in rows if row.sign != "+"] == left
    assert [row.text for row in rows if row.sign != "-"] == right
    assert [row.left for row in rows if row.left >= 0] == list(range(len(left)))
    assert [row.right for row in rows if row.right >= 0] == list(range(len(right)))


@given(LINES)
def test_a_text_does_not_differ_from_itself(lines: list[str]) -> None:
    assert all(row.sign == " " for row in diff_rows(lines, lines))


def test_one_changed_line_is_all_that_differs() -> None:
    left = [f"line {i}" for i in range(10_000)]
    right = [*left[:5_000], "new", *left[5_001:]]
    assert [(row.sign, row.text) for row in diff_rows(left, right) if row.sign != " "] == [
        ("-", "line 5000"),
        ("+", "new"),
    ]


def test_moved_and_repeated_lines() -> None:
    rows = list(diff_rows(["a", "x", "b", "x", "c"], ["a", "x", "c", "x", "b"]))
    assert sum(row.sign == " " for row in rows) >= 3


def test_texts_without_a_common_line_are_replaced() -> None:
    rows = list(diff_rows(["a"] * 5_000, ["b"] * 5_000))
    assert [row.sign for row in rows] == ["-"] * 5_000 + ["+"] * 5_000


def test_pairs_put_what_was_replaced_beside_its_replacement() -> None:
    pairs = pair_rows(list(diff_rows(["a", "b", "c"], ["a", "x", "y", "c"])))
    assert [(one.text if one else None, two.text if two else None) for one, two in pairs] == [
        ("a", "a"),
        ("b", "x"),
        (None, "y"),
        ("c", "c"),
    ]
