"""Failures as cards: what happened, why, and one button for the way on. Also the pause before a model is asked again."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen

from helix_desktop.gui.transcript.boxes import Act, Box, Hot, Words
from helix_desktop.gui.transcript.drawing import NO_MARKS, Ink, Marks
from helix_desktop.gui.transcript.intents import ChooseModel, GoOn, SetKey
from helix_desktop.gui.transcript.markdown import Paragraph, coded
from helix_desktop.gui.words import tr

Way = tuple[str, Act]


def card_of(cause: str) -> tuple[str, Way]:
    """The title of a failure, and what helps. `cause`: see TurnEnded."""
    again: Way = (tr("Try again"), GoOn())
    other: Way = (tr("Choose another model…"), ChooseModel())
    cards: dict[str, tuple[str, Way]] = {
        "key": (tr("The API key doesn't work"), (tr("Set the key…"), SetKey())),
        "model": (tr("The model isn't available"), other),
        "window": (tr("The request is too long for this model"), other),
        "busy": (tr("The provider is busy"), again),
        "connection": (tr("The connection to the model failed"), again),
        "store": (tr("Couldn't save to disk"), again),
    }
    return cards.get(cause, (tr("Something went wrong"), again))


def retrying(seconds: float) -> str:
    """How long the pause still is."""
    left = max(0, round(seconds))
    return tr("Trying again in {seconds} s", seconds=left) if left else tr("Trying again…")


class CardBox(Box):
    """A title, a text and a button at the right."""

    def __init__(self, ink: Ink, width: float, title: str, words: str, button: Way | None, *, failed: bool) -> None:
        super().__init__(ink, width)
        self._title, self._failed = title, failed
        self._pad = float(ink.px(12))
        self._button = QRectF()
        self._words_of_button = button[0] if button else ""
        if button:
            wide = QFontMetricsF(ink.text).horizontalAdvance(button[0]) + ink.px(28)
            self._button = QRectF(width - self._pad - wide, self._pad, wide, ink.px(30))
        room = width - 2 * self._pad - (self._button.width() + ink.px(16) if button else 0)
        self._line = QFontMetricsF(ink.name).height() * 1.3
        self._body = Words(ink, room, Paragraph(coded(words))) if words else None
        self.text = f"{title}. {words}" if words else title
        inner = self._line + (self._body.height + ink.px(2) if self._body else 0)
        self.height = 2 * self._pad + max(inner, self._button.height())
        if button:
            self.hots = [Hot(self._button, button[1], button[0])]

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
        if not self._button.isEmpty():
            self._paint_button(painter, near=near)

    def _paint_button(self, painter: QPainter, *, near: bool) -> None:
        ink = self.ink
        painter.setPen(QPen(ink.colour("edge"), 1))
        painter.setBrush(ink.colour("window" if near else "panel"))
        painter.drawRoundedRect(self._button, ink.px(8), ink.px(8))
        painter.setFont(ink.text)
        painter.setPen(ink.colour("text"))
        painter.drawText(self._button, Qt.AlignmentFlag.AlignCenter, self._words_of_button)
