"""Shortens what does not fit with …: a label, whose tooltip has the whole text, or some names."""

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

SHOWN_NAMES = 12  # The most names that a list of names shows.


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


def shorten_name_list(names: Sequence[str]) -> str:
    """Returns the first names, with "…" behind them if there are more."""
    listed_names = ", ".join(names[:SHOWN_NAMES])
    if len(names) > SHOWN_NAMES:
        listed_names += "…"
    return listed_names
