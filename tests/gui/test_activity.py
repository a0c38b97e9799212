from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.blocks import TextDelta
from helix_desktop.engine.events import Event, FactAppended, Queued, Running, StateChanged, Streamed
from helix_desktop.engine.facts import Folded, FoldKind, Recorded, Span, Text, UserSaid
from helix_desktop.engine.rows import ConversationRow as Row
from helix_desktop.gui.activity import Watched
from helix_desktop.gui.memory import Memory
from tests.gui import story
from tests.gui.fake_desk import FakeWorkbench


@pytest.fixture
def bench() -> FakeWorkbench:
    return FakeWorkbench("one", "#0d7d74", Path("/x"), [Row("a", "A", 0.0), Row("b", "B", 0.0)])


@pytest.fixture
def watched(application: QApplication, bench: FakeWorkbench, memory: Memory) -> Watched:
    return Watched(bench, memory, application)


def tell(bench: FakeWorkbench, watched: Watched, *events: Event) -> None:
    for event in events:
        bench._heard(event)
    watched._bridge.flush()


def test_the_most_urgent_state_counts(bench: FakeWorkbench, watched: Watched) -> None:
    tell(bench, watched, StateChanged("a", Running.TOOLS), StateChanged("b", Running.ASKING))
    seen = [watched.running]
    tell(bench, watched, StateChanged("b", Running.IDLE))
    seen.append(watched.running)
    tell(bench, watched, StateChanged("a", Running.FAILED, "no answer"))
    seen.append(watched.running)
    watched.seen("a")
    assert [*seen, watched.running] == [Running.ASKING, Running.TOOLS, Running.FAILED, Running.IDLE]


def test_only_what_came_to_rest_is_settled(bench: FakeWorkbench, watched: Watched) -> None:
    spy = QSignalSpy(watched.settled)
    states = (Running.THINKING, Running.TOOLS, Running.THINKING, Running.IDLE)
    tell(bench, watched, *(StateChanged("a", state) for state in states))
    tell(bench, watched, StateChanged("b", Running.ASKING, "Run a command"))
    assert [spy.at(at) for at in range(spy.count())] == [
        ["a", Running.IDLE, ""],
        ["b", Running.ASKING, "Run a command"],
    ]


def test_what_becomes_of_a_sub_agent_is_no_news_while_somebody_waits_for_it(
    bench: FakeWorkbench, watched: Watched
) -> None:
    bench.rows |= {"child": Row("child", "C", 0.0, parent="a"), "its": Row("its", "D", 0.0, parent="child")}
    spy = QSignalSpy(watched.settled)
    sent = [StateChanged(name, state) for name in ("child", "its") for state in (Running.THINKING, Running.FAILED)]
    tell(bench, watched, StateChanged("a", Running.TOOLS), *sent, StateChanged("a", Running.IDLE))
    assert (watched.running, [spy.at(at)[0] for at in range(spy.count())]) == (Running.IDLE, ["a"])
    tell(bench, watched, StateChanged("child", Running.FAILED, "asked by hand"))
    assert watched.running is Running.FAILED


def test_streams_do_not_reach_the_list(bench: FakeWorkbench, watched: Watched) -> None:
    bench._heard(Streamed("a", TextDelta("x")))
    assert not watched._bridge._waiting


def test_many_facts_make_one_list(bench: FakeWorkbench, watched: Watched) -> None:
    changed = QSignalSpy(watched.changed)
    bench.rows[story.CONVERSATION] = Row(story.CONVERSATION, "T", 0.0)
    from helix_desktop.engine.events import FactAppended

    tell(bench, watched, *(FactAppended(recorded) for recorded in story.recorded()))
    assert changed.wait(2_000)
    assert changed.count() == 1


def test_leaving_ends_it(bench: FakeWorkbench, memory: Memory) -> None:
    parent = QObject()
    watched = Watched(bench, memory, parent)
    watched.leave()
    assert bench._listeners == []


def test_a_fold_shows_in_the_bars_of_the_list(bench: FakeWorkbench, watched: Watched) -> None:
    spy = QSignalSpy(watched.changed)
    fold = Folded("h1", FoldKind.HANDOVER, Span(1, 2), "short", 5, 500)
    tell(bench, watched, FactAppended(Recorded("a", 3, 0.0, fold)))
    assert spy.wait(2_000)


def test_a_failure_is_said_in_the_list_until_the_conversation_goes_on_also_after_a_restart(
    bench: FakeWorkbench, watched: Watched, memory: Memory, application: QApplication
) -> None:
    tell(bench, watched, StateChanged("a", Running.FAILED, "no answer"))
    watched.seen("a")
    watched.leave()
    again = Watched(bench, memory, application)
    assert (again.failures(), again.running) == (("a",), Running.FAILED)
    tell(bench, again, StateChanged("a", Running.THINKING))
    again.leave()
    last = Watched(bench, memory, application)
    assert last.failures() == ()
    last.leave()


def test_a_message_is_kept_until_the_journal_has_it(bench: FakeWorkbench, watched: Watched, memory: Memory) -> None:
    """Between the queue and the journal hooks run and long texts are stored."""
    first, second = (Text("first"),), (Text("second"),)

    def kept() -> list[str]:
        return [each["text"] for each in memory.get("waiting", "one", "a", default=list[dict[str, str]]())]

    tell(bench, watched, Queued("a", (first,)), Queued("a", ()))
    assert kept() == ["first"]
    tell(bench, watched, Queued("a", (second,)))
    assert kept() == ["first", "second"]
    tell(bench, watched, FactAppended(Recorded("a", 2, 0.0, UserSaid(first))))
    assert kept() == ["second"]
    tell(bench, watched, Queued("a", ()))
    watched.remove_waiting("a", second)
    assert kept() == []
