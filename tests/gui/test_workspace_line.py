"""What the window shows of a workspace that another process has open."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QLabel

from helix_desktop.engine.changes import diff_hunks
from helix_desktop.engine.facts import FoldKind, Text, Unfolded, UserPart
from helix_desktop.engine.session_events import MessagesQueued
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.errors import ActionRefused, OwnerEnded
from helix_desktop.gui.chat.message_drafts import UnsentMessage, encode_draft_message
from helix_desktop.gui.inspector.request_dialog import RequestDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.settings_dialog import SettingsDialog
from helix_desktop.gui.transcript import chat_actions
from helix_desktop.gui.transcript.chat_actions import MessageAct
from helix_desktop.gui.workspace_line import describe_line
from helix_desktop.program_settings import ASK_ABOVE
from helix_desktop.workspace_host.client_session import UnconfirmedMessage
from helix_desktop.workspace_host.host_interface import ChangedPath
from helix_desktop.workspace_host.host_line import LineStage, LineState
from tests.gui import story
from tests.gui.fake_changes import FakeChanges
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.fake_setup import FakeInstallation, FakeSetup
from tests.gui.test_late import SlowlyOpened, write
from tests.gui.test_search_sources import found_by_palette


class FakeLine:
    computer = "buildbox"

    def __init__(self) -> None:
        self.state = LineState(LineStage.CONNECTED)
        self.tries = 0
        self._listeners: list[Callable[[LineState], None]] = []

    def watch_line(self, listener: Callable[[LineState], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def try_now(self) -> None:
        self.tries += 1

    def tell(self, state: LineState) -> None:
        self.state = state
        for listener in tuple(self._listeners):
            listener(state)


class ChangesElsewhere(FakeChanges):
    """A branch is pushed only where the workspace is open."""

    def __init__(self) -> None:
        super().__init__()
        del self.branch_publishing
        self.line = FakeLine()
        self.fill({"src/a.py": (b"one\n", b"two\n")})


class WorkspaceElsewhere(FakeWorkbench):
    """The desk's workspace, as if another process had it open."""

    def __init__(self, bench: Any) -> None:
        self.__dict__.update(vars(bench))
        self.id = "ssh-elsewhere"
        self.line = FakeLine()
        self.unconfirmed: list[UnconfirmedMessage] = []
        self.changed: list[ChangedPath] = []
        self.keys_by_conversation: dict[str, str] = {}
        self.settings_listeners: list[Callable[[], object]] = []
        self.refuse: Callable[..., None] = lambda *_: None
        self.changes_elsewhere = ChangesElsewhere()
        self.sent_before_open: list[tuple[str, tuple[UserPart, ...]]] = []

    def send_before_open(
        self,
        conversation: str,
        parts: tuple[UserPart, ...],
        *,
        steer: bool = False,
        command_id: str = "",
    ) -> None:
        assert not steer
        assert command_id
        self.sent_before_open.append((conversation, parts))

    def providers_with_lent_key(self, conversation: str) -> list[str]:
        if conversation not in self.keys_by_conversation:
            return []
        return [self.keys_by_conversation[conversation]]

    async def take_back_lent_key(self, conversation: str) -> None:
        del self.keys_by_conversation[conversation]
        self.tell_changed_settings()

    def watch_settings(self, listener: Callable[[], object]) -> Callable[[], None]:
        self.settings_listeners.append(listener)
        return super().watch_settings(listener)

    def tell_changed_settings(self) -> None:
        for listener in self.settings_listeners:
            listener()

    async def read_description(self) -> None:
        pass

    def watch_refusals(self, listener: Callable[..., None]) -> Callable[[], None]:
        self.refuse = listener
        return lambda: None

    def file_changes_of(self, _conversation: str) -> FakeChanges:
        return self.changes_elsewhere

    async def list_changes_after(self, _conversation: str, _seq: int) -> list[ChangedPath]:
        return self.changed

    def unconfirmed_messages_of(self, _conversation: str) -> list[UnconfirmedMessage]:
        return self.unconfirmed


@pytest.fixture
def elsewhere(window: MainWindow) -> WorkspaceElsewhere:
    workspace = WorkspaceElsewhere(window.current_workbench)
    window.workspaces.bring_to_front(workspace)
    window.sides.go_to_conversation(story.CONVERSATION)
    return workspace


def test_its_line_is_shown_quietly_and_can_be_tried_at_once(
    window: MainWindow, elsewhere: WorkspaceElsewhere
) -> None:
    sidebar = window.sidebar
    assert sidebar.line.text() == "Connected to buildbox"
    assert sidebar.try_line.isHidden()
    elsewhere.line.tell(LineState(LineStage.WAITING, "Unreachable.", time.monotonic() + 4))
    words = sidebar.line.text()
    assert "The line to buildbox broke. The agent goes on there." in words
    assert "Unreachable." in sidebar.line.toolTip()
    assert "4 s" in words
    sidebar.try_line.click()
    assert elsewhere.line.tries == 1
    elsewhere.line.tell(LineState(LineStage.CONNECTED))
    assert sidebar.try_line.isHidden()
    window.workspaces.go_to_workspace("storage-engine")
    assert sidebar.line.isHidden()


def test_words_of_another_computer_are_plain_and_short(
    window: MainWindow, elsewhere: WorkspaceElsewhere
) -> None:
    elsewhere.line.tell(LineState(LineStage.WAITING, "<b>bold</b>\u202e" + "x" * 5_000))
    words = window.sidebar.line.toolTip()
    assert "\u202e" not in words
    assert "<b>" not in words
    assert len(words) < 500


def test_another_process_of_this_computer_is_named_so() -> None:
    # A second window of the same workspace is nothing that anybody must know of.
    assert describe_line("", LineState(LineStage.CONNECTED), 0) == ""
    broken_here = describe_line("", LineState(LineStage.WAITING), 3)
    assert broken_here.startswith("Another window or program has this workspace open")


def test_the_settings_say_where_those_of_the_workspace_are(
    window: MainWindow, elsewhere: WorkspaceElsewhere
) -> None:
    """In a second window, five of the seven pages were missing without a word."""
    dialog = SettingsDialog(window, FakeSetup(), FakeInstallation())
    dialog.show()
    dialog.show_settings_page("permissions")
    texts = [label.text() for label in dialog.findChildren(QLabel) if label.isVisible()]
    assert elsewhere.name in texts
    assert any(text.startswith("Its settings are where it was opened first") for text in texts)
    dialog.reject()


def test_pages_that_need_the_workbench_show_nothing_and_fail_at_nothing(
    window: MainWindow, elsewhere: WorkspaceElsewhere
) -> None:
    assert window.current_workbench is None
    assert window.current_session is None
    assert window.showing.conversation_id == story.CONVERSATION
    for page in ("changes", "cache", "timeline", "inspector", "chat"):
        window.switch_to_page(page)
    for name in ("export", "bring-back", "share-workspace", "export-workspace", "forget-text"):
        assert not window.window_actions[name].isEnabled(), name
    for name in ("rename", "pin", "archive", "trash", "fork", "compose"):
        assert window.window_actions[name].isEnabled(), name


def test_the_timeline_shows_and_undoes_what_was_shortened_elsewhere(
    window: MainWindow, elsewhere: WorkspaceElsewhere, application: QApplication
) -> None:
    window.switch_to_page("timeline")
    timeline = window.pages.timeline
    while timeline._read_timer.isActive():
        application.processEvents()
    assert timeline.isVisibleTo(window)
    assert timeline.list.rows.rowCount() > 0
    assert timeline.panel.isVisibleTo(window)
    session = elsewhere.sessions[story.CONVERSATION]
    assert timeline._chosen is not None
    fold = timeline._chosen.current_folds[0].fold
    timeline.panel.undo_wanted.emit([fold])
    application.processEvents()
    assert Unfolded(fold) in [recorded.fact for recorded in session.conversation.state.facts]


def test_the_context_is_shown_and_changed_elsewhere(
    window: MainWindow, elsewhere: WorkspaceElsewhere, application: QApplication
) -> None:
    window.window_actions["inspector"].trigger()
    inspector = window.pages.inspector
    application.processEvents()
    while inspector._read_timer.isActive():
        application.processEvents()
    assert inspector.isVisibleTo(window)
    assert inspector._parts
    inspector.show_request_of_step()
    application.processEvents()
    (dialog,) = window.findChildren(RequestDialog)
    assert dialog.form.count() == 1, "the form that the provider gets is known only there"
    dialog.reject()


def test_the_stored_outputs_are_shown_and_searched_elsewhere(
    window: MainWindow, elsewhere: WorkspaceElsewhere, application: QApplication
) -> None:
    window.switch_to_page("cache")
    page = window.pages.cache
    application.processEvents()
    assert page.isVisibleTo(window)
    assert page.model.rowCount() == len(elsewhere.workspace.rows)
    assert page.viewer.row is not None
    page.search_hash_or_text("lock")
    application.processEvents()
    assert page.model.shows_search_hits
    assert page.over_limit_button.isHidden()


def test_everything_is_searched_elsewhere_and_a_broken_line_is_said_once(
    window: MainWindow, elsewhere: WorkspaceElsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window.workspaces.workbenches, "opened_workbenches", list[Any])
    found = found_by_palette(window, "Shard")
    assert "… Shard …" in found

    async def break_off(*_: object) -> list[Any]:
        raise OwnerEnded("The line is broken.")

    monkeypatch.setattr(elsewhere.workspace, "search_index", break_off)
    monkeypatch.setattr(elsewhere, "complete_file_paths", break_off)
    found = found_by_palette(window, "Shard")
    assert found["Not searched: The line is broken."] == elsewhere.name
    assert "broken" not in window.notices.shown_text


def test_the_changes_are_shown_and_undone_elsewhere(
    window: MainWindow, elsewhere: WorkspaceElsewhere, application: QApplication
) -> None:
    window.switch_to_page("changes")
    page = window.pages.changes
    application.processEvents()
    assert page.isVisibleTo(window)
    assert [file.place for file in page._files] == ["src/a.py"]
    assert page.body.view.isVisibleTo(window)
    assert page.commit_button.isHidden()
    assert page.after_commit.isHidden()
    assert page.body.open_in_editor.isHidden()
    assert "where the workspace was opened first" in page._note.toolTip() + page._note.text()
    hunk = next(iter(diff_hunks.find_hunks(b"one\n", b"two\n"))).stable_id
    page.body.view.hunk_undo_requested.emit(hunk)
    application.processEvents()
    assert elsewhere.changes_elsewhere.now["src/a.py"] == b"one\n"
    window.workspaces.go_to_workspace("storage-engine")
    application.processEvents()
    assert not page.commit_button.isHidden()


def test_what_was_refused_is_given_back(window: MainWindow, elsewhere: WorkspaceElsewhere) -> None:
    parts: tuple[UserPart, ...] = (Text("not lost"),)
    elsewhere.refuse(story.CONVERSATION, parts, ActionRefused("It was refused."))
    assert "not lost" in window.chat.composer.text.toPlainText()
    assert "It was refused." in window.notices.shown_text


def test_unconfirmed_messages_are_kept_until_the_host_has_them(
    window: MainWindow, elsewhere: WorkspaceElsewhere
) -> None:
    """The file's other messages, one of the last start and one that the user is asked about, were
    removed with them.
    """
    key = ("waiting", "ssh-elsewhere", story.CONVERSATION)
    session = elsewhere.sessions[story.CONVERSATION]
    others = ["of the last start", encode_draft_message([Text("asked about")], "a")]
    window.state_file.remember_value(*key, value=others)
    session.tell(MessagesQueued(story.CONVERSATION, ()))
    assert window.state_file.get_remembered(*key, default=list[Any]()) == others
    message = QueuedMessage((Text("kept"),), steer=False, command_id="1")
    elsewhere.unconfirmed.append(UnconfirmedMessage(message, 7))
    for _ in range(2):
        session.tell(MessagesQueued(story.CONVERSATION, (message.parts,)))
        kept = window.state_file.get_remembered(*key, default=list[Any]())
        assert kept == [*others, encode_draft_message(message.parts, "1")]
    elsewhere.unconfirmed.clear()
    session.tell(MessagesQueued(story.CONVERSATION, ()))
    assert window.state_file.get_remembered(*key, default=list[Any]()) == others


def test_a_message_that_is_taken_back_stays_in_the_file_until_the_message_box_has_it(
    window: MainWindow, elsewhere: WorkspaceElsewhere
) -> None:
    """It was removed as soon as the host had confirmed it, and lost if both were killed after the
    host had let it go.
    """
    message = QueuedMessage((Text("kept"),), steer=False, command_id="1")
    place = (elsewhere.id, story.CONVERSATION)
    encoded = encode_draft_message(message.parts, "1")
    session = elsewhere.sessions[story.CONVERSATION]

    def messages_in_file() -> list[Any]:
        return window.state_file.get_remembered("waiting", *place, default=list[Any]())

    elsewhere.unconfirmed.append(UnconfirmedMessage(message, 7))
    session.tell(MessagesQueued(story.CONVERSATION, (message.parts,)))
    assert messages_in_file() == [encoded]
    # As `MessageSender._edit_queued_message` does it.
    unsent = UnsentMessage(message.parts, draft_id="1")
    window.sides.unsent_messages.keep_until_sent(place, unsent)
    assert messages_in_file() == [encoded]
    session.tell(MessagesQueued(story.CONVERSATION, (message.parts,)))
    assert messages_in_file() == [encoded]
    elsewhere.unconfirmed.clear()
    session.tell(MessagesQueued(story.CONVERSATION, (message.parts,)))
    session.tell(MessagesQueued(story.CONVERSATION, ()))
    assert messages_in_file() == [encoded]
    window.sides.unsent_messages.forget_message("1")
    assert messages_in_file() == []


def test_no_version_of_the_file_lacks_a_message_that_its_host_does_not_have(
    window: MainWindow, elsewhere: WorkspaceElsewhere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One was written when the message had left its box, and before it was unconfirmed."""
    message = QueuedMessage((Text("kept"),), steer=False, command_id="1")
    place = (elsewhere.id, story.CONVERSATION)
    encoded = encode_draft_message(message.parts, "1")
    versions: list[object] = []
    write_on_thread = window.state_file._write_on_thread

    def look_and_write() -> Any:
        versions.append(window.state_file.get_remembered("waiting", *place, default=list[Any]()))
        return write_on_thread()

    unsent = UnsentMessage(message.parts, draft_id="1")
    window.sides.unsent_messages.keep_until_sent(place, unsent)
    window.state_file.write_state_file()
    monkeypatch.setattr(window.state_file, "_write_on_thread", look_and_write)
    # As `MessageToSend.send_now` and the queue of a client do it.
    window.sides.unsent_messages.forget_message("1")
    elsewhere.unconfirmed.append(UnconfirmedMessage(message, 7))
    session = elsewhere.sessions[story.CONVERSATION]
    session.tell(MessagesQueued(story.CONVERSATION, (message.parts,), (), 0, (), ("1",)))
    QApplication.processEvents()
    window.state_file.start_waiting_write()
    assert [encoded] in versions
    assert [] not in versions


@pytest.mark.parametrize(("waiting", "left"), [("a", ""), ("b", "go on")])
def test_a_draft_that_waits_at_the_host_since_a_kill_does_not_come_back(
    window: MainWindow, waiting: str, left: str
) -> None:
    """The killed window had sent it and could not note that: it was sent twice."""
    workspace = WorkspaceElsewhere(window.current_workbench)
    draft = encode_draft_message([Text("go on")], "a")
    place = (workspace.id, story.CONVERSATION)
    window.state_file.remember_value("draft", *place, value=draft)
    session = workspace.sessions[story.CONVERSATION]
    session.queue.add_message((Text("go on"),), steer=False, command_id=waiting)
    window.workspaces.bring_to_front(workspace)
    window.sides.go_to_conversation(story.CONVERSATION)
    assert window.chat.composer.draft_place == place
    assert window.chat.composer.text.toPlainText() == left


def test_whatever_is_pressed_in_the_chat_of_a_workspace_elsewhere_does_not_fail(
    window: MainWindow, elsewhere: WorkspaceElsewhere
) -> None:
    digest = story.stored("ok\n").digest
    act = window.chat_actions.carry_out_intent
    for intent in (
        chat_actions.OpenChanges(3, "src/a.py"),
        chat_actions.OpenEntry(digest),
        chat_actions.OpenFold("f1"),
        chat_actions.OpenSubAgent("call"),
        chat_actions.ShowInChat(story.CONVERSATION, 2),
        chat_actions.ActOnMessage(MessageAct.SHOW_REQUEST, 3),
        chat_actions.ActOnMessage(MessageAct.REWIND, 1),
        chat_actions.ActOnMessage(MessageAct.EDIT, 1),
        chat_actions.AskToFold(FoldKind.HANDOVER),
    ):
        act(intent)
    window.window_actions["policy"].trigger()
    window.context_panel_opener.toggle_context_panel()
    for name in ("workspace-settings", "settings", "palette", "model", "mode"):
        window.window_actions[name].trigger()
    window.search.search_everywhere("lock")


# --- A long conversation elsewhere, whose newest messages are shown first


@pytest.mark.parametrize(
    ("words", "asks_above_cents", "is_sent_at_once"),
    [("go on", 0, True), ("go on", 50, False), ("/compact now", 0, False)],
)
def test_a_message_below_the_newest_messages_waits_only_if_it_needs_the_whole(
    window: MainWindow,
    elsewhere: WorkspaceElsewhere,
    monkeypatch: pytest.MonkeyPatch,
    words: str,
    asks_above_cents: int,
    is_sent_at_once: bool,
) -> None:
    window.settings.change_setting(ASK_ABOVE, asks_above_cents)
    slow = SlowlyOpened(elsewhere, monkeypatch, "flaky")
    waiting: list[int] = []

    def write_and_look() -> None:
        write(window, words)
        held = window.sides.unsent_messages.unsent_messages_of((elsewhere.id, "flaky"))
        waiting.append(len(held))

    slow.look = write_and_look
    window.sides.go_to_conversation("flaky")
    sent = [("flaky", (Text(words),))] if is_sent_at_once else []
    assert elsewhere.sent_before_open == sent
    assert waiting == [len(sent) == 0]
    assert window.chat.composer.text.toPlainText() == ""
