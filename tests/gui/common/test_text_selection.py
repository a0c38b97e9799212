"""What is selected in lines, and which letters make a word."""

from __future__ import annotations

import pytest

from helix_desktop.gui.common.text_selection import (
    NO_POSITION,
    TextPosition,
    TextSelection,
    word_range,
)


@pytest.mark.parametrize(
    ("text", "offset", "word"),
    [
        ("one two", 0, "one"),
        ("one two", 3, "one"),
        ("one two", 4, "two"),
        ("one two", 99, "two"),
        ("a_b-c", 1, "a_b"),
        ("über 5x", 6, "5x"),
        ("a  b", 2, ""),
        ("", 0, ""),
    ],
)
def test_a_word_is_what_a_person_would_call_one(text: str, offset: int, word: str) -> None:
    first, last = word_range(text, offset)
    assert text[first:last] == word


def selected(anchor: tuple[int, int], caret: tuple[int, int]) -> TextSelection:
    selection = TextSelection()
    selection.set_both_ends(TextPosition(*anchor), TextPosition(*caret))
    return selection


def test_nothing_is_selected_without_two_places() -> None:
    assert TextSelection().is_empty_selection
    assert TextSelection().join_selected_lines(lambda _: "x") == ""
    one_place = TextSelection()
    one_place.set_both_ends(TextPosition(1, 2))
    assert one_place.is_empty_selection
    assert (one_place.anchor, one_place.caret) == (TextPosition(1, 2), TextPosition(1, 2))
    some = selected((0, 0), (0, 1))
    assert not some.is_empty_selection
    some.clear_selection()
    assert some.is_empty_selection
    assert some.caret == NO_POSITION


@pytest.mark.parametrize("ends", [((1, 2), (3, 4)), ((3, 4), (1, 2))])
def test_each_line_has_its_part_in_whatever_direction_it_was_selected(
    ends: tuple[tuple[int, int], tuple[int, int]],
) -> None:
    selection = selected(*ends)
    assert selection.ordered_ends == (TextPosition(1, 2), TextPosition(3, 4))
    parts = [selection.selected_offsets_of(number, 10) for number in range(5)]
    assert parts == [(0, 0), (2, 10), (0, 10), (0, 4), (0, 0)]
    lines = ["zero", "first line", None, "third line"]
    assert selection.join_selected_lines(lambda number: lines[number]) == "rst line\nthir"


def test_within_one_line_both_ends_count() -> None:
    assert selected((2, 3), (2, 7)).selected_offsets_of(2, 10) == (3, 7)
    assert selected((2, 7), (2, 3)).join_selected_lines(lambda _: "0123456789") == "3456"
