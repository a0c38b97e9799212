"""The buttons that answer the permission request of a task, as the card in a chat does."""

from collections.abc import Callable
from functools import partial

from PySide6.QtWidgets import QWidget

from helix_desktop.engine.tool_names import EDITS, ToolName
from helix_desktop.gui.common.tool_words import name_tool_of_rule, translate_network_mark
from helix_desktop.gui.common.widgets import build_push_button
from helix_desktop.gui.fleet.fleet_rows import Figures
from helix_desktop.gui.question_dialogs import ask_text
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import tr

Answer = Callable[..., object]


def describe_what_is_allowed(task: Figures) -> str:
    """Says what the task may do without asking if the user always allows it. Empty: a command that no
    rule covers, which can be allowed only once, as in a chat.
    """
    asked = task.get("asked", "")
    if asked == ToolName.RUN_COMMAND:
        return translate_network_mark(task.get("rule", ""))
    tool = name_tool_of_rule(asked)
    if asked in EDITS:
        return tr("{tool}: any file in this workspace", tool=tool)
    return tr("{tool}: every time", tool=tool)


class TaskAnswerButtons:
    """`answer` gets a workspace, the task, whether the call that it shows is `allowed`,
    and the user's `words`.
    """

    def __init__(
        self, answer: Answer, allow_all: Callable[[str, Figures], object], parent: QWidget
    ) -> None:
        self._parent = parent
        self._answer = answer
        self._allow_all = allow_all
        self._workspace = ""
        self._task: Figures = {}
        # The order is that of the card in a chat: what refuses first, allowing once second. The
        # name of the third one may be long, so that it stands where it moves neither of them.
        deny = build_push_button(tr("Deny"), parent, self._deny)
        self._once = build_push_button(tr("Allow once"), parent, self._allow_once, "primary")
        self._all = build_push_button("", parent, self._allow_all_calls)
        instead = build_push_button(tr("What to do instead"), parent, self._ask_what_to_do_instead)
        self.buttons = (deny, self._once, self._all, instead)

    def show_question(self, workspace: str, task: Figures) -> None:
        """Shows the buttons for a task's question. They are hidden if `task` is empty."""
        self._workspace = workspace
        self._task = task
        what = make_safe_text(describe_what_is_allowed(task))
        self._all.setText(tr("Always allow in this task: {what}", what=what))
        for button in self.buttons:
            button.setVisible(bool(task))
        if not what:
            self._all.hide()

    def enable_allowing(self, is_enabled: bool) -> None:  # noqa: FBT001 - as a widget's own methods
        """Allows an answer once all of the question was in sight."""
        for button in (self._all, self._once):
            button.setEnabled(is_enabled)

    def _allow_all_calls(self) -> None:
        self._allow_all(self._workspace, self._task)

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
