"""A label that is shortened with … when it does not fit; its tooltip holds the whole text."""

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget


class ElidedLabel(QLabel):
    """`set_elided_text` sets the text. Below `least` pixels, nothing is shown."""

    def __init__(
        self, parent: QWidget, mode: Qt.TextElideMode = Qt.TextElideMode.ElideRight, least: int = 0
    ) -> None:
        super().__init__(parent, textFormat=Qt.TextFormat.PlainText)
        self._words = ""
        self._mode = mode
        self._least = least
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Preferred)

    def set_elided_text(self, words: str) -> None:
        self._words = words
        self.setAccessibleName(words)
        self.updateGeometry()
        self._elide_to_width()

    def sizeHint(self) -> QSize:
        return QSize(
            self.fontMetrics().horizontalAdvance(self._words) + 2, super().sizeHint().height()
        )

    def minimumSizeHint(self) -> QSize:
        return QSize(0, super().minimumSizeHint().height())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide_to_width()

    def _elide_to_width(self) -> None:
        if self.fontMetrics().horizontalAdvance(self._words) <= self.width():
            self.setText(self._words)
            self.setToolTip("")
            return
        shown = ""
        if self.width() >= self._least:
            shown = self.fontMetrics().elidedText(self._words, self._mode, self.width())
        self.setText(shown)
        from html import escape  # Its 2,000 entities would delay the start.

        self.setToolTip(f"<span>{escape(self._words)}</span>")
