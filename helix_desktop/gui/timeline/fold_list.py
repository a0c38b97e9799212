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
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            event = self.items[index.row()]
            undone = ", " + tr("undone") if self.is_event_undone(event) else ""
            return f"{describe_event_title(event)}, {describe_event_time(event)}, {describe_event_briefly(event, self.window)}{undone}"
        return None

    def is_event_undone(self, event: TimelineEvent) -> bool:
        return bool(event.made_folds) and not event.has_fold_in_force


class _FoldRowPainter(RowPainter):
    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = index.model()
        if not isinstance(model, FoldRows):
            return
        theme, event = self._theme, model.items[index.row()]
        place = QRectF(option.rect)
        # Even in right-to-left languages, each row shows the ring, the text and the
        # time in this order.
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        if option.state & QStyle.StateFlag.State_Selected:
            inset = theme.zoomed_pixels(12)
            theme.fill_surface(
                painter, place.adjusted(inset, 0, -inset, -theme.zoomed_pixels(2)), "selected", 8
            )
        self._draw_kind_ring(painter, place, event)
        self._draw_fold_text(painter, place, event, model)

    def _draw_kind_ring(self, painter: QPainter, place: QRectF, event: TimelineEvent) -> None:
        pixels = self._theme.zoomed_pixels
        kind = (
            context_kind_of_fold(event.fold_kind)
            if event.fold_kind is not None
            else ContextKind.OUTPUT
        )
        painter.setPen(QPen(self._theme.fill_colour_of_kind(kind), pixels(3)))
        painter.setBrush(self._theme.colour_of_token("panel"))
        middle = QPointF(place.left() + pixels(LEFT + 8), place.top() + pixels(18))
        painter.drawEllipse(middle, pixels(4), pixels(4))

    def _draw_fold_text(
        self, painter: QPainter, place: QRectF, event: TimelineEvent, model: FoldRows
    ) -> None:
        theme = self._theme
        left, right = (
            place.left() + theme.zoomed_pixels(LEFT + 26),
            place.right() - theme.zoomed_pixels(26),
        )
        undone = model.is_event_undone(event)
        bold = theme.build_font(weight=QFont.Weight.DemiBold)
        bold.setStrikeOut(undone)
        said = describe_event_time(event) + (" · " + tr("undone") if undone else "")
        aside = theme.zoomed_pixels(10) + QFontMetrics(theme.build_font()).horizontalAdvance(said)
        metrics = QFontMetrics(bold)
        name = metrics.elidedText(
            describe_event_title(event), Qt.TextElideMode.ElideRight, int(right - left) - aside
        )
        head = QRectF(
            left, place.top() + theme.zoomed_pixels(8), right - left, theme.zoomed_pixels(20)
        )
        after = head.adjusted(metrics.horizontalAdvance(name) + theme.zoomed_pixels(10), 0, 0, 0)
        below = head.translated(0, theme.zoomed_pixels(19.5))
        plain, words = theme.build_font(), describe_event_briefly(event, model.window)
        text = QFontMetrics(plain).elidedText(
            words, Qt.TextElideMode.ElideRight, int(below.width())
        )
        for at, font, colour, drawn in (
            (head, bold, "muted" if undone else "text", name), (after, plain, "faint", said), (below, plain, "muted", text)
        ):  # fmt: skip
            theme.draw_words(painter, at, drawn, font, colour)


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
        self.setAccessibleName(tr("Folds, newest first"))
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
    until = (
        f"–{format_short_day_and_time(event.last_time, event.time, now)}" if event.last_time else ""
    )
    return format_short_day_and_time(event.time, now, now) + until


def _shows_event(row: TimelineEvent, event: TimelineEvent) -> bool:
    """Whether a row shows an event, alone or together with others."""
    if row is event or not event.made_folds:
        return row is event
    then = row.history is event.history and row.time <= event.time <= (row.last_time or row.time)
    return then and event.made_folds[0] in row.made_folds
