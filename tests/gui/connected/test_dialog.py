"""Connecting an agent: a line to copy, a switch, and what has arrived."""

from __future__ import annotations

from PySide6.QtWidgets import QLabel, QLineEdit, QMessageBox, QPushButton

from helix_desktop.gui.connected.dialog import AgentsDialog
from helix_desktop.gui.connected.port import AgentRow, Connections
from helix_desktop.gui.main_window import MainWindow


class Agents:
    """One agent, and a gateway that does what it is told."""

    def __init__(self) -> None:
        self.on = False
        self.connected = False
        self.requests = 0

    async def look(self) -> Connections:
        row = AgentRow("claude", "Claude Code", "helix-desktop wrap claude", True, self.connected, self.requests)
        return Connections("http://127.0.0.1:4356" if self.on else "", [row], 100 * self.requests, 300 * self.requests)

    async def switch(self, *, on: bool) -> None:
        self.on = on

    async def difference(self, name: str) -> str:
        return "+ the address"

    async def change(self, name: str) -> None:
        self.connected = not self.connected


def words(dialog: AgentsDialog) -> str:
    return " ".join(label.text() for label in dialog.findChildren(QLabel))


def test_the_switch_starts_the_gateway_and_the_first_request_is_seen(window: MainWindow) -> None:
    agents = Agents()
    dialog = AgentsDialog(window, window.doing, agents)
    dialog.open()
    dialog.look()
    assert not dialog.switch.isChecked()
    assert [line.text() for line in dialog.findChildren(QLineEdit)] == ["helix-desktop wrap claude"]
    dialog.switch.click()
    assert agents.on
    assert "127.0.0.1:4356" in words(dialog)
    agents.requests = 2
    dialog.look()
    assert "2 requests" in words(dialog)
    assert "200 tokens sent and not 600" in words(dialog)
    dialog.reject()


def test_connecting_shows_the_difference_and_asks(window: MainWindow) -> None:
    agents = Agents()
    dialog = AgentsDialog(window, window.doing, agents)
    dialog.open()
    dialog.look()
    next(button for button in dialog.findChildren(QPushButton) if button.text() == "Connect…").click()
    box = dialog.findChild(QMessageBox)
    assert box is not None
    assert "+ the address" in box.informativeText() + box.text() + box.detailedText()
    assert not agents.connected
    next(button for button in box.buttons() if button.text() == "Change the file").click()
    assert agents.connected
    assert "Waiting for the first request" in words(dialog)
    dialog.reject()
