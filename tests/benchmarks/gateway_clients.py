"""The real agents from npm, each working through the gateway against a scripted provider. They take 1.3 GB and are installed first.

HELIX_CLIENTS names the folder they are installed in, one folder each; without it a temporary one is used.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.row import Figure, Row
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says, Thinks

PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
    "pi": "@mariozechner/pi-coding-agent",
}
ARGUMENTS = {
    "claude": ["-p", "do the work", "--dangerously-skip-permissions", "--output-format", "json"],
    "codex": [
        "exec",
        "-m",
        "gpt-5.1-codex",
        "--skip-git-repo-check",
        "--dangerously-bypass-approvals-and-sandbox",
        "do it",
    ],
    "gemini": ["-p", "do the work", "--yolo", "--skip-trust"],
    "pi": ["--provider", "anthropic", "--model", "claude-sonnet-4-5", "-p", "do the work"],
}
SHELLS = ("Bash", "bash", "shell", "shell_command", "exec_command", "run_shell_command")
DOCUMENT = (
    "Project Background",
    "Technical Details",
    "Completed Work",
    "Current Issues",
    "TODO Items",
    "User Preferences",
)
LONGEST = 900.0  # seconds of one agent


class Work:
    """A model that runs commands with long outputs, two side by side now and then, and recalls every fifth step."""

    def __init__(self, steps: int) -> None:
        self.steps, self.done, self.recalls = steps, 0, 0

    def script(self, asked: Asked) -> Sequence[Block]:
        text, names = asked.raw.decode("utf-8", "replace"), _names(asked.body)
        shell = next((name for name in names if name in SHELLS), "")
        if not shell:
            return [Says("{}")]
        if DOCUMENT[0] in text[-6_000:]:
            return [
                Says("\n\n".join(f"## {name}\nAll is well, and there is more to say about it." for name in DOCUMENT))
            ]
        self.done += 1
        if self.done > self.steps:
            return [Says("All done.")]
        found = re.findall(r'recall_cached_content\(\\*"([0-9a-f]{64})', text)
        if self.done % 5 == 0 and found:
            self.recalls += 1
            return [Thinks("I need it"), Calls("recall_cached_content", {"sha256": found[0], "lines": "1-20"})]
        call = Calls(
            shell, _arguments(shell, f"seq {self.done * 1000} {self.done * 1000 + 3500}; echo step {self.done}")
        )
        return [Says(f"step {self.done}"), call, call] if self.done % 7 == 0 else [Says(f"step {self.done}"), call]


def _names(body: dict[str, Any]) -> list[str]:
    tools = [
        *(body.get("tools") or []),
        *(t for item in body.get("input") or [] if isinstance(item, dict) for t in item.get("tools", [])),
    ]
    flat = [one for tool in tools for one in tool.get("functionDeclarations", [tool])]
    return [str(one.get("name") or one.get("function", {}).get("name", "")) for one in flat]


def _arguments(shell: str, command: str) -> dict[str, Any]:
    if shell == "exec_command":
        return {"cmd": command}
    return {"command": ["bash", "-lc", command]} if shell == "shell" else {"command": command, "description": "numbers"}


def _installed(folder: Path, name: str) -> Path:
    """The folder of the agent's program; RuntimeError where it cannot be had."""
    place = folder / name / "node_modules" / ".bin"
    if not (place / name).exists():
        command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder / name), PACKAGES[name]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not (place / name).exists():
            raise RuntimeError(f"{PACKAGES[name]} cannot be installed: {done.stderr[-300:]}")
    return place


def worked(folder: Path, name: str, steps: int) -> tuple[int, Work, Provider]:
    """One agent to its end: its exit code, what it did, and what the provider saw."""
    program = _installed(folder, name)
    work = Work(steps)
    with (
        tempfile.TemporaryDirectory() as home,
        tempfile.TemporaryDirectory() as place,
        Provider(work.script) as provider,
    ):
        if name == "gemini":
            settings = Path(home, ".gemini", "settings.json")
            settings.parent.mkdir()
            settings.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}), "utf-8")
        keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), "sk-test")
        own = {
            "HOME": home,
            "PATH": f"{os.environ['PATH']}:{program}",
            "IS_SANDBOX": "1",
            "PYTHONPATH": str(Path.cwd()),
        }
        quiet = {
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "NO_PROXY": "127.0.0.1,localhost",
        }
        command = [sys.executable, "-m", "helix_desktop", "--home", f"{home}/helix", "wrap", "--upstream", provider.url]
        done = subprocess.run(
            [*command, name, "--", *ARGUMENTS[name]],
            cwd=place,
            env={**os.environ, **keys, **own, **quiet},
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
        print(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "", file=sys.stderr)
        return done.returncode, work, provider


def rows(*, quick: bool = False) -> list[Row]:
    """For each agent the steps it made; it must end well, with nothing refused and no recall seen by it."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("HELIX_CLIENTS", temporary))
        steps = 12 if quick else 60
        made = []
        for name in PACKAGES:
            code, work, provider = worked(folder, name, steps)
            well = code == 0 and work.done > steps and not provider.refused
            note = f"{work.recalls} recalls, {len(provider.refused)} refused, exit code {code}"
            made.append(
                Row(
                    f"{name}: steps", "steps", Figure.of([float(work.done)]), asked=f"over {steps}", met=well, note=note
                )
            )
        return made
