"""Agents work in three workspaces while histories are imported, backups written and
words searched; processes are killed and the disk fills up at random moments. What a
command has acknowledged is there afterwards.

    python -m tests.faults.working_load [--minutes 5] [--seed 1]

Every command is a process of its own, as people and scripts start them. The data lies
on a real file system of a few megabytes, in a mount namespace of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.concurrency import start_thread
from helix_desktop.engine.facts import Fact, FilesChanged, TurnEnded
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.tour_folder import MODEL, create_tour_folder
from tests.faults.full_disk import INSIDE
from tests.texts_and_calls import user_texts

MEGABYTES = 192
NAMES = ("One", "Two", "Three")
WORDS = (
    "read run.log",
    "large",
    "search ERROR",
    "read samples.csv",
    "write {n}.txt: text of {n}",
    "run echo {n} >> log.txt",
)


class _Recorded:
    """What stands in the facts of a workspace's conversations."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.texts_of_ended_turns: set[str] = set()
        self.changed_files: set[str] = set()

    def add(self, facts: Sequence[Fact]) -> None:
        """Those of one conversation."""
        texts = user_texts(facts)
        self.texts.update(texts)
        if any(isinstance(fact, TurnEnded) for fact in facts):
            self.texts_of_ended_turns.update(texts)
        for fact in facts:
            if isinstance(fact, FilesChanged):
                self.changed_files.update(fact.names)


class WorkingLoad:
    """`told`: what was acknowledged, as (kind, workspace, what)."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place = place
        self.home = place / "disk" / "home"
        self.chance = random.Random(seed)
        self.told: list[tuple[str, str, str]] = []
        self.found: Counter[str] = Counter()
        self.running: dict[int, subprocess.Popen[str]] = {}
        self.ends = False
        self.count = 0
        self.lock = threading.Lock()

    def next_number(self) -> int:
        with self.lock:
            self.count += 1
            return self.count

    def run_command(self, *words: str, given: str = "") -> tuple[int, str]:
        command = [sys.executable, "-m", "helix_desktop", "--home", str(self.home), *words]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.running[process.pid] = process
        try:
            out, wrong = process.communicate(given, timeout=120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            self.found[f"LOST: {words[0]} hung"] += 1
            return 1, ""
        finally:
            self.running.pop(process.pid, None)
        self.found[
            f"{' '.join(words[:2]) if words[0] in ('cache', 'conversation', 'workspace') else words[0]}: {process.returncode}"
        ] += 1
        if "Traceback" in wrong:
            self.found[f"LOST: a traceback of {words[0]}: {wrong[-600:]}"] += 1
        elif process.returncode > 0:
            self.found[f"refused: {wrong.strip()[-160:]}"] += 1
        return process.returncode, out

    def work_as_agent(self, name: str) -> None:
        while not self.ends:
            number = f"load{self.next_number()}"
            words = self.chance.choice(WORDS).replace("{n}", number)
            said = f"{words} {number}" if number not in words else words
            allowed = ("--allow", "edits", "--allow", "commands")
            code, _ = self.run_command("ask", "-w", name, "-m", MODEL, *allowed, said)
            if code == 0:
                self.told.append(("turn", name, said))
                if words.startswith("write"):
                    self.told.append(("file", name, f"{number}.txt"))

    def work_beside(self) -> None:
        while not self.ends:
            name = self.chance.choice(NAMES)
            number = f"load{self.next_number()}"
            match self.chance.randrange(4):
                case 0:
                    text = f"{number} {self.chance.random()}\n" * 500
                    code, _ = self.run_command("cache", "put", "-w", name, "-", given=text)
                    if code == 0:
                        self.told.append(("entry", name, Digest.of_content(text.encode()).hex))
                case 1:
                    file = self.place / f"{number}.jsonl"
                    file.write_text("".join(map(_history_line(number), range(40))))
                    code, _ = self.run_command("conversation", "import", "-w", name, str(file))
                    if code == 0:
                        self.told.append(("history", name, number))
                case 2:
                    file = self.place / f"{number}.helix"
                    code, _ = self.run_command("workspace", "export", name, str(file))
                    if code == 0:
                        self.told.append(("backup", name, str(file)))
                case _:
                    self.run_command("cache", "search", "-w", name, "ERROR", "--json")

    def do_harm(self, minutes: float) -> None:
        """Kill one or all processes, or fill the disk for a while."""
        until = time.monotonic() + minutes * 60
        while time.monotonic() < until:
            time.sleep(self.chance.uniform(0.5, 6))
            match self.chance.randrange(5):
                case 0:
                    self.kill([*self.running])
                case 1:
                    self._fill_disk(self.chance.choice((0, 16, 256, 2048)) << 10)
                    time.sleep(self.chance.uniform(1, 6))
                    (self.place / "disk" / "filler").unlink(missing_ok=True)
                case _:
                    self.kill([self.chance.choice([*self.running])] if self.running else [])
        self.ends = True
        self.kill([*self.running])

    def kill(self, processes: Sequence[int]) -> None:
        for each in processes:
            self.found["kills"] += 1
            with suppress(ProcessLookupError):
                os.killpg(each, signal.SIGKILL)

    def _fill_disk(self, room: int) -> None:
        self.found["full disks"] += 1
        with (self.place / "disk" / "filler").open("ab") as filler:
            status = os.statvfs(self.place / "disk")
            with suppress(OSError):
                size = status.f_bavail * status.f_frsize - room
                os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, max(size, 1))

    async def create_workspaces(self) -> None:
        desk = self._open_desk()
        for name in NAMES:
            folder = self.place / "work" / name
            create_tour_folder(folder)
            bench = await desk.create_workspace(name, folder)
            await bench.choose_model_for_role(MODEL)
        await desk.aclose()

    def _open_desk(self) -> Workbenches:
        where = program_folders.find_program_folders(self.home)
        return Workbenches(where, SecretStorage(where.key_file, environ={}))

    async def check_everything(self) -> None:
        desk = self._open_desk()
        for name in NAMES:
            bench = await desk.open_workspace(name)
            await bench.file_changes.workspace_checkpoints.ensure_first_check()
            told = [(kind, what) for kind, where, what in self.told if where == name]
            await self._check_workspace(bench, told)
        await desk.aclose()
        for name in NAMES:
            code, out = self.run_command("cache", "verify", "-w", name, "--json")
            damaged = json.loads(out).get("damaged") if code == 0 else "not read"
            if damaged:
                self.found[f"LOST: {name} has damaged entries: {damaged}"] += 1

    async def _check_workspace(self, bench: Workbench, told: Sequence[tuple[str, str]]) -> None:
        recorded = _Recorded()
        for row in bench.list_conversations():
            recorded.add([one.fact for one in await bench.read_conversation_facts(row.id)])
        for kind, what in told:
            match kind:
                case "turn":
                    is_there = what in recorded.texts_of_ended_turns
                case "file":
                    is_there = what in recorded.changed_files
                case "history":
                    questions = {f"{what} question {number}" for number in range(0, 40, 2)}
                    is_there = questions <= recorded.texts
                case "backup":
                    is_there = Path(what).stat().st_size > 0
                case _:
                    is_there = await _is_readable(bench, Digest.from_hex(what))
            self.found[f"checked: {kind}"] += 1
            if not is_there:
                self.found[f"LOST: {kind} {what} of {bench.name}"] += 1

    def check_backups(self) -> None:
        """The last backup of each workspace can be brought in."""
        for name in NAMES:
            files = [what for kind, where, what in self.told if (kind, where) == ("backup", name)]
            self.home = self.place / "elsewhere"
            if files and self.run_command("workspace", "import", files[-1])[0] != 0:
                self.found[f"LOST: the backup {files[-1]} cannot be brought in"] += 1


async def _is_readable(bench: Workbench, digest: Digest) -> bool:
    try:
        return bool(await bench.workspace.cache.read_content(digest))
    except HelixError:
        return False


def _history_line(number: str):  # type: ignore[no-untyped-def] # noqa: ANN202
    def write_line(each: int) -> str:
        role = "assistant" if each % 2 else "user"
        message: dict[str, object] = {"role": role, "content": f"{number} question {each}"}
        if role == "assistant":
            message |= {
                "id": f"{number}-{each}",
                "content": [{"type": "text", "text": f"{number} answer {each}"}],
            }
        about = {
            "type": role,
            "uuid": f"{number}-u{each}",
            "parentUuid": f"{number}-u{each - 1}" if each else None,
        }
        time_of = {
            "timestamp": f"2026-11-20T10:00:{each:02}.000Z",
            "sessionId": number,
            "cwd": "/tmp",
            "version": "2.1.0",
        }
        return json.dumps({**about, **time_of, "message": message}) + "\n"

    return write_line


def run_inside(place: Path, minutes: float, seed: int) -> Counter[str]:
    load = WorkingLoad(place, seed)
    asyncio.run(load.create_workspaces())
    workers = [
        start_thread(partial(load.work_as_agent, name), name=f"agent in {name}") for name in NAMES
    ]
    workers.append(start_thread(load.work_beside, name="work beside"))
    load.do_harm(minutes)
    for each in workers:
        each.join()
    asyncio.run(load.check_everything())
    load.check_backups()
    return load.found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", type=Path)
    given = parser.parse_args()
    if given.inside:
        found = run_inside(given.inside, given.minutes, given.seed)
        for key, number in sorted(found.items()):
            print(f"{number:6} {key}")
        return int(any(key.startswith("LOST") for key in found))
    with tempfile.TemporaryDirectory(prefix="helix-load-") as place:
        (Path(place) / "disk").mkdir()
        run = f'mount -t tmpfs -o size={MEGABYTES}m none "$1" && shift && exec "$@"'
        command = [
            sys.executable,
            "-m",
            "tests.faults.working_load",
            "--minutes",
            str(given.minutes),
        ]
        command += ["--seed", str(given.seed), "--inside", place]
        return subprocess.run(
            [*INSIDE, run, "sh", str(Path(place) / "disk"), *command], check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main())
