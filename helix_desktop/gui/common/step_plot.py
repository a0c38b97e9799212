"""The base of all plots over steps: zooming, scrolling, and the step under the pointer.

However many steps there are, a paint examines only a few points for each pixel: level k of the
pyramid holds the lowest and the highest of every 8^k points.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import field

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import (
    QColor,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QWheelEvent,
)
from PySide6.QtWidgets import QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.theme import Theme

LEAST_DRAG = 3  # The pixels that the pointer has to move.
_EIGHT = 8
_LEAST_SPAN = 12.0  # The plot is not zoomed in further than to so many points.
_ZOOM_IN = 0.8
_ZOOM_OUT = 1.25


@dataclass(slots=True)
class PyramidLevel:
    """The lowest and the highest value of each block of one size."""

    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)


class MinMaxPyramid:
    """Minima and maxima of a growing list of numbers, for blocks of 8, 64, 512 and so on."""

    def __init__(self, points: Sequence[float]) -> None:
        self._points = points
        self._levels: list[PyramidLevel] = []
        self.add_new_values()

    def add_new_values(self) -> None:
        """Adds the new values. The last, unfinished block of each level is computed again."""
        lows: Sequence[float] = self._points
        highs: Sequence[float] = self._points
        level_number = 0
        while len(lows) > _EIGHT:
            if level_number == len(self._levels):
                self._levels.append(PyramidLevel())
            level = self._levels[level_number]
            del level.lows[-1:]
            del level.highs[-1:]
            for start in range(len(level.lows) * _EIGHT, len(lows), _EIGHT):
                level.lows.append(min(lows[start : start + _EIGHT]))
                level.highs.append(max(highs[start : start + _EIGHT]))
            lows = level.lows
            highs = level.highs
            level_number += 1

    def sample_lows_and_highs(
        self, first: float, last: float, pixels: int
    ) -> list[tuple[float, float, float]]:
        """Returns place, low and high of about `pixels` pieces between two points."""
        span = max(last - first, 1.0)
        lows: Sequence[float] = self._points
        highs: Sequence[float] = self._points
        block_size = 1
        for level in self._levels:
            if span / block_size <= 2 * pixels:
                break
            lows = level.lows
            highs = level.highs
            block_size *= _EIGHT
        first_block = max(0, int(first / block_size))
        end = min(len(lows), int(last / block_size) + 2)
        pieces: list[tuple[float, float, float]] = []
        for block in range(first_block, end):
            middle = block * block_size + (block_size - 1) / 2
            pieces.append((middle, lows[block], highs[block]))
        return pieces


@dataclass(frozen=True, slots=True)
class PlotScale:
    """Maps the points `first` to `last` to the area's width, and `top` tokens to its height."""

    area: QRectF
    first: float
    last: float
    top: float

    @property
    def pixels_per_point(self) -> float:
        return self.area.width() / max(self.last - self.first, 1e-9)

    def x_of_point(self, point: float) -> float:
        return self.area.left() + (point - self.first) * self.pixels_per_point

    def point_at(self, x: float) -> float:
        share_of_width = (x - self.area.left()) / max(1, self.area.width())
        return self.first + share_of_width * (self.last - self.first)

    def y_of_tokens(self, tokens: float) -> float:
        return self.area.bottom() - 3 - tokens / self.top * (self.area.height() - 6)


class StepPlot(QWidget):
    """Wheel and keys zoom, dragging scrolls. A subclass draws the points and defines
    their number and height.
    """

    def __init__(
        self, theme: Theme, parent: QWidget | None, *, height: int, empty_text: str
    ) -> None:
        """Sets up a chart without points over the steps of a conversation. `empty_text`
        stands in it until there are any.
        """
        super().__init__(parent, mouseTracking=True, focusPolicy=Qt.FocusPolicy.StrongFocus)
        self._theme = theme
        self._height = height
        self._empty_text = empty_text
        self._first = 0.0
        self._last = 1.0
        self._whole = True
        self._hover = -1
        self._dragged_from: float | None = None
        self._moved = False
        self._drawn: QPixmap | None = None
        self._drawn_for: object = None
        theme.changed.connect(self.updateGeometry)
        theme.changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(400, self._theme.zoomed_pixels(self._height))

    @property
    @abstractmethod
    def _point_count(self) -> int:
        """The number of points."""

    @property
    @abstractmethod
    def _top_tokens(self) -> float:
        """The number of tokens at the upper edge."""

    @abstractmethod
    def _draw_without_pointer(self, painter: QPainter, scale: PlotScale) -> None:
        """Draws what does not depend on the pointer. Redrawn only if the span or
        `_plot_cache_key` changes.
        """

    @abstractmethod
    def _plot_cache_key(self) -> object:
        """A value that changes whenever `_draw_without_pointer` would draw something else."""

    @abstractmethod
    def _draw_choice_and_pointer(self, painter: QPainter, scale: PlotScale) -> None:
        """Draws what is chosen and what is under the pointer."""

    def zoom_plot(self, factor: float, around: float | None = None) -> None:
        """Shows `factor` times as many points, and keeps the point `around` where it is."""
        fixed_point = around
        if fixed_point is None:
            fixed_point = (self._first + self._last) / 2
        first = fixed_point - (fixed_point - self._first) * factor
        last = fixed_point + (self._last - fixed_point) * factor
        self._zoom_to_point_range(first, last)

    def show_all_points(self) -> None:
        self._whole = True
        self._set_span_to_all_points()
        self.update()

    def _set_span_to_all_points(self) -> None:
        self._first = 0.0
        self._last = float(max(1, self._point_count - 1))

    def _zoom_to_point_range(self, first: float, last: float) -> None:
        end = float(max(1, self._point_count - 1))
        span = min(max(last - first, _LEAST_SPAN), end)
        self._first = min(max((first + last - span) / 2, 0.0), end - span)
        self._last = self._first + span
        self._whole = span >= end - 0.5
        self.update()

    @property
    @abstractmethod
    def _plot_area(self) -> QRectF:
        """The area of the points; the rest is for axes."""

    @property
    def scale(self) -> PlotScale:
        return PlotScale(self._plot_area, self._first, self._last, self._top_tokens)

    def _nearest_point(self, x: float) -> int:
        nearest = round(self.scale.point_at(x))
        last_point = self._point_count - 1
        return min(max(nearest, 0), last_point)

    # --- Drawing the plot

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draws the chart. What stays the same while the pointer moves is drawn once,
        as a picture.
        """
        painter = QPainter(self)
        if not self._point_count:
            painter.fillRect(self.rect(), self._theme.colour_of_token("panel"))
            painter.setPen(self._theme.colour_of_token("faint"))
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, self._empty_text)
            return
        scale = self.scale
        painter.drawPixmap(0, 0, self._cached_plot_picture(scale))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_choice_and_pointer(painter, scale)
        if self.hasFocus():
            pen = QPen(self._theme.colour_of_token("accent"), 1)
            painter.setPen(pen)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            focus_frame = QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5)
            painter.drawRoundedRect(focus_frame, 4, 4)
        painter.end()

    def _cached_plot_picture(self, scale: PlotScale) -> QPixmap:
        """Returns the picture of the chart without the pointer, drawn again only if
        what it shows or how it looks has changed.
        """
        size = self.size()
        ratio = self.devicePixelRatioF()
        look = (self._theme.is_dark, self._theme.text_zoom, ratio, size.width(), size.height())
        key = (self._first, self._last, self._plot_cache_key(), look)
        if self._drawn is not None and self._drawn_for == key:
            return self._drawn
        picture = QPixmap(size * ratio)
        picture.setDevicePixelRatio(ratio)
        picture.fill(self._theme.colour_of_token("panel"))
        painter = QPainter(picture)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_without_pointer(painter, scale)
        painter.end()
        self._drawn = picture
        self._drawn_for = key
        return picture

    def _draw_labelled_token_line(
        self,
        painter: QPainter,
        tokens: float,
        scale: PlotScale,
        colours: tuple[QColor, QColor],
        words: str,
    ) -> None:
        """Draws a dashed line across the plot, with a label."""
        line_colour, text_colour = colours
        y = round(scale.y_of_tokens(tokens)) + 0.5
        left_end = QPointF(scale.area.left(), y)
        right_end = QPointF(scale.area.right(), y)
        pen = QPen(line_colour, 1, Qt.PenStyle.CustomDashLine)
        pen.setDashPattern([4, 4])
        painter.setPen(pen)
        painter.setOpacity(0.6)
        painter.drawLine(left_end, right_end)
        painter.setOpacity(1.0)

        painter.setFont(self._theme.build_font(11))
        words_start = left_end + QPointF(6, -6)
        words_rect = QRectF(painter.fontMetrics().boundingRect(words)).translated(words_start)
        # The words must be readable over the coloured areas behind them.
        panel_colour = self._theme.colour_of_token("panel")
        painter.fillRect(words_rect.adjusted(-4, -1, 4, 1), panel_colour)
        painter.setPen(text_colour)
        painter.drawText(words_start, words)

    def _draw_pointer(
        self, painter: QPainter, scale: PlotScale, dots: Sequence[tuple[float, QColor]], words: str
    ) -> None:
        """Draws a vertical line at the step under the pointer, dots on the curves, and words."""
        x = scale.x_of_point(self._hover)
        top = QPointF(x, scale.area.top())
        bottom = QPointF(x, scale.area.bottom())
        line_pen = QPen(self._theme.colour_of_token("line"), 1)
        painter.setPen(line_pen)
        painter.drawLine(top, bottom)
        painter.setPen(Qt.PenStyle.NoPen)
        for tokens, colour in dots:
            painter.setBrush(colour)
            centre = QPointF(x, scale.y_of_tokens(tokens))
            painter.drawEllipse(centre, 3, 3)
        self._draw_label(painter, x, words)

    def _draw_label(self, painter: QPainter, x: float, words: str) -> None:
        """Draws one line centred at the bottom, or several lines beside the pointer."""
        text_colour = self._theme.colour_of_token("text")
        painter.setFont(self._theme.build_font(11))
        painter.setPen(text_colour)  # Qt measures text only if a pen is set.
        has_several_lines = "\n" in words
        side = Qt.AlignmentFlag.AlignHCenter
        if has_several_lines:
            side = Qt.AlignmentFlag.AlignLeft
        flags = int(side | Qt.AlignmentFlag.AlignVCenter)
        whole = QRectF(0, 0, self.width(), self.height())
        # Only a complete layout of the text gives its exact size in every script.
        text_rect = painter.boundingRect(whole, flags, words)
        place = text_rect.adjusted(-6, -2, 6, 2)
        width = place.width()
        height = place.height()
        if has_several_lines:
            left = x + 10
            if left + width > self.width():
                left = x - 10 - width
            place.moveTo(left, self._plot_area.top() + 4)
        else:
            place.moveTo(x - width / 2, self.height() - height - 4)
        rightmost_left = self.width() - width
        left_within_plot = min(max(place.left(), 0), rightmost_left)
        place.moveLeft(left_within_plot)
        frame_pen = QPen(self._theme.colour_of_token("line"), 1)
        painter.setPen(frame_pen)
        painter.setBrush(self._theme.colour_of_token("panel"))
        painter.drawRoundedRect(place, 5, 5)
        painter.setPen(text_colour)
        words_rect = place.adjusted(6, 0, -6, 0)
        painter.drawText(words_rect, flags, words)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        x = event.position().x()
        is_dragging = bool(event.buttons() & Qt.MouseButton.LeftButton)
        if self._dragged_from is not None and is_dragging:
            self._drag_plot(self._dragged_from, x)
        self._hover = self._nearest_point(x)
        self.update()

    def _drag_plot(self, from_x: float, to_x: float) -> None:
        # A click that trembles is no drag.
        if abs(from_x - to_x) <= LEAST_DRAG:
            return
        self._moved = True
        points = self.scale.point_at(from_x) - self.scale.point_at(to_x)
        self._zoom_to_point_range(self._first + points, self._last + points)
        self._dragged_from = to_x

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._dragged_from = event.position().x()
        self._moved = False

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._dragged_from = None

    def leaveEvent(self, event: object) -> None:
        self._hover = -1
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        turned = event.angleDelta().y()
        point = self.scale.point_at(event.position().x())
        if turned > 0:
            self.zoom_plot(_ZOOM_IN, point)
        elif turned < 0:
            self.zoom_plot(_ZOOM_OUT, point)
        event.accept()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.show_all_points()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Zooms with plus, minus and 0, and scrolls with the arrow keys, as the mouse
        does.
        """
        key = event.key()
        scrolled_by = (self._last - self._first) / 10
        if key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom_plot(_ZOOM_IN)
        elif key == Qt.Key.Key_Minus:
            self.zoom_plot(_ZOOM_OUT)
        elif key == Qt.Key.Key_0:
            self.show_all_points()
        elif key == Qt.Key.Key_Right:
            self._zoom_to_point_range(self._first + scrolled_by, self._last + scrolled_by)
        elif key == Qt.Key.Key_Left:
            self._zoom_to_point_range(self._first - scrolled_by, self._last - scrolled_by)
        else:
            event.ignore()


def compute_axis_ticks(top: float, at_most: int = 7) -> list[int]:
    """Returns up to `at_most` round numbers below `top`, without zero."""
    step = 1
    while top / step > max(at_most, 1):
        # The steps are 1, 2, 5, 10, 20, 50 and so on.
        if str(step).startswith("2"):
            step = step * 5 // 2
        else:
            step *= 2
    return list(range(step, int(top) + 1, step))
