"""All shortcuts, and how to change them."""

from __future__ import annotations

from functools import partial

from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QGridLayout, QKeySequenceEdit, QLabel, QLineEdit

from helix_desktop.gui.actions import Actions
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.words import tr


class ShortcutsPage(Page):
    """One line for each action. A shortcut that another action had is taken from it, and that is said."""

    def __init__(self, actions: Actions) -> None:
        super().__init__(tr("Shortcuts"))
        self._actions = actions
        self._edits: dict[str, QKeySequenceEdit] = {}
        self._said = self.sentence(
            tr("To set a shortcut, click its field and press the keys. To remove it, clear the field.")
        )
        group = ""
        grid = QGridLayout()
        for each in actions:
            if each.group != group:
                group = each.group
                self.heading(group)
                grid = QGridLayout()
                grid.setColumnStretch(0, 1)
                self.add_layout(grid)
            self._add(grid, each.id, each.title)
        again = self.button(tr("Reset all"))
        again.clicked.connect(self._reset)

    def _add(self, grid: QGridLayout, name: str, title: str) -> None:
        edit = QKeySequenceEdit(self._actions[name].shortcut(), self.inside)
        edit.setMaximumSequenceLength(1)
        edit.setClearButtonEnabled(True)
        if (line_edit := edit.findChild(QLineEdit)) is not None:
            line_edit.setPlaceholderText(tr("Press keys"))
        edit.setAccessibleName(tr("Shortcut for {action}", action=title))
        edit.editingFinished.connect(partial(self._changed, name))
        self._edits[name] = edit
        line = grid.rowCount()
        grid.addWidget(QLabel(title, self.inside), line, 0)
        grid.addWidget(edit, line, 1)

    def _changed(self, name: str) -> None:
        sequence = self._edits[name].keySequence()
        if sequence == self._actions[name].shortcut():
            return
        robbed = self._actions.change(name, sequence)
        self._said.setText(tr("“{action}” no longer has a shortcut.", action=robbed) if robbed else tr("Changed."))
        self._show()

    def _reset(self) -> None:
        self._actions.reset()
        self._said.setText(tr("All shortcuts were reset."))
        self._show()

    def _show(self) -> None:
        for name, edit in self._edits.items():
            edit.setKeySequence(QKeySequence(self._actions[name].shortcut()))
