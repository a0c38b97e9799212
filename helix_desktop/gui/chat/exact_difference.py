"""A change that is to be agreed to, in the view of the page of changes: every line of it exactly, and known whether its end has been shown."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from helix_desktop.engine import exact
from helix_desktop.gui.shared.exact_text import facts
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.views.difference import DifferenceView

LEAST, LINES, END = 2, 18, 6  # lines in sight in any window, and where there is room; pixels below the last
LARGEST = 1 << 20  # characters; a larger change is shown as text, which is taken in piece by piece


class ExactDifference(DifferenceView):
    """`changed`: its end has been shown."""

    changed = Signal()

    def __init__(self, theme: Theme, text: str, language: str, parent: QWidget) -> None:
        super().__init__(theme, parent)
        self._text, self.tail = text, END
        self.end_seen = False
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.fits = len(text) <= LARGEST and self.show_patch(text, language=language)
        self._marks = sum(exact.marks(line.text) for line in self.lines)
        self.setAccessibleDescription(exact.shown(text) if self.fits else "")

    def facts(self) -> str:
        """How long it is, and what the reader should know of it."""
        return facts(self._text, self._marks, end_seen=self.end_seen)

    def page_on(self) -> None:
        """Show what comes next."""
        bar = self.verticalScrollBar()
        bar.setValue(bar.value() + bar.pageStep())

    def sizeHint(self) -> QSize:
        return QSize(200, min(self.high, self.high_of(LINES)))

    def minimumSizeHint(self) -> QSize:
        return QSize(100, self.high_of(LEAST))

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        bar = self.verticalScrollBar()
        if not self.end_seen and bar.value() == bar.maximum():
            self.end_seen = True
            self.changed.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy) and not self.chosen_text():
            QGuiApplication.clipboard().setText(self._text)
        else:
            super().keyPressEvent(event)
