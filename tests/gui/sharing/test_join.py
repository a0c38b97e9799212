from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.sharing.join import JoinDialog

ADDRESS = "postgresql://me@host/helix"


@pytest.fixture
def dialog(window: MainWindow) -> JoinDialog:
    window.actions_["join-workspace"].trigger()
    return next(iter(window.findChildren(JoinDialog)))


def fill(dialog: JoinDialog, key: str, folder: Path) -> None:
    dialog.address.setText(ADDRESS)
    dialog.key.setText(key)
    dialog.folder.setText(str(folder))


def test_it_needs_an_address_a_key_and_a_folder(dialog: JoinDialog, tmp_path: Path) -> None:
    assert not dialog.join.isEnabled()
    fill(dialog, "", tmp_path)
    assert not dialog.join.isEnabled()
    fill(dialog, "helix1-key", tmp_path)
    assert dialog.join.isEnabled()


def test_a_wrong_key_is_said_and_can_be_corrected(dialog: JoinDialog, window: MainWindow, tmp_path: Path) -> None:
    fill(dialog, "helix1-other", tmp_path)
    dialog.join.click()
    assert "This is not the key of a shared workspace" in dialog.told.text()
    assert dialog.join.isEnabled()
    layout = dialog.layout()
    assert layout is not None
    assert dialog.height() >= layout.totalHeightForWidth(dialog.width())  # nothing is cut off
    assert tmp_path.name not in [row.name for row in window.workspaces()]


def test_the_workspace_that_was_joined_is_shown(dialog: JoinDialog, window: MainWindow, tmp_path: Path) -> None:
    fill(dialog, "helix1-key", tmp_path)
    dialog.join.click()
    assert window.bench is not None
    assert window.bench.name == tmp_path.name
    assert window.bench.sharing.standing.address == ADDRESS
    assert not window.findChildren(JoinDialog) or not dialog.isVisible()
