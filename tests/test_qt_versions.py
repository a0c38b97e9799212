"""The pinned versions of Qt and Python get on: PySide6 6.12 on CPython 3.11 drops a
reference to None at every void call.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, sys
os.environ["QT_QPA_PLATFORM"] = "offscreen"
from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication, QLabel
app = QApplication([])
label = QLabel()

class Speaker(QObject):
    said = Signal(int)

heard = []
speaker = Speaker()
speaker.said.connect(heard.append)
before = sys.getrefcount(None)
for number in range(50_000):
    label.setText("a")
for number in range(100_000):
    speaker.said.emit(number)
print(sys.getrefcount(None) - before, len(heard))
"""


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="None is never freed here, whatever is counted"
)
def test_void_calls_and_signals_leave_none_alone() -> None:
    """In a process of its own: what it guards against is an abort."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    drift, heard = (int(figure) for figure in done.stdout.split())
    assert heard == 100_000
    assert abs(drift) < 100
