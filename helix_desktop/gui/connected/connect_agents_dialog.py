"""The dialog that connects agents: today's figures, a card for each agent, commands to
copy, and the gateway's switch.
"""

import time
from collections.abc import Coroutine
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.consent_dialog import ConsentDialog, ConsentQuestion
from helix_desktop.gui.common.figure_formats import format_dollars, format_time_ago
from helix_desktop.gui.context_meter import describe_token_count
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import format_count, format_number, format_percent, tr
from helix_desktop.resident import connected_agents


class FigureTile(QWidget):
    """A tile with one figure, its name above and a note below."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        widgets.set_surface_look(self, "card")
        self._labels = [widgets.build_plain_label("", look) for look in ("small", "large", "faint")]
        build_column(*self._labels, 1, owner=self, margins=(16, 12, 16, 12), spacing=2)
        self.hide()

    def show_figure(self, name: str, figure: str, below: str) -> None:
        for label, words in zip(self._labels, (name, figure, below), strict=True):
            label.setText(words)


class ConnectedAgentCard(QWidget):
    """`change_wanted`: the user wants to connect or disconnect the agent."""

    change_wanted = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        widgets.set_surface_look(self, "card")
        self.row = connected_agents.ConnectedAgentRow("", "", "")
        self._name, self._state = (
            widgets.build_plain_label("", look) for look in ("title", "small")
        )
        self._mark = widgets.build_plain_label(tr("connected"), "chip", wraps=False)
        self.copy = widgets.build_push_button(
            tr("Copy command"),
            self,
            lambda: QGuiApplication.clipboard().setText(self.row.start_command),
        )
        self.change = widgets.build_push_button("", self, self.change_wanted.emit)
        words = widgets.build_surface(self, "plain")
        build_column(self._name, self._state, owner=words, margins=0, spacing=2)
        parts = ((words, 1), self._mark, self.copy, self.change)
        build_row(*parts, owner=self, margins=(16, 12, 16, 12), spacing=10, wraps=True)

    def show_connected_agent(self, row: connected_agents.ConnectedAgentRow, now: float) -> None:
        """Shows an agent's state. Called every second while requests may arrive."""
        self._state.setText(describe_agent_activity(row, now))
        if row == self.row:
            return
        self.row = row
        set_widget_look(self._state, "danger" if row.last_failure else "small")
        self._name.setText(row.title)
        self._mark.setVisible(row.connected)
        self.change.setVisible(row.installed or row.connected)
        self.change.setText(tr("Disconnect…") if row.connected else tr("Connect…"))
        set_widget_look(self.change, "primary" if row.installed and not row.connected else "")
        self.change.setAccessibleName(f"{self.change.text()} {row.title}")
        self.copy.setToolTip(safe_tooltip(row.start_command))
        self.copy.setAccessibleName(f"{self.copy.text()} {row.title}")


class CopyableCommandLine(QWidget):
    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        widgets.set_surface_look(self, "card")
        self.line = widgets.build_plain_label("", "mono")
        self.line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._copy = widgets.build_push_button(
            tr("Copy"), self, lambda: QGuiApplication.clipboard().setText(self.line.text()), "link"
        )
        build_row((self.line, 1), self._copy, owner=self, margins=(12, 6, 6, 6))
        self.show_command_line("")  # Nothing can be copied until the agents are known.

    def show_command_line(self, text: str) -> None:
        self.line.setText(text or tr("Turn the gateway on to see its address."))
        self._copy.setVisible(bool(text))


def describe_agent_activity(row: connected_agents.ConnectedAgentRow, now: float) -> str:
    if row.reason_not_folded and not row.last_failure:
        return tr("Not folded: the agent is signed in with a subscription")
    if row.requests:
        today = format_count(row.conversations, "{n} conversation today", "{n} conversations today")
        parts = [
            today if row.conversations else "",
            format_count(row.requests, "{n} request", "{n} requests"),
            tr("last request {when}", when=format_time_ago(row.last_request_time, now)),
            tr("{share} saved", share=format_percent(1 - row.sent / row.without))
            if row.without > row.sent
            else "",
            tr("Not answered: {why}", why=translate_sentences(row.last_failure))
            if row.last_failure
            else "",
        ]
        return " · ".join(filter(None, parts))
    if row.connected:
        return tr("Connected. Waiting for the first request.")
    return tr("Found on this computer") if row.installed else tr("Not found on this computer")


MARGINS = (40, 28, 40, 28)
REFRESH_INTERVAL_MS = 1_000  # The interval between updates of the list of connections.


class ConnectAgentsDialog(widgets.TransientDialog):
    """The dialog updates itself every second while it is open."""

    def __init__(
        self,
        theme: Theme,
        parent: QWidget,
        doing: BackgroundRunner,
        agents: connected_agents.ConnectedAgents,
    ) -> None:
        super().__init__(tr("Connect an agent"), parent, 1_060, 780)
        self._theme = theme
        self._doing = doing
        self._agents = agents
        self._shown: connected_agents.AgentConnections | None = None
        self._shows_missing = False
        self._cards: dict[str, ConnectedAgentCard] = {}
        self.switch = widgets.build_push_button(tr("Turn on"), self, self._turn_gateway_on_or_off)
        self._address = widgets.build_plain_label(tr("The gateway is off"), "muted", wraps=False)
        self._address.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._words = widgets.build_plain_label("", "danger")
        self._words.hide()
        self._tiles = self._without, self._billed, self._saved, self._recalls = [
            FigureTile(self) for _ in range(4)
        ]
        self._agent_column = build_column(spacing=10)
        self._missing = widgets.build_plain_label("", "muted")
        self._show_missing = widgets.build_push_button(
            tr("Show these agents"), self, self._show_missing_agents, "link"
        )
        self._once_line, self._other_program_line = (
            CopyableCommandLine(self),
            CopyableCommandLine(self),
        )
        self._lay_out_gateway_dialog()
        self._timer = QTimer(self, interval=REFRESH_INTERVAL_MS)
        self._timer.timeout.connect(self.refresh_connections)

    def _lay_out_gateway_dialog(self) -> None:
        told = tr("Turn on the gateway, and set its address in an agent you already use. Helix Desktop then stores what the agent sees, sends less of it to the provider, and shows you everything here. Your key is passed on to the provider and is not stored.")  # fmt: skip
        about = widgets.build_plain_label(told, "muted")
        page = widgets.build_surface(self, "page")
        tiles = build_row(*((tile, 1) for tile in self._tiles), spacing=12)
        agents = self._agent_column, build_row((self._missing, 1), self._show_missing)
        title = (widgets.build_plain_label(tr("Connect an agent"), "large"), 1)
        head = (
            build_row(title, self._address, self.switch, spacing=14, wraps=True),
            about,
            self._words,
        )
        column = build_column(*head, tiles, *agents, owner=page, margins=MARGINS, spacing=14)
        for words, line in (
            (tr("Just once, from a terminal"), self._once_line),
            (tr("Any other program"), self._other_program_line),
        ):
            column.addSpacing(4)
            column.addWidget(widgets.build_plain_label(words, "heading"))
            column.addWidget(line)
        column.addStretch(1)
        build_column(widgets.build_scroll_area(page, self), owner=self, margins=0)

    def refresh_connections(self) -> None:
        """Refreshes at once, and then every second."""
        self._timer.start()
        self._doing.run_in_background(
            self._agents.list_agent_connections(), then=self._show_connections, owner=self
        )

    def _show_connections(self, found: connected_agents.AgentConnections) -> None:
        for row in sorted(found.agents, key=lambda row: not _is_agent_present(row)):
            self._get_or_build_card_of_agent(row).show_connected_agent(row, time.time())
        if found == self._shown:
            return
        missing = (
            [row for row in found.agents if not _is_agent_present(row)]
            if not self._shows_missing
            else []
        )
        for row in found.agents:
            self._cards[row.name].setVisible(row not in missing)
        names = ", ".join(row.title for row in missing)
        self._missing.setText(tr("Not found on this computer: {agents}", agents=names))
        for part in (self._missing, self._show_missing):
            part.setVisible(bool(missing))
        self._shown = found
        place = found.address.partition("//")[2]
        self._address.setText(
            tr("Gateway on {address}", address=place) if place else tr("The gateway is off")
        )
        self.switch.setText(tr("Turn off") if found.for_others else tr("Turn on"))
        self._show_figures_of_today(found)
        installed = (row.start_command for row in found.agents if row.installed)
        self._once_line.show_command_line(next(installed, found.agents[0].start_command))
        self._other_program_line.show_command_line(
            f"ANTHROPIC_BASE_URL={found.for_others}" if found.for_others else ""
        )

    def _show_missing_agents(self) -> None:
        self._shows_missing, self._shown = True, None
        self.refresh_connections()

    def _show_figures_of_today(self, found: connected_agents.AgentConnections) -> None:
        today = found.today
        for tile in self._tiles:
            tile.setVisible(today.requests > 0)
        paid = today.paid_without > 0
        whole, billed = (today.paid_without, today.paid) if paid else (today.without, today.sent)

        def format_amount(amount: float) -> str:
            return format_dollars(amount) if paid else describe_token_count(amount)

        saved = max(0.0, whole - billed)
        requests = format_count(today.requests, "{n} request", "{n} requests")
        own = tr(
            "if requests had been sent unchanged. Counted: the workspaces that the gateway has open"
        )
        self._without.show_figure(tr("Today without Helix Desktop"), format_amount(whole), own)
        self._billed.show_figure(
            tr("Billed") if paid else tr("Sent"), format_amount(billed), requests
        )
        share = format_percent(saved / whole) if whole else format_percent(0)
        self._saved.show_figure(
            tr("Saved"), format_amount(saved), tr("{share}, including recalls", share=share)
        )
        read = format_percent(today.cache_read / today.sent) if today.sent else format_percent(0)
        cached = tr("{share} read from the provider's cache", share=read)
        self._recalls.show_figure(
            tr("Recall requests answered from the cache"), format_number(today.recalls), cached
        )

    def _get_or_build_card_of_agent(
        self, row: connected_agents.ConnectedAgentRow
    ) -> ConnectedAgentCard:
        card = self._cards.get(row.name)
        if card is None:
            card = self._cards[row.name] = ConnectedAgentCard(self)
            card.change_wanted.connect(lambda: self._fetch_and_confirm_connection_change(card.row))
            self._agent_column.addWidget(card)
        return card

    def _turn_gateway_on_or_off(self) -> None:
        on = self._shown is None or not self._shown.for_others  # It may run for others.
        self._run_and_refresh(self._agents.switch_gateway(on=on))

    def _fetch_and_confirm_connection_change(self, row: connected_agents.ConnectedAgentRow) -> None:
        self._doing.run_in_background(
            self._agents.diff_of_planned_configuration(row.name),
            then=lambda text: self._confirm_connection_change(row, text),
            failed=self._show_gateway_error,
            owner=self,
        )

    def _confirm_connection_change(
        self, row: connected_agents.ConnectedAgentRow, difference: str
    ) -> None:
        change = partial(self._agents.toggle_agent_connection, row.name)
        title = (tr("Disconnect {agent}?") if row.connected else tr("Connect {agent}?")).format(
            agent=row.title
        )
        sentence = tr("This would change the agent's settings file:")

        def change_the_file() -> None:
            self._run_and_refresh(change())

        question = ConsentQuestion(title, sentence, difference, tr("Change the file"))
        ConsentDialog(self._theme, question, self, change_the_file).open()

    def _run_and_refresh(self, work: Coroutine[Any, Any, None]) -> None:
        self._words.hide()
        self._doing.run_in_background(
            work,
            then=lambda _: self.refresh_connections(),
            failed=self._show_gateway_error,
            owner=self,
        )

    def _show_gateway_error(self, error: HelixError) -> None:
        self._shown = None
        self._words.setText(translate_sentences(str(error)))
        self._words.show()


def _is_agent_present(row: connected_agents.ConnectedAgentRow) -> bool:
    return row.installed or row.connected or row.requests > 0
