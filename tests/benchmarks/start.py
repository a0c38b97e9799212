"""How long it takes from process start to a painted window, and how much memory is used
then, compared with a bare Qt window and an empty browser

(where there is one), and to the furnished window.

    python -m tests.benchmarks.start [--quick]      needs a display

Started as a desktop starts it, through the command line. Warm: the first start of each
is not counted. All starts alternate, so that they meet the same machine.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile

from tests.benchmarks import browser, machine, report
from tests.benchmarks.row import Figure, Row

SINCE = """
import os, time
def since():
    start = int(open('/proc/self/stat').read().rpartition(')')[2].split()[19]) / os.sysconf('SC_CLK_TCK')
    return (time.clock_gettime(time.CLOCK_BOOTTIME) - start) * 1000
def rss():
    return int(next(l for l in open('/proc/self/status') if l.startswith('VmRSS')).split()[1]) / 1024
"""
BARE = f"""{SINCE}
from PySide6.QtWidgets import QApplication, QWidget
class Bare(QWidget):
    def paintEvent(self, event):
        print(since(), since(), rss(), flush=True); os._exit(0)
app = QApplication([]); window = Bare(); window.resize(1440, 900); window.show(); app.exec()
"""
OURS = f"""{SINCE}
from helix_desktop import cli, window_start
wait_for_first_paint = window_start._wait_for_first_paint
def painted(application, shell):
    wait_for_first_paint(application, shell)
    first = since()
    from helix_desktop.desktop import window_program
    from PySide6.QtCore import QTimer
    start = window_program.WindowProgram._start_behind_window
    async def started(self):
        second = since()
        await start(self)
        QTimer.singleShot(500, lambda: (print(first, second, rss(), flush=True), os._exit(0)))
    window_program.WindowProgram._start_behind_window = started
window_start._wait_for_first_paint = painted
cli.main([])
"""


SCREEN = True
FIRST, MEMORY = 400.0, 130.0  # ms, MB: asked for


def once(code: str, home: str) -> tuple[float, float, float]:
    env = {**machine.environment(), "HELIX_HOME": home}
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env=env,
        timeout=60,
    )
    first, second, memory = map(float, said.stdout.split())
    return first, second, memory


def rows(*, quick: bool) -> list[Row]:
    """Medians of nine starts of each, in turn."""
    bare: list[tuple[float, float, float]] = []
    ours: list[tuple[float, float, float]] = []
    browsers: list[tuple[float, float]] = []
    for _ in range(4 if quick else 10):
        for figures, code in ((bare, BARE), (ours, OURS)):
            with tempfile.TemporaryDirectory() as home:
                figures.append(once(code, home))
        if browser.found():
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
                browsers.append(browser.once(home))
    columns = [Figure.of(column) for column in zip(*ours[1:], strict=True)]
    peers = [{"bare Qt window": Figure.of(column)} for column in zip(*bare[1:], strict=True)]
    for peer, column in zip((peers[0], peers[2]), zip(*browsers[1:], strict=True), strict=False):
        peer[browser.NAME] = Figure.of(column)
    first, furnished, memory = columns
    return [
        Row("first paint", "ms", first, peers[0], f"< {FIRST:g} ms warm", first.median < FIRST),
        Row("window complete, stores still opening", "ms", furnished, peers[1]),
        Row(
            "memory after start", "MB", memory, peers[2], f"< {MEMORY:g} MB", memory.median < MEMORY
        ),
    ]


def main() -> int:
    sys.stdout.write("\n".join(report.table(rows(quick="--quick" in sys.argv))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
