"""The chat by real mouse and keyboard: the bar of a message, other answers, a group of calls, the card of a failure."""

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


def test_a_walk_through_the_chat(tmp_path: Path) -> None:
    with screens.screen() as screen:
        walk = subprocess.Popen(
            [sys.executable, "-m", "tests.gui.walk_chat", str(tmp_path)],
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
