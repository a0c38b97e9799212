"""MCP servers of a workspace: pasted in any form, shown as they will be started, started, switched off, removed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QTimer
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QLineEdit, QPlainTextEdit, QPushButton, QVBoxLayout

from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.questions import ask_yes
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.program import Installation, Server
from helix_desktop.gui.settings.server_card import ServerCard
from helix_desktop.gui.words import tr

EVERY = 1_000  # milliseconds; a server says in the background how it is


class ServersPage(Page):
    """What a server offers becomes tools of the agent."""

    def __init__(self, bench: Workbench, program: Installation, doing: Doing) -> None:
        super().__init__(tr("MCP servers"))
        self._bench, self._program, self._doing = bench, program, doing
        self._cards: dict[str, ServerCard] = {}
        self.sentence(
            tr("A server is third-party software that runs with your permissions. Add only servers you trust.")
        )
        self._rows = QVBoxLayout()
        self._rows.setContentsMargins(0, 8, 0, 0)
        self._rows.setSpacing(8)
        self.add_layout(self._rows)
        self._said = self.sentence("", "small")
        self.heading(tr("Add a server"))
        self._text = QPlainTextEdit(self.inside)
        self._text.setProperty("look", "mono")
        self._text.setPlaceholderText(tr("A command, an address, or the JSON from the server's documentation"))
        self._text.setAccessibleName(tr("Server configuration"))
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
            servers = self._program.servers(self._bench)
        except HelixError as error:
            self._wrong.setText(said(str(error)))
            return
        for name in [name for name in self._cards if name not in {server.name for server in servers}]:
            gone = self._cards.pop(name)
            self._rows.removeWidget(gone)
            gone.hide()
            gone.deleteLater()
        for server in servers:
            if server.name not in self._cards:
                self._cards[server.name] = ServerCard(self._work, self._do, self.inside)
                self._rows.addWidget(self._cards[server.name])
            self._cards[server.name].show_server(server)

    def _work(self, what: str, name: str, **given: Any) -> Coroutine[Any, Any, Any]:
        program, servers = self._program, self._bench.servers
        acts: dict[str, Callable[..., Coroutine[Any, Any, Any]]] = {
            "switch": servers.switch,
            "switch_tool": servers.switch_tool,
            "mark_reading": servers.mark_reading,
            "limit": servers.limit,
            "test": partial(program.test_server, self._bench),
            "restart": servers.restart,
            "sign_in": partial(program.sign_in_server, self._bench),
            "remove": servers.remove,
        }
        self._said.setText(tr("Testing {name}…", name=name) if what == "test" else "")
        return acts[what](name, **given)

    def _do(self, work: Coroutine[Any, Any, Any], then: Callable[[], object] = lambda: None) -> None:
        """Of what is done only a test has something to say."""
        self._wrong.setText("")

        def done(said: object) -> None:
            then()
            self._said.setText(said if isinstance(said, str) else "")
            self.refresh()

        def failed(error: HelixError) -> None:
            self._said.setText("")
            self._wrong.setText(said(str(error)))

        self._doing.do(work, name="change the MCP servers", then=done, owner=self, failed=failed)

    def _ask(self) -> None:
        """Everything exactly as it will be started is shown before it is kept."""
        text, name = self._text.toPlainText(), self._name.text().strip()
        try:
            servers = self._program.read_servers(text, name)
        except HelixError as error:
            self._wrong.setText(said(str(error)))
            return
        self._wrong.setText("")
        ask_yes(self, tr("Add MCP server"), _becomes(servers), tr("Add"), lambda: self._add(text, name))

    def _add(self, text: str, name: str) -> None:
        def clear() -> None:
            if self._text.toPlainText() == text:  # and not the next one
                self._text.clear()
                self._name.clear()

        self._do(self._bench.servers.paste(text, name), clear)


def _becomes(servers: Sequence[Server]) -> str:
    """What is done with each when it is kept."""
    lines: dict[bool, list[str]] = {False: [], True: []}
    for server in servers:
        far = server.words.startswith(("http://", "https://"))
        lines[far].append(f"{server.name}: {server.words}")
    started = tr("This server runs with your permissions:\n\n{command}", command="\n".join(lines[False]))
    asked = tr("The agent's requests are sent to:\n\n{address}", address="\n".join(lines[True]))
    return "\n\n".join(text for text, there in ((started, lines[False]), (asked, lines[True])) if there)
