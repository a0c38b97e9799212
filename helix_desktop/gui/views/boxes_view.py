"""A page of boxes that scrolls: a document with hot spots and text that can be
selected, usable by keyboard too.
"""

import time
from collections.abc import Callable, Iterable, Iterator

from PySide6.QtCore import QPoint, QPointF, QRectF, Qt, QTimer
from PySide6.QtGui import QGuiApplication, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.text_selection import TextPosition
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import HotSpot, LayoutBox
from helix_desktop.gui.transcript.box_stack import BoxStack
from helix_desktop.gui.transcript.drawing_style import NO_MARKS, DrawingStyle, TextMarks
from helix_desktop.gui.transcript.selectable_text_area import STEP, BoxSurface, HotSpotPlace

# Builds the boxes in a style and for a width in pixels.
BoxBuilder = Callable[[DrawingStyle, float], Iterable[LayoutBox]]
SLICE_SECONDS = 0.006  # So long is laid out before the window takes its turn.
LEAST_WIDTH = 60.0


class BoxesView(BoxSurface):
    """A page of boxes, which are one item with the number 0. `surface` names the
    background colour.
    """

    def __init__(
        self,
        theme: Theme,
        parent: QWidget | None = None,
        *,
        surface: str = "panel",
        pad: tuple[int, int] = (16, 12),  # At the sides, and above and below.
    ) -> None:
        """Sets up an empty view. What it shows is a row of boxes, built again for each
        new width.
        """
        super().__init__(theme, parent)
        self._surface = surface
        self._side_padding, self._top_padding = pad
        self._ink = DrawingStyle(theme)
        self._build_boxes: BoxBuilder = lambda _ink, _width: ()
        self._stack = BoxStack()
        self._boxes_to_lay_out: Iterator[LayoutBox] = iter(())
        self._laid_width = 0.0
        # The view scrolls back to this position when the layout reaches it.
        self._wanted_position = 0
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._continue_box_layout)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.verticalScrollBar().setSingleStep(STEP)
        self.verticalScrollBar().actionTriggered.connect(self.update_following_for_scroll)
        theme.changed.connect(self._restyle_boxes)

    def show_boxes(self, build: BoxBuilder, *, keep_place: bool = False) -> None:
        """Shows boxes. `build` is called again when the width or the theme changes."""
        self._wanted_position = 0
        if keep_place:
            self._wanted_position = self.verticalScrollBar().value()
        self._build_boxes = build
        self.selection.clear_selection()
        self._spot = None
        self._start_box_layout()
        self.verticalScrollBar().setValue(self._wanted_position)

    def all_text(self) -> str:
        return self._stack.text_between_offsets(0, self._stack.text_length)

    def selected_text(self) -> str:
        first, last = self.selection.selected_offsets_of(0, self._stack.text_length)
        return self._stack.text_between_offsets(first, last)

    def copy_selected_text(self) -> None:
        QGuiApplication.clipboard().setText(self.selected_text() or self.all_text())

    def select_all_text(self) -> None:
        self.selection.set_both_ends(TextPosition(0, 0), TextPosition(0, self._stack.text_length))
        self.viewport().update()

    def _width_of_boxes(self) -> float:
        padding = 2 * self._ink.scaled_pixels(self._side_padding)
        return float(self.viewport().width() - padding)

    def _start_box_layout(self) -> None:
        self._laid_width = self._width_of_boxes()
        left = self._ink.scaled_pixels(self._side_padding)
        top = self._ink.scaled_pixels(self._top_padding)
        self._stack = BoxStack((left, top))
        width = max(self._laid_width, LEAST_WIDTH)
        boxes = self._build_boxes(self._ink, width)
        self._boxes_to_lay_out = iter(boxes)
        self._near = None
        self._continue_box_layout()

    def _continue_box_layout(self) -> None:
        """Lays out boxes for some milliseconds, and then colours code."""
        if self._width_of_boxes() != self._laid_width:
            self._start_box_layout()
            return
        deadline = time.perf_counter() + SLICE_SECONDS
        is_complete = self._lay_out_boxes_until(deadline)
        if is_complete:
            self._stack.colour_code_boxes_and_report_change(deadline)
        if is_complete and not self._stack.has_uncoloured_code:
            self._slices.stop()
        else:
            self._slices.start()

        bar = self.verticalScrollBar()
        hidden_height = round(self._stack.bottom_edge) - self.viewport().height()
        if not is_complete:
            # If the scroll bar disappeared for a moment, everything would be laid out twice.
            hidden_height = max(hidden_height, bar.maximum())
        bar.setRange(0, max(0, hidden_height))
        bar.setPageStep(self.viewport().height())
        if bar.value() < self._wanted_position:
            bar.setValue(self._wanted_position)
        self.viewport().update()

    def _lay_out_boxes_until(self, deadline: float) -> bool:
        """Returns whether all boxes are laid out."""
        for box in self._boxes_to_lay_out:
            self._stack.add_box(box)
            if time.perf_counter() > deadline:
                return False
        return True

    def _restyle_boxes(self) -> None:
        self._ink = DrawingStyle(self.theme)
        self._start_box_layout()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._width_of_boxes() != self._laid_width:
            # We wait, because the width of a page that is being shown changes several
            # times.
            self._slices.start()
        else:
            hidden_height = round(self._stack.bottom_edge) - self.viewport().height()
            self.verticalScrollBar().setRange(0, max(0, hidden_height))

    # --- Drawing the boxes

    def lay_out_all_and_return_height(self) -> int:
        if self._width_of_boxes() != self._laid_width:
            self._start_box_layout()
        for box in self._boxes_to_lay_out:
            self._stack.add_box(box)
        return round(self._stack.bottom_edge)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the boxes in sight. After a change of width they are laid out first."""
        if self._width_of_boxes() != self._laid_width:
            self._start_box_layout()
        painter = QPainter(self.viewport())
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)  # Boxes place their own text.
        painter.fillRect(event.rect(), self._ink.token_colour(self._surface))

        y = self.verticalScrollBar().value()
        painter.translate(0, -y)
        first, end = self.selection.selected_offsets_of(0, self._stack.text_length)
        marks = NO_MARKS
        if end > first:
            marks = TextMarks((first, end))
        self._stack.draw_boxes(painter, y, y + self.viewport().height(), marks, self._near)
        self.draw_keyboard_focus(painter, 0, self._stack)
        painter.end()

    def _to_content_position(self, point: QPoint) -> QPointF:
        return QPointF(point.x(), point.y() + self.verticalScrollBar().value())

    def text_position_at(self, point: QPoint) -> TextPosition:
        return TextPosition(0, self._stack.text_offset_at(self._to_content_position(point)))

    def word_or_paragraph_at(self, position: TextPosition, *, paragraph: bool) -> tuple[int, int]:
        return self._stack.word_or_paragraph_at(position.offset, paragraph=paragraph)

    def hot_spot_at_point(self, point: QPoint) -> HotSpot | None:
        return self._stack.hot_spot_at(self._to_content_position(point))

    def nearest_box_at_point(self, point: QPoint) -> LayoutBox | None:
        number, _ = self._stack.nearest_box_and_inner_place(self._to_content_position(point))
        if number < 0:
            return None
        return self._stack.boxes[number]

    def visible_hot_spots(self) -> list[HotSpotPlace]:
        return [(0, spot) for spot in self._stack.list_hot_spots()]

    def hot_spot_in_viewport(self, spot: HotSpotPlace) -> tuple[HotSpot, QRectF] | None:
        _item, number_in_page = spot
        if number_in_page not in self._stack.list_hot_spots():
            return None
        hot_spot, rect = self._stack.hot_spot_and_rect(number_in_page)
        return hot_spot, rect.translated(0, -self.verticalScrollBar().value())

    def update_following_for_scroll(self, _wanted: int) -> None:
        self._wanted_position = 0
