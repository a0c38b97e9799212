"""The desktop program: a painted window first, then everything behind it (program.py).

Nothing heavy is imported here: what this module needs decides how soon the window is there. One program runs for a
user: a second start brings the first one's window to the front.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QEventLoop, QObject, Signal
from PySide6.QtWidgets import QApplication

from helix_desktop import __version__, places
from helix_desktop.gui.frame.shell import Shell
from helix_desktop.gui.memory import Memory

TITLE = "Helix Desktop"


def main(home: Path | None = None, argv: Sequence[str] | None = None) -> int:
    """Run the window until it is closed. `home`: store everything in this folder (see places.py)."""
    gc.disable()  # nothing of a start is garbage; garbage.py collects once everything is there
    arguments = _arguments(sys.argv[1:] if argv is None else argv)
    where = places.find(home or arguments.home)
    if _somebody_listens(where.run):
        from helix_desktop.desktop import program

        if program.handed_over(where, arguments.link):
            return 0
    application = _application()
    memory = Memory(where.window, application)
    shell = Shell(memory, TITLE)
    shell.show()
    _paint(application, shell)
    shell.take_input()
    _import_program()
    from helix_desktop.desktop import program

    return program.Program(where, application, program.Window(memory, shell), arguments.link).run()


def _somebody_listens(run: Path) -> bool:
    """Whether a program may have this window already. Of one that was killed an address is left where nobody listens."""
    address = run / "window.sock"
    if not address.exists():
        return (run / "window.port").exists()
    import socket

    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(address))
        except OSError:
            return False
    return True


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="helix-desktop-window", description="Open the window of Helix Desktop.")
    parser.add_argument("link", nargs="?", default="", help="a helix:// link, or a folder to open as a workspace")
    parser.add_argument("--home", type=Path, help="store everything in this folder")
    parser.add_argument("--version", action="version", version=__version__)
    return parser.parse_args(argv)


def _application() -> QApplication:
    QApplication.setApplicationName("helix-desktop")
    QApplication.setApplicationDisplayName(TITLE)
    QApplication.setApplicationVersion(__version__)
    QApplication.setDesktopFileName("helix-desktop")
    application = QApplication(["helix-desktop"])
    application.setQuitOnLastWindowClosed(False)
    return application


def _paint(application: QApplication, shell: Shell) -> None:
    """Until the window is on the screen, and not longer: a screen that never asks for a paint is no reason to wait."""
    for _ in range(20):
        application.processEvents(QEventLoop.ProcessEventsFlag.AllEvents, 10)
        if shell.empty.painted:
            application.sync()
            return


class _Import(QObject):
    """`done`: everything behind the window has been imported, or cannot be."""

    done = Signal()

    def run(self) -> None:
        try:
            importlib.import_module("helix_desktop.desktop.program")
        finally:
            self.done.emit()


def _import_program() -> None:
    """Import what is behind the window in a thread. The window takes what is typed meanwhile."""
    from helix_desktop import tasks

    importing, waiting = _Import(), QEventLoop()
    importing.done.connect(waiting.quit)
    tasks.thread(importing.run, name="import", daemon=True)
    waiting.exec()


if __name__ == "__main__":
    sys.exit(main())
