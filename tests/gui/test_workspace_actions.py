"""Whole workspaces from the window: to a file and back, other folders, the trash."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QDialog,
    QFileDialog,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QWidget,
)

from helix_desktop.errors import StoreFailed
from helix_desktop.gui import workspace_actions
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.consent_dialog import ConsentDialog
from helix_desktop.gui.dialogs_and_notifications import DialogsAndNotifications
from helix_desktop.gui.frame.progress_dialog import ProgressDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.theme import Theme
from tests.gui.fake_desk import FakeDesk, now
from tests.gui.fake_setup import FakeInstallation, FakeSetup


@pytest.fixture
def front(window: MainWindow, tmp_path: Path) -> DialogsAndNotifications:
    return DialogsAndNotifications(window, FakeSetup(), FakeInstallation(), tmp_path / "tour", now)


def chosen(window: MainWindow, path: Path) -> None:
    """Answer the file dialog that is open."""
    (dialog,) = (each for each in window.findChildren(QFileDialog) if each.isVisible())
    dialog.filesSelected.emit([str(path)])
    dialog.reject()


def press(parent: QWidget, text: str) -> None:
    QApplication.processEvents()  # what was just added to a layout shows then
    shown = [
        each
        for each in parent.findChildren(QPushButton)
        if each.text() == text and each.isVisible()
    ]
    QTest.mouseClick(shown[0], Qt.MouseButton.LeftButton)


def said(widget: QWidget) -> str:
    return "\n".join(label.text() for label in widget.findChildren(QLabel) if not label.isHidden())


def test_a_workspace_is_exported_and_what_is_left_out_or_refuses_is_said(
    window: MainWindow, desk: FakeDesk, tmp_path: Path
) -> None:
    window.rail.workspace_action_wanted.emit("export", "storage-engine")
    chosen(window, tmp_path / "w.helix")
    assert (tmp_path / "w.helix").read_text() == "storage-engine"
    assert (
        window.notices.shown_text
        == "“storage-engine” was exported to w.helix, with its history and cache but without model keys."
    )
    desk.damaged = ("41f3" * 16, "ab12" * 16, "cd34" * 16, "ef56" * 16)
    window.window_actions["export-workspace"].trigger()
    chosen(window, tmp_path / "w.helix")
    left_out = "4 stored outputs are damaged and were left out: 41f341f341f3, ab12ab12ab12, cd34cd34cd34, …"
    assert window.notices.shown_text.splitlines()[1] == left_out
    window.window_actions["export-workspace"].trigger()
    chosen(window, tmp_path / "nowhere" / "w.helix")
    assert "Choose another folder or file name." in window.notices.shown_text


def test_an_import_opens_says_that_nothing_is_in_force_and_leads_on_to_a_folder(
    front: DialogsAndNotifications, window: MainWindow, desk: FakeDesk, tmp_path: Path
) -> None:
    desk.left_out = ("The entry 41f3 was damaged in the export and was left out.",)
    (tmp_path / "pairs.helix").write_text("")
    window.window_actions["import-workspace"].trigger()
    chosen(window, tmp_path / "pairs.helix")
    assert window.current_workbench is not None
    assert window.current_workbench.name == "pairs"
    assert (
        "The imported workspace's permissions, MCP servers and folders are not active yet."
        in window.notices.shown_text
    )
    assert "was left out" in window.notices.shown_text
    window.notices.run_notice_action()
    chosen(window, tmp_path)
    assert window.current_workbench.allowed_folders == [tmp_path]
    assert window.notices.shown_text == f"“pairs” now uses {tmp_path}."
    window.window_actions["import-workspace"].trigger()
    chosen(window, tmp_path / "missing")
    assert "does not exist" in window.notices.shown_text


@pytest.mark.parametrize(
    ("button", "decided"), [("Allow", [True]), ("Discard", [False]), ("Decide later", [])]
)
def test_what_came_along_is_decided_in_three_ways(
    front: DialogsAndNotifications,
    window: MainWindow,
    desk: FakeDesk,
    tmp_path: Path,
    button: str,
    decided: list[bool],
) -> None:
    desk.imports = 'roots = ["/elsewhere"]'
    (tmp_path / "pairs.helix").write_text("")
    window.window_actions["import-workspace"].trigger()
    chosen(window, tmp_path / "pairs.helix")
    (question,) = window.findChildren(ConsentDialog)
    assert "/elsewhere" in question.findChildren(QPlainTextEdit)[0].toPlainText()
    press(question, button)
    assert desk.benches["pairs"].decided == decided
    assert window.current_workbench is desk.benches["pairs"]


async def test_what_lasts_shows_how_far_it_is_and_stops(theme: Theme) -> None:
    parent = QWidget()
    lasting = ProgressDialog("Exporting “big”", parent)
    told = list[object]()
    begun = asyncio.get_running_loop().create_future()

    async def work() -> None:
        lasting.show_byte_progress(34_000_000, 96_000_000)
        await begun

    doing = BackgroundRunner(
        lambda coroutine, *, name: asyncio.get_running_loop().create_task(coroutine, name=name)
    )
    doing.failed.connect(told.append)
    lasting.run_with_progress(doing, work(), told.append)
    lasting.show()
    await asyncio.sleep(0)
    assert "34.0 MB of 96.0 MB" in said(lasting)
    press(lasting, "Stop")
    await asyncio.sleep(0)
    assert begun.cancelled()
    assert told == []


async def test_a_failure_closes_what_lasts_and_is_told(theme: Theme) -> None:
    parent = QWidget()
    lasting = ProgressDialog("Exporting “big”", parent)
    told = list[object]()

    async def work() -> None:
        raise StoreFailed("The disk is full.")

    doing = BackgroundRunner(
        lambda coroutine, *, name: asyncio.get_running_loop().create_task(coroutine, name=name)
    )
    doing.failed.connect(told.append)
    lasting.run_with_progress(doing, work(), told.append)
    await asyncio.sleep(0.01)
    assert [str(each) for each in told] == ["The disk is full."]
    assert lasting.result() == QDialog.DialogCode.Accepted
    assert not lasting._show_timer.isActive()


def test_a_terminal_is_opened_from_the_palette_in_the_folder_of_the_shown_workspace(
    window: MainWindow, doing: BackgroundRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []

    async def note_folder(folder: Path) -> None:
        opened.append(folder)

    monkeypatch.setattr(workspace_actions, "open_user_terminal", note_folder)
    action = window.window_actions["terminal"]
    assert action.isEnabled()
    action.trigger()
    row = window.workspaces.row_of("storage-engine")
    assert row is not None
    assert opened == [Path(row.first_folder)]
