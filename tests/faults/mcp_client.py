"""The host as a client of one server over HTTP: what the conformance suite starts for its scenarios of clients.

    python -m tests.faults.mcp_client URL

Connects, calls every tool once with what its schema asks for, says yes to what it is asked, and goes. The exit code says whether it came
to the tools.
"""

from __future__ import annotations

import asyncio
import sys

from helix_desktop.errors import HelixError
from helix_desktop.mcp_host.config import ServerConfig
from helix_desktop.mcp_host.server import State
from tests.faults.mcp_hosted import arguments_for
from tests.mcp_host.world import hosting

SECONDS = 20.0


async def use(url: str) -> int:
    async with hosting(ServerConfig("suite", "http", url=url, start_seconds=SECONDS, call_seconds=SECONDS)) as here:
        (server,) = here.host.servers
        await here.until(lambda: server.status.state not in {State.STARTING, State.OFF}, SECONDS + 5)
        if server.status.state is not State.READY:
            print(server.status.why, file=sys.stderr)
            return 1
        for tool in here.host.tools():
            try:
                result = await tool.call(arguments_for(tool.spec.schema, tool.own_name), here.context)
                print(tool.own_name, "answered" if result.ok else f"said no: {result.text[:200]}")
            except HelixError as error:
                print(tool.own_name, "failed:", error)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(use(sys.argv[-1])))
