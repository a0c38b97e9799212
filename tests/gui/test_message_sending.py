"""Sending: when a message goes at once, when it is asked about first, and what becomes of one that is
not sent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, SupportsIndex

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QLabel, QMessageBox, QPushButton

from helix_desktop.engine.conversation_context import NeededSummary
from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    Stored,
    Text,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.engine.session_setup import QueuedMessage
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import ActionRefused, StoreFailed
from helix_desktop.gui import translation
from helix_desktop.gui.chat.composer import ALLOW_ALL, ALLOW_ALL_FOR_AN_HOUR, Composer
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.chat_actions import ActOnMessage, MessageAct
from helix_desktop.program_settings import ASK_ABOVE
from helix_desktop.project.project_item import ProjectItem
from tests.gui.fake_desk import FakeSession, FakeWorkbench
from tests.gui.test_main_window import COMMAND, FILE, click_way, own_messages, said, titles, write


def test_a_message_is_sent_and_answered(window: MainWindow, session: FakeSession) -> None:
    session.answers = ["The tests pass."]
    write(window, "Run the tests.")
    window.chat.bridge.emit_waiting_events()
    assert said(session)[-1] == "Run the tests."
    view = window.chat.transcript.view
    view.select_all_text()
    assert view.selected_text().rstrip().endswith("The tests pass.")


def test_the_first_message_begins_a_conversation(window: MainWindow, bench: FakeWorkbench) -> None:
    window.window_actions["new"].trigger()
    assert window.current_session is None
    write(window, "Hello")
    assert window.current_session is not None
    assert said(bench.sessions[window.current_session.id]) == ["Hello"]
    assert window.sidebar.list.selected_conversation_id() == window.current_session.id


def test_without_a_model_the_words_stay_and_setting_up_is_offered(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.main_model_name = ""
    wanted = QSignalSpy(window.parts.requests.model_setup_wanted)
    write(window, "Hello")
    assert wanted.count() == 1
    assert window.chat.composer.text.toPlainText() == "Hello"


def test_a_message_above_the_sum_the_user_set_is_asked_about_before_it_is_sent(
    window: MainWindow, session: FakeSession
) -> None:
    window.settings.change_setting(ASK_ABOVE, 50)
    session.price = 0.62
    session.saves = 0.20
    before = len(session.state.facts)
    write(window, "all of it")
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    assert "about $0.620, which is more than your limit of $0.500" in box.text()
    assert [each.text() for each in box.buttons() if each.text() != "Cancel"] == [
        "Shorten first, then send",
        "Send",
    ]
    assert len(session.state.facts) == before
    box.reject()
    assert window.chat.composer.text.toPlainText() == "all of it"
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    next(each for each in box.buttons() if each.text() == "Shorten first, then send").click()
    assert session.done == ["fold marker"]
    assert len(session.state.facts) > before


def test_a_first_message_above_the_sum_is_asked_about_too(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeSession, "first_price", 0.62)
    window.settings.change_setting(ASK_ABOVE, 50)
    window.sides.begin_new_conversation()
    write(window, "all of it")
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    rows = len(bench.rows)
    box.reject()
    assert (window.current_session, len(bench.rows)) == (
        None,
        rows,
    )  # no empty conversation is left
    assert window.chat.composer.text.toPlainText() == "all of it"
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    next(each for each in box.buttons() if each.text() == "Send").click()
    assert window.current_session is not None
    assert said(bench.sessions[window.current_session.id]) == ["all of it"]


def test_a_first_message_that_is_a_command_and_is_not_sent_leaves_no_conversation(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a command comes to is known, and priced, only when it is filled in."""

    async def costly(session: FakeSession, parts: tuple[UserPart, ...]) -> tuple[UserPart, ...]:
        session.price = 0.62
        return (Text("much more"),)

    bench.named = [ProjectItem("command", "review", Path("review.md"), "Review it.", "Review it.")]
    monkeypatch.setattr(bench, "expand_command_message", costly)
    window.settings.change_setting(ASK_ABOVE, 50)
    window.sides.begin_new_conversation()
    shown = titles(window)
    write(window, "/review src")
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    box.reject()
    assert (window.current_session, titles(window)) == (None, shown)
    assert window.chat.composer.text.toPlainText() == "/review src"


def test_before_an_imported_history_is_summarized_it_is_said_what_that_takes(
    window: MainWindow, session: FakeSession
) -> None:
    """The defect: one message in an imported conversation made 44 requests without a question."""
    session.needed_summary = NeededSummary(90_000, 8_192, 1_228, 44, 0.62)
    before = len(session.state.facts)
    write(window, "go on")
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    # "7.2K of 8.2K tokens" was no reason: what stays free was not said.
    for words in (
        "it has 90K tokens. At most 7K of 8.2K fit, because 1.2K stay free for the reply",
        "Before it can go on, about 44 requests",
        "about $0.62",
        "Nothing is lost",
    ):
        assert words in box.text()
    assert len(session.state.facts) == before
    box.reject()
    assert window.chat.composer.text.toPlainText() == "go on"
    session.needed_summary = NeededSummary(
        90_000, 8_192, 1_228, 44, None, shortens_outputs_first=True
    )
    window.chat.composer.send_composed_message(steer=False)
    box = [box for box in window.findChildren(QMessageBox) if box.isVisible()][-1]
    assert "$" not in box.text()  # Where no price is known, no figure stands there.
    assert "First, long outputs and messages are shortened. Then about 44 requests" in box.text()
    next(each for each in box.buttons() if each.text() == "Summarize and send").click()
    assert len(session.state.facts) > before


def test_chinese_sentences_of_a_question_have_no_space_between_them(
    window: MainWindow, session: FakeSession
) -> None:
    """The defect: a space stood behind "。", which has its own width."""
    catalogue = translation.translation_catalogue_path("zh_CN").read_text("utf-8")
    translation.set_translations(json.loads(catalogue))
    try:
        session.needed_summary = NeededSummary(90_000, 8_192, 1_228, 44, 0.62)
        write(window, "go on")
    finally:
        translation.set_translations({})
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    assert box.text().count("。") >= 4
    assert "。 " not in box.text()
    box.reject()


def test_a_message_that_cannot_be_sent_leaves_the_reader_in_place(
    window: MainWindow, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: the transcript jumped to its end although nothing had been added there."""

    def refuse(parts: tuple[UserPart, ...], *, steer: bool = False, command_id: str = "") -> None:
        raise ActionRefused("This is a conversation of Claude Code.", remedy="Continue here.")

    canvas = window.chat.transcript.view
    canvas.scrolling.set_following_end(following=False)
    monkeypatch.setattr(session, "send_message", refuse)
    write(window, "go on")
    assert not canvas.scrolling.is_following_end
    assert window.chat.composer.text.toPlainText() == "go on"
    monkeypatch.undo()
    window.chat.composer.send_composed_message(steer=False)
    assert canvas.scrolling.is_following_end


@pytest.mark.parametrize("is_edited", [False, True])
def test_the_limit_asks_about_what_is_sent_of_a_long_document_as_the_panel_counts_it(
    window: MainWindow, session: FakeSession, monkeypatch: pytest.MonkeyPatch, *, is_edited: bool
) -> None:
    """It counted all of the document, of which only the outline is sent."""
    priced: list[int] = []

    def estimate(parts: Sequence[UserPart], *, instead_of: int = 0) -> float:
        assert bool(instead_of) is is_edited
        priced.append(sum(part.tokens for part in parts))
        return 0.0

    monkeypatch.setattr(session, "estimate_cost_of_sending", estimate)
    composer = window.chat.composer
    if is_edited:
        composer.edit_earlier_message(own_messages(session)[0], ())
    document = Attachment("book.pdf", Stored(Digest.of_content(b"book"), 90_000), 120_000)
    composer.attachments.add_attachment(document)
    composer.attachments.show_attachment_tokens(document, 900)
    composer.send_composed_message(steer=False)
    assert priced == [900]
    sent = session.state.facts[-1].fact
    assert isinstance(sent, UserSaid)
    assert sent.parts == (document,), "the message itself has all of it"


def test_an_edited_message_above_the_sum_is_asked_about_and_kept_where_it_is_not_sent(
    window: MainWindow, session: FakeSession
) -> None:
    window.settings.change_setting(ASK_ABOVE, 50)
    session.price = 0.62
    window.chat.composer.resent.emit(1, (Text("said better"),), "")
    box = next(box for box in window.findChildren(QMessageBox) if box.isVisible())
    assert session.done == []
    box.reject()
    assert window.chat.composer.text.toPlainText() == "said better"


def test_messages_queue_while_the_agent_works_and_can_be_edited(
    window: MainWindow, session: FakeSession
) -> None:
    session.set_running(ConversationActivity.THINKING)
    write(window, "next")
    window.chat.bridge.emit_waiting_events()
    assert window.chat.composer.waiting.isVisible()
    window.chat.composer.waiting.editing.emit(0)
    assert session.queue == []
    assert window.chat.composer.text.toPlainText() == "next"


def test_after_stop_a_queued_message_says_that_it_waits_for_the_user(
    window: MainWindow, session: FakeSession
) -> None:
    session.set_running(ConversationActivity.THINKING)
    write(window, "next")
    window.chat.bridge.emit_waiting_events()
    waiting = window.chat.composer.waiting
    assert "When done" in [label.text() for label in waiting.findChildren(QLabel)]
    session.set_running(ConversationActivity.IDLE)
    window.chat.bridge.emit_waiting_events()
    assert "When you continue" in [label.text() for label in waiting.findChildren(QLabel)]


def test_a_message_to_another_agent_waits_for_the_end_of_its_turn_and_says_so(
    window: MainWindow, session: FakeSession
) -> None:
    """The defect: "When the command ends", though such an agent takes nothing before its end."""
    session.append(ConversationStarted(acp_agent="Echo agent"))
    session.set_running(ConversationActivity.TOOLS)
    composer = window.chat.composer
    composer.sent.emit((Text("next"),), True, "")
    window.chat.bridge.emit_waiting_events()
    labels = [label.text() for label in composer.waiting.findChildren(QLabel)]
    assert "When done" in labels
    assert "When the command ends" not in labels
    buttons = [button.text() for button in composer.waiting.findChildren(QPushButton)]
    assert "Edit" in buttons
    assert not {"Send now", "Send when done"} & set(buttons), "there is no other time"
    composer.text.setFocus()
    QTest.keyClicks(composer.text, "more")
    assert composer._send.text() == "Send when done"
    assert composer._steer.isHidden()


def test_a_dropped_waiting_message_can_be_had_back(
    window: MainWindow, session: FakeSession
) -> None:
    session.set_running(ConversationActivity.THINKING)
    write(window, "next")
    window.chat.bridge.emit_waiting_events()
    window.chat.composer.waiting.discarding.emit(0)
    assert session.queue == []
    window.notices.run_notice_action()
    assert [waiting.parts for waiting in session.queue] == [(Text("next"),)]


def test_escape_stops_only_while_something_runs(window: MainWindow, session: FakeSession) -> None:
    assert QTest.qWaitForWindowActive(window)
    QTest.keyClick(window, Qt.Key.Key_Escape)
    assert session.done == []
    session.set_running(ConversationActivity.TOOLS)
    window.chat.bridge.emit_waiting_events()
    QTest.keyClick(window, Qt.Key.Key_Escape)
    assert session.done == ["stop"]


def test_an_edited_message_says_that_files_stay_if_checkpoints_are_off(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    bench.file_changes.checkpoint_progress = replace(
        bench.file_changes.checkpoint_progress, state="off"
    )
    seq = next(each.seq for each in session.state.facts if isinstance(each.fact, UserSaid))
    window.chat_actions.carry_out_intent(ActOnMessage(MessageAct.EDIT, seq))
    window.chat.composer.text.setPlainText("Otherwise")
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    assert window.notices.shown_text == "Checkpoints are turned off, so files stay as they are."


@pytest.mark.parametrize(
    ("way", "now", "sent"),
    [
        ("Undo these changes", b"one\n", True),
        ("Keep these changes", b"two\n", True),
        ("Cancel", b"two\n", False),
    ],
)
def test_an_edited_message_asks_about_the_files_that_its_turn_changed(
    window: MainWindow,
    bench: FakeWorkbench,
    session: FakeSession,
    way: str,
    now: bytes,
    *,
    sent: bool,
) -> None:
    bench.file_changes.fill({"a.py": (b"one\n", b"two\n")})
    seq = next(each.seq for each in session.state.facts if isinstance(each.fact, UserSaid))
    count = len(said(session))
    window.chat_actions.carry_out_intent(ActOnMessage(MessageAct.EDIT, seq))
    window.chat.composer.text.setPlainText("Otherwise")
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    assert len(said(session)) == count
    assert "1 file changed since this message: a.py (Edit)" in click_way(window, way)
    assert bench.file_changes.now["a.py"] == now
    assert (len(said(session)) > count) is sent
    assert window.chat.composer.text.toPlainText() == ("" if sent else "Otherwise")
    assert (
        window.chat.composer._editing.isVisibleTo(window) is not sent
    )  # Else, it would be sent as a new message.
    if now == b"one\n":
        assert (window.notices.shown_text, window.notices._button.text()) == (
            "1 file was restored.",
            "Redo",
        )


# --- A kill while the user is asked


def text_after_kill(
    window: MainWindow, theme: Theme, session: FakeSession | None, *, writes_first: bool = True
) -> str:
    """What would stand in the message box at the next start if the program was killed now, or
    once what waits to be written was written.
    """
    if writes_first:
        window.state_file.write_state_file()
    file_then = Path(window.state_file._file).with_name("after-kill.json")
    file_then.write_bytes(Path(window.state_file._file).read_bytes())
    composer = Composer(theme, WindowStateFile(file_then))
    state = ConversationState()
    queue: list[QueuedMessage] = []
    if session is not None:
        state = session.state
        queue = session.queue
    for _ in range(2):  # Whoever looks again finds it once.
        composer.show_draft_of(*window.chat.composer.draft_place, "")
        composer.take_over_messages_of_last_start(state, queue)
    return composer.text.toPlainText()


def ask_about_price(window: MainWindow, session: FakeSession) -> None:
    window.settings.change_setting(ASK_ABOVE, 50)
    session.price = 0.62


def ask_to_summarize(window: MainWindow, session: FakeSession) -> None:
    session.needed_summary = NeededSummary(90_000, 8_192, 1_228, 44, 0.62)


def ask_nothing(window: MainWindow, session: FakeSession) -> None:
    """The unknown command itself is asked about."""


@pytest.mark.parametrize(
    ("prepare", "words", "answer"),
    [
        (ask_about_price, "all of it", "Send"),
        (ask_to_summarize, "go on", "Summarize and send"),
        (ask_nothing, "/reviw src", "Send as text"),
    ],
)
def test_a_message_that_is_asked_about_survives_a_kill(
    window: MainWindow,
    session: FakeSession,
    theme: Theme,
    prepare: Callable[[MainWindow, FakeSession], None],
    words: str,
    answer: str,
) -> None:
    """It was neither in the message box nor in a queue: the question alone knew it."""
    prepare(window, session)
    write(window, words)
    assert text_after_kill(window, theme, session) == words
    window.sides.go_to_conversation("flaky")
    window.sides.go_to_conversation(session.id)
    assert window.chat.composer.text.toPlainText() == "", "it is asked about, so it is no draft"
    question(window).reject()
    assert window.chat.composer.text.toPlainText() == words
    assert text_after_kill(window, theme, session) == words
    window.chat.composer.send_composed_message(steer=False)
    assert text_after_kill(window, theme, session) == words
    click_way(window, answer)
    assert said(session)[-1] == words
    assert text_after_kill(window, theme, session) == ""


@pytest.mark.parametrize("asks_about_files", [False, True])
def test_an_edited_message_that_is_asked_about_survives_a_kill(
    window: MainWindow,
    bench: FakeWorkbench,
    session: FakeSession,
    theme: Theme,
    *,
    asks_about_files: bool,
) -> None:
    answer = "Send"
    if asks_about_files:
        bench.file_changes.fill({"a.py": (b"one\n", b"two\n")})
        answer = "Keep these changes"
    else:
        ask_about_price(window, session)
    window.chat.composer.edit_earlier_message(own_messages(session)[0], ())
    write(window, "Otherwise")
    assert text_after_kill(window, theme, session) == "Otherwise"
    question(window).reject()
    assert text_after_kill(window, theme, session) == "Otherwise"
    window.chat.composer.send_composed_message(steer=False)
    click_way(window, answer)
    assert said(session)[-1] == "Otherwise"
    assert text_after_kill(window, theme, session) == ""


def test_a_first_message_is_there_once_after_a_kill(
    window: MainWindow, bench: FakeWorkbench, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file had it as one of a new conversation, when a conversation had it already."""
    drafts: list[str] = []
    send_message = FakeSession.send_message

    def look_and_send(session: FakeSession, *args: Any, **named: Any) -> None:
        for _ in range(2):
            file_then = Path(window.state_file._file).with_name("after-kill.json")
            file_then.write_bytes(Path(window.state_file._file).read_bytes())
            composer = Composer(theme, WindowStateFile(file_then))
            composer.show_draft_of(bench.id, "new", "")
            composer.take_over_messages_of_last_start(ConversationState(), [])
            drafts.append(composer.text.toPlainText())
            composer.show_draft_of(bench.id, session.id, "")
            composer.take_over_messages_of_last_start(session.state, session.queue)
            drafts.append(composer.text.toPlainText())
            if not said(session):
                send_message(session, *args, **named)

    monkeypatch.setattr(FakeSession, "send_message", look_and_send)
    window.sides.begin_new_conversation()
    window.chat.composer.text.setPlainText("all of it")
    window.state_file.write_state_file()
    window.chat.composer.send_composed_message(steer=False)
    assert window.current_session is not None
    assert said(bench.sessions[window.current_session.id]) == ["all of it"]
    assert drafts == ["", "all of it", "", ""], "once before it is sent, and once after it"


def said_and_waiting(session: FakeSession) -> list[str]:
    return said(session) + [words for words, _steers in queued(session)]


def list_words_after_kill(
    window: MainWindow, bench: FakeWorkbench, theme: Theme, session: FakeSession
) -> list[str]:
    """What would be in a conversation and in message boxes if the program was killed now."""
    file_then = Path(window.state_file._file).with_name("after-kill.json")
    file_then.write_bytes(Path(window.state_file._file).read_bytes())
    composer = Composer(theme, WindowStateFile(file_then))
    words = said_and_waiting(session)
    composer.show_draft_of(bench.id, "new", "")
    composer.take_over_messages_of_last_start(ConversationState(), [])
    words += composer.text.toPlainText().split()
    composer.show_draft_of(bench.id, session.id, "")
    composer.take_over_messages_of_last_start(session.state, session.queue)
    words += composer.text.toPlainText().split()
    return sorted(words)


def test_what_is_written_while_a_conversation_is_created_is_there_once_after_a_kill(
    window: MainWindow, bench: FakeWorkbench, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was sent when the file still had it as a message of a new conversation, so it came twice.
    What is written while the file is written passes none of the others.
    """
    looks: list[list[str]] = []
    send_message = FakeSession.send_message
    start_conversation = bench.start_users_conversation
    write_and_wait = window.state_file.write_and_wait
    words_while_written = ["4", "3"]

    async def write_and_start(*args: Any, **named: Any) -> FakeSession:
        write(window, "2")
        window.state_file.write_state_file()
        return await start_conversation(*args, **named)

    async def write_another_and_wait() -> None:
        await write_and_wait()
        if words_while_written:
            write(window, words_while_written.pop())

    def look_and_send(session: FakeSession, *args: Any, **named: Any) -> None:
        looks.append(list_words_after_kill(window, bench, theme, session))
        send_message(session, *args, **named)
        looks.append(list_words_after_kill(window, bench, theme, session))

    monkeypatch.setattr(bench, "start_users_conversation", write_and_start)
    monkeypatch.setattr(window.state_file, "write_and_wait", write_another_and_wait)
    monkeypatch.setattr(FakeSession, "send_message", look_and_send)
    window.sides.begin_new_conversation()
    write(window, "1")
    assert window.current_session is not None
    session = bench.sessions[window.current_session.id]
    assert said_and_waiting(session) == ["1", "2", "3", "4"]
    assert looks == [["1", "2", "3", "4"]] * 8, "once before each is sent, and once after it"
    assert window.sides.unsent_messages.unsent_messages_of((bench.id, "new")) == []


def test_what_was_given_back_to_a_hidden_conversation_is_there_once_after_a_kill(
    window: MainWindow, bench: FakeWorkbench, theme: Theme
) -> None:
    """The draft had no id, so that it came back if it was sent as soon as it was shown."""
    window.sides.add_to_message_and_tell_if_current((bench.id, "flaky"), (Text("again"),))
    window.state_file.write_state_file()
    window.sides.go_to_conversation("flaky")
    window.chat.composer.send_composed_message(steer=False)
    session = bench.sessions["flaky"]
    assert said(session)[-1] == "again"
    assert text_after_kill(window, theme, session, writes_first=False) == ""


@pytest.mark.parametrize("draft", ["", "and more"])
def test_a_waiting_message_that_is_edited_survives_a_kill(
    with_queue: MainWindow,
    session: FakeSession,
    theme: Theme,
    monkeypatch: pytest.MonkeyPatch,
    draft: str,
) -> None:
    """Its queue lacked it at once, and the file of drafts had it 200 milliseconds later."""
    composer = with_queue.chat.composer
    composer.text.setPlainText(draft)
    with_queue.state_file.write_state_file()
    found_after_kill: list[str] = []
    pop_message = session.queue.pop

    def pop_and_look(index: SupportsIndex = -1) -> QueuedMessage:
        found_after_kill.append(text_after_kill(with_queue, theme, session, writes_first=False))
        popped = pop_message(index)
        found_after_kill.append(text_after_kill(with_queue, theme, session, writes_first=False))
        return popped

    monkeypatch.setattr(session.queue, "pop", pop_and_look)
    composer.waiting.editing.emit(0)
    before_it_left, after_it_left = found_after_kill
    assert before_it_left == draft, "it still waits in the queue, so it is no draft"
    with_both = "\n\n".join(filter(None, [draft, "first"]))
    assert sorted(after_it_left.split("\n\n")) == sorted(with_both.split("\n\n"))
    assert queued(session) == [("second", False)]
    assert sorted(composer.text.toPlainText().split("\n\n")) == sorted(with_both.split("\n\n"))
    assert text_after_kill(with_queue, theme, session) == composer.text.toPlainText()


@pytest.mark.parametrize("is_sent_meanwhile", [False, True])
def test_a_waiting_message_is_in_the_box_once_its_host_has_it_no_more(
    with_queue: MainWindow,
    session: FakeSession,
    theme: Theme,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_sent_meanwhile: bool,
) -> None:
    """The host of another process may be killed before it takes the message out of its queue."""
    composer = with_queue.chat.composer
    composer.text.setPlainText("a draft")
    looks: list[tuple[str, str]] = []

    async def take_back(message: QueuedMessage) -> bool:
        found_after_kill = text_after_kill(with_queue, theme, session)
        looks.append((composer.text.toPlainText(), found_after_kill))
        session.queue.remove(message)
        return not is_sent_meanwhile

    monkeypatch.setattr(session.queue, "take_back_message", take_back)
    composer.waiting.editing.emit(0)
    assert looks == [("a draft", "a draft")]
    words = sorted(composer.text.toPlainText().split("\n\n"))
    if is_sent_meanwhile:
        assert words == ["a draft"]
    else:
        assert words == ["a draft", "first"]


@pytest.mark.parametrize("is_command", [False, True])
def test_a_first_message_that_is_asked_about_survives_a_kill(
    window: MainWindow,
    bench: FakeWorkbench,
    theme: Theme,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_command: bool,
) -> None:
    """For a command, the conversation is there when the question is asked."""
    words = "all of it"
    answer = "Send"
    if is_command:
        words = "/reviw src"
        answer = "Send as text"
    else:
        monkeypatch.setattr(FakeSession, "first_price", 0.62)
        window.settings.change_setting(ASK_ABOVE, 50)
    window.sides.begin_new_conversation()
    write(window, words)
    assert (window.current_session is not None) is is_command
    assert text_after_kill(window, theme, None) == words
    question(window).reject()
    assert window.current_session is None
    assert text_after_kill(window, theme, None) == words
    window.chat.composer.send_composed_message(steer=False)
    click_way(window, answer)
    assert window.current_session is not None
    session = bench.sessions[window.current_session.id]
    assert said(session) == [words]
    assert text_after_kill(window, theme, session) == ""
    waiting_for_new = ("waiting", bench.id, "new")
    assert window.state_file.get_remembered(*waiting_for_new, default=list[object]()) == []


def test_a_command_whose_empty_conversation_cannot_be_trashed_is_given_back_in_it(
    window: MainWindow, theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its words were gone."""

    async def fail(_: FakeSession) -> None:
        raise StoreFailed("The disk is full.")

    monkeypatch.setattr(FakeSession, "set_trashed", fail)
    window.sides.begin_new_conversation()
    write(window, "/reviw src")
    question(window).reject()
    assert window.current_session is not None
    assert window.chat.composer.text.toPlainText() == "/reviw src"
    assert text_after_kill(window, theme, None) == "/reviw src"
    assert window.notices.shown_text.startswith("The disk is full.")


# --- Commands


def question(window: MainWindow) -> QMessageBox:
    """The question that is open now."""
    (box,) = [box for box in window.findChildren(QMessageBox) if box.isVisible()]
    return box


def test_a_command_that_nobody_knows_is_asked_about_and_can_be_sent_as_text(
    window: MainWindow, session: FakeSession
) -> None:
    count = len(said(session))
    write(window, "/reviw src")
    asked = question(window).text()
    assert asked.startswith("There is no command /reviw.")
    assert len(said(session)) == count
    question(window).reject()
    assert window.chat.composer.text.toPlainText() == "/reviw src"
    window.chat.composer.send_composed_message(steer=False)
    click_way(window, "Send as text")
    assert said(session)[count:] == ["/reviw src"]


@pytest.mark.parametrize(
    ("written", "meant"), [("compact", "shorten"), ("clear", "new"), ("shortn", "shorten")]
)
def test_what_other_programs_call_a_command_leads_to_ours(
    window: MainWindow, session: FakeSession, written: str, meant: str
) -> None:
    window.chat.composer.resent.disconnect()
    window.chat.composer.sent.emit((Text(f"/{written}"),), False, "")
    assert question(window).text().endswith(f"Did you mean /{meant}?")


def test_a_command_that_is_known_is_sent_as_what_it_stands_for(
    window: MainWindow,
    bench: FakeWorkbench,
    session: FakeSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def expand(_: FakeSession, parts: tuple[UserPart, ...]) -> tuple[UserPart, ...]:
        return (Text("Review all of it."),)

    bench.named = [ProjectItem("command", "review", Path("review.md"), "Review it.", "Review it.")]
    monkeypatch.setattr(bench, "expand_command_message", expand)
    window.chat.composer.sent.emit((Text("/review src"),), False, "")
    assert said(session)[-1] == "Review all of it."


def test_a_command_that_cannot_be_filled_in_is_given_back_with_the_reason(
    window: MainWindow,
    bench: FakeWorkbench,
    session: FakeSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(_: FakeSession, parts: tuple[UserPart, ...]) -> tuple[UserPart, ...]:
        raise StoreFailed("The disk is full.")

    count = len(said(session))
    bench.named = [ProjectItem("command", "review", Path("review.md"), "Review it.", "Review it.")]
    monkeypatch.setattr(bench, "expand_command_message", fail)
    window.chat.composer.sent.emit((Text("/review src"),), False, "")
    assert len(said(session)) == count
    assert window.chat.composer.text.toPlainText() == "/review src"
    assert window.notices.shown_text.startswith("The disk is full.")


@pytest.mark.parametrize("words", ["/etc/hosts is wrong", "/Makefile", "a /reviw", "/2"])
def test_a_path_or_a_slash_within_words_is_no_command(
    window: MainWindow, session: FakeSession, words: str
) -> None:
    window.chat.composer.sent.emit((Text(words),), False, "")
    assert said(session)[-1] == words


def test_a_message_that_begins_with_a_file_is_no_command(
    window: MainWindow, session: FakeSession
) -> None:
    window.chat.composer.sent.emit((FILE, Text("/reviw")), False, "")
    assert said(session)[-1] == "/reviw"


def test_another_agent_has_commands_of_its_own(window: MainWindow, session: FakeSession) -> None:
    session.append(ConversationStarted(acp_agent="Echo agent"))
    window.chat.composer.sent.emit((Text("/reviw src"),), False, "")
    assert said(session)[-1] == "/reviw src"


# --- What waits in the queue


def queued(session: FakeSession) -> list[tuple[str, bool]]:
    rows: list[tuple[str, bool]] = []
    for waiting in session.queue:
        (part,) = waiting.parts
        assert isinstance(part, Text)
        rows.append((part.text, waiting.steer))
    return rows


@pytest.fixture
def with_queue(window: MainWindow, session: FakeSession) -> MainWindow:
    """Two messages wait for the agent, which works."""
    session.set_running(ConversationActivity.THINKING)
    for words in ("first", "second"):
        window.chat.composer.sent.emit((Text(words),), False, "")
    window.chat.bridge.emit_waiting_events()
    return window


def test_a_message_that_steers_goes_between_the_agents_steps(
    window: MainWindow, session: FakeSession
) -> None:
    session.set_running(ConversationActivity.THINKING)
    window.chat.composer.sent.emit((Text("mind this"),), True, "")
    assert queued(session) == [("mind this", True)]


def test_waiting_messages_are_moved_made_to_steer_and_removed(
    with_queue: MainWindow, session: FakeSession
) -> None:
    waiting = with_queue.chat.composer.waiting
    waiting.moving.emit(1, -1)
    assert queued(session) == [("second", False), ("first", False)]
    with_queue.chat.bridge.emit_waiting_events()
    waiting.steering.emit(0, True)
    assert queued(session) == [("second", True), ("first", False)]
    with_queue.chat.bridge.emit_waiting_events()
    waiting.discarding.emit(1)
    assert queued(session) == [("second", True)]
    assert with_queue.notices.shown_text == "The message was removed."


def test_a_row_that_no_longer_means_the_same_message_does_nothing(
    with_queue: MainWindow, session: FakeSession
) -> None:
    """A message was sent since the rows were drawn."""
    session.queue.pop_next_message()
    waiting = with_queue.chat.composer.waiting
    waiting.moving.emit(0, 1)
    waiting.steering.emit(0, True)
    waiting.editing.emit(0)
    waiting.discarding.emit(0)
    assert queued(session) == [("second", False)]
    assert with_queue.chat.composer.text.toPlainText() == ""


# --- What the agent does, and what it asks


def test_stop_ends_the_turn_or_else_the_summary_that_is_being_written(
    window: MainWindow, session: FakeSession
) -> None:
    session.set_running(ConversationActivity.TOOLS)
    window.messages._stop_turn_or_fold()
    assert session.done == ["stop"]
    window.messages._stop_turn_or_fold()
    assert session.done == ["stop", "stop the fold"]


def test_going_on_and_asking_again_reach_the_conversation_that_is_shown(
    window: MainWindow, session: FakeSession
) -> None:
    retried = QSignalSpy(window.parts.requests.retry_wanted)
    window.window_actions["resume"].trigger()
    session.set_running(ConversationActivity.IDLE)
    window.window_actions["regenerate"].trigger()
    assert session.done == ["resume", "regenerate"]
    assert retried.count() == 1


def test_while_the_agent_works_nothing_is_begun_again(
    window: MainWindow, session: FakeSession
) -> None:
    actions = window.window_actions
    for activity, is_at_rest in (
        (ConversationActivity.IDLE, True),
        (ConversationActivity.FAILED, True),
        (ConversationActivity.THINKING, False),
        (ConversationActivity.ASKING, False),
    ):
        session.set_running(activity)
        window.chat.bridge.emit_waiting_events()
        actions.update_enabled()
        assert actions["resume"].isEnabled() == is_at_rest
        assert actions["regenerate"].isEnabled() == is_at_rest
        assert actions["stop"].isEnabled() != is_at_rest
        assert actions["allow-once"].isEnabled() == (activity is ConversationActivity.ASKING)


def test_an_answer_reaches_the_question_and_the_words_go_on(
    window: MainWindow, session: FakeSession
) -> None:
    number = session.ask(COMMAND)
    answer = PermissionAnswer(allowed=False, words="use tox")
    window.chat.approvals.answered.emit(number, answer)
    assert session.given == {number: answer}
    assert session.questions == {}


# --- How much the agent may do


@pytest.mark.parametrize("mode", [ALLOW_ALL, ALLOW_ALL_FOR_AN_HOUR])
def test_before_everything_is_allowed_it_is_asked_whether_that_is_meant(
    window: MainWindow, bench: FakeWorkbench, mode: str
) -> None:
    before = bench.permission_mode
    window.chat.composer.mode_chosen.emit(mode)
    box = question(window)
    assert bench.permission_mode == before
    box.reject()
    assert bench.permission_mode == before


def test_any_other_mode_is_chosen_at_once_and_the_window_knows_it(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    changed = QSignalSpy(window.parts.requests.choices_changed)
    window.chat.composer.mode_chosen.emit("plan")
    assert bench.permission_mode == "plan"
    assert changed.count() == 1


# --- A check that failed


def test_the_log_of_a_failed_check_is_attached_to_a_message_that_the_user_sends(
    window: MainWindow, session: FakeSession
) -> None:
    count = len(said(session))
    window.messages.put_failure_into_message("tests", "line one\n" * 20)
    words = window.chat.composer.text.toPlainText()
    assert words == "The check “tests” failed. Its log is attached. Find out why."
    assert len(said(session)) == count, "nothing is sent by itself"


# --- A first message


def test_a_conversation_that_cannot_be_created_gives_its_message_back(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_given: object, **_named: object) -> FakeSession:
        raise StoreFailed("The disk is full.")

    rows = len(bench.rows)
    monkeypatch.setattr(bench, "start_users_conversation", fail)
    window.sides.begin_new_conversation()
    write(window, "Hello")
    assert window.current_session is None
    assert len(bench.rows) == rows
    assert window.chat.composer.text.toPlainText() == "Hello"
    assert window.notices.shown_text.startswith("The disk is full.")
    assert window.sides.current.awaited_conversation == ""
