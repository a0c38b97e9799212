"""The models of a workspace, by role."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from helix_desktop.engine.facts import ModelRole, ModelSet, Text, TurnEnd, TurnEnded
from helix_desktop.errors import HelixError
from helix_desktop.providers.provider_catalog import ProviderConfig
from tests.peers.chat_server import ChatServer, reply, too_long
from tests.workbench.conftest import Desks


async def test_a_fast_model_that_is_not_there_any_more_leaves_its_place_to_the_main_one(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create_workspace("Gone", folder)
    await bench.choose_model_for_role("demo")
    await bench.change_settings({"models.fast": "removed/quick", "models.long": "removed/long"})
    assert bench.models.client_for_role(ModelRole.FAST) is None
    assert bench.models.client_for_role(ModelRole.LONG) is None
    await bench.change_settings({"models.main": "removed/large"})
    with pytest.raises(HelixError, match="removed"):
        bench.models.client_for_role(ModelRole.MAIN)


async def test_a_window_named_by_a_refusal_holds_from_then_on(desks: Desks, folder: Path) -> None:
    with ChatServer([reply("Hello."), too_long(16_384), reply("It fits now.")]) as server:
        desk = desks()
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        bench = await desk.create_workspace("Small", folder)
        await bench.choose_model_for_role("peer/scripted")
        session = await bench.start_conversation("Learns")
        for words in ("First.", "Second."):
            session.send_message((Text(words),))
            await asyncio.wait_for(session.wait_until_idle(), 60)
        facts = [
            session.conversation.fact_at(seq)
            for seq in range(1, session.conversation.state.seq + 1)
        ]
        windows = [
            fact.window for fact in facts if isinstance(fact, ModelSet) and fact.role == "main"
        ]
        assert windows == [128_000, 16_384]
        assert [fact.reason for fact in facts if isinstance(fact, TurnEnded)] == [
            TurnEnd.DONE,
            TurnEnd.DONE,
        ]
        assert session.context.next_request_meter().window == 16_384
    info = desks().configured.find_provider("peer")
    assert info.learned == {"scripted": {"window": 16_384}}
