"""What comes late finds another page, another conversation or another workspace in front."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel, QMessageBox, QPushButton

from helix_desktop.engine.facts import (
    ConversationStarted,
    Fact,
    FoldKind,
    ModelReplied,
    Recorded,
    Rewound,
    Stop,
    Text,
    UserSaid,
)
from helix_desktop.engine.newest_facts import LEAST_FACTS, collect_newest_facts
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_events import ConversationActivity, FoldProgress
from helix_desktop.errors import ActionRefused, StoreFailed
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.message_drafts import encode_draft_message
from helix_desktop.gui.common.text_selection import TextPosition
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import chat_actions
from helix_desktop.gui.transcript.transcript_view import list_item_intents
from helix_desktop.program_settings import ProgramSettings
from tests.gui import story
from tests.gui.fake_desk import FakeDesk, FakeSession, FakeWorkbench, Held, now


@pytest.fixture
def held(request: pytest.FixtureRequest, doing: BackgroundRunner) -> Iterator[Held]:
    """From now on work waits until it is let go."""
    request.getfixturevalue("starting" if "starting" in request.fixturenames else "window")
    made = doing._spawn = Held()
    yield made
    doing._spawn = now
    made.let()


def write(window: MainWindow, text: str) -> None:
    window.chat.composer.text.setPlainText(text)
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)


def shown(window: MainWindow) -> tuple[str, str]:
    return (
        window.current_workbench.id if window.current_workbench else "",
        window.current_session.id if window.current_session else "",
    )


def test_the_workspace_asked_for_last_is_shown(window: MainWindow, held: Held) -> None:
    window.workspaces.go_to_workspace("parser")
    window.workspaces.go_to_workspace("infra")
    held.let("_open_wherever_it_is infra")
    held.let("_open_wherever_it_is parser")
    assert shown(window)[0] == "infra"


def test_the_link_a_program_was_started_with_is_followed(
    window: MainWindow, desk: FakeDesk, held: Held
) -> None:
    """Its workspace is asked for while the workspaces are still being listed."""
    window.workspaces.stop_following_workspace("storage-engine")
    window.workspaces.set_workspaces_and_start(desk)
    window.places.go_to_place(WindowPlace("workspace", "parser"))
    held.let("list_workspaces")
    held.let()
    held.let()
    assert shown(window)[0] == "parser"


def test_after_a_folder_that_could_not_be_opened_another_workspace_still_comes_to_the_front(
    window: MainWindow, desk: FakeDesk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def full(name: str, folder: Path) -> FakeWorkbench:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(desk, "create_workspace", full)
    window.workspaces.create_workspace_for_folder(tmp_path)
    assert window.notices.shown_text == "The disk is full."
    window.window_actions["trash-workspace"].trigger()
    assert shown(window)[0] == "parser"


def test_a_workspace_in_front_stays_when_it_was_chosen_again_meanwhile(
    window: MainWindow, held: Held
) -> None:
    window.workspaces.go_to_workspace("parser")
    window.workspaces.go_to_workspace("storage-engine")
    held.let("_open_wherever_it_is parser")
    assert shown(window)[0] == "storage-engine"


def test_the_conversation_asked_for_last_is_shown(window: MainWindow, held: Held) -> None:
    window.sides.go_to_conversation("flaky")
    window.sides.go_to_conversation("review")
    held.let("_open_and_prepare_session", newest=True)
    held.let("_open_and_prepare_session")
    assert shown(window)[1] == "review"


def test_a_new_conversation_is_not_covered_by_one_that_was_slow_to_open(
    window: MainWindow, held: Held
) -> None:
    window.sides.go_to_conversation("flaky")
    window.window_actions["new"].trigger()
    held.let("_open_and_prepare_session")
    assert shown(window) == ("storage-engine", "")


def test_a_fork_of_a_workspace_that_was_left_is_not_shown_in_another(
    window: MainWindow, held: Held
) -> None:
    window.window_actions["fork"].trigger()
    window.workspaces.go_to_workspace("parser")
    held.let("_open_wherever_it_is")
    held.let("fork")
    assert shown(window) == ("parser", "")


def test_a_first_message_is_said_where_it_was_written(
    window: MainWindow, desk: FakeDesk, held: Held
) -> None:
    window.window_actions["new"].trigger()
    write(window, "Hello")
    window.workspaces.go_to_workspace("parser")
    held.let("_open_wherever_it_is")
    held.let("_create_with_chosen_model")
    assert shown(window) == ("parser", "")
    facts = desk.benches["storage-engine"].sessions["new-1"].state.facts
    (said,) = [recorded.fact for recorded in facts if isinstance(recorded.fact, UserSaid)]
    assert said.parts == (Text("Hello"),)
    assert said.command, "the conversation knows the message by the id of its draft"


def test_a_first_message_survives_a_kill_while_its_conversation_is_being_created(
    window: MainWindow, held: Held
) -> None:
    """It was neither in the message box nor in a queue."""
    window.window_actions["new"].trigger()
    write(window, "Hello")
    file = window.state_file
    key = ("waiting", "storage-engine", "new")
    (kept,) = file.get_remembered(*key, default=list[dict[str, str]]())
    assert kept["text"] == "Hello"
    window.sides.begin_new_conversation()
    assert window.chat.composer.text.toPlainText() == "", "it is being sent, so it is no draft"
    assert file.get_remembered(*key, default=list[object]()) == [kept]
    held.let("_create_with_chosen_model")
    assert file.get_remembered(*key, default=list[object]()) == []


def test_a_first_message_that_was_not_sent_before_a_kill_is_a_draft(window: MainWindow) -> None:
    place = ("storage-engine", "new")
    kept = encode_draft_message((Text("Hello"),), "a")
    window.state_file.remember_value("waiting", *place, value=[kept])
    window.window_actions["new"].trigger()
    assert window.chat.composer.draft_place == place
    assert window.chat.composer.text.toPlainText() == "Hello"
    assert window.state_file.get_remembered("waiting", *place, default=list[object]()) == []


def begin_in_copy(window: MainWindow) -> None:
    window.window_actions["new-copy"].trigger()
    question = window.findChildren(QMessageBox)[-1]
    next(each for each in question.buttons() if each.text() == "From the last commit").click()


def messages_of(session: FakeSession) -> list[str]:
    said = [recorded.fact for recorded in session.state.facts]
    return [str(fact.parts) for fact in said if isinstance(fact, UserSaid)]


def test_what_is_written_while_a_copy_is_made_waits_for_its_conversation(
    window: MainWindow, bench: FakeWorkbench, held: Held
) -> None:
    """It was sent to the conversation of before, whose agent works in the user's own folder."""
    session_before = window.current_session
    assert isinstance(session_before, FakeSession)
    messages_before = messages_of(session_before)
    begin_in_copy(window)
    labels = window.chat.findChildren(QLabel)
    assert any(label.text().startswith("The copy of the repository is being") for label in labels)
    write(window, "Hello")
    window.chat.composer.text.setPlainText("and then")
    held.let("start_conversation_in_copy")
    assert messages_of(session_before) == messages_before
    session = window.current_session
    assert isinstance(session, FakeSession)
    assert bench.rows[session.id].copy == "main"
    assert "Hello" in messages_of(session)[-1]
    assert window.chat.composer.text.toPlainText() == "and then"


def test_a_copy_that_is_ready_late_does_not_replace_what_is_shown_meanwhile(
    window: MainWindow, bench: FakeWorkbench, held: Held
) -> None:
    begin_in_copy(window)
    write(window, "Hello")
    window.sides.go_to_conversation("review")
    held.let("_open_and_prepare_session")
    held.let("start_conversation_in_copy")
    assert shown(window)[1] == "review"
    (in_copy,) = [session for session in bench.sessions.values() if session.state.own_copy]
    assert isinstance(in_copy, FakeSession)
    assert "Hello" in messages_of(in_copy)[-1]


def test_what_was_written_for_a_copy_that_cannot_be_made_stays_unsent(
    window: MainWindow, bench: FakeWorkbench, held: Held, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(**_: object) -> FakeSession:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(bench, "start_conversation_in_copy", full)
    session_before = window.current_session
    assert isinstance(session_before, FakeSession)
    messages_before = messages_of(session_before)
    begin_in_copy(window)
    write(window, "Hello")
    window.chat.composer.text.setPlainText("and then")
    held.let("full")
    held.let()
    assert messages_of(session_before) == messages_before
    assert window.current_session is session_before
    text = window.chat.composer.text.toPlainText()
    assert "Hello" in text
    assert "and then" in text
    assert window.notices.shown_text == "The disk is full."


def test_a_message_that_cannot_be_said_stays(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(**_: object) -> FakeSession:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(bench, "start_conversation", full)
    window.window_actions["new"].trigger()
    write(window, "Hello")
    assert window.chat.composer.text.toPlainText() == "Hello"
    assert window.notices.shown_text == "The disk is full."


def test_a_changed_message_that_is_refused_stays(
    window: MainWindow, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(seq: int, parts: object, *, command_id: str = "") -> None:
        raise ActionRefused("Cannot edit while the agent is working.")

    monkeypatch.setattr(session, "edit_and_resend", refused)
    window.chat.composer.edit_earlier_message(5, (Text("Better."),))
    window.chat.composer.send_composed_message(steer=False)
    assert window.chat.composer.text.toPlainText() == "Better."


def test_a_changed_message_is_followed_to_its_answer(
    window: MainWindow, session: FakeSession
) -> None:
    view = window.chat.transcript.view
    view.scroll_to_item(0)
    assert not view.scrolling.is_following_end
    window.chat.composer.edit_earlier_message(5, (Text("Better."),))
    window.chat.composer.send_composed_message(steer=False)
    assert view.scrolling.is_following_end


def test_without_a_workspace_the_words_stay(window: MainWindow) -> None:
    window.workspaces.stop_following_workspace("storage-engine")
    write(window, "Hello")
    assert window.chat.composer.text.toPlainText() == "Hello"


def test_going_on_while_something_is_forgotten_is_said(
    window: MainWindow, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise ActionRefused("Cannot go on while content is being permanently removed.")

    monkeypatch.setattr(session, "resume_turn", refuse)
    window.window_actions["resume"].trigger()
    assert window.notices.shown_text == "Cannot go on while content is being permanently removed."


def test_what_is_attached_comes_to_the_message_it_was_meant_for(
    window: MainWindow, held: Held
) -> None:
    window.messages.attaching.attach_long_text("a long paste")
    window.search.recall_into_draft(next(iter(story.CONTENT)))
    window.workspaces.go_to_workspace("parser")
    held.let("_open_wherever_it_is")
    held.let("attach")
    held.let("recall")
    assert not window.chat.composer.attachments.listed_attachments
    window.workspaces.go_to_workspace("storage-engine")
    held.let()
    held.let()
    names = [attachment.name for attachment in window.chat.composer.attachments.listed_attachments]
    assert names[:1] == ["pasted.txt"]
    assert len(window.chat.composer.attachments.listed_attachments) == 2


def test_a_question_of_the_conversation_in_front_is_the_one_that_is_answered(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    session.ask(
        PermissionQuestion(story.call(1, "run_command", command="ls"), "Run a command", "ls")
    )
    window.sides.go_to_conversation("flaky")
    other = bench.sessions["flaky"]
    other.ask(PermissionQuestion(story.call(2, "run_command", command="rm"), "Run a command", "rm"))
    window.sides.go_to_conversation(story.CONVERSATION)
    card = window.chat.approvals.visible_card
    assert card is not None
    assert card.question.preview == "ls"


def test_a_waiting_message_is_not_taken_for_the_one_that_was_sent_meanwhile(
    window: MainWindow, session: FakeSession
) -> None:
    session.set_running(ConversationActivity.THINKING)
    for words in ("one", "two", "three"):
        write(window, words)
    window.chat.bridge.emit_waiting_events()
    session.finish("done")  # “one” is sent; the list is shown anew in a moment
    window.chat.composer.waiting.discarding.emit(1)
    assert [waiting.parts for waiting in session.queue] == [(Text("two"),), (Text("three"),)]
    window.chat.bridge.emit_waiting_events()
    window.chat.composer.waiting.discarding.emit(1)
    assert [waiting.parts for waiting in session.queue] == [(Text("two"),)]


def test_a_rewind_is_of_the_conversation_it_was_asked_for(
    window: MainWindow, session: FakeSession
) -> None:
    window.chat_actions.carry_out_intent(
        chat_actions.ActOnMessage(chat_actions.MessageAct.REWIND, 5)
    )
    question = window.findChildren(QMessageBox)[0]
    window.sides.go_to_conversation("flaky")
    next(each for each in question.findChildren(QPushButton) if each.text() == "Rewind").click()
    assert session.state.facts[-1].fact == Rewound(4)
    place = (window.showing.workspace_id, session.id)
    message = session.state.facts[4].fact
    assert isinstance(message, UserSaid)
    (in_its_box,) = window.sides.current.composer.drafts.get_draft(place)
    (part,) = message.parts
    assert isinstance(in_its_box, Text)
    assert isinstance(part, Text)
    assert in_its_box.text == part.text
    assert window.chat.composer.text.toPlainText() == ""


def test_without_a_workspace_nothing_of_one_can_be_done(window: MainWindow, desk: FakeDesk) -> None:
    for name in list(desk.benches)[1:]:
        del desk.benches[name]
    window.window_actions["trash-workspace"].trigger()
    assert (window.showing.page, window.windowTitle()) == ("welcome", "Helix Desktop")
    enabled = {
        name
        for name in ("new", "cache", "attach", "model", "trash-workspace")
        if window.window_actions[name].isEnabled()
    }
    assert enabled == set()
    assert window.window_actions["open-folder"].isEnabled()


def test_folding_is_said_of_the_conversation_it_goes_on_in(
    window: MainWindow, session: FakeSession
) -> None:
    session.tell(FoldProgress(session.id, FoldKind.HANDOVER))
    window.chat.bridge.emit_waiting_events()
    assert window.top._state.text()
    window.sides.go_to_conversation("flaky")
    assert window.top._state.text() == ""


# --- what is typed before a conversation is open


@pytest.fixture
def starting(
    theme: Theme, state_file: WindowStateFile, settings: ProgramSettings, doing: BackgroundRunner
) -> MainWindow:
    """A program that starts again where it was left; nothing is opened until it is let."""
    state_file.remember_value("workspace", value="storage-engine")
    state_file.remember_value("conversation", "storage-engine", value=story.CONVERSATION)
    made = MainWindow(theme, state_file, settings, doing)
    made.sides.show_composer_before_opening(
        ("storage-engine", story.CONVERSATION), "storage-engine"
    )
    made.resize(1440, 900)
    made.show()
    return made


def test_what_is_being_opened_says_so_in_place_of_a_blank_page(
    starting: MainWindow, desk: FakeDesk, held: Held
) -> None:
    chat = starting.chat
    chat._slow.timeout.emit()
    assert (chat._loading.isVisible(), chat._loading.text()) == (True, "Loading…")
    go_on(starting, desk, held, at=0)
    assert chat.transcript.isVisible()


def test_no_message_box_is_shown_before_another_page_that_was_left_open(
    theme: Theme, state_file: WindowStateFile, settings: ProgramSettings, doing: BackgroundRunner,
    desk: FakeDesk, held: Held,
) -> None:  # fmt: skip
    """What was typed there while the window loaded went nowhere, and then the box vanished."""
    state_file.remember_value("workspace", value="storage-engine")
    state_file.remember_value("layout", "storage-engine", "page", value="cache")
    made = MainWindow(theme, state_file, settings, doing)
    made.sides.show_composer_before_opening(
        ("storage-engine", story.CONVERSATION), "storage-engine"
    )
    made.show()
    assert not made.chat.composer.isVisible()
    assert made.top.page_tab("cache").isChecked()
    made.window_actions["new"].trigger()
    assert made.chat.composer.isVisible(), "a new conversation was asked for"
    made.window_actions["cache"].trigger()
    go_on(made, desk, held, at=0)
    assert made.showing.page == "cache"
    made.close()


def stage(window: MainWindow, desk: FakeDesk, held: Held, steps: int) -> None:
    """Let a start go on: the workspaces are listed, the last one is opened, its
    conversation is opened.
    """
    if steps > 0:
        window.workspaces.set_workspaces_and_start(desk)
    for word in ("list the workspaces", "open workspace", "open a conversation")[
        : max(steps - 1, 0)
    ]:
        held.let(word)


def go_on(window: MainWindow, desk: FakeDesk, held: Held, at: int) -> None:
    """To the end of the start."""
    if at == 0:
        window.workspaces.set_workspaces_and_start(desk)
    for _ in range(5):
        held.let()


def said_in(window: MainWindow, conversation: str) -> list[str]:
    bench = window.current_workbench
    assert isinstance(bench, FakeWorkbench)
    facts = [recorded.fact for recorded in bench.sessions[conversation].state.facts]
    return [
        part.text
        for fact in facts
        if isinstance(fact, UserSaid)
        for part in fact.parts
        if isinstance(part, Text)
    ]


@pytest.mark.parametrize("at", range(5))
def test_what_is_typed_while_the_program_starts_is_the_draft_of_the_conversation_that_was_open(
    starting: MainWindow, desk: FakeDesk, held: Held, at: int
) -> None:
    stage(starting, desk, held, at)
    QTest.keyClicks(starting.chat.composer.text, "half a sentence")
    go_on(starting, desk, held, at)
    assert shown(starting) == ("storage-engine", story.CONVERSATION)
    assert starting.chat.composer.text.toPlainText() == "half a sentence"
    drafts = [
        starting.state_file.get_remembered(
            "draft", "storage-engine", name, default=dict[str, str]()
        ).get("text", "")
        for name in (story.CONVERSATION, "new")
    ]
    assert drafts == ["half a sentence", ""]


@pytest.mark.parametrize("at", range(5))
def test_a_new_conversation_chosen_while_the_program_starts_gets_the_messages_typed_after_it(
    starting: MainWindow, desk: FakeDesk, held: Held, at: int
) -> None:
    stage(starting, desk, held, at)
    write(starting, "for the last one")
    starting.window_actions["new"].trigger()
    write(starting, "for the new one")
    go_on(starting, desk, held, at)
    for _ in range(5):
        held.let()
    assert said_in(starting, story.CONVERSATION)[-1] == "for the last one"
    session = starting.current_session
    assert session is not None
    assert session.id != story.CONVERSATION
    assert said_in(starting, session.id) == ["for the new one"]


@pytest.mark.parametrize("at", range(5))
def test_enter_before_the_conversation_is_open_sends_the_message_there(
    starting: MainWindow, desk: FakeDesk, held: Held, at: int
) -> None:
    stage(starting, desk, held, at)
    for words in ("the first", "the second"):
        write(starting, words)
    go_on(starting, desk, held, at)
    session = starting.current_session
    assert isinstance(session, FakeSession)
    assert session.id == story.CONVERSATION
    assert said_in(starting, story.CONVERSATION)[-1] == "the first"
    assert [waiting.parts for waiting in session.queue] == [(Text("the second"),)]
    assert starting.chat.composer.text.toPlainText() == ""
    assert len(desk.benches["storage-engine"].sessions) == 1


# --- a long conversation, whose newest messages are shown first


class SlowlyOpened:
    """A long conversation. `look` is called when its newest messages are there, and not yet all."""

    def __init__(
        self, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch, conversation: str
    ) -> None:
        facts: list[Fact] = [ConversationStarted()]
        for number in range(LEAST_FACTS):
            facts.append(UserSaid((Text(f"question {number}"),)))
            facts.append(ModelReplied((Text(f"answer {number}"),), "m", Stop.END))
        self.told = [Recorded(conversation, seq, 1.0, fact) for seq, fact in enumerate(facts, 1)]
        self.look: Callable[[], object] = lambda: None
        bench.sessions[conversation] = FakeSession(conversation, self.told, bench._heard)
        monkeypatch.setattr(bench, "read_newest_facts", self.read_newest_facts)
        self._open_session = bench.open_session
        monkeypatch.setattr(bench, "open_session", self.open_session)

    async def read_newest_facts(self, _conversation: str) -> Sequence[Recorded]:
        async def read_facts(after: int, limit: int) -> Sequence[Recorded]:
            return self.told[after : after + limit]

        return await collect_newest_facts(read_facts, len(self.told))

    async def open_session(self, conversation: str) -> FakeSession:
        self.look()
        return await self._open_session(conversation)


@pytest.fixture
def slow(window: MainWindow, monkeypatch: pytest.MonkeyPatch) -> SlowlyOpened:
    bench = window.current_workbench
    assert isinstance(bench, FakeWorkbench)
    return SlowlyOpened(bench, monkeypatch, "flaky")


def test_the_newest_messages_are_shown_and_stay_where_the_reader_is(
    window: MainWindow, slow: SlowlyOpened
) -> None:
    places: list[tuple[int, int, bool]] = []

    def look_and_scroll() -> None:
        pane = window.chat.transcript
        assert pane.isVisible()
        assert pane._unread_part.isVisible()
        QApplication.processEvents()
        middle_of_note = pane._unread_part.geometry().center().x()
        assert abs(middle_of_note - pane.view.viewport().geometry().center().x()) <= 2
        last = len(pane.view.items.all) - 1
        assert pane.view.items.all[last].source_fact == slow.told[-1].fact
        assert list_item_intents(pane.view.items, last) == []
        pane.open_find_bar()
        assert not pane.bar.isVisible()
        pane.view.scroll_to_item(last - 60)
        places.append(pane.view.reading_position())

    slow.look = look_and_scroll
    window.sides.go_to_conversation("flaky")
    pane = window.chat.transcript
    assert len(places) == 1
    assert places[0][0] > 0
    assert pane.view.reading_position() == places[0]
    assert not pane._unread_part.isVisible()
    assert len(pane.view.items.all) == len(slow.told) - 1
    assert list_item_intents(pane.view.items, 5)


def test_who_reads_the_newest_messages_at_their_end_stays_at_the_end(
    window: MainWindow, slow: SlowlyOpened
) -> None:
    window.sides.go_to_conversation("flaky")
    assert window.chat.transcript.view.reading_position() == (0, 0, True)


def test_what_was_selected_in_the_newest_messages_stays_selected(
    window: MainWindow, slow: SlowlyOpened
) -> None:
    selected_texts: list[str] = []

    def select_words() -> None:
        view = window.chat.transcript.view
        last = len(view.items.all) - 1
        view.selection.set_both_ends(TextPosition(last - 1, 2), TextPosition(last, 6))
        selected_texts.append(view.selected_text())

    slow.look = select_words
    window.sides.go_to_conversation("flaky")
    assert selected_texts[0]
    assert window.chat.transcript.view.selected_text() == selected_texts[0]


def test_what_is_written_below_the_newest_messages_is_sent_when_all_is_there(
    window: MainWindow, slow: SlowlyOpened
) -> None:
    slow.look = lambda: write(window, "go on")
    window.sides.go_to_conversation("flaky")
    assert said_in(window, "flaky")[-1] == "go on"


def test_what_the_agent_asks_is_answered_and_stopped_below_the_newest_messages(
    window: MainWindow, slow: SlowlyOpened
) -> None:
    """The card and Stop came only with the last message."""
    bench = window.current_workbench
    assert isinstance(bench, FakeWorkbench)
    session = bench.sessions["flaky"]
    question = PermissionQuestion(story.call(1, "run_command", command="ls"), "Run a command", "ls")
    number = session.ask(question)
    looked: list[object] = []

    def answer_and_stop() -> None:
        chat = window.chat
        assert chat.session is None
        assert chat.approvals.visible_card is not None
        assert chat.composer._stop.isVisible()
        chat.approvals.visible_card.allow_or_show_next_part("once")
        chat.bridge.emit_waiting_events()
        assert session.given[number].allowed
        assert chat.approvals.visible_card is None
        session.ask(question)
        chat.bridge.emit_waiting_events()
        assert chat.approvals.visible_card is not None
        window.window_actions["stop"].trigger()
        assert session.done == ["stop"]
        looked.append(chat.approvals.visible_card)

    slow.look = answer_and_stop
    window.sides.go_to_conversation("flaky")
    assert looked[0] is not None
    # It is the same card, in which the user may have written.
    assert window.chat.approvals.visible_card is looked[0]
    assert window.chat.opening_session is None


def test_who_had_scrolled_back_far_does_not_see_the_end_first(
    window: MainWindow, slow: SlowlyOpened, state_file: WindowStateFile
) -> None:
    state_file.remember_value("place", "storage-engine", "flaky", value=[40, 3])
    shown_before = window.chat.session
    seen: list[object] = []
    slow.look = lambda: seen.append(window.chat.session)
    window.sides.go_to_conversation("flaky")
    assert seen == [shown_before]
    assert window.chat.transcript.view.reading_position()[0] == 40


def test_a_conversation_that_was_left_meanwhile_does_not_show_its_newest_messages(
    window: MainWindow, slow: SlowlyOpened, held: Held
) -> None:
    window.sides.go_to_conversation("flaky")
    window.sides.go_to_conversation("review")
    held.let("_open_and_prepare_session", newest=True)
    slow.look = lambda: seen.append(shown(window)[1])
    seen: list[str] = []
    held.let("_open_and_prepare_session")
    assert seen == ["review"]
    assert shown(window)[1] == "review"


def test_what_is_written_in_one_of_two_new_conversations_goes_there(
    window: MainWindow, bench: FakeWorkbench, held: Held
) -> None:
    """The one that was created first got what was written in the other."""
    window.sides.begin_new_conversation()
    write(window, "first")
    write(window, "of first")
    window.sides.begin_new_conversation()
    write(window, "second")
    write(window, "of second")
    held.let()
    held.let()
    words: list[str] = []
    for session in bench.sessions.values():
        said = [
            entry.fact.parts for entry in session.state.facts if isinstance(entry.fact, UserSaid)
        ]
        waiting = [message.parts for message in session.queue]
        texts = [part.text for parts in said + waiting for part in parts if isinstance(part, Text)]
        words.append(", ".join(texts))
    assert "first, of first" in words
    assert "second, of second" in words
