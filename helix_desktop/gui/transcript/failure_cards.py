"""Failures as cards: what happened, why, and buttons that help. Also shows the pause
before a retry.
"""

from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFontMetricsF, QPainter

from helix_desktop.gui.transcript.basic_boxes import BoxAction, HotSpot, LayoutBox, TextBox
from helix_desktop.gui.transcript.chat_actions import ConversationAct
from helix_desktop.gui.transcript.drawing_style import NO_MARKS, DrawingStyle, TextMarks
from helix_desktop.gui.transcript.markdown_blocks import ParagraphBlock, backticks_to_code_spans
from helix_desktop.gui.translation import tr, translate_name

Way = tuple[str, BoxAction]


def failure_title_and_actions(cause: str) -> tuple[str, tuple[Way, ...]]:
    again: Way = (tr("Try again"), ConversationAct.CONTINUE_TURN)
    other: Way = (tr("Choose another model…"), ConversationAct.OPEN_MODEL_CHOOSER)
    key: Way = (tr("Set the key…"), ConversationAct.OPEN_KEY_SETTINGS)
    go_on: Way = (tr("Go on anyway"), ConversationAct.CONTINUE_TURN)
    ways = {
        "key": (key, again),
        "length": (go_on,),
        "credit": (other, again),
        "model": (other, again),
        "window": (other, again),
    }
    title = translate_name("failure", cause, otherwise=tr("Something went wrong"))
    return title, ways.get(cause, (again,))


def describe_retry_pause(seconds: float) -> str:
    left = max(0, round(seconds))
    if left == 0:
        return tr("Retrying…")
    return tr("Retrying in {seconds} s", seconds=left)


class FailureCardBox(LayoutBox):
    """A title, a text, and buttons at the right."""

    def __init__(
        self,
        ink: DrawingStyle,
        width: float,
        title: str,
        words: str,
        ways: Sequence[Way],
        *,
        failed: bool,
    ) -> None:
        super().__init__(ink, width)
        self._title = title
        self._failed = failed
        self._pad = ink.scaled_pixels(12)
        metrics = QFontMetricsF(ink.text)
        gap = ink.scaled_pixels(8)
        button_height = ink.scaled_pixels(30)
        widths = [metrics.horizontalAdvance(name) + ink.scaled_pixels(28) for name, _ in ways]
        taken = sum(widths) + gap * len(widths)
        title_width = QFontMetricsF(ink.name).horizontalAdvance(title)
        # In a narrow pane, buttons beside the title would cover it.
        stands_below = bool(ways) and width - taken - 2 * self._pad < title_width
        room = width - 2 * self._pad
        if not stands_below:
            room -= taken
        self._line = QFontMetricsF(ink.name).height() * 1.3
        self._body: TextBox | None = None
        self.text = title
        inner_height = self._line
        if words:
            self._body = TextBox(ink, room, ParagraphBlock(backticks_to_code_spans(words)))
            self.text = f"{title}. {words}"
            inner_height += self._body.height + ink.scaled_pixels(2)
        if stands_below:
            top = self._pad + inner_height + gap
            left = float(self._pad)
            self.height = top + button_height + self._pad
        else:
            top = float(self._pad)
            left = width - self._pad - taken + gap
            if ways:
                inner_height = max(inner_height, button_height)
            self.height = 2 * self._pad + inner_height
        for button_width, (name, act) in zip(widths, ways, strict=True):
            self.hot_spots.append(
                HotSpot(QRectF(left, top, button_width, button_height), act, name)
            )
            left += button_width + gap

    def update_card_title(self, title: str) -> bool:
        """Sets the title. Returns whether it differs from the last one."""
        if title == self._title:
            return False
        self._title = title
        return True

    def draw_box(self, painter: QPainter, marks: TextMarks, *, near: bool) -> None:
        ink = self.ink
        frame = QRectF(0.5, 0.5, self.width - 1, self.height - 1)
        surface = "code"
        title_colour = "text"
        if self._failed:
            surface = "danger_soft"
            title_colour = "danger"
        ink.draw_frame(painter, frame, surface, 8)
        if marks.selected[1] > marks.selected[0] or marks.found:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(ink.selection_colour)
            painter.drawRoundedRect(
                QRectF(0, 0, self.width, self.height), ink.scaled_pixels(8), ink.scaled_pixels(8)
            )
        title_area = QRectF(self._pad, self._pad, self.width - 2 * self._pad, self._line)
        ink.draw_words(painter, title_area, self._title, ink.name, title_colour)
        if self._body is not None:
            below = QPointF(self._pad, self._pad + self._line + ink.scaled_pixels(2))
            painter.translate(below)
            self._body.draw_box(painter, NO_MARKS, near=False)
            painter.translate(-below)
        for hot in self.hot_spots:
            self._draw_card_button(painter, hot, near=near)

    def _draw_card_button(self, painter: QPainter, hot: HotSpot, *, near: bool) -> None:
        ink = self.ink
        surface = "panel"
        if near:
            surface = "window"
        ink.draw_frame(painter, hot.place, surface, 8, edge="edge")
        ink.draw_words(painter, hot.place, hot.name, ink.text, "text", Qt.AlignmentFlag.AlignCenter)
