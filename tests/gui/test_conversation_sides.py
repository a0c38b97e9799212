"""Which conversation is shown: the last one, its draft, and the reader's place."""

from __future__ import annotations

from PySide6.QtTest import QTest

from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session_events import ConversationActivity, ReplyStreamed
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from tests.gui import story
from tests.gui.fake_desk import FakeSession, FakeWorkbench
from tests.turns import qt_works


def test_a_click_on_the_conversation_that_is_open_gives_the_keyboard_to_its_message(
    window: MainWindow, session: FakeSession
) -> None:
    assert QTest.qWaitForWindowActive(window)
    window.sidebar.list.setFocus()
    window.sidebar.list.opened.emit(session.id)
    assert window.chat.composer.text.hasFocus()


def test_drafts_belong_to_their_conversation(window: MainWindow) -> None:
    QTest.keyClicks(window.chat.composer.text, "half a sentence")
    window.sides.go_to_conversation("flaky")
    assert window.chat.composer.text.toPlainText() == ""
    window.sides.go_to_conversation(story.CONVERSATION)
    assert window.chat.composer.text.toPlainText() == "half a sentence"


def test_a_reader_at_the_end_has_no_older_place_left_if_the_program_is_killed(
    window: MainWindow, session: FakeSession
) -> None:
    """It opened in the middle of the conversation, and the reply that was cut off was below."""
    for number in range(30):
        session.append(UserSaid((Text(f"line {number}\n" * 20, 100),)))
    window.chat.bridge.emit_waiting_events()
    window.places.show_place_in_conversation(
        WindowPlace("conversation", "storage-engine", story.CONVERSATION, 25)
    )
    qt_works(20)
    window.save_window_state()
    place = ("place", "storage-engine", story.CONVERSATION)
    assert window.state_file.get_remembered(*place, default=list[int]())
    window.sides.jump_to_end_of(session)
    assert window.state_file.get_remembered(*place, default=list[int]()) == []


def test_the_reader_s_place_survives_a_restart(
    window: MainWindow, session: FakeSession, state_file: WindowStateFile
) -> None:
    for number in range(30):
        session.append(UserSaid((Text(f"line {number}\n" * 20, 100),)))
    window.chat.bridge.emit_waiting_events()
    view = window.chat.transcript.view
    window.places.show_place_in_conversation(
        WindowPlace("conversation", "storage-engine", story.CONVERSATION, 25)
    )
    qt_works(20)
    seq, _, follow = view.reading_position()
    window.save_window_state()
    assert not follow
    again = WindowStateFile(state_file._file)
    assert (
        again.get_remembered("place", "storage-engine", story.CONVERSATION, default=list[int]())[0]
        == seq
    )
    window.sides.go_to_conversation("flaky")
    window.sides.go_to_conversation(story.CONVERSATION)
    assert view.reading_position()[0] == seq


def test_a_message_of_an_older_version_that_waited_is_a_draft(
    window: MainWindow, session: FakeSession
) -> None:
    window.state_file.remember_value(
        "waiting",
        window.current_workbench.id if window.current_workbench else "",
        session.id,
        value=["Second."],
    )
    window.sides.show_session_or_new(session)
    assert window.chat.composer.text.toPlainText() == "Second."


def test_a_conversation_one_comes_back_to_shows_what_streams_from_its_beginning(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    session.append(UserSaid((Text("Count."),)))
    session.set_running(ConversationActivity.THINKING)
    session.tell(ReplyStreamed(session.id, TextDelta("one two ")))
    window.window_actions["new"].trigger()
    session.tell(ReplyStreamed(session.id, TextDelta("three ")))
    window.sides.show_session_or_new(session)
    session.tell(ReplyStreamed(session.id, TextDelta("four")))
    window.chat.bridge.emit_waiting_events()
    view = window.chat.transcript.view
    view.select_all_text()
    assert view.selected_text().rstrip().endswith("one two three four")
