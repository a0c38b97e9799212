"""The page of changes on a list of changes in memory."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.changes.turn_changes import UncoveredPath
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.changes.changes_page import ChangesPage
from helix_desktop.gui.theme import Theme
from tests.gui.changes.changes_page_hands import AFTER, BEFORE
from tests.gui.fake_changes import FakeChanges
from tests.gui.fake_desk import now


@pytest.fixture
def changes() -> FakeChanges:
    made = FakeChanges()
    made.fill(
        {"src/a.py": (BEFORE, AFTER), "new.txt": (b"", b"new\n"), "gone.txt": (b"gone\n", b"")}
    )
    made.left = [UncoveredPath("target/", "target/ beside Cargo.toml")]
    return made


@pytest.fixture
def page(theme: Theme, changes: FakeChanges, application: QApplication) -> ChangesPage:
    made = ChangesPage(theme, BackgroundRunner(now))
    made.resize(1100, 800)
    made.show_changes_of(changes, "c1")
    made.show()
    return made
