"""A screen of its own with a window manager, and a keyboard and a mouse on it: what a
person has. Needs Xvfb and xdotool.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest

NEEDED = ("Xvfb", "openbox", "xdotool", "import")
PATIENCE = 150.0
SAME_READINGS = 10  # About a second of them, with the pauses between.


def missing() -> str:
    """What a screen needs and this machine lacks."""
    return ", ".join(name for name in NEEDED if shutil.which(name) is None)


class Screen:
    """One X server. `key("ctrl+k")`, `type("words")`, `click(x, y)` are real events."""

    def __init__(self, display: str) -> None:
        self.display = display
        self.environment = {**os.environ, "DISPLAY": display, "QT_QPA_PLATFORM": "xcb"}

    def run(self, *command: str, check: bool = True) -> str:
        done = subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            check=check,
            timeout=PATIENCE,
        )
        return done.stdout.strip()

    def key(self, *keys: str) -> None:
        self.run("xdotool", "key", "--delay", "40", *keys)
        time.sleep(0.15)

    def type(self, words: str) -> None:
        self.run("xdotool", "type", "--delay", "15", words)
        time.sleep(0.15)

    def click(self, x: int, y: int) -> None:
        self.run("xdotool", "mousemove", str(x), str(y), "click", "1")

    def titles(self) -> list[str]:
        """Of all windows that can be seen."""
        found = self.run("xdotool", "search", "--onlyvisible", "--name", "", check=False).split()
        return [
            name
            for window in found
            if (name := self.run("xdotool", "getwindowname", window, check=False))
        ]

    def active(self) -> str:
        """The title of the window with the keyboard."""
        return self.run("xdotool", "getactivewindow", "getwindowname", check=False)

    def active_height(self) -> int:
        """The height of the window with the keyboard, in pixels."""
        shown = self.run("xdotool", "getactivewindow", "getwindowgeometry", "--shell", check=False)
        heights = [line for line in shown.splitlines() if line.startswith("HEIGHT=")]
        return int(heights[0].removeprefix("HEIGHT=")) if heights else 0

    def settled_height(self) -> int:
        """The height once it stays the same for a second: a dialog grows by what it finds, too."""
        heights: list[int] = []

        def has_settled() -> bool:
            heights.append(self.active_height())
            return len(heights) >= SAME_READINGS and len(set(heights[-SAME_READINGS:])) == 1

        wait_for("a window that no longer grows", has_settled)
        return heights[-1]

    def has_front(self, title: str) -> bool:
        """Whether a window of this title has the keyboard; one that has it not is
        brought to the front, as with a click on it: a window manager that is still
        starting takes over what is there and gives nobody the keyboard.
        """
        if title in self.active():
            return True
        self.run(
            "xdotool", "search", "--onlyvisible", "--name", title, "windowactivate", check=False
        )
        return False

    def pixel(self, x: int, y: int) -> str:
        """The colour at a place of the screen, as #rrggbb."""
        shot = self.run(
            "import", "-window", "root", "-crop", f"1x1+{x}+{y}", "-depth", "8", "txt:-"
        )
        return "#" + shot.split("#")[-1].split()[0][:6].lower()

    def shot(self, file: Path) -> None:
        self.run("import", "-window", "root", str(file))


def wait_for(what: str, true: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Until it is so; fails with what was waited for."""
    until = time.monotonic() + seconds
    while not true():
        if time.monotonic() > until:
            pytest.fail(f"waited in vain for {what}")
        time.sleep(0.1)


def answers_messages(on: Screen) -> bool:
    """Whether the window manager handles what windows ask of it, tried by asking for
    another number of desktops.

    Openbox says early that it is there. A window that asks to be shown before openbox
    handles events can wait for ever: openbox has read the request, but sleeps until the
    next event comes.
    """
    on.run("xdotool", "set_num_desktops", "1", check=False)
    return on.run("xdotool", "get_num_desktops", check=False) == "1"


@contextlib.contextmanager
def screen(size: str = "1600x1000") -> Iterator[Screen]:
    """A new display with openbox; gone afterwards."""
    reading, writing = os.pipe()
    command = [
        "Xvfb",
        "-displayfd",
        str(writing),
        "-screen",
        "0",
        f"{size}x24",
        "-dpi",
        "96",
        "-nolisten",
        "tcp",
    ]
    command += [
        "-noreset"
    ]  # else it begins anew, without a window manager, whenever its last client leaves
    server = subprocess.Popen(
        command, pass_fds=[writing], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(writing)
    with os.fdopen(reading) as said:
        made = Screen(f":{said.readline().strip()}")
    manager = subprocess.Popen(
        ["openbox"], env=made.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_for("the window manager", partial(answers_messages, made))
        yield made
    finally:
        for process in (manager, server):
            process.terminate()
            process.wait(PATIENCE)


@contextlib.contextmanager
def program(
    on: Screen,
    home: Path,
    *arguments: str,
    more: Sequence[tuple[str, str]] = (),
    within: Sequence[str] = (),
) -> Iterator[subprocess.Popen[str]]:
    """The program as a user starts it, `within` another command. Still running at the
    end, it is ended.
    """
    environment = {
        **on.environment,
        "HELIX_HOME": str(home),
        "PYTHONFAULTHANDLER": "1",
        **dict(more),
    }
    with tempfile.TemporaryFile("w+") as said:
        started = subprocess.Popen(
            [*within, sys.executable, "-m", "helix_desktop.window_start", *arguments],
            env=environment,
            stderr=said,
            text=True,
            start_new_session=True,
        )
        try:
            yield started
        except BaseException:
            on.shot(Path(tempfile.gettempdir(), "helix-walk-failed.png"))
            sys.stdout.write(f"All windows:\n{on.run('xwininfo', '-root', '-tree', check=False)}\n")
            if started.poll() is None:  # Python writes the stack of every thread before it ends.
                os.killpg(started.pid, signal.SIGABRT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    started.wait(5)
            said.seek(0)
            sys.stdout.write(
                f"What the program wrote, and where each of its threads was:\n{said.read()}\n"
            )
            raise
        finally:
            if started.poll() is None:
                os.killpg(started.pid, signal.SIGKILL)
                started.wait(PATIENCE)
            said.seek(0)
            errors = said.read()
            assert "Traceback" not in errors, errors


def walked(module: str, folder: Path) -> None:
    """Play a walk in a program of its own on a screen of its own; where it hangs, a
    picture of it is left.
    """
    with screen() as own:
        walk = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)],
            env=own.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = walk.communicate(timeout=900)
        except subprocess.TimeoutExpired:
            own.shot(Path(tempfile.gettempdir(), "helix-walk-failed.png"))
            walk.kill()
            said, _ = walk.communicate()
    assert walk.returncode == 0, said
