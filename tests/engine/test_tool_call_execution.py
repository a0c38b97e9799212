"""The calls of a reply: what is run, in which order, and that none is left open."""

from __future__ import annotations

import asyncio

import pytest

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import (
    Decided,
    Folded,
    ModelReplied,
    PartRef,
    Rewound,
    Stop,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
)
from helix_desktop.engine.messages import Reply, Request, ToolResult
from helix_desktop.engine.ports import (
    NOT_RUN,
    CallContext,
    CallOutcome,
    EntryOrigin,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.session_events import (
    CallStage,
    CallStageChanged,
    ConversationActivity,
    Event,
    FactAppended,
    QuestionAsked,
)
from helix_desktop.engine.session_setup import TurnLimits
from helix_desktop.engine.tool_call_execution import (
    TORN,
    facts_that_take_back_unstarted_calls,
)
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, SKIPPED, UNREAD
from helix_desktop.engine.view import build_state
from tests.conftest import Expect
from tests.engine.agent import SteppedClock, calls, says, told, world

HELLO = (Text("hello"),)


async def test_parallel_calls_run_side_by_side_and_are_recorded_together() -> None:
    at = await world(calls("look", "look"), says("done"))
    met = asyncio.Barrier(2)

    async def meet(call: ToolCall, context: CallContext) -> str:
        await met.wait()
        return call.id

    at.tools.runs = {"look": meet}
    await told(at)
    results = at.of(ToolReturned)
    assert [result.call for result in results] == ["look-0-1", "look-1-1"]
    shown = [
        part
        for message in at.model.requests[1].messages
        for part in message.parts
        if isinstance(part, ToolResult)
    ]
    assert [part.text for part in shown] == ["look-0-1", "look-1-1"]


async def test_a_change_of_files_stands_in_order_with_the_calls_around_it() -> None:
    at = await world(calls("look", "look", "run", "run", "look", "look"), says("done"))
    clock = at.session._services.clock
    order = list[str]()
    met = asyncio.Barrier(2)

    async def look(call: ToolCall, context: CallContext) -> str:
        order.append(call.name)
        await met.wait()
        order.append("looked")
        return "seen"

    async def change(call: ToolCall, context: CallContext) -> str:
        order.append("change")
        await clock.sleep_seconds(2)
        order.append("changed")
        return "changed"

    at.tools.runs = {"look": look, "run": change}
    heard: list[Event] = []
    at.session.subscribe_to_events(heard.append)
    await told(at)
    moved = [(one.call, one.stage) for one in heard if isinstance(one, CallStageChanged)]
    first = ["look-0-1", "look-1-1"]
    late = ["run-2-1", "run-3-1", "look-4-1", "look-5-1"]
    assert moved[:6] == [
        *((call, CallStage.IN_LINE) for call in late),
        *((call, CallStage.RUNNING) for call in first),
    ]
    assert sorted(moved[6:8]) == [(call, CallStage.DONE) for call in first]
    assert moved[8:10] == [("run-2-1", CallStage.RUNNING), ("run-2-1", CallStage.DONE)]
    looks = ["look", "look", "looked", "looked"]
    changes = ["change", "changed"]
    assert order == [*looks, *changes, *changes, *looks]
    assert [result.seconds for result in at.of(ToolReturned)] == [0, 0, 2, 2, 0, 0]


async def test_what_was_done_is_recorded_before_the_calls_that_waited_for_it() -> None:
    """So that a crash or a stop while the user thinks about the second change knows of
    the first.
    """
    at = await world(calls("run", "run", "look"), says("done"))
    begun = asyncio.Event()

    async def change(call: ToolCall, context: CallContext) -> str:
        if call.id != "run-0-1":
            begun.set()
            await asyncio.Event().wait()
        return "changed"

    at.tools.runs = {"run": change}
    at.session.send_message(HELLO)
    await asyncio.wait_for(begun.wait(), 60)
    assert [result.call for result in at.of(ToolReturned)] == ["run-0-1"]
    at.session.stop_turn()
    await asyncio.wait_for(at.session.wait_until_idle(), 60)
    assert at.tools.ran == ["run-0-1"]
    heads = [(result.call, result.head) for result in at.of(ToolReturned)]
    assert heads == [("run-0-1", "changed"), ("run-1-1", UNREAD), ("look-2-1", NOT_BEGUN)]
    begun_last = at.of(ToolReturned)[-1]
    (back,) = facts_that_take_back_unstarted_calls(at.session.conversation.state)
    assert isinstance(back, Rewound)
    assert at.session.all_facts[back.to].fact == begun_last


async def test_where_every_call_has_begun_none_is_taken_back() -> None:
    at = await world(calls("look"), says("done"))
    at.session.send_message(HELLO)
    await asyncio.wait_for(at.session.wait_until_idle(), 60)
    state = build_state(at.session.all_facts[:-2])  # as if it had ended before the last reply
    assert isinstance(state.facts[-1].fact, ToolReturned)
    assert facts_that_take_back_unstarted_calls(state) == []


async def test_a_short_output_is_kept_as_head_and_every_output_is_in_the_cache() -> None:
    at = await world(calls("look"), says("done"))
    await told(at)
    (result,) = at.of(ToolReturned)
    assert result.head == "look answers"
    assert await at.cache.read_content(result.output.digest) == b"look answers"


async def test_the_time_a_call_took_is_its_own_and_not_how_long_the_user_thought() -> None:
    at = await world(calls("look"), says("done"))
    clock = at.session._services.clock
    assert isinstance(clock, SteppedClock)

    async def look(call: ToolCall, context: CallContext) -> str:
        await context.ask(PermissionQuestion(call, "Look", "look"))
        await clock.sleep_seconds(2)
        return "seen"

    def think(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            clock.pass_seconds(50)
            at.session.answer_question(event.number, PermissionAnswer(allowed=True))

    at.session.subscribe_to_events(think)
    at.tools.runs = {"look": look}
    await told(at)
    assert [result.seconds for result in at.of(ToolReturned)] == [2]


async def test_a_list_and_a_decision_stand_beside_the_result() -> None:
    at = await world(calls("look"), says("done"))

    async def look(call: ToolCall, context: CallContext) -> CallOutcome:
        stored = await at.cache.store_content(b"no", EntryOrigin("look"))
        return CallOutcome(
            stored, ok=False, todo=(("rest", "open"),), decided_by="user", refused=True
        )

    at.tools.runs = {"look": look}
    await told(at)
    assert at.of(TodoSet) == [TodoSet((("rest", "open"),))]
    assert [decided.allowed for decided in at.of(Decided)] == [False]


async def test_stopping_while_tools_run_leaves_no_call_open() -> None:
    at = await world(calls("look", "run"))

    async def hang(call: ToolCall, context: CallContext) -> str:
        at.session.stop_turn()
        await asyncio.Event().wait()
        return ""

    at.tools.runs = {"run": hang}
    assert (await told(at)).reason is TurnEnd.STOPPED
    assert [(result.call, result.ok) for result in at.of(ToolReturned)] == [
        ("look-0-1", True),
        ("run-1-1", False),
    ]
    assert request_building.find_violations(await at.session.context.rebuild_request()) == []


@pytest.mark.parametrize("turns", range(8))
async def test_stopping_twice_records_each_call_before_the_turns_end(turns: int) -> None:
    """The defect: a second press of Stop ended the turn while the first was still being recorded."""
    at = await world(calls("look", "run"))
    begun = asyncio.Event()

    async def end_slowly(call: ToolCall, context: CallContext) -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
        return ""

    at.tools.runs = {"run": end_slowly}
    at.session.send_message(HELLO)
    await asyncio.wait_for(begun.wait(), 60)
    at.session.stop_turn()
    for _ in range(turns):
        await asyncio.sleep(0)
    at.session.stop_turn()
    await asyncio.wait_for(at.session.wait_until_idle(), 60)
    facts_when_idle = [recorded.fact for recorded in at.session.all_facts]
    ended = facts_when_idle[-1]
    assert isinstance(ended, TurnEnded)
    assert ended.reason is TurnEnd.STOPPED
    assert [result.call for result in at.of(ToolReturned)] == ["look-0-1", "run-1-1"]
    assert request_building.find_violations(await at.session.context.rebuild_request()) == []
    for _ in range(20):
        await asyncio.sleep(0)
    assert [recorded.fact for recorded in at.session.all_facts] == facts_when_idle


async def test_stopping_as_a_reply_is_recorded_leaves_no_call_open() -> None:
    """Nothing ran, and the calls stayed without a result."""
    at = await world(calls("look", "run"))

    def stop(event: Event) -> None:
        if isinstance(event, FactAppended) and isinstance(event.recorded.fact, ModelReplied):
            at.session.stop_turn()

    at.session.subscribe_to_events(stop)
    assert (await told(at)).reason is TurnEnd.STOPPED
    assert [(result.call, result.head) for result in at.of(ToolReturned)] == [
        ("look-0-1", NOT_BEGUN),
        ("run-1-1", NOT_BEGUN),
    ]
    assert facts_that_take_back_unstarted_calls(at.session.conversation.state) != []
    assert request_building.find_violations(await at.session.context.rebuild_request()) == []


async def test_the_entry_of_a_stopped_call_names_its_tool_and_what_it_was_to_run() -> None:
    at = await world(calls("run", command="make all"))

    async def hang(call: ToolCall, context: CallContext) -> str:
        context.note_begun()
        at.session.stop_turn()
        await asyncio.Event().wait()
        return ""

    at.tools.runs = {"run": hang}
    assert (await told(at)).reason is TurnEnd.STOPPED
    entry = await at.cache.describe_entry(at.of(ToolReturned)[0].output.digest)
    assert (entry.about.tool, entry.about.source) == ("run", "make all")


async def test_what_stands_behind_a_call_the_user_refused_is_not_run() -> None:
    at = await world(calls("look", "run", "run", "look"), says("another way, then"))

    async def refused(call: ToolCall, context: CallContext) -> CallOutcome:
        stored = await at.cache.store_content(b"no", EntryOrigin("run"))
        return CallOutcome(stored, ok=False, decided_by="user", refused=True)

    at.tools.runs = {"run": refused}
    assert (await told(at)).reason is TurnEnd.DONE
    assert at.tools.ran == ["look-0-1", "run-1-1"]
    assert [result.head for result in at.of(ToolReturned)] == [
        "look answers",
        "no",
        SKIPPED,
        SKIPPED,
    ]
    assert [result.stopped for result in at.of(ToolReturned)] == [False, False, True, True]
    unrun = await at.cache.describe_entry(at.of(ToolReturned)[2].output.digest)
    assert unrun.about == NOT_RUN, "the cache listed it as an output of the command"
    assert request_building.find_violations(at.model.requests[1]) == []


async def test_what_a_rule_refused_keeps_nothing_else_from_being_run() -> None:
    at = await world(calls("run", "look"), says("done"))

    async def refused(call: ToolCall, context: CallContext) -> CallOutcome:
        stored = await at.cache.store_content(b"no", EntryOrigin("run"))
        return CallOutcome(stored, ok=False, decided_by="rule", refused=True)

    at.tools.runs = {"run": refused}
    await told(at)
    assert at.tools.ran == ["run-0-1", "look-1-1"]


async def test_a_call_in_which_the_length_limit_was_met_is_not_run_and_the_model_is_told_to_write_less() -> (
    None
):
    parts = (ToolCall("x", "look", "{}"), ToolCall("y", "run", '{"path": "a.py", "content": "def'))
    at = await world(Reply(parts, Stop.LENGTH, Usage(), "scripted"), says("in parts, then"))
    assert (await told(at)).reason is TurnEnd.DONE
    assert at.tools.ran == ["x-1"]
    whole, torn = at.of(ToolReturned)
    assert (whole.ok, torn.ok, torn.head) == (True, False, TORN)
    assert request_building.find_violations(at.model.requests[1]) == []


async def test_the_same_call_with_the_same_result_again_and_again_ends_a_turn() -> None:
    at = await world(*[calls("look", a=1)] * 20, limits=TurnLimits(repeats=4))
    assert (await told(at)).reason is TurnEnd.REPEATING
    assert len(at.model.requests) == 4


async def test_two_calls_in_turn_that_change_nothing_end_a_turn() -> None:
    at = await world(*[calls("look", a=1), calls("look", a=2)] * 20, limits=TurnLimits(repeats=4))
    assert (await told(at)).reason is TurnEnd.REPEATING


async def test_the_same_check_after_one_step_of_work_and_another_is_no_repetition() -> None:
    work = [one for n in range(10) for one in (calls("run", n=n), calls("look", check="all"))]
    at = await world(*work, says("done"), limits=TurnLimits(repeats=4))
    assert (await told(at)).reason is TurnEnd.DONE


async def test_a_tool_may_ask_and_is_answered() -> None:
    at = await world(calls("run"), says("done"))
    heard: list[PermissionAnswer] = []

    async def asking(call: ToolCall, context: CallContext) -> str:
        heard.append(await context.ask(PermissionQuestion(call, "Run a command", "rm -r x")))
        return "asked"

    def answer(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            at.session.answer_question(event.number, PermissionAnswer(allowed=True, scope="once"))

    at.tools.runs = {"run": asking}
    at.session.subscribe_to_events(answer)
    await told(at)
    assert heard == [PermissionAnswer(allowed=True, scope="once")]
    assert at.session.questions == {}


async def test_a_bug_in_a_tool_leaves_no_call_open_and_ends_the_turn_with_a_sentence(
    expect: Expect,
) -> None:
    expect("(tool run|turn of c1) failed")
    at = await world(calls("look", "run"), says("again"))

    async def broken(call: ToolCall, context: CallContext) -> str:
        raise ZeroDivisionError

    at.tools.runs = {"run": broken}
    at.session.send_message(HELLO)
    with pytest.raises(ZeroDivisionError):
        await asyncio.gather(
            *(task for task in asyncio.all_tasks() if "turn of" in task.get_name())
        )
    assert at.of(TurnEnded)[-1].reason is TurnEnd.FAILED
    assert [result.ok for result in at.of(ToolReturned)] == [True, False]
    assert request_building.find_violations(await at.session.context.rebuild_request()) == []
    assert at.session.running is ConversationActivity.FAILED


@pytest.mark.parametrize("names", [("look",) * 8, ("run",) * 8, ("look", "run") * 4])
async def test_what_is_shown_of_the_outputs_of_a_reply_is_decided_of_all_together(
    names: tuple[str, ...],
) -> None:
    at = await world(calls(*names), says("done"))

    async def much(call: ToolCall, context: CallContext) -> str:
        return f"{call.id} " * 1_900

    at.tools.runs = {"look": much, "run": much}
    await told(at)
    seqs = {
        one.seq: one.fact.output.digest
        for one in at.session.all_facts
        if isinstance(one.fact, ToolReturned)
    }
    folds = at.of(Folded)
    assert len(folds) == 2  # 15,200 words, of which 12,000 may stand
    assert len({fold.batch for fold in folds}) == 1
    assert [seqs[fold.cover.seq] for fold in folds if isinstance(fold.cover, PartRef)] == [
        fold.entries[0] for fold in folds
    ]
    assert request_building.find_violations(at.model.requests[1]) == []


async def test_stopping_while_an_excerpt_is_made_keeps_the_results() -> None:
    at = await world(calls("run"))

    async def much(call: ToolCall, context: CallContext) -> CallOutcome:
        return CallOutcome(
            await at.cache.store_content(b"word " * 9_000, EntryOrigin("run")), keep="the last word"
        )

    async def hang(request: Request) -> Reply:
        at.session.stop_turn()
        await asyncio.Event().wait()
        raise AssertionError

    at.tools.runs = {"run": much}
    at.model.script.append(hang)  # the compaction that was asked for
    assert (await told(at)).reason is TurnEnd.STOPPED
    assert [(result.ok, result.tokens) for result in at.of(ToolReturned)] == [(True, 9_000)]
    assert request_building.find_violations(await at.session.context.rebuild_request()) == []


@pytest.mark.parametrize("years", [1, -1, 12, -56])
async def test_a_clock_that_is_set_changes_no_length_of_a_call_or_a_reply(years: int) -> None:
    """A call of one second stood as a year in the timeline."""
    at = await world(calls("look"))
    clock = at.session._services.clock
    assert isinstance(clock, SteppedClock)

    async def look(call: ToolCall, context: CallContext) -> str:
        clock.time += years * 31_557_600
        await clock.sleep_seconds(1)
        return "seen"

    async def reply(request: Request) -> Reply:
        clock.time -= years * 31_557_600
        await clock.sleep_seconds(3)
        return says("done")

    at.tools.runs = {"look": look}
    at.model.script.append(reply)
    await told(at)
    assert [result.seconds for result in at.of(ToolReturned)] == [1]
    assert [replied.seconds for replied in at.of(ModelReplied)] == [0, 3]
