"""What a person asks for in an agent's terminal: a real gateway with an agent's conversation, and the MCP server the agent starts."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import mcp

from helix_desktop import program_folders
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.conftest import Expect
from tests.gateway.running import TOOL, Agent, running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says

OUTPUT = "".join(f"row {number}\n" for number in range(3000))


def _script(asked: Asked) -> Sequence[Block]:
    done = asked.raw.count(b"tool_result")
    return [Says("done")] if done >= 3 else [Calls(TOOL, {"command": str(done)})]


async def _told(client: mcp.Client, name: str, words: str = "") -> str:
    found = await client.get_prompt(name, {"words": words} if words else {})
    return str(found.messages[0].content.text)  # type: ignore[union-attr]


async def test_an_agents_terminal_shows_the_context_and_keeps_recalls_and_undoes(
    tmp_path: Path, expect: Expect
) -> None:
    expect("fold_now refused")
    workspaces = AllWorkspaces(program_folders.find_program_folders(tmp_path).workspaces_folder)
    named = workspaces.create_stored_workspace("w").id
    program = [sys.executable, "-m", "helix_desktop", "--home", str(tmp_path)]
    server = mcp.StdioServerParameters(command=program[0], args=[*program[1:], "mcp", "--workspace", named])
    with Provider(_script) as provider, running(tmp_path, provider.url, serves=True, workspace=named) as url:
        agent = Agent("anthropic", url, session="a session")
        agent.say("look around")
        while calls := agent.ask():
            agent.results([(call, name, f"output {len(agent.units)}\n{OUTPUT}") for call, name, _ in calls])
        async with mcp.Client(server, cache=None) as client:
            names = [one.name for one in (await client.list_prompts()).prompts]
            assert names == ["context", "fold_now", "keep", "undo_fold", "recall"]
            assert "Folds: 3." in await _told(client, "context")
            assert "shown in full again" in await _told(client, "undo_fold")
            assert "Folds: 2." in await _told(client, "context")
            assert "stays in the context" in await _told(client, "keep", "look around")
            assert "row 2999" in await _told(client, "recall", "row 2999")
            assert "could not do what I asked for" in await _told(client, "fold_now")  # nothing is old yet
        agent.say("go on")
        agent.ask()
        assert provider.asked[-1].raw.count(b"row 1500") == 1  # what was undone is sent in full
        assert provider.refused == []
