"""The desktop program put together: the window first, then everything behind it, and all of it ended in order.

The window is painted before stores are opened and before anything heavy is imported; that happens in a thread, while the
event loop already turns. One program runs for a user: a second start brings the first one's window to the front.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import qasync
from PySide6.QtCore import QMessageLogContext, QObject, QSocketNotifier, Qt, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

from helix_desktop import __version__, browsing, logs, places, resources, tasks
from helix_desktop.errors import HelixError, WrongUse
from helix_desktop.gui import words
from helix_desktop.gui.doing import Doing
from helix_desktop.gui.links import Place, parse
from helix_desktop.gui.main_window import TITLE, MainWindow
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.wiring import wire
from helix_desktop.settings import (
    CODE_FONT,
    FONT,
    KEYS_IN_FILE,
    LANGUAGE,
    LOG_LEVEL,
    LOG_SIZE,
    THEME,
    ZOOM,
    Setting,
    Settings,
)

if TYPE_CHECKING:
    from helix_desktop.console import Console
    from helix_desktop.workbench.desk import Desk

log = logging.getLogger(__name__)

NAME = "window"
PATIENCE = 1.6  # seconds the end may take; what is acknowledged is on the disk already
THREADS = 4
_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


def main(home: Path | None = None, argv: Sequence[str] | None = None) -> int:
    """Run the window until it is closed. `home`: one folder that holds everything (see places.py)."""
    arguments = _arguments(sys.argv[1:] if argv is None else argv)
    where = places.find(home or arguments.home)
    claim = _claim(where)
    if claim is None and _handed_over(where, arguments.link):
        return 0
    try:
        return Program(where, arguments.link).run()
    finally:
        if claim is not None:
            claim.close()


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="helix-desktop-window", description="The window of Helix Desktop.")
    parser.add_argument("link", nargs="?", default="", help="a helix:// link: a place to go to")
    parser.add_argument("--home", type=Path, help="one folder that holds everything")
    parser.add_argument("--version", action="version", version=__version__)
    return parser.parse_args(argv)


def _claim(where: places.Places) -> Any:
    from helix_desktop import instance

    try:
        return instance.claim(where.run, NAME)
    except (HelixError, OSError) as error:
        log.warning("nobody will find this window: %s", error)
        return None


def _handed_over(where: places.Places, link: str) -> bool:
    """Ask the running program to come to the front; False where nobody answers."""
    from helix_desktop import instance
    from helix_desktop.console import Terminal

    async def ask() -> bool:
        wire = await instance.reach(where.run, NAME)
        if wire is None:
            return False
        with Terminal() as console:
            return await instance.hand_over(wire, ["show", link], console) == 0

    try:
        return asyncio.run(ask())
    except (HelixError, OSError):
        return False


class Program:
    """One run of the window."""

    def __init__(self, where: places.Places, link: str) -> None:
        self._where = where
        self._link = link
        self._settings = Settings(where.settings)
        self._redaction = logs.Redaction()
        self._stop_log = logs.start(
            where.logs, self._redaction, level=self._settings[LOG_LEVEL], megabytes=self._settings[LOG_SIZE]
        )
        logs.catch_the_uncaught()
        qInstallMessageHandler(_said_by_qt)
        self._application = _application(self._settings)
        self._tasks = tasks.Tasks("window", report=self._failed)
        self._desk: Desk | None = None
        self._owner: Any = None
        self._ending = False
        self.theme = Theme(scheme=self._settings[THEME], zoom=self._settings[ZOOM] / 100)
        self._restyle()
        self._memory = Memory(where.config / "window.json", self._application)
        self._doing = Doing(self._tasks.spawn, self._application)
        self.window = MainWindow(self.theme, self._memory, self._settings, self._doing, browsing.of)
        wire(self.window)
        self.window.closing.connect(self._close)
        self._settings.subscribe(self._changed)

    def run(self) -> int:
        loop = qasync.QEventLoop(self._application)
        asyncio.set_event_loop(loop)
        loop.set_default_executor(tasks.pool("work", threads=THREADS))
        self._interrupts = Interrupts(self.window.close)
        self.window.restore_place()
        self.window.show()
        QTimer.singleShot(0, lambda: self._tasks.spawn(self._begin(), name="begin"))
        with loop:
            loop.run_forever()
        self._stop_log()
        self._end_at_once()
        return 0

    # --- the beginning -------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Everything behind the window. The import takes a third of a second, in a thread."""
        desk_module = await asyncio.to_thread(importlib.import_module, "helix_desktop.workbench.desk")
        from helix_desktop.gui import front
        from helix_desktop.keeping import Keeping

        self._desk = desk_module.Desk(self._where, self._secrets(), serve=self._serve)
        keeping = Keeping(self._where, self._desk.secrets)
        self._front = front.Front(
            self.window, self._connecting(), keeping, self._where.data.with_name("helix-tour"), self._tasks.spawn
        )
        self.window.begin(self._desk)
        self._front.refresh_models()
        await self._listen()
        if self._link:
            self._show(self._link)
        for mistake in self._settings.mistakes:
            self.window.notices.tell_error(mistake)

    def _secrets(self) -> Any:
        from helix_desktop.secrets import Secrets

        return Secrets(self._where.key_file, consent=lambda: self._settings[KEYS_IN_FILE], seen=self._redaction.add)

    def _connecting(self) -> Any:
        from helix_desktop.connecting import Connecting

        assert self._desk is not None  # noqa: S101 - made just before
        return Connecting(self._desk.configured, self._desk.secrets, self._desk.connections)

    async def _serve(self, workspace: Any) -> Any:
        from helix_desktop.commands import beside

        return await beside.serve(workspace, self._where.run)

    async def _listen(self) -> None:
        from helix_desktop import instance

        try:
            self._owner = await instance.listen(self._where.run, NAME, self._asked)
        except (HelixError, OSError) as error:
            log.warning("a second start will not find this window: %s", error)

    async def _asked(self, arguments: list[str], console: Console) -> int:
        """A second start: come to the front, and go where its link leads. Nothing else is done for others."""
        if arguments[:1] != ["show"]:
            raise WrongUse("The window can only be shown.")
        self._show(arguments[1] if len(arguments) > 1 else "")
        return 0

    def _show(self, link: str) -> None:
        window = self.window
        window.setWindowState(window.windowState() & ~Qt.WindowState.WindowMinimized)
        window.raise_()
        window.activateWindow()
        try:
            place = parse(link) if link else Place("")
        except WrongUse as error:
            window.notices.tell_error(error)
            return
        if place.kind:
            window.go(place)

    # --- what changes --------------------------------------------------------------------------------------------

    def _changed(self, setting: Setting[Any]) -> None:
        if setting in (THEME, ZOOM, FONT, CODE_FONT):
            self._restyle()

    def _restyle(self) -> None:
        self.theme.set_fonts(self._settings[FONT], self._settings[CODE_FONT])
        self.theme.set_look(self._settings[THEME], self._settings[ZOOM] / 100)

    def _failed(self, name: str, error: BaseException) -> None:
        """A bug: it is in the log with its trace, and the user is told that something is missing now."""
        if not isinstance(error, HelixError):
            self.window.notices.tell(words.tr("Something went wrong in the program itself ({name}).", name=name))

    # --- the end -------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        if not self._ending:
            self._ending = True
            self.window.hide()
            ending: Coroutine[Any, Any, None] = self._end()
            tasks.Tasks("end").spawn(ending, name="end")

    async def _end(self) -> None:
        """In order, and never longer than `PATIENCE`: what hangs is left behind."""
        try:
            async with asyncio.timeout(PATIENCE):
                if self._owner is not None:
                    await self._owner.aclose()
                if self._desk is not None:
                    await self._desk.aclose()
                await self._tasks.aclose(limit=0.3)
        except TimeoutError:
            log.warning("the end took too long; what hung was left behind")
        except HelixError as error:
            log.warning("at the end: %s", error)
        finally:
            asyncio.get_running_loop().stop()

    def _end_at_once(self) -> None:
        """A thread that hangs (a keyring, a dead network mount) must not keep the program."""
        stuck = [t.name for t in threading.enumerate() if t is not threading.main_thread() and not t.daemon]
        if stuck:
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)


class Interrupts(QObject):
    """Ctrl+C in the terminal closes the window; Python alone would not notice while Qt waits."""

    def __init__(self, close: Any) -> None:
        super().__init__()
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno())
        signal.signal(signal.SIGINT, lambda *_: close())
        signal.signal(signal.SIGTERM, lambda *_: close())
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(lambda *_: self._read.recv(64))


def _application(settings: Settings) -> QApplication:
    QApplication.setApplicationName("helix-desktop")
    QApplication.setApplicationDisplayName(TITLE)
    QApplication.setApplicationVersion(__version__)
    QApplication.setDesktopFileName("helix-desktop")
    application = QApplication(["helix-desktop"])
    application.setStyle("Fusion")
    application.setQuitOnLastWindowClosed(False)
    application.setWindowIcon(QIcon(str(resources.folder() / "icons" / "helix.svg")))
    words.install(application, settings[LANGUAGE])
    return application


def _said_by_qt(kind: QtMsgType, _context: QMessageLogContext, text: str) -> None:
    logging.getLogger("helix_desktop.qt").log(_LEVELS.get(kind, logging.WARNING), "%s", text)


if __name__ == "__main__":
    sys.exit(main())
