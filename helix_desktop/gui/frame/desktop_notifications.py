"""Desktop notifications while the window is in the background: an agent has finished, waits or
failed.

They use the desktop's service on the session bus on Linux, and the system tray elsewhere. Without
either, nothing happens; the dots in the rail show the same.
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
    from jeepney import Message
    from jeepney.io.asyncio import DBusConnection

log = logging.getLogger(__name__)

_SERVICE = "org.freedesktop.Notifications"
_PATH = "/org/freedesktop/Notifications"
MAX_TEXT_LENGTH = 200
SHOWN_MS = 8_000  # How long a notification is shown.
MAX_FOLLOWED_NOTIFICATIONS = 50  # Only this many of the newest notifications react to a click.


class DesktopNotifier(QObject):
    """`clicked` carries the `place` that the notification was shown with."""

    clicked = Signal(str)

    def __init__(self, icon: QIcon, spawn: CoroutineStarter, parent: QObject) -> None:
        super().__init__(parent)
        self._icon = icon
        self._spawn = spawn
        self._tray_place = ""
        self._tray: QSystemTrayIcon | None = None
        self._is_bus_followed = False
        self._bus: DBusConnection | None = None
        self._unsent: list[tuple[Message, str]] = []
        self._unanswered: dict[int, str] = {}
        self._places: dict[int, str] = {}

    def show_desktop_notification(self, title: str, text: str, place: str) -> None:
        """Shows a notification; a click on it emits `clicked(place)`."""
        short = text
        if len(text) > MAX_TEXT_LENGTH:
            short = f"{text[: MAX_TEXT_LENGTH - 1]}…"
        if sys.platform != "linux":
            self._notify_through_tray(title, short, place)
        elif os.environ.get("DBUS_SESSION_BUS_ADDRESS"):
            self._notify_over_session_bus(title, short, place)

    def _notify_over_session_bus(self, title: str, text: str, place: str) -> None:
        from jeepney import DBusAddress, new_method_call

        service = DBusAddress(_PATH, bus_name=_SERVICE, interface=_SERVICE)
        escaped = text.replace("&", "&amp;").replace("<", "&lt;")
        actions = ["default", ""]
        hints: dict[str, object] = {}
        shown = ("Helix Desktop", 0, "helix-desktop", title, escaped, actions, hints, SHOWN_MS)
        self._unsent.append((new_method_call(service, "Notify", "susssasa{sv}i", shown), place))
        if self._bus is not None:
            self._send_waiting_notifications(self._bus)
        elif not self._is_bus_followed:
            self._is_bus_followed = True
            self._spawn(self._connect_to_and_follow_session_bus(), name="desktop notifications")

    async def _connect_to_and_follow_session_bus(self) -> None:
        """Runs until the program quits or the bus disconnects. Cancelling the task closes the
        connection.

        Nobody waits for a reply: jeepney's own router fails with a KeyError when the
        connection ends while somebody does.
        """
        from jeepney.bus import get_bus
        from jeepney.io.asyncio import DBusConnection

        try:
            async with DBusConnection(
                *await asyncio.open_unix_connection(get_bus("SESSION"))
            ) as bus:
                await _log_in_and_ask_for_clicks(bus)
                self._bus = bus
                self._send_waiting_notifications(bus)
                while True:
                    self._remember_notification_number_or_report_click(await bus.receive())
        except (OSError, EOFError, RuntimeError, ValueError) as error:
            log.info("the desktop shows no notifications: %s", type(error).__name__)
        finally:
            self._bus = None
            self._is_bus_followed = False
            self._unsent.clear()
            self._unanswered.clear()

    def _send_waiting_notifications(self, bus: DBusConnection) -> None:
        for message, place in self._unsent:
            serial = next(bus.outgoing_serial)
            self._unanswered[serial] = place
            bus.writer.write(message.serialise(serial))
        self._unsent.clear()

    def _remember_notification_number_or_report_click(self, message: Message) -> None:
        from jeepney import HeaderFields, MessageType

        fields = message.header.fields
        number = None
        if message.body:
            number = message.body[0]
        place = self._unanswered.pop(fields.get(HeaderFields.reply_serial, 0), None)
        if message.header.message_type is MessageType.error:
            log.info("the desktop shows no notifications: %s", fields.get(HeaderFields.error_name))
        elif not isinstance(number, int):
            return
        elif place is not None:
            self._places[number] = place
            for oldest in list(self._places)[:-MAX_FOLLOWED_NOTIFICATIONS]:
                del self._places[oldest]
        elif fields.get(HeaderFields.member) == "ActionInvoked":
            self.clicked.emit(self._places.pop(number, ""))

    def _notify_through_tray(self, title: str, text: str, place: str) -> None:
        if not QSystemTrayIcon.isSystemTrayAvailable():
            return
        if self._tray is None:
            self._tray = QSystemTrayIcon(self._icon, self)
            self._tray.messageClicked.connect(lambda: self.clicked.emit(self._tray_place))
            self._tray.show()
        self._tray_place = place
        self._tray.showMessage(title, text, self._icon)


async def _log_in_and_ask_for_clicks(bus: DBusConnection) -> None:
    """Logs in and subscribes to clicks. Replies are received like any other message."""
    from jeepney import MatchRule, message_bus
    from jeepney.auth import BEGIN, Authenticator

    authenticator = Authenticator()
    for line in authenticator:
        bus.writer.write(line)
        authenticator.feed(await bus.reader.readuntil(b"\r\n"))
    bus.writer.write(BEGIN)
    await bus.send(message_bus.Hello())
    rule = MatchRule(type="signal", interface=_SERVICE, member="ActionInvoked", path=_PATH)
    await bus.send(message_bus.AddMatch(rule))
