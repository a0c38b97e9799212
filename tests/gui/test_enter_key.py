"""Enter presses the button that has the keyboard."""

from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLineEdit, QPushButton, QVBoxLayout, QWidget

from helix_desktop.gui.enter_key import press_focused_button
from helix_desktop.gui.theme import Theme


class Board(QWidget):
    def __init__(self) -> None:
        super().__init__()
        self.pressed: list[str] = []
        self.button = QPushButton("Go", self)
        self.line = QLineEdit(self)
        self.button.clicked.connect(lambda: self.pressed.append("go"))
        column = QVBoxLayout(self)
        column.addWidget(self.button)
        column.addWidget(self.line)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not press_focused_button(event):
            super().keyPressEvent(event)


@pytest.fixture
def board(theme: Theme) -> Board:
    made = Board()
    made.show()
    assert QTest.qWaitForWindowActive(made)
    return made


def test_enter_presses_the_button_that_has_the_keyboard(board: Board) -> None:
    board.button.setFocus()
    QTest.keyClick(board.button, Qt.Key.Key_Return)
    QTest.keyClick(board.button, Qt.Key.Key_Enter, Qt.KeyboardModifier.KeypadModifier)
    assert board.pressed == ["go", "go"]


def test_enter_of_another_or_of_nobody_presses_nothing(board: Board) -> None:
    board.line.setFocus()
    QTest.keyClick(board.line, Qt.Key.Key_Return)
    board.button.setFocus()
    QTest.keyClick(board.button, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    board.button.setEnabled(False)
    QTest.keyClick(board, Qt.Key.Key_Return)
    assert board.pressed == []
