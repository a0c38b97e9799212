"""Share this workspace: the address of a store, a test of it, what is sent; once it is shared, how things stand and the key to copy."""

from __future__ import annotations

from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QLabel, QWidget

from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.questions import ask_yes
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.sharing import words
from helix_desktop.gui.sharing.form import Form, face
from helix_desktop.gui.words import count, tr


class ShareDialog(Form):
    """Two faces: of a workspace that is not shared yet, and of one that is."""

    def __init__(self, bench: Workbench, doing: Doing, parent: QWidget) -> None:
        super().__init__(doing, tr("Share this workspace"), parent)
        self._bench, self._sharing = bench, bench.sharing
        self.test = push_button(tr("Test"), self, self._test)
        self.share = push_button(tr("Share"), self, self._share, "primary")
        self.copy_key = push_button(tr("Copy key"), self, self._copy_key)
        self.copy_address = push_button(tr("Copy address"), self, self._copy_address)
        self.stop = push_button(tr("Stop sharing…"), self, self._ask_stop)
        self.close_ = push_button(tr("Close"), self, self.reject)
        self.standing, self.amount = plain_label(), plain_label("", "muted")
        self._before = face(self._explained(), self._row(self.address, self.test), self.amount)
        self._after = face(self.standing, *self._for_others())
        self._lay_out((self._before, self._after), (self.stop,), (self.close_, self.share))
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
            "Everything is encrypted on this computer first, so whoever runs the database can't read it.",
            name=self._bench.name,
        )
        return plain_label(text)

    def _for_others(self) -> list[QWidget]:
        steps = tr(
            "On another computer, choose Join a shared workspace… in the palette, and enter this address and the key. Whoever has the key "
            "and can reach the database can read this workspace, so send it only through a channel you trust."
        )
        self.line = self._line(tr("Address for another computer"))
        self.line.setReadOnly(True)
        key = self._line(tr("Key of the shared workspace"))
        key.setText("helix1-" + "•" * 24)
        key.setReadOnly(True)
        return [plain_label(steps, "muted"), self._row(self.line, self.copy_address), self._row(key, self.copy_key)]

    def _show(self) -> None:
        """As it stands now."""
        standing = self._sharing.standing
        shared = standing.state != "off"
        self._before.setVisible(not shared)
        self._after.setVisible(shared)
        self.share.setVisible(not shared)
        self.stop.setVisible(shared)
        self.standing.setText(words.whole(standing))
        self.line.setText(standing.address)
        self.line.setCursorPosition(0)
        self._enable()

    def _show_amount(self, amount: tuple[int, int, int]) -> None:
        conversations, entries, size_ = amount
        talks = count(conversations, "{n} conversation", "{n} conversations")
        stored = count(entries, "{n} cache entry", "{n} cache entries")
        text = tr(
            "This uploads {conversations} and {entries} ({size}), and everything new from now on. Of the files in the folder, only the content that agents read is uploaded.",
            conversations=talks,
            entries=stored,
            size=size(size_),
        )
        self.amount.setText(text)

    def _enable(self, *, idle: bool = True) -> None:
        there = idle and bool(self.address.text().strip())
        self.test.setEnabled(there)
        self.share.setEnabled(there)

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

    def _copy_address(self) -> None:
        QGuiApplication.clipboard().setText(self.line.text())
        self._say(tr("The address is on the clipboard. It does not contain the password."))

    def _ask_stop(self) -> None:
        text = tr(
            "This computer stops sending and receiving changes. Everything it has sent stays in the shared store for the other computers. Nothing is removed from this computer."
        )
        ask_yes(self, tr("Stop sharing this workspace?"), text, tr("Stop sharing"), self._stop)

    def _stop(self) -> None:
        self._do(self._sharing.unshare(), "stop sharing", "", lambda left: self._say(said(left)))


def _found(about: str) -> str:
    return tr("Connected to {store}.", store=about)
