from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.sharing.join_workspace_dialog import JoinWorkspaceDialog
from tests.turns import qt_works

ADDRESS = "postgresql://me@host/helix"


@pytest.fixture
def dialog(window: MainWindow) -> JoinWorkspaceDialog:
    window.window_actions["join-workspace"].trigger()
    return next(iter(window.findChildren(JoinWorkspaceDialog)))


def fill(dialog: JoinWorkspaceDialog, key: str, folder: Path) -> None:
    dialog.address.setText(ADDRESS)
    dialog.key.setText(key)
    dialog.folder.setText(str(folder))


def test_it_needs_an_address_a_key_and_a_folder(
    dialog: JoinWorkspaceDialog, tmp_path: Path
) -> None:
    assert not dialog.join.isEnabled()
    fill(dialog, "", tmp_path)
    assert not dialog.join.isEnabled()
    fill(dialog, "helix1-key", tmp_path)
    assert dialog.join.isEnabled()


@pytest.mark.parametrize("password", ["p4ss", "p4@ss", "p4/ss"])
def test_all_of_a_password_in_a_pasted_address_goes_into_its_field(
    dialog: JoinWorkspaceDialog, password: str
) -> None:
    dialog.address.setText(f"postgresql://me:{password}@host/helix")
    assert (dialog.address.text(), dialog.password.text()) == (ADDRESS, password)


def test_a_wrong_key_is_said_and_can_be_corrected(
    dialog: JoinWorkspaceDialog, window: MainWindow, tmp_path: Path
) -> None:
    fill(dialog, "helix1-other", tmp_path)
    dialog.join.click()
    assert "This is not the key of a shared workspace" in dialog.status_label.text()
    assert dialog.join.isEnabled()
    qt_works(20)
    label = dialog.status_label
    assert label.height() >= label.heightForWidth(label.width())  # nothing is cut off
    assert tmp_path.name not in [row.name for row in window.workspaces.listed]


def test_the_workspace_that_was_joined_is_shown(
    dialog: JoinWorkspaceDialog, window: MainWindow, tmp_path: Path
) -> None:
    fill(dialog, "helix1-key", tmp_path)
    dialog.join.click()
    assert window.current_workbench is not None
    assert window.current_workbench.name == tmp_path.name
    assert window.current_workbench.sharing.sharing_state.address == ADDRESS
    assert not window.findChildren(JoinWorkspaceDialog) or not dialog.isVisible()
