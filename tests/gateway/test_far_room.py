"""The engine works where the workspace is open: in the window's process, or in the gateway's own."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helix_desktop import places
from helix_desktop.commands import open_workspace
from helix_desktop.gateway import opening
from helix_desktop.secrets import Secrets
from helix_desktop.workbench.desk import Desk
from tests.gateway.running import TOOL, Agent, running
from tests.gateway.test_gateway import DIGEST, LARGE, scripted
from tests.peers.agent_provider import Block, Calls, Provider, Says


async def test_a_window_that_opens_the_workspace_gets_it_and_sees_what_the_agent_does(tmp_path: Path) -> None:
    where = places.find(tmp_path)
    recall: list[Block] = [Calls("recall_cached_content", {"sha256": DIGEST, "lines": "5"})]
    heard, script = scripted(
        [Calls(TOOL, {"command": "big"})], recall, [Calls(TOOL, {"command": "b"})], [Says("done")], [Says("x")]
    )
    with Provider(script) as provider, running(tmp_path, provider.url, serves=True) as url:  # type: ignore[arg-type]
        agent = Agent("anthropic", url)
        agent.say("look around")
        calls = await asyncio.to_thread(agent.ask)
        agent.results([(call, name, LARGE) for call, name, _ in calls])
        desk = Desk(where, Secrets(where.key_file), serve=lambda workspace: open_workspace.serve(workspace, where))
        bench = await desk.open(opening.NAME)
        try:
            (row,) = bench.conversations()
            assert row.title == "look around"
            calls = await asyncio.to_thread(agent.ask)
            assert [name for _, name, _ in calls] == [TOOL]
            session = await bench.session(row.id)
            assert "line 4: the quick" in heard[2].raw.decode()
            assert session.savings().steps == 3
        finally:
            await desk.aclose()
        agent.results([(call, name, "short") for call, name, _ in calls])
        await asyncio.to_thread(agent.ask)
        assert provider.refused == []
        assert LARGE not in heard[3].raw.decode()
