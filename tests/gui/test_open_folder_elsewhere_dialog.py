from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QPushButton

from helix_desktop.errors import HelixError
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.open_folder_elsewhere_dialog import (
    OpenFolderElsewhereDialog,
    build_ssh_address,
)
from helix_desktop.gui.shown_workspace import RememberedWorkspace
from helix_desktop.workbench.file_preview import PreviewedFile, PreviewKind
from helix_desktop.workspace_host.host_line import LineStage, LineState
from tests.gui.fake_desk import FakeDesk
from tests.gui.test_workspace_line import WorkspaceElsewhere


class FakeConnections:
    """Opens one workspace, unless it has `trouble`."""

    def __init__(self, desk: FakeDesk, workspace: WorkspaceElsewhere) -> None:
        self._desk = desk
        self.workspace = workspace
        self.asked: list[str] = []
        self.closed: list[str] = []
        self.trouble: HelixError | None = None

    async def open_workspace(self, workspace: str) -> Any:
        return await self._desk.open_workspace(workspace)

    async def open_remembered(self, remembered: RememberedWorkspace) -> Any:
        self.asked.append(remembered.address)
        if self.trouble is not None:
            raise self.trouble
        self.workspace.id = remembered.id
        return self.workspace

    async def search_workspace(self, workspace: str, words: str) -> Any:
        return await self._desk.search_closed_workspace(workspace, words)

    async def lend_key(self, workspace: str, conversation: str, provider: str) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.workspace.keys_by_conversation[conversation] = provider
        self.workspace.tell_changed_settings()

    async def close_client(self, workspace: str) -> None:
        self.closed.append(workspace)

    def remember_address(self, text: str) -> RememberedWorkspace:
        return RememberedWorkspace(f"ssh-{len(text)}", text, Path(text).name)

    def list_remembered(self, remembered: Sequence[RememberedWorkspace]) -> Any:
        rows = []
        for entry in remembered:
            row = WorkspaceElsewhere(self.workspace)
            row.id = entry.id
            row.name = entry.name
            row.first_folder = Path(entry.address)
            rows.append(row)
        return rows

    async def list_machines(self) -> Sequence[str]:
        return ["testbox", "R&D"]


@pytest.fixture
def connections(window: MainWindow, desk: FakeDesk) -> FakeConnections:
    made = FakeConnections(desk, WorkspaceElsewhere(window.current_workbench))
    window.workspaces.set_workspaces_and_start(desk, made)
    return made


@pytest.fixture
def dialog(window: MainWindow, connections: FakeConnections) -> OpenFolderElsewhereDialog:
    window.window_actions["open-folder-elsewhere"].trigger()
    return next(iter(window.findChildren(OpenFolderElsewhereDialog)))


def test_a_machine_of_the_configuration_is_chosen_and_the_folder_is_shown_and_remembered(
    window: MainWindow, dialog: OpenFolderElsewhereDialog, connections: FakeConnections
) -> None:
    assert not dialog.connect_button.isEnabled()
    machines = [button for button in dialog.findChildren(QPushButton) if button.text() == "R&&D"]
    assert machines
    next(
        button for button in dialog.findChildren(QPushButton) if button.text() == "testbox"
    ).click()
    dialog.folder.setText("project")
    dialog.connect_button.click()
    assert connections.asked == ["ssh://testbox/~/project"]
    assert window.showing.workspace is connections.workspace
    (remembered,) = window.workspaces.read_remembered()
    assert remembered.address == "ssh://testbox/~/project"
    assert remembered.id in [row.id for row in window.workspaces.listed]
    window.workspaces.go_to_workspace("storage-engine")
    window.workspaces.go_to_workspace(remembered.id)
    assert connections.asked[1:] == ["ssh://testbox/~/project"]


@pytest.mark.parametrize("pasted", ["ssh://testbox/~/project", "testbox:~/project"])
def test_a_whole_address_that_is_pasted_is_enough(
    dialog: OpenFolderElsewhereDialog, connections: FakeConnections, pasted: str
) -> None:
    """As `--host` and `scp` write it: the button stayed grey, and nothing said why."""
    dialog.machine.setText("testbox:2222")
    assert not dialog.connect_button.isEnabled()
    dialog.machine.setText(pasted)
    dialog.connect_button.click()
    assert connections.asked == ["ssh://testbox/~/project"]


def test_what_is_wrong_is_said_in_the_dialog_and_nothing_is_remembered(
    window: MainWindow, dialog: OpenFolderElsewhereDialog, connections: FakeConnections
) -> None:
    connections.trouble = HelixError("Helix Desktop is not installed on testbox.", remedy="Do it.")
    dialog.machine.setText("testbox")
    dialog.folder.setText("/srv")
    dialog.connect_button.click()
    assert "not installed on testbox" in dialog.trouble.text()
    assert dialog.connect_button.isEnabled()
    assert not dialog.progress.isVisible()
    assert window.workspaces.read_remembered() == []


def test_it_is_renamed_recoloured_and_taken_out_of_the_list(
    window: MainWindow, dialog: OpenFolderElsewhereDialog, connections: FakeConnections
) -> None:
    dialog.machine.setText("testbox")
    dialog.folder.setText("/srv")
    dialog.connect_button.click()
    (remembered,) = window.workspaces.read_remembered()
    rail = window.rail
    rail.workspace_action_wanted.emit("recolour", remembered.id)
    assert window.workspaces.read_remembered()[0].colour != remembered.colour
    rail.workspace_action_wanted.emit("terminal", remembered.id)
    assert "is done where the workspace was opened first" in window.notices.shown_text
    rail.workspace_action_wanted.emit("trash", remembered.id)
    assert window.workspaces.read_remembered() == []
    assert connections.closed == [remembered.id]
    assert window.showing.workspace is not connections.workspace
    window.window_actions["undo"].trigger()
    assert [entry.id for entry in window.workspaces.read_remembered()] == [remembered.id]


def test_a_workspace_whose_process_has_ended_is_opened_here(
    window: MainWindow, connections: FakeConnections
) -> None:
    elsewhere = connections.workspace
    elsewhere.id = "storage-engine"
    window.workspaces.stop_following_workspace("storage-engine")
    window.workspaces.bring_to_front(elsewhere)
    assert window.current_workbench is None
    elsewhere.line.tell(LineState(LineStage.UNHOSTED))
    assert connections.closed == ["storage-engine"]
    assert window.current_workbench is not None
    assert window.sidebar.line.isHidden()


def test_a_file_there_is_previewed_but_its_path_is_not_opened_here(
    window: MainWindow, connections: FakeConnections, tmp_path: Path
) -> None:
    window.workspaces.bring_to_front(connections.workspace)
    file = PreviewedFile("notes.txt", tmp_path / "notes.txt", PreviewKind.TEXT, b"x", "x")
    preview = window.pages.preview
    opened: list[Any] = []
    preview.open_wanted.connect(opened.append)
    preview.show_file(connections.workspace, file)
    preview._open.click()
    assert not opened
    assert preview._open.isHidden()
    assert preview._watcher.files() == []


def test_a_damaged_list_is_an_empty_one(window: MainWindow, connections: FakeConnections) -> None:
    window.state_file.remember_value("elsewhere", value=["x", {"id": 3}, {"id": ""}, {}])
    assert window.workspaces.read_remembered() == []


@pytest.mark.parametrize(
    ("machine", "folder", "address"),
    [
        ("box", "/srv/a b", "ssh://box/srv/a%20b"),
        ("me@box:22", "~/x", "ssh://me@box:22/~/x"),
        ("ssh://box/", "x", "ssh://box/~/x"),
    ],
)
def test_an_address_is_made_of_what_is_typed(machine: str, folder: str, address: str) -> None:
    assert build_ssh_address(machine, folder) == address
