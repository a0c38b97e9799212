"""Permissions of a workspace: mode, folders, rules, and what commands and agents can see."""

import sys
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QComboBox, QHBoxLayout, QLineEdit, QVBoxLayout, QWidget

from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.composer import (
    ALLOW_ALL,
    ALLOW_ALL_FOR_AN_HOUR,
    name_mode_with_exceptions,
)
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value, build_field_row
from helix_desktop.gui.common.tool_words import name_tool_of_rule
from helix_desktop.gui.question_dialogs import (
    ask_allow_all,
    ask_allow_all_for_an_hour,
    ask_to_confirm,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.settings.installation_port import Installation, RuleProblem
from helix_desktop.gui.settings.settings_page import WorkspaceSettingsPage
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import read_shown_names, tr, translate_name
from helix_desktop.gui.workbench_types import HomeOpening, Workbench

# The tools for which people make rules, in the order of the list.
TOOLS_OF_RULES = (
    ToolName.RUN_COMMAND,
    ToolName.EDIT_FILE,
    ToolName.WRITE_FILE,
    ToolName.READ_FILE,
    ToolName.FETCH_URL,
)


def describe_permission_rule(rule: Mapping[str, Any]) -> str:
    """Formats a rule as one line: "Allow · Run a command · cargo test *"."""
    parts = [translate_name("rule decision", str(rule.get("decision", "")))]
    limits: list[str] = []
    if rule.get("tool"):
        limits.append(name_tool_of_rule(str(rule["tool"])))
    for name in ("path", "command"):
        if rule.get(name):
            limits.append(mark_on_one_line(str(rule[name])))
    if not limits:
        limits.append(tr("everything"))
    parts += limits
    if rule.get("network"):
        parts.append(tr("with network access"))
    return " · ".join(parts)


def describe_sandbox(kind: str) -> str:
    """Says whether commands run in a sandbox on this computer, in which one, or why not."""
    if kind == "bubblewrap":
        return tr("On this computer, commands run in a sandbox.")
    if kind == "Landlock":
        return tr("On this computer, commands run in the weaker sandbox, Landlock, because bubblewrap is missing or does not work.")  # fmt: skip
    if sys.platform.startswith("linux"):
        return tr("On this computer, commands run without a sandbox, because neither bubblewrap nor Landlock works here.")  # fmt: skip
    return tr("On this computer, commands run without a sandbox, because there is none for this system.")  # fmt: skip


@dataclass(frozen=True, slots=True)
class RemovedRule:
    """The rule that was removed last, and the row in which it can be brought back."""

    rule: Mapping[str, Any]
    row: int


class PermissionsPage(WorkspaceSettingsPage):
    def __init__(self, bench: Workbench, program: Installation, runner: BackgroundRunner) -> None:
        super().__init__(tr("Permissions"), bench, runner)
        self._program = program
        self.add_sentence(describe_sandbox(bench.sandbox_kind))
        about_mode = tr(
            "What the agent may do without asking. Reading files in the workspace never needs permission."
        )
        modes = bench.describe_permission_modes()
        labels = [tr(description) for description in modes.values()]
        mode_field = FieldDeclaration(
            "mode", tr("Permission mode"), about_mode, bench.permission_mode, tuple(modes), labels
        )
        self.add_field(mode_field, self._confirm_and_save_permission_mode)
        self._show_what_rules_allow()

        self.add_heading(tr("Folders"))
        for root in bench.workspace.settings.roots:
            self.add_sentence(root, "mono")
        self.add_page_button(
            tr("Choose another folder…"), partial(self.wanted.emit, "workspace-folder")
        )

        self.add_heading(tr("Rules"))
        self.add_sentence(
            tr("Rules take precedence over the permission mode. “Always allow” adds a rule.")
        )
        self._rules = QVBoxLayout()
        self._removed_rule: RemovedRule | None = None
        self.add_page_layout(self._rules)
        self.add_page_layout(self._build_new_rule_form())
        self.add_page_layout(self._build_rule_trial())
        self._add_section_of_conversations()
        self._show_permission_rules()
        self._show_rules_of_conversations()

        self._opened = list(bench.workspace.settings.openings)
        self._add_home_folder_section()

        self.add_heading(tr("Files that agents don't see"))
        about_hidden = tr("One pattern per line, as in .gitignore. Agents cannot read, list or change these files. If a command needs such a file, you are asked, and the question names the file. Undo still covers these files.")  # fmt: skip
        patterns = "\n".join(program.list_hidden_patterns(bench))
        hidden_field = FieldDeclaration("hidden", "", about_hidden, patterns, long=True)
        self.add_field(hidden_field, partial(self._save_path_lines, "hidden"))

    def _add_home_folder_section(self) -> None:
        self.add_heading(tr("Your home folder"))
        about_home = tr("In your home folder, commands in the sandbox can see only the workspace's folders, installed toolchains and your Git user name. Use this setting to give commands access to more files.")  # fmt: skip
        self.add_sentence(about_home)

        openings = self._program.list_command_openings(self._opened)
        closed_openings: list[HomeOpening] = []
        if not openings:
            self.add_sentence(tr("No sign-ins of other programs, such as SSH, were found there."))
        for opening in openings:
            if opening.name in self._opened:
                self.add_page_widget(self._build_opening_row(opening, self.page_content))
            else:
                closed_openings.append(opening)
        if closed_openings:
            # Nearly all people leave these as they are.
            words = tr("Give commands access to sign-ins of other programs…")
            area = self.add_folded_area(words)
            rows = [self._build_opening_row(opening, area) for opening in closed_openings]
            build_column(*rows, owner=area, margins=0, spacing=4)

        about_folders = tr("One folder per line (for example, ~/data). Commands can read these folders but cannot change anything in them.")  # fmt: skip
        folders = "\n".join(self._bench.workspace.settings.readable)
        title = tr("Folders that commands can read")
        readable_field = FieldDeclaration("readable", title, about_folders, folders, long=True)
        self.add_field(readable_field, partial(self._save_path_lines, "readable"))

    def _build_opening_row(self, opening: HomeOpening, parent: QWidget) -> QWidget:
        field = FieldDeclaration(
            opening.name,
            tr(opening.title),
            tr(opening.what_it_gives_away),
            opening.name in self._opened,
        )
        return build_field_row(field, partial(self._save_access_to_home_path, opening.name), parent)

    def _save_access_to_home_path(self, name: str, is_allowed: Value) -> None:
        if name in self._opened:
            self._opened.remove(name)
        if is_allowed:
            self._opened.append(name)
        self.change_setting("permissions.openings", list(self._opened))

    def _save_path_lines(self, name: str, text: Value) -> None:
        paths: list[str] = []
        for line in str(text).splitlines():
            if line.strip():
                paths.append(line.strip())
        self.change_setting(f"permissions.{name}", paths)

    def _confirm_and_save_permission_mode(self, mode: Value) -> None:
        save = partial(self._save_permission_mode, str(mode))
        if mode == ALLOW_ALL:
            ask_allow_all(self, save).rejected.connect(self._show_permission_mode)
        elif mode == ALLOW_ALL_FOR_AN_HOUR:
            question = ask_allow_all_for_an_hour(self, save)
            question.rejected.connect(self._show_permission_mode)
        else:
            save()

    def _save_permission_mode(self, mode: str) -> None:
        self._runner.run_in_background(
            self._bench.choose_permission_mode(mode),
            then=lambda _done: self._show_what_rules_allow(),
            owner=self,
        )

    def _show_what_rules_allow(self) -> None:
        """Names the mode in force as the message box does, with what rules allow beyond it."""
        field = self.page_content.findChild(QComboBox, "mode")
        if field is None:
            return
        allowed_uses = self._bench.list_uses_allowed_in([""])[""]
        for name, description in self._bench.describe_permission_modes().items():
            words = tr(description)
            if name == self._bench.permission_mode:
                words = name_mode_with_exceptions(name, words, allowed_uses)
            field.setItemText(field.findData(name), words)
        # The name with what rules allow may be longer than all that the field was made for.
        field.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToContents)
        field.setMaximumWidth(max(field.maximumWidth(), field.sizeHint().width()))

    def _show_permission_mode(self) -> None:
        """Shows the mode in force again after the user rejected another."""
        field = self.page_content.findChild(QComboBox, "mode")
        if field is not None:
            field.setCurrentIndex(field.findData(self._bench.permission_mode))

    def _show_permission_rules(self) -> None:
        self._shown_rules = self._list_all_rules()
        clear_layout(self._rules)
        for rule in self._bench.workspace.settings.rules:
            self._rules.addWidget(self._build_permission_rule_row(rule))
        if self._removed_rule is not None:
            removed_row = self._build_removed_rule_row(self._removed_rule)
            self._rules.insertWidget(self._removed_rule.row, removed_row)
        self._show_what_rules_allow()

    def _add_section_of_conversations(self) -> None:
        """Adds the place for what the user allowed for single conversations, which is hidden while
        there is nothing of this kind.
        """
        self._about_conversations = self.add_sentence(
            tr("Allowed in single conversations, until the workspace is closed:")
        )
        self._rules_of_conversations = QVBoxLayout()
        self.add_page_layout(self._rules_of_conversations)

    def _show_rules_of_conversations(self) -> None:
        self._shown_rules = self._list_all_rules()
        clear_layout(self._rules_of_conversations)
        for conversation, rules in self._bench.list_rules_by_conversation().items():
            row = self._bench.conversation_row(conversation)
            # Nobody can go on in a conversation that is gone.
            if row is None:
                continue
            for rule in rules:
                rule_row = self._build_row_of_conversation_rule(conversation, row.title, rule)
                self._rules_of_conversations.addWidget(rule_row)
        self._about_conversations.setVisible(self._rules_of_conversations.count() > 0)

    def _build_row_of_conversation_rule(
        self, conversation: str, title: str, rule: Mapping[str, Any]
    ) -> QWidget:
        row_widget = widgets.build_surface(self.page_content, "card")
        label = widgets.build_plain_label(describe_permission_rule(rule), "mono", row_widget)
        line = build_row((label, 1), owner=row_widget, margins=(12, 4, 6, 4), wraps=True)
        place = tr("In “{title}”", title=make_safe_text(title))
        line.addWidget(widgets.build_plain_label(place, "small", row_widget))
        remove = partial(self._remove_rule_of_conversation, conversation, rule)
        # The same may be allowed in several conversations.
        rule_and_place = f"{label.text()} · {place}"
        accessible_name = tr("Remove the rule {rule}", rule=rule_and_place)
        remove_button = widgets.build_push_button(
            tr("Remove"), row_widget, remove, "link", name=accessible_name
        )
        line.addWidget(remove_button)
        return row_widget

    def _remove_rule_of_conversation(self, conversation: str, rule: Mapping[str, Any]) -> None:
        """Takes back what was allowed. There is no undo: the agent asks, and can be allowed again."""
        self._bench.remove_rule_of_conversation(conversation, rule)
        self._show_rules_of_conversations()

    def changeEvent(self, event: QEvent) -> None:
        """Shows what was allowed in the main window while this page was open."""
        super().changeEvent(event)
        if event.type() is not QEvent.Type.ActivationChange or not self.isActiveWindow():
            return
        # Rows are built anew only for a change, so that the keyboard stays on its button.
        if self._list_all_rules() != self._shown_rules:
            self._show_permission_rules()
            self._show_rules_of_conversations()

    def _list_all_rules(self) -> tuple[object, ...]:
        rules_by_conversation = self._bench.list_rules_by_conversation()
        of_conversations = [(name, list(rules)) for name, rules in rules_by_conversation.items()]
        return list(self._bench.workspace.settings.rules), of_conversations

    def _build_removed_rule_row(self, removed: RemovedRule) -> QWidget:
        """Says in the place of a rule that it was removed, until something else is done to them."""
        row_widget = widgets.build_surface(self.page_content, "card")
        words = tr("Removed: {rule}", rule=describe_permission_rule(removed.rule))
        label = widgets.build_plain_label(words, "muted", row_widget)
        restore = partial(self._restore_permission_rule, removed)
        undo_button = widgets.build_push_button(tr("Undo"), row_widget, restore, "link")
        build_row((label, 1), undo_button, owner=row_widget, margins=(12, 4, 6, 4), wraps=True)
        return row_widget

    def _build_permission_rule_row(self, rule: Mapping[str, Any]) -> QWidget:
        row_widget = widgets.build_surface(self.page_content, "card")
        label = widgets.build_plain_label(describe_permission_rule(rule), "mono", row_widget)
        line = build_row((label, 1), owner=row_widget, margins=(12, 4, 6, 4), wraps=True)
        remark, look = self._remark_on_rule(rule)
        if remark:
            line.addWidget(widgets.build_plain_label(remark, look, row_widget))
        remove = partial(self._remove_permission_rule, rule)
        accessible_name = tr("Remove the rule {rule}", rule=label.text())
        remove_button = widgets.build_push_button(
            tr("Remove"), row_widget, remove, "link", name=accessible_name
        )
        line.addWidget(remove_button)
        return row_widget

    def _remark_on_rule(self, rule: Mapping[str, Any]) -> tuple[str, str]:
        """Returns what to say behind a rule, and its look: red only if the rule never applies or
        allows more than it names.
        """
        tool = str(rule.get("tool", "*"))
        if not self._fits_a_tool(tool, runs_command=bool(rule.get("command"))):
            unusable = tr("Never applies: there is no such tool, or it does not run commands")
            return unusable, "danger"
        problem = self._program.find_rule_problem(rule)
        if problem is RuleProblem.ANY_ARGUMENTS:
            covered = tr("Allows this script with any arguments, and the programs that it then starts")  # fmt: skip
            return covered, "small"
        words_by_problem = {
            RuleProblem.NONE: "",
            RuleProblem.COVERS_NOTHING: tr("Never applies: the command names no program"),
            RuleProblem.EVERY_COMMAND: tr("Allows every command without asking"),
            RuleProblem.OTHER_PROGRAMS: tr("Too broad: with other arguments, this program can start programs that the rule does not name"),
        }  # fmt: skip
        return words_by_problem[problem], "danger"

    def _fits_a_tool(self, pattern: str, *, runs_command: bool) -> bool:
        """Whether a tool has this name. The tools of servers, which may not run now,
        have two underscores in it.
        """
        if runs_command:
            return fnmatchcase(ToolName.RUN_COMMAND, pattern)
        return "__" in pattern or any(fnmatchcase(name, pattern) for name in ToolName)

    def _build_new_rule_form(self) -> QHBoxLayout:
        """Builds the line for a new rule. A tool is chosen by what it does; the name of another
        one, such as a server's, can be typed.
        """
        self._decision = widgets.build_combo_box(tr("Decision"), self.page_content)
        for name in read_shown_names()["rule decision"]:
            decision_words = translate_name("rule decision", name)
            self._decision.addItem(decision_words, name)
        self._tool = widgets.build_combo_box(tr("Tool"), self.page_content)
        # A screen reader reads the field in the choice, which has no name of its own.
        tool_field = QLineEdit(self._tool)
        tool_field.setAccessibleName(tr("Tool"))
        self._tool.setLineEdit(tool_field)
        self._tool.addItem(tr("Everything"), "")
        for tool in TOOLS_OF_RULES:
            tool_words = name_tool_of_rule(tool)
            self._tool.addItem(tool_words, tool)
        example = tr("Command or path, for example: git status *")
        self._command = widgets.build_line_edit(tr("Command or path"), example, self.page_content)
        add = widgets.build_push_button(tr("Add"), self.page_content, self._add_permission_rule)
        self._decision.currentIndexChanged.connect(self._show_what_rule_covers)
        self._tool.editTextChanged.connect(self._show_what_rule_covers)
        self._command.textChanged.connect(self._show_what_rule_covers)
        return build_row(self._decision, (self._tool, 1), (self._command, 2), add, wraps=True)

    def _build_rule_trial(self) -> QHBoxLayout:
        """Builds the line in which the typed rule can be tried before it is added."""
        hint = tr("Try the rule: type a command or a path")
        self._tried = widgets.build_line_edit(hint, hint, self.page_content)
        self._tried.textChanged.connect(self._show_what_rule_covers)
        self._trial_result = widgets.build_plain_label("", "small", self.page_content)
        self._show_what_rule_covers()
        return build_row((self._tried, 1), self._trial_result, wraps=True)

    def _show_what_rule_covers(self) -> None:
        """Says whether the rule decides about what was typed. Without a rule, nothing can be tried."""
        rule = self._typed_rule()
        self._tried.setVisible(rule is not None)
        tried = self._tried.text().strip()
        result = ""
        if rule is not None and tried:
            if self._program.does_rule_fit(rule, tried):
                decision = translate_name("rule decision", rule["decision"])
                result = tr("The rule fits: {decision}", decision=decision)
            else:
                result = tr("The rule does not fit.")
        self._show_trial_result(result)

    def _show_trial_result(self, result: str) -> None:
        self._trial_result.setText(result)
        self._trial_result.setVisible(bool(result))

    def _typed_rule(self) -> dict[str, str] | None:
        """Returns the rule in the form, or nothing while it names neither a tool nor a limit."""
        tool = self._tool.currentText().strip()
        index_of_choice = self._tool.findText(tool)
        if index_of_choice >= 0:
            tool = str(self._tool.itemData(index_of_choice))
        limit = self._command.text().strip()
        if limit == "*":  # No limit: no program is called so.
            limit = ""
        if not tool and not limit:
            return None
        rule = {"decision": str(self._decision.currentData())}
        if tool:
            rule["tool"] = tool
        if limit and self._fits_a_tool(tool or "*", runs_command=True):
            rule["command"] = limit
        elif limit:
            rule["path"] = limit
        return rule

    def _add_permission_rule(self) -> None:
        rule = self._typed_rule()
        if rule is None:
            self._show_trial_result(
                tr("Choose what the rule is about, or type a command or a path. To allow everything, choose the permission mode above.")
            )  # fmt: skip
            return
        problem = self._program.find_rule_problem(rule)
        if problem is RuleProblem.EVERY_COMMAND:
            text = tr("The agent could then run any command without asking you, inside the sandbox if there is one. Rules that deny or ask still apply.")  # fmt: skip
            ask_to_confirm(
                self,
                tr("Allow every command?"),
                text,
                tr("Allow every command"),
                partial(self._save_new_rule, rule),
            )
        else:
            self._save_new_rule(rule)

    def _save_new_rule(self, rule: Mapping[str, Any]) -> None:
        self._tool.setCurrentIndex(0)
        self._command.clear()
        self._tried.clear()
        rules = list(self._bench.workspace.settings.rules)
        rules.append(rule)
        self._removed_rule = None
        self._save_permission_rules(rules)

    def _remove_permission_rule(self, rule: Mapping[str, Any]) -> None:
        """Finds the rule by its content, as the rules may have changed since they were shown."""
        rules = list(self._bench.workspace.settings.rules)
        if rule in rules:
            self._removed_rule = RemovedRule(rule, rules.index(rule))
            rules.remove(rule)
            self._save_permission_rules(rules)

    def _restore_permission_rule(self, removed: RemovedRule) -> None:
        """Brings a rule back to its place, since the order of rules may decide."""
        rules = list(self._bench.workspace.settings.rules)
        rules.insert(removed.row, removed.rule)
        self._removed_rule = None
        self._save_permission_rules(rules)

    def _save_permission_rules(self, rules: list[Mapping[str, Any]]) -> None:
        work = self._bench.change_settings({"permissions.rules": [dict(rule) for rule in rules]})
        self._runner.run_in_background(
            work, then=lambda _done: self._show_permission_rules(), owner=self
        )
