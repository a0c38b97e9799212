"""The page of all shortcuts, which can be changed."""

import re
from functools import partial

from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QKeySequenceEdit, QLineEdit

from helix_desktop.gui.common.setting_fields import FIELD_WIDTH_IN_LINES
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_actions import ActionRegistry

# The shortcuts that are allowed: none, a function key, Esc, or a key with Ctrl, Alt or Meta. Letters
# are for typing, and arrow keys and Tab move through the page.
_SHORTCUT = re.compile(r"(|(Shift\+)?F\d+|Esc|.*(Ctrl|Alt|Meta)\+.+)")


class ShortcutsPage(SettingsPage):
    """One line for each action of the menus, and for each other one that has a shortcut. An action
    whose shortcut is given to another one loses it.
    """

    def __init__(self, actions: ActionRegistry) -> None:
        super().__init__(tr("Shortcuts"))
        self._actions = actions
        self._edits: dict[str, QKeySequenceEdit] = {}
        introduction = tr(
            "To set a shortcut, click its field and press the keys. To remove a shortcut, clear its field."
        )
        self._status_label = self.add_sentence(introduction)
        count = len(actions.list_actions_with_shortcuts())
        # The list is longer than the rest of the page that it is a section of.
        self._whole_list = self.add_folded_area(
            tr("Show the {n} actions and their shortcuts", n=count)
        )
        self._rows = build_column(owner=self._whole_list, margins=0, spacing=4)
        last_group = ""
        for action in actions.list_actions_with_shortcuts():
            if action.group != last_group:
                heading = build_plain_label(action.group, "heading", self._whole_list)
                heading.setContentsMargins(0, 16, 0, 2)
                self._rows.addWidget(heading)
                last_group = action.group
            self._add_shortcut_row(action.id, action.title)
        reset = build_push_button(tr("Reset all"), self._whole_list, self._reset_shortcuts)
        self._rows.addLayout(build_row(reset, 1))
        self._show_shortcuts()

    def _add_shortcut_row(self, name: str, title: str) -> None:
        edit = QKeySequenceEdit(self._actions[name].shortcut(), self._whole_list)
        edit.setMaximumSequenceLength(1)
        edit.setClearButtonEnabled(True)
        edit.setMaximumWidth(FIELD_WIDTH_IN_LINES * edit.fontMetrics().height())
        edit.setAccessibleName(tr("Shortcut for {action}", action=title))
        line_edit = edit.findChild(QLineEdit)
        if line_edit is not None:
            line_edit.setAccessibleName(edit.accessibleName())
        edit.editingFinished.connect(partial(self._save_or_reject_edited_shortcut, name))
        self._edits[name] = edit
        label = build_plain_label(title, parent=self._whole_list)
        self._rows.addLayout(build_row((label, 1), edit, wraps=True))

    def _save_or_reject_edited_shortcut(self, name: str) -> None:
        sequence = self._edits[name].keySequence()
        shortcut = sequence.toString(QKeySequence.SequenceFormat.PortableText)
        if not _SHORTCUT.fullmatch(shortcut):
            status = tr(
                "This key is used to type or to move the cursor. Add Ctrl or Alt, or use a function key."
            )
            self._status_label.setText(status)
        elif sequence != self._actions[name].shortcut():
            robbed_title = self._actions.change_shortcut_and_return_robbed_title(name, sequence)
            if robbed_title:
                status = tr("“{action}” no longer has a shortcut.", action=robbed_title)
            else:
                status = tr("Changed.")
            self._status_label.setText(status)
        self._show_shortcuts()

    def _reset_shortcuts(self) -> None:
        self._actions.reset_shortcuts()
        self._status_label.setText(tr("All shortcuts were reset."))
        self._show_shortcuts()

    def _show_shortcuts(self) -> None:
        for name, edit in self._edits.items():
            edit.setKeySequence(QKeySequence(self._actions[name].shortcut()))
            for line_edit in edit.findChildren(QLineEdit):
                line_edit.setPlaceholderText(tr("Press keys"))  # Replaces Qt's own placeholder.
