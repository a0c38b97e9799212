"""The user's MCP servers through a whole turn: a real server, a scripted model, real stores."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.facts import Text, ToolReturned
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.errors import InvalidInput, NoUsableKeyring
from helix_desktop.mcp_client.hosted_server import McpConnectionState
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import Addressee, SecretKeeper, SecretStorage
from helix_desktop.store import workspace_settings
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.mcp_servers import WorkspaceMcpServers
from tests.conftest import Expect
from tests.mcp_client.signing_server import signing
from tests.mcp_client.test_oauth_sign_in import Browser
from tests.mcp_client.world import SCRIPT
from tests.peers.chat_server import ChatServer, reply
from tests.scripted_tour import ClockWithoutPauses

SERVER = Path(__file__).parents[1] / "mcp_client" / "modern_server.py"
PASTED = json.dumps({"mcpServers": {"modern": {"command": sys.executable, "args": [str(SERVER)]}}})


class KeptHere(SecretStorage):
    """Secrets of this session only: there is no keyring in a test."""

    async def store_secret_at(
        self, secret: Addressee, value: str, *, where: SecretKeeper = SecretKeeper.SESSION
    ) -> None:
        await super().store_secret_at(secret, value, where=SecretKeeper.SESSION)


def desk_at(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home / "home")
    return Workbenches(where, KeptHere(where.key_file, environ={}), clock=ClockWithoutPauses())


async def ready(bench: Workbench) -> None:
    changed = asyncio.Event()
    bench.mcp_servers.listeners.append(changed.set)
    async with asyncio.timeout(60):
        while (
            not bench.mcp_servers.running_servers
            or bench.mcp_servers.running_servers[0].status.state is not McpConnectionState.READY
        ):
            changed.clear()
            await changed.wait()


async def page(_address: str) -> None: ...


@pytest.mark.parametrize(
    "ask",
    [
        lambda servers: servers.sign_in_at_server("silent", page),
        lambda servers: servers.test_server_once("silent"),
    ],
    ids=["sign in", "test"],
)
async def test_nobody_waits_for_a_server_longer_than_the_workspace_is_open(
    ask: Callable[[WorkspaceMcpServers], Coroutine[Any, Any, object]], tmp_path: Path
) -> None:
    desk = desk_at(tmp_path)
    bench = await desk.create_workspace("Pairs", tmp_path)
    waits = {
        "command": sys.executable,
        "args": ["-c", "import sys; sys.stdin.read()"],
        "start_seconds": 600,
    }
    await bench.change_settings({"mcp.silent": waits})
    before = len(asyncio.all_tasks())
    waiting = asyncio.ensure_future(ask(bench.mcp_servers))  # noqa: TID251
    while not bench.mcp_servers.listeners and len(asyncio.all_tasks()) < before + 2:
        await asyncio.sleep(0)
    await desk.aclose()
    async with asyncio.timeout(60):
        await waiting


async def test_switches_pressed_side_by_side_all_hold(tmp_path: Path) -> None:
    desk = desk_at(tmp_path)
    bench = await desk.create_workspace("Pairs", tmp_path)
    try:
        await bench.change_settings(
            {"mcp.modern": {"command": sys.executable, "args": [str(SERVER)], "enabled": False}}
        )
        await asyncio.gather(
            *(
                bench.mcp_servers.switch_server_tool("modern", f"tool{number}", on=False)
                for number in range(8)
            )
        )
        assert workspace_settings.read_workspace_settings(
            bench.workspace.folder / workspace_settings.NAME
        ).mcp["modern"]["off"] == [f"tool{number}" for number in range(8)]
    finally:
        await desk.aclose()


async def test_a_pasted_servers_tools_are_called_through_a_turn_and_asked_for_first(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    desk = desk_at(tmp_path)
    asked: list[str] = []
    script = [reply(calls=[("modern__count", {})]), reply("Counted.")]
    with ChatServer(script) as server:
        try:
            desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
            bench = await desk.create_workspace("Served", folder)
            await bench.choose_model_for_role("peer/scripted")
            await bench.mcp_servers.add_pasted_servers(PASTED)
            await ready(bench)
            session = await bench.start_conversation()

            def hear(event: Event) -> None:
                if isinstance(event, QuestionAsked):
                    asked.append(event.question.title)
                    session.answer_question(
                        event.number, PermissionAnswer(allowed=True, scope="always")
                    )

            session.subscribe_to_events(hear)
            session.send_message((Text("count"),))
            await asyncio.wait_for(session.wait_until_idle(), 60)
            (returned,) = (r.fact for r in session.all_facts if isinstance(r.fact, ToolReturned))
            assert returned.ok
            assert b"3" in await bench.workspace.cache.read_range(returned.output.digest, 0, 1_000)
            assert asked == ["modern: count"]
            assert "modern__count" in bench.workspace.settings.approved
            names = [tool["function"]["name"] for tool in server.bodies[0]["tools"]]
            assert "modern__ask" in names
            await bench.mcp_servers.switch_server_tool("modern", "ask", on=False)
            assert "modern__ask" not in [
                tool.spec.name for tool in bench.mcp_servers.list_offered_server_tools()
            ]
            await bench.mcp_servers.switch_server("modern", on=False)
            assert bench.mcp_servers.list_offered_server_tools() == []
            await bench.mcp_servers.remove_server("modern")
            assert bench.workspace.settings.mcp == {}
        finally:
            await desk.aclose()


async def test_a_secret_in_what_is_pasted_is_in_no_file(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    desk = desk_at(tmp_path)
    table = {
        "command": sys.executable,
        "args": [str(SERVER)],
        "env": {"API_TOKEN": "ghp_planted0123456789"},
    }
    try:
        bench = await desk.create_workspace("Served", tmp_path / "project")
        pasted = await bench.mcp_servers.add_pasted_servers(
            json.dumps({"mcpServers": {"modern": table}})
        )
        assert list(pasted.secrets.values()) == ["ghp_planted0123456789"]
        await ready(bench)
        (server,) = bench.mcp_servers.running_servers
        assert dict((await server._config_with_secrets()).env) == {
            "API_TOKEN": "ghp_planted0123456789"
        }  # its own it gets
    finally:
        await desk.aclose()
    files = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path for path in files if b"ghp_planted" in path.read_bytes()] == []


async def test_a_server_that_is_pasted_again_is_replaced_and_keeps_what_was_set(
    tmp_path: Path,
) -> None:
    desk = desk_at(tmp_path)
    bench = await desk.create_workspace("one", tmp_path)
    await bench.mcp_servers.add_pasted_servers("true first", "mine")
    await bench.mcp_servers.set_server_timeouts("mine", call_seconds=7)
    await bench.mcp_servers.switch_server_tool("mine", "wipe", on=False)
    await bench.mcp_servers.mark_tool_as_read_only("mine", "look", reads=True)
    await bench.mcp_servers.add_pasted_servers("true second", "mine")
    table = bench.workspace.settings.mcp["mine"]
    assert table["args"] == ["second"]
    assert (table["call_seconds"], table["off"]) == (7, ["wipe"])
    assert "reading" not in table
    await desk.aclose()


class WithoutKeyring(KeptHere):
    async def store_secret(self, secret: Addressee, value: str) -> None:
        raise NoUsableKeyring("This system has no keyring.")


async def test_without_a_keyring_a_pasted_key_lasts_for_the_session(tmp_path: Path) -> None:
    """A server with a key could not be added there at all."""
    where = program_folders.find_program_folders(tmp_path / "home")
    secrets = WithoutKeyring(where.key_file, environ={})
    desk = Workbenches(where, secrets, clock=ClockWithoutPauses())
    table = {"command": "true", "env": {"API_KEY": "planted-0123456789"}}
    try:
        bench = await desk.create_workspace("one", tmp_path)
        await bench.mcp_servers.add_pasted_servers(json.dumps({"mcpServers": {"a": table}}))
        (server,) = bench.mcp_servers.running_servers
        filled = await server._config_with_secrets()
        assert dict(filled.env) == {"API_KEY": "planted-0123456789"}
    finally:
        await desk.aclose()


async def test_servers_are_there_again_after_a_restart(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    desk = desk_at(tmp_path)
    bench = await desk.create_workspace("Served", tmp_path / "project")
    await bench.mcp_servers.add_pasted_servers(PASTED)
    await desk.aclose()
    desk = desk_at(tmp_path)
    try:
        bench = await desk.open_workspace("Served")
        await ready(bench)
        assert {tool.spec.name for tool in bench.mcp_servers.list_offered_server_tools()} >= {
            "modern__count",
            "modern__grow",
        }
        status, tools, _ = await bench.mcp_servers.test_server_once("modern")
        assert status.state is McpConnectionState.READY
        assert {"ask", "count", "grow"} <= {tool.own_name for tool in tools}
    finally:
        await desk.aclose()


async def test_a_table_with_a_mistake_stops_no_other_server(tmp_path: Path, expect: Expect) -> None:
    expect("the settings of MCP server broken cannot be read")
    (tmp_path / "project").mkdir()
    desk = desk_at(tmp_path)
    try:
        bench = await desk.create_workspace("Served", tmp_path / "project")
        await bench.change_settings({"mcp.broken": {"kind": "stdio", "start_seconds": "soon"}})
        await bench.mcp_servers.add_pasted_servers(PASTED)
        await ready(bench)
    finally:
        await desk.aclose()


@pytest.mark.parametrize("name", ["my.server", "my server"])
async def test_a_server_the_user_named_by_hand_is_switched_under_that_name(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "project").mkdir()
    desk = desk_at(tmp_path)
    try:
        bench = await desk.create_workspace("Served", tmp_path / "project")
        written = bench.workspace.folder / "workspace.toml"
        with written.open("a") as file:
            file.write(f"[mcp.{name!r}]\ncommand = {sys.executable!r}\nargs = [{str(SERVER)!r}]\n")
        await bench.change_settings({})
        await ready(bench)
        assert [hosted.config.name for hosted in bench.mcp_servers.running_servers] == [name]
        assert all(
            re.fullmatch("[A-Za-z0-9_-]{1,64}", tool.spec.name)
            for tool in bench.mcp_servers.list_offered_server_tools()
        )
        await bench.mcp_servers.switch_server(name, on=False)
        assert list(bench.workspace.settings.mcp) == [name]
        assert bench.mcp_servers.list_offered_server_tools() == []
        await bench.mcp_servers.switch_server(name, on=True)
        await ready(bench)
        await bench.mcp_servers.remove_server(name)
        assert bench.workspace.settings.mcp == {}
    finally:
        await desk.aclose()


async def test_signing_in_says_how_it_ended_and_the_token_stays_with_the_keyring(
    tmp_path: Path, expect: Expect
) -> None:
    expect("Error parsing SSE message", may_be_missing=True)
    (tmp_path / "project").mkdir()
    async with signing() as known:
        desk = desk_at(tmp_path)
        try:
            bench = await desk.create_workspace("Served", tmp_path / "project")
            await bench.mcp_servers.add_pasted_servers(
                json.dumps({"mcpServers": {"far": {"url": known.url}}})
            )
            status = await bench.mcp_servers.sign_in_at_server("far", Browser())
            assert (status.state, status.tools) == (McpConnectionState.READY, 1)
            again = await bench.mcp_servers.sign_in_at_server("far", Browser())
            assert (again.state, len(known.clients)) == (McpConnectionState.READY, 1)
            await bench.mcp_servers.switch_server("far", on=False)
            async with asyncio.timeout(60):
                with pytest.raises(InvalidInput, match="turned off"):
                    await bench.mcp_servers.sign_in_at_server("far", Browser())
        finally:
            await desk.aclose()
    written = [
        path for path in tmp_path.rglob("*") if path.is_file() and b"token-" in path.read_bytes()
    ]
    assert written == []


async def test_prompts_are_said_with_a_slash_and_resources_are_attached(tmp_path: Path) -> None:
    desk = desk_at(tmp_path)
    try:
        folder = tmp_path / "project"
        folder.mkdir()
        bench = await desk.create_workspace("Prompts", folder)
        await bench.mcp_servers.add_pasted_servers(PASTED)
        await ready(bench)
        session = await bench.start_conversation()
        assert [item.name for item in bench.slash_commands.list_slash_commands()] == [
            "modern:review"
        ]
        (said,) = await bench.slash_commands.expand_command_message(
            session, (Text("/modern:review src/a.py wrong names and types"),)
        )
        assert isinstance(said, Text)
        assert said.text.endswith("Review src/a.py and look for wrong names and types.")
        (offered,) = bench.mcp_servers.list_offered_resources()
        (attached,) = await bench.attach_server_resource(offered.server, offered.uri)
        assert b"Four spaces." in await bench.workspace.cache.read_range(
            attached.stored.digest, 0, attached.stored.size
        )
    finally:
        await desk.aclose()


@pytest.mark.parametrize(("share", "sent"), [(0.0, 0), (1.0, 500)])
async def test_the_first_request_keeps_to_the_policys_share_for_tools(
    share: float, sent: int, tmp_path: Path
) -> None:
    desk = desk_at(tmp_path)
    with ChatServer([reply("Hello.")]) as server:
        try:
            desk.configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
            bench = await desk.create_workspace("Served", tmp_path)
            await bench.choose_model_for_role("peer/scripted")
            await bench.choose_context_policy("layered", {"tools_share": share})
            await bench.change_settings(
                {"mcp.many": {"command": sys.executable, "args": [str(SCRIPT), "many"]}}
            )
            await ready(bench)
            session = await bench.start_conversation()
            session.send_message((Text("hello"),))
            await asyncio.wait_for(session.wait_until_idle(), 60)
            names = [tool["function"]["name"] for tool in server.bodies[0]["tools"]]
            assert sum(name.startswith("many__") for name in names) == sent
        finally:
            await desk.aclose()
