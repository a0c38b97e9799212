"""Permissions of a workspace: the mode, and the rules that were made by saying "always"."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from helix_desktop.gui.background import Doing
from helix_desktop.gui.layouts import clear
from helix_desktop.gui.ports import ALLOW_ALL, Workbench
from helix_desktop.gui.questions import ask_allow_all
from helix_desktop.gui.settings.fields import Declared, Value, row
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.program import Installation
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.words import tr

DECISIONS = ("allow", "ask", "deny")


def rule_words(rule: Mapping[str, Any]) -> str:
    """A rule in a line: "allow · run_command · cargo test *"."""
    fits = [str(rule[name]) for name in ("tool", "path", "command") if rule.get(name)]
    network = [tr("with network access")] if rule.get("network") else []
    return " · ".join([str(rule.get("decision", "")), *(fits or [tr("everything")]), *network])


class PermissionsPage(Page):
    """`folder_wanted`: the workspace is to work on another folder."""

    folder_wanted = Signal()

    def __init__(self, bench: Workbench, program: Installation, doing: Doing) -> None:
        super().__init__(tr("Permissions"))
        self._bench, self._program, self._doing = bench, program, doing
        modes = bench.modes()
        declared = Declared(
            "mode",
            tr("Without asking"),
            tr("What the agent may do without asking. Reading files in the workspace never needs permission."),
            bench.mode,
            tuple(modes),
            [tr(words) for words in modes.values()],
        )
        self.add(row(declared, lambda value: self._choose(str(value)), self.inside))
        self.heading(tr("Folders"))
        for root in bench.workspace.settings.roots:
            self.sentence(root, "mono")
        folder = self.button(tr("Choose another folder…"))
        folder.clicked.connect(self.folder_wanted)
        self.heading(tr("Rules"))
        self.sentence(tr("Rules take precedence over the mode. “Always allow” adds a rule."))
        self._rules = QVBoxLayout()
        self.add_layout(self._rules)
        self.add_layout(self._adding())
        self._fill()
        self._access = program.command_access(bench)
        self._opened = list(self._access.opened)
        self._add_home()
        self._add_hidden()

    def _add_home(self) -> None:
        self.heading(tr("Your home folder"))
        self.sentence(
            tr(
                "In the sandbox, commands see none of your home folder but the workspace's folders, installed toolchains and your Git name. Here you can open more."
            )
        )
        for name, title, gives in self._access.openings:
            declared = Declared(name, tr(title), tr(gives), name in self._access.opened)
            self.add(row(declared, partial(self._open, name), self.inside))
        readable = Declared(
            "readable",
            tr("Folders that commands can read"),
            tr("One folder per line, such as ~/data. Commands can't change anything there."),
            "\n".join(self._access.readable),
            long=True,
        )
        self.add(row(readable, lambda text: self._write_lines("readable", str(text)), self.inside))

    def _add_hidden(self) -> None:
        self.heading(tr("Files that agents don't see"))
        declared = Declared(
            "hidden",
            "",
            tr(
                "One pattern per line, as in .gitignore. An agent can't read, list or change these files. A command that needs one asks you by name. Undo still covers them."
            ),
            "\n".join(self._access.hidden),
            long=True,
        )
        self.add(row(declared, lambda text: self._write_lines("hidden", str(text)), self.inside))

    def _open(self, name: str, value: Value) -> None:
        self._opened = [*(each for each in self._opened if each != name), *([name] if value else [])]
        work = self._bench.change({"permissions.openings": self._opened})
        self._doing.do(work, name="open or close something to commands", owner=self)

    def _write_lines(self, name: str, text: str) -> None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        work = self._bench.change({f"permissions.{name}": lines})
        self._doing.do(work, name="change what agents see", owner=self)

    def _choose(self, mode: str) -> None:
        def choose() -> None:
            self._doing.do(self._bench.choose_mode(mode), name="choose a mode", owner=self)

        if mode == ALLOW_ALL:
            ask_allow_all(self, choose).rejected.connect(self._show_mode)
        else:
            choose()

    def _show_mode(self) -> None:
        """As it is: the choice was not confirmed."""
        shown = self.findChild(QComboBox, "mode")
        if shown is not None:
            shown.setCurrentIndex(shown.findData(self._bench.mode))

    def _fill(self) -> None:
        clear(self._rules)
        rules = self._bench.workspace.settings.rules
        for rule in rules:
            self._rules.addWidget(self._row(rule))

    def _row(self, rule: Mapping[str, Any]) -> QWidget:
        row_widget = QWidget(self.inside)
        row_widget.setProperty("look", "card")
        row_widget.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        line = QHBoxLayout(row_widget)
        line.setContentsMargins(12, 4, 6, 4)
        line.addWidget(plain_label(rule_words(rule), "mono", row_widget, wraps=False), 1)
        if self._program.too_wide(rule):
            wide = QLabel(tr("Too broad: also allows other programs"), row_widget)
            wide.setProperty("look", "danger")
            line.addWidget(wide)
        remove = QPushButton(tr("Remove"), row_widget)
        remove.setProperty("look", "link")
        remove.setAutoDefault(False)
        remove.setAccessibleName(tr("Remove the rule {rule}", rule=rule_words(rule)))
        remove.clicked.connect(lambda _checked=False: self._remove(rule))
        line.addWidget(remove)
        return row_widget

    def _adding(self) -> QHBoxLayout:
        line = QHBoxLayout()
        self._decision = QComboBox(self.inside)
        for name, words in zip(DECISIONS, (tr("Allow"), tr("Ask"), tr("Deny")), strict=True):
            self._decision.addItem(words, name)
        self._decision.setAccessibleName(tr("Decision"))
        self._tool = QLineEdit(self.inside)
        self._tool.setPlaceholderText(tr("Tool, such as run_command"))
        self._tool.setAccessibleName(tr("Tool"))
        self._command = QLineEdit(self.inside)
        self._command.setPlaceholderText(tr("Command, such as cargo test *"))
        self._command.setAccessibleName(tr("Command"))
        add = QPushButton(tr("Add"), self.inside)
        add.setAutoDefault(False)
        add.clicked.connect(self._add)
        for widget in (self._decision, self._tool, self._command, add):
            line.addWidget(widget)
        return line

    def _add(self) -> None:
        given = {"tool": self._tool.text().strip(), "command": self._command.text().strip()}
        rule = {"decision": str(self._decision.currentData()), **{name: text for name, text in given.items() if text}}
        if len(rule) > 1:
            self._tool.clear()
            self._command.clear()
            self._write([*self._bench.workspace.settings.rules, rule])

    def _remove(self, rule: Mapping[str, Any]) -> None:
        """By what it says: others may have come or gone since it was shown."""
        rules = list(self._bench.workspace.settings.rules)
        if rule in rules:
            rules.remove(rule)
            self._write(rules)

    def _write(self, rules: list[Mapping[str, Any]]) -> None:
        work = self._bench.change({"permissions.rules": [dict(rule) for rule in rules]})
        self._doing.do(work, name="change the rules", then=lambda _done: self._fill(), owner=self)
