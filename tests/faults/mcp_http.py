"""The context server over HTTP, for the official conformance suite, which speaks nothing else: `python -m tests.faults.mcp_http HOME W`.

The SDK's own transport, on this machine alone; the program itself serves standard input and output.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import uvicorn

from helix_desktop import program_folders
from helix_desktop.commands import mcp_command, workspace_access
from helix_desktop.context_server import cache_mcp_server


async def main(home: Path, name: str) -> None:
    where = program_folders.find_program_folders(home)
    all_workspaces = workspace_access.open_all_workspaces(where)
    workspace = await all_workspaces.open_stored_workspace(all_workspaces.find_known_workspace(name).id)
    app = cache_mcp_server.build_cache_server(mcp_command.build_context_shelf(workspace, where)).streamable_http_app()
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        print(f"http://127.0.0.1:{listening.getsockname()[1]}/mcp", flush=True)
        await uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on")).serve([listening])
    await workspace.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
