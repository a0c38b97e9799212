"""Join a shared workspace: the address, the key that another computer shows, and the folder to work in here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QLineEdit, QWidget

from helix_desktop.gui.background import Doing
from helix_desktop.gui.ports import Desk, Workbench
from helix_desktop.gui.questions import ask_folder
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.sharing.form import Form, face
from helix_desktop.gui.words import tr


class JoinDialog(Form):
    """`name_for`: what a workspace of a folder is called here; `joined` gets the new workspace."""

    def __init__(
        self,
        desk: Desk,
        name_for: Callable[[Path], str],
        doing: Doing,
        joined: Callable[[Workbench], object],
        parent: QWidget,
    ) -> None:
        super().__init__(doing, tr("Join a shared workspace"), parent)
        self._desk, self._name_for, self._joined = desk, name_for, joined
        self.key = self._line(tr("Key of the shared workspace"), "helix1-…")
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.folder = self._line(tr("Folder to work in on this computer"))
        self.choose = push_button(tr("Choose a folder…"), self, self._choose)
        self.join = push_button(tr("Join"), self, self._join, "primary")
        self.join.setDefault(True)
        fields = (
            (tr("Address"), self.address),
            (tr("Key"), self.key),
            (tr("Folder on this computer"), self._row(self.folder, self.choose)),
        )
        named = [face(plain_label(name), field, spacing=4) for name, field in fields]
        self._lay_out((self._explained(), *named), (), (push_button(tr("Cancel"), self, self.reject), self.join))
        for line in (self.address, self.key, self.folder):
            line.textChanged.connect(lambda _text: self._enable())
        self._enable()
        self.address.setFocus()

    def _explained(self) -> QWidget:
        text = tr(
            "A shared workspace has the same conversations on every computer. On the computer that shares it, click the “Shared” line below the workspace’s name and copy the address and key shown there. Add the database’s password to the address."
        )
        return plain_label(text)

    def _enable(self, *, idle: bool = True) -> None:
        self.join.setEnabled(idle and all(line.text().strip() for line in (self.address, self.key, self.folder)))

    def _choose(self) -> None:
        title = tr("Folder on this computer")
        ask_folder(self, title, lambda folder: self.folder.setText(str(folder)))

    def _join(self) -> None:
        folder = Path(self.folder.text().strip()).expanduser()
        work = self._desk.join(self.address.text().strip(), self.key.text(), self._name_for(folder), folder)
        self._do(work, "join a workspace", tr("Connecting…"), self._done)

    def _done(self, bench: Workbench) -> None:
        self.accept()
        self._joined(bench)
