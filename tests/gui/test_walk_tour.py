"""The first start and the tour by real mouse and keyboard: two actions to an answer,
nothing written beside the home.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gui import screen

pytestmark = pytest.mark.skipif(bool(screen.missing()), reason=f"needs {screen.missing()}")


def test_a_tour_from_the_first_start(tmp_path: Path) -> None:
    screen.walked("tests.gui.walk_tour", tmp_path)
