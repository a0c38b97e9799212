"""The list of folds, the newest first: a ring of its kind's colour on a line, a title, and the figures."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import (
    QModelIndex,
    QPointF,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPen
from PySide6.QtWidgets import (
    QAbstractItemView,
    QFrame,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from helix_desktop.engine.blocks import ContextKind
from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.shared.figure_formats import format_date_and_time, format_time_of_day
from helix_desktop.gui.shared.fold_descriptions import context_kind_of_fold
from helix_desktop.gui.shared.list_row_model import Index, ListRowModel
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline import fold_sentences
from helix_desktop.gui.timeline.conversation_timeline import TimelineEvent
from helix_desktop.gui.translation import tr

ROW = 59
LEFT = 24


class FoldRows(ListRowModel[TimelineEvent]):
    """Events as rows. `window`: of the model, in tokens."""

    window = 0

    def set_row_events(self, events: Sequence[TimelineEvent], window: int) -> None:
        self.window = window
        self.replace_rows(events)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            event = self.items[index.row()]
            undone = ", " + tr("undone") if self.is_event_undone(event) else ""
            return f"{fold_sentences.describe_event_title(event)}, {format_date_and_time(event.time)}, {fold_sentences.describe_event_briefly(event, self.window)}{undone}"
        return None

    def is_event_undone(self, event: TimelineEvent) -> bool:
        return bool(event.made_folds) and not event.has_fold_in_force


class _FoldRowPainter(QStyledItemDelegate):
    def __init__(self, theme: Theme, parent: QListView) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, self._theme.zoomed_pixels(ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = index.model()
        if not isinstance(model, FoldRows):
            return
        theme, event = self._theme, model.items[index.row()]
        place = QRectF(option.rect)
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)
        painter.save()
        # ring, text and time keep their places in right-to-left languages, too
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if chosen:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.colour_of_token("selected"))
            painter.drawRoundedRect(
                place.adjusted(theme.zoomed_pixels(LEFT + 18), 0, -theme.zoomed_pixels(20), -theme.zoomed_pixels(12)),
                8,
                8,
            )
        self._draw_kind_ring(painter, place, event, first=index.row() == 0, last=index.row() == len(model.items) - 1)
        self._draw_fold_text(painter, place, event, model)
        painter.restore()

    def _draw_kind_ring(
        self, painter: QPainter, place: QRectF, event: TimelineEvent, *, first: bool, last: bool
    ) -> None:
        theme = self._theme
        x = place.left() + theme.zoomed_pixels(LEFT + 8)
        middle = place.top() + theme.zoomed_pixels(14)
        top, bottom = (middle if first else place.top()), (middle + theme.zoomed_pixels(24) if last else place.bottom())
        painter.fillRect(QRectF(x - 1, top, 2, bottom - top), theme.colour_of_token("line"))
        colour = theme.fill_colour_of_kind(
            context_kind_of_fold(event.fold_kind) if event.fold_kind is not None else ContextKind.OUTPUT
        )
        painter.setPen(QPen(colour, theme.zoomed_pixels(3)))
        painter.setBrush(theme.colour_of_token("panel"))
        radius = theme.zoomed_pixels(15) / 2
        painter.drawEllipse(QPointF(x + 0.5, middle), radius, radius)

    def _draw_fold_text(self, painter: QPainter, place: QRectF, event: TimelineEvent, model: FoldRows) -> None:
        theme = self._theme
        left, right = place.left() + theme.zoomed_pixels(LEFT + 26), place.right() - theme.zoomed_pixels(26)
        undone = model.is_event_undone(event)
        bold = theme.build_font(weight=QFont.Weight.DemiBold)
        bold.setStrikeOut(undone)
        said = format_time_of_day(event.time) + (" · " + tr("undone") if undone else "")
        aside = theme.zoomed_pixels(10) + QFontMetrics(theme.build_font()).horizontalAdvance(said)
        metrics = QFontMetrics(bold)
        name = metrics.elidedText(
            fold_sentences.describe_event_title(event), Qt.TextElideMode.ElideRight, int(right - left) - aside
        )
        head = QRectF(left, place.top() + theme.zoomed_pixels(4), right - left, theme.zoomed_pixels(20))
        painter.setFont(bold)
        painter.setPen(theme.colour_of_token("muted" if undone else "text"))
        painter.drawText(head, Qt.AlignmentFlag.AlignVCenter, name)
        painter.setFont(theme.build_font())
        painter.setPen(theme.colour_of_token("faint"))
        after = head.adjusted(metrics.horizontalAdvance(name) + theme.zoomed_pixels(10), 0, 0, 0)
        painter.drawText(after, Qt.AlignmentFlag.AlignVCenter, said)
        painter.setPen(theme.colour_of_token("muted"))
        below = head.translated(0, theme.zoomed_pixels(19.5))
        text = QFontMetrics(theme.build_font()).elidedText(
            fold_sentences.describe_event_briefly(event, model.window), Qt.TextElideMode.ElideRight, int(below.width())
        )
        painter.drawText(below, Qt.AlignmentFlag.AlignVCenter, text)


class FoldList(QListView):
    """`chosen` carries the Event."""

    chosen = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = FoldRows(self)
        self.setModel(self.rows)
        self.setItemDelegate(_FoldRowPainter(theme, self))
        self.setUniformItemSizes(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAccessibleName(tr("Folds, newest first"))
        self.selectionModel().currentChanged.connect(self._on_fold_selected)
        theme.changed.connect(self._relayout_fold_rows)

    def show_fold_events(self, events: Sequence[TimelineEvent], window: int, *, keep: TimelineEvent | None) -> None:
        """Replaces the rows. The chosen event stays selected if it is among them."""
        place = self.verticalScrollBar().value()
        self.selectionModel().blockSignals(True)
        self.rows.set_row_events(events, window)
        self.select_fold_event(keep)
        self.selectionModel().blockSignals(False)
        self.verticalScrollBar().setValue(place)
        self.viewport().update()

    def select_fold_event(self, event: TimelineEvent | None) -> None:
        row = next((i for i, each in enumerate(self.rows.items) if each is event), -1)
        if row >= 0:
            self.setCurrentIndex(self.rows.index(row))

    def _on_fold_selected(self, index: QModelIndex, _: QModelIndex) -> None:
        if index.isValid():
            self.chosen.emit(self.rows.items[index.row()])

    def _relayout_fold_rows(self) -> None:
        self.scheduleDelayedItemsLayout()
        self.viewport().update()


def filter_events_by_kind(events: Sequence[TimelineEvent], kinds: frozenset[FoldKind]) -> list[TimelineEvent]:
    """Returns the events of these kinds (of all kinds if none is given), newest first."""
    return [event for event in reversed(events) if not kinds or event.fold_kind in kinds]
