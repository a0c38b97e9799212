"""The boxes the inspector is made of: the meter, a line with a dot and a figure, a heading."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QFontMetricsF, QPainter

from helix_desktop.engine.blocks import Kind
from helix_desktop.gui.meter import paint_bar, spoken
from helix_desktop.gui.transcript.bars import paint_ring
from helix_desktop.gui.transcript.boxes import Act, Box, Hot, Words
from helix_desktop.gui.transcript.drawing import Ink, Marks
from helix_desktop.gui.transcript.markdown import Paragraph, Span
from helix_desktop.gui.words import percent

_MIDDLE = Qt.AlignmentFlag.AlignVCenter


class MeterBox(Box):
    """The window by kinds, and the thresholds in words under it."""

    def __init__(
        self, ink: Ink, width: float, parts: Mapping[Kind, int], window: int, words: str, *, gap: float = 0.0
    ) -> None:
        super().__init__(ink, width, gap=gap)
        self._parts = tuple(parts.items())
        self._window = window
        self._words = words
        used = sum(parts.values())
        self._share = percent(used / window) if window else ""
        self.height = float(ink.px(12 + 6 + 17))
        self.hots = []
        self.text = spoken(self._parts, window)

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        ink = self.ink
        paint_bar(painter, QRectF(0, 0, self.width, ink.px(12)), self._parts, self._window, ink.theme)
        painter.setFont(ink.theme.font(11))
        painter.setPen(ink.colour("faint"))
        below = QRectF(0, ink.px(18), self.width, ink.px(17))
        painter.drawText(below, _MIDDLE | Qt.AlignmentFlag.AlignLeft, self._share)
        room = self.width - QFontMetricsF(painter.font()).horizontalAdvance(self._share) - ink.px(8)
        words = QFontMetricsF(painter.font()).elidedText(self._words, Qt.TextElideMode.ElideRight, room)
        painter.drawText(below, _MIDDLE | Qt.AlignmentFlag.AlignRight, words)


class FigureBox(Box):
    """Words at the left, a figure at the right. `dot`: a kind's colour before the words; `ring`: of what is cached."""

    def __init__(  # noqa: PLR0913 - all but the text are keywords with defaults
        self,
        ink: Ink,
        width: float,
        words: str,
        figure: str,
        *,
        dot: QColor | None = None,
        ring: bool = False,
        mono: bool = False,
        accent: bool = False,
        act: Act | None = None,
        more: str = "",
        gap: float = 0.0,
    ) -> None:
        super().__init__(ink, width, gap=gap)
        self._words = words
        self._figure = figure
        self._dot, self._ring, self._mono, self._accent = dot, ring, mono, accent
        self._more = more
        self.height = float(ink.px(27.5))
        self.text = f"{words}  {figure}"
        if act is not None:
            self.hots = [Hot(QRectF(0, 0, width, self.height), act, self.text)]

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        ink = self.ink
        if near and self.hots:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ink.colour("selected"))
            painter.drawRoundedRect(QRectF(-6, 0, self.width + 12, self.height), 6, 6)
        left = 0.0
        if self._dot is not None:
            left = ink.px(16)
            size = ink.px(9 if self._ring else 8)
            place = QRectF(0, (self.height - size) / 2, size, size)
            if self._ring:
                paint_ring(painter, place, self._dot)
            else:
                painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(self._dot)
                painter.drawEllipse(place)
        figure = f"{self._figure} · {self._more}" if near and self._more else self._figure
        painter.setFont(ink.text)
        painter.setPen(ink.colour("accent" if self._accent else "muted"))
        painter.drawText(QRectF(0, 0, self.width, self.height), _MIDDLE | Qt.AlignmentFlag.AlignRight, figure)
        room = self.width - left - QFontMetricsF(ink.text).horizontalAdvance(figure) - ink.px(10)
        painter.setFont(ink.mono if self._mono else ink.text)
        painter.setPen(ink.colour("text"))
        words = QFontMetricsF(painter.font()).elidedText(self._words, Qt.TextElideMode.ElideRight, room)
        painter.drawText(QRectF(left, 0, room + 2, self.height), _MIDDLE, words)


def heading(ink: Ink, width: float, text: str, *, gap: float = 0.0) -> Words:
    return Words(ink, width, Paragraph((Span(text),)), gap=gap, font=ink.name)
