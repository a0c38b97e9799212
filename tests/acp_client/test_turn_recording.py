"""What a foreign agent says and does in a turn becomes facts: replies, calls and results in order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helix_desktop.acp_client import turn_recording
from helix_desktop.acp_client.turn_recording import AcpCall, TurnRecorder
from helix_desktop.engine.facts import (
    ModelReplied,
    Reasoning,
    Spent,
    Stop,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    Usage,
)
from helix_desktop.engine.ports import CallOutcome, EntryOrigin
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import CallStage, CallStageChanged, Event, ToolPrinted
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, UNREAD
from helix_desktop.errors import ModelFailed
from helix_desktop.workbench import Workbench
from tests.acp_client.conftest import calls, facts_of, outputs, said

NO_USAGE = Usage()


@pytest.fixture
async def session(bench: Workbench) -> Session:
    started: Session = await bench.start_conversation(acp_agent="script")
    return started


@pytest.fixture
def recorder(bench: Workbench, session: Session) -> TurnRecorder:
    return TurnRecorder(session.conversation, bench.kit.resources, "m")


def chunk(text: str, kind: str = "agent_message_chunk") -> dict[str, Any]:
    return {"sessionUpdate": kind, "content": {"type": "text", "text": text}}


def thought(text: str) -> dict[str, Any]:
    return chunk(text, "agent_thought_chunk")


def call(name: str, status: str = "", **told: Any) -> dict[str, Any]:
    about = {"status": status} if status else {}
    return {"sessionUpdate": "tool_call", "toolCallId": name, "title": name, **about, **told}


def shows(text: str) -> dict[str, Any]:
    return {"content": [{"type": "content", "content": {"type": "text", "text": text}}]}


async def record(recorder: TurnRecorder, *updates: dict[str, Any]) -> None:
    for update in updates:
        await recorder.record_session_update(update, 10)


async def test_what_is_said_and_thought_is_one_reply_in_order(
    recorder: TurnRecorder, session: Session
) -> None:
    await record(recorder, thought("h"), thought("m"), chunk("I "), chunk("see."), thought("so"))
    assert facts_of(session, ModelReplied) == [], "nothing is recorded before the reply is over"
    await recorder.finish_turn(Stop.END, NO_USAGE)
    (reply,) = facts_of(session, ModelReplied)
    assert [(type(part), part.text) for part in reply.parts] == [
        (Reasoning, "hm"), (Text, "I see."), (Reasoning, "so"),
    ]  # fmt: skip
    assert (reply.stop, reply.model) == (Stop.END, "m")
    assert facts_of(session, Spent) == [], "an agent that says no cost has spent none"


async def test_a_reply_ends_with_its_calls_and_what_is_said_then_is_the_next_one(
    recorder: TurnRecorder, session: Session
) -> None:
    await record(
        recorder,
        chunk("I look."),
        call("c1", "in_progress"),
        call("c2", "in_progress"),
        chunk("Meanwhile."),
        call("c2", "completed", **shows("two")),
    )
    assert len(facts_of(session, ModelReplied)) == 1
    assert outputs(session) == [], "results are recorded together"
    await record(recorder, call("c1", "completed", **shows("one")))
    await recorder.finish_turn(Stop.END, NO_USAGE)
    order = [type(one.fact) for one in session.all_facts if isinstance(one.fact, ModelReplied | ToolReturned)]  # fmt: skip
    assert order.index(ToolReturned) > 0
    results = facts_of(session, ToolReturned)
    assert sorted(result.call for result in results) == ["c1", "c2"]
    assert {result.call: result.head for result in results} == {"c1": "one", "c2": "two"}
    assert all(result.ok and not result.stopped for result in results)
    assert said(session).endswith("Meanwhile.")


async def test_a_call_that_failed_is_not_ok_and_one_that_never_ended_was_stopped(
    recorder: TurnRecorder, session: Session
) -> None:
    await record(
        recorder,
        call("c1", "failed", **shows("no such file")),
        call("c2", "in_progress"),
        call("c3"),
    )
    await recorder.finish_turn(Stop.END, NO_USAGE)
    results = {result.call: result for result in facts_of(session, ToolReturned)}
    assert (results["c1"].ok, results["c1"].stopped, results["c1"].head) == (False, False, "no such file")  # fmt: skip
    assert (results["c2"].ok, results["c2"].stopped, results["c2"].head) == (False, True, UNREAD)
    assert "c3" not in results, "it had not begun, so it is left out"
    assert [one.id for one in calls(session)] == ["c1", "c2"]


async def test_a_call_that_ended_at_its_question_had_not_begun(
    recorder: TurnRecorder, session: Session
) -> None:
    asked = await recorder.record_call_update(call("c1", "pending"), is_live=True)
    assert [one.id for one in calls(session)] == ["c1"], "what the user is asked about is shown"
    asked.was_stopped_at_question = True
    await recorder.finish_turn(Stop.END, NO_USAGE)
    assert outputs(session) == [NOT_BEGUN]


async def test_later_updates_of_a_call_add_to_what_is_known_and_take_nothing_away(
    recorder: TurnRecorder, session: Session
) -> None:
    await record(
        recorder,
        call("c1", "pending", rawInput={"path": "x"}, kind="read"),
        call("c1", "completed", rawInput=None, title="read_file", **shows("text")),
    )
    await recorder.finish_turn(Stop.END, NO_USAGE)
    (made,) = calls(session)
    assert (made.name, made.arguments) == ("read_file", '{"path": "x"}')
    assert made.tokens > 0


async def test_calls_without_an_id_are_told_apart(recorder: TurnRecorder, session: Session) -> None:
    await record(recorder, call("", "completed"), call("", "completed"))
    await recorder.finish_turn(Stop.END, NO_USAGE)
    assert [one.id for one in calls(session)] == ["call 0", "call 1"]


async def test_what_the_turn_cost_is_recorded_once(
    recorder: TurnRecorder, session: Session
) -> None:
    await recorder.finish_turn(Stop.END, Usage(cost=0.5))
    (spent,) = facts_of(session, Spent)
    assert (spent.model, spent.usage.cost) == ("m", 0.5)
    assert facts_of(session, ModelReplied) == []


async def test_a_plan_is_recorded_when_it_changes(recorder: TurnRecorder, session: Session) -> None:
    def plan(*states: str) -> dict[str, Any]:
        entries = [
            {"content": f"step {n}" + "x" * 600, "status": one} for n, one in enumerate(states)
        ]
        return {"sessionUpdate": "plan", "entries": entries}

    await record(recorder, plan("in_progress", "pending", "odd"))
    await record(recorder, plan("in_progress", "pending", "odd"))
    await record(recorder, plan("completed", "in_progress", "pending"))
    first, second = facts_of(session, TodoSet)
    assert [state for _, state in first.items] == ["doing", "open", "open"]
    assert [state for _, state in second.items] == ["done", "doing", "open"]
    assert {len(text) for text, _ in first.items} == {500}


async def test_a_turn_that_grows_without_end_is_ended(
    recorder: TurnRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_recording, "MOST_IN_TURN", 100)
    await recorder.record_session_update(chunk("a"), 100)
    with pytest.raises(ModelFailed, match="more data than a single turn can hold"):
        await recorder.record_session_update(chunk("b"), 1)


async def test_too_many_calls_end_the_turn(
    recorder: TurnRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_recording, "MOST_CALLS", 2)
    await record(recorder, call("a"), call("b"), call("c"))
    with pytest.raises(ModelFailed):
        await record(recorder, call("d"))


async def test_a_very_long_reply_is_recorded_in_parts(
    recorder: TurnRecorder, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_recording, "MOST_TEXT", 10)
    await record(recorder, chunk("a" * 11), chunk("b"), chunk("c"))
    await recorder.finish_turn(Stop.END, NO_USAGE)
    assert [reply.parts[0].text for reply in facts_of(session, ModelReplied)] == ["a" * 11, "bc"]


async def test_a_command_of_ours_is_the_output_of_the_call_that_shows_its_terminal(
    recorder: TurnRecorder, session: Session, bench: Workbench
) -> None:
    stored = await bench.kit.resources.cache.store_content(b"printed", EntryOrigin("bash", "ls"))
    outcome = CallOutcome(stored, True, exit_code=3)
    shown = {
        "content": [{"type": "terminal", "terminalId": "t1"}],
        "rawInput": {"command": "ls"},
    }
    events: list[Event] = []
    session.subscribe_to_events(events.append)
    await record(recorder, call("c1", "in_progress", **shown))
    recorder.notify_of_terminal_output("t1", "pri")
    recorder.notify_of_terminal_output("other", "no")
    await recorder.record_finished_command(
        "t1", ToolCall("x", "bash", '{"command": "ls"}'), outcome
    )
    await record(recorder, call("c1", "completed"))
    await recorder.record_finished_command(
        "t9", ToolCall("y", "bash", '{"command": "pwd"}'), outcome
    )
    recorded_at_once = [result.call for result in facts_of(session, ToolReturned)]
    assert recorded_at_once == ["c1", "y"], "a kill of the program must not lose a command's output"
    await recorder.finish_turn(Stop.END, NO_USAGE)
    assert [one.text for one in events if isinstance(one, ToolPrinted)] == ["pri"]
    results = {result.call: result for result in facts_of(session, ToolReturned)}
    assert (results["c1"].head, results["c1"].exit_code) == ("printed", 3)
    assert results["y"].output == stored
    assert [one.arguments for one in calls(session)][1:] == ['{"command": "pwd"}']
    stages = [one.stage for one in events if isinstance(one, CallStageChanged)]
    assert CallStage.RUNNING in stages
    assert stages[-1] is CallStage.DONE


def test_a_call_is_named_by_its_agent_or_by_its_title_or_by_its_kind() -> None:
    meta = {"_meta": {"claudeCode": {"toolName": "Bash"}}}
    named: list[tuple[dict[str, Any], str]] = [
        ({**meta, "title": "Run ls", "kind": "execute"}, "Bash"),
        ({"title": "read_file", "kind": "read"}, "read_file"),
        ({"title": "Read a file", "kind": "read"}, "read"),
        ({"title": "Read a file"}, "tool"),
        ({"title": "x" * 200}, "x" * turn_recording.LONGEST_NAME),
    ]
    for told, name in named:
        assert AcpCall("c", told).as_tool_call().name == name
    assert AcpCall("c", {"title": "Look"}).as_tool_call().arguments == '{"title": "Look"}'
    long = AcpCall("c", {"rawInput": {"x": "y" * 300_000}}).as_tool_call()
    assert len(long.arguments) == turn_recording.LONGEST_ARGUMENTS


def test_a_call_shows_differences_and_texts_or_else_its_raw_output() -> None:
    difference = {"type": "diff", "path": "a.txt", "oldText": "one\n", "newText": "two\n"}
    words = {"type": "content", "content": {"type": "text", "text": "Done."}}
    picture = {"type": "content", "content": {"type": "image", "mimeType": "image/png"}}
    both = AcpCall("c", {"content": [words, difference, picture], "rawOutput": "raw"}).output_text()
    assert both.index("-one") < both.index("+two") < both.index("Done.") < both.index("image/png")
    assert "raw" not in both
    assert AcpCall("c", {"rawOutput": "plain"}).output_text() == "plain"
    assert AcpCall("c", {"rawOutput": {"a": 1}}).output_text() == '{\n "a": 1\n}'
    assert AcpCall("c", {}).output_text() == "[no output]"


async def test_words_and_thoughts_without_any_length_are_no_endless_reply(
    recorder: TurnRecorder, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The defect: each change between them makes a part, and all were looked at with each word."""
    monkeypatch.setattr(turn_recording, "MOST_TEXT", 5_000)
    for _ in range(200):
        await record(recorder, chunk(""), thought(""))
    await recorder.finish_turn(Stop.END, NO_USAGE)
    assert len(facts_of(session, ModelReplied)) > 5


async def test_a_call_that_ended_has_its_result_whenever_its_recording_is_stopped(
    bench: Workbench, session: Session
) -> None:
    """The defect: stopped while the result was stored, a command that ran was not in the record at all, or
    had no result there.
    """
    for rounds in range(40):
        recorder = TurnRecorder(session.conversation, bench.kit.resources, "m")
        name = f"call {rounds}"
        update = call(name, "completed", **shows(f"printed {rounds}"))
        recording = bench.tasks.spawn_task(record(recorder, update), name="recording")
        for _ in range(rounds):
            await asyncio.sleep(0)
        recording.cancel()
        await asyncio.wait([recording])
        await recorder.finish_turn(Stop.STOPPED, NO_USAGE)
    made = [one.id for one in calls(session)]
    returned = [one.call for one in facts_of(session, ToolReturned)]
    assert returned == made
    assert made == [f"call {rounds}" for rounds in range(1, 40)]


async def test_a_call_that_begins_as_the_turn_ends_is_cut_off_or_left_out(
    bench: Workbench, session: Session
) -> None:
    """The defect: it stood in the record without a result, as if it went on for ever."""
    for rounds in range(40):
        recorder = TurnRecorder(session.conversation, bench.kit.resources, "m")
        update = call(f"call {rounds}", "in_progress")
        recording = bench.tasks.spawn_task(record(recorder, update), name="recording")
        for _ in range(rounds):
            await asyncio.sleep(0)
        await recorder.finish_turn(Stop.STOPPED, NO_USAGE)
        await record(recorder, call(f"later {rounds}", "in_progress"), chunk("later"))
        await recording
    made = [one.id for one in calls(session)]
    assert [one.call for one in facts_of(session, ToolReturned)] == made
    assert "later" not in "".join(made) + said(session)
    assert len(made) > 20
