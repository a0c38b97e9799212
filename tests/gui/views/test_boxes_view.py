"""A page of boxes keeps its reader's place while it is made anew."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import LayoutBox, build_note_box
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.views import boxes_view
from helix_desktop.gui.views.boxes_view import BoxesView


def lines(ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
    return (build_note_box(ink, width, f"line {number}") for number in range(300))


@pytest.fixture
def view(theme: Theme, monkeypatch: pytest.MonkeyPatch) -> BoxesView:
    made = BoxesView(theme)
    made.resize(300, 400)
    made.show()
    made.show_boxes(lines)
    settle(made)
    # A box in each slice, as on a busy machine.
    monkeypatch.setattr(boxes_view, "SLICE_SECONDS", 0.0)
    return made


def settle(view: BoxesView) -> None:
    while view._slices.isActive():
        view._continue_box_layout()


def test_the_place_is_kept_though_the_boxes_come_in_slices(view: BoxesView) -> None:
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum() // 2)
    before = bar.value()
    view.show_boxes(lines, keep_place=True)
    assert view._slices.isActive()
    settle(view)
    assert bar.value() == before > 0
    view.show_boxes(lines)
    settle(view)
    assert bar.value() == 0


def test_who_scrolls_meanwhile_stays_where_he_went(view: BoxesView) -> None:
    bar = view.verticalScrollBar()
    bar.setValue(bar.maximum())
    view.show_boxes(lines, keep_place=True)
    QTest.keyClick(view, Qt.Key.Key_Home)
    settle(view)
    assert bar.value() == 0


def test_another_width_is_laid_out_a_few_times_however_slowly(view: BoxesView) -> None:
    widths: list[float] = []

    def made(ink: DrawingStyle, width: float) -> Iterator[LayoutBox]:
        widths.append(width)
        return lines(ink, width)

    view.show_boxes(made)
    settle(view)
    widths.clear()
    view.resize(280, 400)
    for _ in range(3_000):
        QApplication.processEvents()
        if not view._slices.isActive():
            break
    assert 1 <= len(widths) <= 2
    assert not view._slices.isActive()


def test_what_lies_between_the_boxes_has_the_colour_of_the_page(view: BoxesView) -> None:
    view.show_boxes(lambda ink, width: iter([build_note_box(ink, width, "one")]))
    settle(view)
    picture = view.viewport().grab().toImage()
    expected = view._ink.token_colour(view._surface)
    assert picture.pixelColor(picture.width() // 2, picture.height() - 5) == expected
