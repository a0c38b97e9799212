"""A change that is to be agreed to is shown exactly: the patch can be read back from the rows."""

from __future__ import annotations

import random

import pytest

from helix_desktop.engine import hidden_characters
from helix_desktop.engine.changes.diff_hunks import find_hunks
from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.gui.common.difference_rows import (
    build_hunk_rows,
    build_patch_rows,
    describe_hunk_head,
    find_changed_words,
)
from tests.faults import cards
from tests.unmarking import unmark_text


def read_back(text: str, *, columns: bool) -> str:
    lines: list[str] = []
    goes_on = False
    for row in build_patch_rows(text, two_columns=columns):
        if row.head:
            lines.append(row.head)
        elif row.right is not None:
            lines.append(row.right.text if goes_on else row.right.mark + row.right.text)
            goes_on = row.right.text.endswith(hidden_characters.GOES_ON)
    return unmark_text("\n".join(lines))


def test_every_line_is_there() -> None:
    for seed in range(300):
        _every_line_of_a_random_change_is_there(seed)


def _every_line_of_a_random_change_is_there(seed: int) -> None:
    chance = random.Random(seed)
    before = "".join(
        cards.value(chance) + chance.choice(("\n", "\r\n", "")) for _ in range(chance.randrange(6))
    )
    after = before.replace(chance.choice(cards.WORDS), cards.value(chance)) + chance.choice(
        ("", cards.value(chance))
    )
    text = format_unified_diff(before, after, "file")
    assert read_back(text, columns=False) == text.removesuffix("\n")
    assert _lines_of_rows(text, two_columns=True) == _lines_of_rows(text, two_columns=False)


def _lines_of_rows(text: str, *, two_columns: bool) -> set[tuple[str, str]]:
    """The mark and the text of each line, on whichever side it stands."""
    lines: set[tuple[str, str]] = set()
    for row in build_patch_rows(text, two_columns=two_columns):
        sides = (row.left, row.right) if two_columns else (row.right,)
        for line in sides:
            if line is not None:
                lines.add((line.mark, line.text))
    return lines


def test_numbers_are_those_of_the_lines() -> None:
    text = "--- a\n+++ a\n@@ -3,2 +3,3 @@\n same\n-old\n+" + "x" * 1_500 + "\n+more\n"
    found = [
        (line.mark, line.old_number, line.new_number)
        for row in build_patch_rows(text, two_columns=False)
        if (line := row.right)
    ][2:]
    assert found == [(" ", 3, 3), ("-", 4, 0), ("+", 0, 4), ("+", 0, 0), ("+", 0, 5)]


def test_the_names_of_the_files_are_no_changed_words() -> None:
    lines = ["--- calc.py", "+++ calc.py", "@@ -1,1 +1,1 @@", "-return a - b", "+return a + b"]
    assert [number for number, *_ in find_changed_words(lines)] == [3, 4]


@pytest.mark.parametrize("end", ["\u2028", "\x85", "\r", "\x0c"])
def test_a_name_with_another_end_of_line_is_one_name(end: str) -> None:
    text = format_unified_diff("old\n", "new\n", f"calc{end}.py")
    assert read_back(text, columns=False) == text.removesuffix("\n")


def test_a_removed_comment_of_sql_is_no_name_of_a_file() -> None:
    lines = [
        "--- q.sql",
        "+++ q.sql",
        "@@ -1,2 +1,2 @@",
        "--- all rows",
        "+-- all lines",
        " select",
    ]
    assert {number for number, *_ in find_changed_words(lines)} == {3, 4}
    lines = ["@@ -1,1 +1,1 @@", "--- rows all", "+++ rows none"]
    assert {number for number, *_ in find_changed_words(lines)} == {1, 2}


def test_a_version_without_a_last_newline_is_paired_with_the_other() -> None:
    text = format_unified_diff("first\nreturn a - b", "first\nreturn a + b\n", "calc.py")
    old, note, new = [row.right for row in build_patch_rows(text, two_columns=False) if row.right][
        -3:
    ]
    assert (old.mark, note.mark, new.mark) == ("-", "\\", "+")
    assert old.changed_spans
    assert new.changed_spans
    rows = build_patch_rows(text, two_columns=True)[-2:]
    assert [(row.left, row.right) for row in rows] == [(old, new), (note, None)]
    assert {number for number, *_ in find_changed_words(text.split("\n"))} == {4, 6}


def test_a_line_that_looks_as_if_it_went_on_is_counted() -> None:
    before = b"mark = '\xe2\x9f\xa8\xe2\x80\xa6\xe2\x9f\xa9\nsecond\n"
    hunks = find_hunks(before, before + b"third\n")
    lines = [row.right for row in build_hunk_rows(hunks, two_columns=False) if row.right]
    assert [line.new_number for line in lines] == [1, 2, 3]


def test_changes_without_lines_between_stand_in_the_order_of_the_text() -> None:
    text = "--- a\n+++ a\n@@ -1,2 +1,2 @@\n-one\n+eins\n-two\n+zwei\n"
    assert read_back(text, columns=False) == text.removesuffix("\n")
    rows = build_patch_rows(text, two_columns=True)[-2:]
    pairs = [(row.left.text, row.right.text) for row in rows if row.left and row.right]
    assert pairs == [("one", "eins"), ("two", "zwei")]


def test_a_header_with_words_is_left_to_the_view_of_the_whole_text() -> None:
    text = "--- a\n+++ a\n@@ -1,1 +1,1 @@ def f()\n-one\n+two\n"
    assert build_patch_rows(text, two_columns=False) == []


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ("@@ -1,5 +1,6 @@", "Lines 1–6"),
        ("@@ -0,0 +1 @@", "Line 1"),
        ("@@ -1200,1 +1200,1 @@", "Line 1,200"),
        ("@@ -7,2 +6,0 @@", "Lines 7–8"),
        ("--- src/a.py", "--- src/a.py"),
    ],
)
def test_the_head_of_a_hunk_is_said_in_words(head: str, words: str) -> None:
    assert describe_hunk_head(head) == words
