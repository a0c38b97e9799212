"""The view of a difference: long lines wrap, and no row is lower than what is laid out in it."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QCursor, QFontMetrics, QGuiApplication, QImage, QPainter
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication, QPushButton, QToolTip

from helix_desktop.engine.changes.diff_hunks import find_hunks
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.views import difference_view
from helix_desktop.gui.views.difference_layout import DifferenceLines
from helix_desktop.gui.views.difference_view import DifferenceView


@pytest.mark.parametrize("two", [False, True])
def test_long_lines_wrap_and_nothing_is_cut(theme: Theme, *, two: bool) -> None:
    lines = [b"short", b"x" * 500, b"\ta tab " * 40, "漢字".encode() * 90, "naïve".encode() * 60]
    view = DifferenceView(theme)
    view.show_columns(two=two)
    for width in (420, 700, 1_100):
        view.resize(width, 300)
        view.show_hunks(find_hunks(b"", b"\n".join(lines) + b"\n"))
        view.show()
        QApplication.processEvents()
        for number, row in enumerate(view._sheet.rows):
            if row.right is None:
                continue
            view.verticalScrollBar().setValue(int(view._heights.tops[number]))
            laid = view._lines.lay_out_line(number, row.right, right=True)
            high = view._heights.tops[number + 1] - view._heights.tops[number]
            assert laid.lineCount() * view._ink.code_line_height <= high + 0.01
            right = max(laid.lineAt(at).naturalTextWidth() for at in range(laid.lineCount()))
            assert view._lines.left_edge(right=True) + right <= view.viewport().width()


def opened(theme: Theme, width: int = 900, *, two: bool = False) -> DifferenceView:
    view = DifferenceView(theme)
    view.show_columns(two=two)
    view.resize(width, 300)
    view.show_hunks(find_hunks(b"one\ntwo\nthree\n", b"one\nzwei\nthree\nfour\n"))
    view.show()
    QApplication.processEvents()
    return view


def drag(view: DifferenceView, start: tuple[int, int], end: tuple[int, int]) -> None:
    """From a letter of a row to a letter of another one, in the column on the right."""
    points = []
    for row, letter in (start, end):
        x = view._lines.left_edge(right=view.has_two_columns) + round(
            letter * view._ink.code_letter_width
        )
        points.append(QPoint(x, round(view._heights.tops[row] + view._ink.code_line_height / 2)))
    port = view.viewport()
    QTest.mousePress(port, Qt.MouseButton.LeftButton, pos=points[0])
    QTest.mouseMove(port, points[1])
    QTest.mouseRelease(port, Qt.MouseButton.LeftButton, pos=points[1])


def test_what_is_drawn_over_is_selected_and_copied_and_is_no_comment(theme: Theme) -> None:
    view = opened(theme)
    drag(view, (1, 1), (3, 2))
    assert view.selected_text() == "ne\ntwo\nzw"
    assert not view._comment.isVisible()
    QTest.keyClick(view, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QGuiApplication.clipboard().text() == "ne\ntwo\nzw"
    QTest.mouseClick(
        view.viewport(),
        Qt.MouseButton.LeftButton,
        pos=QPoint(300, round(view._heights.tops[3]) + 4),
    )
    assert view.selected_text() == ""
    assert view._comment.isVisible()


def test_in_two_columns_a_selection_stays_in_one(theme: Theme) -> None:
    view = opened(theme, two=True)
    drag(view, (1, 0), (4, 4))
    assert view.selected_text() == "one\nzwei\nthree\nfour"


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pressed at once here is pressed at once for the view, however busy the machine is."""
    monkeypatch.setattr(difference_view, "SEEN_AFTER_MS", 600_000)


@pytest.mark.usefixtures("slow_machine")
def test_another_press_at_the_same_place_undoes_no_second_part(theme: Theme) -> None:
    """The part below moves up to where Undo was just pressed, and gets the focus with it."""
    view = opened(theme)
    asked = QSignalSpy(view.hunk_undo_requested)
    (buttons,) = view._buttons
    left = Qt.MouseButton.LeftButton
    buttons.back.setFocus()
    middle = buttons.back.rect().center()
    QTest.mouseClick(buttons.back, left, pos=middle)
    QTest.mouseDClick(buttons.back, left, pos=middle)
    QTest.mouseClick(buttons.back, left, pos=middle)
    assert asked.count() == 1
    assert view.window().focusWidget() is view
    QCursor.setPos(QCursor.pos() + QPoint(14, 0))
    QTest.mouseClick(buttons.back, left, pos=middle)
    assert asked.count() == 2, "whoever moves the mouse means it"


def test_an_undo_that_has_been_in_sight_for_a_while_takes_a_press(
    theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It stayed grey for as long as nobody moved the mouse, which looked broken."""
    view = opened(theme)
    asked = QSignalSpy(view.hunk_undo_requested)
    (buttons,) = view._buttons
    left = Qt.MouseButton.LeftButton
    middle = buttons.back.rect().center()
    QCursor.setPos(buttons.back.mapToGlobal(middle))
    QTest.mouseClick(buttons.back, left, pos=middle)
    assert buttons.back.property("waits")
    monkeypatch.setattr(difference_view, "SEEN_AFTER_MS", 1)
    while not view._unchanged.hasExpired(1):
        pass
    assert view._has_mouse_moved_on()
    assert not buttons.back.property("waits")
    QTest.mouseClick(buttons.back, left, pos=middle)
    assert asked.count() == 2


def picture_of(button: QPushButton) -> QImage:
    return button.grab().toImage()


@pytest.mark.usefixtures("slow_machine")
def test_an_undo_that_takes_no_press_looks_disabled_until_the_mouse_has_moved(
    theme: Theme,
) -> None:
    view = opened(theme)
    (buttons,) = view._buttons
    middle = buttons.back.rect().center()
    QCursor.setPos(buttons.back.mapToGlobal(middle))
    view.setFocus()
    QTest.mouseMove(buttons.back, middle)
    enabled = picture_of(buttons.back)
    QTest.mouseClick(buttons.back, Qt.MouseButton.LeftButton, pos=middle)
    assert picture_of(buttons.back) != enabled
    QTest.mouseClick(buttons.back, Qt.MouseButton.LeftButton, pos=middle)
    assert "move the mouse" in QToolTip.text()
    QCursor.setPos(QCursor.pos() + QPoint(14, 0))
    assert view._has_mouse_moved_on()
    assert picture_of(buttons.back) == enabled


@pytest.mark.parametrize("width", [900, 330, 260])
def test_the_head_of_a_hunk_ends_before_its_buttons(theme: Theme, width: int) -> None:
    view = opened(theme, width)
    (buttons,) = view._buttons
    words = view._elided_hunk_head(view._sheet.rows[0])
    assert words.startswith("Line")
    assert (
        QFontMetrics(view._ink.mono).horizontalAdvance(words) + view._ink.scaled_pixels(12)
        < buttons.x()
    )


@pytest.mark.parametrize("two", [False, True])
def test_a_long_file_is_laid_out_where_it_is_looked_at(theme: Theme, *, two: bool) -> None:
    before = [b"%d " % number + b"word " * 60 for number in range(20_000)]
    after = [line.replace(b"word", b"other", 1) for line in before]
    view = DifferenceView(theme)
    view.show_columns(two=two)
    view.resize(900, 600)
    view.show()
    found = find_hunks(b"\n".join(before), b"\n".join(after))
    view.show_hunks(found)
    QApplication.processEvents()
    assert len(view._lines._laid) < 200
    bar = view.verticalScrollBar()
    for value in (bar.maximum() // 2, bar.maximum()):
        bar.setValue(value)
        QApplication.processEvents()
        for number in view._visible_rows():
            laid = view._lines._laid[number, True]
            assert laid.lineCount() * view._ink.code_line_height == pytest.approx(
                view._heights.tops[number + 1] - view._heights.tops[number]
            )


def test_colours_and_changed_words_come_after_the_first_frame(theme: Theme) -> None:
    view = DifferenceView(theme)
    view.show_hunks(find_hunks(b"return first_name\n", b"return second_name\n"), language="python")
    view.resize(900, 300)
    view.show()
    for _ in range(1_000):
        QApplication.processEvents()
        if view._lines._laid and not view._lines.plain:
            break
    formats = [(each.start, each.length) for each in view._lines._laid[2, True].formats()]
    assert (0, 6) in formats, "the keyword"
    assert (7, 11) in formats, "the word that changed"


def test_only_the_rows_of_the_parts_that_changed_are_drawn(
    theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    usual = DifferenceLines.draw_line

    def paint_line(
        lines: DifferenceLines, painter: QPainter, number: int, *rest: Any, **named: Any
    ) -> None:
        drawn.append(number)
        usual(lines, painter, number, *rest, **named)

    view = DifferenceView(theme)
    view.resize(600, 600)
    view.show_hunks(find_hunks(b"", b"line\n" * 100))
    view.show()
    QApplication.processEvents()
    monkeypatch.setattr(DifferenceLines, "draw_line", paint_line)
    view._lines.plain.clear()
    first = 5
    last = 25
    for number in (first, last):
        view.viewport().update(0, int(view._heights.tops[number]) + 3, 600, 5)
    QApplication.processEvents()
    assert drawn == [first, last]


def test_a_comment_stays_at_its_line_in_the_other_form(theme: Theme) -> None:
    said: list[tuple[int, str, str]] = []
    view = DifferenceView(theme)
    view.commented.connect(lambda *what: said.append(what))
    view.show_hunks(find_hunks(b"one\ntwo\n", b"eins\nzwei\n"))
    view.open_comment_on_row(len(view._sheet.rows) - 1)
    view.show_columns(two=True)
    view._comment.words.setPlainText("Why?")
    view._comment._send_comment()
    assert said == [(2, "zwei", "Why?")]
    assert view._heights.tops[-1] == sum(view._heights._heights)
