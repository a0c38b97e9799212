"""Tokens over the steps of a conversation, with the thresholds dashed and every fold a mark."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from PySide6.QtCore import QPointF, Signal
from PySide6.QtGui import QMouseEvent, QPainter, QPen
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.blocks import ContextKind
from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.shared.figure_formats import format_date_and_time
from helix_desktop.gui.shared.fold_descriptions import context_kind_of_fold, fold_title
from helix_desktop.gui.shared.step_plot import MinMaxPyramid, StepPlot
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline, TimelineEvent
from helix_desktop.gui.translation import format_number, tr

Threshold = tuple[str, ContextKind, float]


class TimelineChart(StepPlot):
    """`chosen` carries the event whose mark was clicked."""

    chosen = Signal(object)
    step_chosen = Signal(int)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._story = ConversationTimeline()
        self._pyramid = MinMaxPyramid(self._story.points)
        self._thresholds: Sequence[Threshold] = ()
        self._selected: TimelineEvent | None = None
        self.setAccessibleName(tr("Tokens over time"))

    def plot_timeline(self, story: ConversationTimeline, thresholds: Sequence[Threshold]) -> None:
        """Plots another conversation, all of it."""
        self._story, self._thresholds = story, thresholds
        self._drawn = None
        self._pyramid = MinMaxPyramid(story.points)
        self._selected, self._hover, self._whole = None, -1, True
        self._keep_span_in_range()
        self._update_chart_description()
        self.update()

    def extend_timeline_plot(self) -> None:
        """Extends the plot after the story grew."""
        self._pyramid.add_new_values()
        if self._whole:
            self._keep_span_in_range()
        self._update_chart_description()
        self.update()

    def mark_selected_event(self, event: TimelineEvent | None) -> None:
        """Mark the event the list has chosen, and bring it into sight."""
        self._selected = event
        if event is not None and not self._first <= event.point <= self._last:
            span = self._last - self._first
            self._show_point_span(event.point - span / 2, event.point + span / 2)
        self.update()

    def _update_chart_description(self) -> None:
        points, events = self._story.points, self._story.events
        if points:
            # the start of the conversation counts as an event, too
            begun = bool(events) and not events[0].current_folds
            words = tr(
                "{steps} steps, {folds} folds, now {tokens} tokens",
                steps=format_number(self._story.steps[-1]),
                folds=format_number(len(events) - begun),
                tokens=format_token_count(points[-1]),
            )
            self.setAccessibleDescription(words)

    @property
    def _count_points(self) -> int:
        return len(self._story.points)

    def _empty_plot_text(self) -> str:
        return tr("Tokens over time appear here.")

    @property
    def _top_tokens(self) -> float:
        highest = max(self._highest_token_count, 1)
        return max(self._story.model_window, highest * 1.05) if self._story.model_window else highest * 1.1

    @property
    def _highest_token_count(self) -> int:
        sampled = self._pyramid.sample_lows_and_highs(0, len(self._story.points), 64)
        return max((high for _, _, high in sampled), default=0)

    # --- drawing

    def _plot_cache_key(self) -> object:
        points = self._story.points
        return len(points), points[-1], len(self._story.events)

    def _draw_plot_background(self, painter: QPainter, top: float) -> None:
        for words, kind, share in self._thresholds if self._story.model_window else ():
            colours = self._theme.fill_colour_of_kind(kind), self._theme.text_colour_of_kind(kind)
            self._draw_level(painter, share * self._story.model_window, top, colours, words)
        self._draw_line(painter, self._pyramid, top, QPen(self._theme.fill_colour_of_kind(ContextKind.CONVERSATION), 2))
        self._draw_event_marks(painter, top)

    def _draw_choice_and_pointer(self, painter: QPainter, top: float) -> None:
        chosen = self._selected
        if chosen is not None and chosen.current_folds and self._first <= chosen.point <= self._last:
            self._draw_event_mark(painter, chosen, top, 4.5)
        if 0 <= self._hover < self._count_points:
            dot = (self._story.points[self._hover], self._theme.fill_colour_of_kind(ContextKind.CONVERSATION))
            self._draw_pointer(painter, top, [dot], self.words_at(self._hover))

    def _draw_event_marks(self, painter: QPainter, top: float) -> None:
        """Draws a mark for each fold; where marks would overlap, only the first."""
        taken = -10.0
        width = self._theme.zoomed_pixels(5)
        for event in self._visible_marked_events():
            x = self._pixel_x_of_point(event.point)
            if x - taken >= width:
                taken = x
                self._draw_event_mark(painter, event, top, 3.0)

    def _draw_event_mark(self, painter: QPainter, event: TimelineEvent, top: float, size: float) -> None:
        y = self._y_of_token_count(self._story.points[min(event.point, self._count_points - 1)], top)
        self._draw_mark(
            painter,
            QPointF(self._pixel_x_of_point(event.point), y),
            self._theme.fill_colour_of_kind(context_kind_of_fold(event.fold_kind or FoldKind.MARKER)),
            size,
        )

    def _visible_marked_events(self) -> Sequence[TimelineEvent]:
        events = self._story.events
        first = bisect_left(events, self._first - 1, key=lambda event: event.point)
        last = bisect_left(events, self._last + 1, key=lambda event: event.point)
        step = max(1, (last - first) // max(1, self.width() // 3))
        shown = events[first:last:step]
        return [event for event in shown if event.fold_kind is not None and event.fold_kind is not FoldKind.EXCERPT]

    def words_at(self, point: int) -> str:
        """A step in words."""
        story = self._story
        words = tr(
            "step {n} · {tokens} tokens · {when}",
            n=format_number(story.steps[point]),
            tokens=format_token_count(story.points[point]),
            when=format_date_and_time(story.times[point]),
        )
        near = self._find_event_near(point)
        return f"{words} · {fold_title(near.current_folds[0], len(near.current_folds))}" if near is not None else words

    def _find_event_near(self, point: float, reach: float = 0.5) -> TimelineEvent | None:
        events = self._story.events
        at = bisect_left(events, point - reach, key=lambda event: event.point)
        near = [event for event in events[at : at + 40] if event.current_folds and abs(event.point - point) <= reach]
        return min(near, key=lambda event: abs(event.point - point)) if near else None

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        super().mouseReleaseEvent(event)
        if self._moved or not self._count_points:
            return
        per_pixel = (self._last - self._first) / max(1, self.width())
        x = event.position().x()
        near = self._find_event_near(self._point_at(x), max(0.5, 6 * per_pixel))
        if near is not None:
            self.chosen.emit(near)
        else:
            self.step_chosen.emit(self._story.seqs[self._nearest_point(x)])
