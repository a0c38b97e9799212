"""Boxes know where their letters are, in any script."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PySide6.QtCore import QPointF, Qt
from PySide6.QtGui import QImage, QPainter

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import (
    ActionLineBox,
    PictureBox,
    TextBox,
    ToggleSection,
    utf16_length,
    utf16_slice,
)
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks
from helix_desktop.gui.transcript.markdown_blocks import (
    ParagraphBlock,
    StyledSpan,
    TextStyle,
)
from helix_desktop.gui.transcript.safe_text import is_right_to_left


@given(st.text(max_size=40), st.integers(0, 40), st.integers(0, 40))
def test_pieces_count_as_qt_does(text: str, first: int, last: int) -> None:
    text = text.encode("utf-8", "replace").decode()
    units = text.encode("utf-16-le")
    first, last = sorted((min(first, utf16_length(text)), min(last, utf16_length(text))))
    assert utf16_length(text) == len(units) // 2
    assert utf16_slice(text, first, last) == units[2 * first : 2 * last].decode(
        "utf-16-le", "replace"
    )


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None
)
@given(st.text("ab é漢👩 \u05d0", min_size=1, max_size=120), st.integers(0, 119))
def test_the_caret_stands_where_a_click_finds_it(theme: Theme, text: str, at: int) -> None:
    box = TextBox(DrawingStyle(theme), 200.0, ParagraphBlock((StyledSpan(text),)))
    at = min(at, utf16_length(text))
    found = box.nearest_offset(box.caret_rect(at).center())
    assert (
        abs(found - at) <= max(2, utf16_length(text))
        if is_right_to_left(text) or "\u05d0" in text
        else abs(found - at) <= 3
    )


@pytest.mark.parametrize(
    ("text", "expected"), [("abc", False), ("  مرحبا", True), ("1. שלום", True), ("a שלום", False)]
)
def test_the_first_letter_gives_the_direction(text: str, expected: bool) -> None:
    assert is_right_to_left(text) is expected


def test_a_line_to_click_that_is_too_long_ends_in_dots_and_keeps_its_name(theme: Theme) -> None:
    box = ActionLineBox(
        DrawingStyle(theme),
        90.0,
        "Compare what the model saw before and after",
        ToggleSection(("any",)),
        gap=0.0,
    )
    (hot,) = box.hot_spots
    assert box._words.endswith("…")
    assert hot.place.right() <= 96
    assert hot.name == "Compare what the model saw before and after"


def test_links_have_a_place_on_every_line_they_stand_on(theme: Theme) -> None:
    words = "a link that is long enough to stand on more than one line of a narrow column"
    box = TextBox(
        DrawingStyle(theme),
        120.0,
        ParagraphBlock((StyledSpan("See "), StyledSpan(words, TextStyle.PLAIN, "http://x"))),
    )
    assert len(box.hot_spots) > 1
    assert all(box.find_hot_spot(hot.place.center()) == hot for hot in box.hot_spots)
    assert box.find_hot_spot(QPointF(1, 1)) is None


def test_a_word_is_found_around_a_letter(theme: Theme) -> None:
    box = TextBox(DrawingStyle(theme), 300.0, ParagraphBlock((StyledSpan("one two_three four"),)))
    assert box.word_range_at(6) == (4, 13)


def test_marks_as_a_piece_sees_them() -> None:
    marks = TextMarks((5, 20), ((2, 3), (12, 3), (18, 3)), 1)
    inner = marks.marks_within(10, 6)
    assert inner.selected == (0, 6)
    assert inner.found == ((2, 3),)
    assert inner.current == 0


def test_a_picture_is_seen_also_on_the_surface_of_a_users_message(theme: Theme) -> None:
    picture = QImage(40, 30, QImage.Format.Format_RGB32)
    picture.fill(Qt.GlobalColor.red)
    page = QImage(100, 100, QImage.Format.Format_RGB32)
    painter = QPainter(page)
    painter.setBrush(Qt.GlobalColor.gray)  # as the surface below it was painted
    PictureBox(DrawingStyle(theme), 100.0, picture, "picture.png").draw_box(
        painter, TextMarks(), near=False
    )
    painter.end()
    assert page.pixelColor(20, 15) == Qt.GlobalColor.red
