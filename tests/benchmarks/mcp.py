"""How long it takes an agent to recall content over MCP (stdio) with the official SDK's
client: the program's own server, compared with the smallest possible server.

python -m tests.benchmarks.mcp [--quick]      1,000 recalls; the peers say a text of the
same length back, from memory

There are two smallest servers: a decorated function, as the SDK's first page has it,
and the SDK's lower level, which checks no arguments and describes no answer. All three
are started in turn, by the same interpreter with the same options; the first start of
each is left out, as it reads files from the disk and compiles them. Then all three are
open, and asked in turn, so that whatever else the machine does is shared by all. Every
recall is of another entry. The workspace is indexed before, as one in use is, so their
tokens are known; an entry that is not yet in the index has its tokens counted, which
also reads the vocabulary, once.
"""

from __future__ import annotations

import asyncio
import random
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.token_counting import TiktokenCounter
from tests.benchmarks import machine, report
from tests.benchmarks.row import Figure, Row

SIZE = 4_000
LIMIT = 1.3  # times the smallest server, asked for
STARTS = 8
SMALLEST = f"""
from mcp.server import MCPServer
server = MCPServer("smallest")
@server.tool()
def recall_cached_content(sha256: str) -> str:
    return sha256 * {SIZE // 64}
server.run("stdio")
"""
LOWER_LEVEL = f"""
import anyio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

TOOL = types.Tool(name="recall_cached_content", input_schema={{"type": "object"}})

async def list_tools(context, params):
    return types.ListToolsResult(tools=[TOOL])

async def call_tool(context, params):
    text = params.arguments["sha256"] * {SIZE // 64}
    return types.CallToolResult(content=[types.TextContent(text=text)], structured_content={{"text": text}})

async def main():
    server = Server("smallest", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (incoming, outgoing):
        await server.run(incoming, outgoing, server.create_initialization_options())

anyio.run(main)
"""
OURS = "ours"
DECORATED = "smallest server"
LOWER = "lower level"


async def _fill(home: Path, count: int) -> list[str]:
    """A workspace with so many entries; their hashes."""
    workspaces = AllWorkspaces(home / "workspaces", count=TiktokenCounter().count_tokens)
    workspace = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Recalled").id
    )
    chance = random.Random(1)
    contents = [
        "\n".join(f"{n}: {chance.random()}" for n in range(SIZE // 24)).encode()
        for _ in range(count)
    ]
    stored = await workspace.cache.store_many(
        [(each, EntryOrigin("shell", "make test")) for each in contents]
    )
    await workspace.index.wait_until_indexed()
    await workspace.aclose()
    return [each.digest.hex for each in stored]


async def _measure(count: int) -> list[Row]:
    from mcp import Client, StdioServerParameters

    answered: dict[str, list[float]] = {OURS: [], DECORATED: [], LOWER: []}
    recalled: dict[str, list[float]] = {name: [] for name in answered}
    taken: dict[str, list[float]] = {name: [] for name in answered}
    with tempfile.TemporaryDirectory(prefix="helix-mcp-") as folder:
        hashes = await _fill(Path(folder), count)
        program = ["-m", "helix_desktop", "--home", folder, "mcp", "--workspace", "Recalled"]
        commands = {OURS: program, DECORATED: ["-c", SMALLEST], LOWER: ["-c", LOWER_LEVEL]}
        environment = {**machine.environment(), "FASTMCP_LOG_LEVEL": "ERROR"}
        servers = {
            name: StdioServerParameters(command=sys.executable, args=command, env=environment)
            for name, command in commands.items()
        }
        for at in range(STARTS + 1):
            for name, server in servers.items():
                start = time.perf_counter()
                async with Client(server) as client:
                    first = 1000 * (time.perf_counter() - start)
                    await _recall(client, hashes[at % count])
                    if at:
                        answered[name].append(first)
                        recalled[name].append(1000 * (time.perf_counter() - start))
        async with AsyncExitStack() as opened:
            clients = {
                name: await opened.enter_async_context(Client(server))
                for name, server in servers.items()
            }
            for client in clients.values():
                await _recall(client, hashes[0])
            for digest in hashes[1:]:
                for name, client in clients.items():
                    taken[name].append(await _recall(client, digest))
    return [
        _row("a recall over stdio", taken, note=f"{count:,} recalls of {SIZE:,} bytes"),
        _row("from start to first answer", answered),
        _row("from start to first recall", recalled, is_asked=False),
    ]


async def _recall(client: Any, digest: str) -> float:
    start = time.perf_counter()
    answer = await client.call_tool("recall_cached_content", {"sha256": digest})
    if answer.is_error:
        raise ValueError(answer.content)
    return 1000 * (time.perf_counter() - start)


def _row(name: str, taken: dict[str, list[float]], *, is_asked: bool = True, note: str = "") -> Row:
    figures = {each: Figure.of(times) for each, times in taken.items()}
    ours = figures.pop(OURS)
    ratios = ", ".join(
        f"{ours.median / peer.median:.2f} times {each}" for each, peer in figures.items()
    )
    asked = f"≤ {LIMIT:g} times" if is_asked else ""
    met = ours.median <= LIMIT * figures[DECORATED].median if is_asked else None
    return Row(name, "ms", ours, figures, asked, met, note="; ".join(filter(None, (ratios, note))))


def rows(*, quick: bool) -> list[Row]:
    return asyncio.run(_measure(100 if quick else 1_000))


def main() -> int:
    found = rows(quick="--quick" in sys.argv)
    sys.stdout.write(
        "\n".join([*report.table(found), *(f"{row.name}: {row.note}" for row in found)]) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
