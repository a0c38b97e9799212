"""A text that the keyboard is on, with nothing in it to click, shows that."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLineEdit, QWidget

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.call_and_fold_boxes import ChipRowBox
from helix_desktop.gui.transcript.tool_call_lines import build_entry_chip
from helix_desktop.gui.views.boxes_view import BoxesView
from helix_desktop.gui.views.large_text_view import TextLineView


def shown(theme: Theme) -> tuple[QWidget, TextLineView]:
    owner = QWidget()
    line = QLineEdit(owner)
    view = TextLineView(theme, owner)
    build_column(line, view, owner=owner)
    view.show_text_lines(["first", "second"])
    owner.resize(300, 200)
    owner.show()
    assert QTest.qWaitForWindowActive(owner)
    line.setFocus()
    return owner, view


def test_a_text_reached_with_tab_has_a_frame_and_one_that_was_clicked_has_none(
    theme: Theme,
) -> None:
    owner, view = shown(theme)
    before = view.viewport().grab().toImage()
    view.setFocus(Qt.FocusReason.MouseFocusReason)
    assert view.viewport().grab().toImage() == before
    view.clearFocus()
    view.setFocus(Qt.FocusReason.TabFocusReason)
    assert view.hasFocus()
    framed = view.viewport().grab().toImage()
    assert framed != before
    assert framed.pixelColor(1, 1) == theme.colour_of_token("accent")
    view.clearFocus()
    assert view.viewport().grab().toImage() == before
    owner.close()


def test_tab_goes_from_one_hot_spot_to_the_next_and_back(theme: Theme) -> None:
    owner = QWidget()
    view = BoxesView(theme, owner)
    build_column(view, owner=owner)
    chips = [build_entry_chip(Digest.of_content(content)) for content in (b"one", b"two")]
    view.show_boxes(lambda ink, width: [ChipRowBox(ink, width, chips)])
    owner.resize(300, 200)
    owner.show()
    QApplication.processEvents()
    first, second = view.visible_hot_spots()
    assert view._next_hot_spot(forward=True) == first
    assert view._next_hot_spot(forward=False) == second
    view._spot = first
    assert view._next_hot_spot(forward=True) == second
    assert view._next_hot_spot(forward=False) is None
    view._spot = second
    assert view._next_hot_spot(forward=True) is None
    owner.close()
