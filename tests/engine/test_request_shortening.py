"""Panic: the ladder is climbed until the next request fits, whatever the parts are."""

from __future__ import annotations

import asyncio

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import (
    FoldKind,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    Span,
    SystemSet,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session_events import Event, FoldProgress
from helix_desktop.replay import simulated_clock
from tests.engine.keeping import Keeping, fails, keeping
from tests.engine.test_automatic_folding import words, worked


async def fits(kept: Keeping) -> None:
    await kept.folding.apply_due_folds()
    assert kept.conversation.current_meter().request_fits, (
        kept.conversation.current_meter().format_meter()
    )
    await kept.request()


async def test_markers_alone_may_do() -> None:
    kept = await keeping(window=1_000_000, caching_least=100_000)
    await kept.say("go")
    await worked(kept, 20, 400)
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 9_000))
    await fits(kept)
    assert {fold.kind for fold in kept.folds()} == {FoldKind.MARKER}
    assert not kept.writers["fast"].requests


async def test_a_handover_where_markers_do_not_do() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("go")
    for index in range(20):
        await kept.answer(words(400, f"said{index}"))
        await kept.say("go on")
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 9_000))
    await fits(kept)
    (fold,) = kept.folds(FoldKind.HANDOVER)
    assert fold.panic
    assert "would not fit" in fold.why


async def kept_that_needs_a_handover() -> tuple[Keeping, list[FoldProgress]]:
    """A conversation whose next request does not fit, and what it tells of its folds. Its model
    does not answer.
    """
    kept = await keeping(window=1_000_000, hangs=True)
    await kept.say("go")
    for index in range(20):
        await kept.answer(words(400, f"said{index}"))
        await kept.say("go on")
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 9_000))
    told: list[FoldProgress] = []

    def hear(event: Event) -> None:
        if isinstance(event, FoldProgress):
            told.append(event)

    kept.conversation.listeners.append(hear)
    return kept, told


async def until_asked(kept: Keeping) -> None:
    async with asyncio.timeout(60):
        while not kept.writers["fast"].requests:
            await asyncio.sleep(0)


async def test_a_handover_that_a_request_waits_for_is_told_and_ends_with_the_turn() -> None:
    kept, told = await kept_that_needs_a_handover()
    turn = kept.tasks.spawn_task(kept.folding.apply_due_folds(), name="turn")
    await until_asked(kept)
    assert [(one.kind, one.done) for one in told] == [(FoldKind.HANDOVER, False)]
    assert kept.folding.kind_in_progress is FoldKind.HANDOVER
    assert kept.folding.describe_next_fold() == "Being shortened: summary."
    turn.cancel()
    await asyncio.wait([turn])
    assert [one.done for one in told] == [False, True]
    assert kept.folding.has_no_fold_in_work
    assert not kept.folds()


async def test_who_stops_that_handover_alone_gets_a_request_shortened_without_a_model() -> None:
    kept, told = await kept_that_needs_a_handover()
    turn = kept.tasks.spawn_task(kept.folding.apply_due_folds(), name="turn")
    await until_asked(kept)
    kept.folding.cancel_fold_in_work()
    await turn
    assert kept.conversation.current_meter().request_fits
    assert kept.folds(FoldKind.TRUNCATION)
    assert not kept.failures()
    assert [one.done for one in told][:2] == [False, True]


async def test_truncation_keeps_the_task_and_names_what_was_dropped() -> None:
    kept = await keeping(window=1_000_000, answer=fails)
    task = await kept.say("You must keep the table users as it is.")
    for index in range(30):
        await kept.step(words(90, f"out{index}"))
        await kept.answer(words(400, f"said{index}"))
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 9_000))
    await fits(kept)
    (fold,) = kept.folds(FoldKind.TRUNCATION)
    entry = (await kept.cache.read_content(fold.entries[0])).decode()
    dropped = await kept.cache.store_content(
        words(90, "out3").encode(), EntryOrigin("tool", "", "text/plain")
    )
    assert dropped.digest.hex in entry
    assert "You must keep the table users as it is." in await kept.shown()
    assert any(block.source == PartRef(task) for block in kept.conversation.current_view().blocks)


async def test_one_huge_output_is_excerpted_and_the_rest_left_alone() -> None:
    kept = await keeping("helix", window=12_000)
    await kept.say("go")
    await worked(kept, 12, 200)
    huge = await kept.step(words(12_000))
    await fits(kept)
    (fold,) = kept.folds()
    assert fold.cover == PartRef(huge)
    assert fold.kind is FoldKind.EXCERPT


async def test_the_tail_itself_where_nothing_else_is_left() -> None:
    kept = await keeping(window=1_000_000, answer=fails)
    await kept.say("go")
    for index in range(9):
        await kept.answer(words(650, f"said{index}"))
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 5_000))
    await fits(kept)
    fold = kept.folds(FoldKind.TRUNCATION)[-1]
    assert fold.panic
    assert isinstance(fold.cover, Span)
    assert fold.cover.last >= kept.conversation.state.branch.steps[-8]


async def test_a_long_message_of_the_user_is_excerpted_and_can_be_recalled() -> None:
    kept = await keeping(window=1_000_000)
    text = "Begin here. " + words(8_000) + " And never stop."
    await kept.say(text)
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 6_000))
    await fits(kept)
    (fold,) = kept.folds(FoldKind.EXCERPT)
    assert (await kept.cache.read_content(fold.entries[0])).decode() == text
    assert isinstance(kept.conversation.fact_at(4), UserSaid)


async def test_long_arguments_become_markers() -> None:
    kept = await keeping("helix", window=1_000_000)
    await kept.say("go")
    long = words(5_000).replace("\n", " ")
    await kept.step("ok", tool="write", arguments=f'{{"path": "a.txt", "text": "{long}"}}')
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 5_000))
    await fits(kept)
    (fold,) = kept.folds()
    assert fold.kind is FoldKind.MARKER
    assert (await kept.cache.read_content(fold.entries[0])).decode() == long
    assert '"path": "a.txt"' in await kept.shown()


async def test_pins_are_not_touched_and_what_cannot_be_helped_is_recorded() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("go")
    output = await kept.step(words(3_900))
    await kept.conversation.append_facts(
        Pinned(PartRef(output)), ModelSet(ModelRole.MAIN, "small", 3_000)
    )
    await kept.folding.apply_due_folds()
    assert not kept.conversation.current_meter().request_fits
    assert "everything that can be shortened is already shortened" in kept.failures()[-1].why
    assert words(3_900) in await kept.shown()


async def test_a_system_prompt_larger_than_the_window_ends_in_a_sentence_not_in_a_loop() -> None:
    kept = await keeping(window=5_000)
    await kept.say("go")
    await kept.conversation.append_facts(SystemSet("long", 9_000))
    for _ in range(3):
        await kept.folding.apply_due_folds()
    assert len([f for f in kept.failures() if f.kind is FoldKind.TRUNCATION]) == 1, "said once"


@pytest.mark.parametrize("window", [4_000, 8_000, 16_000, 32_000])
async def test_small_windows_are_never_overrun(window: int) -> None:
    kept = await keeping(window=window)
    await kept.say("go")
    for index in range(40):
        await kept.batch([words(window // 20, f"n{index}")] * (index % 4 + 1))
        await kept.folding.apply_due_folds()
        assert kept.conversation.current_meter().request_fits
    await kept.settled()
    await kept.request()


async def test_a_breaker_that_is_open_goes_straight_to_truncation() -> None:
    kept = await keeping(window=1_000_000, answer=fails, failures=1)
    await kept.say("go")
    for index in range(30):
        await kept.answer(words(400, f"said{index}"))
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 9_000))
    await fits(kept)
    asked = len(kept.writers["fast"].requests)
    assert asked > 0
    for index in range(30):
        await kept.answer(words(400, f"more{index}"))
    await fits(kept)
    assert len(kept.writers["fast"].requests) == asked


async def test_a_truncation_that_cannot_be_enough_is_left_out() -> None:
    kept = await keeping(window=8_000, handover="off")
    await kept.conversation.append_facts(SystemSet("long", 5_900))
    await kept.say("go")
    for index in range(30):
        await kept.step(words(300, f"n{index}"))
    await kept.folding.apply_due_folds()
    assert len(kept.folds(FoldKind.TRUNCATION)) <= 30
    assert kept.conversation.current_meter().used <= kept.conversation.current_meter().window
    await kept.request()


def test_a_model_that_says_nothing_is_waited_for_15_seconds_and_then_no_more() -> None:
    async def wait() -> None:
        kept = await keeping(window=1_000_000, hangs=True)
        await grown(kept)
        begun = asyncio.get_running_loop().time()
        await fits(kept)
        assert 15 <= asyncio.get_running_loop().time() - begun < 16
        (failed,) = kept.failures()
        assert failed.kind is FoldKind.HANDOVER
        assert failed.why == "there was no response for 15 seconds"
        assert len(kept.writers["fast"].requests) == 1
        assert kept.folds(FoldKind.TRUNCATION)

    simulated_clock.run_on_jumping_loop(wait())


def test_a_model_that_goes_on_saying_something_is_waited_for() -> None:
    async def wait() -> None:
        kept = await keeping(window=1_000_000)
        kept.writers["fast"].pauses = [13] * 4
        await grown(kept)
        await fits(kept)
        assert kept.folds(FoldKind.HANDOVER)
        assert not kept.failures()

    simulated_clock.run_on_jumping_loop(wait())


def test_a_long_history_in_a_small_window_becomes_a_handover_in_pieces() -> None:
    """A model of 32K tokens was given nothing of an imported history of 300K: 24
    requests in turn took too long.
    """

    async def wait() -> None:
        kept = await keeping("helix", window=1_000_000)
        kept.writers["fast"].pauses = [5] * 4
        await kept.say("go")
        for index in range(1_200):
            await kept.answer(words(250, f"said{index}"))
            await kept.say(f"go on {index}")
        small = (ModelSet(role, "small", 32_800) for role in (ModelRole.MAIN, ModelRole.FAST))
        await kept.conversation.append_facts(*small)
        begun = asyncio.get_running_loop().time()
        await fits(kept)
        assert asyncio.get_running_loop().time() - begun < 150
        assert not kept.failures()
        assert not kept.folds(FoldKind.TRUNCATION)
        assert kept.folds(FoldKind.HANDOVER)

    simulated_clock.run_on_jumping_loop(wait())


async def grown(kept: Keeping) -> None:
    """More than fits the model that is switched to."""
    await kept.say("go")
    for index in range(20):
        await kept.answer(words(400, f"said{index}"))
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "small", 9_000))


async def test_others_get_their_turn_between_two_measures() -> None:
    """Each looks at the whole context: together, of a very long history, they would
    hold up everybody for a tenth of a second.
    """
    kept = await keeping(window=9_000, answer=fails, handover="off")
    await kept.say("go")
    await kept.conversation.append_facts(SystemSet("s", 9_000))
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    tasks = OwnedTasks("others")
    tasks.spawn_task(others(), name="others")
    await kept.folding.apply_due_folds()
    await tasks.aclose()
    assert turns > 6, "3 without a pause behind each measure"
