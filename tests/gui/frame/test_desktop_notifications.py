"""Desktop notifications on a real session bus with a desktop that answers."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any

import pytest
from PySide6.QtCore import QObject
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.frame import desktop_notifications
from helix_desktop.gui.frame.desktop_notifications import DesktopNotifier

jeepney = pytest.importorskip("jeepney")
pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="needs dbus-daemon")
SERVICE, PATH = "org.freedesktop.Notifications", "/org/freedesktop/Notifications"


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    command = ["dbus-daemon", "--session", "--nofork", "--print-address"]
    daemon = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert daemon.stdout is not None
    address = daemon.stdout.readline().strip()
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", address)
    yield address
    daemon.terminate()
    daemon.wait(60)
    daemon.stdout.close()


class Desktop:
    """Takes notifications, and clicks on each at once."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.shown: list[tuple[Any, ...]] = []

    async def serve(self) -> None:
        while True:
            message = await self.connection.receive()
            if message.header.fields.get(jeepney.HeaderFields.member) != "Notify":
                continue
            self.shown.append(message.body)
            number = len(self.shown)
            await self.connection.send(jeepney.new_method_return(message, "u", (number,)))
            await asyncio.sleep(0.1)
            emitter = jeepney.DBusAddress(PATH, interface=SERVICE)
            await self.connection.send(jeepney.new_signal(emitter, "ActionInvoked", "us", (number, "default")))


@pytest.fixture
async def desktop(bus: str) -> AsyncIterator[Desktop]:
    from jeepney.io.asyncio import open_dbus_connection

    connection = await open_dbus_connection(bus)
    await connection.send(jeepney.message_bus.RequestName(SERVICE))
    made = Desktop(connection)
    serving = asyncio.get_running_loop().create_task(made.serve())
    yield made
    serving.cancel()
    await connection.close()


async def test_a_notification_is_shown_and_a_click_comes_back(
    desktop: Desktop, application: QApplication, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desktop_notifications, "DESKTOP_TIMEOUT_SECONDS", 60)
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[Any]]()

    def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        tasks.append(loop.create_task(work, name=name))
        return tasks[-1]

    parent, clicked = QObject(), loop.create_future()
    notifier = DesktopNotifier(QIcon(), spawn, parent)
    notifier.clicked.connect(clicked.set_result)
    notifier.show_desktop_notification("The title", "a <b> & " + "x" * 400, "helix://settings")
    assert await asyncio.wait_for(clicked, 60) == "helix://settings"
    name, _, _, title, text, actions, _, _ = desktop.shown[0]
    assert (name, title, actions) == ("Helix Desktop", "The title", ["default", ""])
    assert text.startswith("a &lt;b> &amp; xxx")
    assert len(text) < 220
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_bus_without_a_desktop_is_no_failure(bus: str, application: QApplication) -> None:
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[Any]]()

    def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        tasks.append(loop.create_task(work, name=name))
        return tasks[-1]

    parent = QObject()
    DesktopNotifier(QIcon(), spawn, parent).show_desktop_notification("title", "text", "")
    await asyncio.wait_for(tasks[0], 60)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
