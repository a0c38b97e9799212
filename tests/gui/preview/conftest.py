"""The preview beside the chat, as wide as it usually is."""

from __future__ import annotations

import pytest

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.preview.preview_pane import PreviewPane
from helix_desktop.gui.theme import Theme


@pytest.fixture
def pane(theme: Theme, doing: BackgroundRunner) -> PreviewPane:
    made = PreviewPane(theme, doing)
    made.resize(500, 700)
    made.show()
    return made
