from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PySide6.QtCore import QObject
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import Folded, FoldKind, Recorded, Span, Text, UserSaid
from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.message_queue import MessageQueue
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    ConversationReplaced,
    Event,
    FactAppended,
    MessagesQueued,
    ReplyStreamed,
)
from helix_desktop.gui.chat.message_drafts import find_unrecorded_messages
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.workspace_activity import WorkspaceActivity
from tests.gui import story
from tests.gui.fake_desk import FakeWorkbench


@pytest.fixture
def bench() -> FakeWorkbench:
    return FakeWorkbench("one", "#0d7d74", Path("/x"), [Row("a", "A", 0.0), Row("b", "B", 0.0)])


@pytest.fixture
def watched(
    application: QApplication, bench: FakeWorkbench, state_file: WindowStateFile
) -> WorkspaceActivity:
    return WorkspaceActivity(bench, state_file, application)


def tell(bench: FakeWorkbench, watched: WorkspaceActivity, *events: Event) -> None:
    for event in events:
        bench._heard(event)
    watched._bridge.emit_waiting_events()


def test_the_most_urgent_state_counts(bench: FakeWorkbench, watched: WorkspaceActivity) -> None:
    tell(
        bench,
        watched,
        ActivityChanged("a", ConversationActivity.TOOLS),
        ActivityChanged("b", ConversationActivity.ASKING),
    )
    seen = [watched.most_urgent_state]
    tell(bench, watched, ActivityChanged("b", ConversationActivity.IDLE))
    seen.append(watched.most_urgent_state)
    tell(bench, watched, ActivityChanged("a", ConversationActivity.FAILED, "no answer"))
    seen.append(watched.most_urgent_state)
    watched.mark_failure_seen("a")
    assert [*seen, watched.most_urgent_state] == [
        ConversationActivity.ASKING,
        ConversationActivity.TOOLS,
        ConversationActivity.FAILED,
        ConversationActivity.IDLE,
    ]


def test_only_what_came_to_rest_is_settled(
    bench: FakeWorkbench, watched: WorkspaceActivity
) -> None:
    spy = QSignalSpy(watched.activity_ended)
    states = (
        ConversationActivity.THINKING,
        ConversationActivity.TOOLS,
        ConversationActivity.THINKING,
        ConversationActivity.IDLE,
    )
    tell(bench, watched, *(ActivityChanged("a", state) for state in states))
    tell(bench, watched, ActivityChanged("b", ConversationActivity.ASKING, "Run a command"))
    assert [spy.at(at) for at in range(spy.count())] == [
        ["a", ConversationActivity.IDLE, ""],
        ["b", ConversationActivity.ASKING, "Run a command"],
    ]


def test_conversations_that_name_each_other_as_parents_do_not_hold_up_the_window(
    bench: FakeWorkbench, watched: WorkspaceActivity
) -> None:
    bench.rows |= {
        "one": Row("one", "C", 0.0, parent="two"),
        "two": Row("two", "D", 0.0, parent="one"),
    }
    spy = QSignalSpy(watched.activity_ended)
    tell(bench, watched, ActivityChanged("one", ConversationActivity.FAILED))
    assert [spy.at(at)[0] for at in range(spy.count())] == ["one"]


def test_what_becomes_of_a_sub_agent_is_no_news_while_somebody_waits_for_it(
    bench: FakeWorkbench, watched: WorkspaceActivity
) -> None:
    bench.rows |= {
        "child": Row("child", "C", 0.0, parent="a"),
        "its": Row("its", "D", 0.0, parent="child"),
    }
    spy = QSignalSpy(watched.activity_ended)
    sent = [
        ActivityChanged(name, state)
        for name in ("child", "its")
        for state in (ConversationActivity.THINKING, ConversationActivity.FAILED)
    ]
    tell(
        bench,
        watched,
        ActivityChanged("a", ConversationActivity.TOOLS),
        *sent,
        ActivityChanged("a", ConversationActivity.IDLE),
    )
    assert (watched.most_urgent_state, [spy.at(at)[0] for at in range(spy.count())]) == (
        ConversationActivity.IDLE,
        ["a"],
    )
    tell(bench, watched, ActivityChanged("child", ConversationActivity.FAILED, "asked by hand"))
    assert watched.most_urgent_state is ConversationActivity.FAILED


def test_an_agent_in_the_background_counts_as_work_and_is_shown_at_its_parent(
    bench: FakeWorkbench, watched: WorkspaceActivity
) -> None:
    """It says nothing more about itself while its parent's turn ends: its command may
    run for an hour.
    """
    bench.rows |= {
        "child": Row("child", "C", 0.0, parent="a"),
        "its": Row("its", "D", 0.0, parent="child"),
    }
    spy = QSignalSpy(watched.state_changed)
    for name, state in (("a", ConversationActivity.TOOLS), ("its", ConversationActivity.TOOLS)):
        tell(bench, watched, ActivityChanged(name, state))
    tell(bench, watched, ActivityChanged("a", ConversationActivity.IDLE))
    assert watched.conversations_in(*WORKING_STATES) == ("its",)
    assert watched.working_agents_below("a") == ["its"]
    assert [spy.at(at)[1] for at in range(spy.count()) if spy.at(at)[0] == "a"][
        -1
    ] is ConversationActivity.TOOLS
    tell(bench, watched, ActivityChanged("its", ConversationActivity.IDLE))
    assert not watched.working_agents_below("a")
    assert [spy.at(at)[1] for at in range(spy.count()) if spy.at(at)[0] == "a"][
        -1
    ] is ConversationActivity.IDLE


def test_streams_do_not_reach_the_list(bench: FakeWorkbench, watched: WorkspaceActivity) -> None:
    bench._heard(ReplyStreamed("a", TextDelta("x")))
    assert not watched._bridge._waiting


def test_many_facts_make_one_list(bench: FakeWorkbench, watched: WorkspaceActivity) -> None:
    changed = QSignalSpy(watched.list_changed)
    bench.rows[story.CONVERSATION] = Row(story.CONVERSATION, "T", 0.0)
    from helix_desktop.engine.session_events import FactAppended

    tell(bench, watched, *(FactAppended(recorded) for recorded in story.recorded()))
    assert changed.wait(2_000)
    assert changed.count() == 1


def test_leaving_ends_it(bench: FakeWorkbench, state_file: WindowStateFile) -> None:
    parent = QObject()
    watched = WorkspaceActivity(bench, state_file, parent)
    watched.stop_watching_workspace()
    assert bench._listeners == []


def test_a_fold_shows_in_the_bars_of_the_list(
    bench: FakeWorkbench, watched: WorkspaceActivity
) -> None:
    spy = QSignalSpy(watched.list_changed)
    fold = Folded("h1", FoldKind.HANDOVER, Span(1, 2), "short", 5, 500)
    tell(bench, watched, FactAppended(Recorded("a", 3, 0.0, fold)))
    assert spy.wait(2_000)


def test_what_the_recorder_brings_in_is_listed(
    bench: FakeWorkbench, watched: WorkspaceActivity
) -> None:
    spy = QSignalSpy(watched.list_changed)
    tell(bench, watched, ConversationReplaced("recorded"))
    assert spy.wait(2_000)


def test_a_failure_is_said_in_the_list_until_the_conversation_goes_on_also_after_a_restart(
    bench: FakeWorkbench,
    watched: WorkspaceActivity,
    state_file: WindowStateFile,
    application: QApplication,
) -> None:
    tell(bench, watched, ActivityChanged("a", ConversationActivity.FAILED, "no answer"))
    watched.mark_failure_seen("a")
    watched.stop_watching_workspace()
    again = WorkspaceActivity(bench, state_file, application)
    assert (again.conversations_in(ConversationActivity.FAILED), again.most_urgent_state) == (
        ("a",),
        ConversationActivity.FAILED,
    )
    tell(bench, again, ActivityChanged("a", ConversationActivity.THINKING))
    again.stop_watching_workspace()
    last = WorkspaceActivity(bench, state_file, application)
    assert last.conversations_in(ConversationActivity.FAILED) == ()
    last.stop_watching_workspace()


def test_a_message_is_kept_until_the_journal_has_it(
    bench: FakeWorkbench, watched: WorkspaceActivity, state_file: WindowStateFile
) -> None:
    """Between the queue and the journal hooks run and long texts are stored."""
    first, second = (Text("first"),), (Text("second"),)

    def kept() -> list[str]:
        return [
            each["text"]
            for each in state_file.get_remembered(
                "waiting", "one", "a", default=list[dict[str, str]]()
            )
        ]

    tell(bench, watched, MessagesQueued("a", (first,)), MessagesQueued("a", ()))
    assert kept() == ["first"]
    tell(bench, watched, MessagesQueued("a", (second,)))
    assert kept() == ["first", "second"]
    tell(bench, watched, FactAppended(Recorded("a", 2, 0.0, UserSaid(first))))
    assert kept() == ["second"]
    tell(bench, watched, MessagesQueued("a", (), (second,)))
    assert kept() == []


def test_a_message_that_was_taken_back_is_not_kept_whoever_took_it(
    bench: FakeWorkbench, watched: WorkspaceActivity, state_file: WindowStateFile
) -> None:
    """The terminal takes its message back if its command is ended. The words came back
    in the next message.
    """
    conversation: Any = SimpleNamespace(id="a", notify_listeners=bench._heard)
    tokens: Any = SimpleNamespace(count_tokens=len)
    queue = MessageQueue(conversation, tokens)
    queue.add_message((Text("from the terminal"),), steer=False)
    queue.add_message((Text("from the window"),), steer=False)
    queue.take_back_queued(0)
    queue.pop_next_message()
    (kept,) = state_file.get_remembered("waiting", "one", "a", default=list[dict[str, str]]())
    assert kept["text"] == "from the window"


def test_who_only_waits_for_a_sub_agent_is_not_counted_among_those_who_work(
    bench: FakeWorkbench, watched: WorkspaceActivity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "conversations_above", lambda name: ["a"] if name == "b" else [])
    tell(bench, watched, ActivityChanged("a", ConversationActivity.TOOLS))
    assert watched.working_agents() == ["a"]
    tell(bench, watched, ActivityChanged("b", ConversationActivity.THINKING))
    assert watched.working_agents() == ["b"]
    tell(bench, watched, ActivityChanged("a", ConversationActivity.THINKING))
    assert sorted(watched.working_agents()) == ["a", "b"]


def test_of_two_equal_messages_the_second_is_not_taken_for_the_recorded_first(
    bench: FakeWorkbench, watched: WorkspaceActivity, state_file: WindowStateFile
) -> None:
    """Who had queued "go on" twice lost the second one when the program was killed."""
    words = (Text("go on"),)
    tell(bench, watched, MessagesQueued("a", (words, words)))
    first = Recorded("a", 1, time.time() + 1.0, UserSaid(words))
    tell(bench, watched, MessagesQueued("a", (words,)))
    waiting = state_file.get_remembered("waiting", "one", "a", default=list[object]())
    assert find_unrecorded_messages(waiting, [first]) == [words], "killed before it was noted"
    tell(bench, watched, FactAppended(first))
    waiting = state_file.get_remembered("waiting", "one", "a", default=list[object]())
    assert find_unrecorded_messages(waiting, [first]) == [words], "killed after it was noted"
    second = Recorded("a", 2, first.time + 1.0, UserSaid(words))
    assert find_unrecorded_messages(waiting, [first, second]) == [], "and never twice"


def test_an_equal_message_that_is_added_does_not_hide_one_that_is_being_recorded(
    bench: FakeWorkbench, watched: WorkspaceActivity, state_file: WindowStateFile
) -> None:
    words = (Text("go on"),)
    tell(bench, watched, MessagesQueued("a", (words,)), MessagesQueued("a", ()))
    tell(bench, watched, MessagesQueued("a", (words,)))

    def waiting() -> int:
        return len(state_file.get_remembered("waiting", "one", "a", default=list[object]()))

    assert waiting() == 2, "one is on its way into the conversation, and one waits"
    tell(bench, watched, MessagesQueued("a", (words, words), put_back=(words,)))
    assert waiting() == 2, "the first waits again, because its turn was stopped"
