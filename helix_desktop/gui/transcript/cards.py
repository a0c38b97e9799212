"""Failures as cards: what happened, why, and buttons for the way on. Also the pause before a model is asked again."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen

from helix_desktop.gui.transcript.boxes import Act, Box, Hot, Words
from helix_desktop.gui.transcript.drawing import NO_MARKS, Ink, Marks
from helix_desktop.gui.transcript.intents import ChooseModel, GoOn, SetKey
from helix_desktop.gui.transcript.markdown import Paragraph, coded
from helix_desktop.gui.words import tr

Way = tuple[str, Act]


def card_of(cause: str) -> tuple[str, tuple[Way, ...]]:
    """The title of a failure, and what helps, the last of it trying again. `cause`: see TurnEnded."""
    again: Way = (tr("Try again"), GoOn())
    other: Way = (tr("Choose another model…"), ChooseModel())
    cards: dict[str, tuple[str, tuple[Way, ...]]] = {
        "key": (tr("The API key doesn't work"), ((tr("Set the key…"), SetKey()), again)),
        "model": (tr("The model isn't available"), (other, again)),
        "window": (tr("The request is too long for this model"), (other, again)),
        "busy": (tr("The provider is busy"), (again,)),
        "connection": (tr("The connection to the model failed"), (again,)),
        "store": (tr("Couldn't save to disk"), (again,)),
    }
    return cards.get(cause, (tr("Something went wrong"), (again,)))


def retrying(seconds: float) -> str:
    """How long the pause still is."""
    left = max(0, round(seconds))
    return tr("Trying again in {seconds} s", seconds=left) if left else tr("Trying again…")


class CardBox(Box):
    """A title, a text and buttons at the right."""

    def __init__(self, ink: Ink, width: float, title: str, words: str, ways: Sequence[Way], *, failed: bool) -> None:
        super().__init__(ink, width)
        self._title, self._failed = title, failed
        self._pad = float(ink.px(12))
        right = width - self._pad
        for name, act in reversed(ways):
            wide = QFontMetricsF(ink.text).horizontalAdvance(name) + ink.px(28)
            self.hots.insert(0, Hot(QRectF(right - wide, self._pad, wide, ink.px(30)), act, name))
            right -= wide + ink.px(8)
        room = right - self._pad - (ink.px(8) if ways else 0)
        self._line = QFontMetricsF(ink.name).height() * 1.3
        self._body = Words(ink, room, Paragraph(coded(words))) if words else None
        self.text = f"{title}. {words}" if words else title
        inner = self._line + (self._body.height + ink.px(2) if self._body else 0)
        self.height = 2 * self._pad + max(inner, ink.px(30) if ways else 0)

    def say(self, title: str) -> bool:
        """Another title in its place; whether it is another."""
        changed, self._title = title != self._title, title
        return changed

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        ink = self.ink
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(ink.colour("line"), 1))
        painter.setBrush(ink.colour("danger_soft" if self._failed else "code"))
        painter.drawRoundedRect(QRectF(0.5, 0.5, self.width - 1, self.height - 1), ink.px(8), ink.px(8))
        if marks.selected[1] > marks.selected[0] or marks.found:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ink.selection)
            painter.drawRoundedRect(QRectF(0, 0, self.width, self.height), ink.px(8), ink.px(8))
        painter.setFont(ink.name)
        painter.setPen(ink.colour("danger" if self._failed else "text"))
        title = QRectF(self._pad, self._pad, self.width - 2 * self._pad, self._line)
        painter.drawText(title, Qt.AlignmentFlag.AlignVCenter, self._title)
        if self._body is not None:
            below = QPointF(self._pad, self._pad + self._line + ink.px(2))
            painter.translate(below)
            self._body.paint(painter, NO_MARKS, near=False)
            painter.translate(-below)
        for hot in self.hots:
            self._paint_button(painter, hot, near=near)

    def _paint_button(self, painter: QPainter, hot: Hot, *, near: bool) -> None:
        ink = self.ink
        painter.setPen(QPen(ink.colour("edge"), 1))
        painter.setBrush(ink.colour("window" if near else "panel"))
        painter.drawRoundedRect(hot.place, ink.px(8), ink.px(8))
        painter.setFont(ink.text)
        painter.setPen(ink.colour("text"))
        painter.drawText(hot.place, Qt.AlignmentFlag.AlignCenter, hot.name)
