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

from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.facts import FoldKind
from helix_desktop.gui.shared.figures import clock, day
from helix_desktop.gui.shared.folds import colour_kind
from helix_desktop.gui.shared.list_rows import Index, ListRows
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline import sentences
from helix_desktop.gui.timeline.story import Event
from helix_desktop.gui.words import tr

ROW = 59
LEFT = 24


class FoldRows(ListRows[Event]):
    """Events as rows. `window`: of the model, in tokens."""

    window = 0

    def show_events(self, events: Sequence[Event], window: int) -> None:
        self.window = window
        self.show(events)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
            event = self.items[index.row()]
            undone = ", " + tr("undone") if self.is_undone(event) else ""
            return f"{sentences.title(event)}, {day(event.time)}, {sentences.line(event, self.window)}{undone}"
        return None

    def is_undone(self, event: Event) -> bool:
        return bool(event.made) and not event.live


class _Drawn(QStyledItemDelegate):
    def __init__(self, theme: Theme, parent: QListView) -> None:
        super().__init__(parent)
        self._theme = theme

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, self._theme.px(ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        model = index.model()
        if not isinstance(model, FoldRows):
            return
        theme, event = self._theme, model.items[index.row()]
        place = QRectF(option.rect)
        chosen = bool(option.state & QStyle.StateFlag.State_Selected)
        painter.save()
        painter.setLayoutDirection(Qt.LayoutDirection.LeftToRight)  # ring, words and time have their places
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if chosen:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.colour("selected"))
            painter.drawRoundedRect(place.adjusted(theme.px(LEFT + 18), 0, -theme.px(20), -theme.px(12)), 8, 8)
        self._paint_ring(painter, place, event, first=index.row() == 0, last=index.row() == len(model.items) - 1)
        self._paint_words(painter, place, event, model)
        painter.restore()

    def _paint_ring(self, painter: QPainter, place: QRectF, event: Event, *, first: bool, last: bool) -> None:
        theme = self._theme
        x = place.left() + theme.px(LEFT + 8)
        middle = place.top() + theme.px(14)
        top, bottom = (middle if first else place.top()), (middle + theme.px(24) if last else place.bottom())
        painter.fillRect(QRectF(x - 1, top, 2, bottom - top), theme.colour("line"))
        colour = theme.kind(colour_kind(event.kind) if event.kind is not None else Kind.OUTPUT)
        painter.setPen(QPen(colour, theme.px(3)))
        painter.setBrush(theme.colour("panel"))
        radius = theme.px(15) / 2
        painter.drawEllipse(QPointF(x + 0.5, middle), radius, radius)

    def _paint_words(self, painter: QPainter, place: QRectF, event: Event, model: FoldRows) -> None:
        theme = self._theme
        left, right = place.left() + theme.px(LEFT + 26), place.right() - theme.px(26)
        undone = model.is_undone(event)
        bold = theme.font(weight=QFont.Weight.DemiBold)
        bold.setStrikeOut(undone)
        said = clock(event.time) + (" · " + tr("undone") if undone else "")
        aside = theme.px(10) + QFontMetrics(theme.font()).horizontalAdvance(said)
        metrics = QFontMetrics(bold)
        name = metrics.elidedText(sentences.title(event), Qt.TextElideMode.ElideRight, int(right - left) - aside)
        head = QRectF(left, place.top() + theme.px(4), right - left, theme.px(20))
        painter.setFont(bold)
        painter.setPen(theme.colour("muted" if undone else "text"))
        painter.drawText(head, Qt.AlignmentFlag.AlignVCenter, name)
        painter.setFont(theme.font())
        painter.setPen(theme.colour("faint"))
        after = head.adjusted(metrics.horizontalAdvance(name) + theme.px(10), 0, 0, 0)
        painter.drawText(after, Qt.AlignmentFlag.AlignVCenter, said)
        painter.setPen(theme.colour("muted"))
        below = head.translated(0, theme.px(19.5))
        text = QFontMetrics(theme.font()).elidedText(
            sentences.line(event, model.window), Qt.TextElideMode.ElideRight, int(below.width())
        )
        painter.drawText(below, Qt.AlignmentFlag.AlignVCenter, text)


class FoldList(QListView):
    """`chosen` carries the Event."""

    chosen = Signal(object)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.rows = FoldRows(self)
        self.setModel(self.rows)
        self.setItemDelegate(_Drawn(theme, self))
        self.setUniformItemSizes(True)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setAccessibleName(tr("Folds, newest first"))
        self.selectionModel().currentChanged.connect(self._current)
        theme.changed.connect(self._restyled)

    def show_events(self, events: Sequence[Event], window: int, *, keep: Event | None) -> None:
        """Other rows; the chosen event stays chosen where it is among them."""
        place = self.verticalScrollBar().value()
        self.selectionModel().blockSignals(True)
        self.rows.show_events(events, window)
        self.select(keep)
        self.selectionModel().blockSignals(False)
        self.verticalScrollBar().setValue(place)
        self.viewport().update()

    def select(self, event: Event | None) -> None:
        row = next((i for i, each in enumerate(self.rows.items) if each is event), -1)
        if row >= 0:
            self.setCurrentIndex(self.rows.index(row))

    def _current(self, index: QModelIndex, _: QModelIndex) -> None:
        if index.isValid():
            self.chosen.emit(self.rows.items[index.row()])

    def _restyled(self) -> None:
        self.scheduleDelayedItemsLayout()
        self.viewport().update()


def filtered(events: Sequence[Event], kinds: frozenset[FoldKind]) -> list[Event]:
    """The events of these kinds, all without any; the newest first."""
    return [event for event in reversed(events) if not kinds or event.kind in kinds]
