"""Join a shared workspace: the address, the key of another computer, and a folder here."""

from collections.abc import Callable
from pathlib import Path

from PySide6.QtWidgets import QLineEdit, QWidget

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import (
    build_line_edit,
    build_plain_label,
    build_push_button,
)
from helix_desktop.gui.question_dialogs import ask_folder
from helix_desktop.gui.rows_and_columns import build_row
from helix_desktop.gui.sharing.sharing_form import SharingFormDialog, stack_widgets
from helix_desktop.gui.theme import make_default_button
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Workbench, Workbenches


class JoinWorkspaceDialog(SharingFormDialog):
    """`name_for` returns a workspace's name for a folder. `joined` is called with the
    new workspace.
    """

    def __init__(
        self,
        desk: Workbenches,
        name_for: Callable[[Path], str],
        runner: BackgroundRunner,
        joined: Callable[[Workbench], object],
        parent: QWidget,
    ) -> None:
        super().__init__(runner, tr("Join a shared workspace"), parent)
        self._desk = desk
        self._name_for = name_for
        self._joined = joined
        self.key = build_line_edit(tr("Key of the shared workspace"), "helix1-…", self)
        self.key.setEchoMode(QLineEdit.EchoMode.Password)
        self.folder = build_line_edit(tr("Working folder on this computer"), "", self)
        self.choose = build_push_button(tr("Choose a folder…"), self, self._choose_join_folder)
        self.join = build_push_button(tr("Join"), self, self._join_workspace)
        make_default_button(self.join)
        folder_row = self._build_widget_row(self.folder, self.choose)
        fields = [
            self._build_join_explanation(),
            _put_name_above(tr("Address"), self.address),
            _put_name_above(tr("Password"), self.password),
            _put_name_above(tr("Key"), self.key),
            _put_name_above(tr("Folder on this computer"), folder_row),
        ]
        cancel = build_push_button(tr("Cancel"), self, self.reject)
        self._lay_out_sharing_form(fields, build_row(1, self.join, cancel))
        for line in (self.address, self.key, self.folder):
            line.textChanged.connect(self._update_enabled_buttons)
        self._update_enabled_buttons()
        self.address.setFocus()

    def _build_join_explanation(self) -> QWidget:
        text = tr("A shared workspace has the same conversations on every computer. On the computer that shares it, click the “Shared” line below the workspace’s name and copy the address and key shown there. The database’s password has a field of its own.")  # fmt: skip
        return build_plain_label(text)

    def _update_enabled_buttons(self, *, idle: bool = True) -> None:
        lines = (self.address, self.key, self.folder)
        is_filled = all(line.text().strip() for line in lines)
        self.join.setEnabled(idle and is_filled)

    def _choose_join_folder(self) -> None:
        ask_folder(self, tr("Folder on this computer"), self._show_chosen_folder)

    def _show_chosen_folder(self, folder: Path) -> None:
        self.folder.setText(str(folder))

    def _join_workspace(self) -> None:
        address = self._address_with_password()
        key = self.key.text()
        folder = Path(self.folder.text().strip()).expanduser()
        joining = self._desk.join_workspace(address, key, self._name_for(folder), folder)
        self._run_sharing_work(joining, tr("Connecting…"), self._close_and_open_joined)

    def _close_and_open_joined(self, bench: Workbench) -> None:
        self.accept()
        self._joined(bench)


def _put_name_above(name: str, field: QWidget) -> QWidget:
    return stack_widgets(build_plain_label(name), field, spacing=4)
