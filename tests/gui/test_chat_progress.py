"""What a side says of its conversation while it works: its meter, its price, and what runs beside it."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from helix_desktop.engine.facts import (
    ConversationStarted,
    FoldKind,
    ModelRole,
    ModelSet,
    Text,
    UserSaid,
)
from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.messages import RetryDelay
from helix_desktop.engine.session_events import ActivityChanged, ConversationActivity, FoldProgress
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.subagents_dialog import SubagentsDialog
from tests.gui.fake_desk import FakeSession, FakeWorkbench


def test_the_meter_and_the_price_of_a_first_message_are_known_before_it_is_written(
    window: MainWindow,
) -> None:
    window.sides.begin_new_conversation()
    assert window.chat.composer._figures.text() == ""
    window.chat.measuring.timeout.emit()
    assert window.chat.composer._figures.text().endswith("% full")
    assert not window.chat.composer._figures.text().startswith("0")


def test_no_meter_stands_there_where_another_agent_keeps_its_own_context(
    window: MainWindow, session: FakeSession
) -> None:
    """The defect: "64 of 200K tokens" for an agent that had not said how large its window is. Where
    it says that, how much of it is used is still not known.
    """
    session.append(ConversationStarted(acp_agent="Echo agent"))
    session.append(ModelSet(ModelRole.MAIN, "Echo agent", 0))
    window.chat.bridge.emit_waiting_events()
    assert window.chat.composer._figures.text() == ""
    session.append(ModelSet(ModelRole.MAIN, "Echo agent", 50_000))
    window.chat.bridge.emit_waiting_events()
    assert window.chat.composer._figures.text() == ""


def test_a_fold_is_stopped_beside_its_name_in_the_message_box_and_by_escape(
    window: MainWindow, session: FakeSession
) -> None:
    assert QTest.qWaitForWindowActive(window)
    composer = window.chat.composer
    stop = composer._stop
    assert not stop.isVisible()
    session.tell(FoldProgress(session.id, FoldKind.HANDOVER, "a handover pays"))
    window.chat.bridge.emit_waiting_events()
    assert window.top.stop.isHidden(), "one button to stop is enough"
    window.switch_to_page("timeline")
    assert window.top.stop.isVisible()
    window.switch_to_page("chat")
    assert window.top.stop.isHidden()
    for press_stop in (
        stop.click,
        window.top.stop.click,
        lambda: QTest.keyClick(window, Qt.Key.Key_Escape),
    ):
        press_stop()
    assert session.done == ["stop the fold"] * 3
    assert composer._send.text() == "Send", "a message does not wait for the fold"
    session.set_running(ConversationActivity.THINKING)
    window.chat.bridge.emit_waiting_events()
    stop.click()
    assert session.done[-1] == "stop", "what the agent does goes first"
    session.set_running(ConversationActivity.IDLE)
    session.tell(FoldProgress(session.id, FoldKind.HANDOVER, done=True))
    window.chat.bridge.emit_waiting_events()
    assert not stop.isVisible()
    assert not window.top.stop.isVisible()


def test_agents_in_the_background_are_shown_at_the_top_and_lead_to_their_list(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    bench.rows["child"] = Row("child", "C", 0.0, parent=session.id)
    for state, text in (
        (ConversationActivity.TOOLS, "1 agent is still working."),
        (ConversationActivity.IDLE, ""),
    ):
        bench._heard(ActivityChanged("child", state))
        window.workspaces.shown_activity._bridge.emit_waiting_events()
        assert (window.top._state.text(), window.top.stop.isVisible()) == (text, bool(text))
        if text:
            window.top.stop.click()
            assert window.findChild(SubagentsDialog) is not None
            assert not session.done, "nothing is stopped"


def test_folding_in_the_background_is_said_at_the_top_also_after_another_conversation(
    window: MainWindow, session: FakeSession, bench: FakeWorkbench
) -> None:
    session.tell(FoldProgress(session.id, FoldKind.HANDOVER, "a handover pays"))
    window.chat.bridge.emit_waiting_events()
    assert window.top._state.text() == "Shortening: summary…"
    window.sides.begin_new_conversation()
    assert window.top._state.text() == ""
    window.sides.go_to_conversation(session.id)
    assert window.top._state.text() == "Shortening: summary…"
    session.tell(FoldProgress(session.id, FoldKind.HANDOVER, done=True))
    window.chat.bridge.emit_waiting_events()
    assert window.top._state.text() == ""


def test_a_summary_that_is_tried_again_says_why_at_the_top_and_below_a_message_that_waits(
    window: MainWindow, session: FakeSession
) -> None:
    session.append(UserSaid((Text("go on"),)))
    session.set_running(ConversationActivity.THINKING)
    begun = FoldProgress(session.id, FoldKind.HANDOVER)
    failed = replace(begun, is_update=True, retry_why="peer says: no.", retry_seconds=4.0)
    session.tell(failed)
    window.chat.bridge.emit_waiting_events()
    assert window.top._state.text() == "Retrying: summary…"
    assert window.top._state.toolTip() == "peer says: no."
    items = window.chat.transcript.view.items
    assert items.awaited_fold is None
    session.tell(replace(failed, is_waited_for=True))
    window.chat.bridge.emit_waiting_events()
    assert items.all[items.retry_wait_item].text == "peer says: no."

    window.sides.begin_new_conversation()
    assert window.top._state.toolTip() == ""
    window.sides.go_to_conversation(session.id)
    items = window.chat.transcript.view.items
    assert items.all[items.retry_wait_item].text == "peer says: no."
    session.tell(replace(begun, done=True))
    window.chat.bridge.emit_waiting_events()
    assert items.retry_wait_item == -1
    assert (window.top._state.text(), window.top._state.toolTip()) == ("", "")


def test_a_meter_that_jumps_because_the_window_is_another_says_so(
    window: MainWindow, session: FakeSession, bench: FakeWorkbench
) -> None:
    """After an error in another conversation the meter jumped from 6 to 93 %, and nothing said
    that the error had named the model's real window.
    """
    session.append(ModelSet(ModelRole.MAIN, "opus", 128_000))
    window.chat.bridge.emit_waiting_events()
    window.notices.show_notice("")
    session.append(ModelSet(ModelRole.MAIN, "opus", 8_192))
    window.chat.bridge.emit_waiting_events()
    assert window.notices.shown_text == (
        "For opus, the meter now uses a context window of 8.2K tokens instead of 128K. "
        "The conversation did not change."
    )
    bench.models.with_assumed_window.add("opus")
    session.append(ModelSet(ModelRole.MAIN, "opus", 16_384))
    window.chat.bridge.emit_waiting_events()
    assert window.notices.shown_text == (
        "For opus, the meter now uses a context window of 16.4K tokens instead of 8.2K. "
        "The conversation did not change. Its server does not say how large the window is, "
        "and has read a longer text whole than was expected to fit."
    ), "a window that was doubled for this reason grew without one"
    window.notices.show_notice("")
    session.append(ModelSet(ModelRole.MAIN, "another", 32_000))
    window.chat.bridge.emit_waiting_events()
    assert window.notices.shown_text == "", "the user chose another model"


def test_a_conversation_that_is_shown_in_a_pause_says_why_nothing_comes(
    window: MainWindow, session: FakeSession
) -> None:
    session.set_running(ConversationActivity.THINKING)
    session.next_try = RetryDelay("The provider is busy.", 12.0)
    window.sides.begin_new_conversation()
    window.sides.go_to_conversation(session.id)
    items = window.chat.transcript.view.items
    assert items.all[items.retry_wait_item].text == "The provider is busy."
