"""The page without a workspace, and what it offers."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QEvent, QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication, QLabel

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.dialogs_and_notifications import DescribedHistories, DialogsAndNotifications
from helix_desktop.gui.frame.welcome_page import NewestConversation, WelcomePage
from helix_desktop.gui.frame.workspace_trash_dialog import WorkspaceTrashDialog
from helix_desktop.gui.importing.import_dialog import ImportConversationsDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from helix_desktop.program_settings import RECORDER, ProgramSettings
from tests.gui.fake_desk import FakeDesk, now
from tests.gui.fake_setup import FakeInstallation, FakeSetup
from tests.gui.test_dialogs_and_notifications import front, setup

__all__ = ["front", "setup"]


def test_without_a_workspace_there_is_a_welcome(
    theme: Theme,
    state_file: WindowStateFile,
    settings: ProgramSettings,
    doing: BackgroundRunner,
    tmp_path: Path,
) -> None:
    window = MainWindow(theme, state_file, settings, doing)
    DialogsAndNotifications(window, FakeSetup(), FakeInstallation(), tmp_path / "tour", now)
    window.show()
    window.workspaces.set_workspaces_and_start(FakeDesk(empty=True))
    assert window.showing.page == "welcome"
    assert window.focusWidget() is window.welcome.folder
    assert not window.is_sidebar_shown
    welcome = window.findChildren(WelcomePage)[0]
    # Conversations may be in a file, so this is offered where none were found as well.
    assert welcome.importing_conversations.isVisible()
    welcome.importing_conversations.click()
    (dialog,) = window.findChildren(ImportConversationsDialog)
    dialog.reject()
    welcome.folder_given.emit(tmp_path)
    assert window.showing.page == "chat"
    assert window.current_workbench is not None
    assert window.current_workbench.main_folder == tmp_path


def test_the_welcome_shows_a_way_to_workspaces_in_the_trash(
    theme: Theme,
    state_file: WindowStateFile,
    settings: ProgramSettings,
    doing: BackgroundRunner,
    tmp_path: Path,
) -> None:
    desk = FakeDesk(empty=True)
    window = MainWindow(theme, state_file, settings, doing)
    DialogsAndNotifications(window, FakeSetup(), FakeInstallation(), tmp_path / "tour", now)
    window.show()
    window.workspaces.set_workspaces_and_start(desk)
    assert window.welcome.trash.isHidden(), "there is nothing in the trash"
    desk.trashed.update(FakeDesk().benches)
    window.workspaces.refresh_workspaces()
    assert not window.welcome.trash.isHidden()
    window.welcome.trash.click()
    (dialog,) = window.findChildren(WorkspaceTrashDialog)
    assert dialog.isVisible()
    desk.benches.update(desk.trashed)
    window.workspaces.refresh_workspaces()
    assert window.welcome.trash.isHidden(), "the rail shows workspaces"


def test_the_welcome_scrolls_where_it_does_not_fit(theme: Theme) -> None:
    """With large text in a small window, its lines were cut."""
    page = WelcomePage(theme)
    page.resize(300, 200)
    page.show()
    QApplication.processEvents()
    labels = page.findChildren(QLabel)
    cut = [
        each.text()
        for each in labels
        if each.isVisible() and each.height() < each.heightForWidth(each.width())
    ]
    assert cut == []


def test_the_first_start_offers_to_record_agents_and_says_what_that_reads(
    front: DialogsAndNotifications, window: MainWindow, tmp_path: Path
) -> None:
    """It stood only in the import dialog, which a new user may never open."""
    histories = FakeInstallation().of_others
    box = window.welcome.recorder_box
    assert box.isHidden() or not box.isVisible(), "there is nothing to record"
    front._show_histories_on_welcome(
        [DescribedHistories(group, histories.details) for group in histories.groups]
    )
    assert not box.isChecked(), "it is off until it is chosen"
    assert "Claude Code" in box.accessibleDescription()
    assert any(
        box.accessibleDescription() == label.text() for label in window.welcome.findChildren(QLabel)
    )
    box.setFocus()
    QTest.keyClick(box, Qt.Key.Key_Space)
    assert window.settings[RECORDER]
    window.settings.change_setting(RECORDER, False)  # as the import dialog and the settings do
    assert not box.isChecked()


def test_recording_that_cannot_be_turned_on_is_said_and_not_shown_as_on(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    window.settings._path.parent.mkdir(parents=True, exist_ok=True)
    window.settings._path.write_text("[[broken", encoding="utf-8")
    window.welcome.recorder_box.click()
    assert not window.welcome.recorder_box.isChecked()
    assert window.notices.shown_text


def test_each_newest_conversation_has_a_line_of_the_whole_card(theme: Theme) -> None:
    """They stood squeezed beside the button."""
    page = WelcomePage(theme)
    rows = [
        NewestConversation("Claude Code", "Extract the lock manager", "storage-engine", "2h"),
        NewestConversation("Codex", "Flaky", "thesis", "Thu"),
    ]
    for _ in range(2):  # A second look replaces the first.
        page.show_importable_conversations(2, ["Claude Code"], rows)
        page.resize(900, 700)
        page.show()
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
        QApplication.processEvents()
    (age,) = (
        each for each in page.findChildren(QLabel) if each.text() == "2h" and each.isVisible()
    )
    right = age.mapTo(page, age.rect().topRight()).x()
    assert right >= page.bring_in.mapTo(page, page.bring_in.rect().topLeft()).x()
    assert (
        age.mapTo(page, age.rect().topLeft()).y()
        > page.bring_in.mapTo(page, page.bring_in.rect().bottomLeft()).y()
    )


def test_a_dropped_folder_is_opened(theme: Theme, tmp_path: Path) -> None:
    page = WelcomePage(theme)
    given = QSignalSpy(page.folder_given)
    (tmp_path / "file.txt").write_text("x")
    mime = QMimeData()
    mime.setUrls(
        [QUrl.fromLocalFile(str(tmp_path / "file.txt")), QUrl.fromLocalFile(str(tmp_path))]
    )
    action = Qt.DropAction.CopyAction
    none = Qt.KeyboardModifier.NoModifier
    page.dropEvent(QDropEvent(QPointF(5, 5), action, mime, Qt.MouseButton.LeftButton, none))
    assert given.at(0) == [tmp_path]
