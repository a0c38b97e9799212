"""A small bar above a message with its time and with buttons: copy, edit, regenerate,
other answers, fork, rewind.

It is drawn in the gap above the message and takes no extra room. It is shown while the message has
the pointer or the focus.
"""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import (
    format_date_and_time,
    format_time_of_day,
    is_today,
)
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.transcript.alternative_answers import AnswerChoice
from helix_desktop.gui.transcript.basic_boxes import BoxAction, CopyText, HotSpot, LayoutBox
from helix_desktop.gui.transcript.chat_actions import ActOnMessage, ChatIntent, MessageAct
from helix_desktop.gui.transcript.drawing_style import DrawingStyle, TextMarks
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_item import (
    TranscriptItem,
    TranscriptItemKind,
    item_source_text,
)
from helix_desktop.gui.translation import tr

HEIGHT = 22
SIDE = 26  # The width of a button with an icon, in pixels.
BAR = -1  # This number means the bar, which is not one of the item's boxes.
OVERLAP = 3  # The bar may cover this many pixels of its message.
TOP_IN_SIGHT = 2.0  # The highest place of the bar in the viewport, in pixels.
_ICONS = {
    MessageAct.EDIT: "edit",
    MessageAct.REGENERATE: "again",
    MessageAct.FORK: "fork",
    MessageAct.REWIND: "rewind",
    MessageAct.SHOW_REQUEST: "entry",
}
_WITH_BAR = frozenset({TranscriptItemKind.USER, TranscriptItemKind.REPLY})


@dataclass(frozen=True, slots=True)
class HoverBarButton:
    """`icon` is a picture's name. Without one, `symbol` is drawn and `name` is read to the user."""

    name: str
    act: BoxAction | None
    icon: str = ""
    symbol: str = ""


def has_hover_bar(item: TranscriptItem) -> bool:
    return item.kind in _WITH_BAR and item.recorded is not None


def list_hover_bar_buttons(
    items: TranscriptItems, index: int, intents: Sequence[tuple[str, ChatIntent]]
) -> list[HoverBarButton]:
    """Returns the buttons: other answers, copy, and what in the message's menu
    (`intents`) has an icon.
    """
    buttons = _answer_choice_buttons(items.answer_choice_of(index))
    copy = CopyText(item_source_text(items.all[index]))
    buttons.append(HoverBarButton(tr("Copy message"), copy, "copy"))
    for words, intent in intents:
        if isinstance(intent, ActOnMessage) and intent.act in _ICONS:
            buttons.append(HoverBarButton(words, intent, _ICONS[intent.act]))
    return buttons


def _answer_choice_buttons(choice: AnswerChoice) -> list[HoverBarButton]:
    """Builds the buttons "‹ 2/3 ›" of a message that was answered several times, or
    none. A button at the end of the row has nothing to do and is shown faint.
    """
    if len(choice.answer_ends) < 2:
        return []
    choose_previous: ActOnMessage | None = None
    previous_end = choice.neighbouring_answer_end(-1)
    if previous_end:
        choose_previous = ActOnMessage(MessageAct.CHOOSE, previous_end)
    choose_next: ActOnMessage | None = None
    next_end = choice.neighbouring_answer_end(1)
    if next_end:
        choose_next = ActOnMessage(MessageAct.CHOOSE, next_end)
    return [
        HoverBarButton(tr("Previous answer"), choose_previous, symbol="‹"),
        HoverBarButton("", None, symbol=f"{choice.number}/{len(choice.answer_ends)}"),
        HoverBarButton(tr("Next answer"), choose_next, symbol="›"),
    ]


def format_message_time(moment: float) -> str:
    if is_today(moment):
        return format_time_of_day(moment)
    return format_date_and_time(moment)


@dataclass(frozen=True, slots=True)
class _PlacedButton:
    button: HoverBarButton
    place: QRectF


def _place_buttons_and_add_hot_spots(
    box: LayoutBox, buttons: Sequence[HoverBarButton], left: float, padding: int
) -> list[_PlacedButton]:
    """Places buttons in a row from `left`. `padding`: the room around a symbol, in pixels."""
    placed_buttons: list[_PlacedButton] = []
    x = left
    for button in buttons:
        width = float(box.ink.scaled_pixels(SIDE))
        if button.symbol:
            symbol_width = QFontMetricsF(box.ink.chip).horizontalAdvance(button.symbol)
            width = symbol_width + box.ink.scaled_pixels(padding)
        place = QRectF(x, 0, width, box.height)
        placed_buttons.append(_PlacedButton(button, place))
        if button.act is not None:
            box.hot_spots.append(HotSpot(place, button.act, button.name))
        x += width
    return placed_buttons


class HoverBar(LayoutBox):
    """A bar as wide as its buttons."""

    def __init__(self, ink: DrawingStyle, words: str, buttons: Sequence[HoverBarButton]) -> None:
        super().__init__(ink, 0.0)
        self.text = words
        self.height = ink.scaled_pixels(HEIGHT)
        text_width = QFontMetricsF(ink.chip).horizontalAdvance(words)
        words_width = text_width + ink.scaled_pixels(16)
        words_left = ink.scaled_pixels(8)
        self._words_area = QRectF(words_left, 0, words_width, self.height)
        self._buttons = _place_buttons_and_add_hot_spots(self, buttons, words_width, 10)
        last_button = self._buttons[-1]
        self.width = last_button.place.right() + ink.scaled_pixels(2)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        self.draw_hover_bar(painter, None, "selected")

    def draw_hover_bar(self, painter: QPainter, pointed: HotSpot | None, edge: str) -> None:
        """Draws the bar, with a background and an `edge` for the button under the
        pointer or with the focus.
        """
        ink = self.ink
        frame = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        ink.draw_frame(painter, frame, "panel", 6)
        ink.draw_words(painter, self._words_area, self.text, ink.chip, "muted")
        for placed in self._buttons:
            is_pointed = pointed is not None and pointed.place == placed.place
            if is_pointed:
                ground = placed.place.adjusted(1.5, 2.5, -1.5, -2.5)
                ink.draw_frame(painter, ground, "selected", 4, edge=edge)
            self._draw_hover_bar_button(painter, placed.button, placed.place, pointed=is_pointed)

    def _draw_hover_bar_button(
        self, painter: QPainter, button: HoverBarButton, place: QRectF, *, pointed: bool
    ) -> None:
        """Draws a button as its symbol, if it has one, or as its icon."""
        ink = self.ink
        if button.symbol:
            colour = "text"
            if button.act is None and button.name:  # There is no answer to go to.
                colour = "faint"
            centred = Qt.AlignmentFlag.AlignCenter
            ink.draw_words(painter, place, button.symbol, ink.chip, colour, centred)
            return
        size = ink.scaled_pixels(14)
        middle = place.center()
        icon_area = QRect(round(middle.x() - size / 2), round(middle.y() - size / 2), size, size)
        icon_colour = "muted"
        if pointed:
            icon_colour = "text"
        build_icon(button.icon, ink.token_colour(icon_colour)).paint(painter, icon_area)


def position_of_hover_bar(bar: HoverBar, message: QRectF, viewport_height: float) -> QPointF:
    """Returns where the bar is, in the viewport: above its message, at the right.

    If the message begins above the viewport, the bar is below the message, where it covers none of
    the last words. If the message also ends below the viewport, the bar is at the top of it.
    """
    left = message.right() - bar.width
    overlap = bar.ink.scaled_pixels(OVERLAP)
    top_above = message.top() - bar.height + overlap
    if top_above >= -overlap:
        return QPointF(left, max(top_above, TOP_IN_SIGHT))
    top_below = message.bottom() - overlap
    if top_below + bar.height <= viewport_height:
        return QPointF(left, top_below)
    return QPointF(left, TOP_IN_SIGHT)


class AnswerNameAndChoiceBox(LayoutBox):
    def __init__(self, ink: DrawingStyle, width: float, name: str, choice: AnswerChoice) -> None:
        super().__init__(ink, width)
        self.text = name
        metrics = QFontMetricsF(ink.name)
        self.height = metrics.height() * 1.25
        buttons_left = metrics.horizontalAdvance(name) + ink.scaled_pixels(10)
        buttons = _answer_choice_buttons(choice)
        self._buttons = _place_buttons_and_add_hot_spots(self, buttons, buttons_left, 8)

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        """Draws the name above an answer, and the buttons that lead to the other answers."""
        ink = self.ink
        painter.setFont(ink.name)
        if marks.has_selection:
            name_width = QFontMetricsF(ink.name).horizontalAdvance(self.text)
            painter.fillRect(QRectF(0, 0, name_width, self.height), ink.selection_colour)
        painter.setPen(ink.token_colour("text"))
        whole_box = QRectF(0, 0, self.width, self.height)
        painter.drawText(whole_box, Qt.AlignmentFlag.AlignVCenter, self.text)

        painter.setFont(ink.chip)
        for placed in self._buttons:
            button = placed.button
            if button.act is not None:
                colour = "accent"
            elif button.name:  # There is no answer to go to.
                colour = "faint"
            else:  # The number of the answer.
                colour = "muted"
            painter.setPen(ink.token_colour(colour))
            painter.drawText(placed.place, Qt.AlignmentFlag.AlignCenter, button.symbol)
