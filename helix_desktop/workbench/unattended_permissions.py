"""Answers the permission questions of a turn that nobody watches by what was allowed from the start."""

from collections.abc import Collection

from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.tool_names import EDITS, ToolName


def name_to_allow(question: PermissionQuestion) -> str:
    """What `--allow` would have to name."""
    return question.apart or question.call.name


def is_allowed_unattended(question: PermissionQuestion, allowed: Collection[str]) -> bool:
    """By the tool, its group, or "all"; what has a name of its own only by that or "all"."""
    name = question.call.name
    group = "edits" if name in EDITS else "commands" if name == ToolName.RUN_COMMAND else ""
    wanted = {"all", name_to_allow(question), *(set() if question.apart else {group})}
    return not wanted.isdisjoint(allowed) and not question.form
