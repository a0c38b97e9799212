"""Tokens over the steps of a conversation, with the thresholds dashed and every fold a mark."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from PySide6.QtCore import QPointF, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.meter import short
from helix_desktop.gui.shared.figures import day
from helix_desktop.gui.shared.folds import colour_kind
from helix_desktop.gui.shared.folds import title as fold_title
from helix_desktop.gui.shared.plot import Plot, Pyramid
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.story import Event, Story
from helix_desktop.gui.words import numeral, tr

Threshold = tuple[str, Kind, float]


class Chart(Plot):
    """`chosen` carries an Event: a click on a mark chooses it."""

    chosen = Signal(object)
    step_chosen = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._story = Story()
        self._pyramid = Pyramid(self._story.points)
        self._thresholds: Sequence[Threshold] = ()
        self._selected: Event | None = None
        self.setAccessibleName(tr("Tokens over time"))

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

    def _describe(self) -> None:
        points, events = self._story.points, self._story.events
        if points:
            begun = bool(events) and not events[0].folds  # the beginning is an event as well
            words = tr(
                "{steps} steps, {folds} folds, now {tokens} tokens",
                steps=numeral(self._story.steps[-1]),
                folds=numeral(len(events) - begun),
                tokens=short(points[-1]),
            )
            self.setAccessibleDescription(words)

    # --- places

    @property
    def _count(self) -> int:
        return len(self._story.points)

    def _nothing(self) -> str:
        return tr("Tokens over time appear here.")

    @property
    def _top(self) -> float:
        highest = max(self._highest, 1)
        return max(self._story.window, highest * 1.05) if self._story.window else highest * 1.1

    @property
    def _highest(self) -> int:
        sampled = self._pyramid.sample(0, len(self._story.points), 64)
        return max((high for _, _, high in sampled), default=0)

    # --- drawing

    def _content(self) -> object:
        points = self._story.points
        return len(points), points[-1], len(self._story.events)

    def _draw(self, painter: QPainter, top: float) -> None:
        for words, kind, share in self._thresholds if self._story.window else ():
            colours = self._theme.kind(kind), self._theme.kind_text(kind)
            self._draw_level(painter, share * self._story.window, top, colours, words)
        self._draw_line(painter, self._pyramid, top, QPen(self._theme.kind(Kind.CONVERSATION), 2))
        self._paint_marks(painter, top)

    def _draw_over(self, painter: QPainter, top: float) -> None:
        chosen = self._selected
        if chosen is not None and chosen.folds and self._first <= chosen.point <= self._last:
            self._paint_mark(painter, chosen, top, 4.5)
        if 0 <= self._hover < self._count:
            dot = (self._story.points[self._hover], self._theme.kind(Kind.CONVERSATION))
            self._draw_pointer(painter, top, [dot], self.words_at(self._hover))

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
        y = self._y(self._story.points[min(event.point, self._count - 1)], top)
        self._draw_mark(
            painter,
            QPointF(self._x(event.point), y),
            self._theme.kind(colour_kind(event.kind or FoldKind.MARKER)),
            size,
        )

    def _marks_in_sight(self) -> Sequence[Event]:
        events = self._story.events
        first = bisect_left(events, self._first - 1, key=lambda event: event.point)
        last = bisect_left(events, self._last + 1, key=lambda event: event.point)
        step = max(1, (last - first) // max(1, self.width() // 3))
        shown = events[first:last:step]
        return [event for event in shown if event.kind is not None and event.kind is not FoldKind.EXCERPT]

    def words_at(self, point: int) -> str:
        """A step in words."""
        story = self._story
        words = tr(
            "step {n} · {tokens} tokens · {when}",
            n=numeral(story.steps[point]),
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

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if self._moved or not self._count:
            return
        per_pixel = (self._last - self._first) / max(1, self.width())
        x = event.position().x()
        near = self._event_at(self._point_at(x), max(0.5, 6 * per_pixel))
        if near is not None:
            self.chosen.emit(near)
        else:
            self.step_chosen.emit(self._story.seqs[self._nearest(x)])
