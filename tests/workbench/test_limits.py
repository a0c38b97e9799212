"""Spending limits as they are set in the settings, met with a scripted server that
reports what it bills, and the way on.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Text, TurnEnd, TurnEnded
from helix_desktop.engine.session import Session
from helix_desktop.providers.provider_catalog import ProviderConfig
from tests.peers.chat_server import ChatServer, reply
from tests.workbench.conftest import Desks

DEAR = {
    "input": 5_000.0,
    "output": 5_000.0,
    "cache_read": 5_000.0,
    "cache_write": 5_000.0,
}  # half a dollar a step


async def ended(session: Session) -> TurnEnded:
    await asyncio.wait_for(session.wait_until_idle(), 60)
    end = session.all_facts[-1].fact
    assert isinstance(end, TurnEnded)
    return end


@pytest.mark.parametrize(
    ("limit", "why"),
    [
        ("turn_cost", "This turn has cost"),
        ("day_cost", "Today has cost"),
        ("workspace_cost", "This workspace has cost"),
    ],
)
async def test_a_limit_ends_the_turn_and_once_raised_it_goes_on(
    desks: Desks, folder: Path, limit: str, why: str
) -> None:
    script = [reply(calls=[("read_file", {"path": "README.md"})]), reply("The readme is read.")]
    with ChatServer(script) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        desk.configured.correct_model("peer", "scripted", DEAR)
        bench = await desk.create_workspace("Dear", folder)
        await bench.choose_model_for_role("peer/scripted")
        await bench.change_settings({f"limits.{limit}": 0.1})
        session = await bench.start_conversation()
        session.send_message((Text("read the readme"),))
        end = await ended(session)
        assert end.reason is TurnEnd.SPENDING_LIMIT
        assert end.why.startswith(why)
        assert len(server.bodies) == 1
        await bench.change_settings({f"limits.{limit}": 100.0})
        session.resume_turn()
        assert (await ended(session)).reason is TurnEnd.DONE
        assert len(server.bodies) == 2


async def test_a_limit_that_cannot_act_without_a_price_names_the_model(
    desks: Desks, folder: Path
) -> None:
    with ChatServer([reply("Done.")]) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        bench = await desk.create_workspace("Unpriced", folder)
        await bench.choose_model_for_role("peer/scripted")
        session = await bench.start_conversation()
        session.send_message((Text("hello"),))
        assert (await ended(session)).reason is TurnEnd.DONE
        assert session.context.model_whose_cost_cannot_be_limited() == "", (
            "nothing depends on a price"
        )
        await bench.change_settings({"limits.workspace_cost": 0.01})
        assert session.context.model_whose_cost_cannot_be_limited() == "peer/scripted"
