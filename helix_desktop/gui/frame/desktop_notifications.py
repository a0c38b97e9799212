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

from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_text
from helix_desktop.fast_dataclass import dataclass
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


@dataclass(frozen=True, slots=True)
class UnsentNotification:
    """A message to the desktop, and the deep link that a click on the notification opens."""

    message: Message
    link: str


class DesktopNotifier(QObject):
    """`clicked` carries the link that the notification was shown with."""

    clicked = Signal(str)

    def __init__(self, icon: QIcon, spawn: CoroutineStarter, parent: QObject) -> None:
        super().__init__(parent)
        self._icon = icon
        self._spawn = spawn
        self._tray_link = ""
        self._tray: QSystemTrayIcon | None = None
        self._is_bus_followed = False
        self._bus: DBusConnection | None = None
        self._unsent: list[UnsentNotification] = []
        # Where a click leads: by the serial of a message that the desktop has not answered yet,
        # then by the number that it gave the notification.
        self._link_by_serial: dict[int, str] = {}
        self._link_by_number: dict[int, str] = {}

    def show_desktop_notification(self, title: str, text: str, link: str) -> None:
        """Shows a notification; a click on it emits `clicked(link)`."""
        short_text = text
        if len(text) > MAX_TEXT_LENGTH:
            short_text = f"{text[: MAX_TEXT_LENGTH - 1]}…"
        # A title may come from elsewhere. The bus ends the connection for a zero in a text.
        shown_title = mark_on_one_line(title[:MAX_TEXT_LENGTH])
        shown_text = mark_text(short_text)
        if sys.platform != "linux":
            self._notify_through_tray(shown_title, shown_text, link)
        elif os.environ.get("DBUS_SESSION_BUS_ADDRESS"):
            self._notify_over_session_bus(shown_title, shown_text, link)

    def _notify_over_session_bus(self, title: str, text: str, link: str) -> None:
        """Asks the Linux desktop to show a notification; a click on it opens the link.

        The first notification also connects to the session bus and starts listening for clicks.
        It waits in `_unsent` until the connection is there.
        """
        from jeepney import DBusAddress, new_method_call

        service = DBusAddress(_PATH, bus_name=_SERVICE, interface=_SERVICE)
        # The desktop reads a text as HTML.
        escaped_text = text.replace("&", "&amp;").replace("<", "&lt;")

        replaced_number = 0
        actions = ["default", ""]
        hints: dict[str, object] = {}
        arguments = (
            "Helix Desktop",
            replaced_number,
            "helix-desktop",
            title,
            escaped_text,
            actions,
            hints,
            SHOWN_MS,
        )
        message = new_method_call(service, "Notify", "susssasa{sv}i", arguments)
        self._unsent.append(UnsentNotification(message, link))
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
            reader, writer = await asyncio.open_unix_connection(get_bus("SESSION"))
            async with DBusConnection(reader, writer) as bus:
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
            self._link_by_serial.clear()

    def _send_waiting_notifications(self, bus: DBusConnection) -> None:
        for notification in self._unsent:
            serial = next(bus.outgoing_serial)
            self._link_by_serial[serial] = notification.link
            bus.writer.write(notification.message.serialise(serial))
        self._unsent.clear()

    def _remember_notification_number_or_report_click(self, message: Message) -> None:
        """Handles one message from the session bus.

        The reply to a notification that we sent says which number the desktop gave it. A later
        message with this number says that the user clicked on it, and then `clicked` is emitted
        with the link that belongs to the notification.
        """
        from jeepney import HeaderFields, MessageType

        fields = message.header.fields
        link = self._link_by_serial.pop(fields.get(HeaderFields.reply_serial, 0), None)
        if message.header.message_type is MessageType.error:
            log.info("the desktop shows no notifications: %s", fields.get(HeaderFields.error_name))
            return

        # Both a reply to a notification and a click on one begin with its number.
        number = None
        if message.body:
            number = message.body[0]
        if not isinstance(number, int):
            return
        if link is not None:
            self._link_by_number[number] = link
            for old_number in list(self._link_by_number)[:-MAX_FOLLOWED_NOTIFICATIONS]:
                del self._link_by_number[old_number]
        elif fields.get(HeaderFields.member) == "ActionInvoked":
            self.clicked.emit(self._link_by_number.pop(number, ""))

    def _notify_through_tray(self, title: str, text: str, link: str) -> None:
        if not QSystemTrayIcon.isSystemTrayAvailable():
            return
        if self._tray is None:
            self._tray = QSystemTrayIcon(self._icon, self)
            self._tray.messageClicked.connect(lambda: self.clicked.emit(self._tray_link))
            self._tray.show()
        self._tray_link = link
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
