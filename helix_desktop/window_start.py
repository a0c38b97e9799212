"""The desktop program: first a painted window, then everything behind it (window_program.py).

Nothing slow is imported here, because that would delay the window. A second start shows the
window that is open, unless it is asked for another one: that is a process of its own, which reaches
a workspace that the first one has open as its client.
"""

import argparse
import gc
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

import helix_desktop.gui  # noqa: F401 -- must come before PySide6

# isort: split

from PySide6.QtCore import QEventLoop, QMetaObject, QTimer
from PySide6.QtWidgets import QApplication

from helix_desktop import __version__
from helix_desktop.gui.frame.top_level_window import TopLevelWindow
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile

TITLE = "Helix Desktop"


def main(home: Path | None = None, argv: Sequence[str] | None = None) -> int:
    """Runs the window until it is closed. With `home`, everything is stored in this
    folder (see program_folders.py).
    """
    from helix_desktop import (
        program_folders,
    )  # PySide6 would slow this down at the top (see gui/__init__.py).

    # Objects created at the start do not become garbage. Collection starts again in
    # garbage_collection.py, once everything is loaded.
    gc.disable()
    arguments = _parse_window_arguments(sys.argv[1:] if argv is None else argv)
    where = program_folders.find_folders_at_start(home or arguments.home)
    further = None
    if _is_other_window_listening(where.run):
        from helix_desktop.desktop import open_windows, window_program

        if arguments.new_window:
            further = open_windows.claim_further_window(where)
        elif window_program.hand_over_to_running_window(where, arguments.link):
            return 0
    application = _create_qt_application()
    state_path = where.window_state_path
    if further is not None:
        state_path = where.state_path_of_further_window(further.number)
    state_file = WindowStateFile(state_path, application)
    top_window = TopLevelWindow(state_file, TITLE)
    top_window.show()
    _wait_for_first_paint(application, top_window)
    top_window.enable_typing()
    _import_program()
    from helix_desktop.desktop import window_program

    return window_program.WindowProgram(
        where, application, top_window, arguments.link, further
    ).run_until_closed()


def _is_other_window_listening(run: Path) -> bool:
    """Whether another process may show this window. A killed one can leave an address
    at which nobody listens.
    """
    address = run / "window.sock"
    if not address.exists():
        return (run / "window.port").exists()
    import socket

    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(address)) == 0


def _parse_window_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="helix-desktop-window", description="Open the window of Helix Desktop."
    )
    parser.add_argument(
        "link", nargs="?", default="", help="a helix:// link, or a folder to open as a workspace"
    )
    parser.add_argument(
        "--new-window", action="store_true", help="open another window beside one that is open"
    )
    parser.add_argument("--home", type=Path, help="store everything in this folder")
    parser.add_argument("--version", action="version", version=__version__)
    return parser.parse_args(argv)


def _create_qt_application() -> QApplication:
    QApplication.setApplicationName("helix-desktop")
    QApplication.setApplicationDisplayName(TITLE)
    QApplication.setApplicationVersion(__version__)
    QApplication.setDesktopFileName("helix-desktop")
    application = QApplication(
        ["helix-desktop", "-style", "Fusion"]
    )  # setStyle would create 570 members of enums.
    application.setQuitOnLastWindowClosed(False)
    return application


def _wait_for_first_paint(application: QApplication, top_window: TopLevelWindow) -> None:
    """Waits until the window has been painted, but not longer than the limit: some
    screens never ask for a paint.
    """
    waiting = QEventLoop()
    top_window.placeholder.painted.connect(waiting.quit)
    QTimer.singleShot(200, waiting.quit)
    waiting.exec()
    application.sync()


def _import_program() -> None:
    """Imports what is behind the window in a thread. The window already accepts typing
    meanwhile.
    """
    from helix_desktop import concurrency

    waiting = QEventLoop()

    def import_and_end_waiting() -> None:
        try:
            importlib.import_module("helix_desktop.desktop.window_program")
        finally:
            QMetaObject.invokeMethod(waiting, "quit")  # It is queued until the loop runs.

    concurrency.start_thread(import_and_end_waiting, name="import", daemon=True)
    waiting.exec()


if __name__ == "__main__":
    sys.exit(main())
