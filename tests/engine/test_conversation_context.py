"""What the user sees of the next request and decides about it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.conversation_context import _count_summary_requests
from helix_desktop.engine.facts import (
    ConversationStarted,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Included,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.messages import Reply, Request
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session_setup import TurnLimits
from helix_desktop.errors import ActionRefused, NotFound
from tests.engine.agent import World, calls, says, told, world
from tests.engine.talk import stored

PRICED = ModelSet(ModelRole.MAIN, "scripted", 128_000, price_input=2.0, price_output=10.0)
FREE = replace(PRICED, price_input=0.0, price_output=0.0)
MESSAGE = PartRef(2)


async def answered(
    *, model: ModelSet = PRICED, limits: TurnLimits | None = None, begun: Fact | None = None
) -> World:
    """A conversation of one turn."""
    at = await world(says("hi"), limits=limits or TurnLimits())
    at.setup = replace(at.setup, models=(model,))
    if begun is not None:
        await at.session.conversation.append_facts(begun)
    await told(at)
    return at


@pytest.mark.parametrize(
    ("limits", "model", "name"),
    [
        (TurnLimits(turn_cost=1.0), FREE, "scripted"),
        (TurnLimits(day_cost=1.0), FREE, "scripted"),
        (TurnLimits(agents_cost=1.0), FREE, "scripted"),
        (TurnLimits(workspace_cost=1.0), FREE, "scripted"),
        (TurnLimits(conversation_cost=1.0), FREE, "scripted"),
        (TurnLimits(turn_cost=1.0), PRICED, ""),
    ],
)
async def test_a_limit_in_dollars_that_cannot_be_kept_is_told(
    limits: TurnLimits, model: ModelSet, name: str
) -> None:
    at = await answered(model=model, limits=limits)
    assert at.session.context.model_whose_cost_cannot_be_limited() == name


async def test_without_a_limit_in_dollars_no_price_is_missed() -> None:
    none = TurnLimits(
        turn_cost=0.0, conversation_cost=0.0, day_cost=0.0, workspace_cost=0.0, agents_cost=0.0
    )
    at = await answered(model=FREE, limits=none)
    assert at.session.context.model_whose_cost_cannot_be_limited() == ""


async def test_sending_more_costs_more_and_nothing_is_said_without_prices() -> None:
    at = await answered()
    short = at.session.context.estimate_cost_of_sending((Text("a word"),))
    long = at.session.context.estimate_cost_of_sending((Text("many words " * 4_000),))
    assert 0 < short < long
    added_tokens = 8_000
    assert long - short == pytest.approx(added_tokens * 2.0 / 1e6, rel=0.5)
    free = await answered(model=FREE)
    assert free.session.context.estimate_cost_of_sending((Text("a word"),)) == 0.0


@pytest.mark.parametrize(
    ("tokens", "requests"), [(1, 1), (100, 1), (101, 3), (200, 3), (300, 6), (400, 7), (800, 15)]
)
def test_a_history_is_summarized_in_pieces_and_two_summaries_become_one(
    tokens: int, requests: int
) -> None:
    """Of 300 tokens: three pieces, then two summaries, then one."""
    assert _count_summary_requests(tokens, 100) == requests


async def test_what_fits_needs_no_summary_and_what_is_far_too_long_needs_many() -> None:
    at = await answered()
    assert at.session.context.estimate_needed_summary() is None
    for number in range(300):
        await at.session.conversation.append_facts(UserSaid((Text(f"long {number}", 3_000),)))
    needed = at.session.context.estimate_needed_summary()
    assert needed is not None
    assert needed.used_tokens > 900_000
    assert needed.window_tokens == 128_000
    assert 10_000 < needed.reserved_tokens < 30_000
    assert not needed.shortens_outputs_first
    assert needed.requests >= 15
    assert needed.dollars is not None
    assert 1.8 < needed.dollars < 5
    await at.session.conversation.append_facts(FREE)
    unpriced = at.session.context.estimate_needed_summary()
    assert unpriced is not None
    assert (unpriced.dollars, unpriced.requests) == (None, needed.requests)


async def append_outputs(at: World, count: int, tokens: int) -> None:
    """Steps whose calls return so many tokens each, and an answer."""
    for number in range(count):
        call = ToolCall(f"c{number}", "run_command", '{"command": "date"}', 10)
        await at.session.conversation.append_facts(
            ModelReplied((call,), "m", Stop.CALLS),
            ToolReturned(call.id, stored(f"output {number}"), tokens),
        )
    await at.session.conversation.append_facts(ModelReplied((Text("Done.", 3),), "m", Stop.END))


async def test_where_it_is_enough_to_shorten_outputs_nobody_is_asked_about_summaries() -> None:
    """The window asked to "summarize and send", and then old outputs became one line each."""
    at = await answered()
    await append_outputs(at, count=80, tokens=5_000)
    assert not at.session.context.next_request_meter().request_fits
    assert at.session.context.estimate_needed_summary() is None
    await at.session.folding.apply_due_folds()
    assert {fold.kind for fold in at.of(Folded)} == {FoldKind.MARKER}
    assert at.session.context.next_request_meter().request_fits


async def test_what_is_left_after_outputs_are_shortened_is_summarized() -> None:
    at = await answered()
    for number in range(300):
        await at.session.conversation.append_facts(UserSaid((Text(f"long {number}", 3_000),)))
    alone = at.session.context.estimate_needed_summary()
    await append_outputs(at, count=80, tokens=5_000)
    needed = at.session.context.estimate_needed_summary()
    assert alone is not None
    assert needed is not None
    assert needed.shortens_outputs_first
    assert needed.used_tokens > alone.used_tokens + 300_000
    assert needed.requests <= alone.requests + 3, "only what no line can stand for"


async def test_while_a_summary_is_written_nobody_is_asked_for_another() -> None:
    at = await answered()
    for number in range(300):
        await at.session.conversation.append_facts(UserSaid((Text(f"long {number}", 3_000),)))
    assert at.session.context.estimate_needed_summary() is not None
    never = asyncio.Event()

    async def hang(_request: Request) -> Reply:
        await never.wait()
        raise AssertionError("nobody answers")

    at.model.script.append(hang)
    folding = at.session.folding
    tasks = OwnedTasks("test")
    tasks.spawn_task(folding.fold_on_demand(FoldKind.HANDOVER, ""), name="summary")
    async with asyncio.timeout(60):
        while not at.model.requests[1:]:
            await asyncio.sleep(0)
    assert folding.kind_in_progress is FoldKind.HANDOVER
    assert at.session.context.estimate_needed_summary() is None, "the message waits for this one"
    await tasks.aclose()


async def test_decisions_about_a_part_are_facts() -> None:
    at = await answered()
    context = at.session.context
    await context.pin_part(MESSAGE)
    await context.unpin_part(MESSAGE)
    await context.exclude_part(MESSAGE)
    await context.include_part(MESSAGE)
    decided = [Pinned(MESSAGE), Unpinned(MESSAGE), Excluded(MESSAGE), Included(MESSAGE)]
    assert at.facts[-4:] == decided


async def test_what_does_not_fit_beside_a_reply_cannot_be_pinned() -> None:
    at = await answered()
    await at.session.conversation.append_facts(UserSaid((Text("long", 127_000),)))
    with pytest.raises(ActionRefused, match="The context window has 128,000 tokens"):
        await at.session.context.pin_part(PartRef(len(at.facts)))
    assert at.of(Pinned) == []


async def test_only_what_is_there_can_be_edited() -> None:
    at = await answered()
    with pytest.raises(NotFound, match="There is no shortened part handover-1"):
        await at.session.context.edit_fold_text("handover-1", "text")
    assert at.of(DocumentEdited) == []


async def test_a_stored_output_is_attached_whole_or_some_of_its_lines() -> None:
    at = await world(calls("look"), says("done"))
    origin = EntryOrigin("read_file", "src/a.py")
    stored = await at.cache.store_content(b"one\ntwo\nthree\nfour\n", origin)
    whole = await at.session.context.recall_as_attachment(stored.digest)
    assert (whole.name, whole.stored.digest) == ("src/a.py", stored.digest)
    part = await at.session.context.recall_as_attachment(stored.digest, lines=(2, 3))
    assert part.name == "src/a.py:2-3"
    assert await at.cache.read_content(part.stored.digest) == b"two\nthree\n"
    assert 0 < part.tokens < whole.tokens
    unnamed = await at.cache.store_content(b"x", EntryOrigin())
    attached = await at.session.context.recall_as_attachment(unnamed.digest)
    assert attached.name == unnamed.digest.short_hex


async def test_a_reply_of_here_answered_the_request_that_is_rebuilt() -> None:
    at = await world(calls("look"), says("done"))
    await told(at)
    for recorded in at.session.all_facts:
        if isinstance(recorded.fact, ModelReplied):
            request = await at.session.context.rebuild_request(recorded.seq)
            assert at.session.context.matches_sent_request(recorded.seq, request)
    assert at.of(ToolReturned)


async def test_nothing_is_said_to_be_saved_where_another_agent_decides() -> None:
    at = await answered(begun=ConversationStarted(acp_agent="Gemini CLI"))
    assert at.session.context.estimate_saving_of_markers() == 0.0
