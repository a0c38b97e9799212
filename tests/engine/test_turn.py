"""The loop of a turn: what is recorded, in which order, and how every kind of trouble ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from helix_desktop.engine import laws
from helix_desktop.engine.blocks import Reply, Request, Role, ToolResult
from helix_desktop.engine.calls import UNREAD
from helix_desktop.engine.collaborators import Limits, Note
from helix_desktop.engine.events import Asked, CallMoved, Event, Running, Stage
from helix_desktop.engine.facts import (
    NO_LONGER,
    Decided,
    Fact,
    Folded,
    FoldFailed,
    ModelReplied,
    PartRef,
    Pinned,
    Purpose,
    Reasoning,
    Recorded,
    ReplyPart,
    Spent,
    Stop,
    SystemSet,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unpinned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.ports import About, Answer, CallContext, Outcome, Question
from helix_desktop.engine.turn import SKIPPED, TORN
from helix_desktop.errors import BadKey, ContextTooLong, StoreFull
from tests.conftest import Expect
from tests.engine.agent import SteppedClock, World, calls, says, world

HELLO = (Text("hello"),)


async def told(at: World) -> TurnEnded:
    at.session.send(HELLO)
    await asyncio.wait_for(at.session.idle(), 10)
    end = at.facts[-1]
    assert isinstance(end, TurnEnded)
    return end


async def test_a_plain_answer_is_one_step() -> None:
    at = await world(says("hi"))
    assert (await told(at)).reason is TurnEnd.DONE
    assert [part.text for reply in at.of(ModelReplied) for part in reply.parts if isinstance(part, Text)] == ["hi"]
    assert at.of(SystemSet) == [SystemSet("You are tested.", 3)]


async def test_what_the_view_depends_on_is_appended_once() -> None:
    at = await world(calls("look"), calls("look", a=1), says("done"))
    await told(at)
    await told(at)
    assert len(at.of(SystemSet)) == 1


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
        part for message in at.model.requests[1].messages for part in message.parts if isinstance(part, ToolResult)
    ]
    assert [part.text for part in shown] == ["look-0-1", "look-1-1"]


async def test_a_change_of_files_stands_in_order_with_the_calls_around_it() -> None:
    at = await world(calls("look", "look", "run", "run", "look", "look"), says("done"))
    clock, order = at.session._crew.clock, list[str]()
    met = asyncio.Barrier(2)

    async def look(call: ToolCall, context: CallContext) -> str:
        order.append(call.name)
        await met.wait()
        order.append("looked")
        return "seen"

    async def change(call: ToolCall, context: CallContext) -> str:
        order.append("change")
        await clock.sleep(2)
        order.append("changed")
        return "changed"

    at.tools.runs = {"look": look, "run": change}
    heard: list[Event] = []
    at.session.subscribe(heard.append)
    await told(at)
    moved = [(one.call, one.stage) for one in heard if isinstance(one, CallMoved)]
    first, late = ["look-0-1", "look-1-1"], ["run-2-1", "run-3-1", "look-4-1", "look-5-1"]
    assert moved[:6] == [*((call, Stage.IN_LINE) for call in late), *((call, Stage.RUNNING) for call in first)]
    assert sorted(moved[6:8]) == [(call, Stage.DONE) for call in first]
    assert moved[8:10] == [("run-2-1", Stage.RUNNING), ("run-2-1", Stage.DONE)]
    looks, changes = ["look", "look", "looked", "looked"], ["change", "changed"]
    assert order == [*looks, *changes, *changes, *looks]
    assert [result.seconds for result in at.of(ToolReturned)] == [0, 0, 2, 2, 0, 0]


async def test_what_was_done_is_recorded_before_the_calls_that_waited_for_it() -> None:
    """So that a crash or a stop while the user thinks about the second change knows of the first."""
    at = await world(calls("run", "run", "look"), says("done"))
    begun = asyncio.Event()

    async def change(call: ToolCall, context: CallContext) -> str:
        if call.id != "run-0-1":
            begun.set()
            await asyncio.Event().wait()
        return "changed"

    at.tools.runs = {"run": change}
    at.session.send(HELLO)
    await asyncio.wait_for(begun.wait(), 10)
    assert [result.call for result in at.of(ToolReturned)] == ["run-0-1"]
    at.session.stop()
    await asyncio.wait_for(at.session.idle(), 10)
    assert at.tools.ran == ["run-0-1"]
    heads = [(result.call, result.head) for result in at.of(ToolReturned)]
    assert heads == [("run-0-1", "changed"), ("run-1-1", UNREAD), ("look-2-1", UNREAD)]


async def test_a_short_output_is_kept_as_head_and_every_output_is_in_the_cache() -> None:
    at = await world(calls("look"), says("done"))
    await told(at)
    (result,) = at.of(ToolReturned)
    assert result.head == "look answers"
    assert await at.cache.get(result.output.digest) == b"look answers"


async def test_the_time_a_call_took_is_its_own_and_not_how_long_the_user_thought() -> None:
    at = await world(calls("look"), says("done"))
    clock = at.session._crew.clock
    assert isinstance(clock, SteppedClock)

    async def look(call: ToolCall, context: CallContext) -> str:
        await context.ask(Question(call, "Look", "look"))
        await clock.sleep(2)
        return "seen"

    def think(event: Event) -> None:
        if isinstance(event, Asked):
            clock.time += 50
            at.session.answer(event.number, Answer(allowed=True))

    at.session.subscribe(think)
    at.tools.runs = {"look": look}
    await told(at)
    assert [result.seconds for result in at.of(ToolReturned)] == [2]


async def test_a_list_and_a_decision_stand_beside_the_result() -> None:
    at = await world(calls("look"), says("done"))

    async def look(call: ToolCall, context: CallContext) -> Outcome:
        stored = await at.cache.put(b"no", About("look"))
        return Outcome(stored, ok=False, todo=(("rest", "open"),), decided_by="user", refused=True)

    at.tools.runs = {"look": look}
    await told(at)
    assert at.of(TodoSet) == [TodoSet((("rest", "open"),))]
    assert [decided.allowed for decided in at.of(Decided)] == [False]


async def test_a_message_that_steers_stands_behind_the_whole_batch() -> None:
    at = await world(calls("look", "run"), says("done"))

    async def steer(call: ToolCall, context: CallContext) -> str:
        at.session.send((Text("rather so"),), steer=True)
        return "seen"

    at.tools.runs = {"look": steer}
    await told(at)
    kinds = [type(fact) for fact in at.facts if isinstance(fact, ToolReturned | UserSaid | ModelReplied)]
    assert kinds == [UserSaid, ModelReplied, ToolReturned, ToolReturned, UserSaid, ModelReplied]
    assert [said.steering for said in at.of(UserSaid)] == [False, True]
    assert laws.violations(at.model.requests[1]) == []


async def test_a_message_sent_meanwhile_waits_for_the_end_of_the_turn() -> None:
    at = await world(calls("look"), says("first"), says("second"))

    async def queue(call: ToolCall, context: CallContext) -> str:
        at.session.send((Text("and then"),))
        return "seen"

    at.tools.runs = {"look": queue}
    await told(at)
    assert [fact.reason for fact in at.of(TurnEnded)] == [TurnEnd.DONE, TurnEnd.DONE]
    assert [part.text for said in at.of(UserSaid) for part in said.parts if isinstance(part, Text)] == [
        "hello",
        "and then",
    ]


async def test_stopping_while_the_model_writes_keeps_the_words() -> None:
    at = await world()

    async def endless(request: Request) -> Reply:
        at.session.stop()
        await asyncio.Event().wait()
        raise AssertionError

    at.model.script = [endless]
    assert (await told(at)).reason is TurnEnd.STOPPED


async def test_stopping_while_tools_run_leaves_no_call_open() -> None:
    at = await world(calls("look", "run"))

    async def hang(call: ToolCall, context: CallContext) -> str:
        at.session.stop()
        await asyncio.Event().wait()
        return ""

    at.tools.runs = {"run": hang}
    assert (await told(at)).reason is TurnEnd.STOPPED
    assert [(result.call, result.ok) for result in at.of(ToolReturned)] == [("look-0-1", True), ("run-1-1", False)]
    assert laws.violations(await at.session.request_at()) == []


async def test_a_cut_reply_keeps_its_words_loses_its_calls_and_is_asked_for_again() -> None:
    torn = Reply((Text("half"), ToolCall("x", "look", '{"a')), Stop.CUT, Usage(), "scripted", "the stream broke")
    at = await world(torn, says("whole"))
    assert (await told(at)).reason is TurnEnd.DONE
    first, second = at.of(ModelReplied)
    assert first.stop is Stop.CUT
    assert [type(part) for part in first.parts] == [Text]
    assert second.stop is Stop.END
    assert at.model.requests[1] == at.model.requests[0]
    assert "half" not in str(await at.session.request_at())


async def test_a_reply_that_met_its_length_limit_is_continued() -> None:
    at = await world(says("the first half", Stop.LENGTH), says("and the second"))
    assert (await told(at)).reason is TurnEnd.DONE
    assert "the first half" in str(at.model.requests[1].messages)
    assert laws.violations(at.model.requests[1]) == []


async def test_what_stands_behind_a_call_the_user_refused_is_not_run() -> None:
    at = await world(calls("look", "run", "run", "look"), says("another way, then"))

    async def refused(call: ToolCall, context: CallContext) -> Outcome:
        stored = await at.cache.put(b"no", About("run"))
        return Outcome(stored, ok=False, decided_by="user", refused=True)

    at.tools.runs = {"run": refused}
    assert (await told(at)).reason is TurnEnd.DONE
    assert at.tools.ran == ["look-0-1", "run-1-1"]
    assert [result.head for result in at.of(ToolReturned)] == ["look answers", "no", SKIPPED, SKIPPED]
    assert [result.stopped for result in at.of(ToolReturned)] == [False, False, True, True]
    assert laws.violations(at.model.requests[1]) == []


async def test_what_a_rule_refused_keeps_nothing_else_from_being_run() -> None:
    at = await world(calls("run", "look"), says("done"))

    async def refused(call: ToolCall, context: CallContext) -> Outcome:
        stored = await at.cache.put(b"no", About("run"))
        return Outcome(stored, ok=False, decided_by="rule", refused=True)

    at.tools.runs = {"run": refused}
    await told(at)
    assert at.tools.ran == ["run-0-1", "look-1-1"]


async def test_a_tools_name_is_recorded_without_what_a_server_left_around_it() -> None:
    at = await world(calls("functions.look:0", "Bash"), says("done"))
    await told(at)
    (said, _) = at.of(ModelReplied)
    assert [part.name for part in said.parts if isinstance(part, ToolCall)] == ["look", "Bash"]
    assert at.of(ToolReturned)[0].head == "look answers"


async def test_a_call_in_which_the_length_limit_was_met_is_not_run_and_the_model_is_told_to_write_less() -> None:
    parts = (ToolCall("x", "look", "{}"), ToolCall("y", "run", '{"path": "a.py", "content": "def'))
    at = await world(Reply(parts, Stop.LENGTH, Usage(), "scripted"), says("in parts, then"))
    assert (await told(at)).reason is TurnEnd.DONE
    assert at.tools.ran == ["x-1"]
    whole, torn = at.of(ToolReturned)
    assert (whole.ok, torn.ok, torn.head) == (True, False, TORN)
    assert laws.violations(at.model.requests[1]) == []


async def test_a_stream_that_breaks_again_and_again_ends_the_turn() -> None:
    at = await world(*[Reply((Text("x"),), Stop.CUT, Usage(), "scripted", "cut")] * 9)
    end = await told(at)
    assert (end.reason, end.why) == (TurnEnd.FAILED, "cut")
    assert len(at.model.requests) == 4
    assert "x" in str((await at.session.request_at()).messages)  # the last words stay, to be continued by hand


NOTHING = ((), (Text("\n\n"),), (Reasoning("I will look."),), (Reasoning("I will look."), Text("\n")))


@pytest.mark.parametrize("parts", NOTHING)
async def test_a_model_that_says_nothing_is_not_taken_for_done(parts: tuple[ReplyPart, ...]) -> None:
    at = await world(*[Reply(parts, Stop.END, Usage(input=5), "scripted")] * 9)
    end = await told(at)
    assert (end.reason, end.why) == (TurnEnd.FAILED, "The model sent several empty replies in a row.")
    assert len(at.model.requests) == 4


@pytest.mark.parametrize("parts", NOTHING)
async def test_a_model_that_says_nothing_once_is_asked_the_same_again(parts: tuple[ReplyPart, ...]) -> None:
    at = await world(calls("look"), Reply(parts, Stop.END, Usage(input=5), "scripted"), says("done"))
    assert (await told(at)).reason is TurnEnd.DONE
    assert at.model.requests[2].messages == at.model.requests[1].messages
    assert laws.violations(await at.session.request_at()) == []


async def test_a_failure_of_the_model_is_a_sentence_and_the_turn_can_be_resumed() -> None:
    at = await world(BadKey("The key is refused.", remedy="Set another."), says("hi"))
    end = await told(at)
    assert (end.reason, end.why) == (TurnEnd.FAILED, "The key is refused. Set another.")
    at.session.resume()
    await at.session.idle()
    assert at.of(TurnEnded)[-1].reason is TurnEnd.DONE
    assert len(at.of(UserSaid)) == 1


async def test_a_request_too_long_is_folded_and_asked_again() -> None:
    at = await world(calls("look"), ContextTooLong("too long"), says("fits"))

    async def much(call: ToolCall, context: CallContext) -> str:
        return "word " * 3_000

    at.tools.runs = {"look": much}
    assert (await told(at)).reason is TurnEnd.DONE
    assert len(at.model.requests) == 3


async def test_a_provider_that_always_finds_it_too_long_ends_the_turn() -> None:
    at = await world(*[ContextTooLong("too long")] * 9)
    assert (await told(at)).reason is TurnEnd.FAILED
    assert len(at.model.requests) == 1, "nothing could be folded, so the same would be refused again"
    assert len(at.of(FoldFailed)) <= 1


async def test_the_step_limit_ends_a_turn() -> None:
    at = await world(*[calls("look", n=n) for n in range(9)], limits=Limits(steps=3))
    assert (await told(at)).reason is TurnEnd.STEP_LIMIT
    assert len(at.model.requests) == 3


async def test_the_same_call_with_the_same_result_again_and_again_ends_a_turn() -> None:
    at = await world(*[calls("look", a=1)] * 20, limits=Limits(repeats=4))
    assert (await told(at)).reason is TurnEnd.REPEATING
    assert len(at.model.requests) == 4


async def test_two_calls_in_turn_that_change_nothing_end_a_turn() -> None:
    at = await world(*[calls("look", a=1), calls("look", a=2)] * 20, limits=Limits(repeats=4))
    assert (await told(at)).reason is TurnEnd.REPEATING


async def test_the_same_check_after_one_step_of_work_and_another_is_no_repetition() -> None:
    work = [one for n in range(10) for one in (calls("run", n=n), calls("look", check="all"))]
    at = await world(*work, says("done"), limits=Limits(repeats=4))
    assert (await told(at)).reason is TurnEnd.DONE


async def test_spending_limits_end_a_turn() -> None:
    at = await world(*[calls("look", n=n, cost=0.4) for n in range(9)], limits=Limits(turn_cost=1.0))
    end = await told(at)
    assert end.reason is TurnEnd.SPENDING_LIMIT
    assert len(at.model.requests) == 3
    assert end.why == "This turn has cost $1.20; the limit is $1.00."
    at = await world(calls("look"), says("done"), limits=Limits(day_cost=5.0), spent=(6.0, 6.0))
    assert (await told(at)).why == "Today has cost $6.00; the limit is $5.00."


async def test_what_folds_cost_counts_towards_the_limit_of_their_turn() -> None:
    at = await world(*[calls("look", n=n, cost=0.1) for n in range(9)], limits=Limits(turn_cost=1.0))
    await at.session.conversation.append(Spent(Purpose.HANDOVER, "fast", Usage(input=10, cost=5.0)))

    async def folded_meanwhile(call: ToolCall, context: CallContext) -> str:
        await at.session.conversation.append(Spent(Purpose.HANDOVER, "fast", Usage(input=10, cost=0.5)))
        return f"seen {call.id}"

    at.tools.runs["look"] = folded_meanwhile
    end = await told(at)
    assert len(at.model.requests) == 2
    assert end.why == "This turn has cost $1.20; the limit is $1.00."


async def test_a_tool_may_ask_and_is_answered() -> None:
    at = await world(calls("run"), says("done"))
    heard: list[Answer] = []

    async def asking(call: ToolCall, context: CallContext) -> str:
        heard.append(await context.ask(Question(call, "Run a command", "rm -r x")))
        return "asked"

    def answer(event: Event) -> None:
        if isinstance(event, Asked):
            at.session.answer(event.number, Answer(allowed=True, scope="once"))

    at.tools.runs = {"run": asking}
    at.session.subscribe(answer)
    await told(at)
    assert heard == [Answer(allowed=True, scope="once")]
    assert at.session.questions == {}


async def test_stopping_takes_an_open_question_back() -> None:
    at = await world(calls("run"))

    async def asking(call: ToolCall, context: CallContext) -> str:
        await context.ask(Question(call, "Run a command", "rm -r x"))
        return "asked"

    at.tools.runs = {"run": asking}
    at.session.subscribe(lambda event: at.session.stop() if isinstance(event, Asked) else None)
    assert (await told(at)).reason is TurnEnd.STOPPED
    assert at.session.questions == {}


async def test_reasoning_is_kept_and_counted() -> None:
    at = await world(Reply((Reasoning("let me see", opaque="sig"), Text("so")), Stop.END, Usage(input=1), "scripted"))
    await told(at)
    (reply,) = at.of(ModelReplied)
    assert reply.parts == (Reasoning("let me see", 3, "sig"), Text("so", 1))
    assert reply.saw == at.session.facts[-1].seq - 2


async def test_every_request_of_a_long_turn_is_legal() -> None:
    at = await world(*[calls("look", "run", n=n) for n in range(30)], says("done"))
    await told(at)
    assert [laws.violations(request) for request in at.model.requests] == [[]] * 31
    assert all(request.messages[0].role is Role.USER for request in at.model.requests)


async def test_a_bug_in_a_tool_leaves_no_call_open_and_ends_the_turn_with_a_sentence(
    expect: Expect,
) -> None:
    expect("(tool run|turn of c1) failed")
    at = await world(calls("look", "run"), says("again"))

    async def broken(call: ToolCall, context: CallContext) -> str:
        raise ZeroDivisionError

    at.tools.runs = {"run": broken}
    at.session.send(HELLO)
    with pytest.raises(ZeroDivisionError):
        await asyncio.gather(*(task for task in asyncio.all_tasks() if "turn of" in task.get_name()))
    assert at.of(TurnEnded)[-1].reason is TurnEnd.FAILED
    assert [result.ok for result in at.of(ToolReturned)] == [True, False]
    assert laws.violations(await at.session.request_at()) == []
    assert at.session.running is Running.FAILED


async def test_a_store_that_refuses_ends_the_turn_with_its_sentence() -> None:
    at = await world(calls("run"))

    async def full(call: ToolCall, context: CallContext) -> str:
        raise StoreFull("The disk is full.", remedy="Make room; nothing that was acknowledged is lost.")

    at.tools.runs = {"run": full}
    end = await told(at)
    assert (end.reason, end.why) == (
        TurnEnd.FAILED,
        "The disk is full. Make room; nothing that was acknowledged is lost.",
    )
    assert [result.ok for result in at.of(ToolReturned)] == [False]


async def test_a_steering_message_that_finds_no_room_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    at = await world(calls("run"))
    real = at.journal.append

    async def append(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
        if any(isinstance(fact, UserSaid) and fact.steering for fact in facts):
            raise StoreFull("The disk is full.")
        return await real(conversation, facts)

    async def steer(call: ToolCall, context: CallContext) -> str:
        at.session.send((Text("not so"),), steer=True)
        return "done"

    monkeypatch.setattr(at.journal, "append", append)
    at.tools.runs = {"run": steer}
    end = await told(at)
    assert (end.reason, end.why) == (TurnEnd.FAILED, "The disk is full.")
    assert [(waiting.steer, waiting.parts[0]) for waiting in at.session.queue] == [(True, Text("not so", 2))]


@pytest.mark.parametrize("names", [("look",) * 8, ("run",) * 8, ("look", "run") * 4])
async def test_what_is_shown_of_the_outputs_of_a_reply_is_decided_of_all_together(names: tuple[str, ...]) -> None:
    at = await world(calls(*names), says("done"))

    async def much(call: ToolCall, context: CallContext) -> str:
        return f"{call.id} " * 1_900

    at.tools.runs = {"look": much, "run": much}
    await told(at)
    seqs = {one.seq: one.fact.output.digest for one in at.session.facts if isinstance(one.fact, ToolReturned)}
    folds = at.of(Folded)
    assert len(folds) == 2  # 15,200 words, of which 12,000 may stand
    assert len({fold.batch for fold in folds}) == 1
    assert [seqs[fold.cover.seq] for fold in folds if isinstance(fold.cover, PartRef)] == [
        fold.entries[0] for fold in folds
    ]
    assert laws.violations(at.model.requests[1]) == []


async def test_stopping_while_an_excerpt_is_made_keeps_the_results() -> None:
    at = await world(calls("run"))

    async def much(call: ToolCall, context: CallContext) -> Outcome:
        return Outcome(await at.cache.put(b"word " * 9_000, About("run")), keep="the last word")

    async def hang(request: Request) -> Reply:
        at.session.stop()
        await asyncio.Event().wait()
        raise AssertionError

    at.tools.runs = {"run": much}
    at.model.script.append(hang)  # the compaction that was asked for
    assert (await told(at)).reason is TurnEnd.STOPPED
    assert [(result.ok, result.tokens) for result in at.of(ToolReturned)] == [(True, 9_000)]
    assert laws.violations(await at.session.request_at()) == []


async def test_a_limit_of_the_day_that_is_reached_lets_nothing_be_sent() -> None:
    at = await world(says("a plain answer without calls"), limits=Limits(day_cost=5.0), spent=(6.0, 6.0))
    assert (await told(at)).reason is TurnEnd.SPENDING_LIMIT
    assert at.model.requests == []


async def test_how_long_to_think_is_asked_for_at_every_step_and_known_of_earlier_ones() -> None:
    at = await world(says("quick"), says("slow"), says("again"))
    await told(at)
    at.setup = replace(at.setup, models=(replace(at.setup.models[0], effort="high"),))
    await told(at)
    assert [request.reasoning for request in at.model.requests] == ["", "high"]
    replies = [recorded.seq for recorded in at.session.facts if isinstance(recorded.fact, ModelReplied)]
    assert [(await at.session.request_at(seq)).reasoning for seq in (*replies, None)] == ["", "high", "high"]


async def test_a_note_is_said_at_the_end_pinned_and_only_when_it_changes() -> None:
    at = await world(calls("look"), calls("look"), says("done"))
    at.setup = replace(at.setup, notes=(Note("rules:a/AGENTS.md", "Never push."),))
    await told(at)
    notes = [fact for fact in at.of(UserSaid) if fact.by]
    assert [fact.parts for fact in notes] == [(Text("Never push.", 2),)]
    seq = at.facts.index(notes[0]) + 1
    assert at.of(Pinned) == [Pinned(PartRef(seq))]
    at.setup = replace(at.setup, notes=(Note("rules:a/AGENTS.md", "Push."),))
    await told(at)
    assert at.of(Unpinned) == [Unpinned(PartRef(seq))]
    at.setup = replace(at.setup, notes=(Note("rules:a/AGENTS.md", ""),))
    await told(at)
    await told(at)
    said = [fact.parts[0] for fact in at.of(UserSaid) if fact.by]
    assert [getattr(part, "text", "") for part in said] == ["Never push.", "Push.", NO_LONGER]


async def test_a_note_that_is_not_there_is_not_taken_back() -> None:
    at = await world(says("done"))
    at.setup = replace(at.setup, notes=(Note("rules:a", ""),))
    await told(at)
    assert not [fact for fact in at.of(UserSaid) if fact.by]
