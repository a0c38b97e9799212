"""Any number of lines, of which only those in sight cost something; selecting and
marking by real events.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.views.large_text_view import TextLineView, split_runs_by_line

LEFT = Qt.MouseButton.LeftButton


class Counted(Sequence[str]):
    """A million lines that remember how often one was asked for."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int | slice) -> str:
        self.asked += 1
        return f"line {number}"


@pytest.fixture
def view(theme: Theme) -> Iterator[TextLineView]:
    made = TextLineView(theme)
    made.resize(500, 300)
    made.show()
    QApplication.processEvents()
    yield made
    made.close()


def test_a_million_lines_show_at_once(view: TextLineView) -> None:
    lines = Counted()
    view.show_text_lines(lines)
    QApplication.processEvents()
    view.verticalScrollBar().setValue(view.verticalScrollBar().maximum())
    QApplication.processEvents()
    assert lines.asked < 200


def test_lines_are_chosen_in_the_margin_and_by_keyboard(view: TextLineView) -> None:
    view.show_text_lines([f"line {i}" for i in range(100)])
    QTest.mouseClick(view.viewport(), LEFT, pos=QPoint(5, 12 + 2 * 19))
    assert view.selected_line_range() == (2, 2)
    QTest.keyClick(view, Qt.Key.Key_Down, Qt.KeyboardModifier.ShiftModifier)
    QTest.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "line 2\nline 3"
    QTest.keyClick(view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert view.selected_text().count("\n") == 99


def test_signs_are_chosen_with_the_mouse(view: TextLineView) -> None:
    view.show_text_lines(["alpha beta", "gamma"])
    x = round(view._gutter_width + 7 * view._ink.code_letter_width)
    QTest.mouseDClick(view.viewport(), LEFT, pos=QPoint(x, 16))
    assert view.selected_text() == "beta"


def test_a_huge_line_costs_little_and_is_copied_whole(view: TextLineView) -> None:
    view.show_text_lines(["x" * 1_000_000, "y"])
    start = time.process_time()
    view.viewport().repaint()
    assert time.process_time() - start < 1.0
    QTest.keyClick(view, Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    assert len(view.selected_text()) == 1_000_002
    QTest.mouseClick(view.viewport(), LEFT, pos=QPoint(5, 16))
    assert len(view.selected_text()) == 1_000_000


def test_marks_stand_where_the_text_is(view: TextLineView) -> None:
    view.show_text_lines(["a Needle and a needle"])
    before = view.grab().toImage()
    view.highlight_matches(("needle",))
    assert view.grab().toImage() != before


@given(
    st.lists(st.text("ab", max_size=6), min_size=1, max_size=8),
    st.integers(0, 20),
    st.integers(1, 20),
)
def test_a_run_over_lines_covers_the_same_signs(lines: list[str], start: int, size: int) -> None:
    text = "\n".join(lines)
    wanted = [i for i in range(start, min(start + size, len(text))) if text[i] != "\n"]
    found: list[int] = []
    starts = [sum(len(line) + 1 for line in lines[:i]) for i in range(len(lines))]
    for number, (at, length, _) in split_runs_by_line(iter([(start, size, "x")]), lines):
        found += range(starts[number] + at, starts[number] + at + length)
    assert found == wanted
