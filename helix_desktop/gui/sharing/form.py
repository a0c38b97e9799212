"""What the dialogs of sharing have in common: rows, buttons, a line that says what happened, and work that may fail."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.words import tr

WIDTH = 560
EXAMPLE = "postgresql://user:password@host/database"


class Form(QDialog):
    """`told`: what happened last."""

    def __init__(self, doing: Doing, title: str, parent: QWidget) -> None:
        super().__init__(parent)
        self._doing = doing
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setMinimumWidth(WIDTH)
        self.address = self._line(tr("Address of the shared store"), EXAMPLE)
        self.told = plain_label()
        self.told.hide()

    def _lay_out(self, widgets: tuple[QWidget, ...], left: tuple[QWidget, ...], right: tuple[QWidget, ...]) -> None:
        """`left` and `right`: the buttons below."""
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 16)
        column.setSpacing(12)
        for widget in (*widgets, self.told):
            column.addWidget(widget)
        column.addStretch(1)
        buttons = QHBoxLayout()
        for one in left:
            buttons.addWidget(one)
        buttons.addStretch(1)
        for one in right:
            buttons.addWidget(one)
        column.addLayout(buttons)

    def _line(self, name: str, example: str = "") -> QLineEdit:
        line = QLineEdit(self)
        line.setPlaceholderText(example)
        line.setAccessibleName(name)
        return line

    def _row(self, *widgets: QWidget) -> QWidget:
        row = QWidget(self)
        line = QHBoxLayout(row)
        line.setContentsMargins(0, 0, 0, 0)
        line.addWidget(widgets[0], 1)
        for widget in widgets[1:]:
            line.addWidget(widget)
        return row

    def _enable(self, *, idle: bool = True) -> None:
        """What can be done now."""

    def _say(self, text: str) -> None:
        self.told.setText(text)
        self.told.setVisible(bool(text))
        self._grow()

    def _grow(self) -> None:
        """So that no sentence is cut off."""
        if (layout := self.layout()) is not None:
            layout.activate()
            self.resize(self.width(), max(self.height(), layout.totalHeightForWidth(self.width())))

    def _do(self, work: Coroutine[Any, Any, Any], name: str, meanwhile: str, then: Callable[[Any], object]) -> None:
        focused = self.focusWidget()  # Qt moves the focus on from a button that is disabled

        def enable() -> None:
            self._enable()
            if focused is not None and focused.isVisible():
                focused.setFocus()

        def failed(error: HelixError) -> None:
            enable()
            self._say(said(str(error)))

        def done(result: Any) -> None:
            enable()
            then(result)

        self._say(meanwhile)
        self._enable(idle=False)
        self._doing.do(work, name=name, then=done, failed=failed, owner=self)


def face(*widgets: QWidget, spacing: int = 12) -> QWidget:
    made = QWidget()
    column = QVBoxLayout(made)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(spacing)
    for widget in widgets:
        column.addWidget(widget)
    return made
