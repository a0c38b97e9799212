"""The conversations of a workspace as a list that paints itself: no widget per row, rows fetched as they are needed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum

from PySide6.QtCore import (
    QAbstractListModel,
    QDate,
    QLocale,
    QModelIndex,
    QPoint,
    QRect,
    QRectF,
    QSize,
    Qt,
    Signal,
)
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter, QPen
from PySide6.QtWidgets import QAbstractItemView, QListView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from helix_desktop.engine.events import Running
from helix_desktop.engine.rows import ConversationRow
from helix_desktop.gui.frame.rail import state_words
from helix_desktop.gui.icons import icon
from helix_desktop.gui.shared.list_rows import Index
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.drawing import right_to_left
from helix_desktop.gui.transcript.harmless import hint
from helix_desktop.gui.words import tr
from helix_desktop.values import dataclass

FETCHED = 200
DAY = 86_400
ROW, TWO_LINES, HEADING = 34, 52, 30


class Role(IntEnum):
    ROW = Qt.ItemDataRole.UserRole
    RUNNING = Qt.ItemDataRole.UserRole + 1


@dataclass(frozen=True, slots=True)
class Heading:
    """A group's name between the rows."""

    text: str


def when(updated: float, now: float) -> str:
    """How long ago, in two or three characters: now, 5m, 3h, Tue, 4 Mar."""
    past = max(now - updated, 0)
    if past < 60:
        return tr("now")
    if past < 3_600:
        return tr("{n}m", n=int(past // 60))
    there, here = datetime.fromtimestamp(updated).astimezone(), datetime.fromtimestamp(now).astimezone()
    if there.date() == here.date():
        return tr("{n}h", n=int(past // 3_600))
    if past < 6 * DAY:
        return QLocale().dayName(there.isoweekday(), QLocale.FormatType.ShortFormat)
    recent = past < 300 * DAY or there.year == here.year
    return QLocale().toString(QDate(there.year, there.month, there.day), "d MMM" if recent else "yyyy")


def grouped(
    rows: Sequence[ConversationRow], *, words: str = "", place: str = "", now: float
) -> list[Heading | ConversationRow]:
    """Pinned, then today, then earlier, newest first. `place`: "" for the usual list, "archived" or "trashed"."""
    wanted = words.casefold().split()
    shown: list[ConversationRow] = [
        row
        for row in rows
        if not row.parent
        and (row.trashed if place == "trashed" else not row.trashed)
        and (place == "trashed" or row.archived == (place == "archived"))
        and (not wanted or all(word in row.title.casefold() for word in wanted))
    ]
    shown.sort(key=lambda row: row.updated, reverse=True)
    midnight = datetime.fromtimestamp(now).astimezone().replace(hour=0, minute=0, second=0).timestamp()
    if place:
        name = tr("Trash") if place == "trashed" else tr("Archive")
        archive: list[Heading | ConversationRow] = [Heading(name), *shown]
        return archive if shown else []
    groups: tuple[tuple[str, list[ConversationRow]], ...] = (
        (tr("Pinned"), [row for row in shown if row.pinned]),
        (tr("Today"), [row for row in shown if not row.pinned and row.updated >= midnight]),
        (tr("Earlier"), [row for row in shown if not row.pinned and row.updated < midnight]),
    )
    lines: list[Heading | ConversationRow] = []
    for name, of_group in groups:
        if of_group:
            lines.append(Heading(name))
            lines.extend(of_group)
    return lines


class Conversations(QAbstractListModel):
    """The lines of the list; the first `FETCHED`, more when the user gets there. `grown`: a line may have another height."""

    grown = Signal(QModelIndex)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._lines: list[Heading | ConversationRow] = []
        self._fetched = 0
        self._minute = 0  # in which the ages were last shown
        self._running: dict[str, Running] = {}

    def show_lines(self, lines: list[Heading | ConversationRow]) -> None:
        """Replace the lines; where only their content changed, the view keeps its place."""
        if len(lines) == len(self._lines) and all(map(_same, self._lines, lines)):
            before, self._lines = self._lines, lines
            aged, self._minute = int(time.time() // 60) != self._minute, int(time.time() // 60)
            for at in range(self._fetched):
                if aged or before[at] != lines[at]:
                    self.dataChanged.emit(self.index(at), self.index(at))
                    if _writer(before[at]) != _writer(lines[at]):
                        self.grown.emit(self.index(at))
            return
        self.beginResetModel()
        self._lines = lines
        self._fetched = min(len(lines), max(self._fetched, FETCHED))
        self.endResetModel()

    def show_running(self, conversation: str, running: Running) -> None:
        if self._running.get(conversation, Running.IDLE) is running:
            return
        self._running[conversation] = running
        at = self.row_of(conversation)
        if 0 <= at < self._fetched:
            self.dataChanged.emit(self.index(at), self.index(at))
            self.grown.emit(self.index(at))

    def row_of(self, conversation: str) -> int:
        """The line of a conversation, or -1."""
        return next((at for at, line in enumerate(self._lines) if _key(line) == conversation), -1)

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else self._fetched

    def canFetchMore(self, parent: Index) -> bool:
        return self._fetched < len(self._lines)

    def fetchMore(self, parent: Index) -> None:
        more = min(FETCHED, len(self._lines) - self._fetched)
        self.beginInsertRows(QModelIndex(), self._fetched, self._fetched + more - 1)
        self._fetched += more
        self.endInsertRows()

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid() or isinstance(self._lines[index.row()], Heading):
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        line = self._lines[index.row()]
        if role == Role.ROW:
            return line
        if isinstance(line, Heading):
            return line.text if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole) else None
        running = self._running.get(line.id, Running.IDLE)
        return running if role == Role.RUNNING else _words_of(line, running, role)


def _words_of(row: ConversationRow, running: Running, role: int) -> str | None:
    if role == Qt.ItemDataRole.DisplayRole:
        return row.title
    if role == Qt.ItemDataRole.AccessibleTextRole:
        state = "" if running is Running.IDLE else f", {state_words(running)}"
        return _spoken_title(row) + state
    if role == Qt.ItemDataRole.ToolTipRole:
        return hint(_spoken_title(row))
    return None


def _writer(line: Heading | ConversationRow) -> str:
    return "" if isinstance(line, Heading) else line.agent or line.machine


def has_second_line(row: ConversationRow, running: Running) -> bool:
    """Whether there is something to say of a conversation beside its title."""
    return running is not Running.IDLE or bool(_writer(row))


def _spoken_title(row: ConversationRow) -> str:
    """With the name before it of the connected agent that writes there, or of the other computer."""
    writer = row.agent or row.machine
    return f"{writer}: {row.title}" if writer else row.title


def _same(one: Heading | ConversationRow, other: Heading | ConversationRow) -> bool:
    return one is other or _key(one) == _key(other)


def _key(line: Heading | ConversationRow) -> str:
    return f"\0{line.text}" if isinstance(line, Heading) else line.id


class ConversationPainter(QStyledItemDelegate):
    """Paints a line: the title and the age; a second line only where there is something to say."""

    def __init__(self, theme: Theme, view: QWidget) -> None:
        super().__init__(view)
        self._theme = theme
        self._view = view

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        line = index.data(Role.ROW)
        if isinstance(line, Heading):
            return QSize(120, self._theme.px(HEADING))
        told = has_second_line(line, Running(index.data(Role.RUNNING)))
        return QSize(120, self._theme.px(TWO_LINES if told else ROW))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        line, rect = index.data(Role.ROW), QRect(option.rect)
        if isinstance(line, Heading):
            self._paint_heading(painter, rect, line)
        else:
            self._paint_row(painter, rect, line, option, Running(index.data(Role.RUNNING)))
        painter.restore()

    def _paint_heading(self, painter: QPainter, rect: QRect, heading: Heading) -> None:
        px = self._theme.px
        painter.setFont(self._theme.font(11))
        painter.setPen(self._theme.colour("faint"))
        box = rect.adjusted(px(16), px(10), -px(16), -px(4))
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading, heading.text)

    def _paint_row(
        self, painter: QPainter, rect: QRect, row: ConversationRow, option: QStyleOptionViewItem, running: Running
    ) -> None:
        theme, px = self._theme, self._theme.px
        state = option.state
        card = rect.adjusted(px(8), 0, -px(8), 0)
        if state & QStyle.StateFlag.State_Selected or state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(Qt.PenStyle.NoPen)
            selected = bool(state & QStyle.StateFlag.State_Selected)
            painter.setBrush(theme.colour("selected" if selected else "rail"))
            painter.drawRoundedRect(card, 8, 8)
        if state & QStyle.StateFlag.State_HasFocus and state & QStyle.StateFlag.State_KeyboardFocusChange:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(theme.colour("accent"), 1))
            painter.drawRoundedRect(QRectF(card).adjusted(0.5, 0.5, -0.5, -0.5), 8, 8)
        inner = card.adjusted(px(10), px(7), -px(10), -px(7))
        self._paint_title(painter, inner, row)
        if has_second_line(row, running):
            self._paint_second_line(painter, inner, row, running)

    def _paint_title(self, painter: QPainter, inner: QRect, row: ConversationRow) -> None:
        theme, px = self._theme, self._theme.px
        box = QRect(inner.left(), inner.top(), inner.width(), px(19.5))
        painter.setFont(theme.font(11))
        painter.setPen(theme.colour("faint"))
        age = when(row.updated, time.time())
        width = QFontMetrics(painter.font()).horizontalAdvance(age) + px(1)
        place = QRect(box.right() - width, box.top(), width + px(1), box.height())
        painter.drawText(self._placed(inner, place), Qt.AlignmentFlag.AlignVCenter, age)
        box.setRight(place.left() - px(8))
        if row.pinned:
            pin = QRect(box.right() - px(12), box.top() + px(4), px(12), px(12))
            icon("pin", theme.colour("faint")).paint(painter, self._placed(inner, pin))
            box.setRight(pin.left() - px(4))
        box = self._placed(inner, box)
        painter.setFont(theme.font(13))
        painter.setPen(theme.colour("text"))
        title, usual = row.title or tr("New conversation"), painter.layoutDirection()
        if right_to_left(title):
            painter.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
        shown = QFontMetrics(painter.font()).elidedText(title, Qt.TextElideMode.ElideRight, box.width())
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading, shown)
        painter.setLayoutDirection(usual)

    def _paint_second_line(self, painter: QPainter, inner: QRect, row: ConversationRow, running: Running) -> None:
        """What it is doing, and who else writes there."""
        theme, px = self._theme, self._theme.px
        line = QRect(inner.left(), inner.bottom() + 1 - px(16.5), inner.width(), px(16.5))
        painter.setFont(theme.font(11))
        metrics, left = QFontMetrics(painter.font()), line.left()
        colour = {Running.ASKING: "handover_text", Running.FAILED: "danger"}.get(running, "output_text")
        state = "" if running is Running.IDLE else state_words(running)
        writer = _writer(row)
        told = [(state, colour), (f" · {writer}" if state and writer else writer, "muted")]
        for words, name in told:
            painter.setPen(theme.colour(name))
            shown = metrics.elidedText(words, Qt.TextElideMode.ElideRight, line.right() - left)
            width = metrics.horizontalAdvance(shown) + 1
            place = self._placed(line, QRect(left, line.top(), width, line.height()))
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, shown)
            left += width

    def _placed(self, within: QRect, rect: QRect) -> QRect:
        """Where it goes in the view's direction of reading."""
        return QStyle.visualRect(self._view.layoutDirection(), within, rect)


class ConversationList(QListView):
    """`opened`: the user chose a conversation. `menu_wanted`: its context menu, at a point on the screen."""

    opened = Signal(str)
    menu_wanted = Signal(str, QPoint)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.lines = Conversations(self)
        self.setModel(self.lines)
        painter = ConversationPainter(theme, self)
        self.setItemDelegate(painter)
        self.lines.grown.connect(painter.sizeHintChanged)
        self.setProperty("look", "side")
        self.setAccessibleName(tr("Conversations"))
        self.setMouseTracking(True)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._menu)
        self.clicked.connect(self._open)
        self.activated.connect(self._open)
        theme.changed.connect(self._restyled)

    def mark(self, conversation: str) -> None:
        """Select the open conversation without opening it again."""
        at = self.lines.row_of(conversation)
        while at >= self.lines.rowCount() and self.lines.canFetchMore(QModelIndex()):
            self.lines.fetchMore(QModelIndex())
        index = self.lines.index(at) if at >= 0 else QModelIndex()
        self.setCurrentIndex(index)

    def current(self) -> str:
        return self._id(self.currentIndex())

    def neighbour(self, steps: int) -> str:
        """The conversation so many rows further down (or up), past headings; empty at the ends."""
        at = self.currentIndex().row() + steps
        while 0 <= at < self.lines.rowCount():
            found = self._id(self.lines.index(at))
            if found:
                return found
            at += 1 if steps > 0 else -1
        return ""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Menu or (
            event.key() == Qt.Key.Key_F10 and event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        ):
            self._menu(self.visualRect(self.currentIndex()).center())
            return
        super().keyPressEvent(event)

    def _id(self, index: Index) -> str:
        line = index.data(Role.ROW) if index.isValid() else None
        return "" if line is None or isinstance(line, Heading) else str(line.id)

    def _open(self, index: QModelIndex) -> None:
        found = self._id(index)
        if found:
            self.opened.emit(found)

    def _menu(self, at: QPoint) -> None:
        found = self._id(self.indexAt(at))
        if found:
            self.menu_wanted.emit(found, self.viewport().mapToGlobal(at))

    def _restyled(self) -> None:
        self.scheduleDelayedItemsLayout()
        self.viewport().update()
