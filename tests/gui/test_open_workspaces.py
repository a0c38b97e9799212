"""Which workspaces are open: switching, the last one, new folders, and one that cannot be opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog

from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import StoreBusy, StoreFailed
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from helix_desktop.program_settings import ProgramSettings
from tests.gui import story
from tests.gui.fake_desk import FakeDesk, FakeSession, FakeWorkbench
from tests.gui.test_main_window import OPENING


def test_each_workspace_comes_back_with_the_conversation_that_was_open_in_it(
    window: MainWindow, desk: FakeDesk
) -> None:
    desk.benches["parser"].rows["p"] = Row("p", "Parse it", 0.0)
    window.workspaces.go_to_workspace("parser")
    window.sides.go_to_conversation("p")
    window.workspaces.go_to_workspace("storage-engine")
    assert window.current_session is not None
    assert window.current_session.id == story.CONVERSATION
    window.workspaces.go_to_workspace("parser")
    assert window.current_session is not None
    assert window.current_session.id == "p"


def test_switching_the_workspace_keeps_both_running(
    window: MainWindow, desk: FakeDesk, session: FakeSession
) -> None:
    session.set_running(ConversationActivity.TOOLS)
    assert QTest.qWaitForWindowActive(window)
    QTest.keyClick(window, Qt.Key.Key_2, Qt.KeyboardModifier.ControlModifier)
    assert window.current_workbench is desk.benches["parser"]
    for watched in window.workspaces.activity_by_workspace.values():
        watched._bridge.emit_waiting_events()
    square = window.rail._buttons[0]
    assert square.accessibleName() == "Workspace storage-engine, running"
    QTest.keyClick(window, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    assert window.current_session is session


def test_a_home_that_cannot_be_written_says_so_whatever_is_asked_for(
    theme: Theme,
    state_file: WindowStateFile,
    settings: ProgramSettings,
    doing: BackgroundRunner,
    tmp_path: Path,
) -> None:
    """The folder that was chosen waited for stores that never came, and nothing was said."""
    window = MainWindow(theme, state_file, settings, doing)
    window.workspaces.show_startup_error_and_block_actions(
        StoreFailed("Helix Desktop cannot write to /home.")
    )
    window.workspaces.create_workspace_for_folder(tmp_path)
    assert "cannot write to /home" in window.notices.shown_text
    for name in OPENING:
        window.notices.show_notice("")
        window.window_actions[name].trigger()
        assert "cannot write to /home" in window.notices.shown_text
    assert not window.findChildren(QDialog)


def test_a_folder_becomes_a_workspace_and_the_keyboard_is_in_the_message(
    window: MainWindow, desk: FakeDesk, tmp_path: Path
) -> None:
    window.workspaces.create_workspace_for_folder(tmp_path)
    made = window.current_workbench
    assert made is desk.benches[tmp_path.name]
    window.workspaces.go_to_workspace("parser")
    # At a start with a folder, they are not listed yet: that made a second workspace.
    window.workspaces.listed = ()
    window.workspaces.create_workspace_for_folder(tmp_path)
    assert len(desk.benches) == 4
    assert window.current_workbench is made


def test_a_workspace_made_elsewhere_is_there_when_one_comes_back(
    window: MainWindow, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.benches["made"] = FakeWorkbench(
        "made", "#6b4fa0", Path("/home/me/made")
    )  # on the command line
    assert "made" not in [row.id for row in window.workspaces.listed]
    monkeypatch.setattr(window, "isActiveWindow", lambda: True)
    QApplication.sendEvent(window, QEvent(QEvent.Type.ActivationChange))
    assert "made" in [row.id for row in window.workspaces.listed]
    assert window.rail.workspace_id_at(4) == "made"


def test_the_last_workspace_in_the_trash_leaves_another_one_open(
    window: MainWindow, desk: FakeDesk
) -> None:
    window.rail.workspace_action_wanted.emit("trash", "storage-engine")
    assert window.current_workbench is not None
    assert window.current_workbench.id != "storage-engine"
    window.notices.run_notice_action()
    assert "storage-engine" in desk.benches


def test_a_workspace_that_cannot_be_opened_is_said_and_another_way_is_shown(
    theme: Theme,
    state_file: WindowStateFile,
    settings: ProgramSettings,
    doing: BackgroundRunner,
    desk: FakeDesk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def busy(workspace: str) -> FakeWorkbench:
        raise StoreBusy(f"{workspace} is open in another program.", remedy="Close it there.")

    monkeypatch.setattr(desk, "open_workspace", busy)
    window = MainWindow(theme, state_file, settings, doing)
    window.workspaces.set_workspaces_and_start(desk)
    assert window.showing.page == "welcome"
    assert (
        window.notices._text.text() == "storage-engine is open in another program. Close it there."
    )


def test_a_workspace_that_cannot_be_opened_is_not_marked_as_the_open_one(
    window: MainWindow, desk: FakeDesk
) -> None:
    """What was typed went to the other one."""
    shown = window.showing.workspace_id
    button = next(b for b in window.rail._buttons if not b.isChecked())
    del desk.benches[button.workspace]
    button.click()
    assert window.notices._text.text() == f"There is no workspace {button.workspace}."
    assert [each.workspace for each in window.rail._buttons if each.isChecked()] == [shown]


def test_a_folder_opened_while_the_program_starts_is_opened_when_it_has_started(
    theme: Theme,
    state_file: WindowStateFile,
    settings: ProgramSettings,
    doing: BackgroundRunner,
    tmp_path: Path,
) -> None:
    window = MainWindow(theme, state_file, settings, doing)
    window.workspaces.create_workspace_for_folder(tmp_path)
    assert window.notices.shown_text == ""
    window.workspaces.set_workspaces_and_start(FakeDesk())
    assert window.current_workbench is not None
    assert window.current_workbench.main_folder == tmp_path


def test_a_folder_with_a_long_or_a_taken_name_gets_a_workspace(
    window: MainWindow, tmp_path: Path
) -> None:
    made = []
    for folder in (
        tmp_path / ("x" * 120),
        tmp_path / "a" / "same",
        tmp_path / "b" / "same",
        tmp_path / "b" / "b" / "same",
    ):
        folder.mkdir(parents=True)
        window.workspaces.create_workspace_for_folder(folder)
        assert window.current_workbench is not None
        made.append(window.current_workbench.name)
        window.workspaces.refresh_workspaces()
    assert made[:3] == ["x" * 80, "same", "same (b)"]
    assert len(set(made)) == 4


def test_a_new_workspace_comes_last_in_the_rail(window: MainWindow, tmp_path: Path) -> None:
    before = [row.id for row in window.workspaces.listed]
    first = tmp_path / "aaa"
    first.mkdir()
    window.workspaces.create_workspace_for_folder(first)
    window.workspaces.refresh_workspaces()
    assert [row.id for row in window.workspaces.listed][: len(before)] == before
    assert [row.name for row in window.workspaces.listed][-1] == "aaa"
