"""How long it takes an agent to recall content over MCP (stdio) with the official SDK's client: the program's own server, compared with the smallest possible server.

python -m tests.benchmarks.mcp [--quick]      1,000 recalls; the peer says a text of the same length back, from memory
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.benchmarks import machine, report
from tests.benchmarks.row import Figure, Row

ENTRIES, SIZE = 200, 4_000
LIMIT = 5.0  # ms, asked for
SMALLEST = f"""
from mcp.server import MCPServer
server = MCPServer("smallest")
@server.tool()
def recall_cached_content(sha256: str) -> str:
    return sha256 * {SIZE // 64}
server.run("stdio")
"""


async def _fill(home: Path) -> list[str]:
    """A workspace with some entries; their hashes."""
    workspaces = AllWorkspaces(home / "workspaces")
    workspace = await workspaces.open_stored_workspace(workspaces.create_stored_workspace("Recalled").id)
    chance = random.Random(1)
    contents = ["\n".join(f"{n}: {chance.random()}" for n in range(SIZE // 24)).encode() for _ in range(ENTRIES)]
    stored = [await workspace.cache.store_content(each, EntryOrigin("shell", "make test")) for each in contents]
    await workspace.aclose()
    return [each.digest.hex for each in stored]


async def _measure(count: int) -> list[Row]:
    from mcp import Client, StdioServerParameters

    with tempfile.TemporaryDirectory(prefix="helix-mcp-") as folder:
        hashes = await _fill(Path(folder))
        program = ["-m", "helix_desktop", "--home", folder, "mcp", "--workspace", "Recalled"]
        servers = {"ours": program, "smallest server": ["-c", SMALLEST]}
        taken: dict[str, list[float]] = {}
        begun: dict[str, float] = {}
        for name, command in servers.items():
            start = time.perf_counter()
            environment = {**machine.environment(), "FASTMCP_LOG_LEVEL": "ERROR"}
            async with Client(StdioServerParameters(command=sys.executable, args=command, env=environment)) as client:
                begun[name] = 1000 * (time.perf_counter() - start)
                taken[name] = [await _recall(client, hashes[at % ENTRIES]) for at in range(count)]
    return _rows(taken, begun)


async def _recall(client: Any, digest: str) -> float:
    start = time.perf_counter()
    answer = await client.call_tool("recall_cached_content", {"sha256": digest})
    if answer.is_error:
        raise ValueError(answer.content)
    return 1000 * (time.perf_counter() - start)


def _rows(taken: dict[str, list[float]], begun: dict[str, float]) -> list[Row]:
    ours, peer = Figure.of(taken["ours"]), Figure.of(taken["smallest server"])
    name = "a recall over stdio"
    start = {each: Figure(value, value, value) for each, value in begun.items()}
    return [
        Row(name, "ms", ours, {"smallest server": peer}, f"median < {LIMIT:g} ms", ours.median < LIMIT, note=f"{ours.runs:,} recalls of {SIZE:,} bytes"),
        Row("from start to first answer", "ms", start["ours"], {"smallest server": start["smallest server"]}),
    ]  # fmt: skip


def rows(*, quick: bool) -> list[Row]:
    return asyncio.run(_measure(100 if quick else 1_000))


def main() -> int:
    sys.stdout.write("\n".join(report.table(rows(quick="--quick" in sys.argv))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
