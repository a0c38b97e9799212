"""A reached cost limit stops every request that the program sends, and each one's cost
is recorded at once.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.facts import (
    Folded,
    FoldFailed,
    FoldKind,
    Spent,
    Stop,
    ToolCall,
    TurnEnd,
    TurnEnded,
    Usage,
)
from helix_desktop.engine.messages import Reply, Request
from helix_desktop.engine.ports import CallContext
from helix_desktop.engine.session_setup import TurnCallbacks, TurnLimits
from helix_desktop.errors import ActionRefused, HelixError
from tests.engine.agent import World, says, told, world

LIMITS = TurnLimits(day_cost=5.0)


async def _worked(spent: list[float], limits: TurnLimits = LIMITS) -> World:
    """An agent that has read twelve long files."""

    async def look(call: ToolCall, _: CallContext) -> str:
        return f"a line of {call.id} says something\n" * 300

    script = [
        Reply((ToolCall(f"c{n}", "look", "{}"),), Stop.CALLS, Usage(10, output=1))
        for n in range(12)
    ]
    made = await world(*script, says("done"), preset="helix", limits=limits, spent=spent)
    made.tools.runs["look"] = look
    assert (await told(made)).reason is TurnEnd.DONE
    made.model.script.append(says("done"))
    assert (await told(made)).reason is TurnEnd.DONE
    return made


@pytest.mark.parametrize("kind", [FoldKind.HANDOVER, FoldKind.OBSERVATIONS])
async def test_a_fold_on_demand_is_refused_like_a_message(kind: FoldKind) -> None:
    spent = [0.0, 0.0]
    made = await _worked(spent)
    sent = len(made.model.requests)
    spent[:] = [5.0, 5.0]
    with pytest.raises(ActionRefused, match=r"Today has cost \$5\.00; the limit is \$5\.00"):
        await made.session.fold_on_request(kind)
    assert len(made.model.requests) == sent
    assert made.of(FoldFailed) == []
    await made.session.fold_on_request(FoldKind.MARKER)
    assert made.of(Folded), "what needs no model costs nothing"


async def test_a_fold_of_many_requests_stops_at_the_limit() -> None:
    spent = [0.0, 0.0]
    made = await _worked(spent)

    async def write(_: Request) -> Reply:
        spent[:] = [5.0, 5.0]
        return says("nothing like a handover", cost=5.0)

    sent = len(made.model.requests)
    made.model.script[:] = [write] * 9
    with pytest.raises(
        HelixError, match=r"Nothing was shortened: Today has cost \$5\.00, the limit is \$5\.00"
    ):
        await made.session.fold_on_request(FoldKind.HANDOVER)
    assert len(made.model.requests) == sent + 1


@pytest.mark.parametrize("limit", [[4.0, 4.0], [5.0, 5.0]])
async def test_nothing_is_folded_in_the_background_past_a_limit(limit: list[float]) -> None:
    spent = [0.0, 0.0]
    made = await _worked(spent)
    made.setup = replace(made.setup, models=(replace(made.setup.models[0], window=32_000),))

    async def reach_limit(_: Request) -> Reply:
        spent[:] = limit
        return says(" ".join(f"done{number}" for number in range(11_500)))

    made.model.script[:] = [reach_limit]
    sent = len(made.model.requests)
    assert (await told(made)).reason is TurnEnd.DONE
    assert made.session.folding.has_no_fold_in_work is (limit[0] >= 5.0)
    await made.session.folding.aclose()
    assert len(made.model.requests) == sent + 1


async def test_a_turn_of_a_foreign_agent_does_not_begin_past_a_limit() -> None:
    made = await world(limits=LIMITS, spent=[5.0, 5.0])
    asked: list[TurnCallbacks] = []

    async def answer(callbacks: TurnCallbacks) -> TurnEnded:
        asked.append(callbacks)
        return TurnEnded(TurnEnd.DONE)

    made.session.turns._services = replace(made.session._services, run_foreign_turn=answer)
    assert (await told(made)).reason is TurnEnd.SPENDING_LIMIT
    assert asked == []


async def test_what_a_fold_has_cost_is_recorded_before_it_is_adopted() -> None:
    """The program was killed before the next message, and $0.024 were missing for good."""
    made = await _worked([0.0, 0.0])
    recorded: list[int] = []

    async def write_again(_: Request) -> Reply:
        recorded.append(len(made.of(Spent)))
        return says("## Goal\nAll is well.", cost=0.5)

    made.model.script[:] = [says("nothing like a handover", cost=0.25), *[write_again] * 9]
    await made.session.fold_on_request(FoldKind.HANDOVER)
    assert recorded[0] == 1
    assert made.of(Spent)[0].usage.cost == 0.25
