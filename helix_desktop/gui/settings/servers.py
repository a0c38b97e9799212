"""MCP servers of a workspace: pasted in any form, shown as they will be started, started, switched off, removed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.asking import ask_yes
from helix_desktop.gui.doing import Doing
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.program import Installation, Server
from helix_desktop.gui.words import count, tr

EVERY = 1_000  # milliseconds; a server says in the background how it is


class ServersPage(Page):
    """What a server offers becomes tools of the agent."""

    def __init__(self, bench: Workbench, program: Installation, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(tr("MCP servers"), parent)
        self._bench, self._program, self._doing = bench, program, doing
        self._shown: tuple[Server, ...] | None = None
        self.sentence(tr("A server is a program of somebody else with your rights: add those you trust."))
        self._rows = QVBoxLayout()
        self.add_layout(self._rows)
        self.heading(tr("Add one"))
        self._text = QPlainTextEdit(self.inside)
        self._text.setProperty("look", "mono")
        self._text.setPlaceholderText(tr("A command, an address, or the JSON from the server's own page"))
        self._text.setAccessibleName(tr("Configuration of a server"))
        self._text.setTabChangesFocus(True)
        self._text.setFixedHeight(90)
        self.add(self._text)
        line = QHBoxLayout()
        self._name = QLineEdit(self.inside)
        self._name.setPlaceholderText(tr("Name (optional)"))
        self._name.setAccessibleName(tr("Name"))
        add = QPushButton(tr("Add"), self.inside)
        add.setAutoDefault(False)
        add.clicked.connect(self._ask)
        line.addWidget(self._name, 1)
        line.addWidget(add)
        self.add_layout(line)
        self._wrong = self.sentence("", "danger")
        self._again = QTimer(self, interval=EVERY)
        self._again.timeout.connect(self.refresh)
        self.refresh()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._again.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._again.stop()

    def refresh(self) -> None:
        """Show the servers anew, when something about them is different."""
        try:
            servers = tuple(self._program.servers(self._bench))
        except HelixError as error:
            self._wrong.setText(str(error))
            return
        if servers == self._shown:
            return
        self._shown = servers
        while (item := self._rows.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for server in servers:
            self._rows.addWidget(self._row(server))

    def _row(self, server: Server) -> QWidget:
        row = QWidget(self.inside)
        row.setProperty("look", "card")
        row.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        words = QVBoxLayout()
        words.setSpacing(1)
        for text, look in ((server.name, ""), (server.words, "mono"), (state_words(server), "small")):
            label = QLabel(text, row)
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setProperty("look", look)
            label.setWordWrap(True)
            words.addWidget(label)
        line = QHBoxLayout(row)
        line.setContentsMargins(12, 6, 6, 6)
        line.addLayout(words, 1)
        program, bench, name = self._program, self._bench, server.name
        switch = tr("Switch off") if server.enabled else tr("Switch on")
        self._button(line, switch, name, lambda: program.switch_server(bench, name, on=not server.enabled))
        if server.enabled:
            self._button(line, tr("Restart"), name, lambda: program.restart_server(bench, name))
        self._button(line, tr("Remove"), name, lambda: program.remove_server(bench, name))
        return row

    def _button(self, line: QHBoxLayout, text: str, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        button = QPushButton(text, self.inside)
        button.setProperty("look", "link")
        button.setAutoDefault(False)
        button.setAccessibleName(f"{text}: {name}")
        button.clicked.connect(lambda _checked=False: self._do(work()))
        line.addWidget(button)

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        def failed(error: HelixError) -> None:
            self._wrong.setText(str(error))

        self._doing.do(
            work, name="change the MCP servers", then=lambda _done: self.refresh(), owner=self, failed=failed
        )

    def _ask(self) -> None:
        """Everything exactly as it will be started is shown before it is kept."""
        text, name = self._text.toPlainText(), self._name.text().strip()
        try:
            servers = self._program.read_servers(text, name)
        except HelixError as error:
            self._wrong.setText(str(error))
            return
        self._wrong.setText("")
        shown = "\n".join(f"{server.name}: {server.words}" for server in servers)
        question = tr("It is started with your rights:\n\n{command}", command=shown)
        ask_yes(self, tr("Add an MCP server"), question, tr("Add it"), lambda: self._add(text, name))

    def _add(self, text: str, name: str) -> None:
        self._text.clear()
        self._name.clear()
        self._do(self._program.add_servers(self._bench, text, name))


def state_words(server: Server) -> str:
    """How a server is, in a line."""
    if not server.enabled:
        return tr("switched off")
    tools = count(server.tools, "{n} tool", "{n} tools") if server.tools else ""
    return " · ".join(filter(None, [server.state, tools, server.why]))
