"""Tokens over the steps, with the thresholds dashed and every fold a mark. Drawn from a pyramid of lows and highs.

However many steps there are, a paint looks at some points for each pixel and no more: level k of the pyramid holds the
lowest and the highest of every 8^k points.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from PySide6.QtCore import QLineF, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QFontMetricsF,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPixmap,
    QPolygonF,
    QWheelEvent,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.meter import short
from helix_desktop.gui.models.figures import day
from helix_desktop.gui.models.folds import KIND
from helix_desktop.gui.models.folds import title as fold_title
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.story import Event, Story
from helix_desktop.gui.words import tr

HEIGHT = 130
_EIGHT = 8
_LEAST_SPAN = 12.0
Threshold = tuple[str, Kind, float]


class Pyramid:
    """Lows and highs of a row of numbers, at every power of eight. It grows with the row."""

    def __init__(self, points: Sequence[int]) -> None:
        self._points = points
        self._levels: list[tuple[list[int], list[int]]] = []
        self.grow()

    def grow(self) -> None:
        """Take in what has been added; a level's last, unfinished piece is made anew."""
        lows: Sequence[int] = self._points
        highs: Sequence[int] = self._points
        level = 0
        while len(lows) > _EIGHT:
            if level == len(self._levels):
                self._levels.append(([], []))
            low, high = self._levels[level]
            del low[-1:], high[-1:]
            for start in range(len(low) * _EIGHT, len(lows), _EIGHT):
                low.append(min(lows[start : start + _EIGHT]))
                high.append(max(highs[start : start + _EIGHT]))
            lows, highs, level = low, high, level + 1

    def sample(self, first: float, last: float, pixels: int) -> list[tuple[float, int, int]]:
        """For points `first` to `last`: place, low and high of as many pieces as there are pixels, about."""
        span = max(last - first, 1.0)
        level, size = -1, 1
        while span / size > 2 * pixels and level + 1 < len(self._levels):
            level, size = level + 1, size * _EIGHT
        lows, highs = (self._points, self._points) if level < 0 else self._levels[level]
        start, end = max(0, int(first / size)), min(len(lows), int(last / size) + 2)
        return [(i * size + (size - 1) / 2, lows[i], highs[i]) for i in range(start, end)]


class Chart(QWidget):
    """`chosen` carries an Event; wheel and keys zoom, dragging moves, a click on a mark chooses it."""

    chosen = Signal(object)
    step_chosen = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._story = Story()
        self._pyramid = Pyramid(self._story.points)
        self._thresholds: Sequence[Threshold] = ()
        self._first, self._last = 0.0, 1.0
        self._whole = True
        self._hover = -1
        self._selected: Event | None = None
        self._dragged_from: float | None = None
        self._moved = False
        self._drawn: QPixmap | None = None
        self._drawn_for: object = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Tokens over time"))
        theme.changed.connect(self._restyled)

    def sizeHint(self) -> QSize:
        return QSize(400, self._theme.px(HEIGHT))

    # --- what is shown

    def show_story(self, story: Story, thresholds: Sequence[Threshold]) -> None:
        """Another conversation: all of it."""
        self._story, self._thresholds = story, thresholds
        self._drawn = None
        self._pyramid = Pyramid(story.points)
        self._selected, self._hover, self._whole = None, -1, True
        self._fit()
        self._describe()
        self.update()

    def grow(self) -> None:
        """The story went on."""
        self._pyramid.grow()
        if self._whole:
            self._fit()
        self._describe()
        self.update()

    def select(self, event: Event | None) -> None:
        """Mark the event the list has chosen, and bring it into sight."""
        self._selected = event
        if event is not None and not self._first <= event.point <= self._last:
            span = self._last - self._first
            self._show(event.point - span / 2, event.point + span / 2)
        self.update()

    def zoom(self, factor: float, around: float | None = None) -> None:
        """Show `factor` times as many points, keeping the place `around` where it is."""
        middle = (self._first + self._last) / 2 if around is None else around
        self._show(middle - (middle - self._first) * factor, middle + (self._last - middle) * factor)

    def show_all(self) -> None:
        self._whole = True
        self._fit()
        self.update()

    @property
    def span(self) -> tuple[float, float]:
        """The first and the last point in sight."""
        return self._first, self._last

    def _describe(self) -> None:
        points = self._story.points
        if points:
            words = tr(
                "{steps} steps, {folds} folds, now {tokens} tokens",
                steps=f"{self._story.totals.steps:,}",
                folds=f"{len(self._story.events):,}",
                tokens=short(points[-1]),
            )
            self.setAccessibleDescription(words)

    def _fit(self) -> None:
        self._first, self._last = 0.0, float(max(1, len(self._story.points) - 1))

    def _show(self, first: float, last: float) -> None:
        end = float(max(1, len(self._story.points) - 1))
        span = min(max(last - first, min(_LEAST_SPAN, end)), end)
        middle = (first + last) / 2
        self._first = min(max(middle - span / 2, 0.0), end - span)
        self._last = self._first + span
        self._whole = span >= end - 0.5
        self.update()

    def _restyled(self) -> None:
        self.updateGeometry()
        self.update()

    # --- places

    @property
    def _top(self) -> float:
        highest = max(self._highest, 1)
        return max(self._story.window, highest * 1.05) if self._story.window else highest * 1.1

    @property
    def _highest(self) -> int:
        sampled = self._pyramid.sample(0, len(self._story.points), 64)
        return max((high for _, _, high in sampled), default=0)

    def _x(self, point: float) -> float:
        return (point - self._first) / max(self._last - self._first, 1e-9) * self.width()

    def _point_at(self, x: float) -> float:
        return self._first + x / max(1, self.width()) * (self._last - self._first)

    def _y(self, tokens: float, top: float) -> float:
        return self.height() - 3 - tokens / top * (self.height() - 6)

    # --- drawing

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        if not len(self._story.points):
            painter.fillRect(self.rect(), self._theme.colour("panel"))
            painter.setPen(self._theme.colour("faint"))
            painter.drawText(self.rect(), Qt.AlignmentFlag.AlignCenter, tr("Tokens over time will show here."))
            return
        top = self._top
        painter.drawPixmap(0, 0, self._picture(top))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._selected is not None and self._selected.folds and self._first <= self._selected.point <= self._last:
            self._paint_mark(painter, self._selected, top, 4.5)
        self._paint_hover(painter, top)
        if self.hasFocus():
            painter.setPen(QPen(self._theme.colour("accent"), 1))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        painter.end()

    def _picture(self, top: float) -> QPixmap:
        """Line, thresholds and marks, drawn once for a span; the pointer and the chosen fold are drawn over it."""
        size, ratio = self.size(), self.devicePixelRatioF()
        points, events = self._story.points, self._story.events
        look = (self._theme.dark, self._theme.zoom, ratio, size.width(), size.height())
        key = (self._first, self._last, len(points), points[-1], len(events), look)
        if self._drawn is None or self._drawn_for != key:
            self._drawn_for = key
            self._drawn = QPixmap(size * ratio)
            self._drawn.setDevicePixelRatio(ratio)
            self._drawn.fill(self._theme.colour("panel"))
            painter = QPainter(self._drawn)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._paint_thresholds(painter, top)
            self._paint_line(painter, top)
            self._paint_marks(painter, top)
            painter.end()
        return self._drawn

    def _paint_thresholds(self, painter: QPainter, top: float) -> None:
        if not self._story.window:
            return
        painter.setFont(self._theme.font(11))
        for words, kind, share in self._thresholds:
            y = round(self._y(share * self._story.window, top)) + 0.5
            colour = self._theme.kind(kind)
            pen = QPen(colour, 1, Qt.PenStyle.CustomDashLine)
            pen.setDashPattern([4, 4])
            painter.setOpacity(0.6)
            painter.setPen(pen)
            painter.drawLine(QPointF(0, y), QPointF(self.width(), y))
            painter.setOpacity(1.0)
            painter.setPen(self._theme.kind_text(kind))
            painter.drawText(QPointF(4, y - 6), words)

    def _paint_line(self, painter: QPainter, top: float) -> None:
        """A line where there is room for one; else, for each pixel, a stroke from the lowest to the highest."""
        sampled = self._pyramid.sample(self._first, self._last, self.width())
        if self._last - self._first <= self.width():
            line = QPolygonF([QPointF(self._x(place), self._y(high, top)) for place, _, high in sampled])
            painter.setPen(QPen(self._theme.kind(Kind.CONVERSATION), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawPolyline(line)
            return
        columns: dict[int, tuple[int, int]] = {}
        for place, low, high in sampled:
            x = int(self._x(place))
            lowest, highest = columns.get(x, (low, high))
            columns[x] = (min(lowest, low), max(highest, high))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, on=False)
        painter.setPen(QPen(self._theme.kind(Kind.CONVERSATION), 1))
        strokes = [QLineF(x, self._y(low, top) + 1, x, self._y(high, top) - 1) for x, (low, high) in columns.items()]
        painter.drawLines(strokes)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)

    def _paint_marks(self, painter: QPainter, top: float) -> None:
        """One mark for each fold; where they would lie on each other, one for some pixels."""
        taken = -10.0
        width = self._theme.px(5)
        for event in self._marks_in_sight():
            x = self._x(event.point)
            if x - taken >= width:
                taken = x
                self._paint_mark(painter, event, top, 3.0)

    def _paint_mark(self, painter: QPainter, event: Event, top: float, size: float) -> None:
        y = self._y(self._story.points[min(event.point, len(self._story.points) - 1)], top)
        painter.setPen(QPen(self._theme.colour("panel"), 1.5))
        painter.setBrush(self._theme.kind(KIND[event.kind or FoldKind.MARKER]))
        painter.drawEllipse(QPointF(self._x(event.point), y), size, size)

    def _marks_in_sight(self) -> Sequence[Event]:
        events = self._story.events
        first = bisect_left(events, self._first - 1, key=lambda event: event.point)
        last = bisect_left(events, self._last + 1, key=lambda event: event.point)
        step = max(1, (last - first) // max(1, self.width() // 3))
        shown = events[first:last:step]
        return [event for event in shown if event.kind is not None and event.kind is not FoldKind.EXCERPT]

    def _paint_hover(self, painter: QPainter, top: float) -> None:
        if 0 <= self._hover < len(self._story.points):
            x, y = self._x(self._hover), self._y(self._story.points[self._hover], top)
            painter.setPen(QPen(self._theme.colour("line"), 1))
            painter.drawLine(QPointF(x, 0), QPointF(x, self.height()))
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.kind(Kind.CONVERSATION))
            painter.drawEllipse(QPointF(x, y), 3, 3)
            self._paint_label(painter, x, self.words_at(self._hover))

    def _paint_label(self, painter: QPainter, x: float, words: str) -> None:
        font = self._theme.font(11)
        width = QFontMetricsF(font).horizontalAdvance(words) + 12
        left = min(max(x - width / 2, 0), self.width() - width)
        place = QRectF(left, self.height() - 22, width, 18)
        painter.setPen(QPen(self._theme.colour("line"), 1))
        painter.setBrush(self._theme.colour("panel"))
        painter.drawRoundedRect(place, 5, 5)
        painter.setFont(font)
        painter.setPen(self._theme.colour("text"))
        painter.drawText(place, Qt.AlignmentFlag.AlignCenter, words)

    def words_at(self, point: int) -> str:
        """A step in words."""
        story = self._story
        words = tr(
            "step {n} · {tokens} tokens · {when}",
            n=f"{story.steps[point]:,}",
            tokens=short(story.points[point]),
            when=day(story.times[point]),
        )
        near = self._event_at(point)
        return f"{words} · {fold_title(near.folds[0], len(near.folds))}" if near is not None else words

    def _event_at(self, point: float, reach: float = 0.5) -> Event | None:
        events = self._story.events
        at = bisect_left(events, point - reach, key=lambda event: event.point)
        near = [event for event in events[at : at + 40] if event.folds and abs(event.point - point) <= reach]
        return min(near, key=lambda event: abs(event.point - point)) if near else None

    # --- hands

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        x = event.position().x()
        if self._dragged_from is not None and event.buttons() & Qt.MouseButton.LeftButton:
            by = (self._dragged_from - x) / max(1, self.width()) * (self._last - self._first)
            if abs(self._dragged_from - x) > 3:
                self._moved = True
                self._show(self._first + by, self._last + by)
                self._dragged_from = x
        self._hover = min(max(round(self._point_at(x)), 0), len(self._story.points) - 1)
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._dragged_from, self._moved = event.position().x(), False

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self._dragged_from = None
        if self._moved or not len(self._story.points):
            return
        per_pixel = (self._last - self._first) / max(1, self.width())
        point = self._point_at(event.position().x())
        near = self._event_at(point, max(0.5, 6 * per_pixel))
        if near is not None:
            self.chosen.emit(near)
        else:
            self.step_chosen.emit(self._story.seqs[min(max(round(point), 0), len(self._story.points) - 1)])

    def leaveEvent(self, event: object) -> None:
        self._hover = -1
        QToolTip.hideText()
        self.update()

    def wheelEvent(self, event: QWheelEvent) -> None:
        turned = event.angleDelta().y()
        if turned:
            self.zoom(0.8 if turned > 0 else 1.25, self._point_at(event.position().x()))
        event.accept()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        self.show_all()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        span = self._last - self._first
        key = event.key()
        if key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom(0.8)
        elif key == Qt.Key.Key_Minus:
            self.zoom(1.25)
        elif key == Qt.Key.Key_0:
            self.show_all()
        elif key in (Qt.Key.Key_Left, Qt.Key.Key_Right):
            by = span / 10 * (1 if key == Qt.Key.Key_Right else -1)
            self._show(self._first + by, self._last + by)
        else:
            event.ignore()
