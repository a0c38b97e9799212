"""Answers permission questions of a turn that nobody watches by what was allowed at its start."""

from collections.abc import Collection

from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.tool_names import EDITS, ToolName

LONGEST_PREVIEW = 2_000  # In characters. This much of what a task would do is kept.


def name_to_allow(question: PermissionQuestion) -> str:
    return question.apart or question.call.name


def describe_missing_permission(question: PermissionQuestion) -> str:
    """Why a task waits; below it, exactly what the task would do with the permission."""
    left = len(question.preview) - LONGEST_PREVIEW
    more = f"\n… (+{left:,} characters)" if left > 0 else ""
    why = f"The task needs your permission: {question.title}."
    return f"{why}\n\n{question.preview[:LONGEST_PREVIEW]}{more}".strip()


def is_allowed_unattended(question: PermissionQuestion, allowed: Collection[str]) -> bool:
    """By the tool, its group, or "all"; what has a name of its own only by that or "all"."""
    name = question.call.name
    group = "edits" if name in EDITS else "commands" if name == ToolName.RUN_COMMAND else ""
    wanted = {"all", name_to_allow(question), *(set() if question.apart else {group})}
    return not wanted.isdisjoint(allowed) and not question.form
