"""What a task may do while nobody is there to be asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.workbench.unattended_permissions import is_allowed_unattended

EDIT = PermissionQuestion(ToolCall("c1", "edit_file", "{}"), "Change a.py?", "+a")
FETCH = PermissionQuestion(ToolCall("c2", "fetch_url", "{}"), "Fetch?", "https://a.b")


@pytest.mark.parametrize(
    ("question", "allowed", "is_allowed"),
    [
        (EDIT, ("edits",), True),
        (EDIT, ("edit_file",), True),
        (EDIT, ("commands",), False),
        (FETCH, ("all",), True),
        (FETCH, ("fetch_url",), True),
        (FETCH, ("edits", "commands"), False),
        (FETCH, ("",), False),
        (replace(EDIT, apart="runs_later"), ("edits",), False),
        (replace(EDIT, apart="runs_later"), ("runs_later",), True),
        (replace(EDIT, form="{}"), ("all",), False),
    ],
)
def test_only_what_is_named_is_allowed(
    question: PermissionQuestion, allowed: tuple[str, ...], is_allowed: bool
) -> None:
    """An empty name allowed each tool that belongs to no group."""
    assert is_allowed_unattended(question, allowed) is is_allowed
