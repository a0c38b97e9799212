"""The pictures of the help pages and the README, taken from the real program after the
tour; needs Xvfb and xdotool.

`.venv/bin/python packaging/pictures.py` writes resources/help/pictures/*.png. The
session in them is the scripted one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "resources/help/pictures"
PROGRAM = [sys.executable, "-m", "helix_desktop"]
SIZE = (1280, 800)
METER = ("935", "760")  # where the meter is in the chat; a click opens what is in the context
SETTLED = 15.0  # seconds until a page has been furnished, also on a busy machine

GRAB = """
import sys
from PySide6.QtGui import QGuiApplication
application = QGuiApplication([])
application.primaryScreen().grabWindow(0).save(sys.argv[1], "PNG")
"""


def main() -> int:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, _screen() as environment:
        home = str(Path(folder, "home"))
        tour = [sys.executable, "-m", "tests.scripted_tour", home, str(Path(folder, "tour"))]
        done = subprocess.run(
            tour, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        environment |= {"HELIX_HOME": home, "HOME": folder}  # no path of this machine is in them
        for page, link in _pages(done.stdout.strip(), environment).items():
            _picture(page, link, environment)
    return 0


@contextlib.contextmanager
def _screen() -> Iterator[dict[str, str]]:
    """A screen of its own, and the environment that leads there."""
    reading, writing = os.pipe()
    command = ["Xvfb", "-displayfd", str(writing), "-screen", "0", f"{SIZE[0]}x{SIZE[1]}x24"]
    server = subprocess.Popen(command, pass_fds=[writing], stderr=subprocess.DEVNULL)
    os.close(writing)
    with os.fdopen(reading) as told:
        number = told.readline().strip()
    try:
        yield {**os.environ, "DISPLAY": f":{number}", "QT_QPA_PLATFORM": "xcb"}
    finally:
        server.terminate()
        server.wait()


def _pages(conversation: str, environment: dict[str, str]) -> dict[str, str]:
    """What is shown, by the name of its picture: links that the program itself understands."""
    workspace = _asked(["workspace", "list"], environment)[0]["id"]
    entries = _asked(
        ["cache", "list", "--workspace", workspace, "--tool", "read_file"], environment
    )
    return {
        "chat": f"helix://workspace/{workspace}/conversation/{conversation}",
        "cache": f"helix://workspace/{workspace}/entry/{entries[0]['sha256']}",
    }


def _asked(command: list[str], environment: dict[str, str]) -> list[dict[str, str]]:
    done = subprocess.run(
        [*PROGRAM, *command, "--json"],
        check=True,
        stdout=subprocess.PIPE,
        env=environment,
        cwd=ROOT,
    )
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def _picture(page: str, link: str, environment: dict[str, str]) -> None:
    program = subprocess.Popen([*PROGRAM, link], env=environment, cwd=ROOT)
    try:
        time.sleep(SETTLED)
        window = [
            "xdotool",
            "search",
            "--onlyvisible",
            "--name",
            "Helix Desktop",
            "windowmove",
            "0",
            "0",
            "windowsize",
        ]
        subprocess.run([*window, *map(str, SIZE)], check=True, env=environment)
        time.sleep(SETTLED)
        if page == "chat":
            subprocess.run(
                ["xdotool", "mousemove", *METER, "click", "1"], check=True, env=environment
            )
            time.sleep(SETTLED / 5)
        subprocess.run(
            [sys.executable, "-c", GRAB, str(FOLDER / f"{page}.png")], check=True, env=environment
        )
    finally:
        program.terminate()
        program.wait()


if __name__ == "__main__":
    sys.exit(main())
