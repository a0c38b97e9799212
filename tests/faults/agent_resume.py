"""The real Claude Code and Codex resume what `conversation restore` wrote: their next request has the same messages.

python -m tests.faults.agent_resume [--conversations N] [--seed S]      HELIX_CLIENTS: see tests/benchmarks/gateway_clients.py

Each conversation is made by the agent itself against a scripted provider, resumed as it is (the reference), imported, and resumed
again: with the agent's file still there (its own lines), and after the file was deleted (written anew). Then the other agent
resumes it: the user's words and every output must be in its request.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helix_desktop.protocols.protocol_table import WIRE_MODULES
from helix_desktop.protocols.wire_message import PieceKind
from tests.benchmarks.gateway_clients import KEY, SHELLS, installed
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says

AGENTS = ("claude", "codex")
LONGEST = 180.0


class Script:
    """So many steps, each a command or two; then it is done."""

    def __init__(self, chance: random.Random) -> None:
        self.left, self._chance, self._number = 0, chance, 0

    def __call__(self, asked: Asked) -> Sequence[Block]:
        names = _tool_names(asked.body)
        shell = next((name for name in SHELLS if name in names), "")
        if not shell or self.left <= 0:
            return [Says("All done.")]
        self.left -= 1
        both = 2 if self._chance.random() < 0.3 else 1
        return [Says(f"step {self.left}"), *(self._call(shell) for _ in range(both))]

    def _call(self, shell: str) -> Block:
        self._number += 1
        command = (
            f"seq {self._number * 10} {self._number * 10 + self._chance.randint(1, 60)}; echo OUT-{self._number}-END"
        )
        return Calls(shell, {"cmd": command} if shell == "exec_command" else {"command": command})


def _tool_names(body: dict[str, Any]) -> set[str]:
    return {str(tool.get("name")) for tool in body.get("tools") or []}


def run_agent(name: str, provider: Provider, home: Path, given: Sequence[str]) -> None:
    """The agent, straight at the provider."""
    program = installed(Path(os.environ.get("HELIX_CLIENTS", "/tmp/helix-clients")), name) / name
    variables = {
        "HOME": str(home),
        "ANTHROPIC_API_KEY": KEY,
        "OPENAI_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": provider.url,
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "NO_PROXY": "127.0.0.1,localhost",
    }
    if name == "claude":
        usual = ["--dangerously-skip-permissions", "--output-format", "json"]
    else:
        told = f'model_providers.local={{name="local",base_url="{provider.url}/v1",wire_api="responses",env_key="OPENAI_API_KEY"}}'
        options = ["-c", told, "-c", 'model_provider="local"', "-m", "gpt-5.1-codex", "--skip-git-repo-check"]
        usual = [*options, "--dangerously-bypass-approvals-and-sandbox"]
    command = [str(program), *(["exec"] if name == "codex" else []), *usual, *given]
    done = subprocess.run(
        command, cwd=home.parent / "work", env={**os.environ, **variables}, capture_output=True, text=True, timeout=LONGEST,
        stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}")


def begin(name: str, words: str) -> list[str]:
    return ["-p", words] if name == "claude" else [words]


def resume(name: str, session: str, words: str) -> list[str]:
    return ["--resume", session, "-p", words] if name == "claude" else ["resume", session, words]


def pieces_of_request(asked: Asked) -> list[tuple[str, str, str]]:
    """Who says what, without what the agent itself puts in and finds anew each time."""
    found = []
    for message in WIRE_MODULES[asked.protocol].messages(asked.body):
        for piece in message.pieces:
            if piece.kind in (PieceKind.TEXT, PieceKind.CALL, PieceKind.RESULT) and message.speaker.value != "system":
                own = piece.text.lstrip().startswith(("<", "# AGENTS", "You are", "The following", "Today", "`sandbox"))
                if not own or piece.kind is not PieceKind.TEXT:
                    found.append((message.speaker.value, piece.kind.value, piece.text))
    return found


def last_request(provider: Provider, words: str) -> Asked:
    """The newest request that ends with these words of the user."""
    return next(one for one in reversed(provider.asked) if one.protocol and words.encode() in one.raw and _tool_names(one.body))  # fmt: skip


def helix(home: Path, *given: str) -> str:
    command = [sys.executable, "-m", "helix_desktop", "--home", str(home / "helix"), *given]
    variables = {**os.environ, "HOME": str(home), "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(command, cwd=home.parent / "work", env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{given}: {done.stderr[-600:]}")
    return done.stdout


def session_file(name: str, home: Path) -> Path:
    below = home / (".claude/projects" if name == "claude" else ".codex/sessions")
    return max(
        (file for file in below.rglob("*.jsonl") if "subagents" not in file.parts), key=lambda f: f.stat().st_mtime
    )


def session_id(name: str, file: Path) -> str:
    return file.stem if name == "claude" else file.stem[-36:]


def try_conversation(name: str, chance: random.Random) -> list[str]:
    """What was wrong."""
    wrong: list[str] = []
    script = Script(chance)
    with tempfile.TemporaryDirectory() as folder, Provider(script) as provider:
        home = Path(folder, "home")
        home.mkdir()
        (home.parent / "work").mkdir()
        script.left = chance.randint(2, 12)
        run_agent(name, provider, home, begin(name, "do the work: naïve “words”\n  and a second line"))
        session = session_id(name, session_file(name, home))
        script.left = chance.randint(1, 6)
        run_agent(name, provider, home, resume(name, session, "and more of it"))
        kept = Path(folder, "kept")
        shutil.copytree(home, kept, symlinks=True)
        original = session_file(name, home)
        before = original.read_bytes()
        run_agent(name, provider, kept, resume(name, session, "REFERENCE"))
        original.write_bytes(before)  # Codex's database in the copy names the first file, and goes on in it
        expected = [one for one in pieces_of_request(last_request(provider, "REFERENCE")) if one[2] != "REFERENCE"]
        helix(home, "workspace", "new", "Work", "--folder", str(home.parent / "work"))
        helix(home, "conversation", "import", "-w", "Work", str(session_file(name, home)))
        listed = json.loads(helix(home, "conversation", "list", "-w", "Work", "--json"))
        conversation = next(one["id"] for one in listed if not one["parent"])
        for way, agent in (("its own lines", name), ("written anew", name), ("the other agent", _other(name))):
            if way == "written anew":
                original.unlink()
            made = json.loads(
                helix(home, "conversation", "restore", "-w", "Work", conversation, "--to", agent, "--json")
            )
            if made["original"] != (way == "its own lines"):
                wrong.append(f"{way}: the lines are {'' if made['original'] else 'not '}the agent's own")
            mark = f"MARK {way}"
            run_agent(agent, provider, home, resume(agent, made["session"], mark))
            got = [one for one in pieces_of_request(last_request(provider, mark)) if one[2] != mark]
            wrong += [f"{way}: {why}" for why in _differences(expected, got, translated=agent != name)]
        wrong += [f"refused: {why}" for why in provider.refused]
    return wrong


def _other(name: str) -> str:
    return AGENTS[1 - AGENTS.index(name)]


def _differences(expected: Sequence[Any], got: Sequence[Any], *, translated: bool) -> list[str]:
    if not translated:
        return (
            []
            if expected == got
            else [f"{len(expected)} pieces, {len(got)} restored; {_first_difference(expected, got)}"]
        )
    text = "\n".join(one[2] for one in got)
    lost = [one for one in expected if one[1] != PieceKind.CALL.value and one[2].strip() not in text]
    return [f"{len(lost)} of {len(expected)} pieces are lost, first {lost[0]}"] if lost else []


def _first_difference(expected: Sequence[Any], got: Sequence[Any]) -> str:
    pairs = ((one, other) for one, other in zip(expected, got, strict=False) if one != other)
    more = [*expected, *got][-abs(len(expected) - len(got)) :]
    return str(next(pairs, f"one goes on with {more}"))[:700]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent", choices=AGENTS)
    arguments = parser.parse_args()
    failed = 0
    for number in range(arguments.conversations):
        name = arguments.agent or AGENTS[number % 2]
        wrong = try_conversation(name, random.Random(arguments.seed * 1000 + number))
        failed += bool(wrong)
        print(f"{name} {number}: {'; '.join(wrong) or 'the same messages'}", flush=True)
    print(f"{arguments.conversations} conversations, {failed} wrong")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
