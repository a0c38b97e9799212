"""Desktop notifications: an agent is done, waits or failed, and the window is not in front.

On Linux through the desktop's own service on the session bus, elsewhere through the
system tray. Where there is neither, nothing happens; the rail's dots say the same.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QSystemTrayIcon

from helix_desktop.gui.background_runner import CoroutineStarter

if TYPE_CHECKING:
    from jeepney.io.asyncio import DBusConnection, DBusRouter

log = logging.getLogger(__name__)

_SERVICE, _PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"
MAX_TEXT_LENGTH = 200
SHOWN_MS = 8_000  # In milliseconds. A notification is shown this long.
MAX_FOLLOWED_NOTIFICATIONS = 50  # How many of the newest notifications react to a click.
DESKTOP_TIMEOUT_SECONDS = 2.0  # In seconds. The desktop has this long to answer a call.


class DesktopNotifier(QObject):
    """`clicked` carries the `place` that the notification was shown with."""

    clicked = Signal(str)

    def __init__(self, icon: QIcon, spawn: CoroutineStarter, parent: QObject) -> None:
        super().__init__(parent)
        self._icon = icon
        self._spawn = spawn
        self._tray_place = ""
        self._tray: QSystemTrayIcon | None = None
        self._bus: DBusRouter | None = None
        self._places: dict[int, str] = {}

    def show_desktop_notification(self, title: str, text: str, place: str) -> None:
        """Show a notification; a click on it comes back as `clicked(place)`."""
        short = text if len(text) <= MAX_TEXT_LENGTH else f"{text[: MAX_TEXT_LENGTH - 1]}…"
        if sys.platform != "linux":
            self._notify_through_tray(title, short, place)
        elif os.environ.get("DBUS_SESSION_BUS_ADDRESS"):
            self._spawn(self._notify_over_session_bus(title, short, place), name="desktop notification")

    async def _notify_over_session_bus(self, title: str, text: str, place: str) -> None:
        from jeepney import DBusAddress, DBusErrorResponse, new_method_call

        service = DBusAddress(_PATH, bus_name=_SERVICE, interface=_SERVICE)
        escaped = text.replace("&", "&amp;").replace("<", "&lt;")
        arguments: tuple[object, ...] = (
            "Helix Desktop",
            0,
            "helix-desktop",
            title,
            escaped,
            ["default", ""],
            {},
            SHOWN_MS,
        )
        message = new_method_call(service, "Notify", "susssasa{sv}i", arguments)
        try:
            async with asyncio.timeout(DESKTOP_TIMEOUT_SECONDS):
                bus = await self._connect_session_bus()
                reply = await bus.send_and_get_reply(message)
        except (OSError, TimeoutError, DBusErrorResponse) as error:
            log.info("the desktop shows no notifications: %s", type(error).__name__)
            return
        if reply.body and isinstance(reply.body[0], int):
            self._places[reply.body[0]] = place
            for oldest in list(self._places)[:-MAX_FOLLOWED_NOTIFICATIONS]:
                del self._places[oldest]

    async def _connect_session_bus(self) -> DBusRouter:
        from jeepney.io.asyncio import DBusRouter, open_dbus_connection

        if self._bus is None:
            connection = await open_dbus_connection(bus="SESSION")
            self._bus = DBusRouter(connection)
            self._spawn(self._listen_for_clicks(self._bus, connection), name="clicks on notifications")
        return self._bus

    async def _listen_for_clicks(self, bus: DBusRouter, connection: DBusConnection) -> None:
        """Runs as long as the program; cancelling the task closes the connection."""
        from jeepney import MatchRule, message_bus

        rule = MatchRule(type="signal", interface=_SERVICE, member="ActionInvoked", path=_PATH)
        try:
            async with bus:
                with bus.filter(rule) as clicks:
                    await bus.send(message_bus.AddMatch(rule))
                    while True:
                        number = (await clicks.get()).body[0]
                        self.clicked.emit(self._places.pop(number, ""))
        finally:
            self._bus = None
            await connection.close()

    def _notify_through_tray(self, title: str, text: str, place: str) -> None:
        if not QSystemTrayIcon.isSystemTrayAvailable():
            return
        if self._tray is None:
            self._tray = QSystemTrayIcon(self._icon, self)
            self._tray.messageClicked.connect(lambda: self.clicked.emit(self._tray_place))
            self._tray.show()
        self._tray_place = place
        self._tray.showMessage(title, text, self._icon)
