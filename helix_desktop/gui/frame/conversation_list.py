"""The list of a workspace's conversations. It draws and fetches rows on demand, without widgets."""

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import IntEnum

# QtWidgets is for QStyle: importing it itself would create its 500 members at the start.
from PySide6 import QtWidgets
from PySide6.QtCore import QAbstractListModel, QModelIndex, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QMouseEvent, QPainter
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
from helix_desktop.gui.common.figure_formats import (
    format_dollars,
    format_short_day,
    format_time_of_day,
)
from helix_desktop.gui.common.list_row_model import Index, RowPainter
from helix_desktop.gui.common.running_states import describe_running_state
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.transcript.safe_text import is_right_to_left, make_safe_text, safe_tooltip
from helix_desktop.gui.translation import tr

ROWS_PER_FETCH = 200
MOST_OVERLAPS = 3  # The maximum number of files changed elsewhere that a row names.
# The heights in pixels of a conversation's row, of one with a second line, and of a heading.
ROW = 34
TWO_LINES = 52
HEADING = 30


class ConversationListRole(IntEnum):
    ROW = Qt.ItemDataRole.UserRole
    RUNNING = Qt.ItemDataRole.UserRole + 1


@dataclass(frozen=True, slots=True)
class ConversationGroupHeading:
    text: str


def format_age(updated: float, now: float) -> str:
    """Formats an age in a few characters: now, 5m, 3h, Tue, 4 Mar."""
    age_seconds = max(now - updated, 0)
    if age_seconds < 60:
        return tr("now")
    if age_seconds < 3_600:
        return tr("{n}m", n=int(age_seconds // 60))
    moment_of_change = datetime.fromtimestamp(updated).astimezone()
    moment_now = datetime.fromtimestamp(now).astimezone()
    if moment_of_change.date() == moment_now.date():
        return tr("{n}h", n=int(age_seconds // 3_600))
    return format_short_day(updated, now)


def format_age_below_heading(row: ConversationListRow, now: float) -> str:
    """Formats a row's age. Where the heading says “Yesterday”, it is the time of day."""
    has_age_in_heading = not (row.pinned or row.archived or row.trashed)
    day = datetime.fromtimestamp(row.updated).astimezone().date()
    today = datetime.fromtimestamp(now).astimezone().date()
    is_of_yesterday = day == today - timedelta(days=1)
    is_older_than_an_hour = now - row.updated >= 3_600
    if has_age_in_heading and is_of_yesterday and is_older_than_an_hour:
        return format_time_of_day(row.updated)
    return format_age(row.updated, now)


def group_conversations(
    rows: Sequence[ConversationListRow], *, words: str = "", place: str = "", now: float
) -> list[ConversationGroupHeading | ConversationListRow]:
    """Groups rows as pinned, today and earlier, newest first. `place`: "" (usual),
    "archived" or "trashed".
    """
    searched_words = words.casefold().split()
    matching: list[ConversationListRow] = []
    for row in rows:
        if _is_in_place(row, place) and _has_words_in_title(row, searched_words):
            matching.append(row)
    matching.sort(key=lambda row: row.updated, reverse=True)
    if place == "trashed":
        groups = {tr("Trash"): matching}
    elif place == "archived":
        groups = {tr("Archive"): matching}
    else:
        groups = _group_by_age(matching, now)
    lines: list[ConversationGroupHeading | ConversationListRow] = []
    for heading, group in groups.items():
        if group:
            lines.append(ConversationGroupHeading(heading))
            lines.extend(group)
    return lines


def _is_in_place(row: ConversationListRow, place: str) -> bool:
    """Whether the row is listed there. A sub-agent's conversation is listed below its parent's."""
    if row.parent:
        return False
    if row.trashed:
        return place == "trashed"
    if row.archived:
        return place == "archived"
    return place == ""


def _has_words_in_title(row: ConversationListRow, words: Sequence[str]) -> bool:
    title = row.title.casefold()
    return all(word in title for word in words)


def _group_by_age(
    rows: Sequence[ConversationListRow], now: float
) -> dict[str, list[ConversationListRow]]:
    """Returns the rows of each group, by the group's heading."""
    year, month, day = time.localtime(now)[:3]
    # With -1, Python itself finds out whether daylight saving time applies.
    midnight = time.mktime((year, month, day, 0, 0, 0, 0, 0, -1))
    midnight_before = time.mktime((year, month, day - 1, 0, 0, 0, 0, 0, -1))
    pinned: list[ConversationListRow] = []
    today: list[ConversationListRow] = []
    yesterday: list[ConversationListRow] = []
    earlier: list[ConversationListRow] = []
    for row in rows:
        if row.pinned:
            pinned.append(row)
        elif row.updated >= midnight:
            today.append(row)
        elif row.updated >= midnight_before:
            yesterday.append(row)
        else:
            earlier.append(row)
    return {
        tr("Pinned"): pinned,
        tr("Today"): today,
        tr("Yesterday"): yesterday,
        tr("Earlier"): earlier,
    }


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
        if _are_same_lines_in_order(self._lines, lines):
            self._replace_content_of_lines(lines)
            return
        self.beginResetModel()
        self._lines = lines
        self._fetched_count = min(len(lines), max(self._fetched_count, ROWS_PER_FETCH))
        self.endResetModel()

    def _replace_content_of_lines(
        self, lines: list[ConversationGroupHeading | ConversationListRow]
    ) -> None:
        lines_before = self._lines
        self._lines = lines
        # A row shows its age, so every row may look different in another minute.
        minute = int(time.time() // 60)
        has_aged = minute != self._minute
        self._minute = minute
        for row_number in range(self._fetched_count):
            line_before = lines_before[row_number]
            line = lines[row_number]
            if not has_aged and line_before == line:
                continue
            index = self.index(row_number)
            self.dataChanged.emit(index, index)
            if _describe_second_line(line_before) != _describe_second_line(line):
                self.row_height_changed.emit(index)

    def update_running_state(self, conversation: str, running: ConversationActivity) -> None:
        if self._running.get(conversation, ConversationActivity.IDLE) is running:
            return
        self._running[conversation] = running
        row_number = self.find_conversation_row(conversation)
        if 0 <= row_number < self._fetched_count:
            index = self.index(row_number)
            self.dataChanged.emit(index, index)
            self.row_height_changed.emit(index)

    def find_conversation_row(self, conversation: str) -> int:
        """The number of the conversation's line, or -1."""
        for row_number, line in enumerate(self._lines):
            if _key_of_line(line) == conversation:
                return row_number
        return -1

    def rowCount(self, parent: Index | None = None) -> int:
        if parent is not None and parent.isValid():
            return 0
        return self._fetched_count

    def canFetchMore(self, parent: Index) -> bool:
        return self._fetched_count < len(self._lines)

    def fetchMore(self, parent: Index) -> None:
        new_count = min(self._fetched_count + ROWS_PER_FETCH, len(self._lines))
        self.beginInsertRows(QModelIndex(), self._fetched_count, new_count - 1)
        self._fetched_count = new_count
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
            if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.AccessibleTextRole):
                return line.text
            return None
        running = self._running.get(line.id, ConversationActivity.IDLE)
        if role == ConversationListRole.RUNNING:
            return running
        return _row_text_for_role(line, running, role)


def _row_text_for_role(
    row: ConversationListRow, running: ConversationActivity, role: int
) -> str | None:
    if role == Qt.ItemDataRole.DisplayRole:
        return row.title
    if role == Qt.ItemDataRole.AccessibleTextRole:
        text = _title_with_second_line(row, running)
        if running is not ConversationActivity.IDLE:
            text += f", {describe_running_state(running)}"
        return text
    if role == Qt.ItemDataRole.ToolTipRole:
        return safe_tooltip(_describe_row_and_cost(row, running))
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
    interrupted = ""
    if line.is_interrupted and running is ConversationActivity.IDLE:
        interrupted = tr("interrupted")
    writer = line.agent or line.machine or make_safe_text(line.acp_agent) or line.recorded_from
    parts = (interrupted, describe_overlaps(line), writer, describe_copy_of(line))
    return " · ".join(filter(None, parts))


def describe_copy_of(row: ConversationListRow) -> str:
    if not row.copy:
        return ""
    return tr("copy of {branch}", branch=make_safe_text(row.copy))


def describe_overlaps(row: ConversationListRow) -> str:
    names: list[str] = []
    for path in row.overlaps[:MOST_OVERLAPS]:
        _folder, _slash, file_name = path.rpartition("/")
        names.append(make_safe_text(file_name))
    if not names:
        return ""
    return tr("also changed in other copies: {files}", files=", ".join(names))


def has_second_line(row: ConversationListRow, running: ConversationActivity) -> bool:
    return running is not ConversationActivity.IDLE or bool(_describe_second_line(row))


def _title_with_second_line(row: ConversationListRow, running: ConversationActivity) -> str:
    second_line = _describe_second_line(row, running)
    if not second_line:
        return row.title
    return f"{second_line}: {row.title}"


def _describe_row_and_cost(row: ConversationListRow, running: ConversationActivity) -> str:
    """Returns what a row shows, and what its conversation has cost, which has no room in it."""
    words = _title_with_second_line(row, running)
    if not row.whole_cost:
        return words
    cost = tr("Cost so far: {price}", price=format_dollars(row.whole_cost))
    return f"{words}\n{cost}"


def _are_same_lines_in_order(
    lines: Sequence[ConversationGroupHeading | ConversationListRow],
    new_lines: Sequence[ConversationGroupHeading | ConversationListRow],
) -> bool:
    """Whether both lists have the same headings and conversations, whatever these show."""
    if len(lines) != len(new_lines):
        return False
    for line, new_line in zip(lines, new_lines, strict=True):
        # Most lines are the same object, and that is the cheapest comparison for a long list.
        if line is not new_line and _key_of_line(line) != _key_of_line(new_line):
            return False
    return True


def _key_of_line(line: ConversationGroupHeading | ConversationListRow) -> str:
    if isinstance(line, ConversationGroupHeading):
        # No conversation's id begins with this character.
        return f"\0{line.text}"
    return line.id


_COLOURS_OF_STATES = {
    ConversationActivity.ASKING: "handover_text",
    ConversationActivity.FAILED: "danger",
}


@dataclass(frozen=True, slots=True)
class PartOfSecondLine:
    text: str
    colour_token: str


def list_parts_of_second_line(
    row: ConversationListRow, running: ConversationActivity
) -> list[PartOfSecondLine]:
    """Lists the parts from left to right: the state, and a description."""
    parts: list[PartOfSecondLine] = []
    if running is not ConversationActivity.IDLE:
        state_colour = _COLOURS_OF_STATES.get(running, "output_text")
        parts.append(PartOfSecondLine(describe_running_state(running), state_colour))
    description = _describe_second_line(row, running)
    if description:
        if parts:
            description = f" · {description}"
        colour = "muted"
        if row.overlaps or row.is_interrupted:
            colour = "danger"
        parts.append(PartOfSecondLine(description, colour))
    return parts


class ConversationRowPainter(RowPainter):
    """Paints the title and the age, and a second line only if necessary."""

    def __init__(self, theme: Theme, view: QWidget) -> None:
        super().__init__(theme, view, ROW)
        self._view = view

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        line = index.data(ConversationListRole.ROW)
        if isinstance(line, ConversationGroupHeading):
            return QSize(120, self._theme.zoomed_pixels(HEADING))
        height = ROW
        running = ConversationActivity(index.data(ConversationListRole.RUNNING))
        if has_second_line(line, running):
            height = TWO_LINES
        return QSize(120, self._theme.zoomed_pixels(height))

    def draw_row(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        """Draws a heading of the list, or a conversation: its title and, if there is something to
        say about it, a second line.
        """
        line = index.data(ConversationListRole.ROW)
        rect = QRect(option.rect)
        theme = self._theme
        px = theme.zoomed_pixels
        if isinstance(line, ConversationGroupHeading):
            heading_rect = rect.adjusted(px(16), px(10), -px(16), -px(4))
            alignment = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading
            font = theme.build_font(11)
            theme.draw_words(painter, heading_rect, line.text, font, "faint", alignment)
            return

        running = ConversationActivity(index.data(ConversationListRole.RUNNING))
        card = rect.adjusted(px(8), 0, -px(8), 0)
        if option.state & QtWidgets.QStyle.StateFlag.State_Selected:
            theme.fill_surface(painter, card, "selected", 8)
        elif option.state & QtWidgets.QStyle.StateFlag.State_MouseOver:
            theme.fill_surface(painter, card, "rail", 8)

        text_rect = card.adjusted(px(10), px(7), -px(10), -px(7))
        self._draw_conversation_title(painter, text_rect, line)
        if has_second_line(line, running):
            self._draw_second_line(painter, text_rect, line, running)

    def _draw_conversation_title(
        self, painter: QPainter, text_rect: QRect, row: ConversationListRow
    ) -> None:
        """Draws the title, a pin, and the age at the end. The rectangles are computed as for
        languages that are read from left to right, and mirrored for the others.
        """
        theme = self._theme
        px = theme.zoomed_pixels
        first_line = QRect(text_rect.left(), text_rect.top(), text_rect.width(), px(19.5))
        painter.setFont(theme.build_font(11))
        painter.setPen(theme.colour_of_token("faint"))
        age = format_age_below_heading(row, time.time())
        age_metrics = QFontMetrics(painter.font())
        age_width = age_metrics.horizontalAdvance(age) + px(1)
        age_left = first_line.right() - age_width
        age_rect = QRect(age_left, first_line.top(), age_width + px(1), first_line.height())
        mirrored_age = self._mirror_for_reading_direction(text_rect, age_rect)
        painter.drawText(mirrored_age, Qt.AlignmentFlag.AlignVCenter, age)

        title_right = age_left - px(8)
        if row.pinned:
            pin_top = first_line.top() + px(4)
            pin_rect = QRect(title_right - px(12), pin_top, px(12), px(12))
            pin = build_icon("pin", theme.colour_of_token("faint"))
            mirrored_pin = self._mirror_for_reading_direction(text_rect, pin_rect)
            pin.paint(painter, mirrored_pin)
            title_right = pin_rect.left() - px(4)
        unmirrored_title = QRect(first_line)
        unmirrored_title.setRight(title_right)
        title_rect = self._mirror_for_reading_direction(text_rect, unmirrored_title)
        painter.setFont(theme.build_font(13))
        painter.setPen(theme.colour_of_token("text"))
        title = row.title or tr("New conversation")
        usual_direction = painter.layoutDirection()
        if is_right_to_left(title):
            painter.setLayoutDirection(Qt.LayoutDirection.RightToLeft)

        # What tells a copy from its original stands at the end, as in "Read the report (restored)".
        elide_mode = Qt.TextElideMode.ElideRight
        if title.endswith(")"):
            elide_mode = Qt.TextElideMode.ElideMiddle
        title_metrics = QFontMetrics(painter.font())
        elided = title_metrics.elidedText(title, elide_mode, title_rect.width())
        alignment = Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeading
        painter.drawText(title_rect, alignment, elided)
        painter.setLayoutDirection(usual_direction)

    def _draw_second_line(
        self,
        painter: QPainter,
        text_rect: QRect,
        row: ConversationListRow,
        running: ConversationActivity,
    ) -> None:
        """Draws the parts of the second line one after another, each in its colour. A part that
        no longer fits is shortened. In a right-to-left language, the line is mirrored.
        """
        theme = self._theme
        height = theme.zoomed_pixels(16.5)
        line_top = text_rect.bottom() + 1 - height
        line = QRect(text_rect.left(), line_top, text_rect.width(), height)
        painter.setFont(theme.build_font(11))
        metrics = QFontMetrics(painter.font())
        part_left = line.left()
        for part in list_parts_of_second_line(row, running):
            painter.setPen(theme.colour_of_token(part.colour_token))
            width_left = line.right() - part_left
            elided = metrics.elidedText(part.text, Qt.TextElideMode.ElideRight, width_left)
            part_width = metrics.horizontalAdvance(elided) + 1
            part_rect = QRect(part_left, line_top, part_width, height)
            mirrored_part = self._mirror_for_reading_direction(line, part_rect)
            painter.drawText(mirrored_part, Qt.AlignmentFlag.AlignVCenter, elided)
            part_left += part_width

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
        row_number = self.lines.find_conversation_row(conversation)
        while row_number >= self.lines.rowCount() and self.lines.canFetchMore(QModelIndex()):
            self.lines.fetchMore(QModelIndex())
        if row_number >= 0:
            self.setCurrentIndex(self.lines.index(row_number))
        else:
            self.setCurrentIndex(QModelIndex())

    def selected_conversation_id(self) -> str:
        return self._conversation_id_at(self.currentIndex())

    def find_neighbour_conversation(self, steps: int) -> str:
        """Returns the conversation `steps` rows below (or above) the open one. Empty
        beyond the ends.
        """
        direction = -1
        if steps > 0:
            direction = 1
        row_number = self.currentIndex().row() + steps
        # A heading is passed over, in the same direction.
        while 0 <= row_number < self.lines.rowCount():
            conversation = self._conversation_id_at(self.lines.index(row_number))
            if conversation:
                return conversation
            row_number += direction
        return ""

    def mousePressEvent(self, event: QMouseEvent) -> None:
        # Qt selects a row with any button. The open conversation stays marked while the
        # menu of another is open.
        if event.button() is Qt.MouseButton.LeftButton:
            super().mousePressEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        with_shift = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
        is_shift_f10 = event.key() == Qt.Key.Key_F10 and with_shift
        if event.key() == Qt.Key.Key_Menu or is_shift_f10:
            self._request_conversation_menu(self.visualRect(self.currentIndex()).center())
            return
        super().keyPressEvent(event)

    def _conversation_id_at(self, index: Index) -> str:
        if not index.isValid():
            return ""
        line = index.data(ConversationListRole.ROW)
        if line is None or isinstance(line, ConversationGroupHeading):
            return ""
        return str(line.id)

    def _request_opening_conversation(self, index: QModelIndex) -> None:
        conversation = self._conversation_id_at(index)
        if not conversation:
            return
        if QApplication.keyboardModifiers() & Qt.KeyboardModifier.ControlModifier:
            self.beside_wanted.emit(conversation)
        else:
            self.opened.emit(conversation)

    def _request_conversation_menu(self, point: QPoint) -> None:
        conversation = self._conversation_id_at(self.indexAt(point))
        if conversation:
            self.menu_wanted.emit(conversation, self.viewport().mapToGlobal(point))
