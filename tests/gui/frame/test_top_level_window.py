from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from PySide6.QtCore import QTimer
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication, QLabel

from helix_desktop import window_start
from helix_desktop.gui.colours import LIGHT
from helix_desktop.gui.frame.top_level_window import SMALLEST_SIZE, TopLevelWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile


def test_the_surfaces_are_painted_before_anything_stands_on_them(
    state_file: WindowStateFile,
) -> None:
    state_file.remember_value("workspace", value="storage-engine")
    top_window = TopLevelWindow(state_file, "Helix Desktop")
    top_window.resize(1000, 600)
    image = top_window.grab().toImage()
    expected = {20: LIGHT["rail"], 200: LIGHT["window"], 700: LIGHT["panel"], 307: LIGHT["line"]}
    assert {x: image.pixelColor(x, 300).name() for x in expected} == expected
    inside = QLabel("here")
    top_window.setCentralWidget(inside)
    assert top_window.centralWidget() is inside


def test_the_second_paint_says_what_is_being_opened(state_file: WindowStateFile) -> None:
    """The rest of a start takes seconds, in which the window was empty."""
    state_file.remember_value("workspace", value="storage-engine")
    state_file.remember_value("box", value={"name": "storage", "opening": "Opening storage…"})
    top_window = TopLevelWindow(state_file, "Helix Desktop")
    top_window.resize(1000, 600)
    top_window.grab()
    image = top_window.grab().toImage()
    middle = {image.pixelColor(x, y).name() for x in range(500, 800) for y in range(280, 320)}
    assert LIGHT["muted"] in middle


def test_closing_is_asked_for_and_left_to_the_program(state_file: WindowStateFile) -> None:
    top_window = TopLevelWindow(state_file, "Helix Desktop")
    top_window.show()
    closing = QSignalSpy(top_window.closing)
    top_window.close()
    assert closing.count() == 1
    assert top_window.isVisible()


def test_it_stands_where_it_stood(state_file: WindowStateFile) -> None:
    first = TopLevelWindow(state_file, "Helix Desktop")
    first.setGeometry(8, 9, 700, 400)
    first.save_window_geometry()
    again = TopLevelWindow(state_file, "Helix Desktop")
    assert again.geometry().size() == first.geometry().size()


def test_a_place_outside_of_all_screens_is_not_believed(state_file: WindowStateFile) -> None:
    state_file.remember_value("window", value="bm9uc2Vuc2U=")
    top_window = TopLevelWindow(state_file, "Helix Desktop")
    screen = QApplication.primaryScreen().availableGeometry()
    assert screen.intersects(top_window.geometry())
    assert top_window.minimumSize() == SMALLEST_SIZE


def test_the_first_window_leaves_room_for_what_the_system_puts_around_it(
    state_file: WindowStateFile,
) -> None:
    top_window = TopLevelWindow(state_file, "Helix Desktop")
    screen = QApplication.primaryScreen().availableGeometry()
    assert (
        top_window.height() <= screen.height() - 60 or top_window.height() == SMALLEST_SIZE.height()
    )


def test_painting_it_needs_nothing_heavy() -> None:
    """What the first paint imports decides how soon it comes."""
    program = (
        "import sys, helix_desktop.window_start\n"
        "heavy = {'asyncio', 'httpx', 'mcp', 'tiktoken', 'tomlkit', 'markdown_it', 'pygments', 'keyring',\n"
        "         'helix_desktop.engine.facts', 'helix_desktop.gui.theme', 'helix_desktop.engine.forgotten_text_forms', 'PySide6.QtNetwork', 'PySide6.QtSvg'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.strip() == ""


def test_painting_it_does_not_make_the_enums_of_qt(tmp_path: Path) -> None:
    """They take PySide6 25 ms, and nothing that is painted first needs them. The first
    look at `Qt` makes them all.
    """
    program = (
        "import gc, sys, pathlib\n"
        "from PySide6 import QtCore\n"
        "from helix_desktop import window_start as app\n"
        "painted = app._wait_for_first_paint\n"
        "def paint(*given):\n"
        "    painted(*given)\n"
        "    made = [each for each in gc.get_objects() if isinstance(each, type) and each.__qualname__ == 'GlobalColor']\n"
        "    print(len(made), 'Qt' in vars(QtCore), given[1].placeholder.was_painted)\n"
        "    sys.stdout.flush()\n"
        "    import os\n"
        "    os._exit(0)\n"
        "app._wait_for_first_paint = paint\n"
        f"app.main(pathlib.Path({str(tmp_path)!r}), [])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert said.stdout.split() == ["0", "False", "True"]


def test_the_start_waits_for_a_paint_that_a_window_manager_delays(
    state_file: WindowStateFile, application: QApplication
) -> None:
    window = TopLevelWindow(state_file, "Helix Desktop")
    QTimer.singleShot(20, window.show)
    window_start._wait_for_first_paint(application, window)
    assert window.placeholder.was_painted
    window.hide()


def test_a_screen_that_never_asks_for_a_paint_does_not_hold_the_start(
    state_file: WindowStateFile, application: QApplication
) -> None:
    window = TopLevelWindow(state_file, "Helix Desktop")
    window_start._wait_for_first_paint(application, window)
    assert not window.placeholder.was_painted
