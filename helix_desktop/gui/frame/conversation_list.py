"""The list of a workspace's conversations. It draws and fetches rows on demand, without widgets."""

import time
from collections.abc import Sequence
from datetime import datetime
from enum import IntEnum

from PySide6 import (
    QtWidgets,
)  # for QStyle: importing it itself would create its 500 members at the start
from PySide6.QtCore import QAbstractListModel, QModelIndex, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QApplication,
    QListView,
    QStyleOptionViewItem,
    QWidget,
)

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_dollars, format_short_day
from helix_desktop.gui.common.list_row_model import Index, RowPainter
from helix_desktop.gui.common.running_states import describe_running_state
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.transcript.safe_text import is_right_to_left, make_safe_text, safe_tooltip
from helix_desktop.gui.translation import tr

ROWS_PER_FETCH = 200
MOST_OVERLAPS = 3  # The maximum number of files changed elsewhere that a row names.
ROW, TWO_LINES, HEADING = 34, 52, 30


class ConversationListRole(IntEnum):
    ROW = Qt.ItemDataRole.UserRole
    RUNNING = Qt.ItemDataRole.UserRole + 1


@dataclass(frozen=True, slots=True)
class ConversationGroupHeading:
    text: str


def format_age(updated: float, now: float) -> str:
    """Formats an age in a few characters: now, 5m, 3h, Tue, 4 Mar."""
    past = max(now - updated, 0)
    if past < 60:
        return tr("now")
    if past < 3_600:
        return tr("{n}m", n=int(past // 60))
    there, here = (
        datetime.fromtimestamp(updated).astimezone(),
        datetime.fromtimestamp(now).astimezone(),
    )
    if there.date() == here.date():
        return tr("{n}h", n=int(past // 3_600))
    return format_short_day(updated, now)


def group_conversations(
    rows: Sequence[ConversationListRow], *, words: str = "", place: str = "", now: float
) -> list[ConversationGroupHeading | ConversationListRow]:
    """Groups rows as pinned, today and earlier, newest first. `place`: "" (usual),
    "archived" or "trashed".
    """
    wanted_words = words.casefold().split()
    shown = [
        row for row in rows if _is_in_place(row, place) and _has_words_in_title(row, wanted_words)
    ]
    shown.sort(key=lambda row: row.updated, reverse=True)
    lines: list[ConversationGroupHeading | ConversationListRow] = []
    for name, group in _split_into_groups(shown, place, now):
        if group:
            lines.append(ConversationGroupHeading(name))
            lines.extend(group)
    return lines


def _is_in_place(row: ConversationListRow, place: str) -> bool:
    """Whether the row is listed there. A sub-agent's conversation is listed below its parent's."""
    if row.parent:
        return False
    if place == "trashed" or row.trashed:
        return place == "trashed" and row.trashed
    return row.archived == (place == "archived")


def _has_words_in_title(row: ConversationListRow, words: Sequence[str]) -> bool:
    title = row.title.casefold()
    return all(word in title for word in words)


def _split_into_groups(
    rows: list[ConversationListRow], place: str, now: float
) -> list[tuple[str, list[ConversationListRow]]]:
    if place:
        return [(tr("Trash") if place == "trashed" else tr("Archive"), rows)]
    # Python decides about daylight saving.
    midnight = time.mktime((*time.localtime(now)[:3], 0, 0, 0, 0, 0, -1))
    pinned: list[ConversationListRow] = []
    today: list[ConversationListRow] = []
    earlier: list[ConversationListRow] = []
    for row in rows:
        if row.pinned:
            pinned.append(row)
        elif row.updated >= midnight:
            today.append(row)
        else:
            earlier.append(row)
    return [(tr("Pinned"), pinned), (tr("Today"), today), (tr("Earlier"), earlier)]


class ConversationListModel(QAbstractListModel):
    """The first `ROWS_PER_FETCH` rows, and more when the user scrolls to the end."""

    row_height_changed = Signal(QModelIndex)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._lines: list[ConversationGroupHeading | ConversationListRow] = []
        self._fetched_count = 0
        self._minute = 0  # The minute in which the rows' ages were last computed.
        self._running: dict[str, ConversationActivity] = {}

    def replace_list_lines(
        self, lines: list[ConversationGroupHeading | ConversationListRow]
    ) -> None:
        """Replaces the lines. If only their content changed, the view keeps its scroll position."""
        if len(lines) == len(self._lines) and all(
            one is other or _key_of_line(one) == _key_of_line(other)
            for one, other in zip(self._lines, lines, strict=True)
        ):
            before, self._lines = self._lines, lines
            aged, self._minute = int(time.time() // 60) != self._minute, int(time.time() // 60)
            for at in range(self._fetched_count):
                if aged or before[at] != lines[at]:
                    self.dataChanged.emit(self.index(at), self.index(at))
                    if _describe_second_line(before[at]) != _describe_second_line(lines[at]):
                        self.row_height_changed.emit(self.index(at))
            return
        self.beginResetModel()
        self._lines = lines
        self._fetched_count = min(len(lines), max(self._fetched_count, ROWS_PER_FETCH))
        self.endResetModel()

    def update_running_state(self, conversation: str, running: ConversationActivity) -> None:
        if self._running.get(conversation, ConversationActivity.IDLE) is running:
            return
        self._running[conversation] = running
        at = self.find_conversation_row(conversation)
        if 0 <= at < self._fetched_count:
            self.dataChanged.emit(self.index(at), self.index(at))
            self.row_height_changed.emit(self.index(at))

    def find_conversation_row(self, conversation: str) -> int:
        return next(
            (at for at, line in enumerate(self._lines) if _key_of_line(line) == conversation), -1
        )

    def rowCount(self, parent: Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else self._fetched_count

    def canFetchMore(self, parent: Index) -> bool:
        return self._fetched_count < len(self._lines)

    def fetchMore(self, parent: Index) -> None:
        more = min(ROWS_PER_FETCH, len(self._lines) - self._fetched_count)
        self.beginInsertRows(QModelIndex(), self._fetched_count, self._fetched_count + more - 1)
        self._fetched_count += more
        self.endInsertRows()

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid() or isinstance(self._lines[index.row()], ConversationGroupHeading):
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        line = self._lines[index.row()]
        if role == ConversationListRole.ROW:
            return line
        if isinstance(line, ConversationGroupHeading):
            return (
                line.text
                if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole)
                else None
            )
        running = self._running.get(line.id, ConversationActivity.IDLE)
        return (
            running
            if role == ConversationListRole.RUNNING
            else _row_text_for_role(line, running, role)
        )


def _row_text_for_role(
    row: ConversationListRow, running: ConversationActivity, role: int
) -> str | None:
    if role == Qt.ItemDataRole.DisplayRole:
        return row.title
    if role == Qt.ItemDataRole.AccessibleTextRole:
        state = (
            "" if running is ConversationActivity.IDLE else f", {describe_running_state(running)}"
        )
        return _title_with_second_line(row, running) + state
    if role == Qt.ItemDataRole.ToolTipRole:
        return safe_tooltip(_title_with_second_line(row, running))
    return None


def _describe_second_line(
    line: ConversationGroupHeading | ConversationListRow,
    running: ConversationActivity = ConversationActivity.IDLE,
) -> str:
    """Describes an interrupted turn, another agent, a working copy, and files that
    other conversations change, too.
    """
    if isinstance(line, ConversationGroupHeading):
        return ""
    broken = (
        tr("interrupted") if line.is_interrupted and running is ConversationActivity.IDLE else ""
    )
    writer = line.agent or line.machine or make_safe_text(line.acp_agent) or line.recorded_from
    return " · ".join(
        filter(None, (broken, describe_overlaps(line), writer, describe_copy_of(line)))
    )


def describe_copy_of(row: ConversationListRow) -> str:
    return tr("copy of {branch}", branch=make_safe_text(row.copy)) if row.copy else ""


def describe_overlaps(row: ConversationListRow) -> str:
    files = [make_safe_text(path.rpartition("/")[2]) for path in row.overlaps[:MOST_OVERLAPS]]
    return tr("also changed in other copies: {files}", files=", ".join(files)) if files else ""


def has_second_line(row: ConversationListRow, running: ConversationActivity) -> bool:
    return running is not ConversationActivity.IDLE or bool(_describe_second_line(row))


def _title_with_second_line(row: ConversationListRow, running: ConversationActivity) -> str:
    told = _describe_second_line(row, running)
    return f"{told}: {row.title}" if told else row.title


def _key_of_line(line: ConversationGroupHeading | ConversationListRow) -> str:
    return f"\0{line.text}" if isinstance(line, ConversationGroupHeading) else line.id


class ConversationRowPainter(RowPainter):
    """Paints the title and the age, and a second line only if necessary."""

    def __init__(self, theme: Theme, view: QWidget) -> None:
        super().__init__(theme, view, ROW)
        self._view = view

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        line = index.data(ConversationListRole.ROW)
        if isinstance(line, ConversationGroupHeading):
            return QSize(120, self._theme.zoomed_pixels(HEADING))
        told = has_second_line(line, ConversationActivity(index.data(ConversationListRole.RUNNING)))
        return QSize(120, self._theme.zoomed_pixels(TWO_LINES if told else ROW))

    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        line, rect = index.data(ConversationListRole.ROW), QRect(option.rect)
        theme, px, state = self._theme, self._theme.zoomed_pixels, option.state
        if isinstance(line, ConversationGroupHeading):
            box, how = rect.adjusted(px(16), px(10), -px(16), -px(4)), Qt.AlignmentFlag.AlignLeading
            theme.draw_words(
                painter,
                box,
                line.text,
                theme.build_font(11),
                "faint",
                Qt.AlignmentFlag.AlignVCenter | how,
            )
            return
        running = ConversationActivity(index.data(ConversationListRole.RUNNING))
        card = rect.adjusted(px(8), 0, -px(8), 0)
        if state & QtWidgets.QStyle.StateFlag.State_Selected:
            theme.fill_surface(painter, card, "selected", 8)
        elif state & QtWidgets.QStyle.StateFlag.State_MouseOver:
            theme.fill_surface(painter, card, "rail", 8)
        inner = card.adjusted(px(10), px(7), -px(10), -px(7))
        self._draw_conversation_title(painter, inner, line)
        if has_second_line(line, running):
            self._draw_second_line(painter, inner, line, running)

    def _draw_conversation_title(
        self, painter: QPainter, inner: QRect, row: ConversationListRow
    ) -> None:
        theme, px = self._theme, self._theme.zoomed_pixels
        box = QRect(inner.left(), inner.top(), inner.width(), px(19.5))
        painter.setFont(theme.build_font(11))
        painter.setPen(theme.colour_of_token("faint"))
        age = format_age(row.updated, time.time())
        width = QFontMetrics(painter.font()).horizontalAdvance(age) + px(1)
        place = QRect(box.right() - width, box.top(), width + px(1), box.height())
        painter.drawText(
            self._mirror_for_reading_direction(inner, place), Qt.AlignmentFlag.AlignVCenter, age
        )
        box.setRight(place.left() - px(8))
        if row.pinned:
            pin = QRect(box.right() - px(12), box.top() + px(4), px(12), px(12))
            build_icon("pin", theme.colour_of_token("faint")).paint(
                painter, self._mirror_for_reading_direction(inner, pin)
            )
            box.setRight(pin.left() - px(4))
        box = self._mirror_for_reading_direction(inner, box)
        painter.setFont(theme.build_font(13))
        painter.setPen(theme.colour_of_token("text"))
        title, usual = row.title or tr("New conversation"), painter.layoutDirection()
        if is_right_to_left(title):
            painter.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
        # What tells a copy from its original stands at the end, as in "Read the report (restored)".
        elided = (
            Qt.TextElideMode.ElideMiddle if title.endswith(")") else Qt.TextElideMode.ElideRight
        )
        shown = QFontMetrics(painter.font()).elidedText(title, elided, box.width())
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading, shown)
        painter.setLayoutDirection(usual)

    def _draw_second_line(
        self,
        painter: QPainter,
        inner: QRect,
        row: ConversationListRow,
        running: ConversationActivity,
    ) -> None:
        theme, px = self._theme, self._theme.zoomed_pixels
        line = QRect(inner.left(), inner.bottom() + 1 - px(16.5), inner.width(), px(16.5))
        painter.setFont(theme.build_font(11))
        metrics, left = QFontMetrics(painter.font()), line.left()
        colour = {
            ConversationActivity.ASKING: "handover_text",
            ConversationActivity.FAILED: "danger",
        }.get(running, "output_text")
        state = "" if running is ConversationActivity.IDLE else describe_running_state(running)
        writer, is_bad = _describe_second_line(row, running), row.overlaps or row.is_interrupted
        told = [
            (state, colour),
            (f" · {writer}" if state and writer else writer, "danger" if is_bad else "muted"),
        ]
        if row.whole_cost:
            told.append((f" · {format_dollars(row.whole_cost)}", "faint"))
        for words, name in told:
            painter.setPen(theme.colour_of_token(name))
            shown = metrics.elidedText(words, Qt.TextElideMode.ElideRight, line.right() - left)
            width = metrics.horizontalAdvance(shown) + 1
            place = self._mirror_for_reading_direction(
                line, QRect(left, line.top(), width, line.height())
            )
            painter.drawText(place, Qt.AlignmentFlag.AlignVCenter, shown)
            left += width

    def _mirror_for_reading_direction(self, within: QRect, rect: QRect) -> QRect:
        return QtWidgets.QStyle.visualRect(self._view.layoutDirection(), within, rect)


class ConversationList(QListView):
    """`opened`: a conversation was chosen; with Ctrl, `beside_wanted`. `menu_wanted`
    carries a point.
    """

    opened = Signal(str)
    beside_wanted = Signal(str)
    menu_wanted = Signal(str, QPoint)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.lines = ConversationListModel(self)
        self.setModel(self.lines)
        painter = ConversationRowPainter(theme, self)
        self.setItemDelegate(painter)
        self.lines.row_height_changed.connect(painter.sizeHintChanged)
        self.setProperty("look", "side")
        self.setAccessibleName(tr("Conversations"))
        self.setMouseTracking(True)
        self.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._request_conversation_menu)
        self.clicked.connect(self._request_opening_conversation)
        self.activated.connect(self._request_opening_conversation)
        theme.changed.connect(self.scheduleDelayedItemsLayout)

    def select_conversation(self, conversation: str) -> None:
        at = self.lines.find_conversation_row(conversation)
        while at >= self.lines.rowCount() and self.lines.canFetchMore(QModelIndex()):
            self.lines.fetchMore(QModelIndex())
        self.setCurrentIndex(self.lines.index(at) if at >= 0 else QModelIndex())

    def selected_conversation_id(self) -> str:
        return self._conversation_id_at(self.currentIndex())

    def find_neighbour_conversation(self, steps: int) -> str:
        """Returns the conversation `steps` rows below (or above) the open one. Empty
        beyond the ends.
        """
        at = self.currentIndex().row() + steps
        while 0 <= at < self.lines.rowCount():
            if found := self._conversation_id_at(self.lines.index(at)):
                return found
            at += 1 if steps > 0 else -1
        return ""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() == Qt.Key.Key_Menu or (
            event.key() == Qt.Key.Key_F10 and event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        ):
            self._request_conversation_menu(self.visualRect(self.currentIndex()).center())
            return
        super().keyPressEvent(event)

    def _conversation_id_at(self, index: Index) -> str:
        line = index.data(ConversationListRole.ROW) if index.isValid() else None
        return "" if line is None or isinstance(line, ConversationGroupHeading) else str(line.id)

    def _request_opening_conversation(self, index: QModelIndex) -> None:
        if found := self._conversation_id_at(index):
            with_control = QApplication.keyboardModifiers() & Qt.KeyboardModifier.ControlModifier
            (self.beside_wanted if with_control else self.opened).emit(found)

    def _request_conversation_menu(self, at: QPoint) -> None:
        if found := self._conversation_id_at(self.indexAt(at)):
            self.menu_wanted.emit(found, self.viewport().mapToGlobal(at))
