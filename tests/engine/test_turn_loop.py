"""The loop of a turn: what is recorded, in which order, and how every kind of trouble ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import (
    NO_LONGER,
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
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unpinned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.messages import Delta, Reply, Request, Role, TextDelta
from helix_desktop.engine.ports import CallContext, PermissionQuestion
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    Event,
    FactAppended,
    MeterChanged,
    QuestionAsked,
    ReplyStreamed,
)
from helix_desktop.engine.session_setup import StandingNote, TurnLimits
from helix_desktop.errors import ContextTooLong, ProviderKeyRefused, StoreFull
from tests.engine.agent import ScriptedModel, calls, says, told, world

HELLO = (Text("hello"),)


async def test_a_plain_answer_is_one_step() -> None:
    at = await world(says("hi"))
    assert (await told(at)).reason is TurnEnd.DONE
    assert [
        part.text for reply in at.of(ModelReplied) for part in reply.parts if isinstance(part, Text)
    ] == ["hi"]
    assert at.of(SystemSet) == [SystemSet("You are tested.", 3)]


class EstimatingModel(ScriptedModel):
    """A model of which no server counts the tokens, but its vocabulary is known."""

    async def count_request_tokens(self, request: Request) -> int:
        return 0

    async def estimate_request_tokens(self, request: Request) -> int:
        return 2 * len(request.messages) + 7


async def test_whoever_shows_the_meter_is_told_when_the_next_request_was_counted_anew() -> None:
    """The meter said 38%, and its open panel 36%: no fact told it that the figure had changed."""
    at = await world(model=EstimatingModel())
    shown = set[int]()

    def measure(event: Event) -> None:
        if isinstance(event, FactAppended | MeterChanged):
            shown.clear()
            shown.add(at.session.context.next_request_meter().used)

    def compare_at_first_words(event: Event) -> None:
        if isinstance(event, ReplyStreamed):
            compared.append((set(shown), at.session.context.next_request_meter().used))

    compared: list[tuple[set[int], int]] = []
    at.session.subscribe_to_events(measure)
    at.session.subscribe_to_events(compare_at_first_words)
    await told(at)
    assert compared
    for used_as_shown, used in compared:
        assert used_as_shown == {used}


async def test_what_the_view_depends_on_is_appended_once() -> None:
    at = await world(calls("look"), calls("look", a=1), says("done"))
    await told(at)
    await told(at)
    assert len(at.of(SystemSet)) == 1


async def test_a_message_that_steers_stands_behind_the_whole_batch() -> None:
    at = await world(calls("look", "run"), says("done"))

    async def steer(call: ToolCall, context: CallContext) -> str:
        at.session.send_message((Text("rather so"),), steer=True)
        return "seen"

    at.tools.runs = {"look": steer}
    await told(at)
    kinds = [
        type(fact) for fact in at.facts if isinstance(fact, ToolReturned | UserSaid | ModelReplied)
    ]
    assert kinds == [UserSaid, ModelReplied, ToolReturned, ToolReturned, UserSaid, ModelReplied]
    assert [said.steering for said in at.of(UserSaid)] == [False, True]
    assert request_building.find_violations(at.model.requests[1]) == []


async def test_a_message_sent_meanwhile_waits_for_the_end_of_the_turn() -> None:
    at = await world(calls("look"), says("first"), says("second"))

    async def queue(call: ToolCall, context: CallContext) -> str:
        at.session.send_message((Text("and then"),))
        return "seen"

    at.tools.runs = {"look": queue}
    await told(at)
    assert [fact.reason for fact in at.of(TurnEnded)] == [TurnEnd.DONE, TurnEnd.DONE]
    assert [
        part.text for said in at.of(UserSaid) for part in said.parts if isinstance(part, Text)
    ] == [
        "hello",
        "and then",
    ]


async def test_stopping_while_the_model_writes_keeps_the_words() -> None:
    at = await world()

    async def endless(request: Request) -> Reply:
        at.session.stop_turn()
        await asyncio.Event().wait()
        raise AssertionError

    at.model.script = [endless]
    assert (await told(at)).reason is TurnEnd.STOPPED


async def test_a_message_sent_now_interrupts_the_answer_and_the_turn_goes_on_with_it() -> None:
    """The defect: "Send now" became "After this step", and a long answer went on for minutes."""
    at = await world(says("done"))
    real = at.model.stream_reply

    async def write_without_end(request: Request) -> AsyncIterator[Delta]:
        at.model.requests.append(request)
        at.model.stream_reply = real  # type: ignore[method-assign]  # for the next request
        yield TextDelta("word one")
        at.session.send_message((Text("for the end"),))
        at.session.send_message((Text("rather so"),))
        at.session.queue.set_steering(1, steer=True)
        await asyncio.Event().wait()

    at.model.stream_reply = write_without_end  # type: ignore[method-assign]
    assert (await told(at)).reason is TurnEnd.DONE
    assert [
        part.text
        for fact in at.facts
        if isinstance(fact, UserSaid | ModelReplied)
        for part in fact.parts
        if isinstance(part, Text)
    ] == ["hello", "word one", "rather so", "done", "for the end", "done"]
    assert at.of(ModelReplied)[0].stop is Stop.STOPPED
    assert [fact.reason for fact in at.of(TurnEnded)] == [TurnEnd.DONE, TurnEnd.DONE]
    assert "word one" in str(at.model.requests[1].messages)
    assert request_building.find_violations(at.model.requests[1]) == []


async def test_a_message_of_an_agent_does_not_interrupt_an_answer() -> None:
    at = await world()

    async def write(request: Request) -> Reply:
        at.session.send_on_behalf("agent:1", "I am done.")
        await asyncio.sleep(0)
        return says("whole")

    at.model.script = [write]
    assert (await told(at)).reason is TurnEnd.DONE
    assert at.of(ModelReplied)[0].stop is Stop.END


async def test_a_second_message_may_be_sent_now_while_the_first_one_interrupts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The defect: the second was taken, and whoever had sent it was told of a bug instead."""
    at = await world(says("done"))
    real_stream = at.model.stream_reply
    real_append = at.journal.append_to_journal

    async def append(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
        if any(isinstance(fact, ModelReplied) and fact.stop is Stop.STOPPED for fact in facts):
            at.session.send_message((Text("as it is recorded"),), steer=True)
        return await real_append(conversation, facts)

    async def write_without_end(request: Request) -> AsyncIterator[Delta]:
        at.model.requests.append(request)
        at.model.stream_reply = real_stream  # type: ignore[method-assign]  # for the next request
        yield TextDelta("word one")
        at.session.send_message((Text("rather so"),), steer=True)
        try:
            await asyncio.Event().wait()
        finally:
            at.session.send_message((Text("as it stops"),), steer=True)

    at.model.stream_reply = write_without_end  # type: ignore[method-assign]
    monkeypatch.setattr(at.journal, "append_to_journal", append)
    assert (await told(at)).reason is TurnEnd.DONE
    assert [
        part.text for said in at.of(UserSaid) for part in said.parts if isinstance(part, Text)
    ] == ["hello", "rather so", "as it stops", "as it is recorded"]


async def test_a_message_that_is_taken_back_as_it_interrupts_leaves_the_turn_stopped() -> None:
    at = await world()

    async def endless(request: Request) -> Reply:
        at.session.send_message((Text("rather so"),), steer=True)
        at.session.queue.take_back_queued(0)
        await asyncio.Event().wait()
        raise AssertionError

    at.model.script = [endless]
    assert (await told(at)).reason is TurnEnd.STOPPED


async def test_a_message_sent_before_the_request_was_ready_needs_no_answer_without_it() -> None:
    at = await world(says("done"))
    real = at.session.folding.apply_due_folds

    async def send_meanwhile(*, overflowed: bool = False) -> None:
        at.session.folding.apply_due_folds = real  # type: ignore[method-assign]
        at.session.send_message((Text("rather so"),), steer=True)
        await real(overflowed=overflowed)

    at.session.folding.apply_due_folds = send_meanwhile  # type: ignore[method-assign]
    assert (await told(at)).reason is TurnEnd.DONE
    (request,) = at.model.requests
    assert "rather so" in str(request.messages)
    assert request_building.find_violations(request) == []
    assert len(at.of(ModelReplied)) == 1


async def test_a_cut_reply_keeps_its_words_loses_its_calls_and_is_asked_for_again() -> None:
    torn = Reply(
        (Text("half"), ToolCall("x", "look", '{"a')),
        Stop.CUT,
        Usage(),
        "scripted",
        "the stream broke",
    )
    at = await world(torn, says("whole"))
    assert (await told(at)).reason is TurnEnd.DONE
    first, second = at.of(ModelReplied)
    assert first.stop is Stop.CUT
    assert [type(part) for part in first.parts] == [Text]
    assert second.stop is Stop.END
    assert at.model.requests[1] == at.model.requests[0]
    assert "half" not in str(await at.session.context.rebuild_request())


async def test_a_reply_that_met_its_length_limit_is_continued() -> None:
    at = await world(says("the first half", Stop.LENGTH), says("and the second"))
    assert (await told(at)).reason is TurnEnd.DONE
    assert "the first half" in str(at.model.requests[1].messages)
    assert request_building.find_violations(at.model.requests[1]) == []


async def test_a_tools_name_is_recorded_without_what_a_server_left_around_it() -> None:
    at = await world(calls("functions.look:0", "Bash"), says("done"))
    await told(at)
    (said, _) = at.of(ModelReplied)
    assert [part.name for part in said.parts if isinstance(part, ToolCall)] == ["look", "Bash"]
    assert at.of(ToolReturned)[0].head == "look answers"


async def test_a_stream_that_breaks_again_and_again_ends_the_turn() -> None:
    at = await world(*[Reply((Text("x"),), Stop.CUT, Usage(), "scripted", "cut")] * 9)
    end = await told(at)
    assert (end.reason, end.why) == (TurnEnd.FAILED, "cut")
    assert len(at.model.requests) == 4
    assert "x" in str(
        (await at.session.context.rebuild_request()).messages
    )  # the last words stay, to be continued by hand


NOTHING = (
    (),
    (Text("\n\n"),),
    (Reasoning("I will look."),),
    (Reasoning("I will look."), Text("\n")),
)


@pytest.mark.parametrize("parts", NOTHING)
async def test_a_model_that_says_nothing_is_not_taken_for_done(
    parts: tuple[ReplyPart, ...],
) -> None:
    at = await world(*[Reply(parts, Stop.END, Usage(input=5), "scripted")] * 9)
    end = await told(at)
    assert (end.reason, end.why) == (
        TurnEnd.FAILED,
        "The model sent several empty replies in a row.",
    )
    assert len(at.model.requests) == 4


@pytest.mark.parametrize("parts", NOTHING)
async def test_a_model_that_says_nothing_once_is_asked_the_same_again(
    parts: tuple[ReplyPart, ...],
) -> None:
    at = await world(
        calls("look"), Reply(parts, Stop.END, Usage(input=5), "scripted"), says("done")
    )
    assert (await told(at)).reason is TurnEnd.DONE
    assert at.model.requests[2].messages == at.model.requests[1].messages
    assert request_building.find_violations(await at.session.context.rebuild_request()) == []


async def test_a_failure_of_the_model_is_a_sentence_and_the_turn_can_be_resumed() -> None:
    at = await world(ProviderKeyRefused("The key is refused.", remedy="Set another."), says("hi"))
    end = await told(at)
    assert (end.reason, end.why) == (TurnEnd.FAILED, "The key is refused. Set another.")
    at.session.resume_turn()
    await at.session.wait_until_idle()
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
    assert len(at.model.requests) == 1, (
        "nothing could be folded, so the same would be refused again"
    )
    assert len(at.of(FoldFailed)) <= 1


async def test_the_step_limit_ends_a_turn() -> None:
    at = await world(*[calls("look", n=n) for n in range(9)], limits=TurnLimits(steps=3))
    assert (await told(at)).reason is TurnEnd.STEP_LIMIT
    assert len(at.model.requests) == 3


async def test_a_limit_of_0_on_steps_and_repeats_is_no_limit() -> None:
    """It ended the turn after one step, and in the fields beside it 0 means that there
    is no limit.
    """
    at = await world(
        *[calls("look", n=n) for n in range(4)], says("done"), limits=TurnLimits(steps=0)
    )
    assert (await told(at)).reason is TurnEnd.DONE
    at = await world(*[calls("look") for _ in range(9)], says("done"), limits=TurnLimits(repeats=0))
    assert (await told(at)).reason is TurnEnd.DONE


async def test_spending_limits_end_a_turn() -> None:
    at = await world(
        *[calls("look", n=n, cost=0.4) for n in range(9)], limits=TurnLimits(turn_cost=1.0)
    )
    end = await told(at)
    assert end.reason is TurnEnd.SPENDING_LIMIT
    assert len(at.model.requests) == 3
    assert end.why == "This turn has cost $1.20; the limit is $1.00."
    at = await world(calls("look"), says("done"), limits=TurnLimits(day_cost=5.0), spent=(6.0, 6.0))
    assert (await told(at)).why == "Today has cost $6.00; the limit is $5.00."


async def test_what_folds_cost_counts_towards_the_limit_of_their_turn() -> None:
    at = await world(
        *[calls("look", n=n, cost=0.1) for n in range(9)], limits=TurnLimits(turn_cost=1.0)
    )
    await at.session.conversation.append_facts(
        Spent(Purpose.HANDOVER, "fast", Usage(input=10, cost=5.0))
    )

    async def folded_meanwhile(call: ToolCall, context: CallContext) -> str:
        await at.session.conversation.append_facts(
            Spent(Purpose.HANDOVER, "fast", Usage(input=10, cost=0.5))
        )
        return f"seen {call.id}"

    at.tools.runs["look"] = folded_meanwhile
    end = await told(at)
    assert len(at.model.requests) == 2
    assert end.why == "This turn has cost $1.20; the limit is $1.00."


async def test_stopping_takes_an_open_question_back() -> None:
    at = await world(calls("run"))

    async def asking(call: ToolCall, context: CallContext) -> str:
        await context.ask(PermissionQuestion(call, "Run a command", "rm -r x"))
        return "asked"

    at.tools.runs = {"run": asking}
    at.session.subscribe_to_events(
        lambda event: at.session.stop_turn() if isinstance(event, QuestionAsked) else None
    )
    assert (await told(at)).reason is TurnEnd.STOPPED
    assert at.session.questions == {}


async def test_reasoning_is_kept_and_counted() -> None:
    at = await world(
        Reply(
            (Reasoning("let me see", opaque="sig"), Text("so")),
            Stop.END,
            Usage(input=1),
            "scripted",
        )
    )
    await told(at)
    (reply,) = at.of(ModelReplied)
    assert reply.parts == (Reasoning("let me see", 3, "sig"), Text("so", 1))
    assert reply.saw == at.session.all_facts[-1].seq - 2


async def test_every_request_of_a_long_turn_is_legal() -> None:
    at = await world(*[calls("look", "run", n=n) for n in range(30)], says("done"))
    await told(at)
    assert [request_building.find_violations(request) for request in at.model.requests] == [[]] * 31
    assert all(request.messages[0].role is Role.USER for request in at.model.requests)


async def test_a_store_that_refuses_ends_the_turn_with_its_sentence() -> None:
    at = await world(calls("run"))

    async def full(call: ToolCall, context: CallContext) -> str:
        raise StoreFull(
            "The disk is full.", remedy="Make room; nothing that was acknowledged is lost."
        )

    at.tools.runs = {"run": full}
    end = await told(at)
    assert (end.reason, end.why) == (
        TurnEnd.FAILED,
        "The disk is full. Make room; nothing that was acknowledged is lost.",
    )
    assert [result.ok for result in at.of(ToolReturned)] == [False]


async def test_a_steering_message_that_finds_no_room_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    at = await world(calls("run"))
    real = at.journal.append_to_journal

    async def append(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
        if any(isinstance(fact, UserSaid) and fact.steering for fact in facts):
            raise StoreFull("The disk is full.")
        return await real(conversation, facts)

    async def steer(call: ToolCall, context: CallContext) -> str:
        at.session.send_message((Text("not so"),), steer=True)
        return "done"

    monkeypatch.setattr(at.journal, "append_to_journal", append)
    at.tools.runs = {"run": steer}
    end = await told(at)
    assert (end.reason, end.why) == (TurnEnd.FAILED, "The disk is full.")
    assert [(waiting.steer, waiting.parts[0]) for waiting in at.session.queue] == [
        (True, Text("not so", 2))
    ]


async def test_a_large_message_that_steers_is_shortened_like_any_other() -> None:
    """The chip said that an excerpt is sent, and the whole text went."""
    at = await world(calls("run"), says("done"))
    large = "word " * 60_000

    async def steer(call: ToolCall, context: CallContext) -> str:
        at.session.send_message((Text(f"first {large}"),), steer=True)
        at.session.send_message((Text("second"),), steer=True)
        at.session.send_message((Text(f"third {large}"),), steer=True)
        return "done"

    at.tools.runs = {"run": steer}
    assert (await told(at)).reason is TurnEnd.DONE
    first, _second, third = [
        recorded.seq
        for recorded in at.session.all_facts
        if isinstance(recorded.fact, UserSaid) and recorded.fact.steering
    ]
    assert [fold.cover for fold in at.of(Folded)] == [PartRef(first), PartRef(third)]
    assert sum(fold.tokens for fold in at.of(Folded)) < 10_000


async def test_a_limit_of_the_day_that_is_reached_lets_nothing_be_sent() -> None:
    at = await world(
        says("a plain answer without calls"), limits=TurnLimits(day_cost=5.0), spent=(6.0, 6.0)
    )
    assert (await told(at)).reason is TurnEnd.SPENDING_LIMIT
    assert at.model.requests == []


async def test_how_long_to_think_is_asked_for_at_every_step_and_known_of_earlier_ones() -> None:
    at = await world(says("quick"), says("slow"), says("again"))
    await told(at)
    at.setup = replace(at.setup, models=(replace(at.setup.models[0], effort="high"),))
    await told(at)
    assert [request.reasoning for request in at.model.requests] == ["", "high"]
    replies = [
        recorded.seq for recorded in at.session.all_facts if isinstance(recorded.fact, ModelReplied)
    ]
    assert [
        (await at.session.context.rebuild_request(seq)).reasoning for seq in (*replies, None)
    ] == [
        "",
        "high",
        "high",
    ]


async def test_a_note_is_said_at_the_end_pinned_and_only_when_it_changes() -> None:
    at = await world(calls("look"), calls("look"), says("done"))
    at.setup = replace(at.setup, notes=(StandingNote("rules:a/AGENTS.md", "Never push."),))
    await told(at)
    notes = [fact for fact in at.of(UserSaid) if fact.by]
    assert [fact.parts for fact in notes] == [(Text("Never push.", 2),)]
    seq = at.facts.index(notes[0]) + 1
    assert at.of(Pinned) == [Pinned(PartRef(seq))]
    at.setup = replace(at.setup, notes=(StandingNote("rules:a/AGENTS.md", "Push."),))
    await told(at)
    assert at.of(Unpinned) == [Unpinned(PartRef(seq))]
    at.setup = replace(at.setup, notes=(StandingNote("rules:a/AGENTS.md", ""),))
    await told(at)
    await told(at)
    said = [fact.parts[0] for fact in at.of(UserSaid) if fact.by]
    assert [getattr(part, "text", "") for part in said] == ["Never push.", "Push.", NO_LONGER]


async def test_a_note_that_is_not_there_is_not_taken_back() -> None:
    at = await world(says("done"))
    at.setup = replace(at.setup, notes=(StandingNote("rules:a", ""),))
    await told(at)
    assert not [fact for fact in at.of(UserSaid) if fact.by]


async def test_who_watches_sees_the_agent_think_run_tools_and_think_again() -> None:
    at = await world(calls("look"), says("done"))
    seen: list[ConversationActivity] = []

    def note(event: object) -> None:
        if isinstance(event, ActivityChanged) and event.running not in seen[-1:]:
            seen.append(event.running)

    at.session.subscribe_to_events(note)
    await told(at)
    assert seen == [
        ConversationActivity.THINKING,
        ConversationActivity.TOOLS,
        ConversationActivity.THINKING,
        ConversationActivity.IDLE,
    ]
