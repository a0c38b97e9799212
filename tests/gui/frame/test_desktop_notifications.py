"""Desktop notifications on a real session bus with a desktop that answers."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QObject
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.gui.frame import desktop_notifications
from helix_desktop.gui.frame.desktop_notifications import DesktopNotifier

jeepney = pytest.importorskip("jeepney")
pytestmark = pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="needs dbus-daemon")
SERVICE = "org.freedesktop.Notifications"
PATH = "/org/freedesktop/Notifications"


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
            await self.connection.send(
                jeepney.new_signal(emitter, "ActionInvoked", "us", (number, "default"))
            )


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
    desktop: Desktop, application: QApplication
) -> None:
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[Any]] = []

    def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        tasks.append(loop.create_task(work, name=name))
        return tasks[-1]

    parent = QObject()
    clicked = loop.create_future()
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


@pytest.mark.parametrize("letter", ["\0", "\ud800", "\u202e", "\x1b"])
async def test_a_title_from_elsewhere_does_not_end_the_connection(
    desktop: Desktop, application: QApplication, letter: str
) -> None:
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[Any]] = []

    def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        tasks.append(loop.create_task(work, name=name))
        return tasks[-1]

    parent = QObject()
    clicked = loop.create_future()
    notifier = DesktopNotifier(QIcon(), spawn, parent)
    notifier.clicked.connect(clicked.set_result)
    notifier.show_desktop_notification(f"a{letter}b", f"c{letter}d", "helix://settings")
    assert await asyncio.wait_for(clicked, 60) == "helix://settings"
    mark = f"⟨{ord(letter):04X}⟩"
    assert (desktop.shown[0][3], desktop.shown[0][4]) == (f"a{mark}b", f"c{mark}d")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_bus_without_a_desktop_is_no_failure(bus: str, application: QApplication) -> None:
    loop = asyncio.get_running_loop()
    failed: list[tuple[str, BaseException]] = []
    said = loop.create_future()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.set_result(record.getMessage())

    listener = Listener()
    desktop_notifications.log.addHandler(listener)
    desktop_notifications.log.setLevel(logging.INFO)
    owner = OwnedTasks("window", report=lambda name, error: failed.append((name, error)))
    parent = QObject()
    DesktopNotifier(QIcon(), owner.spawn_task, parent).show_desktop_notification(
        "title", "text", ""
    )
    assert "ServiceUnknown" in await asyncio.wait_for(said, 60)
    desktop_notifications.log.removeHandler(listener)
    await owner.aclose()
    assert failed == []


async def test_a_bus_that_ends_before_it_says_hello_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, application: QApplication
) -> None:
    """As when the user logs out while the window quits: once a KeyError was written to
    the terminal.
    """

    async def log_in_and_leave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n")
        writer.write(b"OK 1234\r\n")
        await reader.readuntil(b"BEGIN\r\n")
        writer.close()

    server = await asyncio.start_unix_server(log_in_and_leave, tmp_path / "bus")
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path / 'bus'}")
    failed: list[tuple[str, BaseException]] = []
    owner = OwnedTasks("window", report=lambda name, error: failed.append((name, error)))
    parent = QObject()
    notifier = DesktopNotifier(QIcon(), owner.spawn_task, parent)
    for _ in range(2):  # the second one tries the bus again
        notifier.show_desktop_notification("title", "text", "")
        await asyncio.wait_for(owner.wait_for_all_tasks(), 60)
    assert failed == []
    server.close()


@pytest.mark.parametrize("steps", range(12))
async def test_quitting_while_the_bus_is_silent_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, application: QApplication, steps: int
) -> None:
    """Wherever the greeting stands: the window's tasks are cancelled with all others,
    as when the program's loop ends.
    """
    failed: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: failed.append(context))
    monkeypatch.setenv("DBUS_SESSION_BUS_ADDRESS", f"unix:path={tmp_path / 'bus'}")
    before = asyncio.all_tasks()
    parent = QObject()
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(tmp_path / "bus"))
        listening.listen()
        notifier = DesktopNotifier(QIcon(), OwnedTasks("window").spawn_task, parent)
        notifier.show_desktop_notification("title", "text", "")
        for step in range(steps):
            await asyncio.sleep(0)
            if step == 3:
                connected = sockets.enter_context(listening.accept()[0])
                connected.sendall(b"OK 1234\r\n")
        of_the_window = asyncio.all_tasks() - before
        assert of_the_window
        for each in of_the_window:
            each.cancel()
        await asyncio.gather(*of_the_window, return_exceptions=True)
        await asyncio.sleep(0)
    del of_the_window, each
    gc.collect()
    assert failed == []
