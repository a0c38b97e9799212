"""Connect an agent: a line to copy or a button to press for each, the switch of the gateway, and what has arrived."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.connected.port import AgentRow, ConnectedAgents, Connections
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.layouts import clear
from helix_desktop.gui.questions import ask_yes
from helix_desktop.gui.words import tr

WIDTH, HEIGHT = 760, 440
EVERY = 1_000  # milliseconds between two looks


class AgentsDialog(QDialog):
    """Looks every second while it is open."""

    def __init__(self, parent: QWidget, doing: Doing, agents: ConnectedAgents) -> None:
        super().__init__(parent)
        self._doing, self._agents = doing, agents
        self._shown: Connections | None = None
        self.setWindowTitle(tr("Connect an agent"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(WIDTH, HEIGHT)
        self.switch = QCheckBox(tr("Gateway on"), self)
        self.switch.toggled.connect(self._switched)
        self._address, self._words = _label("", "small"), _label("", "small")
        self._address.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._rows = QGridLayout()
        self._rows.setVerticalSpacing(8)
        self._rows.setColumnStretch(1, 1)
        close = self._button(tr("Close"), self.reject)
        head, foot = QHBoxLayout(), QHBoxLayout()
        head.addWidget(self.switch)
        head.addWidget(self._address, 1)
        foot.addWidget(self._words, 1)
        foot.addWidget(close)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 16)
        column.setSpacing(12)
        column.addWidget(_label(tr("Use the agents you already have"), "title"))
        told = tr(
            "Their requests become smaller, and everything can be seen and undone here. Start one with its line, or connect it for every run."
        )
        column.addWidget(_label(told, ""))
        column.addLayout(head)
        column.addLayout(self._rows)
        column.addStretch(1)
        column.addLayout(foot)
        self._timer = QTimer(self)
        self._timer.setInterval(EVERY)
        self._timer.timeout.connect(self.look)

    def look(self) -> None:
        """How things stand, now and from now on."""
        self._timer.start()
        self._doing.do(self._agents.look(), name="look at the gateway", then=self._show, owner=self)

    def _show(self, found: Connections) -> None:
        if found == self._shown:
            return
        self._shown = found
        self.switch.blockSignals(True)
        self.switch.setChecked(bool(found.address))
        self.switch.blockSignals(False)
        self._address.setText(found.address)
        saved = tr("{sent} tokens sent and not {without}").format(sent=f"{found.sent:,}", without=f"{found.without:,}")
        self._words.setText(saved if found.without else "")
        clear(self._rows)
        for number, row in enumerate(found.agents):
            self._add(number, row)

    def _add(self, number: int, row: AgentRow) -> None:
        line = QLineEdit(row.line, self)
        line.setReadOnly(True)
        line.setAccessibleName(row.title)
        line.setCursorPosition(0)
        copy = self._button(tr("Copy"), lambda: QGuiApplication.clipboard().setText(row.line))
        change = self._button(tr("Disconnect…") if row.connected else tr("Connect…"), lambda: self._ask(row))
        for place, widget in enumerate((_label(row.title, ""), line, copy, change, _label(_state(row), "small"))):
            self._rows.addWidget(widget, number, place)

    def _button(self, text: str, act: Callable[[], object]) -> QPushButton:
        button = QPushButton(text, self)
        button.setAutoDefault(False)
        button.clicked.connect(lambda _checked=False: act())
        return button

    # --- acts

    def _switched(self, on: bool) -> None:  # noqa: FBT001 - a slot
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
        self._doing.do(work, name=name, then=lambda _: self.look(), failed=self._failed, owner=self)

    def _failed(self, error: HelixError) -> None:
        self._shown = None
        self._words.setText(said(str(error)))


def _state(row: AgentRow) -> str:
    if row.unfolded:
        return tr("Not folded: it is logged in with a subscription")
    if row.requests:
        return tr("{count} requests").format(count=f"{row.requests:,}")
    if row.connected:
        return tr("Connected. Waiting for the first request.")
    return "" if row.installed else tr("Not found on this computer")


def _label(text: str, look: str) -> QLabel:
    label = QLabel(text)
    label.setWordWrap(True)
    if look:
        label.setProperty("look", look)
    return label
