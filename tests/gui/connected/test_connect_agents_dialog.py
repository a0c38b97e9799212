"""Connecting an agent: a line to copy, a switch, and what has arrived."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication, QLabel, QPlainTextEdit, QPushButton

from helix_desktop.errors import ActionRefused
from helix_desktop.gateway.agent_cost_and_savings import Figures
from helix_desktop.gui.common.consent_dialog import ConsentDialog
from helix_desktop.gui.connected.connect_agents_dialog import (
    ConnectAgentsDialog,
    FigureTile,
    describe_agent_activity,
)
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.program_settings import GATEWAY_ON, GATEWAY_SEND_TO
from helix_desktop.resident.connected_agents import AgentConnections, ConnectedAgentRow
from tests.gui.stand_in import StandIn


class Agents(StandIn):
    """One agent, and a gateway that does what it is told."""

    def __init__(self) -> None:
        self.on = False
        self.connected = False
        self.requests = 0
        self.earlier_requests = 0
        self.cost_per_request = 0.5
        self.too_large = 0
        self.is_started_elsewhere = False
        self.last_request_time = 0.0
        self.problem = ""
        self.switched: list[tuple[bool, str]] = []

    async def list_agent_connections(self) -> AgentConnections:
        n = self.requests
        row = ConnectedAgentRow(
            "claude",
            "Claude Code",
            "helix-desktop wrap claude",
            True,
            self.connected,
            n,
            1.0,
            "",
            1,
            100 * n,
            300 * n,
        )
        today = self.figures_of(n)
        until_now = self.figures_of(n + self.earlier_requests)
        address = "http://127.0.0.1:4356"
        return AgentConnections(
            address if self.on or self.is_started_elsewhere else "",
            [row],
            today,
            until_now,
            f"{address}/t/token" if self.on else "",
            self.last_request_time,
            "Claude Code",
            "api.openai.com",
            self.problem,
        )

    def figures_of(self, n: int) -> Figures:
        paid = self.cost_per_request * n
        return Figures(
            "", "", "", n, 100 * n, 300 * n, 50 * n, 3, paid, 1.5 * n, too_large=self.too_large
        )

    async def switch_gateway(self, *, on: bool, upstream: str = "") -> None:
        self.on = on
        self.switched.append((on, upstream))

    async def diff_of_planned_configuration(self, name: str) -> str:
        return "+ the address"

    async def toggle_agent_connection(self, name: str) -> None:
        self.connected = not self.connected


def open_dialog(window: MainWindow, agents: Agents) -> ConnectAgentsDialog:
    return ConnectAgentsDialog(
        window.theme, window, window.background_runner, agents, window.settings
    )


def words(dialog: ConnectAgentsDialog) -> str:
    return " ".join(label.text() for label in dialog.findChildren(QLabel))


def button(dialog: ConnectAgentsDialog, text: str) -> QPushButton:
    return next(each for each in dialog.findChildren(QPushButton) if each.text() == text)


def test_nothing_empty_is_shown_before_the_agents_are_known(window: MainWindow) -> None:
    """Four empty boxes and two empty command lines with a button to copy them stood there."""
    dialog = open_dialog(window, Agents())
    dialog.open()
    assert not any(tile.isVisible() for tile in dialog._tiles)
    assert not any(line.isVisible() for line in (dialog._once_line, *dialog._other_program_lines))


class NoAgents(Agents):
    """A computer on which none of the known agents is installed."""

    async def list_agent_connections(self) -> AgentConnections:
        connections = await super().list_agent_connections()
        (row,) = connections.agents
        command = "npm install -g @anthropic-ai/claude-code"
        return replace(connections, agents=[replace(row, installed=False, install_command=command)])


def test_the_line_for_a_terminal_stands_before_the_variables_where_no_agent_was_found(
    window: MainWindow,
) -> None:
    """The page was three environment variables. A terminal may find agents that the window does
    not: one of npm in a folder of its own was started at the first try.
    """
    dialog = open_dialog(window, NoAgents())
    dialog.open()
    dialog.refresh_connections()
    QApplication.processEvents()
    assert "These agents were not found on this computer: Claude Code." in words(dialog)
    assert dialog._cards == {}, "six dead cards stood above what can be used"
    assert dialog._once_line.line.text() == "helix-desktop wrap claude"
    assert "It works if your terminal finds the agent." in words(dialog)
    top_of_page = QPoint(0, 0)
    line_y = dialog._once_line.mapTo(dialog, top_of_page).y()
    assert line_y < dialog._other_program_lines[0].mapTo(dialog, top_of_page).y()
    dialog.reject()


def test_the_line_for_a_terminal_names_an_agent_that_was_found_and_the_others(
    window: MainWindow,
) -> None:
    dialog = open_dialog(window, TwoAgents())
    dialog.open()
    dialog.refresh_connections()
    assert dialog._once_line.line.text() == "helix-desktop wrap claude"
    assert "In place of claude: codex." in words(dialog)
    assert "if your terminal finds" not in words(dialog)
    dialog.reject()


def test_what_is_not_installed_stands_last_and_says_how_it_is_installed(
    window: MainWindow,
) -> None:
    dialog = open_dialog(window, NoAgents())
    dialog.open()
    dialog.refresh_connections()
    QApplication.processEvents()
    top_of_page = QPoint(0, 0)
    missing_y = dialog._missing.mapTo(dialog, top_of_page).y()
    assert missing_y > dialog._send_to.mapTo(dialog, top_of_page).y()
    assert not dialog._install_lines.isVisible()
    button(dialog, "How to install them").click()
    button_of_line = [
        each
        for each in dialog.findChildren(QPushButton)
        if each.accessibleName() == "Copy Claude Code"
    ]
    button_of_line[0].click()
    assert QGuiApplication.clipboard().text() == "npm install -g @anthropic-ai/claude-code"
    dialog.refresh_connections()
    assert dialog._install_lines.isVisible()
    dialog.reject()


def test_an_agent_that_was_found_has_a_card_and_the_others_one_line(window: MainWindow) -> None:
    dialog = open_dialog(window, TwoAgents())
    dialog.open()
    dialog.refresh_connections()
    assert list(dialog._cards) == ["claude"]
    assert "Not found on this computer: Codex" in words(dialog)
    dialog.reject()


class TwoAgents(Agents):
    """One is installed, one is not."""

    async def list_agent_connections(self) -> AgentConnections:
        connections = await super().list_agent_connections()
        missing = ConnectedAgentRow("codex", "Codex", "helix-desktop wrap codex")
        return replace(connections, agents=[missing, *connections.agents])


def test_the_switch_starts_the_gateway_and_the_first_request_is_seen(window: MainWindow) -> None:
    agents = Agents()
    dialog = open_dialog(window, agents)
    dialog.open()
    dialog.refresh_connections()
    assert "The gateway is off" in words(dialog)
    assert not any(tile.isVisible() for tile in dialog.findChildren(FigureTile))
    dialog.switch.click()
    assert agents.on
    assert "Gateway on 127.0.0.1:4356" in words(dialog)
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:4356/t/token" in words(dialog)
    agents.requests = 2
    dialog.refresh_connections()
    assert all(tile.isVisible() for tile in dialog.findChildren(FigureTile))
    assert "1 conversation today · 2 requests" in words(dialog)
    assert all(
        figure in words(dialog) for figure in ("$3.00", "$1.00", "$2.00", "67%, including recalls")
    )
    assert "context window without shortening" not in words(dialog)
    agents.too_large = 2
    dialog.refresh_connections()
    too_large = "2 requests would not fit into the model's context window without shortening"
    assert f"67%, including recalls · {too_large}" in words(dialog)
    # It is no total: runs of `wrap` in workspaces that the gateway has closed are not counted.
    assert "Today's total" not in words(dialog)
    assert "Counted: the workspaces that the gateway has open" in words(dialog)
    dialog.switch.click()
    assert not agents.on
    dialog.reject()


def test_a_line_can_be_copied_before_the_gateway_is_on(window: MainWindow) -> None:
    """Four paragraphs, and no line to copy until a button far above them had been found."""
    agents = NoAgents()
    dialog = open_dialog(window, agents)
    dialog.open()
    dialog.refresh_connections()
    assert "ANTHROPIC_BASE_URL=…" in words(dialog)
    assert "OPENAI_BASE_URL=…" in words(dialog)
    assert dialog.switch.property("look") == "primary"
    QGuiApplication.clipboard().clear()
    named = [
        each
        for each in dialog.findChildren(QPushButton)
        if each.accessibleName() == "Turn on and copy OPENAI_BASE_URL"
    ]
    named[0].click()
    assert agents.on
    line = "OPENAI_BASE_URL=http://127.0.0.1:4356/t/token/v1"
    assert QGuiApplication.clipboard().text() == line
    assert line in words(dialog)
    assert named[0].text() == "Copied"
    assert dialog.switch.property("look") == ""
    dialog.reject()


def test_what_the_page_is_for_is_said_in_three_lines_before_its_first_button(
    window: MainWindow,
) -> None:
    dialog = open_dialog(window, Agents())
    dialog.open()
    dialog.refresh_connections()
    QApplication.processEvents()
    first_button = button(dialog, "Connect…")
    height_before = first_button.mapTo(dialog, QPoint(0, 0)).y()
    read_before = [
        label.text()
        for label in dialog.findChildren(QLabel)
        if label.isVisible()
        and label.mapTo(dialog, QPoint(0, 0)).y() < height_before - 40
        and label.wordWrap()
    ]
    assert len(" ".join(read_before)) < 250, read_before
    dialog.reject()


def test_programs_for_each_api_get_an_address_and_the_last_request_is_the_proof(
    window: MainWindow,
) -> None:
    """Only programs for Anthropic's API got an address, and whether anything arrived was unsaid."""
    agents = Agents()
    dialog = open_dialog(window, agents)
    dialog.open()
    dialog.switch.click()
    assert "OPENAI_BASE_URL=http://127.0.0.1:4356/t/token/v1" in words(dialog)
    assert "GOOGLE_GEMINI_BASE_URL=http://127.0.0.1:4356/t/token" in words(dialog)
    assert dialog._last_request.text().startswith("No request has arrived yet. Start the agent")
    agents.last_request_time = time.time() - 10
    dialog.refresh_connections()
    arrived = "The first request has arrived: Claude Code is connected. Last request "
    assert dialog._last_request.text().startswith(arrived)
    assert dialog._last_request.property("look") == "accent"
    assert ", from Claude Code. It was passed on to api.openai.com." in dialog._last_request.text()
    assert "in the workspace “Connected agents”" in dialog._last_request.text()
    agents.problem = "api.openai.com answered with an error (status 401)."
    dialog.refresh_connections()
    assert dialog._last_request.text().endswith(agents.problem)
    dialog.switch.click()
    assert "ANTHROPIC_BASE_URL=…" in words(dialog), "that address is no longer answered"
    dialog.reject()


def test_a_gateway_that_another_program_started_can_be_turned_on_here(window: MainWindow) -> None:
    """As long as a wrap runs, there is an address, but none for other programs, and
    turning it off would do nothing.
    """
    agents = Agents()
    agents.is_started_elsewhere = True
    dialog = open_dialog(window, agents)
    dialog.open()
    dialog.refresh_connections()
    assert "Gateway on 127.0.0.1:4356" in words(dialog)
    assert dialog.switch.text() == "Turn on"
    assert "ANTHROPIC_BASE_URL=…" in words(dialog)
    dialog.switch.click()
    assert agents.on
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:4356/t/token" in words(dialog)
    dialog.reject()


def test_the_switch_says_what_it_does_and_cannot_be_pressed_twice(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turning the gateway on takes seconds, and a second press took it back."""
    agents = Agents()
    dialog = open_dialog(window, agents)
    seen: list[tuple[str, bool]] = []

    async def switch_gateway(*, on: bool, upstream: str = "") -> None:
        seen.append((dialog.switch.text(), dialog.switch.isEnabled()))
        if len(seen) == 2:
            raise ActionRefused("It cannot be turned off.")
        agents.on = on

    monkeypatch.setattr(agents, "switch_gateway", switch_gateway)
    dialog.open()
    dialog.refresh_connections()
    dialog.switch.click()
    assert dialog.switch.text() == "Turn off"
    dialog.switch.click()
    assert seen == [("Turning on…", False), ("Turning off…", False)]
    dialog.refresh_connections()
    assert dialog.switch.text() == "Turn off"
    assert dialog.switch.isEnabled()
    dialog.reject()


def test_the_line_of_an_agent_is_copied(window: MainWindow) -> None:
    dialog = open_dialog(window, Agents())
    dialog.open()
    dialog.refresh_connections()
    button(dialog, "Copy command").click()
    assert QGuiApplication.clipboard().text() == "helix-desktop wrap claude"
    assert button(dialog, "Copied").isVisible()
    dialog.reject()


def test_where_requests_go_is_said_and_can_be_changed(window: MainWindow) -> None:
    """The line worked for the real provider alone, and nothing said so."""
    agents = Agents()
    dialog = open_dialog(window, agents)
    dialog.open()
    dialog.refresh_connections()
    assert "api.anthropic.com, api.openai.com or generativelanguage" in words(dialog)
    dialog.switch.click()
    dialog._send_to.setText("nowhere")
    dialog._send_to.editingFinished.emit()
    assert "nowhere is not the address of a provider." in words(dialog)
    dialog._send_to.setText("http://127.0.0.1:11434/v1")
    dialog._send_to.editingFinished.emit()
    assert agents.switched == [(True, ""), (False, ""), (True, "http://127.0.0.1:11434/v1")]
    assert "Requests are passed on to http://127.0.0.1:11434/v1." in words(dialog)
    assert window.settings[GATEWAY_SEND_TO] == "http://127.0.0.1:11434/v1"
    dialog.reject()


def test_a_gateway_that_was_on_is_turned_on_again_at_the_next_start(window: MainWindow) -> None:
    """It was off after a restart, without a word."""
    dialog = open_dialog(window, Agents())
    dialog.open()
    dialog.refresh_connections()
    dialog.switch.click()
    assert window.settings[GATEWAY_ON]
    assert "is turned on again when it starts" in words(dialog)
    dialog.switch.click()
    assert not window.settings[GATEWAY_ON]
    dialog.reject()


def test_connecting_shows_the_difference_and_asks(window: MainWindow) -> None:
    agents = Agents()
    dialog = open_dialog(window, agents)
    dialog.open()
    dialog.refresh_connections()
    button(dialog, "Connect…").click()
    box = dialog.findChild(ConsentDialog)
    assert box is not None
    assert "+ the address" in box.findChildren(QPlainTextEdit)[0].toPlainText()
    assert not agents.connected
    next(each for each in box.findChildren(QPushButton) if each.text() == "Change the file").click()
    assert agents.connected
    assert "Waiting for the first request" in words(dialog)
    dialog.reject()


def test_an_agent_whose_last_request_was_not_answered_says_why() -> None:
    why = "company.example could not be reached (no route). Check the address and the proxy."
    row = ConnectedAgentRow("claude", "Claude Code", "", True, True, 7, 1.0, last_failure=why)
    assert describe_agent_activity(row, 2.0).startswith("7 requests · ")
    assert describe_agent_activity(row, 2.0).endswith(f"Not answered: {why}")
    assert "Not answered" not in describe_agent_activity(replace(row, last_failure=""), 2.0)


def test_an_agent_of_which_nothing_is_recorded_or_shortened_says_so() -> None:
    row = ConnectedAgentRow(
        "claude", "Claude Code", "", True, True, last_request_time=1.0, unread=2
    )
    assert describe_agent_activity(row, 2.0).startswith("2 requests went on unread · last request")
    row = replace(row, requests=1, unread=1)
    assert describe_agent_activity(row, 2.0).startswith("1 request · 1 request went on unread · ")
    why = "There is no preset 'layred'."
    assert describe_agent_activity(replace(row, reason_not_folded=why), 2.0) == (
        f"Not shortened: {why}"
    )
    why = "The agent is signed in with a subscription. More."
    assert describe_agent_activity(replace(row, reason_not_folded=why), 2.0) == (
        "Not shortened: the agent is signed in with a subscription"
    )


def test_an_agent_that_does_nothing_says_why() -> None:
    row = ConnectedAgentRow("pi", "pi", "helix-desktop wrap pi")
    assert describe_agent_activity(row, 0.0) == "Not found on this computer"


def test_what_arrived_before_is_not_called_the_first_request(window: MainWindow) -> None:
    agents = Agents()
    agents.last_request_time = time.time() - 10
    dialog = open_dialog(window, agents)
    dialog.open()
    dialog.switch.click()
    dialog.refresh_connections()
    assert dialog._last_request.text().startswith("Last request ")
    dialog.reject()


def test_who_connected_an_agent_yesterday_sees_first_what_came_of_it(window: MainWindow) -> None:
    """In the morning no figure stood there at all, below three lines about what a gateway is."""
    agents = Agents()
    agents.earlier_requests = 4
    dialog = open_dialog(window, agents)
    dialog.open()
    dialog.refresh_connections()
    QApplication.processEvents()
    assert "Until now (no request today)" in words(dialog)
    assert all(tile.isVisible() for tile in dialog._tiles)
    assert [tile._figure.text() for tile in dialog._tiles] == ["$4.00", "$2.00", "$6.00", "3"]
    top_of_page = QPoint(0, 0)
    explanation_y = dialog._explanation.mapTo(dialog, top_of_page).y()
    assert explanation_y > dialog._send_to.mapTo(dialog, top_of_page).y()
    agents.requests = 2
    dialog.refresh_connections()
    assert dialog._period.text() == "Today"
    assert dialog._saved._figure.text() == "$2.00"
    assert "Until now: $6.00 of $9.00 saved in 6 requests." in words(dialog)

    wanted = QSignalSpy(dialog.conversations_wanted)
    button(dialog, "Show their conversations").click()
    assert wanted.count() == 1
    assert not dialog.isVisible()


def test_the_figure_of_what_was_saved_is_an_answer_where_nothing_was(window: MainWindow) -> None:
    """The figure “Saved 0” 0" stood beside requests of which most had been left out."""
    agents = Agents()
    agents.on = True
    agents.requests = 2
    agents.cost_per_request = 1.5
    dialog = open_dialog(window, agents)
    dialog.open()

    def saved_tile() -> list[str]:
        dialog.refresh_connections()
        tile = dialog._saved
        return [tile._name.text(), tile._figure.text(), tile._note.text()]

    assert saved_tile() == ["Saved", "$0", "Nothing yet: short conversations are sent as they are."]
    agents.cost_per_request = 2.0
    loss = "Each time something is shortened, the provider charges the full price once for what follows."
    assert saved_tile() == ["Cost more", "$1.00", loss]
    agents.too_large = 2
    too_large = "2 requests would not fit into the model's context window without shortening"
    assert saved_tile() == ["Made possible", "2", too_large]
    dialog.reject()
