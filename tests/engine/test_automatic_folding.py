"""Automatic folding: strategies seen through from beginning to end, with writers that
do their work and writers that do not.
"""

from __future__ import annotations

import asyncio
import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from helix_desktop.engine import context_policy
from helix_desktop.engine.automatic_folding import WRITING_SECONDS, describe_policy_outlook
from helix_desktop.engine.facts import (
    BreakerClosed,
    ConversationStarted,
    DocumentEdited,
    Excluded,
    Folded,
    FoldFailed,
    FoldKind,
    Forgotten,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    PolicySet,
    Purpose,
    Rewound,
    Span,
    Spent,
    Stop,
    SystemSet,
    Text,
    ToolReturned,
    Unfolded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.fold_document_writer import NoDocumentWritten
from helix_desktop.engine.fold_economics import QUESTION_TOKENS
from helix_desktop.engine.messages import Request
from helix_desktop.engine.prompt_cache_terms import HOUR_SECONDS, USUAL_SECONDS
from helix_desktop.engine.request_changes import CauseKind
from helix_desktop.engine.session_events import Event, FoldProgress
from helix_desktop.engine.session_setup import TurnLimits
from helix_desktop.engine.state.fold_covers import first_and_last
from helix_desktop.engine.strategies.handover import (
    SECTIONS,
    TITLE,
    least_tokens_for_paying_handover,
)
from helix_desktop.errors import ActionRefused, NotFound
from helix_desktop.replay import simulated_clock
from tests.engine import keeping as writers
from tests.engine.keeping import Keeping, keeping
from tests.engine.test_request_costs import LIFE, MODEL, Trial, check_sums, named
from tests.turns import lasted

FULL: dict[str, Any] = {
    "caching": "off",
    "handover": "share",
    "handover_share": 0.5,
}  # a handover at half the window
MARKER = re.compile(r'\[CACHED\] recall_cached_content\("([0-9a-f]{64})"\)')


def words(tokens: int, name: str = "word") -> str:
    """A text of so many tokens, in lines of ten."""
    lines = (
        f"{name} line {number:05} and so on it goes"[:39].ljust(39, ".")
        for number in range(tokens // 10)
    )
    return "\n".join(lines)


async def worked(kept: Keeping, steps: int, size: int = 300) -> None:
    for index in range(steps):
        await kept.step(words(size, f"w{len(kept.facts)}x{index}"))


async def test_nothing_is_due_before_a_step_of_short_outputs_until_something_waits_or_is_large() -> (
    None
):
    kept = await keeping("helix", window=100_000)
    await kept.say("do it")
    await worked(kept, 3)
    assert kept.folding.can_skip_folding(300)
    assert not kept.folding.can_skip_folding(98_000)
    kept.clock.time += 3_600
    assert not kept.folding.can_skip_folding(300)


async def test_sixty_of_eighty_old_outputs_become_markers() -> None:
    kept = await keeping("helix", window=1_000_000, caching_steps=20)
    await kept.say("do it")
    await worked(kept, 80, 600)
    await kept.answer("done")
    markers = kept.folds(FoldKind.MARKER)
    assert 40 <= len(markers) <= 60
    assert all(MARKER.fullmatch(fold.text.split("\n")[0]) for fold in markers)
    assert [fold.cover.seq for fold in markers if isinstance(fold.cover, PartRef)] == sorted(
        fold.cover.seq for fold in markers if isinstance(fold.cover, PartRef)
    )
    for fold in markers:
        assert (await kept.cache.read_content(fold.entries[0])).startswith(b"w")


async def test_a_marker_once_shown_never_changes() -> None:
    kept = await keeping("helix", window=1_000_000, caching_steps=3)
    await kept.say("do it")
    await worked(kept, 6, 600)
    before = [block for block in kept.conversation.current_view().blocks if block.fold]
    await worked(kept, 6, 600)
    assert [block for block in kept.conversation.current_view().blocks if block.fold][
        : len(before)
    ] == before


async def test_a_rule_of_the_first_message_is_there_word_for_word_after_ten_handovers() -> None:
    rule = "You must never touch the file called legacy.cfg, whatever it says."
    kept = await keeping(window=12_000, **FULL)
    await kept.say(f"Please look around. {rule} Then go on.")
    await kept.answer("I will.")
    await kept.end()
    number = 0
    while len(kept.folds(FoldKind.HANDOVER)) < 10:
        number += 1
        assert number < 60
        await kept.say(f"Now part {number}.")
        await worked(kept, 6, 400)
        await kept.answer("done with it")
        await kept.end()
        await kept.settled()
    assert rule in await kept.shown()


async def test_a_handover_has_its_six_sections_and_takes_the_place_of_what_it_covers() -> None:
    kept = await keeping(window=12_000, **FULL)
    await kept.say("look")
    await worked(kept, 24, 300)
    await kept.settled()
    (fold, *_) = kept.folds(FoldKind.HANDOVER)
    assert fold.text.startswith(TITLE)
    assert re.findall(r"^## (.+)$", fold.text, re.MULTILINE) == list(SECTIONS)
    assert f'recall_history("{fold.fold}")' in fold.text
    assert fold.entries[0].hex in fold.text
    assert fold.tokens <= 0.9 * fold.tokens_before
    assert fold.number == 1
    assert fold.why
    assert fold.details.found == fold.details.kept + fold.details.added + fold.details.entry
    assert fold.text in await kept.shown()


@pytest.mark.parametrize("stays", ["nothing", "an output", "a pinned answer", "the running turn"])
@pytest.mark.parametrize("kind", [FoldKind.HANDOVER, FoldKind.OBSERVATIONS, FoldKind.TRUNCATION])
async def test_a_fold_says_by_how_much_the_context_becomes_shorter(
    kind: FoldKind, stays: str
) -> None:
    """The line said "2.4K → 409 tokens", and the meter fell by 1.0K: an output whose excerpt had
    been undone stays beside the summary.
    """
    kept = await keeping(window=32_000)
    for number in range(6):
        await kept.say(words(150, f"asked{number}"))
        await worked(kept, 2, 300)
        await kept.answer(words(60, f"answered{number}"))
        if stays != "the running turn" or number < 3:
            await kept.end()
    outputs = [one.seq for one in kept.facts if isinstance(one.fact, ToolReturned)]
    if stays == "an output":
        await kept.folding.fold_on_demand(FoldKind.MARKER)
        for fold in kept.folds(FoldKind.MARKER)[:3]:
            await kept.folding.unfold(fold.fold)
    if stays == "a pinned answer":
        await kept.conversation.append_facts(Pinned(PartRef(outputs[1])))
    before = kept.conversation.state.counted_tokens
    (recorded,) = await kept.folding.fold_on_demand(kind)
    assert isinstance(recorded.fact, Folded)
    shorter = recorded.fact.tokens_before - recorded.fact.tokens
    assert shorter == before - kept.conversation.state.counted_tokens
    await kept.folding.unfold(recorded.fact.fold)
    assert kept.conversation.state.counted_tokens == before


async def test_the_tail_of_a_running_turn_is_left_alone() -> None:
    kept = await keeping(window=16_000, **FULL)
    first = await kept.say("the task itself")
    await worked(kept, 45, 300)
    await kept.settled()
    assert kept.folds(FoldKind.HANDOVER)
    branch = kept.conversation.state.branch
    for fold in kept.folds():
        assert not fold.panic
        if isinstance(fold.cover, Span):
            assert fold.cover.last < branch.steps[-8]
    assert any(
        b.source == PartRef(first) and b.content == Text("the task itself", 4)
        for b in kept.conversation.current_view().blocks
    )


async def test_one_turn_that_alone_fills_the_window_goes_on() -> None:
    kept = await keeping(window=12_000, answer=writers.fails)
    await kept.say("a long task")
    for _ in range(60):
        await kept.step(words(350))
        assert kept.conversation.current_meter().used <= 12_000
    await kept.folding.apply_due_folds()
    assert kept.conversation.current_meter().request_fits
    await kept.request()


async def test_a_window_that_one_batch_fills_is_brought_under_by_excerpts() -> None:
    kept = await keeping("helix", window=12_000, answer=writers.fails)
    await kept.say("a task")
    await kept.batch([words(1_000, f"b{index}_") for index in range(8)])
    await kept.folding.apply_due_folds()
    assert kept.conversation.current_meter().request_fits
    assert all(fold.panic for fold in kept.folds())
    await kept.request()


@pytest.mark.parametrize(
    "answer",
    [writers.fails, writers.empty, writers.wrong_form, writers.other_language, writers.too_long],
)
async def test_whatever_the_writer_does_the_turn_goes_on_and_nothing_is_lost(
    answer: writers.Answer,
) -> None:
    kept = await keeping(window=12_000, answer=answer, **FULL)
    rule = "The output must always be written to /srv/data/out.csv and nowhere else."
    await kept.say(f"{rule} Begin.")
    for index in range(40):
        await kept.step(
            f"{words(300)}\nValueError: number {index} of /var/log/app{index}.log",
            ok=index % 5 != 0,
        )
        await kept.settled()
    await kept.folding.apply_due_folds()
    assert kept.conversation.current_meter().request_fits
    shown = await kept.shown()
    assert rule in shown
    assert any(isinstance(fold.cover, Span) for fold in kept.folds())
    entries = "".join(
        [
            (await kept.cache.read_content(fold.entries[0])).decode()
            for fold in kept.folds()
            if fold.fold in kept.conversation.state.branch.live
        ]
    )
    for index in range(20):
        assert f"/var/log/app{index}.log" in shown + entries


async def test_a_writer_that_hangs_costs_a_turn_no_time_as_long_as_there_is_room() -> None:
    kept = await keeping(window=12_000, hangs=True, **FULL)
    await kept.say("a task")
    await worked(kept, 22, 300)
    assert kept.folding.describe_next_fold() == "Being shortened: summary."
    assert await lasted(kept.folding.apply_due_folds()) < 1
    await kept.folding.aclose()


async def test_a_writer_that_hangs_is_left_for_the_last_rung_where_there_is_no_room() -> None:
    kept = await keeping(window=14_000, hangs=True, panic_wait=0.02, **FULL)
    await kept.say("a task")
    await worked(kept, 40, 300)
    await kept.folding.apply_due_folds()
    assert kept.conversation.current_meter().request_fits
    assert kept.folds(FoldKind.TRUNCATION)
    await kept.folding.aclose()


async def test_three_failures_in_a_row_open_the_breaker_until_it_is_closed() -> None:
    kept = await keeping(window=100_000, answer=writers.fails, **FULL | {"handover_share": 0.1})
    await kept.say("a task")
    for _ in range(20):
        await worked(kept, 3, 500)
        await kept.settled()
        kept.clock.time += 120
    asked = len(kept.writers["fast"].requests)
    assert [failure.kind for failure in kept.failures()] == [FoldKind.HANDOVER] * 3
    await worked(kept, 3, 500)
    await kept.settled()
    assert len(kept.writers["fast"].requests) == asked
    await kept.conversation.append_facts(BreakerClosed(FoldKind.HANDOVER))
    kept.writers["fast"].answer = kept.writers["main"].answer = writers.good
    # What was truncated meanwhile must grow again before a handover is due.
    for _ in range(10):
        await worked(kept, 3, 500)
        await kept.settled()
    assert kept.folds(FoldKind.HANDOVER)


async def test_only_one_fold_is_in_flight_and_it_can_be_cancelled() -> None:
    kept = await keeping(window=12_000, hangs=True, **FULL)
    await kept.say("a task")
    await worked(kept, 22, 300)
    assert len([task for task in kept.tasks._running if "handover" in task.get_name()]) == 1
    with pytest.raises(ActionRefused, match="already being shortened"):
        await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert kept.folding.kind_in_progress is FoldKind.HANDOVER
    kept.folding.cancel_fold_in_work()
    await kept.settled()
    assert kept.folds(FoldKind.HANDOVER) == []
    assert kept.folding.kind_in_progress is None
    assert not kept.tasks._running


async def test_a_fold_that_the_user_stops_is_said_to_be_stopped_and_not_an_older_failure() -> None:
    kept = await keeping(window=100_000)
    await kept.say("a task")
    await worked(kept, 12, 300)
    await kept.conversation.append_facts(FoldFailed(FoldKind.HANDOVER, "The provider is busy."))
    kept.writers["main"].gate = kept.writers["fast"].gate = asyncio.Event()
    folding = kept.tasks.spawn_task(kept.folding.fold_on_demand(FoldKind.HANDOVER), name="asked")
    await asyncio.sleep(0)
    kept.folding.cancel_fold_in_work()
    with pytest.raises(NoDocumentWritten, match="Nothing was shortened: you stopped it"):
        await folding


async def test_a_fold_that_a_turn_adopts_first_is_not_said_to_be_stopped() -> None:
    """Somebody sent a message meanwhile: the summary was there, and "you stopped it" was said."""
    kept = await keeping(window=100_000)
    await kept.say("a task")
    await worked(kept, 12, 300)

    def adopt_as_a_turn_does(event: Event) -> None:
        if isinstance(event, FoldProgress) and event.done:
            kept.tasks.spawn_task(kept.folding.adopt_ready_fold(), name="turn")

    kept.conversation.listeners.append(adopt_as_a_turn_does)
    (recorded,) = await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert isinstance(recorded.fact, Folded)


def dollars_of_fold(kept: Keeping, kind: FoldKind) -> float | None:
    forecast = kept.folding.forecast_fold_on_demand(kind)
    assert forecast is not None
    return forecast.dollars


@pytest.mark.parametrize("kind", [FoldKind.HANDOVER, FoldKind.OBSERVATIONS, FoldKind.MARKER])
async def test_what_a_fold_sends_and_frees_is_known_before_it_is_made(kind: FoldKind) -> None:
    """The dialog said "This costs nothing", and the summary then sent 8.8K tokens."""
    kept = await keeping(window=100_000)
    for number in range(6):
        await kept.say(words(150, f"asked{number}"))
        await worked(kept, 2, 600)
        await kept.answer(words(60, f"answered{number}"))
        await kept.end()
    forecast = kept.folding.forecast_fold_on_demand(kind)
    assert forecast is not None
    before = kept.folding.current_situation().meter.used
    await kept.folding.fold_on_demand(kind)
    freed = before - kept.folding.current_situation().meter.used
    # "At least about 235 tokens less" were 1,100.
    assert 0.9 * forecast.freed <= freed <= 1.6 * forecast.freed
    requests = [request for writer in kept.writers.values() for request in writer.requests]
    if kind is FoldKind.MARKER:
        assert requests == []
        assert forecast.sent == 0
        assert freed <= 1.2 * forecast.freed
    else:
        sent = sum(count_sent_tokens(kept, request) for request in requests)
        assert forecast.sent == pytest.approx(sent, rel=0.15)


def count_sent_tokens(kept: Keeping, request: Request) -> int:
    texts = [
        getattr(part, "text", "") + getattr(part, "arguments", "")
        for message in request.messages
        for part in message.parts
    ]
    return sum(kept.tokens.count_tokens(text) for text in texts)


async def test_each_further_try_sends_about_as_much_as_the_first() -> None:
    """6.4K tokens were announced, and 10.8K used: the first answer had not the form that was asked."""
    kept = await keeping(window=100_000, answer=writers.wrong_form)
    for number in range(6):
        await kept.say(words(150, f"asked{number}"))
        await worked(kept, 2, 600)
        await kept.answer(words(60, f"answered{number}"))
        await kept.end()
    forecast = kept.folding.forecast_fold_on_demand(FoldKind.HANDOVER)
    assert forecast is not None
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    requests = [request for writer in kept.writers.values() for request in writer.requests]
    sent_tokens = [count_sent_tokens(kept, request) for request in requests]
    first, second, sections_that_were_missing = sent_tokens
    assert first == pytest.approx(forecast.sent, rel=0.2)
    assert second == pytest.approx(forecast.sent, rel=0.2)
    assert sections_that_were_missing < 100


async def test_nothing_is_forecast_where_no_old_output_is_long_enough_for_a_line() -> None:
    kept = await keeping(window=100_000)
    await kept.say("a task")
    await kept.answer("done")
    assert kept.folding.forecast_fold_on_demand(FoldKind.MARKER) is None
    with pytest.raises(ActionRefused):
        await kept.folding.fold_on_demand(FoldKind.MARKER)


async def test_what_a_fold_costs_is_known_before_it_is_made() -> None:
    kept = await keeping(window=100_000)
    await kept.say("a task")
    await worked(kept, 12, 300)
    assert dollars_of_fold(kept, FoldKind.HANDOVER) is None, "the price is not known"
    await kept.conversation.append_facts(
        ModelSet(ModelRole.MAIN, "main", 100_000, price_input=3.0, price_output=15.0)
    )
    cost, listed = (
        dollars_of_fold(kept, kind) for kind in (FoldKind.HANDOVER, FoldKind.OBSERVATIONS)
    )
    assert cost is not None
    assert listed is not None
    assert 0.001 < cost <= listed < 0.1, "a transcript is not in the provider's cache"
    assert dollars_of_fold(kept, FoldKind.MARKER) == 0


async def test_what_a_fold_costs_is_what_its_own_request_may_cost() -> None:
    """A summary that cost $0.006 was announced for $0.072: with what the next message caches."""
    kept = await keeping(window=32_000)
    main = ModelSet(ModelRole.MAIN, "main", 32_000, price_input=3.0, price_output=15.0)
    await kept.conversation.append_facts(main)
    await kept.say("a task")
    await worked(kept, 12, 300)
    meter = kept.folding.current_situation().meter
    announced = dollars_of_fold(kept, FoldKind.HANDOVER)
    assert announced is not None
    reading = (meter.used + QUESTION_TOKENS) * 3.0 / 1e6
    assert reading < announced
    longest_document = (announced - reading) / 15.0 * 1e6
    assert longest_document < meter.used, "it would replace nothing else"


async def test_no_cost_is_said_where_too_little_could_be_shortened() -> None:
    """The dialog said "at most about $0.012" was said, and then that there is too little to shorten."""
    kept = await keeping(window=32_000)
    main = ModelSet(ModelRole.MAIN, "main", 32_000, price_input=3.0, price_output=15.0)
    await kept.conversation.append_facts(main)
    await kept.say("a task")
    await worked(kept, 6, 20)
    with pytest.raises(ActionRefused, match="too little to shorten"):
        await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert kept.folding.forecast_fold_on_demand(FoldKind.HANDOVER) is None


async def test_a_fold_is_said_to_cost_more_if_the_providers_cache_cannot_be_read() -> None:
    """Rules had been added: a handover that cost $0.10 was announced for $0.03."""
    kept = await keeping(window=100_000)
    main = ModelSet(
        ModelRole.MAIN, "main", 100_000, price_input=3.0, price_output=15.0, price_cache_read=0.3
    )
    await kept.conversation.append_facts(main)
    await kept.say("a task")
    await worked(kept, 12, 300)
    usage = Usage(kept.folding.current_situation().meter.used, output=5)
    await kept.conversation.append_facts(
        ModelReplied((Text("done", 1),), "main", Stop.END, usage, kept.conversation.state.seq)
    )
    warm = dollars_of_fold(kept, FoldKind.HANDOVER)
    kept.conversation.set_expected_settings([SystemSet("Other rules.", 3)])
    changed = dollars_of_fold(kept, FoldKind.HANDOVER)
    kept.conversation.set_expected_settings([])
    kept.clock.time += 24 * 3600
    assert dollars_of_fold(kept, FoldKind.HANDOVER) == changed
    assert warm is not None
    assert changed is not None
    assert changed > 1.1 * warm


async def test_the_cooldown_keeps_handovers_apart() -> None:
    kept = await keeping(window=100_000, handover_cooldown=600, **FULL | {"handover_share": 0.1})
    await kept.say("a task")
    for _ in range(15):
        await worked(kept, 10, 500)
        await kept.settled()
    times = [
        one.time
        for one in kept.facts
        if isinstance(one.fact, Folded) and one.fact.kind is FoldKind.HANDOVER
    ]
    assert len(times) >= 2
    assert all(later - earlier >= 600 for earlier, later in itertools.pairwise(times))


async def test_a_clock_that_is_put_back_holds_up_no_handover() -> None:
    kept = await keeping(window=100_000, handover_cooldown=600, **FULL | {"handover_share": 0.1})
    await kept.say("a task")
    while not kept.folds(FoldKind.HANDOVER):
        await worked(kept, 10, 500)
        await kept.settled()
    before = len(kept.folds(FoldKind.HANDOVER))
    kept.clock.time -= 86_400 * 365
    for _ in range(8):
        await worked(kept, 10, 500)
        await kept.settled()
    assert len(kept.folds(FoldKind.HANDOVER)) > before


async def test_a_clock_that_is_put_back_makes_no_failure_rest_for_ever() -> None:
    kept = await keeping(window=100_000, answer=writers.fails, **FULL | {"handover_share": 0.1})
    await kept.say("a task")
    while not kept.failures():
        await worked(kept, 3, 500)
        await kept.settled()
    kept.clock.time -= 86_400
    kept.writers["fast"].answer = kept.writers["main"].answer = writers.good
    await worked(kept, 3, 500)
    await kept.settled()
    assert kept.folds(FoldKind.HANDOVER)


async def being_written() -> tuple[Keeping, asyncio.Event]:
    """A conversation of which a handover is being written, and the gate that its
    writers wait at.
    """
    kept = await keeping(window=12_000, **FULL)
    gate = kept.writers["main"].gate = kept.writers["fast"].gate = asyncio.Event()
    await kept.say("a task")
    await worked(kept, 24, 300)
    return kept, gate


async def test_what_a_document_cost_is_recorded_whatever_becomes_of_it() -> None:
    for become in ("changed", "closed", "asked for again"):
        kept, gate = await being_written()
        gate.set()
        await kept.end()
        await kept.settled()
        assert kept.folds() == []
        if become == "changed":
            await kept.conversation.append_facts(Pinned(PartRef(4)))
            await kept.settled()
        elif become == "closed":
            await kept.folding.aclose()
        else:
            await kept.say("and another")
            await kept.folding.fold_on_demand(FoldKind.HANDOVER)
        spent = [one.fact for one in kept.facts if isinstance(one.fact, Spent)]
        assert len(spent) == (2 if become == "asked for again" else 1), become


async def test_who_asks_for_a_fold_and_changes_what_it_covers_is_told_why_there_is_none() -> None:
    kept = await keeping(window=100_000)
    gate = kept.writers["main"].gate = kept.writers["fast"].gate = asyncio.Event()
    await kept.say("a task")
    await worked(kept, 12, 300)
    folding = kept.tasks.spawn_task(kept.folding.fold_on_demand(FoldKind.HANDOVER), name="asked")
    await asyncio.sleep(0)
    await kept.conversation.append_facts(Pinned(PartRef(4)))
    gate.set()
    with pytest.raises(NoDocumentWritten, match="changed in the meantime"):
        await folding


async def test_a_fold_in_flight_is_dropped_when_what_it_covers_is_changed() -> None:
    for change in (Pinned(PartRef(4)), Excluded(PartRef(4)), Rewound(6)):
        kept, gate = await being_written()
        assert kept.folding.describe_next_fold() == "Being shortened: summary."
        await kept.conversation.append_facts(change)
        gate.set()
        await kept.settled()
        assert kept.folds(FoldKind.HANDOVER) == []


async def test_what_was_begun_in_a_turn_that_is_over_waits_for_the_next_one() -> None:
    kept, gate = await being_written()
    gate.set()
    await kept.end()
    await kept.settled()
    assert kept.folds() == []
    await kept.say("and another")
    await kept.folding.apply_due_folds()
    assert [fold.kind for fold in kept.folds()] == [FoldKind.HANDOVER]


async def _left_alone(seconds: float, usage: Usage = Usage(), **values: Any) -> Keeping:  # noqa: B008 -- it is frozen
    """A conversation of two turns that is too small for a handover, and so much time after it."""
    kept = await keeping(window=100_000, **{"caching": "off"} | values)
    for name in ("a task", "another"):
        await kept.say(name)
        await worked(kept, 10, 2_500 if name == "a task" else 100)
        await kept.folding.apply_due_folds()
        done = ModelReplied((Text("done", 1),), "main", Stop.END, usage)
        await kept.conversation.append_facts(done)
        await kept.end()
    kept.clock.time += seconds
    await asyncio.sleep(seconds)
    await kept.settled()
    return kept


def test_before_a_pause_outlives_the_providers_cache_what_pays_is_folded() -> None:
    async def leave() -> None:
        kept = await _left_alone(USUAL_SECONDS - WRITING_SECONDS)
        assert [fold.kind for fold in kept.folds(FoldKind.HANDOVER)] == [FoldKind.HANDOVER]
        assert "after this pause" in kept.folds(FoldKind.HANDOVER)[0].why
        assert "another" in await kept.shown(), "the last turn stays as it is"

    async def come_back() -> None:
        kept = await _left_alone(USUAL_SECONDS - 3 * WRITING_SECONDS)
        await kept.say("and another")
        await kept.step("short")
        await asyncio.sleep(2 * WRITING_SECONDS)
        await kept.settled()
        assert kept.folds(FoldKind.HANDOVER) == [], "no pause outlived the cache"

    async def folds_nothing() -> None:
        assert (await _left_alone(USUAL_SECONDS - WRITING_SECONDS, handover="off")).folds(
            FoldKind.HANDOVER
        ) == []

    async def leave_what_is_cached_for_an_hour() -> None:
        """Claude Code asks for an hour: it was folded before pauses that cost nothing."""
        hourly = Usage(27_000, 26_000, 1_000, 10, cache_write_hour=1_000)
        kept = await _left_alone(USUAL_SECONDS - WRITING_SECONDS, hourly)
        assert kept.folds(FoldKind.HANDOVER) == []
        kept = await _left_alone(HOUR_SECONDS - WRITING_SECONDS, hourly)
        assert [fold.kind for fold in kept.folds(FoldKind.HANDOVER)] == [FoldKind.HANDOVER]

    for work in (leave, come_back, folds_nothing, leave_what_is_cached_for_an_hour):
        simulated_clock.run_on_jumping_loop(work())


async def test_a_document_that_is_ready_is_not_lost_when_the_conversation_closes() -> None:
    kept = await keeping(window=100_000, **FULL | {"handover_share": 0.1})
    await kept.say("a task")
    await worked(kept, 40, 500)
    await asyncio.wait([kept.folding._writing_task] if kept.folding._writing_task else [])
    before = len(kept.folds(FoldKind.HANDOVER))
    assert not kept.folding.has_no_fold_in_work
    await kept.folding.aclose()
    assert len(kept.folds(FoldKind.HANDOVER)) == before + 1


async def test_fold_now_with_a_wish() -> None:
    kept = await keeping(window=100_000)
    await kept.say("a task")
    await worked(kept, 12, 300)
    (recorded,) = await kept.folding.fold_on_demand(FoldKind.HANDOVER, "the numbers of the tests")
    assert isinstance(recorded.fact, Folded)
    assert recorded.fact.asked == "the numbers of the tests"
    writer = kept.writers[recorded.fact.model]
    assert "the numbers of the tests" in str(writer.requests[0].messages[-1])


async def test_fold_now_says_why_there_is_nothing_to_fold() -> None:
    kept = await keeping(window=100_000)
    await kept.say("a task")
    for kind in (
        FoldKind.HANDOVER,
        FoldKind.MARKER,
        FoldKind.OBSERVATIONS,
        FoldKind.REFLECTION,
        FoldKind.TRUNCATION,
    ):
        with pytest.raises(ActionRefused):
            await kept.folding.fold_on_demand(kind)


async def test_every_kind_of_fold_can_be_asked_for() -> None:
    kept = await keeping(window=100_000, answer=writers.much)
    await kept.say("a task")
    await worked(kept, 12, 300)
    assert await kept.folding.fold_on_demand(FoldKind.MARKER)
    await worked(kept, 4, 300)
    assert await kept.folding.fold_on_demand(FoldKind.OBSERVATIONS)
    await worked(kept, 4, 300)
    assert await kept.folding.fold_on_demand(FoldKind.OBSERVATIONS)
    assert await kept.folding.fold_on_demand(FoldKind.REFLECTION)
    await worked(kept, 4, 300)
    assert await kept.folding.fold_on_demand(FoldKind.TRUNCATION)
    kinds = {fold.kind for fold in kept.folds()}
    assert kinds == {
        FoldKind.MARKER,
        FoldKind.OBSERVATIONS,
        FoldKind.REFLECTION,
        FoldKind.TRUNCATION,
    }
    await kept.request()


async def test_undo_is_exact_and_the_same_facts_are_not_folded_again() -> None:
    kept = await keeping("helix", window=100_000, caching_steps=8)
    await kept.say("a task")
    await worked(kept, 17, 600)
    await kept.folding.apply_due_folds()
    fold = kept.folds(FoldKind.MARKER)[0]
    before = len(kept.folds())
    await kept.folding.unfold(fold.fold)
    await kept.folding.apply_due_folds()
    assert len(kept.folds()) == before
    assert any(
        block.source == fold.cover and not block.fold
        for block in kept.conversation.current_view().blocks
    )
    await kept.folding.refold(fold.fold)
    assert any(block.fold == fold.fold for block in kept.conversation.current_view().blocks)


@pytest.mark.parametrize(
    "kind", [FoldKind.HANDOVER, FoldKind.OBSERVATIONS, FoldKind.TRUNCATION, FoldKind.MARKER]
)
async def test_fold_now_folds_again_what_was_folded_and_undone(kind: FoldKind) -> None:
    kept = await keeping(window=100_000)
    await kept.say("a task")
    await worked(kept, 12, 600)
    await kept.folding.fold_on_demand(kind)
    first = kept.folds(kind)
    for fold in first:
        await kept.folding.unfold(fold.fold)
    await worked(kept, 6, 600)
    await kept.folding.fold_on_demand(kind)
    again = kept.folds(kind)[len(first) :]
    if kind is FoldKind.MARKER:
        assert {fold.cover for fold in first} < {fold.cover for fold in again}
    else:
        (span,) = (fold.cover for fold in again)
        assert isinstance(span, Span)
        assert first_and_last(first[0].cover)[0] == span.first
    await kept.request()


async def test_undo_is_refused_with_the_figures_where_the_view_would_not_fit() -> None:
    kept = await keeping(window=100_000, tail_steps=3)
    await kept.say("a task")
    await worked(kept, 40, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (fold,) = kept.folds(FoldKind.HANDOVER)
    await kept.conversation.append_facts(ModelSet(ModelRole.MAIN, "smaller", 8_000))
    with pytest.raises(ActionRefused, match=r"would add [\d,]+ tokens, but only [\d,]+ are free"):
        await kept.folding.unfold(fold.fold)
    assert fold.fold in kept.conversation.state.branch.live
    kept.conversation.set_expected_settings(
        [ModelSet(ModelRole.MAIN, "larger", 100_000)]
    )  # chosen, and not asked anything yet
    await kept.folding.unfold(fold.fold)
    assert fold.fold not in kept.conversation.state.branch.live


async def test_an_output_that_was_forgotten_is_neither_recallable_nor_brought_back_by_an_undo() -> (
    None
):
    kept = await keeping("helix", window=100_000, caching_steps=8)
    await kept.say("a task")
    await worked(kept, 17, 600)
    await kept.folding.apply_due_folds()
    fold, *others = kept.folds(FoldKind.MARKER)
    state = kept.conversation.state
    assert state.count_recallable_tokens() == sum(each.tokens_before for each in (fold, *others))
    await kept.conversation.append_facts(Forgotten(fold.entries, 1))
    left = sum(each.tokens_before for each in others)
    assert state.count_recallable_tokens() == left
    with pytest.raises(ActionRefused, match="permanently removed at your request"):
        await kept.folding.unfold(fold.fold)
    before = state.seq - 1
    forgotten = state.seq
    await kept.conversation.append_facts(Rewound(before))  # On another branch it is gone as well.
    assert state.count_recallable_tokens() == left
    assert state.past_moment(forgotten).count_recallable_tokens() == left
    assert state.past_moment(before).count_recallable_tokens() == left + fold.tokens_before


async def test_undo_and_redo_of_what_is_not_there() -> None:
    kept = await keeping()
    with pytest.raises(NotFound):
        await kept.folding.unfold("handover-1")
    with pytest.raises(NotFound):
        await kept.folding.refold("handover-1")


async def test_three_nested_handovers() -> None:
    """Undo of the first, rewind behind it, fork before it, and the parent's end is not
    the fork's.
    """
    kept = await keeping(window=1_000_000)
    await kept.say("a task")
    for _ in range(3):
        await worked(kept, 12, 300)
        await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    one, two, three = kept.folds(FoldKind.HANDOVER)
    assert [fold.number for fold in (one, two, three)] == [1, 2, 3]
    assert isinstance(one.cover, Span)
    assert isinstance(three.cover, Span)
    assert one.cover.first == three.cover.first
    shown = kept.conversation.current_view()
    await kept.folding.unfold(one.fold)
    assert kept.conversation.current_view() == shown
    made = next(r.seq for r in kept.facts if r.fact == two)
    before = [r.fact for r in kept.facts[: made - 1]]
    await kept.conversation.journal.append_to_journal(
        "forked", [*before, ConversationStarted(forked_from="kept", forked_at=made - 1)]
    )
    await kept.conversation.append_facts(Rewound(made - 1))
    assert [
        fold.fold for fold in kept.conversation.state.live_folds if isinstance(fold.cover, Span)
    ] == [one.fold]
    await kept.request()
    forked = await kept.conversation.open(kept.conversation.journal, "forked")
    assert forked.current_view() == kept.conversation.current_view()


async def test_a_document_the_user_edited_is_the_source_of_the_next() -> None:
    kept = await keeping(window=1_000_000)
    await kept.say("a task")
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    (fold,) = kept.folds(FoldKind.HANDOVER)
    await kept.conversation.append_facts(DocumentEdited(fold.fold, f"{TITLE}\nin my own words", 5))
    assert "in my own words" in await kept.shown()
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    asked = [
        str(request.messages) for writer in kept.writers.values() for request in writer.requests
    ]
    assert any("in my own words" in text for text in asked)


async def test_observations_are_appended_and_reflected() -> None:
    kept = await keeping(
        "observational",
        window=12_000,
        answer=writers.much,
        observation_share=0.2,
        reflection_share=0.1,
    )
    await kept.say("a task")
    for _ in range(12):
        await worked(kept, 5, 200)
        await kept.settled()
    kinds = {fold.kind for fold in kept.folds()}
    assert FoldKind.OBSERVATIONS in kinds
    assert FoldKind.REFLECTION in kinds
    await kept.request()


async def test_none_folds_nothing() -> None:
    kept = await keeping("none", window=3_000)
    await kept.say("a task " + words(2_000))
    await worked(kept, 10, 600)
    assert kept.folds() == []
    assert kept.failures() == []
    assert kept.writers["main"].requests == []


async def test_a_refusal_of_the_provider_folds_though_the_meter_says_it_fits() -> None:
    kept = await keeping(window=100_000)
    await kept.say("a task")
    await worked(kept, 20, 300)
    used = kept.conversation.current_meter().used
    await kept.folding.apply_due_folds(overflowed=True)
    assert kept.conversation.current_meter().used <= 0.8 * used


async def test_a_program_started_again_goes_on_the_same() -> None:
    kept = await keeping(window=12_000, **FULL)
    await kept.say("a task")
    await worked(kept, 24, 300)
    await kept.settled()
    again = await kept.reopened()
    assert again.conversation.current_view() == kept.conversation.current_view()
    await worked(again, 16, 300)
    await again.settled()
    names = [fold.fold for fold in again.folds()]
    assert len(names) == len(set(names))
    await again.request()


async def test_a_strategy_switched_off_by_the_user_rests() -> None:
    kept = await keeping(window=16_000)
    await kept.conversation.append_facts(
        context_policy.preset_policy("layered")
        .with_thresholds({"handover": "off", "caching": "off"})
        .to_policy_fact()
    )
    await kept.say("a task")
    await worked(kept, 15, 300)
    assert kept.folds() == []


async def test_the_forecast_says_in_a_line_what_comes_next() -> None:
    kept = await keeping("helix", window=100_000, handover_share=0.2)
    assert kept.folding.describe_next_fold() == (
        "Outputs become one line each after 10 steps. A summary when the window is 20% full."
    )
    await kept.say("a task")
    await worked(kept, 20, 600)
    kept.writers["main"].hangs = kept.writers["fast"].hangs = True
    await worked(kept, 1, 600)
    assert kept.folding.describe_next_fold() == "Next: old outputs become one line each."
    await worked(kept, 60, 400)
    assert kept.folding.describe_next_fold() == "Being shortened: summary."
    await kept.folding.aclose()


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("helix", "Outputs become one line each after 10 steps. A summary when the window is "),
        ("layered", "A summary when the window is 80% full, or earlier if that saves money."),
        ("observational", "Dated notes when older messages fill 30% of the window."),
        ("none", "This setting never shortens anything."),
    ],
)
async def test_the_forecast_of_an_empty_conversation_is_its_policy(preset: str, words: str) -> None:
    assert words in (await keeping(preset)).folding.describe_next_fold()


async def test_pins_stay_word_for_word_behind_a_handover() -> None:
    kept = await keeping(window=100_000)
    await kept.say("a task")
    output = await kept.step("the very words\nof this output")
    await kept.conversation.append_facts(Pinned(PartRef(output)))
    await worked(kept, 12, 300)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert "the very words\nof this output" in await kept.shown()


async def test_a_part_brought_back_stays_out_of_the_next_handover() -> None:
    kept = await keeping("helix", window=100_000, caching_steps=8)
    await kept.say("a task")
    await worked(kept, 17, 600)
    await kept.folding.apply_due_folds()
    fold = kept.folds(FoldKind.MARKER)[0]
    await kept.conversation.append_facts(Unfolded(fold.fold))
    await worked(kept, 10, 600)
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    original = (await kept.cache.read_content(fold.entries[0])).decode()
    assert original in await kept.shown()


async def _away(limit: float, lives: int, **chosen: Any) -> tuple[Trial, list[Spent]]:
    """An agent that has worked, and whose user is away for so many lives of the
    provider's cache; what was spent meanwhile.
    """
    trial = await Trial.start()
    folding = trial.made.session.folding
    folding._clock = trial.clock
    trial.made.setup = replace(
        trial.made.setup, policy=PolicySet("none", (("keep_alive_dollars", limit),))
    )
    trial.made.setup = replace(trial.made.setup, models=(replace(MODEL, **chosen),))
    await trial.turn()
    await _pass_lives(trial, lives)
    return trial, trial.made.of(Spent)


async def _pass_lives(trial: Trial, lives: int) -> None:
    """In the loop's time; what is due at the end of each is done before the next begins."""
    for _ in range(lives):
        trial.clock.time += LIFE - WRITING_SECONDS
        await asyncio.sleep(LIFE - WRITING_SECONDS)
        await asyncio.sleep(1)


def test_a_cache_is_kept_alive_in_a_pause_only_within_the_users_limit_and_while_it_pays() -> None:
    async def stays_off() -> None:
        trial, spent = await _away(0.0, 3)
        assert spent == []
        assert CauseKind.TIME in named((await trial.explain())[-2])

    async def is_kept() -> None:
        trial, spent = await _away(1.0, 3)
        assert [one.purpose for one in spent] == [Purpose.KEEP_ALIVE] * 3
        assert all(one.usage.cache_read > 0.9 * one.usage.input for one in spent)
        price = trial.made.session.context.next_message_cost()
        assert price is not None
        assert price.is_cache_warm(trial.clock.time)
        assert price.kept == pytest.approx(sum(trial.model.paid[-3:]))
        requests = await trial.explain()
        check_sums(trial, requests)
        assert CauseKind.TIME not in named(requests[-2])
        after = trial.made.session.context.next_message_cost()
        assert after is not None
        assert after.kept == 0, "it is told of the pause alone"

    async def ends_where_it_does_not_pay() -> None:
        trial, spent = await _away(100.0, 60)
        assert 3 < len(spent) < 12
        assert CauseKind.TIME in named((await trial.explain())[-2])

    async def keeps_to_the_limit() -> None:
        trial, spent = await _away(0.008, 8)
        once = trial.model.paid[-1]
        assert len(spent) == 0.008 // once > 0

    async def thinks() -> None:
        assert (await _away(1.0, 3, effort="high"))[1] == []

    async def is_lost() -> None:
        trial, spent = await _away(1.0, 1)
        trial.model.caches.clear()
        await _pass_lives(trial, 3)
        assert len(trial.made.of(Spent)) == len(spent) + 1

    async def has_reached_a_limit_of_all_spending() -> None:
        trial, spent = await _away(1.0, 1)
        session = trial.made.session
        session.folding.spending._services = replace(
            session._services, limits=lambda: TurnLimits(day_cost=2.0), spent=lambda: (2.5, 2.5)
        )
        await _pass_lives(trial, 3)
        assert trial.made.of(Spent) == spent

    for work in (
        stays_off,
        is_kept,
        ends_where_it_does_not_pay,
        keeps_to_the_limit,
        thinks,
        is_lost,
        has_reached_a_limit_of_all_spending,
    ):
        simulated_clock.run_on_jumping_loop(work())


async def test_the_forecast_names_no_figure_that_is_passed_already() -> None:
    """The defect: "Later: above 9,600 tokens" stood beside a context of 10,154."""
    kept = await keeping("layered", window=20_000)
    await kept.say(words(7_000))
    situation = kept.folding.current_situation()
    least_tokens = least_tokens_for_paying_handover(situation)
    assert situation.meter.used > least_tokens
    outlook = describe_policy_outlook(situation)
    assert f"{least_tokens:,.0f}" not in outlook
    assert outlook == "A summary when the window is 80% full, or earlier if that saves money."


async def test_the_forecast_of_a_request_that_does_not_fit_says_that_it_is_shortened_first() -> (
    None
):
    """Few, long messages: no strategy has a fold due, and the next message is refused."""
    kept = await keeping(window=16_000)
    await kept.conversation.append_facts(UserSaid((Text("essay", 16_600),)))
    assert not kept.conversation.current_meter().request_fits
    assert kept.folding.describe_next_fold().startswith("The next message needs shortening first: ")
