"""The program behind the window, put together and ended in order. Imported when the window has been painted.

Stores, providers and tools are imported in a thread while the event loop turns already, and opened after that.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QMessageLogContext, QObject, QSocketNotifier, Qt, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

from helix_desktop import heap, instance, logs, places, resources, tasks
from helix_desktop.desktop.event_loop import EventLoop
from helix_desktop.errors import HelixError, WrongUse
from helix_desktop.gui import words
from helix_desktop.gui.background import Doing
from helix_desktop.gui.frame.shell import Shell
from helix_desktop.gui.garbage import Collecting
from helix_desktop.gui.links import Place, parse
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import highlight
from helix_desktop.gui.wiring import wire
from helix_desktop.settings import (
    CODE_FONT,
    FONT,
    KEYS_IN_FILE,
    LANGUAGE,
    LOG_LEVEL,
    LOG_SIZE,
    NEWER_VERSIONS,
    SEND_WITH,
    THEME,
    ZOOM,
    Setting,
    Settings,
)
from helix_desktop.values import dataclass

if TYPE_CHECKING:
    from helix_desktop.console import Console
    from helix_desktop.desktop.updates import Updates
    from helix_desktop.workbench.desk import Desk

log = logging.getLogger(__name__)

NAME = "window"
PATIENCE = 1.6  # seconds the end may take; what is acknowledged is on the disk already
THREADS = 4
ENDS = (signal.SIGINT, signal.SIGTERM)
TURN = 0.0003  # seconds a busy thread keeps the interpreter; the window asks for it many times between two frames
_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


@dataclass(frozen=True, slots=True)
class Window:
    """What has been painted already."""

    memory: Memory
    shell: Shell


def handed_over(where: places.Places, link: str) -> bool:
    """Ask the running program to come to the front; False where nobody answers."""
    from helix_desktop.console import Terminal

    async def ask() -> bool:
        wire_to = await instance.reach(where.run, NAME)
        if wire_to is None:
            return False
        with Terminal() as console:
            return await instance.hand_over(wire_to, ["show", link], console) == 0

    try:
        return asyncio.run(ask())
    except (HelixError, OSError):
        return False


class Program:
    """One run of the window."""

    def __init__(self, where: places.Places, application: QApplication, painted: Window, link: str) -> None:
        heap.share()
        sys.setswitchinterval(TURN)
        self._where = where
        self._link = link
        self._settings = Settings(where.settings)
        self._redaction = logs.Redaction()
        self._stop_log = logs.start(
            where.logs, self._redaction, level=self._settings[LOG_LEVEL], megabytes=self._settings[LOG_SIZE]
        )
        places.keep_private(where)
        logs.catch_the_uncaught()
        qInstallMessageHandler(_said_by_qt)
        words.install(application, self._settings[LANGUAGE])
        self._application = application
        self._tasks = tasks.Tasks("window", report=self._failed)
        self._beginning = tasks.Tasks("window", report=self._failed)
        self._desk: Desk | None = None
        self._updates: Updates | None = None
        self._owner: instance.Owner | None = None
        self._ending = False
        self._memory, self.shell = painted.memory, painted.shell
        application.setStyle("Fusion")
        application.setWindowIcon(QIcon(str(resources.folder() / "icons" / "helix.svg")))
        self.theme = Theme()
        self._restyle()
        self._doing = Doing(self._tasks.spawn, application)
        self.window = MainWindow(self.theme, self._memory, self._settings, self._doing)
        wire(self.window)
        self._settings.subscribe(self._changed)
        self._changed(SEND_WITH)
        early = self.shell.empty.early
        if early.place[0]:
            self.window.stand_in(early.place, early.name, early.sent)
        self.shell.furnish(self.window)
        if early.has_box:
            self.window.chat.composer.text.setFocus()  # nothing has the focus until it stands in the window
        if sys.platform == "darwin":  # where people look for menus
            for name, actions in self.window.actions_.groups().items():
                self.shell.menuBar().addMenu(name).addActions(actions)
        self.shell.closing.connect(self._close)
        if self.shell.is_closing:  # before anybody could hear of it
            QTimer.singleShot(0, self._close)

    def run(self) -> int:
        loop = EventLoop(self._application)
        asyncio.set_event_loop(loop)
        loop.set_default_executor(tasks.pool("work", threads=THREADS))
        self._interrupts = Interrupts(self.shell.close)
        QTimer.singleShot(0, lambda: self._beginning.spawn(self._begin(), name="begin"))
        with loop:
            loop.run_forever()
        self._stop_log()
        qInstallMessageHandler(None)  # what Qt says after Python has ended would crash it
        _end_at_once()
        return 0

    # --- the beginning -------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        """Everything behind the window."""
        if (refused := await asyncio.to_thread(places.not_writable, self._where)) is not None:
            self.window.show_blocked(refused)
            return
        self._tasks.spawn(heap.give_back(), name="freed memory")
        desk_module = await asyncio.to_thread(importlib.import_module, "helix_desktop.workbench.desk")
        from helix_desktop.desktop.administration import Keeping
        from helix_desktop.desktop.connecting import Connecting
        from helix_desktop.desktop.updates import Updates
        from helix_desktop.gui import front
        from helix_desktop.secrets import Secrets

        secrets = Secrets(self._where.key_file, consent=lambda: self._settings[KEYS_IN_FILE], seen=self._redaction.add)
        desk = self._desk = desk_module.Desk(self._where, secrets, serve=self._serve)
        connecting = Connecting(
            desk.configured, secrets, desk.connections, lambda: self._settings.change(KEYS_IN_FILE, True)
        )
        keeping = Keeping(self._where, secrets)
        self._front = front.Front(self.window, connecting, keeping, self._where.sample, self._tasks.spawn)
        self.window.begin(desk)
        self._tasks.spawn(asyncio.to_thread(_read_ahead), name="what texts are read with")
        await self._listen()
        if self._link:
            self._show(self._link)
        for mistake in self._settings.mistakes:
            self.window.notices.tell_error(mistake)
        self._updates = Updates(
            lambda: self._settings[NEWER_VERSIONS], self._memory, desk.connections, self.window.notices
        )
        self._tasks.spawn(self._updates.watch(), name="newer versions")
        self._collecting = Collecting(self.window)
        self.window.workbench_shown.connect(self._collecting.keep, Qt.ConnectionType.SingleShotConnection)
        self.window.workbench_shown.connect(self._import_pages, Qt.ConnectionType.SingleShotConnection)

    def _import_pages(self) -> None:
        self._tasks.spawn(asyncio.to_thread(_read_pages), name="the pages not shown yet")

    async def _serve(self, workspace: Any) -> Any:
        from helix_desktop.commands import open_workspace

        return await open_workspace.serve(workspace, self._where)

    async def _listen(self) -> None:
        """Be found by a second start. Who holds the claim answers; a second window of the same home does not."""
        try:
            self._claim = instance.claim(self._where.run, NAME)
            if self._claim is not None:
                self._owner = await instance.listen(self._where.run, NAME, self._asked)
        except (HelixError, OSError) as error:
            log.warning("a second start will not find this window: %s", error)

    async def _asked(self, arguments: list[str], _console: Console) -> int:
        """A second start: come to the front, and go where its link leads. Nothing else is done for others."""
        if arguments[:1] != ["show"]:
            raise WrongUse("The open window accepts only the command `show`.")
        self._show(arguments[1] if len(arguments) > 1 else "")
        return 0

    def _show(self, link: str) -> None:
        self.shell.setWindowState(self.shell.windowState() & ~Qt.WindowState.WindowMinimized)
        self.shell.raise_()
        self.shell.activateWindow()
        if Path(link).is_absolute():
            self.window.create_workspace(Path(link))
            return
        try:
            place = parse(link) if link else Place("")
        except WrongUse as error:
            self.window.notices.tell_error(error)
            return
        if place.kind:
            self.window.go(place)

    # --- what changes --------------------------------------------------------------------------------------------

    def _changed(self, setting: Setting[Any]) -> None:
        if setting in (THEME, ZOOM, FONT, CODE_FONT):
            self._restyle()
        elif setting is SEND_WITH:
            self.window.chat.composer.text.enter_sends = self._settings[SEND_WITH] == "enter"
            self._memory.put("newline-with-enter", value=self._settings[SEND_WITH] != "enter")
        elif setting is NEWER_VERSIONS and self._updates is not None:
            self._tasks.spawn(self._updates.look(), name="newest version")

    def _restyle(self) -> None:
        """Bring the settings' look into force, and keep what the first paint of the next start needs of it."""
        scheme, zoom = self._settings[THEME], self._settings[ZOOM] / 100
        sans, mono = self._settings[FONT], self._settings[CODE_FONT]
        self.theme.set_fonts(sans, mono)
        self.theme.set_look(scheme, zoom)
        look = {"zoom": zoom, "dark": self.theme.dark}
        if self._memory.get("look", default=dict[str, object]()) != look:
            self._memory.put("look", value=look)

    def _failed(self, name: str, error: BaseException) -> None:
        """A bug: it is in the log with its trace, and the user is told that something is missing now."""
        if not isinstance(error, HelixError):
            text = words.tr("Something went wrong in the program itself ({name}).", name=name)
            self.window.notices.tell(text, stays=600_000 if name.endswith("begin") else 15_000)

    # --- the end -------------------------------------------------------------------------------------------------

    def _close(self) -> None:
        if not self._ending:
            self._ending = True
            self.window.keep()
            self.shell.hide()
            tasks.Tasks("end").spawn(self._end(), name="end")

    async def _end(self) -> None:
        """In order, and never longer than `PATIENCE`: what hangs is left behind."""
        try:
            async with asyncio.timeout(PATIENCE):
                await self._beginning.aclose(limit=0.3)  # or it would open what was closed before
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


def _read_ahead() -> None:
    """What the first text and the first code would otherwise hold a frame up for: 30 ms, and up to 40 for a language."""
    importlib.import_module("markdown_it")
    for language in ("python", "json", "bash"):
        highlight.lexer(language)


def _read_pages() -> None:
    """What the first click on a page would otherwise wait for: 30 to 45 ms each."""
    for page in ("cache", "timeline", "changes"):
        importlib.import_module(f"helix_desktop.gui.{page}.page")


def _end_at_once() -> None:
    """A thread that hangs (a keyring, a dead network mount) must not keep the program."""
    stuck = [each for each in threading.enumerate() if each is not threading.main_thread() and not each.daemon]
    if stuck:
        logging.shutdown()
        sys.stdout.flush()
        os._exit(0)


class Interrupts(QObject):
    """Ctrl+C in the terminal, or a request to end, closes the window: on a turn of the loop, and not in the middle of one."""

    def __init__(self, close: Callable[[], object]) -> None:
        super().__init__()
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno())
        for number in ENDS:
            signal.signal(number, lambda *_: None)  # Python writes the number to the socket, and Qt reads it
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(lambda *_: self._arrived(close))

    def _arrived(self, close: Callable[[], object]) -> None:
        if set(self._read.recv(64)) & set(ENDS):
            close()


def _said_by_qt(kind: QtMsgType, _context: QMessageLogContext, text: str) -> None:
    logging.getLogger("helix_desktop.qt").log(_LEVELS.get(kind, logging.WARNING), "%s", text)
