"""Failures as cards: what happened, why, and buttons that help. Also shows the pause
before a retry.
"""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSizeF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.basic_boxes import BoxAction, HotSpot, LayoutBox, TextBox
from helix_desktop.gui.transcript.chat_actions import ConversationAct
from helix_desktop.gui.transcript.drawing_style import NO_MARKS, DrawingStyle, TextMarks
from helix_desktop.gui.transcript.markdown_blocks import ParagraphBlock, backticks_to_code_spans
from helix_desktop.gui.translation import tr, translate_name


@dataclass(frozen=True, slots=True)
class CardButton:
    label: str
    action: BoxAction


def failure_title_and_actions(cause: str) -> tuple[str, tuple[CardButton, ...]]:
    try_again = CardButton(tr("Try again"), ConversationAct.CONTINUE_TURN)
    go_on = CardButton(tr("Go on anyway"), ConversationAct.CONTINUE_TURN)
    set_key = CardButton(tr("Set the key…"), ConversationAct.OPEN_KEY_SETTINGS)
    choose_model = CardButton(tr("Choose another model…"), ConversationAct.OPEN_MODEL_CHOOSER)
    buttons_by_cause = {
        "key": (set_key, try_again),
        "length": (go_on,),
        "credit": (choose_model, try_again),
        "model": (choose_model, try_again),
        "window": (choose_model, try_again),
    }
    usual_title = tr("Something went wrong")
    title = translate_name("failure", cause, otherwise=usual_title)
    buttons = buttons_by_cause.get(cause, (try_again,))
    return title, buttons


def describe_retry_pause(seconds: float) -> str:
    seconds_left = max(0, round(seconds))
    if seconds_left == 0:
        return tr("Retrying…")
    return tr("Retrying in {seconds} s", seconds=seconds_left)


class FailureCardBox(LayoutBox):
    """A title, a text, and buttons at the right."""

    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        title: str,
        explanation: str,
        buttons: Sequence[CardButton],
        *,
        failed: bool,
    ) -> None:
        """Places the title, what happened, and the buttons: beside the text, or below
        it where the pane is too narrow for that. Each button is a hot spot, a place
        that can be pressed.
        """
        super().__init__(ink, width)
        self._title = title
        self._failed = failed
        self._padding = ink.scaled_pixels(12)
        self._title_height = QFontMetricsF(ink.name).height() * 1.3

        between = ink.scaled_pixels(8)
        button_widths = self._measure_buttons(buttons)
        buttons_width = sum(button_widths) + between * len(button_widths)
        inner_width = width - 2 * self._padding
        # In a narrow pane, buttons beside the title would cover it.
        title_width = QFontMetricsF(ink.name).horizontalAdvance(title)
        room_beside_buttons = inner_width - buttons_width
        needed_room = title_width
        if explanation:
            # A sentence in a column of a few words is hard to read.
            needed_room = max(title_width, inner_width / 2)
        are_buttons_below = bool(buttons) and room_beside_buttons < needed_room

        text_width = inner_width
        if not are_buttons_below:
            text_width -= buttons_width
        self._explanation = self._build_explanation(text_width, explanation)
        self.text = title
        text_height = self._title_height
        if self._explanation is not None:
            self.text = f"{title}. {explanation}"
            text_height += self._explanation.height + ink.scaled_pixels(2)

        button_height = 0.0
        if buttons:
            button_height = float(ink.scaled_pixels(30))
        if are_buttons_below:
            inner_height = text_height + between + button_height
            first_button = QPointF(self._padding, self._padding + text_height + between)
        else:
            inner_height = max(text_height, button_height)
            left_of_buttons = self._padding + text_width + between
            first_button = QPointF(left_of_buttons, self._padding)
        self.height = inner_height + 2 * self._padding

        place = QRectF(first_button, QSizeF(0, button_height))
        for button, button_width in zip(buttons, button_widths, strict=True):
            place.setWidth(button_width)
            self.hot_spots.append(HotSpot(QRectF(place), button.action, button.label))
            place.moveLeft(place.right() + between)

    def _measure_buttons(self, buttons: Sequence[CardButton]) -> list[float]:
        metrics = QFontMetricsF(self.ink.text)
        room_around_label = self.ink.scaled_pixels(28)
        return [metrics.horizontalAdvance(button.label) + room_around_label for button in buttons]

    def _build_explanation(self, width: float, explanation: str) -> TextBox | None:
        if not explanation:
            return None
        paragraph = ParagraphBlock(backticks_to_code_spans(explanation))
        return TextBox(self.ink, width, paragraph)

    def update_card_title(self, title: str) -> bool:
        """Sets the title. Returns whether it differs from the last one."""
        if title == self._title:
            return False
        self._title = title
        return True

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        """Draws the card from back to front: its frame, what is selected or found, the title, the
        explanation below it, and the buttons.
        """
        ink = self.ink
        frame = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        surface = "code"
        title_colour = "text"
        if self._failed:
            surface = "danger_soft"
            title_colour = "danger"
        ink.draw_frame(painter, frame, surface, 8)
        if marks.has_selection or marks.found:
            self._draw_selection_ground(painter)

        title_width = self.width - 2 * self._padding
        title_area = QRectF(self._padding, self._padding, title_width, self._title_height)
        ink.draw_words(painter, title_area, self._title, ink.name, title_colour)
        if self._explanation is not None:
            explanation_top = self._padding + self._title_height + ink.scaled_pixels(2)
            explanation_place = QPointF(self._padding, explanation_top)
            painter.translate(explanation_place)
            self._explanation.draw_box(painter, NO_MARKS, near=False)
            painter.translate(-explanation_place)
        for button_spot in self.hot_spots:
            self._draw_card_button(painter, button_spot, near=near)

    def _draw_selection_ground(self, painter: QPainter) -> None:
        corner = self.ink.scaled_pixels(8)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self.ink.selection_colour)
        painter.drawRoundedRect(QRectF(0, 0, self.width, self.height), corner, corner)

    def _draw_card_button(self, painter: QPainter, button_spot: HotSpot, *, near: bool) -> None:
        ink = self.ink
        surface = "panel"
        if near:
            surface = "window"
        place = button_spot.place
        ink.draw_frame(painter, place, surface, 8, edge="edge")
        centred = Qt.AlignmentFlag.AlignCenter
        ink.draw_words(painter, place, button_spot.name, ink.text, "text", centred)
