"""What answers the permission request of a task, as the card in a chat does: the buttons, and the
rule by which the task may go on without asking.
"""

from collections.abc import Callable
from functools import partial

from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.tool_words import describe_offered_rule
from helix_desktop.gui.common.widgets import build_combo_box, build_plain_label, build_push_button
from helix_desktop.gui.fleet.fleet_rows import Figures
from helix_desktop.gui.question_dialogs import ask_text
from helix_desktop.gui.translation import tr

Answer = Callable[..., object]


def describe_rules_of_task(task: Figures) -> list[str]:
    """Says of each rule what the task may do by it without asking again."""
    rule_folders = task.get("rule_folders", ())
    described_rules = []
    for number, rule in enumerate(task.get("rules", ())):
        is_for_files = number < len(rule_folders)
        words = describe_offered_rule(task["asked"], rule, is_for_files=is_for_files)
        described_rules.append(words)
    return described_rules


class TaskAnswerButtons:
    """`answer` gets a workspace, the task, whether the call that it shows is `allowed`,
    and the user's `words`.
    """

    def __init__(
        self,
        answer: Answer,
        allow_by_rule: Callable[[str, Figures, str], object],
        parent: QWidget,
    ) -> None:
        self._parent = parent
        self._answer = answer
        self._allow_by_rule = allow_by_rule
        self._workspace = ""
        self._task: Figures = {}
        # The order is that of the card in a chat: what refuses first, allowing once second.
        deny = build_push_button(tr("Deny"), parent, self._deny)
        self._once = build_push_button(tr("Allow once"), parent, self._allow_once, "primary")
        in_task_label = tr("Allow in this task")
        self._in_task = build_push_button(in_task_label, parent, self._allow_for_rest_of_task)
        instead = build_push_button(tr("What to do instead"), parent, self._ask_what_to_do_instead)
        self.buttons = (deny, self._once, self._in_task, instead)

        # A single rule is a label, as nothing is to be chosen.
        rule_words = tr("Rule for “Allow in this task”:")
        self.rule_label = build_plain_label(rule_words, "small", parent, wraps=False)
        self.only_rule = build_plain_label("", "mono", parent)
        self.rule_chooser = build_combo_box(tr("Rule for “Allow in this task”"), parent)
        self.rule_chooser.setProperty("look", "mono")
        explanation = tr(
            "* means any arguments. To allow fewer commands, choose a more specific rule."
        )
        self.rule_chooser.setToolTip(explanation)
        self._shown_rules: list[str] = []

    def show_question(self, workspace: str, task: Figures) -> None:
        """Shows the buttons for a task's question. They are hidden if `task` is empty."""
        is_same_question = task.get("id") == self._task.get("id") and task.get(
            "why"
        ) == self._task.get("why")
        self._workspace = workspace
        self._task = task
        for button in self.buttons:
            button.setVisible(bool(task))
        rules = describe_rules_of_task(task)
        self._in_task.setVisible(bool(rules))
        self.rule_label.setVisible(bool(rules))
        self.only_rule.setVisible(len(rules) == 1)
        self.rule_chooser.setVisible(len(rules) > 1)
        # The list is read again and again: what was chosen for this question stays chosen.
        if is_same_question and rules == self._shown_rules:
            return
        self._shown_rules = rules
        self.rule_chooser.clear()
        self.rule_chooser.addItems(rules)
        self.only_rule.setText("".join(rules[:1]))

    def enable_allowing(self, is_enabled: bool) -> None:  # noqa: FBT001 - as a widget's own methods
        """Allows an answer once all of the question was in sight."""
        for button in (self._in_task, self._once):
            button.setEnabled(is_enabled)

    def _allow_for_rest_of_task(self) -> None:
        number = max(0, self.rule_chooser.currentIndex())
        self._allow_by_rule(self._workspace, self._task, self._task["rules"][number])

    def _allow_once(self) -> None:
        self._answer(self._workspace, self._task, allowed=True)

    def _deny(self) -> None:
        self._answer(self._workspace, self._task, allowed=False)

    def _ask_what_to_do_instead(self) -> None:
        # Another task may be chosen when the user has written the answer.
        answer = partial(self._answer, self._workspace, self._task, allowed=False)

        def deny_with_words(words: str) -> None:
            answer(words=words)

        ask_text(self._parent, tr("Deny"), tr("What to do instead"), "", deny_with_words)
