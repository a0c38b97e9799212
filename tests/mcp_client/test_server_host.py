from __future__ import annotations

import asyncio
import dataclasses

import pytest

from helix_desktop.errors import NotFound
from helix_desktop.mcp_client import hosted_server as module
from helix_desktop.mcp_client.hosted_server import McpConnectionState
from tests.mcp_client.world import hosting, strange


async def test_without_servers_nothing_starts() -> None:
    async with hosting() as here:
        assert (len(here.host.hosted_servers), len(here.host.list_ready_tools())) == (0, 0)
        with pytest.raises(NotFound, match="Available: none"):
            here.host.find_hosted_server("x")


async def test_a_switched_off_server_is_there_and_does_not_run() -> None:
    async with hosting(dataclasses.replace(strange("well"), enabled=False)) as here:
        assert here.host.find_hosted_server("strange").status.state is McpConnectionState.OFF
        assert here.host.list_ready_tools() == []


async def test_a_tool_is_switched_off_without_a_restart() -> None:
    async with hosting(strange("well")) as here:
        await here.settled()
        server = here.host.find_hosted_server("strange")
        await here.host.configure_servers([dataclasses.replace(strange("well"), off=("echo",))])
        assert here.host.find_hosted_server("strange") is server
        assert server.status.state is McpConnectionState.READY
        assert here.host.list_ready_tools() == []


async def test_a_changed_server_starts_anew_and_one_that_is_gone_ends() -> None:
    async with hosting(strange("well")) as here:
        await here.settled()
        first = here.host.find_hosted_server("strange")
        await here.host.configure_servers([strange("many")])
        await here.settled()
        assert here.host.find_hosted_server("strange") is not first
        assert here.host.list_ready_tools()
        await here.host.configure_servers([])
        assert here.host.list_ready_tools() == []


async def test_a_server_is_tried_out_once() -> None:
    async with hosting() as here:
        status, tools, _ = await here.host.try_out_server(strange("well"))
        assert (status.state, [tool.own_name for tool in tools]) == (
            McpConnectionState.READY,
            ["echo"],
        )
        status, _, lines = await here.host.try_out_server(strange("fail at start"))
        assert status.state is McpConnectionState.FAILED
        assert lines == ("no configuration found",)
        assert here.host.list_ready_tools() == []


async def test_a_restart_comes_at_once_whatever_the_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RECONNECT_PAUSES", (600.0,))
    async with hosting(strange("fail at start")) as here:
        await here.settled()
        server = here.host.find_hosted_server("strange")
        server.config = strange("well")
        server.reconnect_now()
        await here.until(lambda: server.status.state is McpConnectionState.READY)


async def test_servers_get_no_key_of_ours() -> None:
    async with hosting() as here:
        environment = await here.host._login_environment()
        assert "OPENAI_API_KEY" not in environment
        assert environment["PATH"]


async def test_a_server_that_goes_while_the_shell_is_asked_takes_no_other_with_it() -> None:
    one, other = (dataclasses.replace(strange("well"), name=name) for name in ("one", "other"))
    async with hosting(one, other) as here, asyncio.timeout(60):
        while here.host._reading_login_path is None:
            await asyncio.sleep(0.001)
        await here.host.configure_servers([other])
        await here.until(
            lambda: here.host.find_hosted_server("other").status.state is McpConnectionState.READY
        )
