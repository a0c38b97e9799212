"""Answers permission questions in a turn that nobody watches by what was allowed before."""

from collections.abc import Collection

from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.tool_names import EDITS, ToolName

LONGEST_PREVIEW = 2_000  # This many characters of what a task would do are kept.


def name_to_allow(question: PermissionQuestion) -> str:
    return question.apart or question.call.name


def describe_missing_permission(question: PermissionQuestion) -> str:
    """Say why a task waits and, below that, exactly what it would do with the permission."""
    left = len(question.preview) - LONGEST_PREVIEW
    more = f"\n… (+{left:,} characters)" if left > 0 else ""
    why = f"The task needs your permission: {question.title}."
    return f"{why}\n\n{question.preview[:LONGEST_PREVIEW]}{more}".strip()


def is_allowed_unattended(question: PermissionQuestion, allowed: Collection[str]) -> bool:
    """Whether `allowed` has the tool, its group or "all". A separate permission needs its name."""
    name = question.call.name
    group = "edits" if name in EDITS else "commands" if name == ToolName.RUN_COMMAND else ""
    wanted = {"all", name_to_allow(question), *(set() if question.apart else {group})}
    return not wanted.isdisjoint(allowed) and not question.form
