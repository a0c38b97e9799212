"""Handovers that fail stop: three attempts, then the conversation goes on without a model."""

from __future__ import annotations

from typing import Any

import pytest

from helix_desktop.engine.automatic_folding import CHANGED_MEANWHILE
from helix_desktop.engine.facts import (
    BreakerClosed,
    Folded,
    FoldFailed,
    FoldKind,
    ModelRole,
    ModelSet,
    Rewound,
    Spent,
)
from helix_desktop.engine.messages import Request
from tests.engine import keeping as writers
from tests.engine.keeping import Keeping, keeping
from tests.engine.test_automatic_folding import being_written, words

OFTEN: dict[str, Any] = {"caching": "off", "handover": "share", "handover_share": 0.1}
KINDS = (FoldKind.HANDOVER, FoldKind.OBSERVATIONS, FoldKind.REFLECTION)


def keeps_no_detail(request: Request) -> str:
    """Says much, and nothing of what was said: longer than what it replaces."""
    return writers.too_long(request)


async def play(kept: Keeping, steps: int, tokens: int = 500) -> None:
    """Steps of an agent, each a quarter of an hour after the one before; none is over the window."""
    for number in range(steps):
        await kept.step(words(tokens, f"n{number}"))
        await kept.settled()
        kept.clock.time += 900
        await kept.folding.apply_due_folds()
        assert kept.conversation.current_meter().request_fits
        await kept.request()


def count_requests(kept: Keeping) -> int:
    return sum(len(writer.requests) for writer in kept.writers.values())


@pytest.mark.parametrize(
    "answer", [writers.fails, writers.empty, writers.wrong_form, keeps_no_detail]
)
@pytest.mark.parametrize("preset", ["layered", "helix"])
async def test_after_three_failed_attempts_no_model_is_asked_and_the_conversation_goes_on(
    answer: writers.Answer, preset: str
) -> None:
    kept = await keeping(preset, window=30_000, answer=answer, admission="off")
    await kept.say("Never touch main.py.")
    await play(kept, 150)
    # A document that says little is used as it is, so there are handovers, one request for each.
    failed = [one for one in kept.failures() if one.kind in KINDS]
    assert len(failed) <= 3
    if failed and not kept.folds(FoldKind.HANDOVER):
        assert len(failed) == 3
        assert count_requests(kept) <= 3
        assert failed[-1].why.startswith("After 3 failed attempts, which cost ")
        assert kept.folds(FoldKind.TRUNCATION) or kept.folds(FoldKind.MARKER)
    assert "Never touch main.py." in await kept.shown()


async def test_a_failed_attempt_is_repeated_after_twice_the_time_by_the_next_way() -> None:
    kept = await keeping(window=100_000, answer=writers.fails, **OFTEN)
    await kept.say("a task")
    times: list[float] = []
    for number in range(60):
        await kept.step(words(500, f"n{number}"))
        await kept.settled()
        if len(kept.failures()) > len(times):
            times.append(kept.clock.time)
    assert len(times) == 3
    assert 60 <= times[1] - times[0] < 120 <= times[2] - times[1]
    assert count_requests(kept) == 3


async def test_a_rewind_does_not_begin_the_count_again() -> None:
    """The failures lie on the branch that was left, but they were paid."""
    kept = await keeping(window=100_000, answer=writers.fails, **OFTEN)
    await kept.say("a task")
    for _ in range(6):
        at = kept.conversation.state.seq
        await play(kept, 30)
        await kept.conversation.append_facts(Rewound(at))
        await kept.say("again")
    assert len(kept.failures()) == 3
    assert count_requests(kept) == 3


async def test_a_program_started_again_still_knows_the_failures() -> None:
    kept = await keeping(window=100_000, answer=writers.fails, **OFTEN)
    await kept.say("a task")
    await play(kept, 40)
    again = await kept.reopened()
    await play(again, 40)
    assert len([one for one in again.facts if isinstance(one.fact, FoldFailed)]) == 3


@pytest.mark.parametrize("keeps_span", [True, False])
async def test_a_rewind_behind_what_is_covered_wastes_no_document(keeps_span: bool) -> None:
    """Agents send their last messages again, changed: every document was thrown away unsaid."""
    kept, gate = await being_written()
    steps = kept.conversation.state.branch.steps
    back_to = steps[-2] - 1 if keeps_span else steps[3] - 1
    await kept.conversation.append_facts(Rewound(back_to))
    await kept.say("another way")
    gate.set()
    await kept.settled()
    assert bool(kept.folds(FoldKind.HANDOVER)) is keeps_span
    expected = [] if keeps_span else [CHANGED_MEANWHILE]
    assert [one.why for one in kept.failures()] == expected


async def test_a_fold_that_would_make_nothing_shorter_is_never_written_down() -> None:
    kept = await keeping(window=12_000, handover="share", handover_share=0.5, caching="off")
    await kept.say("a task")
    for number in range(30):
        await kept.step(words(300, f"n{number}"))
        await kept.settled()
    branch = kept.conversation.state.branch
    folds = [one.fact for one in kept.facts if isinstance(one.fact, Folded)]
    assert all(fold.fold in branch.folds for fold in folds)


async def test_a_fold_on_demand_tries_again_and_its_success_ends_the_pause() -> None:
    kept = await keeping(window=100_000, answer=writers.fails, **OFTEN)
    await kept.say("a task")
    await play(kept, 40)
    assert len(kept.failures()) == 3
    kept.writers["fast"].answer = kept.writers["main"].answer = writers.good
    await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    before = len(kept.folds(FoldKind.HANDOVER))
    await play(kept, 40)
    assert len(kept.folds(FoldKind.HANDOVER)) > before


async def test_what_the_attempts_cost_is_said() -> None:
    kept = await keeping(window=100_000, answer=writers.empty, **OFTEN)
    await kept.conversation.append_facts(
        ModelSet(ModelRole.FAST, "fast", 100_000, price_input=1_000.0, price_output=1.0),
        BreakerClosed(FoldKind.HANDOVER),
    )
    await kept.say("a task")
    await play(kept, 40)
    spent = [one.fact for one in kept.facts if isinstance(one.fact, Spent)]
    assert len(spent) == 3
    assert "330 tokens" in kept.failures()[-1].why
