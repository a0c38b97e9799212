"""The user's MCP servers misbehaving at random: at the start, the list, a call and the
end, several beside each other.

python -m tests.faults.mcp_servers [--trials 40] [--seed 1]

A call ends in time with a result or a sentence; a server beside a broken one goes on;
the end takes under two seconds (and what a busy machine adds), and leaves no process.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from helix_desktop.errors import HelixError
from helix_desktop.mcp_client.hosted_server import McpConnectionState
from helix_desktop.mcp_client.server_config import ServerConfig
from tests.faults.store_report import report
from tests.mcp_client.world import SCRIPT, Here, hosting, strange

WAYS = (
    "well", "hang at start", "hang at list", "fail at start", "hang at call", "die", "large", "rubbish", "many", "changing",
    "damaged", "hang at shutdown",
)  # fmt: skip
LIMIT = 1.5  # seconds a server may take
SLACK = 4.0
END = 2.0 + SLACK


def trials(count: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    for trial in range(count):
        with tempfile.TemporaryDirectory(prefix="helix-mcp-") as folder:
            mark = str(Path(folder) / "mark")
            for line in asyncio.run(_one(chance, mark, found)):
                found[f"LOST in trial {trial}: {line}"] += 1
            for line in _left(mark):
                found[f"LOST in trial {trial}: {line}"] += 1
        found["trials"] += 1


async def _one(chance: random.Random, mark: str, found: Counter[str]) -> list[str]:
    """A good server beside two others; what was wrong."""
    ways = ["well", *chance.sample(WAYS, 2)]
    configs = [_named(f"s{at}", way, mark) for at, way in enumerate(ways)]
    wrong: list[str] = []
    async with hosting(*configs) as here:
        await here.until(
            lambda: here.host.find_hosted_server("s0").status.state is McpConnectionState.READY, 30
        )
        await here.settled()
        tools = list(here.host.list_ready_tools())
        for tool in chance.sample(tools, min(3, len(tools))):
            begun = time.monotonic()
            try:
                result = await asyncio.wait_for(
                    tool.call_foreign_tool({"n": chance.random()}, here.context), 30
                )
                found["answered" if result.ok else "answered with an error"] += 1
            except HelixError:
                found["refused with a sentence"] += 1
            except TimeoutError:
                wrong.append(f"a call of {tool.spec.name} hung ({ways})")
            if time.monotonic() - begun > LIMIT + SLACK:
                wrong.append(
                    f"a call of {tool.spec.name} took {time.monotonic() - begun:.1f} s ({ways})"
                )
        wrong += await _good_one(here, ways)
        ending = time.monotonic()
    if time.monotonic() - ending > END:
        wrong.append(f"the end took {time.monotonic() - ending:.1f} s ({ways})")
    found.update(way for way in ways[1:])
    return wrong


async def _good_one(here: Here, ways: list[str]) -> list[str]:
    """The server beside the broken ones still answers."""
    tool = next(
        (tool for tool in here.host.list_ready_tools() if tool.spec.name == "s0__echo"), None
    )
    if tool is None:
        return [f"the server beside {ways[1:]} is gone"]
    result = await asyncio.wait_for(tool.call_foreign_tool({"a": 1}, here.context), 30)
    return (
        [] if result.ok else [f"the server beside {ways[1:]} does not answer: {result.text[:80]}"]
    )


def _named(name: str, way: str, mark: str) -> ServerConfig:
    seconds = 30 if way == "well" else LIMIT
    return dataclasses.replace(strange(way, mark, starts=seconds, answers=seconds), name=name)


def _left(mark: str) -> list[str]:
    """Processes of this trial's servers that are still there."""
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208
        try:
            line = Path("/proc", entry, "cmdline").read_bytes() if entry.isdigit() else b""
        except OSError:
            continue
        if mark.encode() in line and SCRIPT.name.encode() in line:
            found.append(f"process {entry} was left: {line.replace(bytes(1), b' ')!r}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    logging.disable(logging.ERROR)
    return report(
        "mcp_servers", arguments.seed, lambda found: trials(arguments.trials, arguments.seed, found)
    )


if __name__ == "__main__":
    sys.exit(main())
