from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QDoubleSpinBox,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QScrollArea,
)

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.consent_dialog import ConsentDialog
from helix_desktop.gui.dialogs_and_notifications import (
    DialogsAndNotifications,
)
from helix_desktop.gui.frame.desktop_notifications import DesktopNotifier
from helix_desktop.gui.frame.welcome_page import ConnectModelDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.settings.edit_model_dialog import EditModelDialog
from helix_desktop.gui.settings.mcp_servers_page import McpServersPage
from helix_desktop.gui.settings.models_page import ModelsPage
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from helix_desktop.gui.settings.storage_page import StoragePage
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import chat_actions
from helix_desktop.gui.window_actions import declare_actions
from helix_desktop.program_settings import NOTIFY_DONE, SOUND_DONE, ProgramSettings
from helix_desktop.store.imported_proposals import ImportedQuestion
from tests.gui import story
from tests.gui.fake_desk import FakeDesk, FakeSession, FakeWorkbench, Now, now
from tests.gui.fake_setup import QWEN, SONNET, FakeInstallation, FakeSetup


@pytest.fixture
def setup() -> FakeSetup:
    return FakeSetup()


@pytest.fixture
def front(window: MainWindow, setup: FakeSetup, tmp_path: Path) -> DialogsAndNotifications:
    return DialogsAndNotifications(window, setup, FakeInstallation(), tmp_path / "tour", now)


def test_a_model_is_asked_for_with_the_first_message_which_then_goes_by_itself(
    front: DialogsAndNotifications, setup: FakeSetup, window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.main_model_name = ""
    setup.listed = ()
    QTest.keyClicks(window.chat.composer.text, "Hello")
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    dialog = window.findChildren(ConnectModelDialog)[0]
    assert _says_that_a_message_waits(dialog)
    dialog.panel._key.setText("good")
    dialog.panel.test_key_and_add_provider()
    assert bench.main_model_name == SONNET.name
    assert window.top.model.text() == f"{SONNET.name} ▾"
    assert window.chat.composer.text.toPlainText() == ""


def test_where_no_message_waits_none_is_promised_to_be_sent(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    front.models.open_connect_dialog()
    assert not _says_that_a_message_waits(window.findChildren(ConnectModelDialog)[0])


def test_the_dialog_grows_with_what_it_says_of_the_key(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    """Without a keyring, its last line was cut off although the screen had room."""
    front.models.open_connect_dialog()
    dialog = window.findChildren(ConnectModelDialog)[0]
    panel = dialog.panel
    before = dialog.height()
    panel._provider.setCurrentIndex(panel._provider.count() - 1)
    panel._status_label.setText("This system has no keyring. " * 12)
    panel._status_label.show()
    for _ in range(10):
        QApplication.processEvents()
    assert dialog.height() > before
    assert panel.height() >= panel.minimumSizeHint().height()
    assert not [
        area for area in dialog.findChildren(QScrollArea) if area.verticalScrollBar().maximum()
    ]


def test_a_server_that_lists_no_models_is_not_connected_and_is_named(
    front: DialogsAndNotifications, window: MainWindow, setup: FakeSetup
) -> None:
    """The dialog closed, and the list of models had only the demo, without a word why."""
    setup.offered = ()
    front.models.open_connect_dialog()
    panel = window.findChildren(ConnectModelDialog)[0].panel
    panel._key.setText("good")
    panel.test_key_and_add_provider()
    assert panel._status_label.text() == "Anthropic lists no models. Check the address."
    assert (panel._key.text(), setup.added) == ("good", [])


def test_a_refused_key_leaves_the_keyboard_at_the_key_not_at_the_demo(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    front.models.open_connect_dialog()
    panel = window.findChildren(ConnectModelDialog)[0].panel
    panel._key.setText("bad")
    panel._test.setFocus()
    panel._test.click()
    assert "does not accept this key" in panel._status_label.text()
    assert panel.focusWidget() is panel._key


def _says_that_a_message_waits(dialog: ConnectModelDialog) -> bool:
    return any("Your message will be sent" in label.text() for label in dialog.findChildren(QLabel))


def test_where_models_are_known_the_first_message_asks_which(
    front: DialogsAndNotifications, window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.main_model_name = ""
    composer = window.chat.composer
    chooser = front.models.chooser
    for last in (Qt.Key.Key_Escape, Qt.Key.Key_Return):
        composer.text.clear()
        QTest.keyClicks(composer.text, "Hello")
        QTest.keyClick(composer.text, Qt.Key.Key_Return)
        assert window.findChildren(ConnectModelDialog) == []
        assert chooser.isVisible()
        QTest.keyClick(chooser.line, last)
    assert bench.main_model_name == SONNET.name
    assert composer.text.toPlainText() == ""


@pytest.mark.parametrize("saves", [True, False])
def test_a_model_that_is_corrected_before_the_first_message_leads_back_to_the_choice(
    front: DialogsAndNotifications, window: MainWindow, bench: FakeWorkbench, *, saves: bool
) -> None:
    """There was no list any more, no model, and the message was not sent."""
    bench.main_model_name = ""
    composer = window.chat.composer
    chooser = front.models.chooser
    QTest.keyClicks(composer.text, "Hello")
    QTest.keyClick(composer.text, Qt.Key.Key_Return)
    QTest.keyClick(chooser.line, Qt.Key.Key_Down)
    QTest.keyClick(chooser.line, Qt.Key.Key_E, Qt.KeyboardModifier.ControlModifier)
    (dialog,) = window.findChildren(EditModelDialog)
    dialog.values["window"] = 16_000
    if saves:
        dialog._save_values_and_close()
    else:
        dialog.reject()
    assert chooser.isVisible()
    assert chooser.line.placeholderText() == "Which model should answer your message?"
    highlighted = chooser.highlighted_model()
    assert highlighted is not None
    assert highlighted.name == QWEN.name
    QTest.keyClick(chooser.line, Qt.Key.Key_Return)
    assert bench.main_model_name == QWEN.name
    assert composer.text.toPlainText() == "", "it was sent"


def test_a_model_chosen_later_sends_nothing_that_was_given_up(
    front: DialogsAndNotifications, window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.main_model_name = ""
    QTest.keyClicks(window.chat.composer.text, "Hello")
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    QTest.keyClick(front.models.chooser.line, Qt.Key.Key_Escape)
    window.top.model.click()
    QTest.keyClick(front.models.chooser.line, Qt.Key.Key_Return)
    assert bench.main_model_name == SONNET.name
    assert window.chat.composer.text.toPlainText() == "Hello"


def test_after_a_server_was_connected_enter_takes_one_of_its_models(
    front: DialogsAndNotifications, window: MainWindow, bench: FakeWorkbench
) -> None:
    """The model in use was highlighted, which may be the script of the tour."""
    bench.main_model_name = SONNET.name
    front.models.open_connect_dialog()
    (dialog,) = window.findChildren(ConnectModelDialog)
    dialog.added.emit("Ollama")
    chooser = front.models.chooser
    assert chooser.isVisible()
    assert [row.model.name for row in chooser._model.items if row.model] == [QWEN.name]
    QTest.keyClick(chooser.line, Qt.Key.Key_Return)
    assert bench.main_model_name == QWEN.name


def test_a_model_that_is_chosen_for_one_conversation_changes_no_other(
    front: DialogsAndNotifications, window: MainWindow, bench: FakeWorkbench
) -> None:
    """Who chose a smaller model for a new conversation found the first one nearly full."""
    conversations = []
    for model in (SONNET.name, QWEN.name):
        window.sides.begin_new_conversation()
        front.models.use_chosen_model(model)
        QTest.keyClicks(window.chat.composer.text, "Hello")
        QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
        assert window.current_session is not None
        conversations.append(window.current_session.id)
    first, second = conversations
    assert bench.model_of_conversation(first) == SONNET.name
    assert bench.model_of_conversation(second) == QWEN.name
    front.models.use_chosen_model("local/third")
    assert bench.model_of_conversation(first) == SONNET.name
    assert bench.model_of_conversation(second) == "local/third"
    assert bench.main_model_name == "local/third", "what the next conversation begins with"


def test_the_button_of_the_model_opens_the_chooser_and_a_correction_shows_there(
    front: DialogsAndNotifications, window: MainWindow, bench: FakeWorkbench
) -> None:
    chooser = front.models.chooser
    bench.main_model_name = SONNET.name
    window.top.model.click()
    assert [row.model.name for row in chooser._model.items if row.model] == [SONNET.name, QWEN.name]
    QTest.keyClicks(chooser.line, "qwen")
    QTest.keyClick(chooser.line, Qt.Key.Key_E, Qt.KeyboardModifier.ControlModifier)
    (dialog,) = window.findChildren(EditModelDialog)
    assert "unknown" not in [
        field.specialValueText() for field in dialog.findChildren(QDoubleSpinBox)
    ]  # It runs here.
    dialog.values["window"] = 16_000
    dialog._save_values_and_close()
    assert chooser.isVisible(), "the list is still what the user was at"
    assert chooser.highlighted_model() == replace(QWEN, window=16_000, sure=WindowSizeSource.USER)
    QTest.keyClick(chooser.line, Qt.Key.Key_Return)
    assert bench.main_model_name == QWEN.name
    assert window.top.model.text() == f"{QWEN.name} ▾"


@pytest.mark.usefixtures("front")
def test_every_declared_action_is_carried_out_by_some_part(window: MainWindow) -> None:
    idle: list[str] = []
    for declared in declare_actions():
        action = window.window_actions[declared.id]
        if not action.receivers("2triggered(bool)"):
            idle.append(declared.id)
    assert idle == ["new-window"]  # `WindowProgram` does this: another window is another process.


def test_the_settings_are_one_window(front: DialogsAndNotifications, window: MainWindow) -> None:
    window.parts.requests.settings_wanted.emit("policy")
    window.parts.requests.settings_wanted.emit("shortcuts")
    assert front._settings is not None
    assert front._settings._buttons["appearance"].isChecked()
    front._settings.reject()
    assert front._settings is None


def test_the_settings_close_with_the_workspace_they_are_about_and_nothing_of_them_stays(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    window.parts.requests.settings_wanted.emit("storage")
    window.workspaces.go_to_workspace("parser")
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert window.findChildren(SettingsDialog) == []
    window.parts.requests.settings_wanted.emit("storage")
    assert [page._bench.id for page in window.findChildren(StoragePage)] == ["parser"]


def test_settings_that_were_opened_while_the_workspace_was_loading_have_all_pages_and_fill_them(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    """Five of the seven were missing, and the page that was asked for was another one."""
    bench = window.showing.workspace
    assert bench is not None
    window.showing.set_shown_workspace(None)
    window.parts.requests.settings_wanted.emit("permissions")
    settings = front._settings
    assert settings is not None
    assert len(settings._buttons) == 7
    assert settings._buttons["permissions"].isChecked()
    page = settings._pages["permissions"]
    opening = f"Opening {bench.name}…"
    assert opening in [label.text() for label in page.findChildren(QLabel)]
    settings.show_settings_page("providers")
    settings.show_settings_page("servers")
    button = settings._buttons["servers"]
    button.setFocus()

    window._bring_workspace_to_front(bench)
    assert front._settings is settings
    assert settings.isVisible()
    assert button.isChecked()
    assert settings.focusWidget() is button, "it fills without taking the focus"
    texts = [label.text() for label in settings.findChildren(QLabel) if not label.isHidden()]
    assert opening not in texts
    assert window.findChildren(ModelsPage) != [], "also the page that is not shown"
    assert window.findChildren(McpServersPage) != []

    window.workspaces.go_to_workspace("parser")
    assert front._settings is None, "these are about the workspace that was left"


def test_settings_that_are_asked_for_during_the_start_open_after_it(
    theme: Theme,
    state_file: WindowStateFile,
    settings: ProgramSettings,
    doing: BackgroundRunner,
    tmp_path: Path,
) -> None:
    """The key was pressed in vain: nothing answers until the stores are open."""
    window = MainWindow(theme, state_file, settings, doing)
    window.show()
    window.window_actions["settings"].trigger()
    front = DialogsAndNotifications(window, FakeSetup(), FakeInstallation(), tmp_path / "tour", now)
    assert front._settings is None
    window.workspaces.set_workspaces_and_start(FakeDesk())
    assert front._settings is not None
    assert front._settings.isVisible()


def test_settings_without_a_workspace_say_that_a_folder_is_to_be_opened(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    window.showing.set_shown_workspace(None)
    window.parts.requests.settings_wanted.emit("storage")
    assert front._settings is not None
    window.workspaces._report_workspace_not_opened(HelixError("It is damaged."))
    texts = [label.text() for label in front._settings._pages["storage"].findChildren(QLabel)]
    assert any(text.startswith("These settings belong to a workspace.") for text in texts)


def told(
    front: DialogsAndNotifications, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[str, str, str]]:
    said: list[tuple[str, str, str]] = []
    monkeypatch.setattr(
        front._notifier, "show_desktop_notification", lambda *words: said.append(words)
    )
    return said


def test_the_desktop_is_told_when_the_window_is_not_in_front(
    front: DialogsAndNotifications,
    window: MainWindow,
    session: FakeSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = told(front, monkeypatch)
    window.hide()
    session.set_running(ConversationActivity.TOOLS)
    session.set_running(ConversationActivity.IDLE)
    window.workspaces.activity_by_workspace["storage-engine"]._bridge.emit_waiting_events()
    link = f"helix://workspace/storage-engine/conversation/{story.CONVERSATION}"
    assert said == [("Extract the lock manager", "The agent has finished.", link)]
    window.settings.change_setting(NOTIFY_DONE, False)
    session.set_running(ConversationActivity.TOOLS)
    session.set_running(ConversationActivity.IDLE)
    session.set_running(ConversationActivity.FAILED, "the provider is overloaded")
    window.workspaces.activity_by_workspace["storage-engine"]._bridge.emit_waiting_events()
    assert [words for _, words, _ in said[1:]] == ["The agent stopped: the provider is overloaded"]


def test_a_sound_says_that_an_agent_is_done_once_it_is_turned_on(
    front: DialogsAndNotifications,
    window: MainWindow,
    session: FakeSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sounds: list[str] = []
    monkeypatch.setattr(QApplication, "beep", lambda: sounds.append("done"))
    activity = window.workspaces.activity_by_workspace["storage-engine"]

    def finish(state: ConversationActivity) -> None:
        session.set_running(ConversationActivity.TOOLS)
        session.set_running(state)
        activity._bridge.emit_waiting_events()

    finish(ConversationActivity.IDLE)
    assert sounds == [], "it is off at first"
    window.settings.change_setting(SOUND_DONE, True)
    finish(ConversationActivity.IDLE)
    assert sounds == ["done"]
    finish(ConversationActivity.FAILED)
    assert sounds == ["done"], "what failed is not done"


def test_a_click_on_a_notification_goes_there(
    front: DialogsAndNotifications, window: MainWindow
) -> None:
    front._notifier.clicked.emit("helix://workspace/storage-engine/conversation/flaky")
    assert window.current_session is not None
    assert window.current_session.id == "flaky"


def test_where_no_desktop_listens_a_notification_is_nothing(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    started: list[str] = []

    def start(work: Coroutine[Any, Any, Any], *, name: str) -> Now:
        work.close()
        started.append(name)
        return now

    notifier = DesktopNotifier(window.windowIcon(), start, window)
    notifier.show_desktop_notification("title", "x" * 500, "")
    assert started == []


def test_what_opening_mended_is_said_and_what_was_imported_is_asked_for(
    front: DialogsAndNotifications, window: MainWindow, desk: FakeDesk
) -> None:
    parser = desk.benches["parser"]
    parser.opening_notes = ("A torn log was mended; nothing was lost.",)
    parser.proposed = 'roots = ["/elsewhere"]'
    window.workspaces.go_to_workspace("parser")
    assert (
        window.notices.shown_text
        == f"{parser.name} was opened, but there were problems with some of its files."
    )
    question = window.findChildren(ConsentDialog)[0]
    assert question.findChildren(QPlainTextEdit)[0].toPlainText() == 'roots = ["/elsewhere"]'
    next(each for each in question.findChildren(QPushButton) if each.text() == "Allow").click()
    assert parser.decided == [True]
    window.notices.hide()
    window.workspaces.go_to_workspace("storage-engine")
    window.workspaces.go_to_workspace("parser")
    assert "there were problems" not in window.notices.shown_text


def test_where_what_was_imported_cannot_be_decided_the_workspace_comes_back(
    front: DialogsAndNotifications,
    window: MainWindow,
    desk: FakeDesk,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def full(question: ImportedQuestion, *, accept: bool) -> None:
        raise StoreFailed("The disk is full.")

    parser = desk.benches["parser"]
    parser.proposed = "roots"
    monkeypatch.setattr(parser, "decide_imported_question", full)
    window.workspaces.go_to_workspace("parser")
    question = window.findChildren(ConsentDialog)[0]
    next(each for each in question.findChildren(QPushButton) if each.text() == "Allow").click()
    assert window.current_workbench is parser
    assert window.notices.shown_text == "The disk is full."


def test_a_notification_names_the_conversation_of_a_workspace_behind(
    front: DialogsAndNotifications,
    window: MainWindow,
    session: FakeSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = told(front, monkeypatch)
    window.workspaces.go_to_workspace("parser")
    window.hide()
    session.set_running(ConversationActivity.TOOLS)
    session.set_running(ConversationActivity.IDLE)
    window.workspaces.activity_by_workspace["storage-engine"]._bridge.emit_waiting_events()
    assert [title for title, _, _ in said] == ["Extract the lock manager"]


@pytest.mark.parametrize("shown", [True, False])
def test_a_folder_that_is_gone_is_said_when_its_workspace_is_shown_and_after_a_turn(
    front: DialogsAndNotifications,
    window: MainWindow,
    bench: FakeWorkbench,
    tmp_path: Path,
    shown: bool,
) -> None:
    bench.allowed_folders = (tmp_path,)
    window.workbench_shown.emit()
    assert not window.notices.shown_text
    bench.allowed_folders = (tmp_path / "moved",)
    if shown:
        window.workbench_shown.emit()
    else:
        window.workspaces.activity_ended.emit(bench.id, "", ConversationActivity.IDLE, "")
    assert window.notices.shown_text.startswith(f"The folder {tmp_path / 'moved'} is missing.")
    assert window.notices._button.text() == "Choose a folder…"


def test_suggestions_about_a_project_need_files_in_its_folder(
    front: DialogsAndNotifications, window: MainWindow, bench: FakeWorkbench, tmp_path: Path
) -> None:
    bench.allowed_folders = (tmp_path,)
    (tmp_path / ".git").mkdir()
    suggestions = window.chat.empty._others
    window.workbench_shown.emit()
    assert all(button.isHidden() for button in suggestions)
    (tmp_path / "README.md").write_text("x", encoding="utf-8")
    window.workspaces.activity_ended.emit(bench.id, "", ConversationActivity.IDLE, "")
    assert not any(button.isHidden() for button in suggestions)


def test_trying_again_lets_the_keyring_ask_once_more(
    front: DialogsAndNotifications, window: MainWindow, setup: FakeSetup
) -> None:
    window.window_actions["resume"].trigger()
    window.chat_actions.carry_out_intent(chat_actions.ConversationAct.CONTINUE_TURN)
    assert setup.asked_again == 2
