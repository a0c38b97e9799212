"""The trial in its short form: a file tool, a command, and both side by side."""

from __future__ import annotations

import sys

import pytest

from tests.faults.step_kill import run_step_trial


@pytest.mark.skipif(sys.platform != "linux", reason="the trial forks")
@pytest.mark.parametrize(("seed", "place"), [(1, "folder"), (25, "sub-agent"), (30, "copy")])
def test_what_a_killed_program_has_changed_belongs_to_its_turn(seed: int, place: str) -> None:
    assert run_step_trial(seed) == place
