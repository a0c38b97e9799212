"""The workspaces in the trash."""

from __future__ import annotations

from PySide6.QtWidgets import QMessageBox

from helix_desktop.gui.frame.workspace_trash_dialog import WorkspaceTrashDialog
from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeDesk
from tests.gui.test_workspace_actions import press, said


def test_the_trash_gives_back_and_deletes_after_a_question(
    window: MainWindow, desk: FakeDesk
) -> None:
    window.state_file.remember_value("draft", "infra", "new", value={"text": "a secret"})
    for name in ("parser", "infra"):
        window.rail.workspace_action_wanted.emit("trash", name)
    window.window_actions["workspace-trash"].trigger()
    (trash,) = window.findChildren(WorkspaceTrashDialog)
    assert "parser" in said(trash)
    press(trash, "Restore")
    assert sorted(desk.benches) == ["parser", "storage-engine"]
    assert [row.id for row in window.workspaces.listed] == ["storage-engine", "parser"]
    press(trash, "Delete permanently…")
    (box,) = trash.findChildren(QMessageBox)
    assert list(desk.trashed) == ["infra"]
    press(box, "Delete permanently")
    assert desk.trashed == {}
    assert "secret" not in window.state_file._file.read_text("utf-8")
    assert "No workspaces in the trash." in said(trash)
