"""The context server as other programs see it, and the host with servers nobody here wrote.

    python -m tests.faults.mcp [--recalls 1000] [--inspector PATH] [--servers DIR]

Without a window: over stdio, over HTTP, and over stdio beside the process that has the workspace open. `--inspector`: the
program of @modelcontextprotocol/inspector. `--servers`: a folder with node_modules (server-everything, server-filesystem)
and py (a venv with mcp-server-git and mcp-server-time); each of their tools is called once through a Toolbox.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import mcp
from mcp.client.streamable_http import streamable_http_client

from helix_desktop.mcp_host.config import ServerConfig
from helix_desktop.mcp_host.server import State
from tests.mcp_host.world import Here, hosting
from tests.tools.world import world

TOOLS = 7
MEDIAN = 0.005


def say(words: str) -> None:
    print(words, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recalls", type=int, default=1000)
    parser.add_argument("--inspector", type=Path)
    parser.add_argument("--servers", type=Path)
    arguments = parser.parse_args()
    return asyncio.run(trials(arguments))


async def trials(arguments: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        base = [sys.executable, "-m", "helix_desktop", "--home", f"{folder}/home"]
        digest = prepared(base, Path(folder))
        failed = await over_stdio("alone", base, digest, arguments.recalls)
        async with over_http(base) as (url, token):
            failed += await attacked(url, token)
            async with httpx2.AsyncClient(headers={"authorization": token}, timeout=20) as http:
                failed += await used("HTTP", streamable_http_client(url, http_client=http), digest, 100)
            failed += await over_stdio("beside the process that has it open", base, digest, arguments.recalls)
        failed += await foreign(base, Path(folder), digest)
        if arguments.inspector:
            failed += inspected(arguments.inspector, base, digest)
    if arguments.servers:
        failed += await hosted(arguments.servers)
    return 1 if failed else 0


def prepared(base: list[str], folder: Path) -> str:
    """Two workspaces; the hash of a long entry in the first."""
    for name in ("w", "other"):
        (folder / name).mkdir()
        subprocess.run(
            [*base, "workspace", "new", name, "--folder", str(folder / name)], check=True, capture_output=True
        )
    (folder / "log").write_text("".join(f"line {number}\n" for number in range(20_000)))
    put = [*base, "cache", "put", "-w", "w", str(folder / "log")]
    return subprocess.run(put, check=True, capture_output=True, text=True).stdout.strip()


async def over_stdio(what: str, base: list[str], digest: str, recalls: int, workspace: str = "w") -> int:
    parameters = mcp.StdioServerParameters(command=base[0], args=[*base[1:], "mcp", "-w", workspace])
    return await used(f"stdio, {what}", parameters, digest, recalls)


async def used(what: str, server: Any, digest: str, recalls: int) -> int:
    """What an agent does: list, recall, read, get it wrong. How many of these went wrong."""
    async with mcp.Client(server, cache=None) as client:
        tools = (await client.list_tools()).tools
        times = []
        for number in range(recalls):
            began = time.perf_counter()
            lines = f"{number % 19_000 + 1}-{number % 19_000 + 20}"
            result = await client.call_tool("recall_cached_content", {"sha256": digest, "lines": lines})
            times.append(time.perf_counter() - began)
            if result.is_error:
                say(f"{what}: a recall failed: {result.content}")
                return 1
        wrong = [{"sha256": name} for name in ("0" * 64, "../../etc/passwd", "x" * 10_000_000, "")]
        refused = [(await client.call_tool("recall_cached_content", each)).is_error for each in wrong]
        entry = (await client.read_resource(f"helix://entry/{digest}")).contents[0]
    median = statistics.median(times)
    ok = (
        len(tools) == TOOLS
        and all(refused)
        and "line 19999" in getattr(entry, "text", "")
        and (median < MEDIAN or what == "HTTP")
    )
    say(
        f"{what}: {recalls} recalls, median {median * 1000:.1f} ms; bad input refused {sum(refused)} of {len(wrong)}: {_word(ok)}"
    )
    return 0 if ok else 1


def _word(ok: object) -> str:
    return "good" if ok else "WRONG"


@asynccontextmanager
async def over_http(base: list[str]) -> AsyncIterator[tuple[str, str]]:
    process = await asyncio.create_subprocess_exec(
        *base, "mcp", "-w", "w", "--http", "0", stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        url = (await process.stdout.readline()).decode().strip()
        token = (await process.stdout.readline()).decode().removeprefix("Authorization: ").strip()
        yield url, token
    finally:
        process.terminate()
        await process.wait()


async def attacked(url: str, token: str) -> int:
    """What a web page or a stranger on this machine could send."""
    good = {"authorization": token, "accept": "application/json, text/event-stream"}
    attempts = {
        "no token": {},
        "a wrong token": {"authorization": "Bearer x"},
        "another origin": {**good, "origin": "https://evil.example"},
        "a rebound name": {**good, "host": "evil.example"},
    }
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx.AsyncClient(timeout=20) as client:
        codes = {
            what: (await client.post(url, json=body, headers=headers)).status_code for what, headers in attempts.items()
        }
        large = await client.post(url, content=b"x" * (64 << 20), headers={**good, "content-type": "application/json"})
    ok = all(code in {401, 403, 421} for code in codes.values()) and large.status_code in {400, 413}
    say(f"HTTP, attacked: {codes}, 64 MB: {large.status_code}: {_word(ok)}")
    return 0 if ok else 1


async def foreign(base: list[str], folder: Path, digest: str) -> int:
    """A hash of one workspace asked of another."""
    del folder
    parameters = mcp.StdioServerParameters(command=base[0], args=[*base[1:], "mcp", "-w", "other"])
    async with mcp.Client(parameters, cache=None) as client:
        result = await client.call_tool("recall_cached_content", {"sha256": digest})
    say(f"a hash of another workspace: {result.content[0].text[:60]!r}: {_word(result.is_error)}")  # type: ignore[union-attr]
    return 0 if result.is_error else 1


def inspected(inspector: Path, base: list[str], digest: str) -> int:
    """The inspector's command line against stdio."""
    calls = {
        "tools/list": [],
        "resources/list": [],
        "tools/call": [
            "--tool-name",
            "recall_cached_content",
            "--tool-arg",
            f"sha256={digest}",
            "--tool-arg",
            "lines=1-2",
        ],
        "resources/read": ["--uri", f"helix://entry/{digest}"],
    }
    failed = 0
    for method, more in calls.items():
        command = [str(inspector), "--cli", *base, "mcp", "-w", "w", "--method", method, *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        ok = done.returncode == 0 and ("sha256" in done.stdout or digest in done.stdout or "line 0" in done.stdout)
        failed += not ok
        say(f"inspector, {method}: {_word(ok)}{'' if ok else ' ' + (done.stderr or done.stdout)[:300]}")
    return failed


# --- the host --------------------------------------------------------------------------------------------------------


async def hosted(servers: Path) -> int:
    """Every tool of the reference servers, called once through a Toolbox."""
    with tempfile.TemporaryDirectory() as folder:
        repository(Path(folder))
        port = 3919
        node, python = servers / "node_modules" / ".bin", servers / "py" / "bin"
        web = subprocess.Popen(
            [str(node / "mcp-server-everything"), "streamableHttp"],
            env={**os.environ, "PORT": str(port)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        configs = [
            ServerConfig("everything", command=str(node / "mcp-server-everything")),
            ServerConfig("filesystem", command=str(node / "mcp-server-filesystem"), args=(folder,)),
            ServerConfig("git", command=str(python / "mcp-server-git"), args=("--repository", folder)),
            ServerConfig("time", command=str(python / "mcp-server-time")),
            ServerConfig("web", "http", url=f"http://127.0.0.1:{port}/mcp"),
        ]
        try:
            await asyncio.sleep(2)
            async with hosting(*configs) as here:
                await here.until(lambda: all(one.status.state is State.READY for one in here.host.servers), 60)
                return await called(here, Path(folder))
        finally:
            web.kill()
            web.wait()


def repository(folder: Path) -> None:
    (folder / "a.txt").write_text("hi\n")
    (folder / "sub").mkdir()
    for words in (
        ["init", "-q"],
        ["add", "a.txt"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True)


async def called(here: Here, folder: Path) -> int:
    failed, good = [], 0
    async with world(folder / "..") as made:
        made.box = made.kit.toolbox(more=here.host.tools)
        for tool in sorted(here.host.tools(), key=lambda one: one.spec.name):
            outcome = await made.run(tool.spec.name, **arguments_for(tool.spec.schema, tool.own_name, folder))
            good += outcome.ok
            if not outcome.ok:
                failed.append(f"{tool.spec.name}: {made.text(outcome)[:150]!r}")
    say(f"host: {good} tools of {len(here.host.servers)} servers answered; {len(failed)} said no:")
    for line in failed:
        say(f"  {line}")
    return 0


def arguments_for(schema: str, tool: str, folder: Path) -> dict[str, Any]:
    """Something that fits, for each argument that is required."""
    file = str(folder / ("sub" if "director" in tool or "tree" in tool else "new.txt" if "write" in tool else "a.txt"))
    known = {
        "path": str(folder)
        if tool in {"search_files", "list_directory", "directory_tree"} or "director" in tool
        else file,
        "paths": [file],
        "repo_path": str(folder),
        "timezone": "UTC",
        "source_timezone": "UTC",
        "target_timezone": "Europe/Berlin",
        "time": "12:00",
        "files": ["a.txt"],
        "branch_name": "master" if tool == "git_checkout" else "new",
        "branch_type": "local",
        "revision": "HEAD",
        "target": "HEAD",
        "edits": [{"oldText": "hi", "newText": "ho"}],
        "source": str(folder / "new.txt"),
        "destination": str(folder / "moved.txt"),
        "pattern": "*",
        "a": 1,
        "b": 2,
    }
    whole = json.loads(schema)
    properties = whole.get("properties", {})
    plain = {"string": "London", "number": 1, "integer": 1, "boolean": True, "array": [], "object": {}}
    return {
        name: known.get(name, (properties[name].get("enum") or [plain.get(properties[name].get("type"), "x")])[0])
        for name in whole.get("required", [])
    }


if __name__ == "__main__":
    sys.exit(main())
