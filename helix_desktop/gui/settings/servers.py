"""MCP servers of a workspace: a command that is started, or an address. What they offer becomes tools of the agent."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from helix_desktop.errors import WrongUse
from helix_desktop.gui.asking import ask_yes
from helix_desktop.gui.doing import Doing
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.program import Installation
from helix_desktop.gui.words import tr


def server_table(where: str) -> dict[str, Any]:
    """What was typed, as workspace.toml keeps it: an address, or a command with its arguments."""
    if where.startswith(("http://", "https://")):
        return {"url": where}
    try:
        command, *arguments = shlex.split(where)
    except ValueError as error:
        raise WrongUse(tr("The command cannot be read: {why}.", why=error), remedy=tr("Close the quotes.")) from error
    return {"command": command, "args": arguments} if arguments else {"command": command}


def server_words(table: Mapping[str, Any]) -> str:
    """A server in a line."""
    if table.get("url"):
        return str(table["url"])
    return shlex.join([str(table.get("command", "")), *map(str, table.get("args", ()))])


class ServersPage(Page):
    def __init__(self, bench: Workbench, program: Installation, doing: Doing, parent: QWidget | None = None) -> None:
        super().__init__(tr("MCP servers"), parent)
        self._bench, self._program, self._doing = bench, program, doing
        self.sentence(tr("A server is a program of somebody else with your rights: add those you trust."))
        self._rows = QVBoxLayout()
        self.add_layout(self._rows)
        self.heading(tr("Add one"))
        line = QHBoxLayout()
        self._name = QLineEdit(self.inside)
        self._name.setPlaceholderText(tr("Name"))
        self._name.setAccessibleName(tr("Name"))
        self._name.setMaximumWidth(140)
        self._where = QLineEdit(self.inside)
        self._where.setPlaceholderText(tr("Command with arguments, or https://…"))
        self._where.setAccessibleName(tr("Command or address"))
        add = QPushButton(tr("Add"), self.inside)
        add.setAutoDefault(False)
        add.clicked.connect(self._ask)
        for widget in (self._name, self._where, add):
            line.addWidget(widget)
        self.add_layout(line)
        self._wrong = self.sentence("", "danger")
        self._fill()

    def _fill(self) -> None:
        while (item := self._rows.takeAt(0)) is not None:
            if (widget := item.widget()) is not None:
                widget.hide()
                widget.deleteLater()
        for name, table in self._program.chosen(self._bench).mcp.items():
            self._rows.addWidget(self._row(name, table))

    def _row(self, name: str, table: Mapping[str, Any]) -> QWidget:
        row = QWidget(self.inside)
        row.setProperty("look", "card")
        row.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        line = QHBoxLayout(row)
        line.setContentsMargins(12, 6, 6, 6)
        for text, look in ((name, ""), (server_words(table), "mono")):
            label = QLabel(text, row)
            label.setTextFormat(Qt.TextFormat.PlainText)
            label.setProperty("look", look)
            line.addWidget(label)
        line.addStretch(1)
        remove = QPushButton(tr("Remove"), row)
        remove.setProperty("look", "link")
        remove.setAutoDefault(False)
        remove.setAccessibleName(tr("Remove the server {name}", name=name))
        remove.clicked.connect(lambda _checked=False: self._write(name, None))
        line.addWidget(remove)
        return row

    def _ask(self) -> None:
        """The command exactly as it will be started is shown before it is kept."""
        name, where = self._name.text().strip(), self._where.text().strip()
        if not name.replace("-", "").replace("_", "").isalnum() or not where:
            self._wrong.setText(tr("A server needs a name of letters and digits, and a command or an address."))
            return
        try:
            table = server_table(where)
        except WrongUse as error:
            self._wrong.setText(str(error))
            return
        self._wrong.setText("")
        text = tr("It is started with your rights:\n\n{command}", command=server_words(table))
        ask_yes(self, tr("Add an MCP server"), text, tr("Add it"), lambda: self._write(name, table))

    def _write(self, name: str, table: dict[str, Any] | None) -> None:
        def done(_done: None) -> None:
            self._name.clear()
            self._where.clear()
            self._fill()

        work = self._program.change(self._bench, {f"mcp.{name}": table})
        self._doing.do(work, name="change the MCP servers", then=done, owner=self)
