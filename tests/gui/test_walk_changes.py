"""A command breaks a project; two hunks are taken back, a line is commented, the rest is committed: by real mouse and keyboard."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.gui import screen as screens

pytestmark = [
    pytest.mark.alone,
    pytest.mark.skipif(bool(screens.missing()), reason=f"needs {screens.missing()}"),
]


def test_a_broken_project_is_seen_put_right_and_committed(tmp_path: Path) -> None:
    with screens.screen() as screen:
        walk = subprocess.Popen(
            [sys.executable, "-m", "tests.gui.walk_changes", str(tmp_path)],
            env=screen.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            said, _ = walk.communicate(timeout=240)
        except subprocess.TimeoutExpired:
            screen.shot(Path(tempfile.gettempdir(), "helix-walk-failed.png"))
            walk.kill()
            said, _ = walk.communicate()
    assert walk.returncode == 0, said
