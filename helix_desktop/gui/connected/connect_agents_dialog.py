"""The dialog that connects agents: today's figures, a card for each agent, commands to
copy, and the gateway's switch.
"""

import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.state.token_ledger import LEAST_DOLLARS
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.consent_dialog import ConsentDialog, ConsentQuestion
from helix_desktop.gui.common.copy_with_sign import copy_and_say_so
from helix_desktop.gui.common.figure_formats import format_dollars, format_time_ago
from helix_desktop.gui.common.setting_fields import build_labelled_row
from helix_desktop.gui.context_meter import describe_token_count
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import format_count, format_number, format_percent, tr
from helix_desktop.program_settings import GATEWAY_ON, GATEWAY_SEND_TO, ProgramSettings
from helix_desktop.resident import connected_agents

WITH_SUBSCRIPTION = "The agent is signed in with a subscription."


class FigureTile(QWidget):
    """A tile with one figure, its name above and a note below."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        widgets.set_surface_look(self, "card")
        self._name = widgets.build_plain_label("", "small")
        self._figure = widgets.build_plain_label("", "large")
        self._note = widgets.build_plain_label("", "faint")
        labels = [self._name, self._figure, self._note]
        build_column(*labels, 1, owner=self, margins=(16, 12, 16, 12), spacing=2)
        self.hide()

    def show_figure(self, name: str, figure: str, note: str) -> None:
        self._name.setText(name)
        self._figure.setText(figure)
        self._note.setText(note)


class ConnectedAgentCard(QWidget):
    """`change_wanted`: the user wants to connect or disconnect the agent."""

    change_wanted = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        widgets.set_surface_look(self, "card")
        self.row = connected_agents.ConnectedAgentRow("", "", "")
        self._name = widgets.build_plain_label("", "title")
        self._state = widgets.build_plain_label("", "small")
        self._mark = widgets.build_plain_label(tr("connected"), "chip", wraps=False)
        self.copy = widgets.build_push_button(tr("Copy command"), self, self._copy_command)
        self.change = widgets.build_push_button("", self, self.change_wanted.emit)
        texts = widgets.build_surface(self, "plain")
        build_column(self._name, self._state, owner=texts, margins=0, spacing=2)
        buttons = [self.copy, self.change]
        margins = (16, 12, 16, 12)
        build_row(
            (texts, 1), self._mark, *buttons, owner=self, margins=margins, spacing=10, wraps=True
        )

    def _copy_command(self) -> None:
        copy_and_say_so(self.row.start_command, self.copy)

    def show_connected_agent(self, row: connected_agents.ConnectedAgentRow, now: float) -> None:
        """Shows an agent's state. Called every second while requests may arrive."""
        self._state.setText(describe_agent_activity(row, now))
        if row == self.row:
            return
        self.row = row
        if row.last_failure:
            set_widget_look(self._state, "danger")
        else:
            set_widget_look(self._state, "small")
        self._name.setText(row.title)
        self._mark.setVisible(row.connected)
        self.change.setVisible(row.installed or row.connected)
        self.copy.setVisible(row.installed)  # The command starts the agent.
        if row.connected:
            self.change.setText(tr("Disconnect…"))
        else:
            self.change.setText(tr("Connect…"))
        # An agent that is here and not connected is what the dialog is about.
        if row.installed and not row.connected:
            set_widget_look(self.change, "primary")
        else:
            set_widget_look(self.change, "")
        self.change.setAccessibleName(f"{self.change.text()} {row.title}")
        self.copy.setToolTip(safe_tooltip(row.start_command))
        self.copy.setAccessibleName(f"{self.copy.text()} {row.title}")


class CopyableCommandLine(QWidget):
    """`name`: what the command is for, if the line has to say it.

    `turn_on_wanted`: the user wants to copy a line whose address is known once the gateway is on.
    """

    turn_on_wanted = Signal()

    def __init__(self, parent: QWidget, name: str = "") -> None:
        super().__init__(parent)
        widgets.set_surface_look(self, "card")
        self.line = widgets.build_plain_label("", "mono")
        self.line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._is_complete = True
        self._copy = widgets.build_push_button(tr("Copy"), self, self._copy_line, "link")
        row = build_row((self.line, 1), self._copy, owner=self, margins=(12, 6, 6, 6), spacing=12)
        if name:
            row.insertWidget(0, widgets.build_plain_label(name, "", self, wraps=False))
            self._copy.setAccessibleName(f"{self._copy.text()} {name}")
        self.hide()  # Nothing can be copied until the agents are known.

    def _copy_line(self) -> None:
        if self._is_complete:
            self.copy_command_line()
        else:
            self.turn_on_wanted.emit()

    def copy_command_line(self) -> None:
        copy_and_say_so(self.line.text(), self._copy)

    def show_command_line(self, text: str) -> None:
        self.line.setText(text)
        self.setVisible(bool(text))

    def show_line_with_address(self, variable: "AddressVariable", address: str) -> None:
        """Shows how a program gets the gateway's address, or what is missing while it is off."""
        self._is_complete = bool(address)
        if address:
            self._copy.setText(tr("Copy"))
            self.show_command_line(f"{variable.name}={address}{variable.path}")
        else:
            self._copy.setText(tr("Turn on and copy"))
            self.show_command_line(f"{variable.name}=…")
        self._copy.setAccessibleName(f"{self._copy.text()} {variable.name}")


def describe_agent_activity(row: connected_agents.ConnectedAgentRow, now: float) -> str:
    if row.reason_not_folded and not row.last_failure:
        if row.reason_not_folded.startswith(WITH_SUBSCRIPTION):
            return tr("Not shortened: the agent is signed in with a subscription")
        return tr("Not shortened: {why}", why=translate_sentences(row.reason_not_folded))
    if row.requests or row.unread:
        return _describe_agent_requests(row, now)
    if row.connected:
        return tr("Connected. Waiting for the first request.")
    if row.installed:
        return tr("Found on this computer")
    return tr("Not found on this computer")


def _describe_agent_requests(row: connected_agents.ConnectedAgentRow, now: float) -> str:
    parts: list[str] = []
    if row.conversations:
        conversations = format_count(
            row.conversations, "{n} conversation today", "{n} conversations today"
        )
        parts.append(conversations)
    if row.requests:
        parts.append(format_count(row.requests, "{n} request", "{n} requests"))
    if row.unread:
        unread = format_count(
            row.unread, "{n} request went on unread", "{n} requests went on unread"
        )
        parts.append(unread)
    when = format_time_ago(row.last_request_time, now)
    parts.append(tr("last request {when}", when=when))
    if row.without > row.sent:
        saved_share = 1 - row.sent / row.without
        parts.append(tr("{share} saved", share=format_percent(saved_share)))
    if row.last_failure:
        why = translate_sentences(row.last_failure)
        parts.append(tr("Not answered: {why}", why=why))
    return " · ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class _BilledAmounts:
    """What was billed and what would have been, in dollars, or in tokens while no price is known.
    `least_shown`: a smaller difference is shown as none.
    """

    name_of_billed: str
    billed: float
    unchanged: float
    least_shown: float
    format_amount: Callable[[float], str]

    @classmethod
    def of_figures(cls, figures: connected_agents.AgentFigures) -> "_BilledAmounts":
        if figures.paid_without > 0:
            return cls(
                tr("Billed"), figures.paid, figures.paid_without, LEAST_DOLLARS, format_dollars
            )
        return cls(tr("Sent"), figures.sent, figures.without, 1, describe_token_count)


@dataclass(frozen=True, slots=True)
class AddressVariable:
    """The environment variable by which programs take a provider's address, and what the address
    ends with.
    """

    name: str
    path: str


VARIABLES_OF_OTHER_PROGRAMS = (
    AddressVariable("ANTHROPIC_BASE_URL", path=""),
    AddressVariable("OPENAI_BASE_URL", path="/v1"),
    AddressVariable("GOOGLE_GEMINI_BASE_URL", path=""),
)
MARGINS = (40, 28, 40, 28)
REFRESH_INTERVAL_MS = 1_000  # The interval between updates of the list of connections.


class ConnectAgentsDialog(widgets.TransientDialog):
    """The dialog updates itself every second while it is open. What agents have done stands first
    as soon as there is any; what the dialog is for is explained above it only until then.

    `conversations_wanted`: the user wants to see what the agents said.
    """

    conversations_wanted = Signal()

    def __init__(
        self,
        theme: Theme,
        parent: QWidget,
        runner: BackgroundRunner,
        agents: connected_agents.ConnectedAgents,
        settings: ProgramSettings,
    ) -> None:
        super().__init__(tr("Connect an agent"), parent, 1_060, 780)
        self._theme = theme
        self._settings = settings
        self._runner = runner
        self._agents = agents
        self._shown: connected_agents.AgentConnections | None = None
        self._shows_install_lines = False
        self._has_waited_for_first_request = False  # While this dialog is open.
        self._cards: dict[str, ConnectedAgentCard] = {}
        self.switch = widgets.build_push_button(tr("Turn on"), self, self._turn_gateway_on_or_off)
        self._address = widgets.build_plain_label(tr("The gateway is off"), "muted", wraps=False)
        self._address.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._error_label = widgets.build_plain_label("", "danger")
        self._error_label.hide()
        self._without = FigureTile(self)
        self._billed = FigureTile(self)
        self._saved = FigureTile(self)
        self._recalls = FigureTile(self)
        # Whoever connected an agent comes back to see whether it was worth it.
        self._tiles = (self._saved, self._billed, self._without, self._recalls)
        self._period = widgets.build_plain_label("", "heading")
        self._until_now = widgets.build_plain_label("", "")
        self._comparison = widgets.build_plain_label("", "small")
        for label in (self._period, self._until_now, self._comparison):
            label.hide()
        self._show_conversations = widgets.build_push_button(
            tr("Show their conversations"), self, self._go_to_conversations, "link"
        )
        self._show_conversations.hide()
        self._agent_column = build_column(spacing=10)
        # What cannot be used here stands last, and is one line until somebody wants to install it.
        self._missing = widgets.build_plain_label("", "muted")
        show_label = tr("How to install them")
        self._show_install_lines = widgets.build_push_button(
            show_label, self, self._unfold_install_lines, "link"
        )
        self._install_lines = widgets.build_surface(self, "plain")
        self._install_column = build_column(owner=self._install_lines, margins=0, spacing=8)
        self._install_lines.hide()
        self._once_title = widgets.build_plain_label(tr("Just once, from a terminal"), "heading")
        self._once_line = CopyableCommandLine(self)
        self._about_once = widgets.build_plain_label("", "muted")
        self._once_title.hide()
        self._about_once.hide()
        self._other_program_lines: list[CopyableCommandLine] = []
        # The line to be copied as soon as the gateway, which was turned on for it, has an address.
        self._line_to_copy: CopyableCommandLine | None = None
        for _variable in VARIABLES_OF_OTHER_PROGRAMS:
            line = CopyableCommandLine(self)
            line.turn_on_wanted.connect(partial(self._turn_on_and_copy, line))
            self._other_program_lines.append(line)
        self._last_request = widgets.build_plain_label("", "small")
        hint = tr(
            "The provider's own address. Or another server, such as http://127.0.0.1:11434/v1"
        )
        self._send_to = widgets.build_line_edit(tr("Send requests to"), hint, self)
        self._send_to.setText(settings[GATEWAY_SEND_TO])
        self._send_to.editingFinished.connect(self._change_server)
        self._lay_out_gateway_dialog()
        self._timer = QTimer(self, interval=REFRESH_INTERVAL_MS)
        self._timer.timeout.connect(self.refresh_connections)

    def _lay_out_gateway_dialog(self) -> None:
        explanation = tr("Keep using an agent that you know, such as Claude Code in a terminal. Its requests go through Helix Desktop, which shortens them and shows the agent's conversations here.")  # fmt: skip
        about_requests = tr("The gateway is the address on this computer that the requests pass through. What the agent sees is stored here. Short single questions without tools, such as one for a title, are passed on and not listed. Your key is passed on to the provider and is not stored.")  # fmt: skip
        title = widgets.build_plain_label(tr("Connect an agent"), "large")
        tiles_row = build_row(spacing=12)
        for tile in self._tiles:
            tiles_row.addWidget(tile, 1)
        title_row = build_row((title, 1), self._address, self.switch, spacing=14, wraps=True)
        self._explanation = widgets.build_plain_label(explanation, "muted")
        last_request_row = build_row((self._last_request, 1), self._show_conversations, wraps=True)
        missing_row = build_row((self._missing, 1), self._show_install_lines)
        page = widgets.build_surface(self, "page")
        column = build_column(
            title_row,
            self._explanation,
            last_request_row,
            self._error_label,
            self._period,
            tiles_row,
            self._until_now,
            self._comparison,
            self._agent_column,
            owner=page,
            margins=MARGINS,
            spacing=14,
        )
        column.addSpacing(4)
        column.addWidget(self._once_title)
        column.addWidget(self._once_line)
        column.addWidget(self._about_once)
        column.addSpacing(4)
        column.addWidget(widgets.build_plain_label(tr("Any other program"), "heading"))
        about_lines = tr("Before you start the program, set the variable for the API that it uses.")  # fmt: skip
        column.addWidget(widgets.build_plain_label(about_lines, "muted"))
        for line in self._other_program_lines:
            column.addWidget(line)
        send_to_row = build_labelled_row(
            tr("Send requests to"), "", self._send_to, page, below=True
        )
        column.addWidget(send_to_row)
        self._destinations = widgets.build_plain_label("", "muted")
        column.addWidget(self._destinations)
        self._show_destinations()
        column.addSpacing(4)
        column.addLayout(missing_row)
        column.addWidget(self._install_lines)
        # Who wants to connect an agent comes for a button. What it does exactly is read below.
        column.addWidget(widgets.build_plain_label(about_requests, "muted"))
        column.addStretch(1)
        self._column = column
        self._scroll_area = widgets.build_scroll_area(page, self)
        build_column(self._scroll_area, owner=self, margins=0)

    def refresh_connections(self) -> None:
        """Refreshes at once, and then every second."""
        self._timer.start()
        self._runner.run_in_background(
            self._agents.list_agent_connections(), then=self._show_connections, owner=self
        )

    def _show_connections(self, connections: connected_agents.AgentConnections) -> None:
        # The cards are updated even if nothing changed: "5 seconds ago" grows older by itself.
        self._show_cards_of_agents(connections.agents)
        self._show_last_request(connections)
        if connections == self._shown:
            return
        self._show_missing_agents(connections.agents)
        self._shown = connections

        _scheme, _slashes, address = connections.address.partition("//")
        if address:
            self._address.setText(tr("Gateway on {address}", address=address))
        else:
            self._address.setText(tr("The gateway is off"))
        self._show_switch(connections)
        self._show_lines_for_other_programs(connections.for_others)
        self._show_figures(connections)
        if connections.until_now.requests:
            self._move_explanation_to_the_end()

        self._show_line_for_terminal(connections.agents)

    def _show_cards_of_agents(self, rows: Sequence[connected_agents.ConnectedAgentRow]) -> None:
        for row in rows:
            card = self._cards.get(row.name)
            if card is None and _is_agent_present(row):
                card = self._build_card_of_agent(row)
            if card is not None:
                card.show_connected_agent(row, time.time())

    def _show_line_for_terminal(self, rows: Sequence[connected_agents.ConnectedAgentRow]) -> None:
        """Shows how an agent is started once. The shell that starts it may find agents that this
        window does not, for example those that a version manager adds to the PATH.
        """
        installed = [row for row in rows if row.installed]
        shown_row = (installed or rows)[0]
        others = ", ".join(row.name for row in rows if row is not shown_row)
        words: list[str] = []
        if not installed:
            words.append(tr("It works if your terminal finds the agent."))
        if others:
            words.append(tr("In place of {agent}: {others}.", agent=shown_row.name, others=others))
        self._once_line.show_command_line(shown_row.start_command)
        self._about_once.setText(join_sentences(*words))
        self._about_once.setVisible(bool(words))
        self._once_title.show()

    def _show_switch(self, connections: connected_agents.AgentConnections) -> None:
        if connections.for_others:
            self.switch.setText(tr("Turn off"))
            set_widget_look(self.switch, "")
            return
        self.switch.setText(tr("Turn on"))
        switch_look = "primary"
        for row in connections.agents:
            # Where an agent was found, the button on its card is what the dialog is about.
            if row.installed and not row.connected:
                switch_look = ""
        set_widget_look(self.switch, switch_look)

    def _show_lines_for_other_programs(self, address: str) -> None:
        """Shows a line for each API. Without an address, its button turns the gateway on first."""
        for number, line in enumerate(self._other_program_lines):
            line.show_line_with_address(VARIABLES_OF_OTHER_PROGRAMS[number], address)
        if address and self._line_to_copy is not None:
            self._line_to_copy.copy_command_line()
            self._line_to_copy = None

    def _turn_on_and_copy(self, line: CopyableCommandLine) -> None:
        self._line_to_copy = line
        if self.switch.isEnabled():  # Otherwise, it is being turned on already.
            self._turn_gateway_on_or_off()

    def _show_destinations(self) -> None:
        """Says where the requests of other programs go, and how long the gateway stays on."""
        lasting = tr("The gateway is on while Helix Desktop is open, and is turned on again when it starts, until you turn it off.")  # fmt: skip
        server = self._settings[GATEWAY_SEND_TO]
        if server:
            going = tr("Requests are passed on to {server}.", server=server)
        else:
            going = tr("Requests are passed on to the provider of the API: api.anthropic.com, api.openai.com or generativelanguage.googleapis.com.")  # fmt: skip
        self._destinations.setText(join_sentences(going, lasting))

    def _change_server(self) -> None:
        """Passes requests on to the server that was typed. A gateway that is on gets a new
        registration, at the same address.
        """
        server = self._send_to.text().strip()
        if server == self._settings[GATEWAY_SEND_TO]:
            return
        self._run_and_refresh(self._save_server_and_restart(server))

    async def _save_server_and_restart(self, server: str) -> None:
        connected_agents.check_server_of_requests(server)
        self._settings.change_setting(GATEWAY_SEND_TO, server)
        self._show_destinations()
        if self._settings[GATEWAY_ON]:
            await self._agents.switch_gateway(on=False)
            await self._agents.switch_gateway(on=True, upstream=server)

    def _show_last_request(self, connections: connected_agents.AgentConnections) -> None:
        """Says when something arrived last, which proves that an agent is connected."""
        self._last_request.setVisible(bool(connections.address))
        has_conversations = connections.until_now.requests > 0
        self._show_conversations.setVisible(has_conversations)
        if not connections.last_request_time:
            self._has_waited_for_first_request = True
            self._last_request.setText(tr("No request has arrived yet. Start the agent and ask it something: what arrives is shown here."))  # fmt: skip
            return
        when = format_time_ago(connections.last_request_time, time.time())
        words = tr("Last request {when}, from {agent}.")
        # The words are put together after the translation: a name may have braces in it.
        sentence = words.format(when=when, agent=connections.last_request_agent)
        if connections.last_request_host:
            passed_on = tr("It was passed on to {host}.", host=connections.last_request_host)
            sentence = join_sentences(sentence, passed_on)
        problem = translate_sentences(connections.last_request_problem)
        conversations = tr("Agents that you connect with a button have their conversations in the workspace “Connected agents”. An agent that you start in a terminal has them in the workspace of its folder.")  # fmt: skip
        look = "small"
        if self._has_waited_for_first_request:
            # Whoever has just connected an agent looks for this, and for nothing else.
            words = tr("The first request has arrived: {agent} is connected.")
            arrived = words.format(agent=connections.last_request_agent)
            sentence = join_sentences(arrived, sentence)
            look = "accent"
        self._last_request.setText(join_sentences(sentence, conversations, problem))
        if problem:
            look = "danger"
        set_widget_look(self._last_request, look)

    def _go_to_conversations(self) -> None:
        self.accept()
        self.conversations_wanted.emit()

    def _move_explanation_to_the_end(self) -> None:
        """Who has connected an agent knows what the dialog is for, and looks for what came of it."""
        before_stretch = self._column.count() - 1
        if self._column.indexOf(self._explanation) != before_stretch - 1:
            self._column.removeWidget(self._explanation)
            self._column.insertWidget(before_stretch - 1, self._explanation)

    def _show_missing_agents(self, agents: Sequence[connected_agents.ConnectedAgentRow]) -> None:
        missing = [row for row in agents if not _is_agent_present(row)]
        for row in agents:
            card = self._cards.get(row.name)
            if card is not None:
                card.setVisible(row not in missing)

        names = ", ".join(row.title for row in missing)
        if len(missing) == len(agents):
            sentence = tr("These agents were not found on this computer: {agents}. When you install one, a button to connect it appears here.")  # fmt: skip
        else:
            sentence = tr("Not found on this computer: {agents}")
        self._missing.setText(sentence.format(agents=names))
        self._missing.setVisible(bool(missing))

        clear_layout(self._install_column)
        for row in missing:
            line = CopyableCommandLine(self._install_lines, row.title)
            line.show_command_line(row.install_command)
            self._install_column.addWidget(line)
        self._install_lines.setVisible(bool(missing) and self._shows_install_lines)
        self._show_install_lines.setVisible(bool(missing) and not self._shows_install_lines)

    def _unfold_install_lines(self) -> None:
        self._shows_install_lines = True
        self._show_install_lines.hide()
        self._install_lines.show()
        widgets.run_after_events(self, self._scroll_to_install_lines)

    def _scroll_to_install_lines(self) -> None:
        self._scroll_area.ensureWidgetVisible(self._install_lines)

    def _show_figures(self, connections: connected_agents.AgentConnections) -> None:
        """Shows the figures of today, or of all time in the morning, before the first request."""
        today = connections.today
        until_now = connections.until_now
        figures = today
        self._period.setText(tr("Today"))
        if not today.requests:
            figures = until_now
            self._period.setText(tr("Until now (no request today)"))
        has_figures = figures.requests > 0
        for shown in (self._period, self._comparison, *self._tiles):
            shown.setVisible(has_figures)

        amounts = _BilledAmounts.of_figures(figures)
        self._show_saved_tile(figures, amounts)
        requests = format_count(figures.requests, "{n} request", "{n} requests")
        self._billed.show_figure(
            amounts.name_of_billed, amounts.format_amount(amounts.billed), requests
        )
        self._without.show_figure(
            tr("Without Helix Desktop"),
            amounts.format_amount(amounts.unchanged),
            tr("if everything had been sent"),
        )
        cached_share = 0.0
        if figures.sent:
            cached_share = figures.cache_read / figures.sent
        cached = tr("{share} resent at a reduced price", share=format_percent(cached_share))
        self._recalls.show_figure(
            tr("Outputs asked for again"), format_number(figures.recalls), cached
        )
        self._comparison.setText(
            tr(
                "Compared with sending everything, with a summary only when the model's context window is full. Counted: the workspaces that the gateway has open."
            )
        )
        self._show_sum_until_now(today.requests, until_now)

    def _show_saved_tile(
        self, figures: connected_agents.AgentFigures, amounts: "_BilledAmounts"
    ) -> None:
        """Says what came of shortening: saved, made possible, lost, or nothing so far."""
        saved = amounts.unchanged - amounts.billed
        too_large = format_count(
            figures.too_large,
            "{n} request would not fit into the model's context window without shortening",
            "{n} requests would not fit into the model's context window without shortening",
        )
        if saved >= amounts.least_shown:
            saved_share = format_percent(saved / amounts.unchanged)
            note = tr("{share}, including recalls", share=saved_share)
            if figures.too_large:
                # Nobody could have sent them as they came, so they are saved only in part.
                note = f"{note} · {too_large}"
            self._saved.show_figure(tr("Saved"), amounts.format_amount(saved), note)
        elif figures.too_large:
            # Beside what nobody could have sent, "Saved 0" would be no answer.
            made_possible = format_number(figures.too_large)
            self._saved.show_figure(tr("Made possible"), made_possible, too_large)
        elif saved <= -amounts.least_shown:
            note = tr("Each time something is shortened, the provider charges the full price once for what follows.")  # fmt: skip
            self._saved.show_figure(tr("Cost more"), amounts.format_amount(-saved), note)
        else:
            note = tr("Nothing yet: short conversations are sent as they are.")
            self._saved.show_figure(tr("Saved"), amounts.format_amount(0), note)

    def _show_sum_until_now(
        self, requests_of_today: int, until_now: connected_agents.AgentFigures
    ) -> None:
        """Says below the figures of today what was saved in all, if there was more than today."""
        has_earlier_requests = 0 < requests_of_today < until_now.requests
        amounts = _BilledAmounts.of_figures(until_now)
        saved = amounts.unchanged - amounts.billed
        is_shown = has_earlier_requests and saved >= amounts.least_shown
        self._until_now.setVisible(is_shown)
        if is_shown:
            sentence = tr(
                "Until now: {amount} of {without} saved in {requests}.",
                amount=amounts.format_amount(saved),
                without=amounts.format_amount(amounts.unchanged),
                requests=format_count(until_now.requests, "{n} request", "{n} requests"),
            )
            self._until_now.setText(sentence)

    def _build_card_of_agent(self, row: connected_agents.ConnectedAgentRow) -> ConnectedAgentCard:
        card = ConnectedAgentCard(self)
        self._cards[row.name] = card
        card.change_wanted.connect(lambda: self._fetch_and_confirm_connection_change(card.row))
        self._agent_column.addWidget(card)
        return card

    def _turn_gateway_on_or_off(self) -> None:
        # The gateway may run for other programs than the agents that are listed.
        is_on = self._shown is not None and bool(self._shown.for_others)
        # It takes seconds. A second press meanwhile would take it back.
        self.switch.setEnabled(False)
        if is_on:
            self.switch.setText(tr("Turning off…"))
        else:
            self.switch.setText(tr("Turning on…"))
        self._run_and_refresh(self._switch_and_remember(on=not is_on))

    async def _switch_and_remember(self, *, on: bool) -> None:
        """A gateway that is on is turned on again when the program starts."""
        try:
            await self._agents.switch_gateway(on=on, upstream=self._settings[GATEWAY_SEND_TO])
            self._settings.change_setting(GATEWAY_ON, on)
        finally:
            self._shown = None  # So that the button says again what it does.
            self.switch.setEnabled(True)

    def _fetch_and_confirm_connection_change(self, row: connected_agents.ConnectedAgentRow) -> None:
        self._runner.run_in_background(
            self._agents.diff_of_planned_configuration(row.name),
            then=partial(self._confirm_connection_change, row),
            failed=self._show_gateway_error,
            owner=self,
        )

    def _confirm_connection_change(
        self, row: connected_agents.ConnectedAgentRow, difference: str
    ) -> None:
        if row.connected:
            title = tr("Disconnect {agent}?", agent=row.title)
        else:
            title = tr("Connect {agent}?", agent=row.title)
        sentence = tr("This would change the agent's settings file:")

        question = ConsentQuestion(title, sentence, difference, tr("Change the file"))
        change = partial(self._toggle_connection, row)
        ConsentDialog(self._theme, question, self, change).open()

    def _toggle_connection(self, row: connected_agents.ConnectedAgentRow) -> None:
        self._run_and_refresh(self._agents.toggle_agent_connection(row.name))

    def _run_and_refresh(self, work: Coroutine[Any, Any, None]) -> None:
        self._error_label.hide()
        self._runner.run_in_background(
            work,
            then=lambda _: self.refresh_connections(),
            failed=self._show_gateway_error,
            owner=self,
        )

    def _show_gateway_error(self, error: HelixError) -> None:
        self._shown = None
        self._line_to_copy = None
        self._error_label.setText(translate_sentences(str(error)))
        self._error_label.show()


def _is_agent_present(row: connected_agents.ConnectedAgentRow) -> bool:
    return row.installed or row.connected or row.requests > 0
