"""How large the system prompt and tool definitions are in a task's first request,
compared with agents installed from npm.

A scripted provider takes the requests, and the two are counted as JSON with o200k.
HELIX_CLIENTS names the folder the agents are installed in, as for gateway_clients. They
come through the gateway, whose own tools are left out.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helix_desktop.engine.tool_names import RECALLS
from helix_desktop.replay.prompt_cache_billing import HEAD_TOKENS
from helix_desktop.token_counting import TiktokenCounter
from tests.benchmarks.gateway_clients import BEGINS, PACKAGES, installed, started
from tests.benchmarks.row import Figure, Row
from tests.peers.agent_provider import Asked, Provider, Says

AGENTS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "Claude Code": (
        "claude",
        {"ENABLE_TOOL_SEARCH": "false"},
    ),  # as it is with an address that is not Anthropic's
    "Claude Code with tool search": ("claude", {"ENABLE_TOOL_SEARCH": "true"}),
    "Codex": ("codex", {}),
    "opencode": ("opencode", {}),
    "pi": ("pi", {}),
}


def rows(*, quick: bool = False) -> list[Row]:
    del quick
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("HELIX_CLIENTS", temporary))
        peers = {
            f"{label} {_version(folder, name)}": _agent(folder, name, own)
            for label, (name, own) in AGENTS.items()
        }
    ours = _ours()
    note = f"a replay bills {HEAD_TOKENS:,} tokens, without the JSON around the text and the cache marks"
    return [
        Row(
            "system prompt and tools",
            "tokens",
            ours,
            peers,
            "≤ 2,000",
            ours.median <= 2_000,
            note=note,
        )
    ]


def _ours() -> Figure:
    with _scripted() as (provider, home, place):
        own = {"KEY": "sk-of-the-benchmark", "PYTHONPATH": str(Path.cwd())}
        for command in (
            [
                "provider",
                "add",
                "anthropic",
                "--base-url",
                f"{provider.url}/v1",
                "--variable",
                "KEY",
            ],
            ["workspace", "new", "Thesis", "--folder", str(place)],
            ["ask", "-m", "anthropic/claude-sonnet-4-5", "do the work"],
        ):
            program = [sys.executable, "-m", "helix_desktop", "--home", str(home)]
            subprocess.run(
                [*program, *command],
                cwd=place,
                env={**os.environ, **own},
                check=True,
                capture_output=True,
            )
        return _largest(provider)


def _agent(folder: Path, name: str, own: Mapping[str, str]) -> Figure:
    program = installed(folder, name)
    with _scripted() as (provider, home, place):
        none = subprocess.DEVNULL
        pipe = subprocess.PIPE
        with started(
            provider, name, program, home, place, BEGINS[name], own=own, stdin=none, stderr=pipe
        ) as process:
            process.communicate(timeout=300)
        return _largest(provider, RECALLS)


@contextmanager
def _scripted() -> Iterator[tuple[Provider, Path, Path]]:
    """A provider that is done at once, a home and a folder to work in."""
    with (
        tempfile.TemporaryDirectory() as home,
        tempfile.TemporaryDirectory() as place,
        Provider(lambda _: [Says("Done.")]) as provider,
    ):
        yield provider, Path(home), Path(place)


def _version(folder: Path, name: str) -> str:
    installed(folder, name)
    package = folder / name / "node_modules" / PACKAGES[name] / "package.json"
    return str(json.loads(package.read_text("utf-8"))["version"])


def _largest(provider: Provider, without: Collection[str] = ()) -> Figure:
    """Of the request with the most of it: agents ask for a title as well."""
    count = TiktokenCounter().count_tokens
    heads = [_head(asked, without) for asked in provider.asked if asked.protocol]
    return Figure.of([float(max(sum(count(json.dumps(part)) for part in head) for head in heads))])


def _head(asked: Asked, without: Collection[str]) -> list[Any]:
    body = asked.body
    said = [body.get("system") or body.get("instructions") or ""]
    said += [
        item for item in body.get("input") or [] if item.get("role") in ("developer", "system")
    ]
    return [*said, [tool for tool in body.get("tools") or [] if tool.get("name") not in without]]
