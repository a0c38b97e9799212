"""Answers permission questions in a turn that nobody watches by what was allowed before."""

from collections.abc import Collection

from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import EDITS, ToolName
from helix_desktop.fast_dataclass import dataclass

RULE_SEPARATOR = ", "  # Between the rules of one choice, as `tools/permission.py` describes it.


@dataclass(frozen=True, slots=True)
class UserAnswer:
    """The user's answer to the question that a task waits for. It is given to the task
    as a permission.
    """

    allowed: bool
    words: str = ""

    def as_permission(self, why: str) -> str:
        """`why`: the text that the user has read. The answer is for this text alone."""
        answer = "denied"
        if self.allowed:
            answer = "once"
        digest = Digest.of_content(why.encode()).hex
        return f"{answer}:{digest}:{self.words}"


def find_user_answer(permissions: Collection[str], why: str) -> PermissionAnswer | None:
    """Return the user's last answer to the question with this text."""
    digest = Digest.of_content(why.encode()).hex
    for permission in reversed(tuple(permissions)):
        if permission.count(":") < 2:
            # The name of a tool or a group, which answers no single question.
            continue
        answer, digest_of_question, words = permission.split(":", 2)
        if answer in ("once", "denied") and digest_of_question == digest:
            return PermissionAnswer(answer == "once", words=words)
    return None


def name_to_allow(question: PermissionQuestion) -> str:
    return question.apart or question.call.name


def rules_for_task(question: PermissionQuestion) -> tuple[str, ...]:
    """Return the rules under which such calls may be made for the rest of a task, as a chat offers
    them: the best one first, and none that covers more than what it says.
    """
    if question.form or question.apart:
        return ()
    # Several rules are described with a comma between them. In a command with one, the text of a
    # single rule could be read as two.
    is_command = question.call.name == ToolName.RUN_COMMAND
    if is_command and RULE_SEPARATOR in question.preview:
        return ()
    return question.rules


def permission_by_rule(tool: str, rule: str) -> str:
    """`tool`: the one that asked. A rule for all that it does is its name."""
    if rule == tool:
        return tool
    if tool == ToolName.RUN_COMMAND:
        return f"rule:{rule}"
    return f"rule for {_group_of_tool(tool) or tool}:{rule}"


def find_allowed_rule(question: PermissionQuestion, allowed: Collection[str]) -> int | None:
    """Return which of the question's rules `allowed` has."""
    tool = question.call.name
    for number, rule in enumerate(rules_for_task(question)):
        if permission_by_rule(tool, rule) in allowed:
            return number
    return None


def describe_missing_permission(question: PermissionQuestion) -> str:
    """Say why a task waits and, below that, exactly what it would do with the permission.

    All of it: what stands behind the end of a shortened text would be allowed unseen.
    """
    why = f"The task needs your permission: {mark_on_one_line(question.title)}."
    if not question.preview:
        return why
    return f"{why}\n\n{question.preview}"


def is_allowed_unattended(question: PermissionQuestion, allowed: Collection[str]) -> bool:
    """Whether `allowed` has the tool, its group, a rule that covers the command, or "all". A separate
    permission needs its name, and a form is for a person to fill in.
    """
    if question.form:
        return False
    sufficient_names = {"all", name_to_allow(question)}
    group = _group_of_tool(question.call.name)
    if group and not question.apart:
        sufficient_names.add(group)
    if not sufficient_names.isdisjoint(allowed):
        return True
    return find_allowed_rule(question, allowed) is not None


def _group_of_tool(name: str) -> str:
    """Return the name by which several tools are allowed at once, or an empty string."""
    if name in EDITS:
        return "edits"
    if name == ToolName.RUN_COMMAND:
        return "commands"
    return ""
