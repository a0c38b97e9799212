"""The real agents resume what `conversation restore` wrote: their next request has the same messages.

python -m tests.faults.agent_resume [--conversations N] [--seed S] [--agent NAME]      HELIX_CLIENTS: see tests/benchmarks/gateway_clients.py
    [--steps N]      5 to N steps with sub-agents, pictures, files, plans, calls side by side, forks and branches, resumed by the same agent alone
    [--first N --seconds N]      in slices: from this number on, and no conversation begins after so long

Each conversation is made by an agent itself against a scripted provider and imported. Then it is resumed by that agent with its file
still there and after the file was deleted; and by every other agent. The user's words must be equal byte for byte, every
output and every text must be in the request, and each agent must make one more step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helix_desktop.protocols.gateway_message import PieceKind
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from tests.benchmarks.gateway_clients import KEY, SHELLS, _names, installed
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Says

AGENTS = ("claude", "codex", "opencode", "gemini", "pi")
# What is written for Qwen Code, too, but other agents' conversations are not given to it here.
WITH_SESSIONS = (*AGENTS, "qwen")
OURS = "ours"  # a conversation of this program, which each of them goes on with
LONGEST = 600.0
WORDS = "do the work: naïve “words”\n  and a second line"
SHORT = 12  # Messages, calls and results: a conversation with no more is one short turn.
FILES = {
    "claude": ".claude/projects/**/*.jsonl",
    "codex": ".codex/sessions/**/*.jsonl",
    "opencode": ".local/share/opencode/opencode.db",
    "gemini": ".gemini/tmp/*/chats/session-*.jsonl",
    "pi": ".pi/agent/sessions/**/*.jsonl",
    "qwen": ".qwen/projects/*/chats/*.jsonl",
}


class Script:
    """So many steps, each a command or two; then it is done."""

    def __init__(self, chance: random.Random) -> None:
        self.left = 0
        self._chance = chance
        self._number = 0

    def __call__(self, asked: Asked) -> Sequence[Block]:
        names = _names(asked.body)
        shell = next((name for name in (*SHELLS, "run_command") if name in names), "")
        if not shell or self.left <= 0:
            return [Says("All done.")]
        self.left -= 1
        both = 2 if self._chance.random() < 0.3 else 1
        return [Says(f"step {self.left}"), *(self._call(shell) for _ in range(both))]

    def _call(self, shell: str) -> Block:
        self._number += 1
        command = f"seq {self._number * 10} {self._number * 10 + self._chance.randint(1, 60)}; echo OUT-{self._number}-END"
        return run_in(shell, command)


def _program(name: str) -> Path:
    return installed(Path(os.environ.get("HELIX_CLIENTS", "/tmp/helix-clients")), name) / name


def run_agent(
    name: str,
    provider: Provider,
    home: Path,
    given: Sequence[str],
    own: Mapping[str, str] = MappingProxyType({}),
    *,
    is_wrapped: bool = False,
) -> str:
    """The agent, straight at the provider or through `wrap`; what it printed. `own`: variables of
    its own.
    """
    command = command_of_agent(name, provider, home, is_wrapped=is_wrapped)
    command.extend(given)
    variables = {**environment_of_agent(name, provider, home), **own}
    done = subprocess.run(
        command, cwd=home.parent / "work", env=variables,
        capture_output=True, text=True, timeout=LONGEST, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(
            f"{name} {given} ended with {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
        )
    return done.stdout


def command_of_agent(
    name: str, provider: Provider, home: Path, *, is_wrapped: bool = False
) -> list[str]:
    """The agent's program and its usual arguments, and `wrap` before them."""
    arguments = _usual_arguments(name, provider, home, is_wrapped=is_wrapped)
    if not is_wrapped:
        return [str(_program(name)), *arguments]
    ours = [sys.executable, "-m", "helix_desktop", "--home", str(home / "helix")]
    return [*ours, "wrap", "--upstream", provider.url, name, "--", *arguments]


def environment_of_agent(name: str, provider: Provider, home: Path) -> dict[str, str]:
    """The variables with which the agent asks the provider and has this home."""
    variables = {}
    for variable, value in os.environ.items():
        if not variable.startswith("XDG_"):
            variables[variable] = value
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "CODEX_API_KEY"):
        variables[variable] = KEY
    variables["HOME"] = str(home)
    variables["PYTHONPATH"] = str(Path.cwd())
    variables["PATH"] = f"{_program(name).parent}:{os.environ['PATH']}"
    variables["PWD"] = str(home.parent / "work")
    variables["ANTHROPIC_BASE_URL"] = provider.url
    variables["GOOGLE_GEMINI_BASE_URL"] = provider.url
    if name == "qwen":
        variables["OPENAI_BASE_URL"] = f"{provider.url}/v1"
        variables["OPENAI_MODEL"] = "gpt-5"
    variables["IS_SANDBOX"] = "1"
    variables["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
    variables["DISABLE_AUTOUPDATER"] = "1"
    variables["NO_PROXY"] = "127.0.0.1,localhost"
    variables["OPENCODE_CONFIG_CONTENT"] = json.dumps(_opencode_settings(provider.url))
    return variables


def _opencode_settings(url: str) -> dict[str, Any]:
    providers = {each: {"options": {"baseURL": f"{url}/v1"}} for each in ("anthropic", "openai")}
    return {"provider": providers, "autoupdate": False, "permission": "allow"}


def _usual_arguments(
    name: str, provider: Provider, home: Path, *, is_wrapped: bool = False
) -> list[str]:
    if name == "codex":
        # Its usual provider, which writes Codex's summaries itself.
        options = ["-m", "gpt-5.1-codex", "--skip-git-repo-check"]
        if not is_wrapped:
            options += ["-c", f'openai_base_url="{provider.url}/v1"']
        options += ["-c", "model_auto_compact_token_limit=150000"]
        return ["exec", *options, "--dangerously-bypass-approvals-and-sandbox"]
    if name == "gemini":
        _write_settings(
            home / ".gemini/settings.json",
            {"security": {"auth": {"selectedType": "gemini-api-key"}}},
        )
        # In a folder that its user has not trusted, it starts no MCP server;
        # `--skip-trust` changes nothing about that.
        _write_settings(
            home / ".gemini/trustedFolders.json", {str(home.parent / "work"): "TRUST_FOLDER"}
        )
        return ["--yolo", "--skip-trust", "-m", "gemini-2.5-pro"]
    if name == "pi":
        address = {"providers": {"anthropic": {"baseUrl": provider.url}}}
        _write_settings(home / ".pi/agent/models.json", address)
        return ["--provider", "anthropic", "--model", "claude-sonnet-4-5"]
    if name == "qwen":
        _write_settings(
            home / ".qwen/settings.json",
            {"security": {"auth": {"selectedType": "openai"}}, "$version": 3},
        )
        return ["--yolo"]
    plain = {
        "claude": ["--dangerously-skip-permissions", "--output-format", "json"],
        "opencode": ["run", "-m", "anthropic/claude-sonnet-4-5"],
    }
    return plain[name]


def _write_settings(file: Path, value: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), "utf-8")


def begin(name: str, words: str) -> list[str]:
    return [words] if name in ("codex", "opencode") else ["-p", words]


def resume(name: str, session: str, words: str) -> list[str]:
    return {
        "claude": ["--resume", session, "-p", words],
        "codex": ["resume", session, words],
        "opencode": ["--session", session, words],
        "gemini": ["--resume", session, "-p", words],
        "pi": ["--session", session, "-p", words],
        "qwen": ["--resume", session, "-p", words],
    }[name]


def list_sessions(name: str, provider: Provider, home: Path) -> str | None:
    """What the agent's own list of sessions says; None for one that lists only in its window."""
    if name == "opencode":
        work = home.parent / "work"
        program = _program(name)
        own = {one: value for one, value in os.environ.items() if not one.startswith("XDG_")}
        done = subprocess.run(
            [str(program), "session", "list"], cwd=work, env={**own, "HOME": str(home), "PWD": str(work)},
            capture_output=True, text=True, timeout=LONGEST, stdin=subprocess.DEVNULL, check=True,
        )  # fmt: skip
        return done.stdout
    return run_agent(name, provider, home, ["--list-sessions"]) if name == "gemini" else None


def pieces_of_request(asked: Asked) -> list[tuple[str, str, str]]:
    """Who says what, without what the agent itself puts in and finds anew each time."""
    found = []
    for message in WIRE_MODULES[asked.protocol].parse_messages(asked.body):
        for piece in message.pieces:
            if (
                piece.kind in (PieceKind.TEXT, PieceKind.CALL, PieceKind.RESULT)
                and message.speaker.value != "system"
            ):
                own = piece.text.lstrip().startswith(
                    ("<", "# AGENTS", "You are", "The following", "Today", "`sandbox")
                )
                if not own or piece.kind is not PieceKind.TEXT:
                    found.append((message.speaker.value, piece.kind.value, piece.text))
    return found


def last_request(provider: Provider, words: str) -> Asked:
    """The newest request that has these words of the user, and tools."""
    return next(one for one in reversed(provider.asked) if one.protocol and words.encode() in one.raw and _names(one.body))  # fmt: skip


def helix(home: Path, *given: str) -> str:
    command = [sys.executable, "-m", "helix_desktop", "--home", str(home / "helix"), *given]
    own = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    variables = {**own, "HOME": str(home), "PYTHONPATH": str(Path.cwd()), "ANTHROPIC_API_KEY": KEY}
    done = subprocess.run(
        command,
        cwd=home.parent / "work",
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{given}: {done.stderr[-600:]}")
    return done.stdout


def session_file(name: str, home: Path) -> Path:
    found = (file for file in home.glob(FILES[name]) if "subagents" not in file.parts)
    if name == "codex":  # The first line says whose agent it is.
        found = (
            file for file in found if b'"subagent"' not in file.read_bytes().partition(b"\n")[0]
        )
    return max(found, key=lambda file: file.stat().st_mtime)


def session_id(name: str, file: Path) -> str:
    if name == "opencode":
        with closing(sqlite3.connect(file)) as connection:
            row = None
            with suppress(sqlite3.OperationalError):  # it has made no table yet
                row = connection.execute(
                    "SELECT id FROM session WHERE parent_id IS NULL ORDER BY time_created DESC"
                ).fetchone()
            if row is None:
                raise ValueError("there is no session")
            return str(row[0])
    if name == "gemini":
        return str(json.loads(file.read_text("utf-8").partition("\n")[0])["sessionId"])
    return file.stem.partition("_")[2] if name == "pi" else file.stem[-36:]


def delete_session(name: str, file: Path, session: str) -> None:
    if name != "opencode":
        file.unlink()
        # Claude Code has the files of sub-agents and large outputs there.
        shutil.rmtree(file.with_suffix(""), ignore_errors=True)
        return
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")  # messages and parts go with it
        connection.execute("DELETE FROM session WHERE id = ?", [session])


def converse_at_length(
    name: str, provider: Provider, home: Path, script: Script, chance: random.Random, most: int
) -> str:
    """Up to four turns of 5 to `most` steps together; some go on in a fork, or from the
    end of an earlier turn. The words of the last.
    """
    steps, turns, words, session = (
        round(5 * (most / 5) ** chance.random()),
        chance.randint(1, 4),
        WORDS,
        "",
    )
    turns = (
        1 if name == "gemini" else turns
    )  # 0.61 is refused when it resumes a session of its own that has calls
    for number in range(turns):
        script.left = max(1, steps // turns)
        given = begin(name, words)
        if number:
            words = f"and more of it {number}"
            given = (
                branch_arguments(name, session, words, home, chance)
                if chance.random() < 0.4
                else resume(name, session, words)
            )
        run_agent(name, provider, home, given)
        session = session_id(name, session_file(name, home))
    return words.partition(":")[0]


def branch_arguments(
    name: str, session: str, words: str, home: Path, chance: random.Random
) -> list[str]:
    """What makes the agent go on in another branch, where it can do that without its window."""
    given = resume(name, session, words)
    if name == "pi":
        return ["--fork", session, "-p", words]
    if name == "opencode":
        return ["--fork", *given]
    if name != "claude":
        return given
    rows = [json.loads(line) for line in session_file(name, home).read_text("utf-8").splitlines()]
    ends = [
        row["uuid"]
        for row in rows
        if row["type"] == "assistant" and "All done." in json.dumps(row["message"])
    ]
    return (
        [*given, "--fork-session"]
        if chance.random() < 0.5
        else [*given, "--resume-session-at", chance.choice(ends)]
    )


def long_script(name: str, chance: random.Random, work: Path) -> Any:
    from tests.faults.agent_pairs import PLANS, READS, picture  # Both import this module.
    from tests.faults.agent_recorder import MarkedScript

    class LongScript(MarkedScript):
        def _marked(self, block: Block) -> Block:
            return block  # The words of the last reply are known.

        def _call(self, shell: str, tools: Mapping[str, Any]) -> Block:
            """No call twice: Gemini CLI then says something itself that it does not write down."""
            made = super()._call(shell, tools)
            if not isinstance(made, Calls) or made.name not in (*READS, *PLANS):
                return made
            own = re.sub(r"(notes|dot)(?=\.)", rf"\1-{self._number}", json.dumps(made.arguments))
            return Calls(made.name, json.loads(own.replace("count", f"count {self._number}")))

    for name_of_file in ("notes", *(f"notes-{number}" for number in range(300))):
        (work / f"{name_of_file}.txt").write_text(
            "".join(f"line {number}\n" for number in range(1, 300)), "utf-8"
        )
        (work / f"{name_of_file.replace('notes', 'dot')}.png").write_bytes(picture())
    return LongScript(name, chance, work)


def try_conversation(
    name: str, chance: random.Random, targets: Sequence[str] = AGENTS, *, steps: int = 0
) -> list[str]:
    """What was wrong."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir="/var/tmp"))
        home = Path(folder, "home")
        work = Path(folder, "work")
        home.mkdir()
        work.mkdir()
        script = long_script(name, chance, work) if steps else Script(chance)
        provider = stack.enter_context(Provider(script, accepted="have one role"))
        helix(home, "workspace", "new", "Work", "--folder", str(work))
        words = _converse(name, provider, home, script, chance, steps)
        last = last_request(provider, words)
        expected = [*pieces_of_request(last), ("assistant", "text", "All done.")]

        listed = json.loads(helix(home, "conversation", "list", "-w", "Work", "--json"))
        conversation = next(row["id"] for row in listed if not row["parent"])
        others = [agent for agent in targets if agent != name]
        if "opencode" in others:
            list_sessions("opencode", provider, home)  # it makes its database when it first starts
        wrong: list[str] = []
        if name != OURS:
            original = session_file(name, home)
            session = session_id(name, original)
            given = _GivenBack(name, "its own lines", name, conversation)
            wrong += _try_given_back(given, provider, home, script, expected)
            delete_session(name, original, session)
            given = _GivenBack(name, "without its file", name, conversation)
            wrong += _try_given_back(given, provider, home, script, expected)
        for agent in others:
            given = _GivenBack(name, "relay", agent, conversation)
            wrong += _try_given_back(given, provider, home, script, expected)
        for agent in others:
            for why in _relay_folded(agent, provider, home, script, conversation):
                wrong.append(f"folded in {agent}: {why}")
        # Without tools, Gemini CLI asks about 20 messages in the middle whether it repeats itself.
        for why, asked in provider.refused_requests:
            if _names(asked.body):
                wrong.append(f"refused: {why}")
    return wrong


def _converse(
    name: str, provider: Provider, home: Path, script: Script, chance: random.Random, steps: int
) -> str:
    """A conversation of the agent, which stands in the workspace. Its last words."""
    if name == OURS:
        return _converse_here(name, provider, home, script, chance)
    if steps:
        words = converse_at_length(name, provider, home, script, chance, most=steps)
    else:
        words = _converse_shortly(name, provider, home, script, chance)
    helix(home, "conversation", "import", "-w", "Work", str(session_file(name, home)))
    return words


@dataclass(frozen=True)
class _GivenBack:
    """A conversation of the agent `name` that is given to `agent`, in one of the ways."""

    name: str
    way: str
    agent: str
    conversation: str

    @property
    def mark(self) -> str:
        return f"MARK-{self.way.replace(' ', '-')}-{self.agent}"

    @property
    def has_own_lines(self) -> bool:
        return self.way != "relay" and self.name not in ("gemini", OURS)


def _try_given_back(
    given: _GivenBack, provider: Provider, home: Path, script: Script, expected: Sequence[Any]
) -> list[str]:
    """What was wrong with the session that the agent goes on with."""
    wrong: list[str] = []
    way = given.way
    agent = given.agent
    restore = ("conversation", "restore", "-w", "Work", given.conversation, "--to", agent)
    made = json.loads(helix(home, *restore, "--json"))
    if made["original"] != given.has_own_lines:
        which = "the agent's own" if made["original"] else "not the agent's own"
        wrong.append(f"{way}: the lines are {which}")
    told = list_sessions(agent, provider, home)
    if told is not None and made["session"] not in told:
        wrong.append(f"{way}: {agent} does not list the session")

    script.left = 1
    run_agent(agent, provider, home, resume(agent, made["session"], given.mark))
    first = _first_request_with(provider, given.mark)
    got = [piece for piece in pieces_of_request(first) if piece[2].strip('"') != given.mark]
    for why in _differences(expected, got, translated=agent != given.name):
        wrong.append(f"{way} in {agent}: {why}")
    after = pieces_of_request(last_request(provider, given.mark))
    if count_results(after) <= count_results(got):
        wrong.append(f"{way} in {agent}: no further step")
    return wrong


def _requests_with(provider: Provider, mark: str) -> list[Asked]:
    return [asked for asked in provider.asked if asked.protocol and mark.encode() in asked.raw]


def _first_request_with(provider: Provider, mark: str) -> Asked:
    """The first request with the mark that offers tools: others are for titles and the like."""
    return next(asked for asked in _requests_with(provider, mark) if _names(asked.body))


def run_in(shell: str, command: str) -> Calls:
    argument = "cmd" if shell == "exec_command" else "command"
    return Calls(shell, {argument: command})


def count_results(pieces: Sequence[Any]) -> int:
    return sum(piece[1] == PieceKind.RESULT.value for piece in pieces)


def is_said_by_user(piece: Any) -> bool:
    return bool(piece[0] == "user" and piece[1] == PieceKind.TEXT.value)


def _relay_folded(
    agent: str, provider: Provider, home: Path, script: Script, conversation: str
) -> list[str]:
    """What was wrong with the conversation folded for the agent, which can read the
    originals over MCP.
    """
    restore = ["conversation", "restore", "-w", "Work", conversation, "--to", agent, "--fold"]
    has_server = agent != "pi"
    if has_server:
        restore.append("--mcp")
    made = json.loads(helix(home, *restore, "--json"))
    if agent == "codex":
        # `codex exec` does not wait for servers, unless they are required; a person types later
        # than they start.
        with (home / ".codex" / "config.toml").open("a") as file:
            file.write("required = true\n")
    mark = f"FOLDED-{agent}"
    script.left = 2
    run_agent(agent, provider, home, resume(agent, made["session"], mark))
    asked = _first_request_with(provider, mark)
    pieces = pieces_of_request(asked)
    is_folded = made["folded"] and made["fits"]
    if not made["folded"] and made["fits"] and len(pieces) <= SHORT:
        return []  # One short turn stays as it is, and the program says so.
    wrong = [] if is_folded else ["it was not folded"]
    if not re.search(rb"recall_(cached_content|history)\(", asked.raw):
        wrong.append("no original is named")
    names = _tools_offered(provider, mark)
    if has_server and "recall_cached_content" not in " ".join(names):
        wrong.append(f"it has no tool for the originals among {sorted(names)}")
    after = pieces_of_request(last_request(provider, mark))
    if not count_results(after[len(pieces) :]):
        wrong.append("no further step")
    return wrong


def _tools_offered(provider: Provider, mark: str) -> set[str]:
    """In any request: an agent may go on while its servers start."""
    names: set[str] = set()
    for request in _requests_with(provider, mark):
        names.update(_names(request.body))
    return names


def _converse_shortly(
    name: str, provider: Provider, home: Path, script: Script, chance: random.Random
) -> str:
    """Two turns of the agent. The words of the last."""
    script.left = chance.randint(2, 12)
    run_agent(name, provider, home, begin(name, WORDS))
    if name == "gemini":  # 0.61 is refused when it resumes a session of its own that has calls
        return WORDS.partition(":")[0]
    script.left = chance.randint(1, 6)
    run_agent(
        name,
        provider,
        home,
        resume(name, session_id(name, session_file(name, home)), "and more of it"),
    )
    return "and more of it"


def _converse_here(
    _: str, provider: Provider, home: Path, script: Script, chance: random.Random
) -> str:
    """Two turns of this program itself. The words of the second."""
    script.left = chance.randint(2, 12)
    helix(home, "provider", "add", "scripted", "--kind", "anthropic", "--base-url", provider.url, "--variable", "ANTHROPIC_API_KEY")  # fmt: skip
    ask = (
        "ask",
        "-w",
        "Work",
        "-m",
        "scripted/claude-sonnet-4-5",
        "--allow",
        "commands",
        "--allow",
        "outside_sandbox",
    )
    helix(home, *ask, WORDS)
    (conversation,) = json.loads(helix(home, "conversation", "list", "-w", "Work", "--json"))
    script.left = chance.randint(1, 6)
    helix(home, *ask, "-c", conversation["id"], "and more of it")
    return "and more of it"


def _differences(expected: Sequence[Any], got: Sequence[Any], *, translated: bool) -> list[str]:
    if translated:
        return _lost_pieces(expected, got)
    if expected == got:
        return []
    difference = _first_difference(expected, got)
    return [f"{len(expected)} pieces, {len(got)} restored; {difference}"]


def _lost_pieces(expected: Sequence[Any], got: Sequence[Any]) -> list[str]:
    """Say it, if a text is nowhere in another agent's request, or the user's words are changed."""
    text = "\n".join(piece[2] for piece in got)
    words = [piece[2] for piece in got if is_said_by_user(piece)]
    lost: list[Any] = []
    for piece in expected:
        is_missing = piece[1] != PieceKind.CALL.value and piece[2].strip() not in text
        is_changed = is_said_by_user(piece) and piece[2] not in words
        if is_missing or is_changed:
            lost.append(piece)
    if not lost:
        return []
    return [f"{len(lost)} of {len(expected)} pieces are lost, first {lost[0]}"]


def _first_difference(expected: Sequence[Any], got: Sequence[Any]) -> str:
    pairs = ((one, other) for one, other in zip(expected, got, strict=False) if one != other)
    more = [*expected, *got][-abs(len(expected) - len(got)) :]
    return str(next(pairs, f"one goes on with {more}"))[:700]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent", choices=(*WITH_SESSIONS, OURS))
    parser.add_argument(
        "--to",
        choices=WITH_SESSIONS,
        nargs="+",
        default=AGENTS,
        help="the agents that go on with it",
    )
    parser.add_argument(
        "--steps",
        type=int,
        default=0,
        help="5 to so many steps of every kind, resumed by the same agent",
    )
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first conversation, to go on"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="no conversation begins after so long"
    )
    arguments = parser.parse_args()
    failed = tried = 0
    until = time.monotonic() + arguments.seconds
    for number in range(arguments.first, arguments.first + arguments.conversations):
        if time.monotonic() > until:
            break
        name = arguments.agent or AGENTS[number % len(AGENTS)]
        chance, targets = (
            random.Random(arguments.seed * 1000 + number),
            (name,) if arguments.steps else arguments.to,
        )
        wrong = try_conversation(name, chance, targets, steps=arguments.steps)
        tried += 1
        failed += bool(wrong)
        print(f"{name} {number}: {'; '.join(wrong) or 'the same messages'}", flush=True)
    print(f"{tried} conversations, {failed} wrong")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
