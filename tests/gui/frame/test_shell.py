from __future__ import annotations

import subprocess
import sys

from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication, QLabel

from helix_desktop.gui.frame.shell import LEAST, Shell
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.theme import Theme


def test_the_surfaces_are_painted_before_anything_stands_on_them(theme: Theme, memory: Memory) -> None:
    memory.put("workspace", value="storage-engine")
    shell = Shell(theme, memory, "Helix Desktop")
    shell.resize(1000, 600)
    image = shell.grab().toImage()
    expected = {20: theme.tokens.rail, 200: theme.tokens.window, 700: theme.tokens.panel, 307: theme.tokens.line}
    assert {x: image.pixelColor(x, 300).name() for x in expected} == expected
    inside = QLabel("here")
    shell.furnish(inside)
    assert shell.centralWidget() is inside


def test_closing_is_asked_for_and_left_to_the_program(theme: Theme, memory: Memory) -> None:
    shell = Shell(theme, memory, "Helix Desktop")
    shell.show()
    closing = QSignalSpy(shell.closing)
    shell.close()
    assert closing.count() == 1
    assert shell.isVisible()


def test_it_stands_where_it_stood(theme: Theme, memory: Memory) -> None:
    first = Shell(theme, memory, "Helix Desktop")
    first.setGeometry(8, 9, 880, 520)
    first.keep_place()
    again = Shell(theme, memory, "Helix Desktop")
    assert again.geometry().size() == first.geometry().size()


def test_a_place_outside_of_all_screens_is_not_believed(theme: Theme, memory: Memory) -> None:
    memory.put("window", value="bm9uc2Vuc2U=")
    shell = Shell(theme, memory, "Helix Desktop")
    screen = QApplication.primaryScreen().availableGeometry()
    assert screen.intersects(shell.geometry())
    assert shell.minimumSize() == LEAST


def test_the_first_window_leaves_room_for_what_the_system_puts_around_it(theme: Theme, memory: Memory) -> None:
    shell = Shell(theme, memory, "Helix Desktop")
    screen = QApplication.primaryScreen().availableGeometry()
    assert shell.height() <= screen.height() - 60 or shell.height() == LEAST.height()


def test_painting_it_needs_nothing_heavy() -> None:
    """What the first paint imports decides how soon it comes."""
    program = (
        "import sys, helix_desktop.gui.frame.shell, helix_desktop.gui.theme, helix_desktop.gui.memory\n"
        "heavy = {'asyncio', 'httpx', 'mcp', 'tiktoken', 'tomlkit', 'markdown_it', 'pygments', 'keyring',\n"
        "         'helix_desktop.engine.facts', 'PySide6.QtNetwork', 'PySide6.QtSvg'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == ""
