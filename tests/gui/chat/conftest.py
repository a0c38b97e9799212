"""The box in which messages are written."""

from __future__ import annotations

import pytest
from PySide6.QtTest import QTest

from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme


@pytest.fixture
def composer(theme: Theme, state_file: WindowStateFile) -> Composer:
    made = Composer(theme, state_file)
    made.resize(800, 300)
    made.show_draft_of("one", "talk", "one")
    made.show()
    assert QTest.qWaitForWindowActive(made)
    made.text.setFocus()
    return made
