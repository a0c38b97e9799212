"""The list of folds, the newest first: a ring in its kind's colour, a title, and figures."""

import time
from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QListView, QStyle, QStyleOptionViewItem, QWidget

from helix_desktop.engine.facts import FoldFailed
from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui.common.figure_formats import format_short_day_and_time
from helix_desktop.gui.common.fold_descriptions import context_kind_of_fold
from helix_desktop.gui.common.list_row_model import Index, ListRowModel, RowPainter
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.conversation_timeline import TimelineEvent, TimelineRewind
from helix_desktop.gui.timeline.fold_sentences import describe_event_briefly, describe_event_title
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import tr

ROW = 55  # The height of a row whose figures fit in one line, in pixels.
FIGURES_LINE = 20  # The height of each line of figures, in pixels.
LEFT = 22  # The room at the left of a row's ring, in pixels.
# The room at the left and at the right of a row's text, in pixels.
TEXT_LEFT = LEFT + 26
TEXT_RIGHT = 18
TITLE_GAP = 10  # Between a title and the time beside it, in pixels.
SEPARATOR = " · "  # Between two figures of an event.
# In a longer list, all rows have the same height and long figures are cut, because measuring each
# row would hold up the window.
MOST_MEASURED_ROWS = 400


class FoldRows(ListRowModel[TimelineEvent]):
    """Events as rows."""

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        event = self.items[index.row()]
        if role == Qt.ItemDataRole.ToolTipRole:
            title = describe_event_title(event)
            return safe_tooltip(f"{title}\n{describe_event_briefly(event)}")
        if role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return None
        parts = [
            describe_event_title(event),
            describe_event_time(event),
            describe_event_briefly(event),
        ]
        state_words = describe_event_state(event)
        if state_words:
            parts.append(state_words)
        return ", ".join(parts)


class _FoldRowPainter(RowPainter):
    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        """A row is higher by a line for each line of figures that does not fit beside the first."""
        size = super().sizeHint(option, index)
        view = self.parent()
        model = index.model()
        if not isinstance(view, QListView) or not isinstance(model, FoldRows):
            return size
        if view.uniformItemSizes():
            return size
        pixels = self._theme.zoomed_pixels
        room = view.viewport().width() - pixels(TEXT_LEFT) - pixels(TEXT_RIGHT)
        event = model.items[index.row()]
        metrics = QFontMetrics(self._theme.build_font())
        words = self._describe_below_title(event, metrics, room)
        lines = wrap_figures(words, metrics, room)
        extra_height = (len(lines) - 1) * pixels(FIGURES_LINE)
        return QSize(size.width(), size.height() + extra_height)

    def _has_time_beside_title(
        self, event: TimelineEvent, metrics: QFontMetrics, room: int
    ) -> bool:
        """Whether the time leaves enough of the line for the title, which says what happened: in a
        narrow list, "Zusa…" stood beside the time.
        """
        time_width = metrics.horizontalAdvance(describe_event_time(event))
        title_font = self._theme.build_font(weight=QFont.Weight.DemiBold)
        title_width = QFontMetrics(title_font).horizontalAdvance(describe_event_title(event))
        return title_width + self._theme.zoomed_pixels(TITLE_GAP) + time_width <= room

    def _describe_below_title(self, event: TimelineEvent, metrics: QFontMetrics, room: int) -> str:
        """What is below the title, which keeps the room of its line: the state and the figures."""
        words = [describe_event_briefly(event)]
        state_words = describe_event_state(event)
        if state_words:
            words.insert(0, state_words)
        if not self._has_time_beside_title(event, metrics, room):
            words.insert(0, describe_event_time(event))
        return SEPARATOR.join(words)

    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draws a row of the list: a ring in the colour of its kind, what was
        shortened, and when.
        """
        model = index.model()
        if not isinstance(model, FoldRows):
            return
        theme = self._theme
        event = model.items[index.row()]
        row_rect = QRectF(option.rect)
        # Even in right-to-left languages, each row shows the ring, the text and the
        # time in this order.
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        if option.state & QStyle.StateFlag.State_Selected:
            inset = theme.zoomed_pixels(12)
            surface = row_rect.adjusted(inset, 0, -inset, -theme.zoomed_pixels(2))
            theme.fill_surface(painter, surface, "selected", 8)
        self._draw_kind_ring(painter, row_rect, event)
        self._draw_fold_text(painter, row_rect, event, model)

    def _draw_kind_ring(self, painter: QPainter, row_rect: QRectF, event: TimelineEvent) -> None:
        pixels = self._theme.zoomed_pixels
        kind = ContextKind.OUTPUT
        if event.fold_kind is not None:
            kind = context_kind_of_fold(event.fold_kind)
        elif isinstance(event.happened, TimelineRewind):
            kind = ContextKind.CONVERSATION
        ring_colour = self._theme.fill_colour_of_kind(kind)
        if isinstance(event.happened, FoldFailed):
            ring_colour = self._theme.colour_of_token("danger")
        painter.setPen(QPen(ring_colour, pixels(3)))
        painter.setBrush(self._theme.colour_of_token("panel"))
        x = row_rect.left() + pixels(LEFT + 8)
        y = row_rect.top() + pixels(18)
        radius = pixels(4)
        painter.drawEllipse(QPointF(x, y), radius, radius)

    def _draw_fold_text(
        self, painter: QPainter, row_rect: QRectF, event: TimelineEvent, model: FoldRows
    ) -> None:
        """Draws the title and the time in one line, and what the event did below it."""
        theme = self._theme
        pixels = theme.zoomed_pixels
        text_left = row_rect.left() + pixels(TEXT_LEFT)
        text_width = row_rect.right() - pixels(TEXT_RIGHT) - text_left
        title_rect = QRectF(text_left, row_rect.top() + pixels(8), text_width, pixels(20))
        gap = pixels(TITLE_GAP)

        plain_font = theme.build_font()
        title_font = theme.build_font(weight=QFont.Weight.DemiBold)
        title_colour = "text"
        if describe_event_state(event):
            title_font.setStrikeOut(True)
            title_colour = "muted"

        # The time is always complete, so the title gets the room that it leaves.
        plain_metrics = QFontMetrics(plain_font)
        time_words = ""
        if self._has_time_beside_title(event, plain_metrics, int(text_width)):
            time_words = describe_event_time(event)
        title_metrics = QFontMetrics(title_font)
        elide_right = Qt.TextElideMode.ElideRight
        title_room = int(text_width) - plain_metrics.horizontalAdvance(time_words) - gap
        whole_title = describe_event_title(event)
        title = title_metrics.elidedText(whole_title, elide_right, title_room)
        theme.draw_words(painter, title_rect, title, title_font, title_colour)
        title_width = title_metrics.horizontalAdvance(title)
        if time_words:
            time_rect = title_rect.adjusted(title_width + gap, 0, 0, 0)
            theme.draw_words(painter, time_rect, time_words, plain_font, "faint")

        what_it_did = self._describe_below_title(event, plain_metrics, int(text_width))
        lines = wrap_figures(what_it_did, plain_metrics, int(text_width))
        # As many lines are drawn as the row was measured for.
        extra_height = row_rect.height() - pixels(ROW)
        line_count = 1 + int(extra_height / pixels(FIGURES_LINE))
        drawn_lines = lines[:line_count]
        if len(drawn_lines) < len(lines):
            rest = SEPARATOR.join(lines[len(drawn_lines) - 1 :])
            drawn_lines[-1] = plain_metrics.elidedText(rest, elide_right, int(text_width))
        line_rect = title_rect
        for line in drawn_lines:
            line_rect = line_rect.translated(0, pixels(19.5))
            theme.draw_words(painter, line_rect, line, plain_font, "muted")


def wrap_figures(words: str, metrics: QFontMetrics, room: int) -> list[str]:
    """Breaks figures into lines, between two of them where that is possible."""
    lines: list[str] = []
    for figure in words.split(SEPARATOR):
        joined = figure
        if lines:
            joined = f"{lines[-1]}{SEPARATOR}{figure}"
        if lines and metrics.horizontalAdvance(joined) <= room:
            lines[-1] = joined
        else:
            lines += _wrap_words(figure, metrics, room)
    return lines


def _wrap_words(figure: str, metrics: QFontMetrics, room: int) -> list[str]:
    """Breaks a figure that is longer than a line between its words. A longer word is cut."""
    lines: list[str] = []
    for word in figure.split(" "):
        joined = word
        if lines:
            joined = f"{lines[-1]} {word}"
        if lines and metrics.horizontalAdvance(joined) <= room:
            lines[-1] = joined
        else:
            lines.append(metrics.elidedText(word, Qt.TextElideMode.ElideRight, room))
    return lines


class FoldList(QListView):
    """`chosen` carries the event."""

    chosen = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = FoldRows(self)
        self.setModel(self.rows)
        self.setItemDelegate(_FoldRowPainter(theme, self, ROW))
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAccessibleName(tr("What was shortened, newest first"))
        self.selectionModel().currentChanged.connect(self._emit_chosen_event)
        theme.changed.connect(self.scheduleDelayedItemsLayout)
        theme.keep_lengths_scaled(self, self.setMinimumHeight, 2 * ROW)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.scheduleDelayedItemsLayout()  # More or fewer figures fit in a line.
        self.scrollTo(self.currentIndex())

    def show_fold_events(
        self, events: Sequence[TimelineEvent], *, keep: TimelineEvent | None
    ) -> None:
        """Replaces the rows. The chosen event stays selected if it is among them."""
        scrolled_pixels = self.verticalScrollBar().value()
        # Selecting the same event again is no choice of the user.
        self.selectionModel().blockSignals(True)
        self.setUniformItemSizes(len(events) > MOST_MEASURED_ROWS)
        self.rows.replace_rows(events)
        self.select_fold_event(keep)
        self.selectionModel().blockSignals(False)
        self.verticalScrollBar().setValue(scrolled_pixels)
        self.viewport().update()

    def select_fold_event(self, event: TimelineEvent | None) -> None:
        if event is None:
            return
        for row, event_of_row in enumerate(self.rows.items):
            if _shows_event(event_of_row, event):
                self.setCurrentIndex(self.rows.index(row))
                return

    def _emit_chosen_event(self, index: QModelIndex, _: QModelIndex) -> None:
        if index.isValid():
            self.chosen.emit(self.rows.items[index.row()])


def describe_event_time(event: TimelineEvent) -> str:
    current_time = time.time()
    words = format_short_day_and_time(event.time, current_time, current_time)
    if event.last_time:
        words += f"–{format_short_day_and_time(event.last_time, event.time, current_time)}"
    return words


def describe_event_state(event: TimelineEvent) -> str:
    """Says why the event's folds are not in force. Empty if one of them is."""
    if not event.made_folds or event.has_fold_in_force:
        return ""
    if event.is_left_behind:
        return tr("no longer part of this conversation")
    return tr("undone")


def _shows_event(event_of_row: TimelineEvent, event: TimelineEvent) -> bool:
    """Whether a row shows an event, alone or together with others."""
    if event_of_row is event:
        return True
    if not event.made_folds or event_of_row.history is not event.history:
        return False
    last_time = event_of_row.last_time or event_of_row.time
    if not event_of_row.time <= event.time <= last_time:
        return False
    return event.made_folds[0] in event_of_row.made_folds
