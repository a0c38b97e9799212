"""The host as a client of one server over HTTP: what the conformance suite starts for
its scenarios of clients.

    python -m tests.faults.mcp_client URL

Connects, calls every tool with what the suite wants said or its schema asks for, says
yes to what it is asked, and goes. The exit code says whether it came to the tools.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.errors import HelixError
from helix_desktop.mcp_client.hosted_server import McpConnectionState, McpServerTool
from helix_desktop.mcp_client.server_config import ServerConfig
from tests.faults.mcp_hosted import arguments_for
from tests.mcp_client.test_oauth_sign_in import Browser
from tests.mcp_client.world import hosting

SECONDS = 20.0


async def use(url: str) -> int:
    async with hosting(
        ServerConfig(
            "suite",
            "http",
            url=url,
            start_seconds=SECONDS,
            call_seconds=SECONDS,
            other={"oauth": _client()},
        )
    ) as here:
        (server,) = here.host.hosted_servers
        await here.until(
            lambda: (
                server.status.state not in {McpConnectionState.STARTING, McpConnectionState.OFF}
            ),
            SECONDS + 5,
        )
        browser = Browser()
        if server.status.state is McpConnectionState.SIGN_IN:
            server.sign_in_with_page(browser)
            await here.until(
                lambda: (
                    server.status.state
                    not in {McpConnectionState.SIGN_IN, McpConnectionState.STARTING}
                ),
                SECONDS + 5,
            )
        if server.status.state is not McpConnectionState.READY:
            print(server.status.why, file=sys.stderr)
            return 1
        for tool, values in _calls(here.host.list_ready_tools()):
            try:
                result = await tool.call_foreign_tool(
                    values, CallContext("c", _accept, here.shown.append)
                )
                print(tool.own_name, "answered" if result.ok else f"said no: {result.text[:200]}")
            except HelixError as error:
                print(tool.own_name, "failed:", error)
    return 0


def _client() -> dict[str, str]:
    """What the suite has registered us as, where it has."""
    known = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    names = {"client_id": "clientId", "client_secret": "clientSecret"}
    return {ours: known[theirs] for theirs, ours in names.items() if theirs in known}


def _calls(tools: Sequence[McpServerTool]) -> Iterator[tuple[McpServerTool, dict[str, Any]]]:
    """The suite's own calls where it names some; one of its tools wants back a schema
    as it came to us.
    """
    wanted = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")).get("toolCalls", [])
    for tool in tools:
        given = [one["arguments"] for one in wanted if one["name"] == tool.own_name]
        if tool.own_name == "json_schema_echo":
            given = [
                {"schema": json.loads(other.spec.schema)} for other in tools if other is not tool
            ]
        for values in given or [arguments_for(tool.spec.schema, tool.own_name)]:
            yield tool, values


async def _accept(question: PermissionQuestion) -> PermissionAnswer:
    """A form as it stands in the window: with its defaults."""
    fields = json.loads(question.form or "{}").get("properties", {})
    return PermissionAnswer(
        allowed=True,
        values=json.dumps({name: about.get("default") for name, about in fields.items()}),
    )


if __name__ == "__main__":
    sys.exit(asyncio.run(use(sys.argv[-1])))
