"""The list of folds, the newest first: a ring in its kind's colour, a title, and figures."""

import time
from collections.abc import Sequence

from PySide6.QtCore import QModelIndex, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QListView, QStyle, QStyleOptionViewItem, QWidget

from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui.common.figure_formats import format_short_day_and_time
from helix_desktop.gui.common.fold_descriptions import context_kind_of_fold
from helix_desktop.gui.common.list_row_model import Index, ListRowModel, RowPainter
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.conversation_timeline import TimelineEvent
from helix_desktop.gui.timeline.fold_sentences import describe_event_briefly, describe_event_title
from helix_desktop.gui.translation import tr

ROW = 55
LEFT = 22


class FoldRows(ListRowModel[TimelineEvent]):
    """Events as rows. `window` is the model's context window in tokens."""

    window = 0

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if role not in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            return None
        event = self.items[index.row()]
        parts = [
            describe_event_title(event),
            describe_event_time(event),
            describe_event_briefly(event, self.window),
        ]
        if self.is_event_undone(event):
            parts.append(tr("undone"))
        return ", ".join(parts)

    def is_event_undone(self, event: TimelineEvent) -> bool:
        return bool(event.made_folds) and not event.has_fold_in_force


class _FoldRowPainter(RowPainter):
    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = index.model()
        if not isinstance(model, FoldRows):
            return
        theme = self._theme
        event = model.items[index.row()]
        place = QRectF(option.rect)
        # Even in right-to-left languages, each row shows the ring, the text and the
        # time in this order.
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        if option.state & QStyle.StateFlag.State_Selected:
            inset = theme.zoomed_pixels(12)
            surface = place.adjusted(inset, 0, -inset, -theme.zoomed_pixels(2))
            theme.fill_surface(painter, surface, "selected", 8)
        self._draw_kind_ring(painter, place, event)
        self._draw_fold_text(painter, place, event, model)

    def _draw_kind_ring(self, painter: QPainter, place: QRectF, event: TimelineEvent) -> None:
        pixels = self._theme.zoomed_pixels
        kind = ContextKind.OUTPUT
        if event.fold_kind is not None:
            kind = context_kind_of_fold(event.fold_kind)
        painter.setPen(QPen(self._theme.fill_colour_of_kind(kind), pixels(3)))
        painter.setBrush(self._theme.colour_of_token("panel"))
        middle = QPointF(place.left() + pixels(LEFT + 8), place.top() + pixels(18))
        painter.drawEllipse(middle, pixels(4), pixels(4))

    def _draw_fold_text(
        self, painter: QPainter, place: QRectF, event: TimelineEvent, model: FoldRows
    ) -> None:
        """Draws the title and the time in one line, and what the event did below it."""
        theme = self._theme
        pixels = theme.zoomed_pixels
        plain = theme.build_font()
        bold = theme.build_font(weight=QFont.Weight.DemiBold)
        bold_metrics = QFontMetrics(bold)
        plain_metrics = QFontMetrics(plain)
        title_colour = "text"
        time_words = describe_event_time(event)
        if model.is_event_undone(event):
            title_colour = "muted"
            time_words += " · " + tr("undone")
            bold.setStrikeOut(True)
        left = place.left() + pixels(LEFT + 26)
        width = place.right() - pixels(26) - left
        title_width = int(width) - plain_metrics.horizontalAdvance(time_words) - pixels(10)
        elided = Qt.TextElideMode.ElideRight
        title = bold_metrics.elidedText(describe_event_title(event), elided, title_width)
        title_rect = QRectF(left, place.top() + pixels(8), width, pixels(20))
        theme.draw_words(painter, title_rect, title, bold, title_colour)
        time_left = bold_metrics.horizontalAdvance(title) + pixels(10)
        time_rect = title_rect.adjusted(time_left, 0, 0, 0)
        theme.draw_words(painter, time_rect, time_words, plain, "faint")
        what_it_did = describe_event_briefly(event, model.window)
        shown = plain_metrics.elidedText(what_it_did, elided, int(width))
        theme.draw_words(painter, title_rect.translated(0, pixels(19.5)), shown, plain, "muted")


class FoldList(QListView):
    """`chosen` carries the event."""

    chosen = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, uniformItemSizes=True)
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
        self.scrollTo(self.currentIndex())

    def show_fold_events(
        self, events: Sequence[TimelineEvent], window: int, *, keep: TimelineEvent | None
    ) -> None:
        """Replaces the rows. The chosen event stays selected if it is among them."""
        place = self.verticalScrollBar().value()
        self.selectionModel().blockSignals(True)
        self.rows.window = window
        self.rows.replace_rows(events)
        self.select_fold_event(keep)
        self.selectionModel().blockSignals(False)
        self.verticalScrollBar().setValue(place)
        self.viewport().update()

    def select_fold_event(self, event: TimelineEvent | None) -> None:
        row = next(
            (
                i
                for i, each in enumerate(self.rows.items)
                if event is not None and _shows_event(each, event)
            ),
            -1,
        )
        if row >= 0:
            self.setCurrentIndex(self.rows.index(row))

    def _emit_chosen_event(self, index: QModelIndex, _: QModelIndex) -> None:
        if index.isValid():
            self.chosen.emit(self.rows.items[index.row()])


def describe_event_time(event: TimelineEvent) -> str:
    now = time.time()
    words = format_short_day_and_time(event.time, now, now)
    if event.last_time:
        words += f"–{format_short_day_and_time(event.last_time, event.time, now)}"
    return words


def _shows_event(row: TimelineEvent, event: TimelineEvent) -> bool:
    """Whether a row shows an event, alone or together with others."""
    if row is event or not event.made_folds:
        return row is event
    then = row.history is event.history and row.time <= event.time <= (row.last_time or row.time)
    return then and event.made_folds[0] in row.made_folds
