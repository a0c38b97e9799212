"""Builds the program behind the painted window, and ends it in order.

Stores, providers and tools are imported in a thread while the event loop is already running, and
opened after that.
"""

import asyncio
import importlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from PySide6 import QtCore
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

from helix_desktop import (
    concurrency,
    glibc_memory,
    logs,
    program_settings,
    resources,
    running_instance,
)
from helix_desktop.desktop import open_windows
from helix_desktop.desktop.event_loop import WindowEventLoop
from helix_desktop.desktop.open_windows import (
    NAME,
    FurtherWindow,
    name_window,
    start_window_process,
)
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gui import translation
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.widgets import run_after_events
from helix_desktop.gui.deep_links import WindowPlace, format_deep_link, parse_deep_link
from helix_desktop.gui.frame.top_level_window import TopLevelWindow
from helix_desktop.gui.garbage_collection import GarbageCollector
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.shown_workspace import OTHER_COMPUTER
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import code_highlighting
from helix_desktop.program_folders import (
    ProgramFolders,
    find_unwritable_folder_error,
    make_folders_private,
)
from helix_desktop.program_settings import (
    CODE_FONT,
    FONT,
    KEYS_IN_FILE,
    PAGE_ADDRESS,
    PAGE_ON,
    PAGE_PORT,
    RECORDER,
    SEND_WITH,
    THEME,
)

if TYPE_CHECKING:
    from helix_desktop.console import Console
    from helix_desktop.desktop.host_connections import HostConnections
    from helix_desktop.processes.starter import ChildProcess
    from helix_desktop.workbench.all_workbenches import Workbenches

log = logging.getLogger(__name__)

# Closing takes at most this many seconds. Everything that was confirmed is already on
# the disk.
LONGEST_CLOSING_SECONDS = 1.6
LONGEST_CLOSING_OF_TASKS_SECONDS = 0.3
HAS_MENU_BAR = sys.platform == "darwin"  # Mac users expect a menu bar.
THREADS = 4
# A hidden window looks so often whether its agents have finished.
AGENTS_DONE_MS = 1_000
ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# A busy thread releases the interpreter lock after this many seconds.
SWITCH_INTERVAL_SECONDS = 0.0003
# These modules are imported in a thread. Importing them in the window's thread would
# block it for 100 ms.
MODULES_BEHIND_WINDOW = (
    "workbench.all_workbenches",
    "desktop.provider_administration",
    "desktop.settings_backend",
    "desktop.history_import",
    "desktop.host_connections",
    "gui.dialogs_and_notifications",
    "gui.transcript.transcript_pane",
    "resident.agent_routes",
    "resident.login_start",
)
# Those of the pages that are not shown yet, which are imported after all others.
_MODULES_OF_PAGES = (
    "gui.inspector.meter_panel",
    "gui.inspector.context_inspector",
    "gui.help_dialog",
    "gui.changes.undo_dialog",
    "gui.cache.cache_page",
    "gui.timeline.timeline_page",
    "gui.changes.changes_page",
)
_LOG_LEVELS = {
    QtCore.QtMsgType.QtDebugMsg: logging.DEBUG,
    QtCore.QtMsgType.QtInfoMsg: logging.INFO,
    QtCore.QtMsgType.QtWarningMsg: logging.WARNING,
    QtCore.QtMsgType.QtCriticalMsg: logging.ERROR,
    QtCore.QtMsgType.QtFatalMsg: logging.CRITICAL,
}


def hand_over_to_running_window(where: ProgramFolders, link: str) -> bool:
    """Asks the running program to show its window. Returns False if no program answers."""
    from helix_desktop.console import Terminal

    async def ask_running_window() -> bool:
        connection = await running_instance.connect_to_owner(where.run, NAME)
        if connection is None:
            return False
        with Terminal() as console:
            exit_code = await running_instance.run_at_owner(
                connection, [open_windows.SHOW, link], console
            )
        return exit_code == 0

    try:
        return asyncio.run(ask_running_window())
    except (HelixError, OSError):
        return False


class WindowProgram:
    def __init__(
        self,
        where: ProgramFolders,
        application: QApplication,
        top_window: TopLevelWindow,
        link: str,
        further: FurtherWindow | None = None,
    ) -> None:
        """`further`: None for the first window, which answers a second start."""
        # On a busy computer, building the window may take a second.
        top_window.state_file.start_waiting_write()
        glibc_memory.share_one_heap_between_threads()
        sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
        self._where = where
        self._link = link
        self._further = further
        # Held so that their ends are noticed; they live on when this window closes.
        self._further_windows: list[ChildProcess] = []
        self._settings = program_settings.ProgramSettings(where.settings_file)
        self._redaction = logs.LogRedaction()
        self._stop_log = logs.start_logging(
            where.logs,
            self._redaction,
            file=_name_log_of_window(further),
            level=self._settings[program_settings.LOG_LEVEL],
            megabytes=self._settings[program_settings.LOG_SIZE],
        )

        make_folders_private(where)
        logs.log_uncaught_errors()
        QtCore.qInstallMessageHandler(_log_qt_message)
        translation.install_language(application, self._settings[program_settings.LANGUAGE])

        self._application = application
        self._tasks = concurrency.OwnedTasks("window", report=self._report_failed_task)
        self._beginning = concurrency.OwnedTasks("window", report=self._report_failed_task)
        self._desk: Workbenches | None = None
        self._connections: HostConnections | None = None
        self._owner: running_instance.RequestListener | None = None
        self._claim: IO[bytes] | None = None
        self._own_number = 1
        if further is not None:
            self._claim = further.claim
            self._own_number = further.number
        self._is_closing = False
        # The windows to start once this one has ended: what each showed, by its number.
        self._windows_to_start: dict[int, str] = {}
        self._agents_done_timer = QtCore.QTimer(interval=AGENTS_DONE_MS)
        self._agents_done_timer.timeout.connect(self._close_if_agents_are_done)
        self._state_file = top_window.state_file
        self.top_window = top_window
        application.setWindowIcon(QIcon(str(resources.resources_folder() / "icons" / "helix.svg")))

        self.theme = Theme()
        self._apply_look_settings()
        self._runner = BackgroundRunner(self._tasks.spawn_task, application)
        self.window = MainWindow(
            self.theme, self._state_file, self._settings, self._runner, self.top_window
        )

        self._settings.subscribe_to_changes(self._apply_changed_setting)
        self._apply_changed_setting(SEND_WITH)
        self._replace_placeholder_by_window()

        if HAS_MENU_BAR:
            self.window.window_actions.fill_menu_bar(self.top_window.menuBar())
        self.window.window_actions.set_action_handler("new-window", self._open_further_window)
        self.top_window.closing.connect(self._quit_or_ask)
        self.window.parts.requests.restart_wanted.connect(self._restart_or_ask)
        # The user may have closed the window before this signal was connected.
        if self.top_window.is_closing:
            QtCore.QTimer.singleShot(0, self._close_window)

    def _replace_placeholder_by_window(self) -> None:
        """Shows the real content of the window, with what was typed until now."""
        early_typing = self.top_window.placeholder.early_typing
        workspace, _conversation = early_typing.draft_owner
        if workspace:
            for place, messages in early_typing.sent_by_conversation.items():
                self.window.sides.show_composer_before_opening(place, early_typing.name, messages)
        self.top_window.setCentralWidget(self.window)
        if early_typing.has_box:
            # A widget can take the focus only after it was added to the window.
            self.window.chat.composer.text.setFocus()

    def _quit_or_ask(self) -> None:
        # Whoever logs out must not have to wait for an answer.
        is_logging_out = self._application.isSavingSession()
        self.window.quit_or_ask(
            self._close_window, self._hide_until_agents_are_done, asks=not is_logging_out
        )

    def _restart_or_ask(self) -> None:
        """Restarts the program with all its windows. If any has work running, it asks first."""
        counting = open_windows.count_work_of_other_windows(self._where.run, self._own_number)
        self.window.parts.run_for_window(counting, then=self._restart_or_ask_about_work)

    def _restart_or_ask_about_work(self, working_elsewhere: int) -> None:
        self.window.restart_or_ask(self._close_others_and_restart, working_elsewhere)

    def _close_others_and_restart(self) -> None:
        closing = open_windows.close_other_windows_for_restart(self._where.run, self._own_number)
        self.window.parts.run_for_window(closing, then=self._close_and_start_windows_again)

    def _close_and_start_windows_again(self, links: dict[int, str]) -> None:
        own_place = ""  # The first window opens what it showed last by itself.
        if self._further is not None:
            own_place = self._format_link_to_shown_workspace()
        self._windows_to_start = {**links, self._own_number: own_place}
        self._close_window()

    def run_until_closed(self) -> int:
        loop = WindowEventLoop(self._application)
        asyncio.set_event_loop(loop)
        loop.set_default_executor(concurrency.create_thread_pool("work", threads=THREADS))
        self._interrupts = InterruptHandler(self._close_window)
        QtCore.QTimer.singleShot(0, self._begin_start)
        with loop:
            loop.run_forever()
        if self._windows_to_start:
            self._start_program_again()
        self._stop_log()
        # A Qt message after Python's end would crash the process.
        QtCore.qInstallMessageHandler(None)
        _exit_process_at_once()
        return 0

    def _start_program_again(self) -> None:
        """Starts the windows anew. This one answers no second start any more."""
        from helix_desktop.gateway import wrapped_agent

        if self._claim is not None:
            self._claim.close()
        command = wrapped_agent.command_of_this_program(self._where)
        try:
            open_windows.start_windows_again(command, self._where.run, self._windows_to_start)
        except OSError as error:
            log.warning("the program could not be started again: %s", error)

    def _begin_start(self) -> None:
        self._beginning.spawn_task(self._start_behind_window(), name="begin")

    async def _start_behind_window(self) -> None:
        folder_error = await asyncio.to_thread(find_unwritable_folder_error, self._where)
        if folder_error is not None:
            self.window.workspaces.show_startup_error_and_block_actions(folder_error)
            return
        self._tasks.spawn_task(glibc_memory.return_free_memory_every_minute(), name="freed memory")
        await asyncio.to_thread(_import_modules, MODULES_BEHIND_WINDOW)
        self._open_stores()
        self._show_workspaces_of_other_processes()
        self._tasks.spawn_task(
            asyncio.to_thread(_warm_up_text_rendering), name="what texts are read with"
        )
        await self._listen_for_other_windows()
        if self._further is None:
            self._dialogs.turn_gateway_on_again()
        if self._link:
            self._show_link_target(self._link)
        mistakes: list[HelixError] = list(self._settings.file_mistakes)
        mistakes += self._state_file.mistakes
        for mistake in mistakes:
            self.window.notices.show_error_notice(mistake)
        self._garbage_collector = GarbageCollector(self.window)
        self._call_once_workspace_is_shown(self._garbage_collector.freeze_living_objects)
        await self._start_resident_if_needed()
        self._call_once_workspace_is_shown(self._import_modules_of_pages)

    def _open_stores(self) -> None:
        """Opens what was imported meanwhile, and connects the window with it."""
        from helix_desktop.desktop.host_connections import HostConnections
        from helix_desktop.desktop.provider_administration import ProviderAdministration
        from helix_desktop.desktop.settings_backend import SettingsBackend
        from helix_desktop.gui import dialogs_and_notifications
        from helix_desktop.resident.agent_routes import AgentRoutes
        from helix_desktop.secrets import SecretStorage
        from helix_desktop.workbench import all_workbenches

        secrets = SecretStorage(
            self._where.key_file,
            consent=lambda: self._settings[KEYS_IN_FILE],
            seen=self._redaction.add_secret_to_redact,
        )
        self._desk = all_workbenches.Workbenches(
            self._where, secrets, serve=self._serve_workspace_commands
        )
        self._desk.register_route = AgentRoutes(self._where).register_route
        providers = ProviderAdministration(
            self._desk.configured, secrets, self._desk.connections, self._allow_keys_in_file
        )
        self._dialogs = dialogs_and_notifications.DialogsAndNotifications(
            self.window,
            providers,
            SettingsBackend(self._where, secrets),
            self._where.tour_folder,
            self._tasks.spawn_task,
        )
        self._connections = HostConnections(self._where, self._desk)
        self.window.workspaces.set_workspaces_and_start(self._desk, self._connections)

    def _allow_keys_in_file(self) -> None:
        self._settings.change_setting(KEYS_IN_FILE, True)

    def _call_once_workspace_is_shown(self, function: Callable[[], object]) -> None:
        self.window.workbench_shown.connect(function, QtCore.Qt.ConnectionType.SingleShotConnection)

    async def _start_resident_if_needed(self) -> None:
        """Starts the resident process if it has work, as it may have been ended meanwhile."""
        from helix_desktop.resident import login_start

        if await asyncio.to_thread(login_start.is_resident_needed, self._where):
            self._tasks.spawn_task(self._ask_resident_to_apply("recorder"), name="recorder")

    def _import_modules_of_pages(self) -> None:
        importing = asyncio.to_thread(_import_modules, _MODULES_OF_PAGES)
        self._tasks.spawn_task(importing, name="the pages not shown yet")

    def _show_workspaces_of_other_processes(self) -> None:
        """Updates the rail when the recorder or a command creates a workspace while the
        window is open.
        """
        # The settings of a workspace are written after its folder was created.
        timer = QtCore.QTimer(self.window, interval=1_000, singleShot=True)
        timer.timeout.connect(self.window.workspaces.refresh_workspaces)
        watcher = QtCore.QFileSystemWatcher([str(self._where.workspaces_folder)], self.window)
        watcher.directoryChanged.connect(lambda _folder: timer.start())

    async def _serve_workspace_commands(self, workspace: Any) -> Any:
        from helix_desktop.commands import workspace_access

        return await workspace_access.listen_for_commands(workspace, self._where)

    async def _listen_for_other_windows(self) -> None:
        """Listens for a second start of the program, and for the other windows. Only the holder of
        the claim answers.
        """
        own_name = name_window(self._own_number)
        try:
            if self._claim is None:
                self._claim = running_instance.claim_instance(self._where.run, own_name)
            if self._claim is not None:
                self._owner = await running_instance.listen_for_requests(
                    self._where.run,
                    own_name,
                    self._answer_other_window,
                    patience=LONGEST_CLOSING_OF_TASKS_SECONDS,
                )
        except (HelixError, OSError) as error:
            log.warning("a second start will not find this window: %s", error)

    async def _answer_other_window(self, arguments: list[str], console: "Console") -> int:
        """Answers a second start, which shows the window and opens its link, and a window that
        wants to restart the program.
        """
        question = arguments[:1]
        if question == [open_windows.COUNT_WORK]:
            await console.print_line(str(self.window.workspaces.count_working_agents()))
        elif question == [open_windows.CLOSE_FOR_RESTART]:
            await console.print_line(self._format_link_to_shown_workspace())
            QtCore.QTimer.singleShot(0, self._close_window)
        elif question == [open_windows.SHOW]:
            link = ""
            if len(arguments) > 1:
                link = arguments[1]
            self._show_link_target(link)
        else:
            raise InvalidInput("The open window accepts only the command `show`.")
        return 0

    def _format_link_to_shown_workspace(self) -> str:
        """Returns the link to the shown workspace. Empty for one of another computer."""
        workspace = self.window.showing.workspace_id
        if not workspace or workspace.startswith(OTHER_COMPUTER):
            return ""
        return format_deep_link(WindowPlace("workspace", workspace))

    def _open_further_window(self) -> None:
        """Opens another window, on the workspace that this one shows. It is a process of its own."""
        from helix_desktop.gateway import wrapped_agent

        command = wrapped_agent.command_of_this_program(self._where)
        command.append("--new-window")
        link = self._format_link_to_shown_workspace()
        if link:
            command.append(link)
        try:
            process = start_window_process(command)
        except OSError as error:
            failure = HelixError(f"The window could not be opened: {error.strerror}.")
            self.window.notices.show_error_notice(failure)
            return
        # Asking for the exit codes of those that have ended lets the system forget them.
        self._further_windows = [
            window for window in self._further_windows if window.poll() is None
        ]
        self._further_windows.append(process)

    def _show_link_target(self, link: str) -> None:
        self.top_window.show()
        state_before = self.top_window.windowState()
        self.top_window.setWindowState(state_before & ~QtCore.Qt.WindowState.WindowMinimized)
        self.top_window.raise_()
        self.top_window.activateWindow()
        if not link:
            return
        if Path(link).is_absolute():
            self.window.workspaces.create_workspace_for_folder(Path(link))
            return
        try:
            place = parse_deep_link(link)
        except InvalidInput as error:
            self.window.notices.show_error_notice(error)
        else:
            self.window.places.go_to_place(place)

    def _apply_changed_setting(self, setting: program_settings.ProgramSetting[Any]) -> None:
        if setting is THEME:
            # All widgets are styled anew, during which an open list of choices would stay open.
            run_after_events(self.window, self._apply_look_settings)
        elif setting in (program_settings.ZOOM, FONT, CODE_FONT):
            self._apply_look_settings()
        elif setting is SEND_WITH:
            enter_sends = self._settings[SEND_WITH] == "enter"
            for side in self.window.sides.sides:
                side.composer.text.enter_sends = enter_sends
            self._state_file.remember_value("newline-with-enter", value=not enter_sends)
        elif setting is RECORDER:
            self._tasks.spawn_task(self._ask_resident_to_apply("recorder"), name="recorder")
        elif setting in (PAGE_ON, PAGE_ADDRESS, PAGE_PORT):
            self._tasks.spawn_task(self._ask_resident_to_apply("page"), name="page for phones")

    async def _ask_resident_to_apply(self, request: str) -> None:
        """Makes the resident start or stop recording ("recorder") or the page for phones ("page"),
        as the settings say. Starts the resident if it has work.
        """
        from helix_desktop.gateway import wrapped_agent
        from helix_desktop.resident import login_start, resident_client

        try:
            command: Sequence[str] = ()  # Without a command, the resident is not started.
            if await asyncio.to_thread(login_start.is_resident_needed, self._where):
                command = wrapped_agent.command_of_this_program(self._where)
            status = await resident_client.ask_resident(self._where, request, command=command)
            login_start.disable_unneeded_login_start(self._where)
        except HelixError as error:
            self.window.notices.show_error_notice(error)
            return
        if status is None or request != "page":
            return
        page_status = status.get("page") or {}
        if page_status.get("trouble"):
            self.window.notices.show_error_notice(HelixError(page_status["trouble"]))

    def _apply_look_settings(self) -> None:
        """Applies the settings for the look, and saves them for the next first paint."""
        zoom = self._settings[program_settings.ZOOM] / 100
        self.theme.set_fonts(self._settings[FONT], self._settings[CODE_FONT])
        self.theme.set_scheme_and_zoom(self._settings[THEME], zoom)
        look = {"zoom": zoom, "dark": self.theme.is_dark}
        if self._state_file.get_remembered("look", default=dict[str, object]()) != look:
            self._state_file.remember_value("look", value=look)

    def _report_failed_task(self, name: str, error: BaseException) -> None:
        """Tells the user about a bug. The log already contains its trace."""
        if isinstance(error, HelixError):
            return
        text = translation.tr("Something went wrong in the program itself ({name}).", name=name)
        shown_ms = 15_000
        # If the start fails, little works, so the notice stays for ten minutes.
        if name.endswith("begin"):
            shown_ms = 600_000
        self.window.notices.show_notice(text, shown_ms=shown_ms)

    def _hide_until_agents_are_done(self) -> None:
        """Hides the window. A second start or a notification shows it again; without
        either, the program ends when the last agent has finished.
        """
        self.top_window.save_window_geometry()
        self.window.save_window_state()
        self.top_window.hide()
        self._agents_done_timer.start()

    def _close_if_agents_are_done(self) -> None:
        if self.top_window.isVisible():
            self._agents_done_timer.stop()
        elif not self.window.workspaces.count_working_agents():
            self._agents_done_timer.stop()
            self._close_window()

    def _close_window(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        self.top_window.save_window_geometry()
        self.window.save_window_state()
        self.top_window.hide()
        concurrency.OwnedTasks("end").spawn_task(self._close_all_in_order(), name="end")

    async def _close_all_in_order(self) -> None:
        """Closes everything in order, within `LONGEST_CLOSING_SECONDS`. What hangs is left behind."""
        try:
            async with asyncio.timeout(LONGEST_CLOSING_SECONDS):
                # A start that is still under way would reopen the workspaces that are closed below.
                await self._beginning.aclose(limit=LONGEST_CLOSING_OF_TASKS_SECONDS)
                if self._owner is not None:
                    # Another window may still wait for this one's answer.
                    await self._owner.finish_requests()
                if self._connections is not None:
                    await self._connections.close_all_clients()
                if self._desk is not None:
                    await self._desk.aclose()
                await self._tasks.aclose(limit=LONGEST_CLOSING_OF_TASKS_SECONDS)
        except TimeoutError:
            log.warning("the end took too long; what hung was left behind")
        except HelixError as error:
            log.warning("at the end: %s", error)
        finally:
            asyncio.get_running_loop().stop()


def _name_log_of_window(further: FurtherWindow | None) -> str:
    """Each process writes a log of its own."""
    if further is None:
        return "helix"
    return f"window-{further.number}"


def _warm_up_text_rendering() -> None:
    importlib.import_module("markdown_it")
    for language in ("python", "json", "bash"):
        code_highlighting.find_lexer(language)


def _import_modules(names: Sequence[str]) -> None:
    for name in names:
        importlib.import_module(f"helix_desktop.{name}")


def _exit_process_at_once() -> None:
    """Ends the process at once if a thread hangs, such as one that waits for a keyring or a dead
    network mount. Python would wait for it at its own end.
    """
    for thread in threading.enumerate():
        is_hanging = thread is not threading.main_thread() and not thread.daemon
        if is_hanging:
            logging.shutdown()
            sys.stdout.flush()
            os._exit(0)


class InterruptHandler(QtCore.QObject):
    """Closes the window after Ctrl+C in the terminal or a request to end, but only
    between two events of the loop.
    """

    def __init__(self, close: Callable[[], object]) -> None:
        super().__init__()
        self._close = close
        self._read, self._write = socket.socketpair()
        self._write.setblocking(False)
        signal.set_wakeup_fd(self._write.fileno())
        for number in ENDING_SIGNALS:
            # Python writes the signal's number to the socket, which Qt reads.
            signal.signal(number, _ignore_signal)
        self._notifier = QtCore.QSocketNotifier(
            self._read.fileno(), QtCore.QSocketNotifier.Type.Read, self
        )
        self._notifier.activated.connect(self._close_if_asked_to_end)

    def _close_if_asked_to_end(self) -> None:
        received_signals = set(self._read.recv(64))
        if received_signals.isdisjoint(ENDING_SIGNALS):
            return
        # Keys that were pressed before still wait. Once the window is hidden, Qt
        # would drop them.
        QtCore.QCoreApplication.processEvents(
            QtCore.QEventLoop.ProcessEventsFlag.ExcludeSocketNotifiers
        )
        self._close()


def _ignore_signal(_number: int, _frame: object) -> None:
    """Without a handler, Python would end the process at once."""


def _log_qt_message(kind: QtCore.QtMsgType, _context: QtCore.QMessageLogContext, text: str) -> None:
    logging.getLogger("helix_desktop.qt").log(_LOG_LEVELS.get(kind, logging.WARNING), "%s", text)
