"""A gigabyte of new history through the recorder itself: from `recorder on` until it
rests, beside reading, hashing and counting.

python -m tests.benchmarks.recorder FOLDER [--size MB] [--runs N] [--recent] [--window]
FOLDER: made by the first run

Each run has a home of its own for the program and is followed by the parts nobody can
do without, in the same minute. `--recent`: the files have just been written, so that
the recorder copies them first. `--window`: the real window is open beside it, with a
page painted 60 times a second, and what is told is how long a frame takes. It needs a
display (Xvfb) or offscreen.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from helix_desktop import program_folders
from helix_desktop.resident.resident_client import ask_resident
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.token_counting import TiktokenCounter
from tests.benchmarks.bring_in import SIZE, TRACES, _written
from tests.benchmarks.machine import environment

REST = 3.0  # seconds without work: all of it is there
LIMIT = 900.0
OLD = 7200.0  # seconds: the recorder reads such a file where it is


def helix(home: Path, *given: str, histories: Path) -> str:
    command = [sys.executable, "-m", "helix_desktop", "--home", str(home), *given]
    variables = {**environment(), "HOME": str(histories)}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=True).stdout


class RecorderWatch:
    """What the processes of a recorder take: processor time and memory."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.processor: dict[int, float] = {}
        self.memory: dict[int, float] = {}
        self._worked = time.time()

    def rests(self) -> float:
        """When the last import ended, or 0 while there is work."""
        status = (
            asyncio.run(ask_resident(program_folders.find_program_folders(self._home), "status"))
            or {}
        )
        before = sum(self.processor.values())
        self._look(status["pid"])
        if sum(self.processor.values()) - before > 0.02 or any(
            files for *_, files in os.walk(self._home / "recorder")
        ):
            self._worked = time.time()
        last: float = status["recorder"]["last_import"]
        return last if last and time.time() - self._worked > REST else 0.0

    def _look(self, resident: int) -> None:
        for pid in _tree(resident):
            with suppress(OSError, IndexError, ValueError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                self.processor[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                rss = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
                self.memory[pid] = max(self.memory.get(pid, 0.0), rss)


def _tree(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{one}/task"):  # noqa: PTH208 - names alone
                found += map(int, Path(f"/proc/{one}/task/{task}/children").read_text().split())
    return found


def recorded(home: Path, histories: Path, begun: float) -> tuple[float, RecorderWatch]:
    """Seconds from `begun` to the last import."""
    watch = RecorderWatch(home)
    helix(home, "recorder", "on", histories=histories)
    while not (last := watch.rests()):
        if time.time() - begun > LIMIT:
            raise TimeoutError
        time.sleep(0.5)
    return last - begun, watch


def stop(home: Path, histories: Path) -> int:
    """How many conversations there are."""
    for given in (("recorder", "off"), ("resident", "stop")):
        helix(home, *given, histories=histories)
    time.sleep(1.0)

    async def count() -> int:
        workspaces = AllWorkspaces(program_folders.find_program_folders(home).workspaces_folder)
        found = 0
        for known in workspaces.list_workspaces():
            workspace = await workspaces.open_stored_workspace(known.id)
            found += len(await workspace.journal.list_conversations())
            await workspace.aclose()
        return found

    return asyncio.run(count())


def parts(histories: Path) -> tuple[float, float]:
    """The files read, hashed and counted by one thread: seconds, and those of the processor."""
    counter = TiktokenCounter()
    counter.count_tokens("The vocabulary is there before anything is measured.")
    begun = time.perf_counter()
    worked = time.process_time()
    for file in _files(histories):
        content = file.read_bytes()
        hashlib.sha256(content).digest()
        counter.count_ahead(content.decode("utf-8", "replace").splitlines(keepends=True))
    return time.perf_counter() - begun, time.process_time() - worked


def _files(histories: Path) -> list[Path]:
    return sorted(one for one in histories.rglob("*.json*") if one.is_file())


def run_once(histories: Path, facts: Mapping[str, Any]) -> float:
    with tempfile.TemporaryDirectory(prefix="helix-recorder-") as folder:
        home = Path(folder, "home")
        load = os.getloadavg()[0]
        taken, watch = recorded(home, histories, time.time())
        there = stop(home, histories)
    alone, processor = parts(histories)
    work = ", ".join(
        f"{one:.1f}" for one in sorted(watch.processor.values(), reverse=True) if one > 1
    )
    print(
        f"{taken:.1f} s to rest, parts {alone:.1f} s: {taken / alone:.2f} times (asked 1.5). Processor {work} s, parts {processor:.1f}; "
        f"memory at most {max(watch.memory.values()):.0f} MB in one process; {there} of {facts['files']} conversations; load {load:.1f}",
        flush=True,
    )
    return taken / alone


def run_beside_window(histories: Path, facts: Mapping[str, Any]) -> int:
    from PySide6.QtCore import Qt, QTimer

    from helix_desktop.desktop.window_program import WindowProgram
    from tests.benchmarks.gui_bring_in import FACTS, _tell
    from tests.benchmarks.gui_bring_in import REST as AT_REST
    from tests.benchmarks.gui_holds import WORKSPACE, Holds, prepare
    from tests.soak.driven import HOME, drive, opened, until

    async def story(run: WindowProgram, home: Path, holds: Holds) -> None:
        window = run.window
        await opened(run, WORKSPACE)
        rows = window.sides.list_rows()
        window.sides.go_to_conversation(
            next(row.id for row in rows if row.title.startswith("A very"))
        )
        await until(lambda: window.current_session is not None)
        frames = QTimer(window, interval=16, timerType=Qt.TimerType.PreciseTimer)
        frames.timeout.connect(window.chat.transcript.view.viewport().update)
        frames.start()
        holds.begin()
        await holds.settled()
        holds.taken.clear()
        begun = time.perf_counter()
        await until(lambda: time.perf_counter() - begun > AT_REST)
        _tell("at rest", holds, time.perf_counter() - begun)
        holds.taken.clear()
        begun = time.perf_counter()
        load = os.getloadavg()[0]
        taken, _ = await asyncio.to_thread(recorded, home, histories, time.time())
        _tell("while it is recorded", holds, time.perf_counter() - begun)
        print(f"{taken:.1f} s to rest beside the window, load {load:.1f}")

    with tempfile.TemporaryDirectory(prefix="helix-recorder-") as folder:
        os.environ["HOME"] = str(histories)
        prepare(Path(folder), FACTS)
        home = Path(folder, HOME)
        code = drive(Path(folder), lambda run: story(run, home, Holds()))
        print(f"{stop(home, histories) - 2} of {facts['files']} conversations")
        return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=int, default=SIZE >> 20, help="megabytes")
    parser.add_argument("--traces", type=Path, default=TRACES)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--recent", action="store_true")
    parser.add_argument("--window", action="store_true")
    arguments = parser.parse_args()
    histories: Path = arguments.folder.resolve()
    if not histories.exists():
        _written(histories, arguments.size << 20, arguments.traces)
    found = [one for one in _files(histories) if "helix" not in one.parts]
    written = time.time() - (0.0 if arguments.recent else OLD)
    for file in found:
        os.utime(file, (written, written))
    facts = {"files": len(found), "bytes": sum(one.stat().st_size for one in found)}
    print(
        f"{facts['bytes'] / 1e6:,.0f} MB in {facts['files']} files{', just written' if arguments.recent else ''}"
    )
    if arguments.window:
        return run_beside_window(histories, facts)
    times = [run_once(histories, facts) for _ in range(arguments.runs)]
    print(f"median of {len(times)}: {statistics.median(times):.2f} times its parts (asked 1.5)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
