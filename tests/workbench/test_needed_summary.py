"""Before a history that does not fit goes on, it is known what summarizing it takes."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helix_desktop.engine.facts import Text
from helix_desktop.providers.provider_catalog import ProviderConfig
from tests.peers.chat_server import ChatServer, reply
from tests.workbench.conftest import Desks


async def test_a_history_that_is_far_too_long_for_another_model_is_asked_about(
    desks: Desks, folder: Path
) -> None:
    desk = desks()
    with ChatServer([reply("Read.")] * 80) as server:
        desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
        desk.configured.correct_model("peer", "large", {"window": 400_000})
        desk.configured.correct_model(
            "peer", "small", {"window": 8_192, "input": 1.0, "output": 2.0}
        )
        bench = await desk.create_workspace("Pairs", folder)
        await bench.choose_model_for_role("peer/large")
        session = await bench.start_conversation()
        # None of them is so long that it is shortened alone.
        for number in range(40):
            session.send_message((Text(f"{number} " + "words of a long story " * 250),))
            await asyncio.wait_for(session.wait_until_idle(), 60)
        # After so many turns a summary pays, and is begun. While it is written nobody is asked.
        await session.folding.wait_for_fold_in_work()
        assert session.context.estimate_needed_summary() is None
        await bench.save_conversation_model(session.id, "peer/small")
        await bench._predict_request_of(session)
        needed = session.context.estimate_needed_summary()
        assert needed is not None
        assert needed.used_tokens > needed.window_tokens == 8_192
        assert needed.requests >= 8
        assert needed.dollars is not None
        assert needed.dollars > 0
