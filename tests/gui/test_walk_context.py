"""Cache, timeline and inspector by real mouse and keyboard, with what came of it looked
up in journal and cache.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gui import screen

pytestmark = pytest.mark.skipif(bool(screen.missing()), reason=f"needs {screen.missing()}")


def test_a_walk_through_what_the_agent_sees(tmp_path: Path) -> None:
    screen.walked("tests.gui.walk_context", tmp_path)
