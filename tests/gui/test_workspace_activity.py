from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import Folded, FoldKind, Recorded, Span
from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    ConversationReplaced,
    Event,
    FactAppended,
    ReplyStreamed,
)
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


def test_who_was_stopped_is_not_counted_while_its_command_ends(
    bench: FakeWorkbench, watched: WorkspaceActivity, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To quit just after Escape asked about an agent that the chat called stopped."""
    monkeypatch.setattr(bench, "conversations_above", lambda name: ["a"] if name == "b" else [])
    tell(bench, watched, ActivityChanged("a", ConversationActivity.TOOLS))
    tell(bench, watched, ActivityChanged("b", ConversationActivity.THINKING))
    watched.note_stop("a")
    assert watched.working_agents() == []
    tell(bench, watched, ActivityChanged("b", ConversationActivity.IDLE))
    tell(bench, watched, ActivityChanged("a", ConversationActivity.IDLE))
    tell(bench, watched, ActivityChanged("a", ConversationActivity.THINKING))
    assert watched.working_agents() == ["a"], "the next turn"
