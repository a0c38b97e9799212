"""A change that is to be agreed to is shown exactly: the patch can be read back from the rows."""

from __future__ import annotations

import random

import pytest

from helix_desktop.engine import hidden_characters
from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.gui.common.difference_rows import build_patch_rows, find_changed_words
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


@pytest.mark.parametrize("seed", range(300))
def test_every_line_is_there(seed: int) -> None:
    chance = random.Random(seed)
    before = "".join(
        cards.value(chance) + chance.choice(("\n", "\r\n", "")) for _ in range(chance.randrange(6))
    )
    after = before.replace(chance.choice(cards.WORDS), cards.value(chance)) + chance.choice(
        ("", cards.value(chance))
    )
    text = format_unified_diff(before, after, "file")
    assert read_back(text, columns=False) == text.removesuffix("\n")
    both = [
        line
        for row in build_patch_rows(text, two_columns=True)
        for line in (row.left, row.right)
        if line is not None
    ]
    one = [row.right for row in build_patch_rows(text, two_columns=False) if row.right is not None]
    assert {(line.mark, line.text) for line in both} == {(line.mark, line.text) for line in one}


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
