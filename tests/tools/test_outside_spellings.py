from __future__ import annotations

from helix_desktop.tools.permission import Action, Effect, Mode, decide
from tests.faults.outside_spellings import fixed, unasked


def test_no_spelling_of_a_denied_command_runs_unasked() -> None:
    lines = fixed()
    assert len(lines) > 140
    assert [one.line for one in lines if unasked(one)] == []


def test_a_line_without_the_denied_program_is_not_held() -> None:
    action = Action("run_command", Effect.RUN, "Run", "ls -la", command="ls -la")
    assert decide(action, Mode.ALLOW_ALL, (), sandboxed=True).verdict == "allow"
