"""The sidebar: the workspace's name and folder, one box to search, its conversations."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QEvent, QPoint, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QEnterEvent, QFontMetrics, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QGridLayout, QLineEdit, QMenu, QPushButton, QWidget

from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.agent_titles import describe_agent_to_continue_in
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.common.escape_key import EscapeCloser
from helix_desktop.gui.common.list_row_model import AimWatch
from helix_desktop.gui.frame.conversation_list import ConversationList, group_conversations
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.theme_icons import build_icon
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import format_number, tr
from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN

WIDTH = 252
BUTTON_SIZE = 26
LEAST_PATH_WIDTH = 40
# The interval between updates of the ages, which are shown in whole minutes.
AGE_UPDATE_MS = 60_000


def format_folder(folder: Path) -> str:
    """Formats a folder with ~ for the home directory."""
    home = Path.home()
    if not folder.is_relative_to(home):
        return str(folder)
    return f"~/{folder.relative_to(home).as_posix()}"


class ConversationSearchField(QLineEdit):
    """Filters the list below while the user types; Enter searches everywhere. The
    shortcut is shown inside the field.
    """

    search_everywhere_wanted = Signal(str)
    list_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, placeholderText=tr("Search everything"), clearButtonEnabled=False)
        self._theme = theme
        self._key = widgets.build_plain_label("", "kbd", self, wraps=False)
        self._key.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAccessibleName(tr("Search conversations. Press Enter to search everything."))
        self.textChanged.connect(self._place_shortcut_label)
        EscapeCloser(self, self._is_conversation_search_begun, self.clear)

    def _is_conversation_search_begun(self) -> bool:
        return bool(self.text())

    def show_shortcut_in_field(self, shortcut: str) -> None:
        self._key.setText(shortcut)
        self._place_shortcut_label()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place_shortcut_label()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            words = self.text()
            self.clear()  # The words go along. What stayed here would hide other conversations.
            self.search_everywhere_wanted.emit(words)
        elif event.key() == Qt.Key.Key_Down:
            self.list_wanted.emit()
        else:
            super().keyPressEvent(event)

    def _place_shortcut_label(self) -> None:
        self._key.adjustSize()
        gap = self._theme.zoomed_pixels(10)
        metrics = self.fontMetrics()
        placeholder_width = metrics.horizontalAdvance(self.placeholderText())
        needed_width = placeholder_width + self._key.width() + 3 * gap
        has_room = needed_width <= self.width()
        self._key.setVisible(has_room and not self.text())
        if self.layoutDirection() == Qt.LayoutDirection.RightToLeft:
            left = gap
        else:
            left = self.width() - self._key.width() - gap
        top = (self.height() - self._key.height()) // 2
        self._key.move(left, top)


class Sidebar(QWidget):
    """Shows the conversations of a workspace. `conversation_action_wanted` carries an
    action ("rename", "pin", "archive", "trash", "restore", "fork", "export-markdown",
    ...) and a conversation.
    """

    conversation_action_wanted = Signal(str, str)
    workspace_menu_wanted = Signal(QPoint)  # Carries the menu's position on the screen.

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent, minimumWidth=200)
        self._theme = theme
        self._rows: Sequence[ConversationListRow] = ()
        self._folder = ""
        self._shown_place = ""
        widgets.set_surface_look(self, "side")
        self._title = ElidedLabel(self)
        self._title.setProperty("look", "title")
        self._path = widgets.build_plain_label("", "path", self, wraps=False)

        self.tasks_that_need_user = self._build_link_below_title("")
        self.tasks_that_need_user.hide()
        self.shared = self._build_link_below_title("")
        self.shared.hide()

        # Of a workspace that another process has open: how it is reached.
        self.line = widgets.build_plain_label("", "small", self)
        self.try_line = self._build_link_below_title(tr("Try now"))
        # Of a conversation on another computer: whether that computer holds a key of the user's.
        self.key_line = widgets.build_plain_label("", "small", self)
        self.key_link = self._build_link_below_title("")
        for part in (self.line, self.try_line, self.key_line, self.key_link):
            part.hide()

        self.new = widgets.build_tool_button(tr("New conversation"), self)
        self.more = widgets.build_tool_button(tr("Rename, export or remove this workspace"), self)
        self.more.clicked.connect(self._request_workspace_menu)
        # It is shown under the mouse alone, and nothing may move then.
        size_policy = self.more.sizePolicy()
        size_policy.setRetainSizeWhenHidden(True)
        self.more.setSizePolicy(size_policy)
        self.more.hide()

        self.search = ConversationSearchField(theme, self)
        self.search.setProperty("look", "search")
        self.list = ConversationList(theme, self)
        self._aim = AimWatch(self.list)
        self._empty_list_label = widgets.build_plain_label("", "muted", self)

        self.importing = self._build_sidebar_link(tr("Import or record conversations…"))
        self._back = self._build_sidebar_link(tr("Back"))
        self._archive = self._build_sidebar_link("")
        self._trash = self._build_sidebar_link("")
        self.empty_trash_link = self._build_sidebar_link(tr("Empty trash…"))
        for link in (self.importing, self._back, self._archive, self._trash, self.empty_trash_link):
            link.hide()  # Hidden until the number of archived and trashed conversations is known.
        self._lay_out_sidebar()
        self._connect_sidebar_signals()

    def _lay_out_sidebar(self) -> None:
        """Arranges the sidebar from top to bottom: the workspace's name and buttons, the search
        box, what is shown if the list is empty, the conversations, and the links below them.
        """
        self._head = self._build_sidebar_head()
        self._box = build_row(self.search)
        # The program moves this sidebar into its window. A label would lose its
        # margins; a layout keeps them.
        importing_row = build_row(self.importing, 1)
        self._empty_list_row = build_column(self._empty_list_label, importing_row)
        self._foot = build_row(self._back, self._archive, self._trash, self.empty_trash_link, 1)
        build_column(
            self._head,
            self._box,
            self._empty_list_row,
            (self.list, 1),
            self._foot,
            owner=self,
            margins=0,
            spacing=0,
        )
        self._apply_sidebar_sizes()

    def _build_sidebar_head(self) -> QGridLayout:
        """Builds the workspace's name with its two buttons, and below it a line for each thing
        that can be said about the workspace.
        """
        head = QGridLayout()
        head.setHorizontalSpacing(2)
        head.setVerticalSpacing(0)
        head.setColumnStretch(0, 1)
        name_and_folder = build_column(self._title, self._path, spacing=0)
        head.addLayout(name_and_folder, 0, 0)
        head.addWidget(self.more, 0, 1, Qt.AlignmentFlag.AlignTop)
        head.addWidget(self.new, 0, 2, Qt.AlignmentFlag.AlignTop)
        at_beginning = Qt.AlignmentFlag.AlignLeading
        head.addWidget(self.shared, 1, 0, 1, 3, at_beginning)
        head.addWidget(self.line, 2, 0, 1, 3)
        head.addWidget(self.try_line, 3, 0, 1, 3, at_beginning)
        head.addWidget(self.key_line, 4, 0, 1, 3)
        head.addWidget(self.key_link, 5, 0, 1, 3, at_beginning)
        head.addWidget(self.tasks_that_need_user, 6, 0, 1, 3, at_beginning)
        return head

    def _connect_sidebar_signals(self) -> None:
        self.search.textChanged.connect(self._refill_conversation_list)
        self.search.list_wanted.connect(self.list.setFocus)
        self.list.menu_wanted.connect(self._show_conversation_menu)
        self._back.clicked.connect(lambda: self.show_conversations_in(""))
        self._archive.clicked.connect(lambda: self.show_conversations_in("archived"))
        self._trash.clicked.connect(lambda: self.show_conversations_in("trashed"))
        self._theme.changed.connect(self._apply_sidebar_sizes)
        self._clock = QTimer(self, interval=AGE_UPDATE_MS)
        self._clock.timeout.connect(lambda: self.list.viewport().update())
        self._clock.start()

    def show_workspace_title(self, name: str, folder: Path | None) -> None:
        self._title.set_elided_text(name)
        self._folder = ""
        if folder:
            self._folder = format_folder(folder)
        self._path.setToolTip(safe_tooltip(str(folder or "")))
        self._elide_folder_path()

    def show_sharing_line(self, summary: str, details: str) -> None:
        """Shows whether a shared workspace is in sync; empty if it is not shared."""
        self.shared.setText(summary)
        self.shared.setToolTip(safe_tooltip(details))
        self.shared.setVisible(bool(summary))

    def show_line_to_host(self, description: str, reason: str, *, is_broken: bool) -> None:
        """Shows how a workspace that another process has open is reached; empty if it is open here.
        `reason`: why it is not reached, which may come from another computer.
        """
        self.line.setText(description)
        self.line.setToolTip(safe_tooltip(reason))
        self.line.setVisible(bool(description))
        self.try_line.setVisible(is_broken)

    def show_lent_key(self, sentence: str, action: str) -> None:
        """Shows whether another computer holds a key of the user's, and what can be done about it.
        What is empty is hidden.
        """
        self.key_line.setText(sentence)
        self.key_line.setVisible(bool(sentence))
        self.key_link.setText(action)
        self.key_link.setVisible(bool(action))

    def _request_workspace_menu(self) -> None:
        below_button = self.more.rect().bottomLeft()
        self.workspace_menu_wanted.emit(self.more.mapToGlobal(below_button))

    def show_conversation_rows(self, rows: Sequence[ConversationListRow]) -> None:
        self._rows = rows
        # The newest stands first, so any answer moves rows that somebody may be aiming at.
        self._aim.run_once_at_rest(self._refill_conversation_list)

    def show_conversations_in(self, place: str) -> None:
        """The usual list (""), the archive ("archived") or the trash ("trashed")."""
        self._shown_place = place
        self._refill_conversation_list()

    def _refill_conversation_list(self) -> None:
        current = self.list.selected_conversation_id()
        lines = group_conversations(
            self._rows, words=self.search.text(), place=self._shown_place, now=time.time()
        )
        self.list.lines.replace_list_lines(lines)
        if current:
            self.list.select_conversation(current)
        self._empty_list_label.setVisible(not lines)
        if not lines:
            self._empty_list_label.setText(self._text_for_empty_list())
        self.importing.setVisible(not self._rows)
        self._update_links_to_other_lists()

    def _update_links_to_other_lists(self) -> None:
        archived_count = 0
        trashed_count = 0
        for row in self._rows:
            if row.trashed:
                trashed_count += 1
            elif row.archived:
                archived_count += 1
        shows_archive = self._shown_place == "archived"
        shows_trash = self._shown_place == "trashed"
        self._back.setVisible(bool(self._shown_place))
        archive_text = tr("Archive · {n}", n=format_number(archived_count))
        self._archive.setText(archive_text)
        self._archive.setVisible(archived_count > 0 and not shows_archive)
        trash_text = tr("Trash · {n}", n=format_number(trashed_count))
        self._trash.setText(trash_text)
        self._trash.setVisible(trashed_count > 0 and not shows_trash)
        self.empty_trash_link.setVisible(trashed_count > 0 and shows_trash)

    def _text_for_empty_list(self) -> str:
        if self.search.text():
            return tr(
                "No matching conversation. Press Enter to search messages and stored outputs."
            )
        if self._shown_place:
            return tr("Nothing here.")
        if not self._folder:  # Such as "Connected agents": a workspace that the program created.
            return tr("Conversations of connected agents, and those that you import, appear here.")
        return tr("Your conversations appear here. Write a message to start one.")

    # --- The menu of a conversation

    def _show_conversation_menu(self, conversation: str, position: QPoint) -> None:
        for row in self._rows:
            if row.id == conversation:
                self._build_conversation_menu(row).popup(position)
                return

    def _build_conversation_menu(self, row: ConversationListRow) -> QMenu:
        """Builds the menu of what can be done with a conversation. One in the trash can only be
        restored or deleted.
        """
        menu = widgets.build_popup_menu(self)
        if row.trashed:
            self._add_menu_action(menu, row, "restore", tr("Restore"))
            self._add_menu_action(menu, row, "delete", tr("Delete permanently…"))
            return menu
        self._add_menu_action(menu, row, "beside", tr("Open to the side"))
        self._add_menu_action(menu, row, "rename", tr("Rename…"))
        if row.pinned:
            self._add_menu_action(menu, row, "pin", tr("Unpin"))
        else:
            self._add_menu_action(menu, row, "pin", tr("Pin"))
        self._add_menu_action(menu, row, "fork", tr("Duplicate"))
        if row.copy:
            self._add_menu_action(menu, row, "bring-back", tr("Bring back…"))
        self._add_menu_action(menu, row, "export", tr("Export…"))
        if row.archived:
            self._add_menu_action(menu, row, "archive", tr("Unarchive"))
        else:
            self._add_menu_action(menu, row, "archive", tr("Archive"))
        self._add_menu_action(menu, row, "trash", tr("Move to trash"))
        self._add_continue_menu(menu, row)
        return menu

    def _add_menu_action(
        self, menu: QMenu, row: ConversationListRow, action: str, title: str
    ) -> None:
        request = partial(self.conversation_action_wanted.emit, action, row.id)
        menu.addAction(title).triggered.connect(request)

    def _add_continue_menu(self, menu: QMenu, row: ConversationListRow) -> None:
        """Adds where a conversation can go on: in another agent, or in a copy of the files."""
        submenu = menu.addMenu(tr("Continue in"))
        for agent in AGENTS_TO_CONTINUE_IN:
            title = describe_agent_to_continue_in(agent)
            self._add_menu_action(submenu, row, f"continue-{agent}", f"{title}…")
        self._add_menu_action(submenu, row, "fork-copy", tr("A copy of the repository"))

    def _build_sidebar_link(self, text: str) -> QPushButton:
        return widgets.build_push_button(text, self, look="link", wraps=True)

    def _build_link_below_title(self, text: str) -> QPushButton:
        """Builds a link that begins where the workspace's name does."""
        link = self._build_sidebar_link(text)
        link.setStyleSheet("padding-left: 0; padding-right: 0")
        return link

    def _apply_sidebar_sizes(self) -> None:
        px = self._theme.zoomed_pixels
        self._head.setContentsMargins(px(16), px(14), px(8), px(10))
        self._box.setContentsMargins(px(12), 0, px(12), px(8))
        self._foot.setContentsMargins(px(12), px(4), px(12), px(8))
        self._empty_list_row.setContentsMargins(px(16), px(16), px(16), 0)
        icon_colour = self._theme.colour_of_token("muted")
        plus_icon = build_icon("plus", icon_colour)
        more_icon = build_icon("more", icon_colour)
        self.new.setIcon(plus_icon)
        self.more.setIcon(more_icon)
        icon_size = QSize(px(16), px(16))
        button_size = QSize(px(BUTTON_SIZE), px(BUTTON_SIZE))
        for button in (self.new, self.more):
            button.setIconSize(icon_size)
            button.setFixedSize(button_size)
        self._title.setFixedHeight(px(21))
        self._path.setFixedHeight(px(17))
        self.search.setFixedHeight(px(34))
        self._elide_folder_path()

    def enterEvent(self, event: QEnterEvent) -> None:
        self.more.show()

    def leaveEvent(self, event: QEvent) -> None:
        self.more.hide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide_folder_path()

    def _elide_folder_path(self) -> None:
        # Beside the path are two buttons, the margins of the row, and some spacing.
        used_width = self._theme.zoomed_pixels(2 * BUTTON_SIZE + 16 + 8 + 6)
        width = max(self.width() - used_width, LEAST_PATH_WIDTH)
        metrics = QFontMetrics(self._theme.monospaced_font(11.5))
        self._path.setText(metrics.elidedText(self._folder, Qt.TextElideMode.ElideMiddle, width))
