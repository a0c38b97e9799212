"""Long lines of a request are wrapped for the eye, and copied as they are."""

from __future__ import annotations

import pytest

from helix_desktop.gui.common.text_selection import TextPosition
from helix_desktop.gui.inspector.request_text_view import (
    FoundPlace,
    RequestTextView,
    TextRow,
    wrap_lines,
)
from helix_desktop.gui.theme import Theme


@pytest.mark.parametrize(
    ("line", "rows"),
    [
        ("", [""]),
        ("0123456789", ["0123456789"]),
        ("01234567890", ["0123456789", "0"]),
        ("0123 5678 abc", ["0123 5678 ", "abc"]),
        ("012345678 abc", ["012345678 ", "abc"]),
        ("0123456789 abc", ["0123456789", " abc"]),
        (" 0123456789abc", [" 012345678", "9abc"]),
        ("ab 0123456789abcdefghij", ["ab ", "0123456789", "abcdefghij"]),
    ],
)
def test_a_row_ends_behind_a_space_or_within_a_word_that_is_too_long(
    line: str, rows: list[str]
) -> None:
    wrapped = wrap_lines(["first", line], 10)
    assert wrapped[0] == TextRow("first", 0, is_continuation=False)
    assert [row.text for row in wrapped[1:]] == rows
    assert [row.is_continuation for row in wrapped[1:]] == [False] + [True] * (len(rows) - 1)
    assert {row.line for row in wrapped[1:]} == {1}


@pytest.fixture
def view(theme: Theme) -> RequestTextView:
    view = RequestTextView(theme)
    view.resize(300, 200)
    view.show()
    return view


LINES = ["Ada said hello", "a long line: " + "word " * 60 + "and ada again", "last"]


def test_words_are_found_in_any_case_also_where_a_line_was_broken(view: RequestTextView) -> None:
    view.show_request_text(LINES)
    view.find_in_text("ada")
    assert view.found_places == [FoundPlace(0, 0), FoundPlace(1, LINES[1].index("ada"))]
    for number in range(2):
        view.show_found_place(number)
        assert view.selected_text().casefold() == "ada"
    view.find_in_text("a.a")
    assert view.found_places == []
    view.find_in_text("")
    assert view.found_places == []


def test_what_is_copied_has_the_lines_of_the_text_and_no_others(view: RequestTextView) -> None:
    view.show_request_text(LINES)
    last = len(view._text_rows) - 1
    assert last > len(LINES)
    view.selection.set_both_ends(TextPosition(0, 4), TextPosition(last, 3))
    assert view.selected_text() == "\n".join(LINES)[4:-1]
    labels = [view._label_of_row(row) for row in range(last + 1)]
    assert [label for label in labels if label] == ["1", "2", "3"]
    assert labels[:2] == ["1", "2"]


def test_a_narrow_view_keeps_rows_that_can_be_read(view: RequestTextView) -> None:
    view.show_request_text(LINES)
    wide = view._count_letters_per_row()
    assert wide > 20
    view.resize(20, 200)
    assert view._count_letters_per_row() == 20


def test_the_line_in_sight_stays_there_when_the_width_changes(view: RequestTextView) -> None:
    view.show_request_text([f"{number} " + "word " * 40 for number in range(100)])

    def line_in_sight() -> int:
        row = round(view.verticalScrollBar().value() / view._line_height)
        return view._text_rows[row].line

    row = next(row for row, text_row in enumerate(view._text_rows) if text_row.line == 50)
    view.verticalScrollBar().setValue(round(row * view._line_height))
    rows_before = len(view._text_rows)
    view.resize(600, 200)
    view._wrap_again_if_width_changed()
    assert len(view._text_rows) < rows_before
    assert line_in_sight() == 50
