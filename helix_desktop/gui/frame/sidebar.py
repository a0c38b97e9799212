"""The sidebar: the workspace's name and folder, one box to search, its conversations."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QPoint, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QFontMetrics, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import (
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QMenu,
    QPushButton,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine.events import Running
from helix_desktop.engine.rows import ConversationRow
from helix_desktop.gui.frame.conversation_list import ConversationList, grouped
from helix_desktop.gui.icons import icon
from helix_desktop.gui.shared.elided import ElidedLabel
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.harmless import hint
from helix_desktop.gui.words import tr

WIDTH = 252
AGES = 60_000  # milliseconds after which "now" has become "1m"


def folder_words(folder: Path) -> str:
    """A folder as people write it: with ~ for the home directory."""
    home = Path.home()
    return f"~/{folder.relative_to(home).as_posix()}" if folder.is_relative_to(home) else str(folder)


class SearchBox(QLineEdit):
    """Filters the list below while typing; Enter looks everywhere. The shortcut stands inside."""

    everywhere = Signal(str)
    leave = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._key = QLabel(self)
        self._key.setProperty("look", "kbd")
        self._key.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setPlaceholderText(tr("Search everything"))
        self.setAccessibleName(tr("Search conversations. Press Enter to search everything."))
        self.setClearButtonEnabled(False)
        self.textChanged.connect(lambda _text: self._place())

    def show_shortcut(self, shortcut: str) -> None:
        self._key.setText(shortcut)
        self._place()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.everywhere.emit(self.text())
        elif event.key() == Qt.Key.Key_Escape and self.text():
            self.clear()
        elif event.key() == Qt.Key.Key_Down:
            self.leave.emit()
        else:
            super().keyPressEvent(event)

    def _place(self) -> None:
        self._key.adjustSize()
        gap = self._theme.px(10)
        words = self.fontMetrics().horizontalAdvance(self.placeholderText())
        self._key.setVisible(not self.text() and words + self._key.width() + 3 * gap <= self.width())
        left = self.width() - self._key.width() - gap
        if self.layoutDirection() == Qt.LayoutDirection.RightToLeft:
            left = gap
        self._key.move(left, (self.height() - self._key.height()) // 2)


class Sidebar(QWidget):
    """`wants(what, conversation)`: "rename", "pin", "archive", "trash", "restore", "fork", "export-markdown", ..."""

    opened = Signal(str)
    wants = Signal(str, str)
    new_wanted = Signal()
    search_wanted = Signal(str)
    workspace_wanted = Signal()
    emptying_wanted = Signal()
    sharing_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._rows: Sequence[ConversationRow] = ()
        self._folder = ""
        self._place = ""
        self.setProperty("look", "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setMinimumWidth(200)
        self._title = ElidedLabel(self)
        self._title.setProperty("look", "title")
        self._path = QLabel(self)
        self._path.setProperty("look", "path")
        self._path.setTextFormat(Qt.TextFormat.PlainText)
        self._shared = self._link("")
        self._shared.setStyleSheet("padding-left: 0; padding-right: 0")
        self._shared.hide()
        self._new = self._tool("plus", tr("New conversation"))
        self._new.clicked.connect(self.new_wanted)
        self._more = self._tool("more", tr("Workspace settings"))
        self._more.clicked.connect(self.workspace_wanted)
        self._shared.clicked.connect(self.sharing_wanted)
        self.search = SearchBox(theme, self)
        self.list = ConversationList(theme, self)
        self._empty = QLabel(self)
        self._empty.setProperty("look", "muted")
        self._empty.setWordWrap(True)
        self._back = self._link(tr("Back"))
        self._archive = self._link("")
        self._trash = self._link("")
        self._empty_it = self._link(tr("Empty trash…"))
        for link in (self._back, self._archive, self._trash, self._empty_it):
            link.hide()  # until it is known what there is
        self._lay_out()
        self._connect()

    def _lay_out(self) -> None:
        self._head = QGridLayout()
        self._head.setHorizontalSpacing(2)
        self._head.setVerticalSpacing(0)
        self._head.setColumnStretch(0, 1)
        names = QVBoxLayout()
        names.setSpacing(0)
        names.addWidget(self._title)
        names.addWidget(self._path)
        self._head.addLayout(names, 0, 0)
        self._head.addWidget(self._new, 0, 1, Qt.AlignmentFlag.AlignTop)
        self._head.addWidget(self._more, 0, 2, Qt.AlignmentFlag.AlignTop)
        self._head.addWidget(self._shared, 1, 0, 1, 3, Qt.AlignmentFlag.AlignLeading)
        self._box = QHBoxLayout()
        self._box.addWidget(self.search)
        self._foot = QHBoxLayout()
        self._foot.addWidget(self._back)
        self._foot.addWidget(self._archive)
        self._foot.addWidget(self._trash)
        self._foot.addWidget(self._empty_it)
        self._foot.addStretch(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addLayout(self._head)
        whole.addLayout(self._box)
        whole.addWidget(self._empty)
        whole.addWidget(self.list, 1)
        whole.addLayout(self._foot)
        self._restyled()

    def _connect(self) -> None:
        self.search.textChanged.connect(lambda _text: self._refill())
        self.search.everywhere.connect(self.search_wanted)
        self.search.leave.connect(self.list.setFocus)
        self.list.opened.connect(self.opened)
        self.list.menu_wanted.connect(self._menu)
        self._back.clicked.connect(lambda: self.show_place(""))
        self._archive.clicked.connect(lambda: self.show_place("archived"))
        self._trash.clicked.connect(lambda: self.show_place("trashed"))
        self._empty_it.clicked.connect(self.emptying_wanted)
        self._theme.changed.connect(self._restyled)
        self._clock = QTimer(self, interval=AGES)
        self._clock.timeout.connect(self.list.viewport().update)
        self._clock.start()

    # --- what is shown -------------------------------------------------------------------------------------------

    def show_workspace(self, name: str, folder: Path | None) -> None:
        self._title.say(name)
        self._folder = folder_words(folder) if folder else ""
        self._path.setToolTip(hint(str(folder or "")))
        self._elide()

    def show_sharing(self, words: str, whole: str) -> None:
        """How a shared workspace stands with the others; empty: it is not shared."""
        self._shared.setText(words)
        self._shared.setToolTip(hint(whole))
        self._shared.setVisible(bool(words))

    def show_conversations(self, rows: Sequence[ConversationRow]) -> None:
        self._rows = rows
        self._refill()

    def show_running(self, conversation: str, running: Running) -> None:
        self.list.lines.show_running(conversation, running)

    def mark(self, conversation: str) -> None:
        self.list.mark(conversation)

    def show_place(self, place: str) -> None:
        """The usual list (""), the archive ("archived") or the trash ("trashed")."""
        self._place = place
        self._refill()

    def _refill(self) -> None:
        current = self.list.current()
        lines = grouped(self._rows, words=self.search.text(), place=self._place, now=time.time())
        self.list.lines.show_lines(lines)
        if current:
            self.list.mark(current)
        self._empty.setText("" if lines else self._nothing())
        self._empty.setVisible(not lines)
        archived = sum(row.archived and not row.trashed for row in self._rows)
        trashed = sum(row.trashed for row in self._rows)
        self._back.setVisible(bool(self._place))
        self._archive.setVisible(bool(archived) and self._place != "archived")
        self._archive.setText(tr("Archive · {n}", n=archived))
        self._trash.setVisible(bool(trashed) and self._place != "trashed")
        self._trash.setText(tr("Trash · {n}", n=trashed))
        self._empty_it.setVisible(bool(trashed) and self._place == "trashed")

    def _nothing(self) -> str:
        if self.search.text():
            return tr("No matching conversation. Press Enter to search messages and cached entries.")
        if self._place:
            return tr("Nothing here.")
        return tr("Your conversations appear here. Write a message to start one.")

    # --- a conversation's menu -----------------------------------------------------------------------------------

    def _menu(self, conversation: str, at: QPoint) -> None:
        row = next((row for row in self._rows if row.id == conversation), None)
        if row is None:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for what, text in self._offered(row):
            if what:
                menu.addAction(text).triggered.connect(partial(self.wants.emit, what, conversation))
            else:
                menu.addSeparator()
        menu.popup(at)

    def _offered(self, row: ConversationRow) -> list[tuple[str, str]]:
        if row.trashed:
            return [("restore", tr("Restore"))]
        return [
            ("rename", tr("Rename…")),
            ("pin", tr("Unpin") if row.pinned else tr("Pin")),
            ("fork", tr("Fork")),
            ("", ""),
            ("export-markdown", tr("Export as Markdown…")),
            ("export-json", tr("Export as JSON…")),
            ("export-html", tr("Export as HTML…")),
            ("export-claude-code", tr("Export for Claude Code…")),
            ("export-openai", tr("Export as OpenAI messages…")),
            ("", ""),
            ("archive", tr("Unarchive") if row.archived else tr("Archive")),
            ("trash", tr("Move to trash")),
        ]

    # --- looks ---------------------------------------------------------------------------------------------------

    def _tool(self, name: str, text: str) -> QToolButton:
        button = QToolButton(self)
        button.setObjectName(name)
        button.setProperty("look", "icon")
        button.setToolTip(text)
        button.setAccessibleName(text)
        return button

    def _link(self, text: str) -> QPushButton:
        button = QPushButton(text, self)
        button.setProperty("look", "link")
        return button

    def _restyled(self) -> None:
        px = self._theme.px
        self._head.setContentsMargins(px(16), px(14), px(8), px(10))
        self._box.setContentsMargins(px(12), 0, px(12), px(8))
        self._foot.setContentsMargins(px(12), px(4), px(12), px(8))
        self._empty.setContentsMargins(px(16), px(16), px(16), 0)
        for button in (self._new, self._more):
            button.setIconSize(QSize(px(16), px(16)))
            button.setFixedSize(px(26), px(26))
            button.setIcon(icon(button.objectName(), self._theme.colour("muted")))
        self._title.setFixedHeight(px(21))
        self._path.setFixedHeight(px(17))
        self.search.setFixedHeight(px(34))
        self._elide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._elide()

    def _elide(self) -> None:
        px = self._theme.px
        room = max(self.width() - px(16 + 8 + 2 * 26 + 6), 40)
        metrics = QFontMetrics(self._theme.mono(11.5))
        self._path.setText(metrics.elidedText(self._folder, Qt.TextElideMode.ElideMiddle, room))
