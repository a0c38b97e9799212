"""What an import costs once Qt is there."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import linecache
import PySide6.QtWidgets
import helix_desktop.gui
before = set(linecache.cache)
import helix_desktop.gui.main_window
print(len(set(linecache.cache) - before))
"""


def test_no_source_is_read_and_kept_for_an_import() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == 0
