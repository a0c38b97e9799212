"""The newest of all agents, installed today, through everything that this program does with them.

python -m tests.faults.agent_matrix FOLDER [--agent NAME ...] [--cell NAME ...] [--steps 4]
    [--minutes 28] [--results FILE] [--installed]

FOLDER gets a folder for each agent. With --installed, what is there is taken. Each cell is
one of the trials beside this file, in a process of its own, and comes out as one of:

right      what the trial says of itself
refused    the agent cannot be served in that situation, and was told so before anything was sent
wrong      with the last line of what the trial said; --results keeps all of it
late       it was ended after its time
no time    the minutes were over before it began
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from helix_desktop import concurrency
from tests.faults import wrap_matrix

NODE = "node@24"  # With an older one, npm silently takes old versions of some agents.
MOST_VERSIONS_TRIED = 3  # A new version may need packages that its registry does not have yet.
CELL_SECONDS = 420.0
INSTALL_SECONDS = 600.0
AT_ONCE = 2
STEPS_OF_SUMMARIES = "25"
STEPS_OF_COMPACTION = 6  # pi shortens nothing after fewer.


@dataclass(frozen=True)
class MatrixAgent:
    """`package`: its name at npm, or at PyPI if `is_python`. `program`: its command."""

    name: str
    package: str
    program: str = ""
    is_python: bool = False

    @property
    def command(self) -> str:
        return self.program or self.name


AGENTS = (
    MatrixAgent("claude", "@anthropic-ai/claude-code"),
    MatrixAgent("codex", "@openai/codex"),
    MatrixAgent("opencode", "opencode-ai"),
    MatrixAgent("gemini", "@google/gemini-cli"),
    MatrixAgent("pi", "@earendil-works/pi-coding-agent"),
    MatrixAgent("qwen", "@qwen-code/qwen-code"),
    MatrixAgent("copilot", "@github/copilot"),
    MatrixAgent("cline", "cline"),
    MatrixAgent("aider", "aider-chat", is_python=True),
)
# Two of the agents speak ACP by an adapter.
ADAPTERS = (
    MatrixAgent("acp-claude", "@agentclientprotocol/claude-agent-acp", "claude-agent-acp"),
    MatrixAgent("acp-codex", "@agentclientprotocol/codex-acp", "codex-acp"),
)
WITH_HISTORIES = ("claude", "codex", "opencode", "gemini", "pi")
# Of those of `wrap_matrix`, what people meet most often comes first.
WRAP_SITUATIONS = (
    "plain",
    "SIGINT",
    "SIGTERM",
    "wrap killed",
    "gateway killed",
    "gateway killed in a stream",
    "goes on",
    "begun without wrap",
    "in settings",
    "own key header",
    "proxy",
    "certificate",
    "subscription",
    "two at once",
    "own compaction",
    "provider fails",
)
ONLY_WRAPPED = ("qwen", "copilot", "cline", "aider")
WITH_ACP = {
    "claude": "acp-claude",
    "codex": "acp-codex",
    "gemini": "gemini",
    "qwen": "qwen",
    "opencode": "opencode",
}


@dataclass(frozen=True)
class Cell:
    """`module`: the trial in this folder or in the benchmarks, with what it is given."""

    agent: str
    name: str
    module: str
    given: tuple[str, ...]
    acp_folder: str = ""
    must_refuse: bool = False


@dataclass(frozen=True)
class Outcome:
    cell: Cell
    word: str
    seconds: float
    output: str

    @property
    def line(self) -> str:
        line = f"{self.cell.agent}, {self.cell.name}: {self.word} ({self.seconds:.0f} s)"
        if self.word == "wrong":
            said = [text for text in self.output.splitlines() if text.strip()]
            line += f" {said[-1][:300] if said else ''}"
        return line


def list_wrap_cells(steps: int) -> Iterator[Cell]:
    """Yield the situations of `wrap_matrix` that each agent has."""
    module = "tests.faults.wrap_matrix"
    for situation in WRAP_SITUATIONS:
        _, agents = wrap_matrix.SITUATIONS[situation]
        enough_steps = steps
        if situation == "own compaction":
            enough_steps = max(steps, STEPS_OF_COMPACTION)
        for agent in agents:
            given = ("--agent", agent, "--situation", situation, "--steps", str(enough_steps))
            yield Cell(agent, f"wrap, {situation}", module, given)


def list_cells(folder: Path, steps: int) -> Iterator[Cell]:
    """Yield the cells, the shortest first, so that few are left when the time is over."""
    yield from list_wrap_cells(steps)
    with_steps = ("--steps", str(steps))
    for agent in wrap_matrix.SIGNED:
        given = ("--agent", agent, "--situation", "signed")
        name = "wrap, with a provider that cannot be reached"
        module = "tests.faults.wrap_matrix"
        yield Cell(agent, name, module, given + with_steps, must_refuse=True)
    for agent in ONLY_WRAPPED:
        named = (str(folder), "--agent", agent)
        module = "tests.benchmarks.gateway_other_agents"
        yield Cell(agent, "wrap, plain", module, named + with_steps)
        for ending in ("SIGINT", "SIGTERM"):
            ended = ("--ended-by", ending)
            yield Cell(agent, f"wrap, {ending}", module, named + with_steps + ended)
    for agent in WITH_HISTORIES:
        name = "models that cannot write summaries"
        module = "tests.faults.failing_summaries"
        yield Cell(agent, name, module, ("--agent", agent, "--steps", STEPS_OF_SUMMARIES))
    for agent, acp_folder in WITH_ACP.items():
        kills = ("--kills", "1")
        module = "tests.faults.acp_agents"
        yield Cell(agent, "ACP, killed once", module, (agent, *with_steps, *kills), acp_folder)
    for agent in WITH_HISTORIES:
        given = ("--agent", agent, "--to", agent)
        name = "restore, with and without its file"
        yield Cell(agent, name, "tests.faults.agent_resume", (*given, "--conversations", "1"))
    for number, agent in enumerate(WITH_HISTORIES):
        target = WITH_HISTORIES[(number + 1) % len(WITH_HISTORIES)]
        name = f"relay to {target}, with its MCP client"
        yield Cell(agent, name, "tests.faults.agent_pairs", ("--agent", agent, "--to", target))


# --- Installing


def install_newest(folder: Path, agent: MatrixAgent) -> str:
    """Install the newest version that can be installed. Return which it is; RuntimeError if
    there is none.
    """
    place = folder / agent.name
    place.mkdir(parents=True, exist_ok=True)
    if agent.is_python:
        run_or_fail([sys.executable, "-m", "venv", str(place)])
        pip = [str(place / "bin" / "pip"), "install", "--quiet", "--upgrade", agent.package]
        run_or_fail(pip)
        return run_or_fail([str(place / "bin" / agent.command), "--version"]).split()[-1]
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place)]
    run_or_fail([*install, NODE])
    environment = environment_of(folder, agent.name)
    listed = json.loads(run_or_fail(["npm", "view", agent.package, "versions", "--json"]))
    released = [version for version in listed if "-" not in version]
    failures = []
    for version in reversed(released[-MOST_VERSIONS_TRIED:]):
        try:
            run_or_fail([*install, f"{agent.package}@{version}"], environment)
        except RuntimeError as error:
            failures.append(f"{version}: {error}")
            continue
        newer = f"; {len(failures)} newer cannot be installed" if failures else ""
        return f"{version}{newer}"
    raise RuntimeError("; ".join(failures))


def run_or_fail(command: Sequence[str], environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=INSTALL_SECONDS,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip()[-300:])
    return done.stdout


def environment_of(folder: Path, name: str) -> dict[str, str]:
    """The environment in which an agent and its own node are found first."""
    programs = f"{folder / name / 'node_modules' / '.bin'}:{folder / name / 'bin'}"
    environment = dict(os.environ)
    environment["PATH"] = f"{programs}:{environment['PATH']}"
    return environment


def install_all(folder: Path, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Install the agents and their adapters, and yield each with its version, or why not."""
    wanted = [agent for agent in AGENTS if agent.name in names]
    wanted += [agent for agent in ADAPTERS if agent.name.removeprefix("acp-") in names]
    for agent in wanted:
        try:
            yield agent.name, install_newest(folder, agent)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            yield agent.name, f"not installed: {error}"


# --- Running


def run_cell(folder: Path, cell: Cell, until: float) -> Outcome:
    began = time.monotonic()
    if began > until:
        return Outcome(cell, "no time", 0.0, "")
    environment = environment_of(folder, cell.agent)
    environment["HELIX_CLIENTS"] = str(folder)
    environment["ACP_CLIENTS"] = str(folder / cell.acp_folder)
    if cell.acp_folder:
        environment["PATH"] = environment_of(folder, cell.acp_folder)["PATH"]
    with subprocess.Popen(
        [sys.executable, "-m", cell.module, *cell.given],
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=CELL_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            return Outcome(cell, "late", time.monotonic() - began, output)
    word = "right"
    if process.returncode:
        word = "wrong"
    elif cell.must_refuse:
        word = "refused"
    return Outcome(cell, word, time.monotonic() - began, output)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [agent.name for agent in AGENTS]
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agent", choices=names, nargs="+", default=names)
    parser.add_argument("--cell", nargs="+", default=[""], help="words that a cell's name has")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=28.0)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--installed", action="store_true", help="install nothing")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    until = time.monotonic() + 60 * arguments.minutes
    if not arguments.installed:
        for name, version in install_all(folder, arguments.agent):
            print(f"{name} {version}", flush=True)
    cells = []
    for cell in list_cells(folder, arguments.steps):
        is_asked_for = any(words in cell.name for words in arguments.cell)
        if is_asked_for and cell.agent in arguments.agent:
            cells.append(cell)
    counts = Counter[str]()
    with concurrency.create_thread_pool("cells", threads=AT_ONCE) as pool:
        for outcome in pool.map(lambda cell: run_cell(folder, cell, until), cells):
            counts[outcome.word] += 1
            print(outcome.line, flush=True)
            if arguments.results is not None:
                with arguments.results.open("a", encoding="utf-8") as file:
                    file.write(f"=== {outcome.line}\n{outcome.output}\n")
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    return int(bool(counts["wrong"] or counts["late"]))


if __name__ == "__main__":
    sys.exit(main())
