"""What is typed goes to the popup that is open, whatever happens below it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialog, QLineEdit, QVBoxLayout, QWidget

from helix_desktop.gui.frame.command_palette import CommandPalette
from helix_desktop.gui.theme import Theme


class WindowWithFields(QWidget):
    """Two fields as a page has them, and the palette above them."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.resize(900, 600)
        self.search = QLineEdit(self)
        self.message = QLineEdit(self)
        column = QVBoxLayout(self)
        column.addWidget(self.search)
        column.addWidget(self.message)
        self.palette_box = CommandPalette(theme, list, self)


@pytest.fixture
def fields(theme: Theme) -> Iterator[WindowWithFields]:
    shown = WindowWithFields(theme)
    shown.show()
    assert QTest.qWaitForWindowActive(shown)
    shown.search.setFocus()
    yield shown
    shown.close()
    shown.deleteLater()


def test_what_takes_the_focus_below_an_open_popup_has_it_only_after_it_is_closed(
    fields: WindowWithFields,
) -> None:
    """A workspace that was opened meanwhile gave it to the message box: the letters went there, Return
    would have sent them, and Escape did not close the palette.
    """
    palette = fields.palette_box
    palette.open_palette()
    fields.message.setFocus()
    QTest.keyClicks(fields.focusWidget(), "export")
    assert (palette.line.text(), fields.message.text()) == ("export", "")
    QTest.keyClick(fields.focusWidget(), Qt.Key.Key_Escape)
    assert not palette.isVisible()
    assert fields.message.hasFocus()


def test_a_closed_popup_leaves_the_focus_where_it_is(fields: WindowWithFields) -> None:
    fields.palette_box.open_palette()
    fields.palette_box.close_and_return_focus()
    assert fields.search.hasFocus()
    fields.message.setFocus()
    assert fields.message.hasFocus()


def test_a_dialog_above_the_window_does_not_hide_what_is_typed(fields: WindowWithFields) -> None:
    """With the settings open, the palette opened behind them, and had the keyboard."""
    dialog = QDialog(fields)
    dialog.resize(600, 400)
    typed = QLineEdit("half of an address", dialog)
    ended: list[int] = []
    dialog.finished.connect(ended.append)
    dialog.show()
    assert QTest.qWaitForWindowExposed(dialog)
    dialog.move(fields.pos())
    fields.palette_box.open_palette()
    assert not dialog.isVisible()
    fields.palette_box.close_and_return_focus()
    assert dialog.isVisible()
    assert typed.text() == "half of an address"
    assert not ended
    dialog.close()
    dialog.deleteLater()
