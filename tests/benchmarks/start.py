"""Process start to first painted window, and to the furnished one, beside a bare Qt window; memory after start.

    .venv/bin/python tests/benchmarks/start.py [RUNS]      needs a display (DISPLAY); medians of RUNS starts (9)

Warm: the first start of each is not counted. All starts alternate, so that they meet the same machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

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
from helix_desktop import app
paint = app._paint
def painted(application, shell):
    paint(application, shell)
    first = since()
    from helix_desktop import program
    from PySide6.QtCore import QTimer
    begin = program.Program._begin
    async def begun(self):
        second = since()
        await begin(self)
        QTimer.singleShot(500, lambda: (print(first, second, rss(), flush=True), os._exit(0)))
    program.Program._begin = begun
app._paint = painted
app.main(argv=[])
"""


def once(code: str, home: str) -> tuple[float, float, float]:
    env = {**os.environ, "HELIX_HOME": home}
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    first, second, memory = map(float, said.stdout.split())
    return first, second, memory


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 9
    bare: list[tuple[float, float, float]] = []
    ours: list[tuple[float, float, float]] = []
    for _ in range(runs + 1):
        for figures, code in ((bare, BARE), (ours, OURS)):
            with tempfile.TemporaryDirectory() as home:
                figures.append(once(code, home))
    for name, figures in (("bare Qt window", bare[1:]), ("Helix Desktop", ours[1:])):
        first, second, memory = (statistics.median(column) for column in zip(*figures, strict=True))
        print(f"{name}: painted {first:.0f} ms, furnished {second:.0f} ms, {memory:.0f} MB after start")


if __name__ == "__main__":
    main()
