"""Pictures of the window with the story of the tests in it, to lay beside the design's.

DISPLAY=:1 .venv/bin/python -m tests.gui.pictures FOLDER      (QT_SCALE_FACTOR=2 for 200 %)
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from helix_desktop.gui import words
from helix_desktop.gui.background import Doing
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.wiring import wire
from helix_desktop.settings import Settings
from tests.gui import story
from tests.gui.fake_catalogue import FakeCatalogue
from tests.gui.fake_desk import FakeDesk, now

SIZES = ((1440, 900), (1024, 640))
PAGES = ("chat", "cache", "timeline")


def furnished(theme: Theme, folder: Path) -> MainWindow:
    """The window on the desk in memory, the conversation of the design's pictures open."""
    memory = Memory(folder / "window.json")
    memory.put("conversation", "storage-engine", value=story.CONVERSATION)
    window = MainWindow(theme, memory, Settings(folder / "settings.toml"), Doing(now), lambda _bench: FakeCatalogue())
    wire(window)
    window.begin(FakeDesk())
    return window


def main() -> None:
    target = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    target.mkdir(parents=True, exist_ok=True)
    application = QApplication(["pictures"])
    application.setStyle("Fusion")
    words.install(application, sys.argv[2] if len(sys.argv) > 2 else "en")
    with tempfile.TemporaryDirectory() as folder:
        theme = Theme(scheme="light")
        theme.apply()
        window = furnished(theme, Path(folder))
        window.show()
        for scheme in ("light", "dark"):
            theme.set_look(scheme, theme.zoom)
            for width, height in SIZES:
                window.resize(width, height)
                for page in PAGES:
                    window.show_page(page)
                    QTest.qWait(300)
                    window.grab().save(str(target / f"{page}-{scheme}-{width}x{height}.png"))


if __name__ == "__main__":
    main()
