from __future__ import annotations

from helix_desktop.tools.permission import (
    ActionEffect,
    PermissionMode,
    ToolAction,
    decide_permission,
)
from tests.faults.outside_spellings import fixed, unasked


def test_no_spelling_of_a_denied_command_runs_unasked() -> None:
    lines = fixed()
    assert len(lines) > 140
    assert [one.line for one in lines if unasked(one)] == []


def test_a_line_without_the_denied_program_is_not_held() -> None:
    action = ToolAction("run_command", ActionEffect.RUN, "Run", "ls -la", command="ls -la")
    assert (
        decide_permission(action, PermissionMode.ALLOW_ALL, (), sandboxed=True).verdict == "allow"
    )
