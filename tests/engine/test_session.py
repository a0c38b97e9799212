"""The commands of a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    DocumentEdited,
    Fact,
    Folded,
    FoldKind,
    Forgotten,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    Recorded,
    Refolded,
    Rewound,
    Span,
    Stop,
    Text,
    ToolCall,
    TurnEnd,
    TurnEnded,
    Unfolded,
    UserSaid,
)
from helix_desktop.engine.ports import (
    CallContext,
    EntryOrigin,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    ConversationReplaced,
    Event,
    MessagesQueued,
    QuestionAsked,
    QuestionDenied,
)
from helix_desktop.engine.session_setup import HookOutcome, QueuedMessage, TurnLimits
from helix_desktop.errors import ActionRefused, NotFound, StoreFull
from tests.engine.agent import World, appended, calls, says, world


async def told(at: World, *texts: str) -> None:
    for text in texts:
        at.session.send_message((Text(text),))
        await asyncio.wait_for(at.session.wait_until_idle(), 60)


def asked(at: World, request: int) -> list[str]:
    """The texts of the messages of a request."""
    return [
        p.text
        for message in at.model.requests[request].messages
        for p in message.parts
        if isinstance(p, Text)
    ]


async def test_the_first_message_gives_the_title_and_rename_another() -> None:
    at = await world()
    await told(at, "Extract the lock manager, please, and then everything that is beside it\nmore")
    assert (
        at.session.conversation.state.title
        == "Extract the lock manager, please, and then everything that…"
    )
    await at.session.set_title("Locks")
    assert at.session.conversation.state.title == "Locks"


async def test_a_waiting_message_can_be_taken_back() -> None:
    at = await world(calls("look"), says("one"), says("two"))

    async def queue(call: ToolCall, context: CallContext) -> str:
        for text in ("a", "b"):
            at.session.send_message((Text(text),))
        assert at.session.queue.take_back_queued(0) == (Text("a", 1),)
        return "seen"

    at.tools.runs = {"look": queue}
    await told(at, "hello")
    assert [said.parts[0] for said in at.of(UserSaid)] == [Text("hello", 1), Text("b", 1)]
    assert [event.messages for event in at.events if isinstance(event, MessagesQueued)][-1] == ()


async def test_the_states_of_a_turn_are_told_in_order() -> None:
    at = await world(calls("look"), says("done"))
    await told(at, "hello")
    states = [event.running for event in at.events if isinstance(event, ActivityChanged)]
    assert states == [
        ConversationActivity.THINKING,
        ConversationActivity.TOOLS,
        ConversationActivity.THINKING,
        ConversationActivity.IDLE,
    ]


async def test_a_turn_runs_from_its_beginning_on_also_while_folds_hold_it_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise the window takes it for one that was broken off, and offers to go on with it."""
    at = await world(says("one"))
    shown = []
    fold = at.session.folding.apply_due_folds

    async def fold_for_long(*, overflowed: bool = False) -> None:
        shown.append(at.session.running)
        await fold(overflowed=overflowed)

    monkeypatch.setattr(at.session.folding, "apply_due_folds", fold_for_long)
    await told(at, "hello")
    assert shown == [ConversationActivity.THINKING]


async def test_a_turn_that_failed_is_shown_as_failed() -> None:
    at = await world(*[calls("look", n=n) for n in range(5)], limits=TurnLimits(steps=2))
    await told(at, "hello")
    assert at.session.running is ConversationActivity.FAILED


async def test_a_turn_that_is_stopped_before_its_first_step_leaves_the_message_waiting() -> None:
    at = await world()
    at.session.send_message((Text("one"),))
    at.session.stop_turn()
    await asyncio.wait_for(at.session.wait_until_idle(), 60)
    assert at.session.running is ConversationActivity.IDLE
    assert len(at.session.queue) == 1
    await told(at, "two")
    assert asked(at, 0) == ["one"]


async def test_rewinding_goes_on_from_there_and_the_rest_stays_in_the_journal() -> None:
    at = await world(says("one"), says("two"), says("three"))
    await told(at, "first", "second")
    first_end = next(
        recorded.seq for recorded in at.session.all_facts if isinstance(recorded.fact, TurnEnded)
    )
    await at.session.rewind_to(first_end)
    await told(at, "other")
    assert asked(at, 2) == ["first", "one", "other"]
    assert [said.parts[0] for said in at.of(UserSaid)] == [
        Text("first", 1),
        Text("second", 1),
        Text("other", 1),
    ]


async def test_a_shortening_stays_as_the_user_last_left_it_whatever_is_rewound() -> None:
    """A return after a rewind threw away that an excerpt had been shortened again."""
    at = await world(says("one"), says("two"), says("three"))
    await told(at, "first")
    conversation = at.session.conversation
    before_excerpt = conversation.state.seq
    said = next(
        recorded.seq for recorded in at.session.all_facts if isinstance(recorded.fact, UserSaid)
    )
    await conversation.append_facts(Folded("e", FoldKind.EXCERPT, PartRef(said), "short", 1, 1))
    await at.session.folding.unfold("e")
    await told(at, "second")
    left = conversation.state.seq
    await at.session.folding.refold("e")

    await at.session.rewind_to(before_excerpt)
    assert "e" not in conversation.state.branch.folds, "it was made later"
    await at.session.rewind_to(left)
    assert "e" in conversation.state.branch.live
    await at.session.folding.unfold("e")
    await at.session.switch_to_answer(left + 1)
    assert "e" not in conversation.state.branch.live
    await at.session.folding.refold("e")
    message = at.of(UserSaid)[-1]
    seq_of_message = next(
        recorded.seq for recorded in at.session.all_facts if recorded.fact is message
    )
    await at.session.edit_and_resend(seq_of_message, (Text("better"),))
    await at.session.wait_until_idle()
    assert "e" in conversation.state.branch.live
    choices = len(at.of(Unfolded)) + len(at.of(Refolded))
    await at.session.rewind_to(conversation.state.seq - 1)
    assert len(at.of(Unfolded)) + len(at.of(Refolded)) == choices, "nothing was to be changed"


async def test_editing_a_message_and_asking_again_for_an_answer() -> None:
    at = await world(says("one"), says("two"), says("three"))
    await told(at, "first")
    seq = next(
        recorded.seq for recorded in at.session.all_facts if isinstance(recorded.fact, UserSaid)
    )
    await at.session.edit_and_resend(seq, (Text("better"),))
    await at.session.wait_until_idle()
    assert asked(at, 1) == ["better"]
    await at.session.ask_again()
    await at.session.wait_until_idle()
    assert asked(at, 2) == ["better"]
    assert len(at.of(Rewound)) == 2


async def test_an_edited_message_that_a_hook_refuses_takes_nothing_away_and_is_recorded_with_its_rewind_afterwards() -> (
    None
):
    at = await world(says("one"), says("two"))
    await told(at, "first")
    turns = at.session.turns
    before = at.session.all_facts
    seq = next(recorded.seq for recorded in before if isinstance(recorded.fact, UserSaid))

    async def refuse(event: str, _conversation: str, _values: Mapping[str, Any]) -> HookOutcome:
        return HookOutcome(blocks="not now" if event == "UserPromptSubmit" else "")

    services = turns._services
    turns._services = replace(services, run_hooks=refuse)
    await at.session.edit_and_resend(seq, (Text("better"),))
    await at.session.wait_until_idle()
    assert at.of(Rewound) == []
    assert [
        recorded.fact for recorded in at.session.all_facts if isinstance(recorded.fact, UserSaid)
    ] == [before[seq - 1].fact]
    turns._services = services
    at.session.send_message((Text("later"),))
    await at.session.wait_until_idle()
    kinds = [type(recorded.fact) for recorded in at.session.all_facts]
    assert kinds[kinds.index(Rewound) + 1] is UserSaid
    assert asked(at, 1) == ["better"]


async def test_an_answer_is_regenerated_and_the_first_one_chosen_again() -> None:
    at = await world(says("one"), says("so"), says("another"))
    await told(at, "why?")
    await told(at, "and then?")
    first = next(r.seq for r in at.session.all_facts if isinstance(r.fact, ModelReplied))
    left = at.session.all_facts[-1].seq
    await at.session.ask_again(first)
    await at.session.wait_until_idle()
    assert asked(at, 2) == ["why?"]
    await at.session.switch_to_answer(left)
    texts = [
        part.text
        for r in at.session.conversation.state.facts_on_path()
        for part in getattr(r.fact, "parts", ())
    ]
    assert texts == ["why?", "one", "and then?", "so"]
    assert [fact.again for fact in at.of(Rewound)] == [True, True]


async def test_the_past_is_not_changed_while_the_agent_works() -> None:
    at = await world(calls("look"), says("done"))
    refused: list[str] = []

    async def meddle(call: ToolCall, context: CallContext) -> str:
        for attempt in (
            at.session.rewind_to(1),
            at.session.ask_again(),
            at.session.edit_and_resend(1, (Text("x"),)),
        ):
            with pytest.raises(ActionRefused) as error:
                await attempt
            refused.append(error.value.remedy)
        return "meddled"

    at.tools.runs = {"look": meddle}
    await told(at, "hello")
    assert refused == ["Stop the agent first (Esc)."] * 3


async def test_what_the_model_saw_is_the_request_it_got() -> None:
    at = await world(calls("look"), calls("run"), says("done"))
    await told(at, "hello")
    replies = [
        recorded.seq for recorded in at.session.all_facts if isinstance(recorded.fact, ModelReplied)
    ]
    for sent, seq in zip(at.model.requests, replies, strict=True):
        shown = await at.session.context.rebuild_request(seq)
        assert (shown.system, shown.messages, shown.tools) == (
            sent.system,
            sent.messages,
            sent.tools,
        )


async def test_what_is_not_there_is_said() -> None:
    at = await world()
    await told(at, "hello")
    with pytest.raises(NotFound):
        await at.session.context.rebuild_request(1)
    with pytest.raises(NotFound):
        await at.session.context.rebuild_request(999)
    with pytest.raises(NotFound):
        await at.session.edit_and_resend(1, (Text("x"),))
    with pytest.raises(NotFound):
        await at.session.context.edit_fold_text("handover-9", "text")
    with pytest.raises(NotFound):
        await (await world()).session.ask_again()
    assert at.of(DocumentEdited) == []


async def test_an_entry_or_some_lines_of_it_go_into_the_next_message() -> None:
    at = await world(says("one"))
    stored = await at.cache.store_content(
        b"one\ntwo\nthree\nfour\n", EntryOrigin("read_file", "a.txt")
    )
    whole = await at.session.context.recall_as_attachment(stored.digest)
    assert (whole.name, whole.stored, whole.tokens) == ("a.txt", stored, 4)
    piece = await at.session.context.recall_as_attachment(stored.digest, lines=(2, 3))
    assert piece.name == "a.txt:2-3"
    assert await at.cache.read_content(piece.stored.digest) == b"two\nthree\n"
    at.session.send_message((Text("look at this"), piece))
    await at.session.wait_until_idle()
    assert any("two\nthree" in text for text in asked(at, 0))
    assert any(isinstance(part, Attachment) for said in at.of(UserSaid) for part in said.parts)


async def test_archiving_pinning_and_the_trash_are_facts() -> None:
    at = await world()
    await told(at, "hello")
    await at.session.set_archived()
    await at.session.set_pinned()
    await at.session.set_trashed()
    await at.session.set_trashed(trashed=False)
    changes = at.of(ConversationChanged)[1:]
    assert [(c.archived, c.pinned, c.trashed) for c in changes] == [
        (True, None, None),
        (None, True, None),
        (None, None, True),
        (None, None, False),
    ]


async def test_what_finds_no_room_waits_and_goes_out_when_there_is_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = await world(says("one"), says("two"))
    real = at.journal.append_to_journal
    full = True

    async def append(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
        if full:
            raise StoreFull("The disk is full.")
        return await real(conversation, facts)

    monkeypatch.setattr(at.journal, "append_to_journal", append)
    await told(at, "hello")
    assert (at.session.running, [waiting.parts for waiting in at.session.queue]) == (
        ConversationActivity.FAILED,
        [(Text("hello", 1),)],
    )
    full = False
    await told(at, "more")
    assert (at.session.queue, [text for text in asked(at, 1) if text in ("hello", "more")]) == (
        [],
        ["hello", "more"],
    )


async def test_the_first_message_is_recorded_with_the_title_in_one_transaction() -> None:
    at = await world(says("one"))
    together = list[int]()
    real = at.journal.append_to_journal

    async def append(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
        together.append(
            len([fact for fact in facts if isinstance(fact, UserSaid | ConversationChanged)])
        )
        return await real(conversation, facts)

    at.journal.append_to_journal = append  # type: ignore[method-assign]
    await told(at, "hello")
    assert [count for count in together if count] == [2]


async def test_a_message_that_is_stopped_before_it_is_recorded_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    at = await world(says("one"))
    begun = asyncio.Event()

    async def admit_for_ever(_said: UserSaid, _replaced_message: int) -> Sequence[Fact]:
        begun.set()
        await asyncio.Event().wait()
        return ()

    with monkeypatch.context() as patch:
        patch.setattr(at.session.folding, "excerpt_large_message", admit_for_ever)
        at.session.send_message((Text("hello"),))
        await begun.wait()
        at.session.stop_turn()
        await at.session.wait_until_idle()
    assert [waiting.parts for waiting in at.session.queue] == [(Text("hello", 1),)]
    await told(at, "more")
    assert [fact.parts[0] for fact in at.of(UserSaid)] == [Text("hello", 1), Text("more", 1)]


async def test_closing_stops_the_turn_and_leaves_a_conversation_that_can_be_continued() -> None:
    at = await world(calls("look", "run"))

    async def hang(call: ToolCall, context: CallContext) -> str:
        await asyncio.Event().wait()
        return ""

    at.tools.runs = {"run": hang}
    at.session.send_message((Text("hello"),))
    while not any(
        isinstance(e, ActivityChanged) and e.running is ConversationActivity.TOOLS
        for e in at.events
    ):
        await asyncio.sleep(0)
    await at.session.aclose()
    assert at.of(TurnEnded) == [TurnEnded(TurnEnd.STOPPED, "The program stopped during this turn.")]
    assert request_building.find_violations(await at.session.context.rebuild_request()) == []


async def test_what_is_being_recorded_is_recorded_and_told_before_it_is_closed() -> None:
    at = await world()
    append = at.journal.append_to_journal
    slow = asyncio.Event()
    writing = asyncio.Event()

    async def append_slowly(conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
        writing.set()
        await slow.wait()
        return await append(conversation, facts)

    at.journal.append_to_journal = append_slowly  # type: ignore[method-assign]
    at.session.send_message((Text("hello"),))
    await writing.wait()
    closing = asyncio.ensure_future(at.session.aclose())  # noqa: TID251 - a test's own task
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done()
    slow.set()
    await closing
    assert at.facts
    assert appended(at.events) == at.facts


async def test_a_sub_agents_questions_go_elsewhere() -> None:
    at = await world(calls("run"), says("done"))
    elsewhere: list[tuple[str, str]] = []

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        elsewhere.append((question.title, question.by))
        return PermissionAnswer(allowed=True)

    async def asking(call: ToolCall, context: CallContext) -> str:
        return str((await context.ask(PermissionQuestion(call, "Run it", "x"))).allowed)

    at.tools.runs = {"run": asking}
    at.session.asked_elsewhere = ask
    await told(at, "hello")
    assert elsewhere == [("Run it", "hello")]  # who is asked knows what for
    assert at.session.questions == {}


async def test_a_turn_that_a_crash_broke_off_is_known_and_goes_on() -> None:
    at = await world(says("and so on"))
    await at.session.conversation.append_facts(
        UserSaid((Text("go", 1),)),
        ModelReplied(
            (ToolCall("a", "look", "{}", 1), ToolCall("b", "run", "{}", 1)), "scripted", Stop.CALLS
        ),
    )
    assert at.session.conversation.state.branch.turn.running
    at.session.resume_turn()
    await asyncio.wait_for(at.session.wait_until_idle(), 60)
    assert at.of(TurnEnded)[-1].reason is TurnEnd.DONE
    assert not at.session.conversation.state.branch.turn.running
    assert request_building.find_violations(at.model.requests[0]) == []


async def test_what_changed_between_two_moments_is_told() -> None:
    at = await world(says("the first answer"), says("the second"))
    await told(at, "one")
    then = at.session.all_facts[-1].seq
    await told(at, "two")
    before = (await at.session.conversation.moment_at(then)).get_view()
    after = at.session.conversation.current_view()
    assert after.blocks[: len(before.blocks)] == before.blocks
    assert len(after.blocks) == len(before.blocks) + 2
    now = (await at.session.conversation.moment_at(at.session.all_facts[-1].seq)).get_view()
    assert now == at.session.conversation.current_view()


async def test_what_is_forgotten_leaves_the_session_and_the_next_request() -> None:
    at = await world(says("I keep hunter2 in mind."), says("done"))
    await told(at, "my password is hunter2")
    purged = await at.forget(text="hunter2")
    assert purged.conversations == (at.session.id,)
    assert isinstance(at.session.all_facts[-1].fact, Forgotten)
    assert "hunter2" not in str(at.session.conversation.current_view())
    assert ConversationReplaced(at.session.id) in at.events
    await told(at, "go on")
    assert asked(at, 1) == ["my password is [forgotten]", "I keep [forgotten] in mind.", "go on"]
    assert [recorded.seq for recorded in at.session.all_facts] == list(
        range(1, len(at.session.all_facts) + 1)
    )
    assert list(await at.journal.read_facts(at.session.id)) == list(at.session.all_facts)


async def test_nothing_is_forgotten_while_the_agent_works_and_nothing_begins_meanwhile() -> None:
    at = await world(calls("look"), says("done"), says("later"))
    refused: list[str] = []

    async def look(call: ToolCall, context: CallContext) -> str:
        with pytest.raises(ActionRefused, match="while the agent is working") as error:
            await at.forget(text="hello")
        refused.append(str(error.value))
        return "seen"

    at.tools.runs = {"look": look}
    await told(at, "hello there")
    assert refused
    async with at.session.pause_session():
        at.session.send_message((Text("waits"),))
        assert at.session.running is ConversationActivity.IDLE
        for command in (
            at.session.fold_on_request(FoldKind.HANDOVER),
            at.session.rewind_to(1),
            at.forget(text="hello"),
        ):
            with pytest.raises(ActionRefused, match="being permanently removed"):
                await command
        with pytest.raises(ActionRefused, match="being permanently removed"):
            at.session.resume_turn()
    await at.session.wait_until_idle()
    assert asked(at, 2)[-1] == "waits"
    assert ConversationReplaced(at.session.id) not in at.events


async def test_what_waited_for_a_press_still_waits_after_content_was_forgotten() -> None:
    at = await world(says("done"))
    at.session.queue.append(QueuedMessage((Text("left by a killed program"),), steer=False))
    async with at.session.pause_session():
        pass
    await at.session.wait_until_idle()
    assert len(at.session.queue) == 1
    assert not any(isinstance(recorded.fact, UserSaid) for recorded in at.session.all_facts)


async def test_a_pin_that_would_not_fit_is_refused_with_the_figures() -> None:
    at = await world(says("I have read it."), says("and that"), window=2_000)
    await told(at, "word " * 900, "word " * 800)
    first, second = (r.seq for r in at.session.all_facts if isinstance(r.fact, UserSaid))
    await at.session.context.pin_part(PartRef(first))
    await at.session.context.pin_part(PartRef(first))
    with pytest.raises(
        ActionRefused,
        match=r"would take up 1,7\d\d tokens in every request. The context window has 2,000 tokens, and 300 of them are reserved",
    ):
        await at.session.context.pin_part(PartRef(second))
    with pytest.raises(ActionRefused, match="1,7"):
        await at.session.context.pin_part(Span(1, second))
    assert [fact.ref for fact in at.of(Pinned)] == [PartRef(first), PartRef(first)]
    await at.session.context.unpin_part(PartRef(first))
    await at.session.context.pin_part(PartRef(second))


async def test_pins_that_do_not_fit_a_smaller_model_are_said_and_nothing_is_sent() -> None:
    at = await world(says("I have read it."), says("again"), window=20_000)
    await told(at, "word " * 4_500)
    (said,) = (r.seq for r in at.session.all_facts if isinstance(r.fact, UserSaid))
    await at.session.context.pin_part(PartRef(said))
    at.setup = replace(at.setup, models=(ModelSet(ModelRole.MAIN, "scripted", 4_000),))
    await told(at, "go on")
    (_, end) = at.of(TurnEnded)
    assert end.reason is TurnEnd.FAILED
    assert "window of scripted holds only 4,000" in end.why
    assert "Unpin something" in end.why
    assert len(at.model.requests) == 1
    await at.session.context.unpin_part(PartRef(said))
    await told(at, "and now?")
    assert at.of(TurnEnded)[-1].reason is TurnEnd.DONE
    assert at.session.context.next_request_meter().request_fits


async def test_folding_first_pays_where_the_cache_is_cold_and_the_policy_waits() -> None:
    at = await world(calls("look"), says("done"), says("and again"), preset="none")
    priced = ModelSet(
        ModelRole.MAIN,
        "scripted",
        128_000,
        price_input=10.0,
        price_output=50.0,
        price_cache_read=1.0,
        cache_seconds=300,
    )
    at.setup = replace(at.setup, models=(priced,))

    async def much(_call: object, _context: object) -> str:
        return "word " * 8_000

    at.tools.runs["look"] = much
    await told(at, "go", "again")
    clock = at.session._services.clock
    price = at.session.context.next_message_cost()
    assert price is not None
    assert price.forever is False
    await clock.sleep_seconds(
        at.session.conversation.state.time_of_moment - clock.current_time() + 299
    )
    assert at.session.context.estimate_saving_of_markers() == 0.0
    first = at.session.conversation.state.facts_on_path()[0].seq
    assert (
        at.session.context.estimate_cost_of_sending((Text("go"),), instead_of=first)
        < 0.1 * price.cold
    )
    await clock.sleep_seconds(2)
    saved = at.session.context.estimate_saving_of_markers()
    assert saved == pytest.approx(8_000 * 10 / 1e6, rel=0.05)
    state = at.session.conversation.expected_state
    state.acp_agent = "Gemini CLI"
    assert at.session.context.estimate_saving_of_markers() == 0.0, "it sends what it wants"
    state.acp_agent = ""
    cold = at.session.context.estimate_cost_of_sending((Text("one two three"),))
    await at.session.fold_on_request(FoldKind.MARKER)
    assert cold - at.session.context.estimate_cost_of_sending(
        (Text("one two three"),)
    ) == pytest.approx(saved, rel=0.02)
    assert at.session.context.estimate_saving_of_markers() == 0.0


async def test_the_price_of_a_first_message_is_known_once_it_was_looked_ahead_to() -> None:
    at = await world(says("done"), preset="none")
    priced = ModelSet(ModelRole.MAIN, "scripted", 128_000, price_input=10.0, price_output=50.0)
    at.setup = replace(at.setup, models=(priced,))
    words = (Text("word " * 1_000),)
    assert at.session.context.estimate_cost_of_sending(words) == 0.0
    at.session.preview_setup(at.setup)
    assert at.session.context.estimate_cost_of_sending(words) >= 1_000 * 10 / 1e6


async def test_an_answer_counts_once_and_one_to_no_question_does_nothing() -> None:
    at = await world(calls("look"), says("done"))
    answers: list[PermissionAnswer] = []

    async def ask_before_looking(call: ToolCall, context: CallContext) -> str:
        answers.append(await context.ask(PermissionQuestion(call, "Look?", "")))
        return "seen"

    def deny_and_then_allow(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            at.session.answer_question(event.number, PermissionAnswer(allowed=False, words="no"))
            at.session.answer_question(event.number, PermissionAnswer(allowed=True))
            at.session.answer_question(event.number + 1, PermissionAnswer(allowed=False))

    at.tools.runs = {"look": ask_before_looking}
    at.session.subscribe_to_events(deny_and_then_allow)
    await told(at, "hello")
    assert [answer.words for answer in answers] == ["no"]
    denials = [event for event in at.events if isinstance(event, QuestionDenied)]
    assert [denial.words for denial in denials] == ["no"]
