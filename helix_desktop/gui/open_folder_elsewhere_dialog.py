"""Opens a folder on another computer, which is reached with the user's own ssh."""

from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import quote

from PySide6.QtWidgets import QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_line_edit,
    build_plain_label,
    build_push_button,
    build_scroll_area,
    build_surface,
)
from helix_desktop.gui.open_workspaces import OpenWorkspaces
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.shown_workspace import ShownWorkspace
from helix_desktop.gui.theme import make_default_button
from helix_desktop.gui.translation import tr

WIDTH = 600
LIST_HEIGHT = 180


class OpenFolderElsewhereDialog(TransientDialog):
    """`opened` is called with the workspace once it is connected."""

    def __init__(
        self,
        workspaces: OpenWorkspaces,
        runner: BackgroundRunner,
        opened: Callable[[ShownWorkspace], object],
        parent: QWidget,
    ) -> None:
        super().__init__(tr("Open a folder on another computer"), parent, WIDTH)
        self._workspaces = workspaces
        self._runner = runner
        self._opened = opened
        explanation = tr("The agent works there, with that computer’s files, tools and sandbox. Conversations stay there too; this window shows them. Your model keys stay on this computer.")  # fmt: skip
        self.machine = build_line_edit(tr("Computer"), tr("user@computer"), self)
        self.folder = build_line_edit(tr("Folder there"), "~/project", self)
        self.connect_button = build_push_button(tr("Connect"), self, self._connect)
        make_default_button(self.connect_button)
        self.progress = build_plain_label("", "muted", self)
        self.trouble = build_plain_label("", "danger", self)
        self.progress.hide()
        self.trouble.hide()
        machines_title = tr("From your SSH configuration")
        self._machines_heading = build_plain_label(machines_title, "small", self)
        self._machine_list = build_surface(self, "plain")
        self._machine_column = build_column(owner=self._machine_list, margins=0, spacing=2)
        self._machine_area = build_scroll_area(self._machine_list, self)
        self._machine_area.setMaximumHeight(LIST_HEIGHT)
        self._machines_heading.hide()
        self._machine_area.hide()
        explanation_label = build_plain_label(explanation, "muted", self)
        where_row = build_row((self.machine, 2), (self.folder, 3), self.connect_button)
        build_column(
            explanation_label,
            where_row,
            self.progress,
            self.trouble,
            self._machines_heading,
            self._machine_area,
            owner=self,
            margins=24,
            spacing=12,
        )
        for line in (self.machine, self.folder):
            line.textChanged.connect(self._update_connect_button)
        self._update_connect_button()
        self.machine.setFocus()
        listing = workspaces.connections.list_machines()
        runner.run_in_background(listing, then=self._show_machines, owner=self)

    def _show_machines(self, names: Sequence[str]) -> None:
        for name in names:
            # A machine's name might contain "&", which Qt would take for a shortcut.
            label = name.replace("&", "&&")
            choose = partial(self._choose_machine, name)
            self._machine_column.addWidget(build_push_button(label, self, choose, "link"))
        self._machine_column.addStretch(1)
        self._machines_heading.setVisible(bool(names))
        self._machine_area.setVisible(bool(names))

    def _choose_machine(self, name: str) -> None:
        self.machine.setText(name)
        self.folder.setFocus()

    def _update_connect_button(self) -> None:
        machine, folder = self._read_fields()
        self.connect_button.setEnabled(bool(machine and folder))

    def _read_fields(self) -> tuple[str, str]:
        """Returns the computer and the folder. Both may have been pasted as one address."""
        machine = self.machine.text().strip()
        folder = self.folder.text().strip()
        if folder:
            return machine, folder
        return split_pasted_address(machine)

    def _connect(self) -> None:
        """Connects in the background. The dialog stays until that has worked or failed."""
        machine, folder = self._read_fields()
        self.trouble.hide()
        self.progress.setText(tr("Connecting to {computer}…", computer=machine))
        self.progress.show()
        self._set_fields_enabled(enabled=False)
        address = build_ssh_address(machine, folder)
        self._runner.run_in_background(
            self._workspaces.open_folder_elsewhere(address),
            then=self._finish,
            failed=self._say_why_not_connected,
            owner=self,
        )

    def _set_fields_enabled(self, *, enabled: bool) -> None:
        for widget in (self.machine, self.folder, self._machine_area):
            widget.setEnabled(enabled)
        self.connect_button.setEnabled(enabled)

    def _finish(self, workspace: ShownWorkspace) -> None:
        self.accept()
        self._opened(workspace)

    def _say_why_not_connected(self, error: HelixError) -> None:
        self.progress.hide()
        self._set_fields_enabled(enabled=True)
        self.trouble.setText(translate_sentences(str(error)))
        self.trouble.show()
        self.machine.setFocus()


def split_pasted_address(text: str) -> tuple[str, str]:
    """Returns the computer and the folder of `ssh://machine/folder`, or of `machine:folder` as `scp`
    writes it. The folder is empty if the text names none.
    """
    if text.startswith("ssh://"):
        machine, _, folder = text.removeprefix("ssh://").partition("/")
        if folder and not folder.startswith("~"):
            folder = f"/{folder}"
        return machine, folder
    machine, _, folder = text.partition(":")
    if folder.startswith(("/", "~")):
        return machine, folder
    return text, ""  # What follows a colon may be a port.


def build_ssh_address(machine: str, folder: str) -> str:
    """Returns `ssh://machine/folder`. A folder that does not begin with / is in the home there.
    What is no address is refused where it is used.
    """
    if machine.startswith("ssh://"):
        machine = machine.removeprefix("ssh://").rstrip("/")
    path = quote(folder)
    if not folder.startswith(("/", "~")):
        path = quote(f"~/{folder}")
    if not path.startswith("/"):
        path = f"/{path}"
    return f"ssh://{machine}{path}"
