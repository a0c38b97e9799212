"""The program as a process, without a screen: it starts, is found by a second start,
and ends when it is told to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helix_desktop import __version__, window_start

PATIENCE = 40.0
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """What still runs at the end of a test is ended."""
    running: list[subprocess.Popen[str]] = []

    def started(*arguments: str) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "helix_desktop.window_start",
            "--home",
            str(tmp_path / "home"),
            *arguments,
        ]
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
        with (tmp_path / "said").open("a") as said:
            running.append(subprocess.Popen(command, env=environment, stderr=said, text=True))
        return running[-1]

    yield started
    for each in running:
        each.kill()
        each.wait()


def wait_for(there: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < until
        time.sleep(0.05)


def log(tmp_path: Path) -> str:
    return (tmp_path / "home" / "logs" / "helix.log").read_text("utf-8")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_starts_and_ends_when_it_is_told_to(
    start: Start, tmp_path: Path, number: signal.Signals
) -> None:
    process = start()
    wait_for(lambda: list((tmp_path / "home").rglob("window.sock")))
    process.send_signal(number)
    assert process.wait(PATIENCE) == 0
    assert (tmp_path / "said").read_text() == ""
    assert not list((tmp_path / "home").rglob("window.sock"))
    assert '"level": "error"' not in log(tmp_path)
    assert '"level": "warning"' not in log(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_second_start_hands_its_link_over(start: Start, tmp_path: Path) -> None:
    first = start()
    wait_for(lambda: list((tmp_path / "home").rglob("window.sock")))
    assert start("helix://settings").wait(PATIENCE) == 0
    assert first.poll() is None
    first.terminate()
    assert first.wait(PATIENCE) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_after_a_crash_it_starts_again(start: Start, tmp_path: Path) -> None:
    first = start()
    wait_for(lambda: list((tmp_path / "home").rglob("window.sock")))
    first.kill()
    first.wait(PATIENCE)
    left = next(iter((tmp_path / "home").rglob("window.sock"))).stat().st_mtime_ns
    again = start()
    wait_for(
        lambda: any(s.stat().st_mtime_ns != left for s in (tmp_path / "home").rglob("window.sock"))
    )
    again.terminate()
    assert again.wait(PATIENCE) == 0


def test_the_version_and_the_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        window_start._parse_window_arguments(["--version"])
    assert capsys.readouterr().out.strip() == __version__
    assert window_start._parse_window_arguments(["helix://settings"]).link == "helix://settings"
    assert window_start._parse_window_arguments([]).home is None


LAST_WORDS = """
import asyncio, ctypes, sys
from pathlib import Path
from PySide6 import QtCore
from tests.soak.driven import drive

core = ctypes.CDLL(str(next(Path(QtCore.__file__).parent.glob("Qt/lib/libQt6Core.so.6"))))
warns = ctypes.cast(core._ZN16QCoreApplication4execEv, ctypes.c_void_p)  # exec, when there is no application any more
ctypes.CDLL(None).__cxa_atexit(warns, None, None)
sys.exit(drive(Path(sys.argv[1]), lambda run: asyncio.sleep(0)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Qt's library by its name")
def test_what_qt_says_after_the_interpreter_has_ended_is_no_crash(tmp_path: Path) -> None:
    command = [sys.executable, "-c", LAST_WORDS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, "instantiate the QApplication" in done.stderr) == (0, True), (
        done.stderr
    )


IMPORTED_BY_WINDOW = """
import os, pathlib, sys, threading
from helix_desktop import window_start
from helix_desktop.desktop import window_program
imported = []
class Witness:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is threading.main_thread():
            imported.append(name)
start = window_program.WindowProgram._start_behind_window
async def start_and_tell(self):
    sys.meta_path.insert(0, Witness())
    await start(self)
    print(*imported, flush=True)
    os._exit(0)
window_program.WindowProgram._start_behind_window = start_and_tell
"""


def test_once_the_window_is_there_its_thread_imports_nothing(tmp_path: Path) -> None:
    """It answers no key while it imports."""
    script = f"{IMPORTED_BY_WINDOW}window_start.main(pathlib.Path({str(tmp_path)!r}), [])"
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
        timeout=PATIENCE,
    )
    assert done.stdout.split() == []


def test_what_the_first_paint_does_not_need_is_loaded_after_it(tmp_path: Path) -> None:
    """The module asyncio alone took half as long as all that the window adds to an empty one."""
    code = (
        "import os, sys\n"
        "from helix_desktop import cli, window_start\n"
        "def stop_at_first_paint(*_):\n"
        "    print(*sys.modules, flush=True)\n"
        "    os._exit(0)\n"
        "window_start._wait_for_first_paint = stop_at_first_paint\n"
        "cli.main([])\n"
    )
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "HELIX_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "helix_desktop.gui.frame.top_level_window" in loaded
    assert not loaded & {"asyncio", "ssl", "helix_desktop.console", "helix_desktop.gui.main_window"}
