"""A command breaks a project; two hunks are taken back, a line is commented, the rest
is committed: by real mouse and keyboard.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gui import screen

pytestmark = pytest.mark.skipif(bool(screen.missing()), reason=f"needs {screen.missing()}")


def test_a_broken_project_is_seen_put_right_and_committed(tmp_path: Path) -> None:
    screen.walked("tests.gui.walk_changes", tmp_path)
