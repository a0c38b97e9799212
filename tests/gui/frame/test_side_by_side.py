"""Two conversations beside each other in the window: each with its own stream, draft,
questions and end.
"""

from __future__ import annotations

import json
from functools import partial

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton, QToolButton

from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session_events import ConversationActivity, ReplyStreamed
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.chat.message_drafts import UnsentMessage
from helix_desktop.gui.deep_links import WindowPlace
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.chat_actions import OpenConversation
from helix_desktop.program_settings import ProgramSettings
from tests.gui import story
from tests.gui.fake_desk import FakeDesk, FakeSession, FakeWorkbench, Held

COMMAND = PermissionQuestion(
    story.call(9, "run_command", command="cargo test"), "Run a command", "cargo test"
)
WORKSPACE = "storage-engine"


@pytest.fixture
def sides(window: MainWindow, bench: FakeWorkbench) -> list[ChatPage]:
    """The conversation of the pictures, and beside it another one, which is the current one."""
    bench.rows["other"] = Row("other", "Wind the clock", 0.0)
    activate(window)
    window.sidebar.conversation_action_wanted.emit("beside", "other")
    QApplication.processEvents()
    return window.sides.sides


def activate(window: MainWindow) -> None:
    """Only in an active window does the focus move."""
    window.activateWindow()
    assert QTest.qWaitForWindowActive(window)


def said(session: FakeSession) -> list[str]:
    facts = [recorded.fact for recorded in session.state.facts]
    return [
        part.text
        for fact in facts
        if isinstance(fact, UserSaid)
        for part in fact.parts
        if isinstance(part, Text)
    ]


def write(chat: ChatPage, text: str) -> None:
    chat.composer.text.setFocus()
    QTest.keyClicks(chat.composer.text, text)


def headings(chat: ChatPage) -> list[QToolButton]:
    return [
        each
        for each in chat.findChildren(QToolButton)
        if each.text() in ("⇄", "✕") and each.isVisible()
    ]


def close_button(chat: ChatPage) -> QToolButton:
    return next(each for each in headings(chat) if each.accessibleName() == "Close this pane")


def key_hints(chat: ChatPage) -> list[str]:
    """What the buttons of the shown question say of their keys."""
    return [each.toolTip() for each in chat.approvals.findChildren(QPushButton)]


def shown(chat: ChatPage) -> str:
    chat.bridge.emit_waiting_events()
    chat.transcript.view.select_all_text()
    return chat.transcript.view.selected_text()


def test_a_second_conversation_is_opened_beside_the_first(
    window: MainWindow, sides: list[ChatPage], bench: FakeWorkbench
) -> None:
    left, right = sides
    assert [left.session, right.session] == [
        bench.sessions[story.CONVERSATION],
        bench.sessions["other"],
    ]
    assert left.isVisible()
    assert right.isVisible()
    assert left.mapTo(window, QPoint(0, 0)).x() < right.mapTo(window, QPoint(0, 0)).x()
    assert abs(left.width() - right.width()) < left.width() / 10
    assert window.chat is right
    assert right.composer.text.hasFocus()
    assert window.windowTitle().startswith("Wind the clock")


def test_both_stream_at_once_and_their_messages_go_to_their_own_conversation(
    window: MainWindow, sides: list[ChatPage], bench: FakeWorkbench
) -> None:
    left, right = sides
    one = bench.sessions[story.CONVERSATION]
    two = bench.sessions["other"]
    for chat, words in ((left, "to the left"), (right, "to the right")):
        write(chat, words)
        QTest.keyClick(chat.composer.text, Qt.Key.Key_Return)
    assert (said(one)[-1], said(two)) == ("to the left", ["to the right"])
    for session, piece in ((one, "mutex"), (two, "clock"), (one, "es"), (two, "s")):
        session.tell(ReplyStreamed(session.id, TextDelta(piece)))
    assert "mutexes" in shown(left)
    assert "clocks" in shown(right)
    assert "clocks" not in shown(left)


def test_what_is_about_the_conversation_is_about_the_one_with_the_focus(
    window: MainWindow, sides: list[ChatPage], bench: FakeWorkbench
) -> None:
    left, right = sides
    window.switch_to_page("timeline")
    window.switch_to_page("chat")
    left.composer.text.setFocus()
    assert window.current_session is bench.sessions[story.CONVERSATION]
    assert window.windowTitle().startswith("Extract the lock manager")
    assert window.sidebar.list.selected_conversation_id() == story.CONVERSATION
    assert (
        window.state_file.get_remembered("conversation", WORKSPACE, default="")
        == story.CONVERSATION
    )
    assert left.composer._figures.text() == "≈ 34% full · $0.060"
    left.composer.context_button.click()
    assert window.context_panel.isVisible()
    assert window.chat is left, "the panel is neither side"
    QTest.mouseClick(right.empty, Qt.MouseButton.LeftButton)  # it takes no focus itself
    assert window.chat is right
    assert right.composer.text.hasFocus()
    assert not window.context_panel.isVisible()


def test_drafts_are_kept_for_each(
    window: MainWindow, sides: list[ChatPage], state_file: WindowStateFile
) -> None:
    left, right = sides
    write(left, "draft one")
    write(right, "draft two")
    kept = [
        window.chat.composer.drafts.get_draft((WORKSPACE, name))
        for name in (story.CONVERSATION, "other")
    ]
    assert kept == [(Text("draft one"),), (Text("draft two"),)]
    close_button(right).click()
    window.sides.go_to_conversation("other")
    assert window.chat.composer.text.toPlainText() == "draft two"
    window.sides.go_to_conversation(story.CONVERSATION)
    assert window.chat.composer.text.toPlainText() == "draft one"


def test_a_question_at_the_other_side_neither_takes_the_focus_nor_hears_the_keys(
    window: MainWindow, sides: list[ChatPage], bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helix_desktop.gui.chat.permission_card.READING", 0.0)
    left, right = sides
    one = bench.sessions[story.CONVERSATION]
    one.ask(COMMAND)
    left.bridge.emit_waiting_events()
    assert left.approvals.visible_card is not None
    assert right.composer.text.hasFocus()
    assert "Allow once" in key_hints(left)
    assert not window.window_actions["allow-once"].isEnabled()
    window.window_actions["allow-once"].trigger()
    assert one.given == {}
    two = bench.sessions["other"]
    two.ask(COMMAND)
    right.bridge.emit_waiting_events()
    QApplication.processEvents()
    assert window.window_actions["allow-once"].isEnabled()
    assert ("Allow once" in key_hints(left), "Allow once (Alt+Y)" in key_hints(right)) == (
        True,
        True,
    )
    window.window_actions["allow-once"].trigger()
    assert list(two.given.values()) == [PermissionAnswer(allowed=True)]
    assert one.given == {}
    left.composer.text.setFocus()
    assert "Allow once (Alt+Y)" in key_hints(left)


def test_each_message_box_says_whose_it_is(window: MainWindow, sides: list[ChatPage]) -> None:
    left, right = sides
    names = [chat.composer.text.accessibleName() for chat in sides]
    assert names == ["Message to “Extract the lock manager”", "Message to “Wind the clock”"]
    window.sides.close_side(left)
    assert right.composer.text.accessibleName() == "Message"


def test_a_button_pressed_without_the_focus_acts_on_its_own_side(
    window: MainWindow, sides: list[ChatPage], bench: FakeWorkbench
) -> None:
    """As a screen reader presses it."""
    left, right = sides
    one = bench.sessions[story.CONVERSATION]
    two = bench.sessions["other"]
    for chat, session in ((left, one), (right, two)):
        session.set_running(ConversationActivity.THINKING)
        chat.bridge.emit_waiting_events()
    assert window.chat is right
    left.composer._stop.click()
    assert (one.done, two.done) == (["stop"], [])
    assert window.chat is left
    two.ask(COMMAND)
    right.bridge.emit_waiting_events()
    card = right.approvals.visible_card
    assert card is not None
    next(each for each in card.findChildren(QPushButton) if each.accessibleName() == "Deny").click()
    assert [answer.allowed for answer in two.given.values()] == [False]


def test_the_same_conversation_is_not_opened_twice(
    window: MainWindow, sides: list[ChatPage]
) -> None:
    left, right = sides
    window.sides.go_to_conversation(story.CONVERSATION, beside=True)
    assert window.sides.sides == [left, right]
    assert window.chat is left
    window.places.go_to_place(WindowPlace("conversation", WORKSPACE, "other"))
    assert window.chat is right
    assert right.composer.text.hasFocus()
    window.sides.begin_new_conversation()
    left.composer.text.setFocus()
    window.sides.begin_new_conversation()
    assert window.chat is right, "a new one is there already"
    assert left.session is not None


def test_a_sub_agent_is_shown_at_the_side_of_its_parent(
    window: MainWindow, sides: list[ChatPage], bench: FakeWorkbench
) -> None:
    left, right = sides
    bench.rows["child"] = Row("child", "Find callers", 0.0, parent=story.CONVERSATION)
    left.transcript.intent_requested.emit(OpenConversation("child"))
    assert [chat.session and chat.session.id for chat in sides] == ["child", "other"]
    assert window.chat is left
    right.transcript.intent_requested.emit(OpenConversation("child"))
    assert [chat.session and chat.session.id for chat in sides] == ["child", "other"]
    assert window.chat is left, "it is there already"


def test_a_third_conversation_takes_the_place_of_the_other_one(
    window: MainWindow, sides: list[ChatPage], bench: FakeWorkbench
) -> None:
    left, right = sides
    bench.rows["third"] = Row("third", "Third", 0.0)
    window.sides.go_to_conversation("third", beside=True)
    assert [chat.session and chat.session.id for chat in (left, right)] == ["third", "other"]


def test_a_closed_side_leaves_its_conversation_running(
    window: MainWindow, sides: list[ChatPage], bench: FakeWorkbench, theme: Theme
) -> None:
    left, right = sides
    two = bench.sessions["other"]
    two.set_running(ConversationActivity.THINKING)
    close_button(right).click()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert window.sides.sides == [left]
    assert left.composer.text.hasFocus()
    assert two.done == []
    assert headings(left) == []
    theme.set_zoom(1.5)  # nothing is left of it that hears
    two.finish("Done.")
    assert not window.window_actions["close-side"].isEnabled()
    window.sides.go_to_conversation("other", beside=True)
    assert "Done." in shown(window.chat)
    left.composer.text.setFocus()
    window.window_actions["close-side"].trigger()
    assert [chat.session for chat in window.sides.sides] == [two]


def test_what_is_in_the_trash_closes_its_side(
    window: MainWindow, sides: list[ChatPage], bench: FakeWorkbench
) -> None:
    _left, right = sides
    window.conversation_actions.run_conversation_action(
        "trash", bench, bench.rows[story.CONVERSATION]
    )
    assert window.sides.sides == [right]
    assert window.current_session is bench.sessions["other"]


def test_another_workspace_comes_alone(
    window: MainWindow, sides: list[ChatPage], desk: FakeDesk
) -> None:
    write(sides[1], "not yet sent")
    window.workspaces.go_to_workspace("parser")
    assert len(window.sides.sides) == 1
    window.workspaces.go_to_workspace(WORKSPACE)
    assert window.chat.composer.text.toPlainText() == "not yet sent"


@pytest.mark.parametrize("current", [0, 1])
def test_both_sides_keep_their_places_when_another_workspace_was_shown_meanwhile(
    window: MainWindow, sides: list[ChatPage], current: int
) -> None:
    """The current side came back at the left, wherever it had been."""

    def conversations() -> list[str]:
        return [side.composer.draft_place[1] for side in window.sides.sides]

    window.sides.go_to_side(sides[current])
    before = conversations()
    for _time in range(2):
        window.workspaces.go_to_workspace("parser")
        window.workspaces.go_to_workspace(WORKSPACE)
        assert conversations() == before
        assert window.chat is window.sides.sides[current]


def test_where_there_is_no_room_for_two_the_current_one_is_shown(
    window: MainWindow, sides: list[ChatPage]
) -> None:
    left, right = sides
    write(left, "draft one")
    right.composer.text.setFocus()
    window.theme.set_zoom(2.0)
    window.resize(900, 600)
    QApplication.processEvents()
    assert window.width() == 900
    assert [left.isVisible(), right.isVisible()] == [False, True]
    swap = next(each for each in headings(right) if each.text() == "⇄")
    assert swap.accessibleName() == "Show “Extract the lock manager”"
    swap.click()
    assert [left.isVisible(), right.isVisible()] == [True, False]
    assert left.composer.text.hasFocus()
    window.window_actions["other-side"].trigger()
    assert window.chat is right
    window.theme.set_zoom(1.0)
    window.resize(1440, 900)
    QApplication.processEvents()
    assert [left.isVisible(), right.isVisible()] == [True, True]
    assert left.composer.text.toPlainText() == "draft one"


def test_tab_goes_through_one_side_before_the_other(
    window: MainWindow, sides: list[ChatPage]
) -> None:
    left, right = sides
    left.transcript.view.setFocus()
    passed = []
    for _ in range(40):
        QTest.keyClick(window.focusWidget(), Qt.Key.Key_Tab)
        focused = window.focusWidget()
        passed += [side for side in sides if side.isAncestorOf(focused)]
    order = [side for at, side in enumerate(passed) if at == 0 or passed[at - 1] is not side]
    assert order[:2] == [left, right]
    assert len(order) <= 4, "they were passed in turns"


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def late_window(
    theme: Theme,
    state_file: WindowStateFile,
    settings: ProgramSettings,
    bench: FakeWorkbench,
    desk: FakeDesk,
    held: Held,
) -> MainWindow:
    """Two conversations; nothing more is opened or begun before the test lets it."""
    bench.rows["other"] = Row("other", "Wind the clock", 0.0)
    state_file.remember_value("conversation", WORKSPACE, value=story.CONVERSATION)
    window = MainWindow(theme, state_file, settings, BackgroundRunner(held))
    window.workspaces.set_workspaces_and_start(desk)
    window.resize(1440, 900)
    window.show()
    activate(window)
    held.let()
    held.let()
    held.let()
    window.sides.go_to_conversation("other", beside=True)
    held.let("open")
    return window


def test_a_first_message_is_shown_at_the_side_where_it_was_written(
    late_window: MainWindow, bench: FakeWorkbench, held: Held
) -> None:
    """The user has gone to the other side before the conversation was there."""
    window = late_window
    left, right = window.sides.sides
    window.sides.begin_new_conversation()
    write(right, "first words")
    QTest.keyClick(right.composer.text, Qt.Key.Key_Return)
    write(left, "meanwhile ")
    held.let()
    assert right.session is not None
    assert said(bench.sessions[right.session.id]) == ["first words"]
    assert left.session is not None
    assert left.session.id == story.CONVERSATION
    assert left.composer.text.hasFocus()
    assert window.chat is left
    assert window.windowTitle().startswith("Extract the lock manager")


def test_a_place_that_opens_late_is_not_looked_for_in_the_other_conversation(
    late_window: MainWindow, bench: FakeWorkbench, held: Held
) -> None:
    """The user has gone to the other side, or closed this one, before the conversation
    was there.
    """
    left, right = late_window.sides.sides
    bench.rows["third"] = Row("third", "Third", 0.0)
    for leave in (left.composer.text.setFocus, partial(late_window.sides.close_side, right)):
        late_window.sides.select_side(right)
        late_window.places.go_to_place(WindowPlace("conversation", WORKSPACE, "third", seq=1))
        leave()
        assert left.transcript.view.scrolling.is_following_end
        held.let("open")
        assert left.transcript.view.scrolling.is_following_end
        assert late_window.chat is left


def test_a_message_that_could_not_be_sent_comes_back_without_the_focus(
    window: MainWindow, sides: list[ChatPage]
) -> None:
    left, right = sides
    left.composer.text.setFocus()
    message = UnsentMessage((Text("again"),), draft_id="a")
    give_back = window.messages.build_message_returner(message, left.composer.draft_place)
    write(right, "typing")
    give_back(None)
    assert left.composer.text.toPlainText() == "again"
    assert right.composer.text.hasFocus()


def test_ctrl_and_a_click_or_a_key_open_to_the_side(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.rows["other"] = Row("other", "Wind the clock", 0.0)
    activate(window)
    window.sides.refresh_conversations()
    rows = window.sidebar.list
    at = rows.visualRect(rows.lines.index(rows.lines.find_conversation_row("other"))).center()
    QTest.mouseClick(
        rows.viewport(), Qt.MouseButton.LeftButton, Qt.KeyboardModifier.ControlModifier, at
    )
    assert [chat.session and chat.session.id for chat in window.sides.sides] == [
        story.CONVERSATION,
        "other",
    ]
    window.sides.close_side(window.chat)
    window.window_actions["beside"].trigger()
    QTest.keyClicks(window.palette_box.line, "Wind")
    QTest.keyClick(window.palette_box.line, Qt.Key.Key_Return)
    assert [chat.session and chat.session.id for chat in window.sides.sides] == [
        story.CONVERSATION,
        "other",
    ]
    assert window.chat.composer.text.hasFocus()


def test_one_that_cannot_be_opened_leaves_the_page_as_it_was(window: MainWindow) -> None:
    window.sides.go_to_conversation("gone", beside=True)
    assert len(window.sides.sides) == 1
    assert window.current_session is not None
    assert "no conversation gone" in window.notices.shown_text


def test_without_another_conversation_the_chooser_says_so(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    activate(window)
    bench.rows = {story.CONVERSATION: bench.rows[story.CONVERSATION]}
    window.window_actions["beside"].trigger()
    line = window.palette_box.line
    assert line.placeholderText() == "There is no other conversation in this workspace."
    assert line.accessibleName() == line.placeholderText()


def test_what_was_open_beside_a_conversation_is_there_again(
    window: MainWindow, bench: FakeWorkbench, sides: list[ChatPage]
) -> None:
    write(sides[1], "half a sentence")
    window.sides.go_to_other_side()
    window.state_file.write_state_file()
    kept = {
        key: value
        for key, value in json.loads(window.state_file._file.read_text()).items()
        if "beside" in key and value
    }
    assert kept == {"beside/storage-engine": "other"}
    window.workspaces.bring_to_front(bench)
    QApplication.processEvents()
    assert [chat.session and chat.session.id for chat in window.sides.sides] == [
        story.CONVERSATION,
        "other",
    ]
    assert window.chat is window.sides.sides[0]
    assert window.sides.sides[1].composer.text.toPlainText() == "half a sentence"
    window.sides.close_side(window.sides.sides[1])
    window.workspaces.bring_to_front(bench)
    assert len(window.sides.sides) == 1


def test_one_that_was_deleted_meanwhile_is_not_opened_beside(
    window: MainWindow, bench: FakeWorkbench, sides: list[ChatPage]
) -> None:
    window.sides.go_to_other_side()
    del bench.rows["other"]
    window.workspaces.bring_to_front(bench)
    assert len(window.sides.sides) == 1
    assert "other" not in window.notices.shown_text
