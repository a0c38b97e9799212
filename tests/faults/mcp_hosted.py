"""The host with servers nobody here wrote: each of their tools called once through a Toolbox.

python -m tests.faults.mcp_hosted --node DIR --python DIR     DIR: a folder with
node_modules; a virtual environment
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helix_desktop.mcp_client.hosted_server import McpConnectionState
from helix_desktop.mcp_client.server_config import ServerConfig
from tests.mcp_client.world import Here, hosting
from tests.tools.world import world


async def hosted(node: Path, python: Path) -> int:
    """How many calls failed."""
    programs = node / "node_modules" / ".bin"
    scripts = python / "bin"
    with tempfile.TemporaryDirectory() as folder, _web(programs / "mcp-server-everything") as url:
        repository(Path(folder))
        configs = [
            ServerConfig("everything", command=str(programs / "mcp-server-everything")),
            ServerConfig(
                "filesystem", command=str(programs / "mcp-server-filesystem"), args=(folder,)
            ),
            ServerConfig(
                "git", command=str(scripts / "mcp-server-git"), args=("--repository", folder)
            ),
            ServerConfig("time", command=str(scripts / "mcp-server-time")),
            ServerConfig("web", "http", url=url),
        ]
        async with hosting(*configs) as here:
            await here.until(
                lambda: all(
                    one.status.state is McpConnectionState.READY for one in here.host.hosted_servers
                ),
                60,
            )
            return await _called(here, Path(folder))


@contextmanager
def _web(program: Path) -> Iterator[str]:
    """server-everything over HTTP."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = subprocess.DEVNULL
    command = [str(program), "streamableHttp"]
    with subprocess.Popen(
        command, env={**os.environ, "PORT": str(port)}, stdout=quiet, stderr=quiet
    ) as process:
        try:
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            process.kill()


def repository(folder: Path) -> None:
    (folder / "a.txt").write_text("hi\n")
    (folder / "sub").mkdir()
    for words in (
        ["init", "-q"],
        ["add", "a.txt"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
    ):
        subprocess.run(["git", "-C", str(folder), *words], check=True)


async def _called(here: Here, folder: Path) -> int:
    failed = []
    good = 0
    async with world(folder / "..") as made:
        made.box = made.kit.build_toolbox(more=here.host.list_ready_tools)
        for tool in sorted(here.host.list_ready_tools(), key=lambda one: one.spec.name):
            outcome = await made.run(
                tool.spec.name, **arguments_for(tool.spec.schema, tool.own_name, folder)
            )
            good += outcome.ok
            if not outcome.ok:
                failed.append(f"{tool.spec.name}: {made.text(outcome)[:150]!r}")
    print(
        f"host: {good} tools of {len(here.host.hosted_servers)} servers answered; {len(failed)} said no:"
    )
    for line in failed:
        print(f"  {line}")
    return len(failed)


def arguments_for(schema: str, tool: str, folder: Path = Path()) -> dict[str, Any]:
    """Something that fits, for each argument that is required."""
    whole = json.loads(schema)
    properties = whole.get("properties", {})
    known = _known(tool, folder)
    plain = {
        "string": "London",
        "number": 1,
        "integer": 1,
        "boolean": True,
        "array": [],
        "object": {},
    }
    return {
        name: known.get(
            name,
            (properties[name].get("enum") or [plain.get(properties[name].get("type"), "x")])[0],
        )
        for name in whole.get("required", [])
    }


def _known(tool: str, folder: Path) -> dict[str, Any]:
    file = str(
        folder
        / (
            "sub"
            if "director" in tool or "tree" in tool
            else "new.txt"
            if "write" in tool
            else "a.txt"
        )
    )
    whole_folder = (
        tool in {"search_files", "list_directory", "directory_tree"} or "director" in tool
    )
    return {
        "path": str(folder) if whole_folder else file,
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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--node", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    arguments = parser.parse_args()
    return asyncio.run(hosted(arguments.node, arguments.python))


if __name__ == "__main__":
    sys.exit(main())
