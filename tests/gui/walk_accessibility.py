"""Every page and dialog of the real program by keyboard alone and as a screen reader is told of it.

`python -m tests.gui.walk_accessibility FOLDER [--language de] [--at-spi]`: a report for
each surface of tests/gui/surfaces.py, and what is wrong with it. With `--at-spi` the
tree is read over the bus as well, by a process of its own (needs at-spi2-core and
python3-pyatspi, within dbus-run-session).
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.program_settings import LANGUAGE, ProgramSettings
from tests.gui import accessibility, screen, surfaces
from tests.gui.hands import xdotool
from tests.soak.driven import HOME, drive

READER = Path(__file__).with_name("read_at_spi.py")
READS = 20  # The first starts the bus, and Qt joins it some time later.
KEYS = {
    Qt.Key.Key_Tab: "Tab",
    Qt.Key.Key_Right: "Right",
    Qt.Key.Key_Down: "Down",
    Qt.Key.Key_Escape: "Escape",
}


async def press(key: Qt.Key) -> None:
    """A real key, and time for what it does."""
    await xdotool("key", KEYS[key])
    await asyncio.sleep(0.06)


def in_front() -> QWidget | None:
    return (
        QApplication.activePopupWidget()
        or QApplication.activeModalWidget()
        or QApplication.activeWindow()
    )


class Reading(surfaces.Tour):
    """Instead of a picture alone, each surface is gone through."""

    at_spi = False
    faults = 0

    async def shot(self, name: str, seconds: float = 0.6) -> None:
        await super().shot(name, seconds)
        front = in_front()
        if not self.wants(name) or front is None:
            return
        before = QApplication.focusWidget()
        controls, stops, faults = await accessibility.faults_of(front, press)
        if self.at_spi:
            faults += await self.over_the_bus(name)
        lines = [f"# {name}: {len(controls)} nodes, {len(stops)} stops, {len(faults)} faults"]
        lines += [f"  FAULT {each}" for each in faults]
        lines += [
            f"  stop {accessibility.spoken_of(each.widget)} {each.place or ''}" for each in stops
        ]
        lines += [f"  node {each}" for each in controls if each.role in accessibility.NAMED]
        with (self.folder / "report.txt").open("a", encoding="utf-8") as report:
            report.write("\n".join(lines) + "\n")
        print(lines[0], *[f"\n  {each}" for each in faults], flush=True)
        type(self).faults += len(faults)
        if before is not None and before.isVisible():
            before.setFocus()

    async def dialogs(self) -> None:
        """And what the pictures leave out."""
        await super().dialogs()
        window = self.window
        await self.open("Extract the lock")
        for name, open_ in self.more():
            if self.wants(name):
                open_()
                await self.shot(name, 1.5)
                await self.close()
                if window.context_panel.isVisible():
                    window.context_panel.hide()
        self.act("inspector")
        await self.shot("80-inspector", 1.5)
        self.act("inspector")
        window.switch_to_page("chat")

    def more(self) -> list[tuple[str, Callable[[], object]]]:
        later = asyncio.get_running_loop().call_soon
        acts = (
            "agents",
            "new-copy",
            "new-acp",
            "join-workspace",
            "rename",
            "doctor",
            "find-workspace",
            "fold-handover",
        )
        return [
            ("70-context-panel", self.window.chat.composer.context_button.click),
            *((f"71-{name}", partial(later, self.act, name)) for name in acts),
        ]

    async def over_the_bus(self, name: str) -> list[str]:
        for _ in range(READS):
            done = await asyncio.to_thread(
                subprocess.run,
                ["/usr/bin/python3", str(READER), str(os.getpid())],
                capture_output=True,
                text=True,
            )
            if "not on the bus" not in done.stdout:
                break
        (self.folder / f"{name}.at-spi.txt").write_text(done.stdout + done.stderr)
        return [
            line.removeprefix("FAULT ")
            for line in done.stdout.splitlines()
            if line.startswith("FAULT ")
        ]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--language", default="en")
    parser.add_argument("--size", default="1440x900")
    parser.add_argument("--at-spi", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--inside", choices=("first", "used"))
    chosen = parser.parse_args()
    width, height = map(int, chosen.size.split("x"))
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if not chosen.inside:
        codes = []
        with screen.screen(chosen.size) as own:
            for inside in ("first", "used"):
                command = [
                    sys.executable,
                    "-m",
                    "tests.gui.walk_accessibility",
                    *sys.argv[1:],
                    "--inside",
                    inside,
                ]
                codes.append(
                    subprocess.run(
                        command,
                        env={**own.environment, "QT_LINUX_ACCESSIBILITY_ALWAYS_ON": "1"},
                        check=False,
                    ).returncode
                )
        return max(codes)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as made:
        home = Path(made)
        if chosen.inside == "used":
            surfaces.prepare(home, surfaces.listing())
            os.environ["PATH"] = f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}"
        ProgramSettings(
            program_folders.find_program_folders(home / HOME).settings_file
        ).change_setting(LANGUAGE, chosen.language)
        Reading.at_spi = chosen.at_spi

        def walk(run: WindowProgram) -> Coroutine[Any, Any, None]:
            tour = Reading(run, home / HOME, chosen.folder, (width, height), chosen.only)
            return tour.first() if chosen.inside == "first" else tour.used()

        return drive(home, walk) or min(Reading.faults, 1)


if __name__ == "__main__":
    sys.exit(main())
