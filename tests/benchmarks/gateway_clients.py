"""The real agents from npm, each working through the gateway against a scripted
provider. They take 1.3 GB and are installed first.

HELIX_CLIENTS names the folder they are installed in, one folder each; without it a
temporary one is used.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from helix_desktop import program_folders
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import StoreBusy
from helix_desktop.protocols.gateway_message import Piece, PieceKind, ProtocolMessage, Speaker
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.benchmarks.row import Figure, Row
from tests.peers.agent_provider import Asked, Block, Calls, Compacts, Provider, Says, Thinks

PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
    "opencode": "opencode-ai",
    "pi": "@earendil-works/pi-coding-agent",
}
NODE = "node@22"  # An older one of the system runs neither of these two.
# pi 1.6.0 asks for packages of its own that the registry did not have on 26 November 2026.
INSTALLED = {"claude": (PACKAGES["claude"], NODE), "pi": (f"{PACKAGES['pi']}@1.5", NODE)}
BEGINS = {
    "claude": ["-p", "do the work", "--dangerously-skip-permissions", "--output-format", "json"],
    "codex": ["exec", "-m", "gpt-5.1-codex", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-c", "model_auto_compact_token_limit=150000", "do it"],
    "gemini": ["--acp", "--yolo", "--skip-trust"],
    "opencode": ["run", "-m", "anthropic/claude-sonnet-4-5", "do the work"],
    "pi": ["--provider", "anthropic", "--model", "claude-sonnet-4-5", "-p", "do the work"],
}  # fmt: skip
GOES_ON = {
    "claude": ["--continue"],
    "codex": ["resume", "--last"],
    "opencode": ["--continue"],
    "pi": ["--continue"],
}
KEY = "sk-planted-in-the-agent-4711"
HIDDEN = "recall_cached_content"
SHELLS = (
    "Bash", "bash", "shell", "shell_command", "exec_command", "run_shell_command", "run_commands", "execute_command", "terminal",
)  # fmt: skip
DOCUMENT = (
    "Project Background",
    "Technical Details",
    "Completed Work",
    "Current Issues",
    "TODO Items",
    "User Preferences",
)
DELEGATES: dict[str, dict[str, Any]] = {
    "Agent": {"description": "count", "prompt": "{duty}", "subagent_type": "general-purpose"},
    "Task": {"description": "count", "prompt": "{duty}", "subagent_type": "general-purpose"},
    "task": {"description": "count", "prompt": "{duty}", "subagent_type": "general"},
    "invoke_agent": {"agent_name": "generalist", "prompt": "{duty}"},
    "multi_agent_v1/spawn_agent": {"message": "{duty}"},
}
DUTY = "Your duty is to count three times."
SUMMARY = re.compile(
    r"detailed summary|checkpoint (summary|compaction)|<state_snapshot>|structured.{0,40}summary|anchored summary|summarize the prefix"
    r"|prompt for continuing|earlier context from an ongoing conversation|summarize this session for continuation",
    re.IGNORECASE | re.DOTALL,
)
SUMMARY_TEXT = (
    "All is well. The numbers were counted. Each step printed some thousand lines, and none of them failed."
    " What is left is to count on in the same way, and to say so when all is done."
)
FULL = 1_020_000  # tokens the provider says it got, so that the agent shortens its own history
FULL_OF_CLAUDE, CLAUDE_WINDOW = (
    150_000,
    100_000,
)  # what fills its whole window it takes for an error
LONGEST = 900.0  # seconds of one agent


class Work:
    """A model that runs commands with long outputs, two side by side now and then,
    recalls every fifth step, delegates once, and says towards the end of a run that its
    window is full, until the agent has shortened its history.
    """

    def __init__(self, name: str, steps: int) -> None:
        self.name = name
        self.steps = steps
        self.done = self.recalls = self.compacted = self.counted = self.delegated = 0
        self._ends = 0
        self._delegates = True
        self._fills = False
        self._lock = threading.Lock()

    def begin(self, steps: int, *, fills: bool = False) -> None:
        """The next run of the agent."""
        self._ends = self.done + steps
        self._fills = fills

    def usage(self, _: Asked) -> dict[str, int]:
        full = self._fills and self.done >= self._ends - 3
        most = FULL_OF_CLAUDE if self.name == "claude" else FULL
        return {"input": most if full else 100, "read": 0, "write": 0}

    def script(self, asked: Asked) -> Sequence[Block]:
        text = asked.raw.decode("utf-8", "replace")
        names = _names(asked.body)
        messages = WIRE_MODULES[asked.protocol].parse_messages(asked.body)
        with self._lock:
            if DOCUMENT[0] in text[-6_000:]:
                return [
                    Says(
                        "\n\n".join(
                            f"## {n}\nAll is well, and there is more to say about it."
                            for n in DOCUMENT
                        )
                    )
                ]
            if _asks_for_providers_summary(asked.body):
                self.compacted += 1
                self._fills = False
                return [Compacts(SUMMARY_TEXT)]
            if SUMMARY.search(_last_said(messages)) or _asks_for_text_alone(messages):
                self.compacted += 1
                self._fills = False
                tag = "state_snapshot" if "<state_snapshot>" in _last_said(messages) else "summary"
                text = f"{SUMMARY_TEXT} It is summary {self.compacted}."
                return [Says(f"<{tag}>{text}</{tag}>")]
            shell = next((name for name in names if name in SHELLS), "")
            if not shell:
                return [Says("{}")]
            if any(DUTY in piece.text for piece in _first_said(messages)):
                return self._count(messages, shell)
            return self._step(text, names, shell)

    def _count(self, messages: Sequence[ProtocolMessage], shell: str) -> Sequence[Block]:
        """What the agent does that was delegated to."""
        if sum(bool(message.pieces_of_kind(PieceKind.CALL)) for message in messages) >= 3:
            return [Says("It was counted three times.")]
        self.counted += 1
        return [
            Calls(shell, _arguments(shell, f"seq {self.counted * 100} {self.counted * 100 + 3000}"))
        ]

    def _step(self, text: str, names: Sequence[str], shell: str) -> Sequence[Block]:
        self.done += 1
        if self.done > self._ends:
            return [Says("All done.")]
        delegate = next((name for name in names if name in DELEGATES), "")
        if self.done >= 10 and self._delegates and delegate:
            self._delegates = False
            self.delegated += 1
            return [
                Says("A part for another"),
                Calls(
                    delegate, json.loads(json.dumps(DELEGATES[delegate]).replace("{duty}", DUTY))
                ),
            ]
        found = re.findall(r'recall_cached_content\(\\*"([0-9a-f]{64})', text)
        if self.done % 5 == 0 and found:
            self.recalls += 1
            return [
                Thinks("I need it"),
                Calls(
                    "recall_cached_content",
                    {"sha256": found[self.recalls % len(found)], "lines": "1-20"},
                ),
            ]
        number = self.done * 1000
        call = Calls(
            shell, _arguments(shell, f"seq {number} {number + 3500}; echo step {self.done}")
        )
        other = Calls(
            shell, _arguments(shell, f"seq {number} {number + 2500}; echo beside {self.done}")
        )
        return (
            [Says(f"step {self.done}"), call, other]
            if self.done % 7 == 0
            else [Says(f"step {self.done}"), call]
        )


def _asks_for_providers_summary(body: Mapping[str, Any]) -> bool:
    """As Codex does with OpenAI's own provider: the last item of its request asks for it."""
    items = body.get("input")
    if not isinstance(items, list) or not items:
        return False
    return bool(items[-1].get("type") == "compaction_trigger")


def _last_said(messages: Sequence[ProtocolMessage]) -> str:
    """What the user or the program says at the end, where it says no more than that."""
    last = messages[-1]
    return (
        ""
        if last.pieces_of_kind(PieceKind.RESULT)
        else "\n".join(piece.text for piece in last.pieces_of_kind(PieceKind.TEXT))
    )


def _asks_for_text_alone(messages: Sequence[ProtocolMessage]) -> bool:
    """Claude Code asks for its summary in the message with the last result."""
    return any(
        "Respond with TEXT ONLY" in piece.text
        for piece in messages[-1].pieces_of_kind(PieceKind.TEXT)
    )


def _first_said(messages: Sequence[ProtocolMessage]) -> list[Piece]:
    """What is said before the first reply."""
    first = itertools.takewhile(lambda message: message.speaker is not Speaker.ASSISTANT, messages)
    return [piece for message in first for piece in message.pieces_of_kind(PieceKind.TEXT)]


def _names(body: dict[str, Any]) -> list[str]:
    """Of the tools that a request offers, those in a namespace with its name before theirs."""
    offers = list(body.get("tools") or [])
    for item in body.get("input") or []:
        if isinstance(item, dict):
            offers += item.get("tools", [])
    names: list[str] = []
    names_in_namespaces: list[str] = []
    for offer in offers:
        for tool in offer.get("functionDeclarations", [offer]):
            names.append(str(tool.get("name") or tool.get("function", {}).get("name", "")))
            if tool.get("type") == "namespace":
                for inner in tool["tools"]:
                    names_in_namespaces.append(f"{tool['name']}/{inner['name']}")
    return names + names_in_namespaces


def _arguments(shell: str, command: str) -> dict[str, Any]:
    if shell == "terminal":  # OpenHands'
        return {"command": command, "security_risk": "LOW"}
    if shell == "run_commands":  # Cline's
        return {"commands": [command]}
    if shell == "exec_command":
        return {"cmd": command}
    return (
        {"command": ["bash", "-lc", command]}
        if shell == "shell"
        else {"command": command, "description": "numbers"}
    )


def installed(folder: Path, name: str) -> Path:
    """The folder of the agent's program; RuntimeError where it cannot be had."""
    place = folder / name / "node_modules" / ".bin"
    if not (place / name).exists():
        packages = INSTALLED.get(name, (PACKAGES[name],))
        command = [
            "npm",
            "install",
            "--no-audit",
            "--no-fund",
            "--prefix",
            str(folder / name),
            *packages,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or not (place / name).exists():
            raise RuntimeError(f"{PACKAGES[name]} cannot be installed: {done.stderr[-300:]}")
    return place


@dataclass
class Seen:
    """What came of one agent. `wrong`: what must not be."""

    work: Work
    provider: Provider
    wrong: list[str] = field(default_factory=list)
    recalled: int = 0

    @property
    def ours(self) -> list[str]:
        """Refusals of what the gateway had changed; others the agent had written so itself."""
        return [
            why
            for why, asked in self.provider.refused_requests
            if b"recall_cached_content" in asked.raw
        ]


def worked(folder: Path, name: str, steps: int) -> Seen:
    """One agent that begins, goes on and shortens its history, is put back to where it
    was, and goes on from there.
    """
    program = installed(folder, name)
    work = Work(name, steps)
    with (
        tempfile.TemporaryDirectory() as home,
        tempfile.TemporaryDirectory() as place,
        tempfile.TemporaryDirectory() as kept,
        Provider(work.script, usage=work.usage) as provider,
    ):
        seen = Seen(work, provider)
        _settings(name, Path(home))
        runs = [max(4, round(steps * share)) for share in (0.4, 0.3, 0.3)]
        if name == "gemini":
            _converse(seen, program, Path(home), Path(place), runs)
            runs = []
        for number, most in enumerate(runs):
            work.begin(most, fills=number == 1)
            if number == 1:
                shutil.copytree(
                    home, f"{kept}/home", symlinks=True, ignore=shutil.ignore_patterns("helix")
                )
            elif number == 2:
                _put_back(Path(home), Path(kept, "home"))
            _run(seen, name, program, Path(home), Path(place), goes_on=number > 0)
        _check(seen, Path(home))
        return seen


def _settings(name: str, home: Path) -> None:
    if name == "gemini":
        settings = home / ".gemini" / "settings.json"
        settings.parent.mkdir()
        settings.write_text(
            json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}), "utf-8"
        )


def _put_back(home: Path, kept: Path) -> None:
    """The agent's own files as they were: for whoever hears it, it was rewound."""
    for each in home.iterdir():
        if each.name != "helix":
            shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    shutil.copytree(kept, home, symlinks=True, dirs_exist_ok=True)


def started(
    provider: Provider,
    name: str,
    program: Path,
    home: Path,
    place: Path,
    given: Sequence[str],
    own: Mapping[str, str] = MappingProxyType({}),
    **more: Any,
) -> subprocess.Popen[str]:
    """The agent, as `wrap` starts it. `own`: variables of its own."""
    keys = dict.fromkeys(("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"), KEY)
    usual = {
        "HOME": str(home),
        "PATH": f"{program}:{os.environ['PATH']}",
        "IS_SANDBOX": "1",
        "PYTHONPATH": str(Path.cwd()),
    }
    quiet = {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(CLAUDE_WINDOW),
        "NO_PROXY": "127.0.0.1,localhost",
    }
    gateway = ["wrap", "--upstream", provider.url, name, "--", *given]
    return subprocess.Popen(
        [sys.executable, "-m", "helix_desktop", "--home", f"{home}/helix", *gateway],
        cwd=place,
        env={**os.environ, **keys, **usual, **quiet, **own},
        stdout=subprocess.PIPE,
        text=True,
        **more,
    )


def _run(seen: Seen, name: str, program: Path, home: Path, place: Path, *, goes_on: bool) -> None:
    given = BEGINS[name] if not goes_on else [*BEGINS[name][:-1], *GOES_ON[name], BEGINS[name][-1]]
    if goes_on and name == "claude":
        given = [*BEGINS[name], *GOES_ON[name]]
    elif goes_on and name == "pi":
        given = [*GOES_ON[name], *BEGINS[name]]
    none = subprocess.DEVNULL
    pipe = subprocess.PIPE
    process = started(seen.provider, name, program, home, place, given, stdin=none, stderr=pipe)
    with process:
        try:
            out, err = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    print(err.strip().splitlines()[-1] if err.strip() else "", file=sys.stderr)
    if process.returncode:
        seen.wrong.append(f"exit code {process.returncode}: {(out + err)[-300:]}")
    if HIDDEN in out:
        seen.wrong.append("a hidden call was printed")


def _converse(seen: Seen, program: Path, home: Path, place: Path, runs: Sequence[int]) -> None:
    """Gemini CLI in one process that is told what to do as an editor tells it (ACP):
    what it writes down of a session has two results for one call, and cannot be gone on
    with.
    """
    process = started(
        seen.provider,
        "gemini",
        program,
        home,
        place,
        BEGINS["gemini"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process, Editor(process, seen) as editor:
        editor.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        editor.ask("authenticate", {"methodId": "gemini-api-key"})
        session = editor.ask("session/new", {"cwd": str(place), "mcpServers": []})["sessionId"]
        for number, most in enumerate(runs):
            seen.work.begin(most, fills=number == 1)
            said = [{"type": "text", "text": "do the work"}]
            editor.ask("session/prompt", {"sessionId": session, "prompt": said})


class Editor:
    """The other end of ACP: lines of JSON-RPC. Nothing it hears may name a hidden call."""

    def __init__(self, process: subprocess.Popen[str], seen: Seen) -> None:
        self._process = process
        self._seen = seen
        self._numbers = itertools.count(1)
        self._ends = threading.Timer(LONGEST, process.kill)

    def __enter__(self) -> Self:
        self._ends.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.terminate()
        self._ends.cancel()

    def ask(self, method: str, parameters: dict[str, Any]) -> Any:
        """Its answer; what it is asked itself meanwhile, it is allowed."""
        number = next(self._numbers)
        self._tell({"id": number, "method": method, "params": parameters})
        for line in self._process.stdout or ():
            if HIDDEN in line:
                self._seen.wrong.append("the editor was told of a hidden call")
            try:
                heard = json.loads(line)
            except ValueError:
                continue
            is_answer = "method" not in heard
            if is_answer and heard.get("id") == number:
                if "error" in heard:
                    self._seen.wrong.append(f"{method}: {str(heard['error'])[:300]}")
                return heard.get("result") or {}
            if heard.get("method") == "session/request_permission":
                self._allow(heard)
        self._seen.wrong.append(f"{method}: no answer")
        return {}

    def _allow(self, question: dict[str, Any]) -> None:
        chosen = question["params"]["options"][0]["optionId"]
        outcome = {"outcome": {"outcome": "selected", "optionId": chosen}}
        self._tell({"id": question["id"], "result": outcome})

    def _tell(self, value: dict[str, Any]) -> None:
        if self._process.stdin:
            self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **value}) + "\n")
            self._process.stdin.flush()


def _check(seen: Seen, home: Path) -> None:
    """No hidden call and no key where they must not be; what was recalled is what its hash says."""
    for file in home.rglob("*"):
        if not file.is_file() or file.is_symlink():
            continue
        content = file.read_bytes()
        is_ours = file.relative_to(home).parts[0] == "helix"
        if not is_ours and HIDDEN.encode() in content:
            seen.wrong.append(f"{file.name} of the agent knows of a hidden call")
        if is_ours and KEY.encode() in content:
            seen.wrong.append(f"{file.name} of ours holds the agent's key")
    recalls = _recalls(seen.provider)
    contents = asyncio.run(_contents(home / "helix", set(recalls)))
    for digest, told in recalls.items():
        whole = contents[digest]
        lines = whole.decode("utf-8", "surrogatepass").splitlines()[:20]
        if hashlib.sha256(whole).hexdigest() != digest or "\n".join(lines) not in told:
            seen.wrong.append(f"what was recalled of {digest[:8]} is something else: {told[:200]}")
        seen.recalled += 1


def _recalls(provider: Provider) -> dict[str, str]:
    """What the provider was told of each hash that it asked for by a hidden call."""
    told: dict[str, str] = {}
    for asked in provider.asked:
        if not asked.protocol:
            continue
        hashes: dict[str, str] = {}
        for message in WIRE_MODULES[asked.protocol].parse_messages(asked.body):
            for piece in message.pieces:
                if piece.kind is PieceKind.CALL and piece.name == HIDDEN:
                    hashes[piece.id] = json.loads(piece.text)["sha256"]
                elif piece.kind is PieceKind.RESULT and piece.id in hashes:
                    told.setdefault(hashes[piece.id], piece.text)
    return told


async def _contents(home: Path, digests: set[str]) -> dict[str, bytes]:
    """From the workspace of the agent's folder. The gateway closes it a moment after
    the last agent has ended.
    """
    workspaces = AllWorkspaces(program_folders.find_program_folders(home).workspaces_folder)
    known = next(one for one in workspaces.list_workspaces() if one.settings.roots)
    while True:
        try:
            workspace = await workspaces.open_stored_workspace(known.id)
            break
        except StoreBusy:
            await asyncio.sleep(0.1)
    try:
        return {
            digest: await workspace.cache.read_content(Digest.from_hex(digest))
            for digest in digests
        }
    finally:
        await workspace.aclose()


def rows(*, quick: bool = False) -> list[Row]:
    """For each agent the steps it made; it must end well, with nothing of ours refused
    and no recall seen by it.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(os.environ.get("HELIX_CLIENTS", temporary))
        steps = 20 if quick else 66
        return [_row(name, steps, worked(folder, name, steps)) for name in PACKAGES]


def _row(name: str, steps: int, seen: Seen) -> Row:
    work = seen.work
    refused = seen.provider.refused
    well = not seen.wrong and not seen.ours and seen.recalled > 0
    note = (
        f"{work.recalls} recalls, {seen.recalled} hashes checked, {work.delegated} delegated, {work.compacted} compacted, "
        f"{len(seen.ours)} refused of ours, {len(refused) - len(seen.ours)} of its own; {'; '.join(seen.wrong)}"
    )
    figure = Figure.of([float(work.done)])
    return Row(
        f"{name}: steps",
        "steps",
        figure,
        asked=f"{steps} or more",
        met=well and work.done >= steps,
        note=note,
    )
