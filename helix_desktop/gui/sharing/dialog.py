"""Share this workspace: the address of a store, a test of it, what is sent; once it is shared, how things stand and the key to copy."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.questions import ask_yes
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.sharing import words
from helix_desktop.gui.words import count, tr

WIDTH = 560
EXAMPLE = "postgresql://user:password@host/database"


class ShareDialog(QDialog):
    """Two faces: of a workspace that is not shared yet, and of one that is."""

    def __init__(self, bench: Workbench, doing: Doing, parent: QWidget) -> None:
        super().__init__(parent)
        self._bench, self._doing, self._sharing = bench, doing, bench.sharing
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Share this workspace"))
        self.setMinimumWidth(WIDTH)
        self.address = QLineEdit(self)
        self.address.setPlaceholderText(EXAMPLE)
        self.address.setAccessibleName(tr("Address of the shared store"))
        self.test = self._button(tr("Test"), self._test)
        self.share = self._button(tr("Share"), self._share)
        self.share.setProperty("look", "primary")
        self.copy_key = self._button(tr("Copy key"), self._copy_key)
        self.copy_line = self._button(tr("Copy command"), self._copy_line)
        self.stop = self._button(tr("Stop sharing…"), self._ask_stop)
        self.close_ = self._button(tr("Close"), self.reject)
        self.standing, self.amount, self.told = _label(), _label("muted"), _label()
        self._before = _face(self._explained(), self._row(self.address, self.test), self.amount)
        self._after = _face(self.standing, *self._for_others())
        self._lay_out()
        leave = self._sharing.watch(self._show)
        self.finished.connect(lambda _result: leave())
        self.address.textChanged.connect(lambda _text: self._enable())
        self.address.returnPressed.connect(self.test.click)
        self._show()
        self.address.setFocus()
        doing.do(self._sharing.amount(), name="how much is shared", then=self._show_amount, owner=self)

    # --- how it looks

    def _explained(self) -> QLabel:
        text = tr(
            "Other computers can then read the conversations of “{name}” live and continue them. They all use one PostgreSQL database. "
            "Everything is encrypted on this computer first: whoever runs the database can read nothing.",
            name=self._bench.name,
        )
        return _label("", text)

    def _for_others(self) -> list[QWidget]:
        steps = tr(
            "To join on another computer, run this command there. It asks for the key. Whoever has the key and can reach the database can "
            "read this workspace, so send it only through a channel you trust."
        )
        self.line = QLineEdit(self)
        self.line.setReadOnly(True)
        self.line.setAccessibleName(tr("Command for another computer"))
        return [_label("muted", steps), self._row(self.line, self.copy_line, self.copy_key)]

    def _lay_out(self) -> None:
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 16)
        column.setSpacing(12)
        for widget in (self._before, self._after, self.told):
            column.addWidget(widget)
        column.addStretch(1)
        buttons = QHBoxLayout()
        buttons.addWidget(self.stop)
        buttons.addStretch(1)
        buttons.addWidget(self.close_)
        buttons.addWidget(self.share)
        column.addLayout(buttons)
        self.told.hide()

    def _row(self, *widgets: QWidget) -> QWidget:
        row = QWidget(self)
        line = QHBoxLayout(row)
        line.setContentsMargins(0, 0, 0, 0)
        line.addWidget(widgets[0], 1)
        for widget in widgets[1:]:
            line.addWidget(widget)
        return row

    def _button(self, text: str, act: Callable[[], object]) -> QPushButton:
        button = QPushButton(text, self)
        button.setAutoDefault(False)
        button.clicked.connect(lambda _checked=False: act())
        return button

    def _show(self) -> None:
        """As it stands now."""
        standing = self._sharing.standing
        shared = standing.state != "off"
        self._before.setVisible(not shared)
        self._after.setVisible(shared)
        self.share.setVisible(not shared)
        self.stop.setVisible(shared)
        self.standing.setText(words.whole(standing))
        self.line.setText(f"helix-desktop workspace join {standing.address} --folder DIR")
        self.line.setCursorPosition(0)
        self._enable()

    def _show_amount(self, amount: tuple[int, int, int]) -> None:
        conversations, entries, size_ = amount
        talks = count(conversations, "{n} conversation", "{n} conversations")
        stored = count(entries, "{n} cache entry", "{n} cache entries")
        text = tr(
            "This uploads {conversations} and {entries} ({size}), and everything new from now on. Of the folder's files, only what agents read is uploaded.",
            conversations=talks,
            entries=stored,
            size=size(size_),
        )
        self.amount.setText(text)

    def _enable(self) -> None:
        there = bool(self.address.text().strip())
        self.test.setEnabled(there)
        self.share.setEnabled(there)

    def _say(self, text: str) -> None:
        self.told.setText(text)
        self.told.setVisible(bool(text))

    # --- what it does

    def _test(self) -> None:
        address = self.address.text().strip()
        self._do(
            self._sharing.test(address), "test a shared store", tr("Testing…"), lambda about: self._say(_found(about))
        )

    def _share(self) -> None:
        address = self.address.text().strip()
        self._do(self._sharing.share(address), "share a workspace", tr("Connecting…"), lambda _done: self._say(""))

    def _copy_key(self) -> None:
        def copied(key: str) -> None:
            QGuiApplication.clipboard().setText(key)
            self._say(tr("The key is on the clipboard."))

        self._do(self._sharing.key(), "copy the key", "", copied)

    def _copy_line(self) -> None:
        QGuiApplication.clipboard().setText(self.line.text())
        self._say(tr("The command is on the clipboard. Replace DIR with the folder to work in."))

    def _ask_stop(self) -> None:
        text = tr(
            "This computer stops sending and receiving changes. What it has sent stays in the shared store for the other computers. Nothing is "
            "removed here."
        )
        ask_yes(self, tr("Stop sharing this workspace?"), text, tr("Stop sharing"), self._stop)

    def _stop(self) -> None:
        self._do(self._sharing.unshare(), "stop sharing", "", lambda left: self._say(said(left)))

    def _do(self, work: Coroutine[Any, Any, Any], name: str, meanwhile: str, then: Callable[[Any], object]) -> None:
        def failed(error: HelixError) -> None:
            self._enable()
            self._say(said(str(error)))

        def done(result: Any) -> None:
            self._enable()
            then(result)

        self._say(meanwhile)
        self.test.setEnabled(False)
        self.share.setEnabled(False)
        self._doing.do(work, name=name, then=done, failed=failed, owner=self)


def _found(about: str) -> str:
    return tr("Connected to {store}.", store=about)


def _label(look: str = "", text: str = "") -> QLabel:
    label = QLabel(text)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setWordWrap(True)
    if look:
        label.setProperty("look", look)
    return label


def _face(*widgets: QWidget) -> QWidget:
    face = QWidget()
    column = QVBoxLayout(face)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(12)
    for widget in widgets:
        column.addWidget(widget)
    return face
