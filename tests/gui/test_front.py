from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QMessageBox, QPlainTextEdit, QPushButton

from helix_desktop.engine.events import Running
from helix_desktop.errors import StoreFailed
from helix_desktop.gui import chat_acts
from helix_desktop.gui.background import Doing
from helix_desktop.gui.chat.trust_dialog import TrustDialog
from helix_desktop.gui.frame.coach import Card
from helix_desktop.gui.frame.first_start import ConnectDialog, WelcomePage
from helix_desktop.gui.frame.notify import Notifier
from helix_desktop.gui.front import Front
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.settings.dialog import SettingsDialog
from helix_desktop.gui.settings.model_dialog import ModelDialog
from helix_desktop.gui.settings.storage import StoragePage
from helix_desktop.gui.setup import Sure
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import intents
from helix_desktop.gui.wiring import wire
from helix_desktop.project.item import Item
from helix_desktop.settings import NOTIFY_DONE, Settings
from tests.gui import story
from tests.gui.fake_desk import FakeDesk, FakeSession, FakeWorkbench, Now, now
from tests.gui.fake_setup import QWEN, SONNET, FakeInstallation, FakeSetup


@pytest.fixture
def setup() -> FakeSetup:
    return FakeSetup()


@pytest.fixture
def front(window: MainWindow, setup: FakeSetup, tmp_path: Path) -> Front:
    return Front(window, setup, FakeInstallation(), tmp_path / "tour", now)


def test_without_a_workspace_there_is_a_welcome(
    theme: Theme, memory: Memory, settings: Settings, doing: Doing, tmp_path: Path
) -> None:
    window = MainWindow(theme, memory, settings, doing)
    wire(window)
    Front(window, FakeSetup(), FakeInstallation(), tmp_path / "tour", now)
    window.show()
    window.begin(FakeDesk(empty=True))
    assert window.page == "welcome"
    assert window.focusWidget() is window.welcome.folder
    assert not window.sidebar_shown
    welcome = window.findChildren(WelcomePage)[0]
    welcome.folder_given.emit(tmp_path)
    assert window.page == "chat"
    assert window.bench is not None
    assert window.bench.folder == tmp_path


def test_a_dropped_folder_is_opened(theme: Theme, tmp_path: Path) -> None:
    page = WelcomePage(theme)
    given = QSignalSpy(page.folder_given)
    (tmp_path / "file.txt").write_text("x")
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(str(tmp_path / "file.txt")), QUrl.fromLocalFile(str(tmp_path))])
    action, none = Qt.DropAction.CopyAction, Qt.KeyboardModifier.NoModifier
    page.dropEvent(QDropEvent(QPointF(5, 5), action, mime, Qt.MouseButton.LeftButton, none))
    assert given.at(0) == [tmp_path]


def test_a_model_is_asked_for_with_the_first_message_which_then_goes_by_itself(
    front: Front, setup: FakeSetup, window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.model, setup.listed = "", ()
    QTest.keyClicks(window.chat.composer.text, "Hello")
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    dialog = window.findChildren(ConnectDialog)[0]
    dialog.panel._key.setText("good")
    dialog.panel.test()
    assert bench.model == SONNET.name
    assert window.top.model.text() == f"{SONNET.name} ▾"
    assert window.chat.composer.text.toPlainText() == ""


def test_where_models_are_known_the_first_message_asks_which(
    front: Front, window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.model = ""
    composer, chooser = window.chat.composer, front.models.chooser
    for last in (Qt.Key.Key_Escape, Qt.Key.Key_Return):
        composer.text.clear()
        QTest.keyClicks(composer.text, "Hello")
        QTest.keyClick(composer.text, Qt.Key.Key_Return)
        assert window.findChildren(ConnectDialog) == []
        assert chooser.isVisible()
        QTest.keyClick(chooser.line, last)
    assert bench.model == SONNET.name
    assert composer.text.toPlainText() == ""


def test_a_model_chosen_later_sends_nothing_that_was_given_up(
    front: Front, window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.model = ""
    QTest.keyClicks(window.chat.composer.text, "Hello")
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    QTest.keyClick(front.models.chooser.line, Qt.Key.Key_Escape)
    window.top.model.click()
    QTest.keyClick(front.models.chooser.line, Qt.Key.Key_Return)
    assert bench.model == SONNET.name
    assert window.chat.composer.text.toPlainText() == "Hello"


def test_the_button_of_the_model_opens_the_chooser_and_a_correction_shows_there(
    front: Front, window: MainWindow, bench: FakeWorkbench
) -> None:
    chooser, bench.model = front.models.chooser, SONNET.name
    window.top.model.click()
    assert [row.model.name for row in chooser._model.items if row.model] == [SONNET.name, QWEN.name]
    QTest.keyClicks(chooser.line, "qwen")
    QTest.keyClick(chooser.line, Qt.Key.Key_E, Qt.KeyboardModifier.ControlModifier)
    (dialog,) = window.findChildren(ModelDialog)
    dialog.changes["window"] = 16_000
    dialog._save()
    window.top.model.click()
    QTest.keyClicks(chooser.line, "qwen")
    assert chooser.pointed() == replace(QWEN, window=16_000, sure=Sure.SET)
    QTest.keyClick(chooser.line, Qt.Key.Key_Return)
    assert bench.model == QWEN.name
    assert window.top.model.text() == f"{QWEN.name} ▾"


def test_the_settings_are_one_window(front: Front, window: MainWindow) -> None:
    window.settings_wanted.emit("policy")
    window.settings_wanted.emit("shortcuts")
    assert front._settings is not None
    assert front._settings._buttons["shortcuts"].isChecked()
    front._settings.reject()
    assert front._settings is None


def test_the_settings_close_with_the_workspace_they_are_about_and_nothing_of_them_stays(
    front: Front, window: MainWindow
) -> None:
    window.settings_wanted.emit("storage")
    window.open_workspace("parser")
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert window.findChildren(SettingsDialog) == []
    window.settings_wanted.emit("storage")
    assert [page._bench.id for page in window.findChildren(StoragePage)] == ["parser"]


def told(front: Front, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    said: list[tuple[str, str, str]] = []
    monkeypatch.setattr(front._notifier, "tell", lambda *words: said.append(words))
    return said


def test_the_desktop_is_told_when_the_window_is_not_in_front(
    front: Front, window: MainWindow, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(front, monkeypatch)
    window.hide()
    session.set_running(Running.TOOLS)
    session.set_running(Running.IDLE)
    window._watched["storage-engine"]._bridge.flush()
    link = f"helix://workspace/storage-engine/conversation/{story.CONVERSATION}"
    assert said == [("Extract the lock manager", "The agent has finished.", link)]
    window.settings.change(NOTIFY_DONE, False)
    session.set_running(Running.TOOLS)
    session.set_running(Running.IDLE)
    session.set_running(Running.FAILED, "the provider is overloaded")
    window._watched["storage-engine"]._bridge.flush()
    assert [words for _, words, _ in said[1:]] == ["The agent stopped: the provider is overloaded"]


def test_a_click_on_a_notification_goes_there(front: Front, window: MainWindow) -> None:
    front._notifier.clicked.emit("helix://workspace/storage-engine/conversation/flaky")
    assert window.session is not None
    assert window.session.id == "flaky"


def test_the_tour_has_a_workspace_of_its_own_and_says_nothing_for_the_user(front: Front, window: MainWindow) -> None:
    window.actions_["tour"].trigger()
    assert window.bench is not None
    assert window.bench.name == "Tour"
    assert window.session is None
    assert window.chat.composer.text.toPlainText() == ""
    assert window.notices.text == ""
    window.actions_["tour"].trigger()
    assert len(window.findChildren(Card)) == 1


def test_a_tour_that_cannot_begin_says_why(front: Front, window: MainWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    async def breaks(_desk: object, _folder: Path) -> FakeWorkbench:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(front._installation, "tour_workbench", breaks)
    window.actions_["tour"].trigger()
    assert window.notices.text == "The disk is full."
    assert window.findChildren(Card) == []


def test_where_no_desktop_listens_a_notification_is_nothing(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DBUS_SESSION_BUS_ADDRESS", raising=False)
    started: list[str] = []

    def start(work: Coroutine[Any, Any, Any], *, name: str) -> Now:
        work.close()
        started.append(name)
        return now

    notifier = Notifier(window.windowIcon(), start, window)
    notifier.tell("title", "x" * 500, "")
    assert started == []


def test_rules_are_shown_before_they_are_followed(front: Front, window: MainWindow, desk: FakeDesk) -> None:
    parser = desk.benches["parser"]
    rules = Item("rules", "AGENTS.md", Path("/x/AGENTS.md"), "Never push.\u202e", "")
    parser.rules = [rules]
    front._rules_found(parser, parser.rules)
    assert window.notices.text == ""
    window.open_workspace("parser")
    front._rules_found(parser, parser.rules)
    assert window.notices.text == "AGENTS.md contains rules for agents. They are used only after you trust them."
    window.notices.act()
    dialog = window.findChildren(TrustDialog)[0]
    assert dialog.findChildren(QPlainTextEdit)[0].toPlainText() == "Never push.⟨202E⟩"
    next(each for each in dialog.findChildren(QPushButton) if each.text() == "Trust").click()
    assert parser.trusted == [rules]


def test_what_opening_mended_is_said_and_what_was_imported_is_asked_for(
    front: Front, window: MainWindow, desk: FakeDesk
) -> None:
    parser = desk.benches["parser"]
    parser.notes = ("A torn log was mended; nothing was lost.",)
    parser.proposed = 'roots = ["/elsewhere"]'
    window.open_workspace("parser")
    assert window.notices.text == f"{parser.name} was opened, but some of its files needed attention."
    question = window.findChildren(QMessageBox)[0]
    assert 'roots = ["/elsewhere"]' in question.text()
    next(each for each in question.findChildren(QPushButton) if each.text() == "Allow").click()
    assert parser.decided == [True]
    window.notices.hide()
    window.open_workspace("storage-engine")
    window.open_workspace("parser")
    assert "needed attention" not in window.notices.text


def test_where_what_was_imported_cannot_be_decided_the_workspace_comes_back(
    front: Front, window: MainWindow, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*, accept: bool) -> None:
        raise StoreFailed("The disk is full.")

    parser = desk.benches["parser"]
    parser.proposed = "roots"
    monkeypatch.setattr(parser, "decide_proposals", full)
    window.open_workspace("parser")
    question = window.findChildren(QMessageBox)[0]
    next(each for each in question.findChildren(QPushButton) if each.text() == "Allow").click()
    assert window.bench is parser
    assert window.notices.text == "The disk is full."


def test_a_notification_names_the_conversation_of_a_workspace_behind(
    front: Front, window: MainWindow, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(front, monkeypatch)
    window.open_workspace("parser")
    window.hide()
    session.set_running(Running.TOOLS)
    session.set_running(Running.IDLE)
    window._watched["storage-engine"]._bridge.flush()
    assert [title for title, _, _ in said] == ["Extract the lock manager"]


@pytest.mark.parametrize("shown", [True, False])
def test_a_folder_that_is_gone_is_said_when_its_workspace_is_shown_and_after_a_turn(
    front: Front,
    window: MainWindow,
    bench: FakeWorkbench,
    tmp_path: Path,
    shown: bool,
) -> None:
    bench.folders = (tmp_path,)
    window.workbench_shown.emit()
    assert not window.notices.text
    bench.folders = (tmp_path / "moved",)
    if shown:
        window.workbench_shown.emit()
    else:
        window.settled.emit(bench.id, "", Running.IDLE, "")
    assert window.notices.text.startswith(f"The folder {tmp_path / 'moved'} is missing.")
    assert window.notices._button.text() == "Choose a folder…"


def test_trying_again_lets_the_keyring_ask_once_more(front: Front, window: MainWindow, setup: FakeSetup) -> None:
    window.actions_["resume"].trigger()
    chat_acts.do(window, intents.GoOn())
    assert setup.asked_again == 2
