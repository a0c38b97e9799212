"""What a folder brings is trusted and used, a plan is edited, agents are stopped: by
real mouse and keyboard.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gui import screen

pytestmark = pytest.mark.skipif(bool(screen.missing()), reason=f"needs {screen.missing()}")


def test_rules_skills_commands_tools_a_plan_and_agents(tmp_path: Path) -> None:
    screen.walked("tests.gui.walk_standards", tmp_path)
