"""Foreign agents that let their provider be set, with a real resident and its gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import Spent, TurnEnd
from helix_desktop.program_settings import RECORDER_WITHOUT_AGENTS, ProgramSettings
from helix_desktop.resident.agent_routes import AgentRoutes
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.acp_client.conftest import facts_of, folder, run_turn, said, set_up_agents, state_file
from tests.peers.agent_provider import Asked, Block, Provider, Says

__all__ = ["folder", "state_file"]
KEY = "sk-of-the-environment"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    def script(_: Asked) -> list[Block]:
        return [Says("fine")]

    with Provider(script) as provider:
        monkeypatch.setenv("SCRIPTED_PROVIDER", provider.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield provider


@pytest.fixture
async def bench(provider: Provider, folder: Path, tmp_path: Path) -> AsyncIterator[Workbench]:
    from helix_desktop.commands import workspace_access

    set_up_agents(tmp_path)
    where = program_folders.find_program_folders(tmp_path / "home")
    secrets = SecretStorage(where.key_file, environ={})
    desk = Workbenches(
        where,
        secrets,
        serve=lambda workspace: workspace_access.listen_for_commands(workspace, where),
    )
    routes = AgentRoutes(where)
    desk.register_route = routes.register_route
    with routes.holding:
        yield await desk.create_workspace("w", folder)
        await desk.aclose()


async def test_an_agent_whose_provider_can_be_set_goes_through_the_gateway(
    bench: Workbench, provider: Provider, state_file: Path
) -> None:
    session = await bench.start_conversation(acp_agent="ScriptRouted")
    assert (await run_turn(session, "ask-model what is new?")).reason is TurnEnd.DONE
    assert said(session) == "fine"
    (asked,) = provider.asked
    assert (asked.headers["x-api-key"], asked.headers.get("authorization")) == (KEY, None)
    assert not [name for name in asked.headers if name.startswith("x-helix")]
    (recorded,) = [row for row in bench.list_conversations() if row.parent == session.id]
    assert said(await bench.open_session(recorded.id)) == "fine"
    assert not facts_of(session, Spent)  # It is recorded with its request, once.
    assert ["provider", "main"] in [
        json.loads(line) for line in state_file.read_text("utf-8").splitlines()
    ]


@pytest.mark.parametrize("reason", ["left out", "no key", "a proxy"])
async def test_an_agent_works_as_it_is_set_up(
    bench: Workbench,
    provider: Provider,
    state_file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
) -> None:
    if reason == "left out":
        where = program_folders.find_program_folders(tmp_path / "home")
        ProgramSettings(where.settings_file).change_setting(
            RECORDER_WITHOUT_AGENTS, "goose\nscriptrouted"
        )
    elif reason == "no key":
        monkeypatch.delenv("ANTHROPIC_API_KEY")
    else:
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    session = await bench.start_conversation(acp_agent="ScriptRouted")
    assert (await run_turn(session, "say hello")).reason is TurnEnd.DONE
    assert '["provider"' not in state_file.read_text("utf-8")
    assert facts_of(session, Spent)
    assert not [row for row in bench.list_conversations() if row.parent]
