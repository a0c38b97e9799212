"""The newest of all agents, installed today, through everything that this program does with them.

python -m tests.faults.agent_matrix FOLDER [--agent NAME ...] [--cell NAME ...] [--steps 3]
    [--minutes 28] [--installed] [--again]

FOLDER gets a folder for each agent, and `outcomes.jsonl` with what the trials said. An agent whose
newest version is there is not installed again; with --installed, what is there is taken. A cell
that came out well with the same versions and the same commit is not run again, so that a matrix
that was ended goes on where it was; with --again, all are run. Each cell is one of the trials
beside this file, in a process of its own, and comes out as one of:

right      what the trial says of itself
refused    the agent cannot be served in that situation, and was told so before anything was sent
wrong      with the last line of what the trial said
late       it was ended after its time
no time    the minutes were over before it began
"""

from __future__ import annotations

import argparse
import hashlib
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
from tests.benchmarks import gateway_other_agents
from tests.faults import acp_agents, wrap_matrix
from tests.faults.agent_resume import OURS

NODE = "node@24"  # With an older one, npm silently takes old versions of some agents.
MOST_VERSIONS_TRIED = 3  # A new version may need packages that its registry does not have yet.
CELL_SECONDS = 900.0  # Relays that came out right took 412 on a busy machine.
INSTALL_SECONDS = 600.0
AT_ONCE = 3  # Half of a cell is waiting: for servers to start, or until an agent asks again.
STEPS_OF_SUMMARIES = "25"
STEPS_OF_COMPACTION = 6  # pi shortens nothing after fewer.
STEPS_OF_OWN_COMPACTION = 10  # Cline shortens nothing after fewer.
STEPS_OF_FAULTS = 12  # With fewer, some agents meet no fault.
MOMENTS = "4"
BAD_WORDS = ("wrong", "late")
WIDEST_SITUATION = 46


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
WITH_SESSIONS = (*WITH_HISTORIES, "qwen")  # That are given back to the agent.
# Of those of `wrap_matrix`, what people meet most often comes first.
WRAP_SITUATIONS = (
    "plain",
    "SIGINT",
    "SIGTERM",
    "wrap killed",
    "gateway killed",
    "gateway killed in a stream",
    "goes on",
    "forked",
    "begun without wrap",
    "terminal closed",
    "in the shell",
    "in settings",
    "own key header",
    "proxy",
    "certificate",
    "subscription",
    "two at once",
    "own compaction",
    "own command for a compaction",
    "compaction without wrap",
    "MCP",
    "provider fails",
)
# Not Cline: its client waits three seconds for the first answer of a server, which takes longer when
# the gateway starts beside it on a busy machine.
WITH_SERVERS = ("qwen", "copilot")
ONLY_WRAPPED = ("qwen", "copilot", "cline", "aider")
WITH_ACP = {
    "claude": "acp-claude",
    "codex": "acp-codex",
    "gemini": "gemini",
    "qwen": "qwen",
    "opencode": "opencode",
    "copilot": "copilot",
    "cline": "cline",
}


@dataclass(frozen=True)
class Cell:
    """`module`: the trial in this folder or in the benchmarks, with what it is given. `others`: the
    other installations that it uses.
    """

    agent: str
    name: str
    module: str
    given: tuple[str, ...]
    acp_folder: str = ""
    others: tuple[str, ...] = ()
    must_refuse: bool = False


@dataclass(frozen=True)
class Outcome:
    cell: Cell
    word: str
    seconds: float
    output: str
    is_remembered: bool = False

    @property
    def line(self) -> str:
        line = f"{self.cell.agent}, {self.cell.name}: {self.word} ({self.seconds:.0f} s)"
        if self.word == "wrong":
            said = [text for text in self.output.splitlines() if text.strip()]
            line += f" {said[-1][:300] if said else ''}"
        return line


class Memory:
    """What came of the cells, in a file with a line for each."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "outcomes.jsonl"
        self._folder = folder
        self._commit = commit_of_this_program()
        self._good: dict[str, Outcome] = {}

    def read(self, cells: Sequence[Cell]) -> None:
        """Read which of these came out well already."""
        if not self._file.exists():
            return
        cell_of_key = {self._key(cell): cell for cell in cells}
        for line in self._file.read_text("utf-8").splitlines():
            entry = json.loads(line)
            cell = cell_of_key.get(entry["key"])
            if cell is not None and entry["word"] in ("right", "refused"):
                outcome = Outcome(cell, entry["word"], entry["seconds"], "", is_remembered=True)
                self._good[entry["key"]] = outcome

    def find(self, cell: Cell) -> Outcome | None:
        return self._good.get(self._key(cell))

    def add(self, outcome: Outcome) -> None:
        entry = {
            "key": self._key(outcome.cell),
            "time": time.strftime("%F %T"),
            "word": outcome.word,
            "seconds": round(outcome.seconds, 1),
            "output": outcome.output,
        }
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def _key(self, cell: Cell) -> str:
        used = dict.fromkeys((cell.agent, *cell.others, *filter(None, [cell.acp_folder])))
        versions = [
            f"{agent.name} {installed_version(self._folder, agent)}"
            for agent in (*AGENTS, *ADAPTERS)
            if agent.name in used
        ]
        given = " ".join(cell.given)
        return f"{cell.agent}, {cell.name} | {given} | {', '.join(versions)} | {self._commit}"


def commit_of_this_program() -> str:
    """The commit, with a hash of what is not committed."""
    commit = run_or_fail(["git", "rev-parse", "--short=12", "HEAD"]).strip()
    changes = run_or_fail(["git", "diff", "HEAD"])
    if not changes:
        return commit
    return f"{commit}+{hashlib.sha256(changes.encode()).hexdigest()[:8]}"


class Table:
    """A row for each situation, which is printed when all of its cells are over."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._situation = ""
        self._words: dict[str, str] = {}

    def print_head(self) -> None:
        print(" " * WIDEST_SITUATION + "".join(f"{name:>10}" for name in self._names), flush=True)

    def add(self, outcome: Outcome) -> None:
        if outcome.cell.name != self._situation:
            self.print_row()
        self._situation = outcome.cell.name
        word = outcome.word.upper() if outcome.word in BAD_WORDS else outcome.word
        self._words[outcome.cell.agent] = f"({word})" if outcome.is_remembered else word

    def print_row(self) -> None:
        if self._words:
            words = "".join(f"{self._words.get(name, '–'):>10}" for name in self._names)
            print(f"{self._situation:{WIDEST_SITUATION}}{words}", flush=True)
        self._words = {}


def list_wrap_cells(steps: int) -> Iterator[Cell]:
    """Yield the situations of `wrap_matrix` that each agent has."""
    module = "tests.faults.wrap_matrix"
    for situation in WRAP_SITUATIONS:
        _, agents = wrap_matrix.SITUATIONS[situation]
        enough_steps = steps
        if "compaction" in situation:
            enough_steps = max(steps, STEPS_OF_COMPACTION)
        elif situation == "provider fails":
            enough_steps = max(steps, STEPS_OF_FAULTS)
        for agent in agents:
            given = ("--agent", agent, "--situation", situation, "--steps", str(enough_steps))
            yield Cell(agent, f"wrap, {situation}", module, given)


def list_cells_of_other_agents(folder: Path, steps: int) -> Iterator[Cell]:
    """Yield those of the agents that `wrap` knows by their command and protocol only."""
    for situation in gateway_other_agents.SITUATIONS:
        for agent in gateway_other_agents.AGENTS:
            is_in_matrix = agent.name in ONLY_WRAPPED
            can_go_on = agent.goes_on or situation != "goes on"
            can_fork = agent.forks or situation != "forked"
            has_servers = agent.name in WITH_SERVERS or situation != "MCP"
            has_command = agent.name in gateway_other_agents.COMPACTS_BY_COMMAND
            can_shorten = has_command or situation != "own command for a compaction"
            if situation == "own compaction":
                can_shorten = agent.name in gateway_other_agents.COMPACTS_ITSELF
            if not is_in_matrix or not can_go_on or not can_fork:
                continue
            if not has_servers or not can_shorten:
                continue
            enough_steps = steps
            if situation == "own compaction":
                enough_steps = max(steps, STEPS_OF_OWN_COMPACTION)
            elif situation == "provider fails":
                enough_steps = max(steps, STEPS_OF_FAULTS)
            given = (str(folder), "--agent", agent.name, "--situation", situation)
            yield Cell(
                agent.name,
                f"wrap, {situation}",
                "tests.benchmarks.gateway_other_agents",
                (*given, "--steps", str(enough_steps)),
                must_refuse=situation == "proxy" and agent.is_refused_behind_proxy,
            )


def list_cells(folder: Path, steps: int) -> Iterator[Cell]:
    """Yield the cells, those of a situation one behind another."""
    situations: dict[str, list[Cell]] = {}
    for cell in (*list_wrap_cells(steps), *list_cells_of_other_agents(folder, steps)):
        situations.setdefault(cell.name, []).append(cell)
    for cells in situations.values():
        yield from cells
    for agent in wrap_matrix.SIGNED:
        signed = ("--agent", agent, "--situation", "signed", "--steps", str(steps))
        name = "wrap, provider that cannot be reached"
        yield Cell(agent, name, "tests.faults.wrap_matrix", signed, must_refuse=True)
    for agent, acp_folder in WITH_ACP.items():
        killed: tuple[str, ...] = (agent, "--steps", str(steps), "--kills", "1")
        is_refused = agent in acp_agents.WITH_ACCOUNT_ONLY
        if is_refused:
            killed = (agent, "--kills", "0")
        yield Cell(
            agent,
            "ACP, killed once",
            "tests.faults.acp_agents",
            killed,
            acp_folder,
            must_refuse=is_refused,
        )
    yield from list_cells_of_histories()


def list_cells_of_histories() -> Iterator[Cell]:
    """Yield those of agents whose sessions are read and written."""
    for agent in WITH_SESSIONS:
        name = "restore, with and without its file"
        to_itself = ("--agent", agent, "--to", agent, "--conversations", "1")
        yield Cell(agent, name, "tests.faults.agent_resume", to_itself)
    for agent in WITH_SESSIONS:
        name = "restore, before and after its compaction"
        moments = ("--agent", agent, "--sessions", "1", "--moments", MOMENTS)
        yield Cell(agent, name, "tests.faults.agent_bytes", moments)
    for target in (*WITH_SESSIONS, OURS):
        for agent in WITH_HISTORIES:
            if agent == target:
                continue
            others = (target,) if target != OURS else ()
            name = f"relay to {target}, with its MCP client"
            pair = ("--agent", agent, "--to", target)
            yield Cell(agent, name, "tests.faults.agent_pairs", pair, others=others)
    for agent in WITH_HISTORIES:
        name = "models that cannot write summaries"
        many_steps = ("--agent", agent, "--steps", STEPS_OF_SUMMARIES)
        yield Cell(agent, name, "tests.faults.failing_summaries", many_steps)


# --- Installing


def installed_version(folder: Path, agent: MatrixAgent) -> str:
    """The version that is there, or an empty text."""
    place = folder / agent.name
    if agent.is_python:
        found = list(
            place.glob(f"lib/*/site-packages/{agent.package.replace('-', '_')}-*.dist-info")
        )
        return found[0].name.removesuffix(".dist-info").rpartition("-")[2] if found else ""
    description = place / "node_modules" / agent.package / "package.json"
    if not description.exists():
        return ""
    return str(json.loads(description.read_text("utf-8"))["version"])


def install_newest(folder: Path, agent: MatrixAgent) -> str:
    """Install the newest version that can be installed, if it is not there. Return which it is;
    RuntimeError if there is none.
    """
    place = folder / agent.name
    place.mkdir(parents=True, exist_ok=True)
    if agent.is_python:
        if not (place / "bin" / "pip").exists():
            run_or_fail([sys.executable, "-m", "venv", str(place)])
        pip = [str(place / "bin" / "pip"), "install", "--quiet", "--upgrade", agent.package]
        run_or_fail(pip)
        return installed_version(folder, agent)
    listed = json.loads(run_or_fail(["npm", "view", agent.package, "versions", "--json"]))
    released = [version for version in listed if "-" not in version]
    if installed_version(folder, agent) == released[-1]:
        return str(released[-1])
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place)]
    run_or_fail([*install, NODE])
    environment = environment_of(folder, agent.name)
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

    def install(agent: MatrixAgent) -> str:
        try:
            return install_newest(folder, agent)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            return f"not installed: {error}"

    with concurrency.create_thread_pool("installing", threads=AT_ONCE) as pool:
        versions = pool.map(install, wanted)
        for agent, version in zip(wanted, versions, strict=True):
            yield agent.name, version


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


def run_cells(
    folder: Path, cells: Sequence[Cell], memory: Memory, until: float
) -> Iterator[Outcome]:
    """Yield what came of each, in their order; some run at once."""
    with concurrency.create_thread_pool("cells", threads=AT_ONCE) as pool:

        def run_or_remember(cell: Cell) -> Outcome:
            return memory.find(cell) or run_cell(folder, cell, until)

        for outcome in pool.map(run_or_remember, cells):
            if not outcome.is_remembered and outcome.word != "no time":
                memory.add(outcome)
            yield outcome


def choose_cells(arguments: argparse.Namespace, folder: Path) -> list[Cell]:
    cells = []
    for cell in list_cells(folder, arguments.steps):
        is_asked_for = any(words in cell.name for words in arguments.cell)
        if is_asked_for and cell.agent in arguments.agent:
            cells.append(cell)
    return cells


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [agent.name for agent in AGENTS]
    parser.add_argument("folder", type=Path)
    parser.add_argument("--agent", choices=names, nargs="+", default=names)
    parser.add_argument("--cell", nargs="+", default=[""], help="words that a cell's name has")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=28.0)
    parser.add_argument("--installed", action="store_true", help="install nothing")
    parser.add_argument("--again", action="store_true", help="run what came out well, too")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * arguments.minutes
    if not arguments.installed:
        for name, version in install_all(folder, arguments.agent):
            print(f"{name} {version}", flush=True)
    cells = choose_cells(arguments, folder)
    memory = Memory(folder)
    if not arguments.again:
        memory.read(cells)
    counts = Counter[str]()
    table = Table(arguments.agent)
    table.print_head()
    for outcome in run_cells(folder, cells, memory, until):
        counts[outcome.word] += 1
        table.add(outcome)
        if outcome.word in BAD_WORDS:
            print(outcome.line, flush=True)
    table.print_row()
    print(", ".join(f"{count} {word}" for word, count in sorted(counts.items())))
    return int(bool(counts["wrong"] or counts["late"]))


if __name__ == "__main__":
    sys.exit(main())
