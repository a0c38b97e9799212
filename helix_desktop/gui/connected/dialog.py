"""Connect an agent: what it came to today, a card for each agent with a button and a line to copy, the gateway's switch."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any

from PySide6.QtCore import QSize, Qt, QTimer
from PySide6.QtWidgets import QDialog, QHBoxLayout, QScrollArea, QVBoxLayout, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.connected.cards import AgentCard, CopyLine, Tile
from helix_desktop.gui.connected.port import AgentRow, ConnectedAgents, Connections, Today
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.meter import short
from helix_desktop.gui.questions import ask_yes
from helix_desktop.gui.shared.figures import money
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.words import count, numeral, percent, tr

WIDTH, HEIGHT = 1_060, 780
EVERY = 1_000  # milliseconds between two looks


class AgentsDialog(QDialog):
    """Looks every second while it is open."""

    def __init__(self, parent: QWidget, doing: Doing, agents: ConnectedAgents) -> None:
        super().__init__(parent)
        self._doing, self._agents = doing, agents
        self._shown: Connections | None = None
        self._cards: dict[str, AgentCard] = {}
        self.setWindowTitle(tr("Connect an agent"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(QSize(WIDTH, HEIGHT).boundedTo(self.screen().availableGeometry().size() * 0.92))
        self.switch = push_button(tr("Turn on"), self, self._switched)
        self._address, self._words = plain_label(tr("The gateway is off"), "muted"), plain_label("", "danger")
        self._address.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._address.setWordWrap(False)
        self._words.hide()
        self._tiles = self._without, self._billed, self._saved, self._recalls = [Tile(self) for _ in range(4)]
        self._of_agents = QVBoxLayout()
        self._of_agents.setSpacing(10)
        self._once, self._other = CopyLine(self), CopyLine(self)
        self._lay_out()
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY)
        self._timer.timeout.connect(self.look)

    def _lay_out(self) -> None:
        page = QWidget(self)
        page.setProperty("look", "page")
        column = QVBoxLayout(page)
        column.setContentsMargins(40, 28, 40, 28)
        column.setSpacing(14)
        column.addLayout(self._head())
        told = tr(
            "Set this address in an agent you already use. Helix Desktop stores what the agent sees, sends less, and shows you everything here. Your key passes through and is not stored."
        )
        column.addWidget(plain_label(told, "muted"))
        column.addWidget(self._words)
        tiles = QHBoxLayout()
        tiles.setSpacing(12)
        for tile in self._tiles:
            tiles.addWidget(tile, 1)
        column.addLayout(tiles)
        column.addLayout(self._of_agents)
        for words, line in ((tr("Just once, from a terminal"), self._once), (tr("Any other program"), self._other)):
            column.addSpacing(4)
            column.addWidget(plain_label(words, "heading"))
            column.addWidget(line)
        column.addStretch(1)
        area = QScrollArea(self)
        area.setWidgetResizable(True)
        area.setFrameShape(QScrollArea.Shape.NoFrame)
        area.setWidget(page)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(area)

    def _head(self) -> QHBoxLayout:
        head = QHBoxLayout()
        head.addWidget(plain_label(tr("Connect an agent"), "large"), 1)
        head.addWidget(self._address)
        head.addSpacing(8)
        head.addWidget(self.switch)
        return head

    def look(self) -> None:
        """How things stand, now and from now on."""
        self._timer.start()
        self._doing.do(self._agents.look(), name="look at the gateway", then=self._show, owner=self)

    def _show(self, found: Connections) -> None:
        for row in found.agents:
            self._card(row).show_row(row, time.time())
        if found == self._shown:
            return
        self._shown = found
        place = found.address.partition("//")[2]
        self._address.setText(tr("Gateway on {address}", address=place) if place else tr("The gateway is off"))
        self.switch.setText(tr("Turn off") if place else tr("Turn on"))
        self._show_today(found.today)
        self._once.show_line(next((row.line for row in found.agents if row.installed), found.agents[0].line))
        self._other.show_line(f"ANTHROPIC_BASE_URL={found.for_others}" if found.for_others else "")

    def _show_today(self, today: Today) -> None:
        for tile in self._tiles:
            tile.setVisible(today.requests > 0)
        paid = today.paid_without > 0
        whole, billed = (today.paid_without, today.paid) if paid else (today.without, today.sent)

        def told(amount: float) -> str:
            return money(amount) if paid else tr("{n} tokens", n=short(amount))

        saved = max(0.0, whole - billed)
        requests = count(today.requests, "{n} request", "{n} requests")
        self._without.show_figure(tr("Today, without Helix Desktop"), told(whole), tr("what the agents asked to send"))
        self._billed.show_figure(tr("Billed") if paid else tr("Sent"), told(billed), requests)
        share = percent(saved / whole) if whole else percent(0)
        self._saved.show_figure(tr("Saved"), told(saved), tr("{share}, including recalls", share=share))
        read = percent(today.cache_read / today.sent) if today.sent else percent(0)
        cached = tr("{share} read from the provider's cache", share=read)
        self._recalls.show_figure(tr("Recalls answered here"), numeral(today.recalls), cached)

    def _card(self, row: AgentRow) -> AgentCard:
        card = self._cards.get(row.name)
        if card is None:
            card = self._cards[row.name] = AgentCard(self)
            card.asked.connect(lambda: self._ask(card.row))
            self._of_agents.addWidget(card)
        return card

    # --- acts

    def _switched(self) -> None:
        on = self._shown is None or not self._shown.address
        self._do(self._agents.switch(on=on), "switch the gateway")

    def _ask(self, row: AgentRow) -> None:
        self._doing.do(
            self._agents.difference(row.name),
            name="what connecting changes",
            then=lambda text: self._confirm(row, text),
            failed=self._failed,
            owner=self,
        )

    def _confirm(self, row: AgentRow, difference: str) -> None:
        title = tr("Disconnect {agent}?") if row.connected else tr("Connect {agent}?")
        yes = tr("Change the file")
        ask_yes(
            self,
            title.format(agent=row.title),
            difference,
            yes,
            lambda: self._do(self._agents.change(row.name), "connect"),
        )

    def _do(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._words.hide()
        self._doing.do(work, name=name, then=lambda _: self.look(), failed=self._failed, owner=self)

    def _failed(self, error: HelixError) -> None:
        self._shown = None
        self._words.setText(said(str(error)))
        self._words.show()
