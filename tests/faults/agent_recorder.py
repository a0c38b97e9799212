"""Everything that a real agent ever had completely on the disk is recorded, whatever
becomes of its files and of the recorder.

python -m tests.faults.agent_recorder [--conversations N] [--seed S] [--first N]
[--seconds N]      HELIX_CLIENTS: see tests/benchmarks/gateway_clients.py

Each conversation is made by a real agent against a scripted provider, in several runs,
while the recorder runs: commands side by side, files, pictures, plans, sub-agents, the
agent's own compaction, and (Claude Code) forks of the session. Between and during the
runs, at random moments, the file is cut, written anew with a summary, or deleted, and
the resident or its importing process is killed and the resident started again. What
counts as on the disk is what stood in the file `SETTLED` seconds before something was
taken out of it. At the end every text and every output that stood there must be in a
conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from helix_desktop import concurrency, program_folders
from helix_desktop.engine import fact_encoding
from helix_desktop.errors import StoreBusy
from helix_desktop.protocols.gateway_message import PieceKind, ProtocolMessage
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.benchmarks.gateway_clients import (
    CLAUDE_WINDOW,
    DELEGATES,
    DUTY,
    FULL,
    FULL_OF_CLAUDE,
    SHELLS,
    SUMMARY,
    _asks_for_providers_summary,
    _asks_for_text_alone,
    _first_said,
    _last_said,
    _names,
)
from tests.faults.agent_pairs import RichScript, picture
from tests.faults.agent_resume import (
    AGENTS,
    FILES,
    begin,
    delete_session,
    resume,
    run_agent,
    run_in,
    session_file,
    session_id,
)
from tests.peers.agent_provider import Asked, Block, Calls, Compacts, Provider, Says

SETTLED = 0.5  # seconds
MARK = re.compile(rb"OUT-\d+-END|step-\d+-[0-9a-f]{6}|ask-\d+-[0-9a-f]{6}")


class MarkedScript(RichScript):
    """Each reply and each output has a mark of its own. Now and then a part is
    delegated; `fills`: the agent's window is said to be full.
    """

    def __init__(self, name: str, chance: random.Random, work: Path) -> None:
        super().__init__(chance, work)
        self.name = name
        self.fills = False
        self.delegated = 0
        self.compacted = 0

    def usage(self, _: Asked) -> dict[str, int]:
        most = FULL_OF_CLAUDE if self.name == "claude" else FULL
        return {"input": most if self.fills and self.left <= 3 else 100, "read": 0, "write": 0}

    def __call__(self, asked: Asked) -> Sequence[Block]:
        return [self._marked(block) for block in self._answer(asked)]

    def _answer(self, asked: Asked) -> Sequence[Block]:
        messages = WIRE_MODULES[asked.protocol].parse_messages(asked.body)
        names = _names(asked.body)
        if _asks_for_providers_summary(asked.body):
            self.compacted += 1
            self.fills = False
            return [Compacts("The numbers were counted.")]
        if SUMMARY.search(_last_said(messages)) or _asks_for_text_alone(messages):
            self.compacted += 1
            self.fills = False
            return [Says("<summary>The numbers were counted.</summary>")]
        shell = next((name for name in names if name in SHELLS), "")
        has_duty = any(DUTY in piece.text for piece in _first_said(messages))
        if shell and has_duty:
            return self._do_duty(shell, messages)
        delegate = next((name for name in names if name in DELEGATES), "")
        if delegate and self.left > 1 and self._chance.random() < 0.1:
            self.left -= 1
            self.delegated += 1
            duty = json.loads(json.dumps(DELEGATES[delegate]).replace("{duty}", DUTY))
            return [Says("A part for another"), Calls(delegate, duty)]
        return super().__call__(asked)

    def _do_duty(self, shell: str, messages: Sequence[ProtocolMessage]) -> Sequence[Block]:
        """What an agent does to which a part was delegated."""
        replies_with_calls = sum(
            bool(message.pieces_of_kind(PieceKind.CALL)) for message in messages
        )
        if replies_with_calls >= 3:
            return [Says("It was counted three times.")]
        return [self._command(shell)]

    def _command(self, shell: str) -> Calls:
        self._number += 1
        command = f"seq {self._number}0 {self._number}9; echo OUT-{self._number}-END"
        return run_in(shell, command)

    def _marked(self, block: Block) -> Block:
        if not isinstance(block, Says):
            return block
        self._number += 1
        return Says(f"{block.text} step-{self._number}-{self._chance.getrandbits(24):06x}")


def marks_in(file: Path) -> set[bytes]:
    """The marks in the whole lines of a file."""
    with suppress(OSError):
        if file.suffix == ".db":  # what SQLite has not merged yet stands beside it
            log = file.with_name(f"{file.name}-wal")
            return set(
                MARK.findall(file.read_bytes() + (log.read_bytes() if log.exists() else b""))
            )
        whole, _, _ = file.read_bytes().rpartition(b"\n")
        return set(MARK.findall(whole))
    return set()


def history_files(name: str, home: Path) -> list[Path]:
    """The agent's files, also those of its sub-agents."""
    return sorted(home.glob(FILES[name]))


class Trouble:
    """Changes the newest history at random moments, and keeps what stood in it before."""

    def __init__(self, name: str, home: Path, chance: random.Random) -> None:
        self.name = name
        self.home = home
        self.chance = chance
        self.expected: set[bytes] = set()
        self.done: list[str] = []
        self.kills = 0

    def change_file(self, what: str) -> None:
        with suppress(ValueError, OSError):
            file = session_file(self.name, self.home)
            stood = marks_in(file)
            time.sleep(SETTLED)  # what stood there had this time to be seen
            content = file.read_bytes()
            self.expected |= stood
            self.done.append(what)
            if file.suffix == ".db":
                delete_session(self.name, file, session_id(self.name, file))
                return
            lines = content.splitlines(keepends=True)
            if what == "cut":
                file.write_bytes(b"".join(lines[: self.chance.randint(1, len(lines))]))
            elif what == "half a line":
                file.write_bytes(content[: self.chance.randint(1, len(content))])
            elif what == "replaced":
                draft = file.with_suffix(".new")
                draft.write_bytes(b"".join(lines[: len(lines) // 2]))
                draft.replace(file)
            elif what == "deleted":
                file.unlink()

    def kill(self, pid: int) -> None:
        if pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.kills += 1


class Recording:
    """The recorder on a home of its own."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def helix(self, *given: str) -> str:
        command = [
            sys.executable,
            "-m",
            "helix_desktop",
            "--home",
            str(self._home / "helix"),
            *given,
        ]
        variables = {**os.environ, "HOME": str(self._home), "PYTHONPATH": str(Path.cwd())}
        return subprocess.run(
            command, env=variables, capture_output=True, text=True, check=True
        ).stdout

    def status(self) -> dict[str, Any]:
        """Ask again if the resident is killed before it answers."""
        with suppress(subprocess.CalledProcessError):
            return json.loads(self.helix("resident", "status", "--json")) or {}
        return json.loads(self.helix("resident", "status", "--json")) or {}

    def has_copies(self) -> bool:
        return any(files for _, _, files in os.walk(self._home / "helix" / "recorder"))

    async def recorded_marks(self) -> set[bytes]:
        """Those of all facts, also of those that a conversation has left behind."""
        found: set[bytes] = set()
        workspaces = AllWorkspaces(
            program_folders.find_program_folders(self._home / "helix").workspaces_folder
        )
        for known in workspaces.list_workspaces():
            try:
                workspace = await workspaces.open_stored_workspace(known.id)
            except StoreBusy:
                continue
            for row in await workspace.journal.list_conversations():
                for one in await workspace.journal.read_facts(row.id):
                    found |= set(MARK.findall(fact_encoding.encode_fact(one.fact).encode()))
            await workspace.aclose()
        return found


def try_conversation(name: str, chance: random.Random) -> tuple[int, set[bytes], Trouble]:
    """How many marks stood on the disk, and which are lost."""
    with tempfile.TemporaryDirectory(prefix="rec-") as folder:
        home = Path(folder, "home")
        work = Path(folder, "work")
        home.mkdir()
        work.mkdir()
        (work / "notes.txt").write_text("".join(f"line {n}\n" for n in range(1, 40)), "utf-8")
        (work / "dot.png").write_bytes(picture())
        script = MarkedScript(name, chance, work)
        with Provider(script, usage=script.usage, accepted="have one role") as provider:
            return _record(name, script, provider, home, chance)


def _record(
    name: str, script: MarkedScript, provider: Provider, home: Path, chance: random.Random
) -> tuple[int, set[bytes], Trouble]:
    recording = Recording(home)
    trouble = Trouble(name, home, chance)
    recording.helix("recorder", "on")
    try:
        _work(name, script, provider, recording, trouble)
        for file in history_files(name, home):
            trouble.expected |= marks_in(file)
        until = time.monotonic() + 60
        while recording.has_copies() and time.monotonic() < until:
            time.sleep(0.5)  # who looks into a workspace keeps the recorder out of it
    finally:
        recording.helix("recorder", "off")
        recording.helix("resident", "stop")
    time.sleep(1.0)
    trouble.done += [f"{script.delegated} delegated", f"{script.compacted} compacted"]
    lost = trouble.expected - asyncio.run(recording.recorded_marks())
    return len(trouble.expected), lost, trouble


def _work(
    name: str, script: MarkedScript, provider: Provider, recording: Recording, trouble: Trouble
) -> None:
    chance = trouble.chance
    home = trouble.home
    session = ""
    for number in range(3):
        script.left = chance.choice(
            [chance.randint(3, 16), chance.randint(3, 16), chance.randint(20, 60)]
        )
        script.fills = number > 0 and chance.random() < 0.5
        words = f"do the work ask-{number}-{chance.getrandbits(24):06x}" + "." * chance.randint(
            0, 2
        )
        working = concurrency.start_thread(
            partial(_run, name, provider, home, session, words), name="agent"
        )
        if chance.random() < 0.5:
            time.sleep(chance.uniform(0.5, 4.0))
            trouble.kill((recording.status().get("recorder") or {}).get("pid", 0))
        working.join()
        with suppress(ValueError):
            session = session_id(name, session_file(name, home))
        if chance.random() < 0.4:
            trouble.kill(recording.status().get("pid", 0))
            recording.helix("recorder", "on")
            time.sleep(SETTLED)
        if chance.random() < 0.8:
            what = chance.choice(["cut", "half a line", "replaced", "deleted"])
            trouble.change_file(what)
            session = "" if what in ("deleted", "half a line") or name == "opencode" else session


def _run(name: str, provider: Provider, home: Path, session: str, words: str) -> None:
    with suppress(
        RuntimeError, subprocess.TimeoutExpired
    ):  # it may refuse to go on with a file that was cut, or wait for ever
        given = resume(name, session, words) if session else begin(name, words)
        forks = ["--fork-session"] if name == "claude" and session and len(words) % 3 == 0 else []
        run_agent(
            name,
            provider,
            home,
            [*forks, *given],
            own={"CLAUDE_CODE_AUTO_COMPACT_WINDOW": str(CLAUDE_WINDOW)},
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conversations", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--agent", choices=AGENTS)
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first conversation, to go on"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="no conversation begins after so long"
    )
    arguments = parser.parse_args()
    failed = whole = tried = 0
    until = time.monotonic() + arguments.seconds
    for number in range(arguments.first, arguments.first + arguments.conversations):
        if time.monotonic() > until:
            break
        tried += 1
        name = arguments.agent or AGENTS[number % len(AGENTS)]
        count, lost, trouble = try_conversation(name, random.Random(arguments.seed * 1000 + number))
        failed += len(lost)
        whole += count
        print(f"{name} {number}: {count} marks, {len(lost)} lost {sorted(lost)[:3]}; {trouble.done}, {trouble.kills} kills", flush=True)  # fmt: skip
    print(f"{tried} conversations, {whole} marks, {failed} lost")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
