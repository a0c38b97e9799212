"""MCP servers that send what nobody asked for, as much of it as they can, and results that hold whoever
looks at them closely.

    python -m tests.faults.mcp_storms [--storms 60] [--seed 1]

As often as is said, a real server answers a call with one of the ways below and with figures that
are drawn, while another server is called at the same time. The program's loop stands still for
seconds at most, the other server answers, memory and log stay small, and what is said of it is a sentence.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.ports import CallContext
from helix_desktop.errors import HelixError
from helix_desktop.logs import LogRedaction, start_logging
from helix_desktop.mcp_client.server_config import ServerConfig
from tests.mcp_client.world import Here, hosting

CALL_SECONDS = 6.0
STORM_SECONDS = 3.0
LONGEST_PAUSE = 10.0  # Seconds. A message of the largest size takes two where nothing else runs.
MOST_GROWTH = 700 << 20  # Bytes of the largest message, parsed, which are given back.
MOST_TASKS = 2_500
MOST_LOG = 20_000
LONGEST_SENTENCE = 2_500
MOST_SHOWN = 10_000_000

SERVER = r"""
import json, sys, time
told = json.loads(sys.argv[1])
out = sys.stdout.buffer
canary = "CANARY" * 3
def say(message):
    out.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    out.flush()
def pour(make):
    ends_at = time.monotonic() + told["seconds"]
    number = 0
    while time.monotonic() < ends_at:
        lines = []
        for _ in range(told["at_once"]):
            lines.append(json.dumps({"jsonrpc": "2.0", **make(number)}).encode() + b"\n")
            number += 1
        out.write(b"".join(lines))
        out.flush()
schema = {"type": "object"}
tool = {"name": "storm", "description": "Storms", "inputSchema": schema}
if told["output_schema"]:
    tool["outputSchema"] = told["output_schema"]
listings = 0
for line in sys.stdin.buffer:
    request = json.loads(line)
    method, number = request.get("method"), request.get("id")
    if method == "initialize":
        say({"id": number, "result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": True}}, "serverInfo": {"name": "storm", "version": "1"}}})
    elif method == "tools/list":
        tools = [tool]
        if told["way"] == "new names":
            listings += 1
            tools += [{"name": f"{listings} {count}" + "x" * 900, "inputSchema": schema} for count in range(told["many"])]
        more = {"nextCursor": "x"} if told["way"] == "new names" and listings % 2 else {}
        say({"id": number, "result": {"tools": tools, **more}})
    elif method == "tools/call":
        token = request["params"].get("_meta", {}).get("progressToken")
        way = told["way"]
        text = told["text"]
        if way in ("pings", "sampling", "roots", "elicitation", "unknown requests"):
            named = {"pings": "ping", "sampling": "sampling/createMessage", "roots": "roots/list", "elicitation": "elicitation/create"}
            params = {"message": text, "requestedSchema": {"type": "object", "properties": {}}, "messages": [], "maxTokens": 1}
            pour(lambda count: {"id": count % told["different_ids"], "method": named.get(way, canary), "params": params})
        elif way == "progress":
            pour(lambda count: {"method": "notifications/progress", "params": {"progressToken": token, "progress": count, "message": text}})
        elif way == "notices":
            pour(lambda count: {"method": "notifications/message", "params": {"level": "info", "data": text}})
        elif way == "wrong notices":
            pour(lambda count: {"method": "notifications/message", "params": {"level": canary}})
        elif way == "unknown notices":
            pour(lambda count: {"method": canary, "params": {"a": text}})
        elif way == "cancelling":
            pour(lambda count: {"method": "notifications/cancelled", "params": {"requestId": count}})
        elif way in ("changes", "new names"):
            pour(lambda count: {"method": "notifications/tools/list_changed"})
        elif way == "answers to nothing":
            pour(lambda count: {"id": 1_000_000 + count, "result": {"a": text}})
        elif way == "no messages":
            pour(lambda count: {"id": [count], "result": text})
        elif way == "errors":
            say({"id": number, "error": {"code": -1, "message": canary + text * told["many"]}})
        elif way == "answered twice":
            say({"id": str(number), "result": {"content": []}})
        structured = told["structured"] if told["structured"] is not None else {}
        if way == "many texts":
            structured = {f"k{count}": 0 for count in range(told["many"] * 100)}
            say({"id": number, "result": {"content": [{"type": "text", "text": "[]"}] * (told["many"] * 70), "structuredContent": structured}})
        else:
            say({"id": number, "result": {"content": [], "structuredContent": structured}})
    elif number is not None and method:
        say({"id": number, "error": {"code": -32601, "message": "no"}})
"""
WAYS = (
    "pings", "sampling", "roots", "elicitation", "unknown requests", "progress", "notices",
    "wrong notices", "unknown notices", "cancelling", "changes", "new names", "answers to nothing",
    "no messages", "errors", "answered twice", "many texts", "patterns", "doubled parts",
)  # fmt: skip
PATTERNS = ("^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(a*)*b", "^(.*a){30}$")


def told_to_server(way: str, chance: random.Random) -> dict[str, Any]:
    output_schema: dict[str, Any] = {}
    structured: Any = None
    if way == "patterns":
        output_schema = {
            "type": "object",
            "properties": {"a": {"pattern": chance.choice(PATTERNS)}},
        }
        structured = {"a": "a" * chance.randint(40, 5_000) + "!"}
    elif way == "doubled parts":
        word = chance.choice(("allOf", "anyOf", "oneOf"))
        depth = chance.randint(35, 80)
        parts: dict[str, Any] = {"0": {"type": "string"}}
        for number in range(1, depth):
            parts[str(number)] = {word: 2 * [{"$ref": f"#/$defs/{number - 1}"}]}
        output_schema = {"type": "object", "$defs": parts, "$ref": f"#/$defs/{depth - 1}"}
        structured = {"a": 1}
    return {
        "way": way,
        "seconds": STORM_SECONDS,
        "at_once": chance.choice((1, 10, 100, 1_000)),
        "many": chance.choice((10, 100, 1_000)),
        "different_ids": chance.choice((1, 100, 10**9)),
        "text": chance.choice(("", "\u202e" * 40, "x" * 1_000, "\x1b[2J\0")),
        "output_schema": output_schema,
        "structured": structured,
    }


class Watch:
    """What a storm costs the program, beside what is said."""

    def __init__(self) -> None:
        self.longest_pause = 0.0
        self.most_tasks = 0
        self.largest = 0

    async def watch(self) -> None:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            self.longest_pause = max(self.longest_pause, time.monotonic() - began)
            self.most_tasks = max(self.most_tasks, len(asyncio.all_tasks()))
            self.largest = max(self.largest, resident_bytes())


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def storm(way: str, chance: random.Random, found: Counter[str]) -> None:
    told = told_to_server(way, chance)
    case = f"{way}, {json.dumps(told)[:200]}"
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "server.py"
        script.write_text(SERVER)
        configs = []
        for name, told_to_one in (("storm", told), ("calm", told_to_server("calm", chance))):
            arguments = ("-I", str(script), json.dumps(told_to_one))
            configs.append(
                ServerConfig(
                    name,
                    command=sys.executable,
                    args=arguments,
                    start_seconds=60,
                    call_seconds=CALL_SECONDS,
                )
            )
        stop_logging = start_logging(Path(folder), LogRedaction())
        try:
            async with hosting(*configs) as here:
                await here.settled()
                await weather_storm(here, case, found)
        finally:
            stop_logging()
        log_text = (Path(folder) / "helix.log").read_text()
    found["storms"] += 1
    if len(log_text) > MOST_LOG or "CANARY" in log_text:
        found[f"LOST: the log has {len(log_text)} characters of it: {case}"] += 1


async def weather_storm(here: Here, case: str, found: Counter[str]) -> None:
    """Call both servers, and note what the storm costs."""
    tasks = OwnedTasks("watch")
    watch = Watch()
    said = ""
    shown_characters = 0

    def show(text: str) -> None:
        nonlocal shown_characters
        shown_characters += len(text)

    server = here.host.find_hosted_server("storm")
    before = resident_bytes()
    tasks.spawn_task(watch.watch(), name="watch")
    try:
        calm = tasks.spawn_task(call_calm_server(here), name="calm")
        tool = next(each for each in server.all_tools if each.own_name == "storm")
        try:
            await tool.call_foreign_tool({}, CallContext("c", here.ask, show))
        except HelixError as error:
            said = str(error)
        found["calls of the other server meanwhile"] += await calm
    finally:
        await tasks.aclose()
    said = max(said, server.status.why, key=len)
    if watch.longest_pause > LONGEST_PAUSE:
        found[f"LOST: the loop stood still for {watch.longest_pause:.1f} s: {case}"] += 1
    if watch.largest - before > MOST_GROWTH:
        found[f"LOST: memory grew by {(watch.largest - before) >> 20} MB: {case}"] += 1
    if watch.most_tasks > MOST_TASKS:
        found[f"LOST: {watch.most_tasks} tasks: {case}"] += 1
    if len(said) > LONGEST_SENTENCE:
        found[f"LOST: {len(said)} characters are said of it: {case}"] += 1
    if shown_characters > MOST_SHOWN:
        found[f"LOST: {shown_characters} characters of a call's progress: {case}"] += 1


async def call_calm_server(here: Here) -> int:
    """Call the other server all the while; each call has an answer in time, or this fails."""
    calls = 0
    ends_at = time.monotonic() + STORM_SECONDS
    (tool,) = here.host.find_hosted_server("calm").all_tools
    while time.monotonic() < ends_at:
        await tool.call_foreign_tool({}, here.context)
        calls += 1
    return calls


async def raise_storms(storms: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    for number in range(storms):
        await storm(WAYS[number % len(WAYS)], chance, found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--storms", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    logging.getLogger().handlers.clear()
    try:
        asyncio.run(raise_storms(arguments.storms, arguments.seed, found))
    except HelixError as error:
        found[f"LOST: the other server did not answer: {error}"] += 1
    for key, count in sorted(found.items()):
        print(f"{count:6} {key}")
    return int(any(key.startswith("LOST") for key in found))


if __name__ == "__main__":
    sys.exit(main())
