"""The real program while a connected agent works in its workspace: how long its window
is held, frame after frame.

`python -m tests.benchmarks.gui_connected [seconds] [--where]`, with a display (Xvfb) or
offscreen. The gateway is a process of its own, its engine works in the window. The
agent's conversation is open, and its page is painted 60 times a second. A hold is the
time from one turn of the event loop to the next; `--where` says what was going on in
the longest ones.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import Qt, QTimer

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.gateway import wrapped_agent
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.resident.resident_client import HeldRegistration
from tests.benchmarks.gateway_speed import Client, _output, server
from tests.benchmarks.gui_bring_in import _tell
from tests.benchmarks.gui_holds import WORKSPACE, Holds, prepare
from tests.soak.driven import HOME, drive, opened, until

FACTS = 2_000  # of a conversation beside the agent's
SECONDS = 20
SHOWN = 2.0
PAGES = ("chat", "timeline", "cache")


def work(url: str, path: str, name: str) -> None:
    """An agent that goes on until it is ended: outputs of 6 KB, each tenth of 60 KB,
    and a new session each 500 steps.
    """
    for session in range(1_000_000):
        client = Client(url, 0, f"{name} {session}")
        for step in range(500):
            client.step(path)
            client.messages[-1]["content"][0]["content"] = _output(
                step, 60_000 if step % 10 == 9 else 6_000
            )


def _is_listed(window: MainWindow, words: str) -> bool:
    return any(words in row.title for row in window.sides.list_rows())


async def watch(run: WindowProgram, home: Path, upstream: str, seconds: int) -> None:
    window = run.window
    holds = Holds(where="--where" in sys.argv)
    await opened(run, WORKSPACE)
    where = program_folders.find_program_folders(home / HOME)
    gateway = HeldRegistration(
        where,
        wrapped_agent.command_of_this_program(where),
        GatewayRegistration("", upstream, workspace=WORKSPACE),
    )
    url = (await asyncio.to_thread(gateway.__enter__)).addresses[0]
    frames = QTimer(window, interval=16, timerType=Qt.TimerType.PreciseTimer)
    frames.timeout.connect(window.chat.transcript.view.viewport().update)
    frames.start()
    holds.begin()
    try:
        await holds.settled()
        await _measure(holds, "at rest", seconds // 4)
        for path, pace in (
            ("/slow/v1/messages", "a step a second"),
            ("/v1/messages", "step after step"),
        ):
            with subprocess.Popen(
                [sys.executable, "-m", __spec__.name, "--agent", url, path, pace]
            ) as agent:
                try:
                    await until(partial(_is_listed, window, pace))
                    for page in PAGES:
                        newest = max(
                            (row for row in window.sides.list_rows() if pace in row.title),
                            key=lambda row: row.updated,
                        )
                        window.sides.go_to_conversation(newest.id)
                        window.switch_to_page(page)
                        await asyncio.sleep(SHOWN)
                        await _measure(holds, f"{pace}, {page}", seconds)
                finally:
                    agent.terminate()
    finally:
        await asyncio.to_thread(gateway.__exit__, None, None, None)


async def _measure(holds: Holds, name: str, seconds: int) -> None:
    holds.taken.clear()
    holds.longest.clear()
    begun = time.perf_counter()
    await until(lambda: time.perf_counter() - begun > seconds, seconds + 60)
    _tell(name, holds, time.perf_counter() - begun)
    holds.tell_longest()


def main() -> int:
    if "--agent" in sys.argv:
        work(*sys.argv[-3:])
    seconds = next((int(each) for each in sys.argv[1:] if each.isdigit()), SECONDS)
    with (
        tempfile.TemporaryDirectory(prefix="helix-connected-") as folder,
        server("provider") as (upstream, _),
    ):
        home = Path(folder)
        prepare(home, FACTS)
        return drive(home, lambda run: watch(run, home, upstream, seconds))


if __name__ == "__main__":
    sys.exit(main())
