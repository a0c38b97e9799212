"""What can be done with a message, on a small bar above it: the time, copy, edit, regenerate, the other answers, fork.

It stands in the gap above the message and takes no room. The pointer over the message shows it, and so does the keyboard on it.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPen

from helix_desktop.gui.icons import icon
from helix_desktop.gui.shared.figures import clock, day, today
from helix_desktop.gui.transcript.answers import Choice
from helix_desktop.gui.transcript.boxes import Act, Box, CopyText, Hot
from helix_desktop.gui.transcript.drawing import Ink, Marks
from helix_desktop.gui.transcript.intents import ChooseAnswer, Edit, Fork, Regenerate, ShowRequest
from helix_desktop.gui.transcript.item import Item, ItemKind, text_of
from helix_desktop.gui.transcript.projection import Items
from helix_desktop.gui.words import tr
from helix_desktop.values import dataclass

HEIGHT, SIDE = 22, 26
BAR = -1  # the number of the bar among the boxes of an item: it is none of them
OVERLAP = 3  # pixels of the message that it may cover
_WITH_BAR = frozenset({ItemKind.USER, ItemKind.REPLY})


@dataclass(frozen=True, slots=True)
class Button:
    """`icon`: the name of a picture; without one `name` is read to the user, and `sign` is drawn."""

    name: str
    act: Act | None
    icon: str = ""
    sign: str = ""


def has_bar(item: Item) -> bool:
    return item.kind in _WITH_BAR and item.recorded is not None


def buttons(items: Items, index: int) -> list[Button]:
    """Of a message of the user's, or of an answer."""
    item = items.all[index]
    found = [*_choosing(items.answers(index)), Button(tr("Copy message"), CopyText(text_of(item)), "copy")]
    if item.kind is ItemKind.USER:
        found.append(Button(tr("Edit and resend…"), Edit(item.seq), "edit"))
    else:
        found.append(Button(tr("Regenerate"), Regenerate(item.seq), "again"))
    found.append(Button(tr("Fork from here"), Fork(item.seq), "fork"))
    if item.kind is ItemKind.REPLY:
        found.append(Button(tr("What the model saw"), ShowRequest(item.seq), "entry"))
    return found


def _choosing(choice: Choice) -> list[Button]:
    if len(choice.ends) < 2:
        return []
    before, after = choice.beside(-1), choice.beside(1)
    return [
        Button(tr("Previous answer"), ChooseAnswer(before) if before else None, sign="‹"),
        Button("", None, sign=f"{choice.number}/{len(choice.ends)}"),
        Button(tr("Next answer"), ChooseAnswer(after) if after else None, sign="›"),
    ]


def time_of(then: float) -> str:
    """The time of day; before today with the day."""
    return clock(then) if today(then) else day(then)


class HoverBar(Box):
    """`width` is its own: as much as it needs."""

    def __init__(self, ink: Ink, words: str, shown: Sequence[Button]) -> None:
        super().__init__(ink, 0.0)
        self.text = words
        self.height = float(ink.px(HEIGHT))
        self._signs: list[tuple[Button, QRectF]] = []
        x = QFontMetricsF(ink.chip).horizontalAdvance(words) + ink.px(16)
        self._words = QRectF(ink.px(8), 0, x, self.height)
        for button in shown:
            wide = QFontMetricsF(ink.chip).horizontalAdvance(button.sign) + ink.px(10) if button.sign else ink.px(SIDE)
            place = QRectF(x, 0, wide, self.height)
            self._signs.append((button, place))
            if button.act is not None:
                self.hots.append(Hot(place, button.act, button.name))
            x += wide
        self.width = x + ink.px(2)

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        self.draw(painter, None)

    def draw(self, painter: QPainter, pointed: Hot | None) -> None:
        """With the button that is pointed at or has the keyboard on a ground of its own."""
        ink = self.ink
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QPen(ink.colour("line"), 1))
        painter.setBrush(ink.colour("panel"))
        painter.drawRoundedRect(QRectF(0.5, 0.5, self.width - 1, self.height - 1), ink.px(6), ink.px(6))
        painter.setFont(ink.chip)
        painter.setPen(ink.colour("muted"))
        painter.drawText(self._words, Qt.AlignmentFlag.AlignVCenter, self.text)
        for button, place in self._signs:
            self._button(painter, button, place, pointed=pointed is not None and pointed.place == place)

    def _button(self, painter: QPainter, button: Button, place: QRectF, *, pointed: bool) -> None:
        ink = self.ink
        if pointed:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ink.colour("selected"))
            painter.drawRoundedRect(place.adjusted(1, 2, -1, -2), ink.px(4), ink.px(4))
        if button.sign:
            painter.setFont(ink.chip)
            painter.setPen(ink.colour("faint" if button.act is None and button.name else "text"))
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, button.sign)
            return
        size = ink.px(14)
        middle = place.center()
        where = QRect(round(middle.x() - size / 2), round(middle.y() - size / 2), size, size)
        icon(button.icon, ink.colour("text" if pointed else "muted")).paint(painter, where)


def place_of(bar: HoverBar, message: QRectF) -> QPointF:
    """Where the bar of a message stands in the viewport: above it, at the right; at the top where that is out of sight."""
    top = message.top() - bar.height + bar.ink.px(OVERLAP)
    lowest = message.bottom() - bar.height
    return QPointF(message.right() - bar.width, min(max(top, 2.0), max(lowest, top)))


class NameBox(Box):
    """Who stands over an answer, and which of several answers it is."""

    def __init__(self, ink: Ink, width: float, name: str, choice: Choice) -> None:
        super().__init__(ink, width)
        self.text = name
        self._line = QFontMetricsF(ink.name).height() * 1.25
        self.height = float(self._line)
        self._signs: list[tuple[Button, QRectF]] = []
        x = QFontMetricsF(ink.name).horizontalAdvance(name) + ink.px(10)
        for button in _choosing(choice):
            wide = QFontMetricsF(ink.chip).horizontalAdvance(button.sign) + ink.px(8)
            place = QRectF(x, 0, wide, self.height)
            self._signs.append((button, place))
            if button.act is not None:
                self.hots.append(Hot(place, button.act, button.name))
            x += wide

    def paint(self, painter: QPainter, marks: Marks, *, near: bool) -> None:
        ink = self.ink
        painter.setFont(ink.name)
        if marks.selected[1] > marks.selected[0]:
            painter.fillRect(
                QRectF(0, 0, QFontMetricsF(ink.name).horizontalAdvance(self.text), self.height), ink.selection
            )
        painter.setPen(ink.colour("text"))
        painter.drawText(QRectF(0, 0, self.width, self.height), Qt.AlignmentFlag.AlignVCenter, self.text)
        painter.setFont(ink.chip)
        for button, place in self._signs:
            colour = "accent" if button.act is not None else "faint" if button.name else "muted"
            painter.setPen(ink.colour(colour))
            painter.drawText(place, Qt.AlignmentFlag.AlignCenter, button.sign)
