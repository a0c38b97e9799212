"""Answers permission questions in a turn that nobody watches by what was allowed before."""

from collections.abc import Collection

from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import EDITS, ToolName
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class UserAnswer:
    """The user's answer to the question that a task waits for. It is given to the task
    as a permission.
    """

    allowed: bool
    words: str = ""

    def as_permission(self, why: str) -> str:
        """`why`: the text that the user has read. The answer is for this text alone."""
        return f"{'once' if self.allowed else 'denied'}:{Digest.of_content(why.encode()).hex}:{self.words}"


def find_user_answer(permissions: Collection[str], why: str) -> PermissionAnswer | None:
    """Return the user's last answer to the question with this text."""
    digest = Digest.of_content(why.encode()).hex
    for kind, asked, words in reversed(
        [one.split(":", 2) for one in permissions if one.count(":") >= 2]
    ):
        if kind in ("once", "denied") and asked == digest:
            return PermissionAnswer(kind == "once", words=words)
    return None


def name_to_allow(question: PermissionQuestion) -> str:
    return question.apart or question.call.name


def describe_missing_permission(question: PermissionQuestion) -> str:
    """Say why a task waits and, below that, exactly what it would do with the permission.

    All of it: what stands behind the end of a shortened text would be allowed unseen.
    """
    why = f"The task needs your permission: {mark_on_one_line(question.title)}."
    return f"{why}\n\n{question.preview}" if question.preview else why


def is_allowed_unattended(question: PermissionQuestion, allowed: Collection[str]) -> bool:
    """Whether `allowed` has the tool, its group or "all". A separate permission needs its name."""
    name = question.call.name
    group = "edits" if name in EDITS else "commands" if name == ToolName.RUN_COMMAND else ""
    wanted = {"all", name_to_allow(question), *(set() if question.apart else {group})}
    return not wanted.isdisjoint(allowed) and not question.form
