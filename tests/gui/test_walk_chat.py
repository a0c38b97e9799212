"""The chat by real mouse and keyboard: the bar of a message, other answers, a group of
calls, the card of a failure.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gui import screen

pytestmark = pytest.mark.skipif(bool(screen.missing()), reason=f"needs {screen.missing()}")


def test_a_walk_through_the_chat(tmp_path: Path) -> None:
    screen.walked("tests.gui.walk_chat", tmp_path)
