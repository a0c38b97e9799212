"""The trial in its short form: a discard, an apply and a merge."""

from __future__ import annotations

import sys

import pytest

from tests.faults.copy_kill import run_killed_trial


@pytest.mark.skipif(sys.platform != "linux", reason="the trial forks")
@pytest.mark.parametrize(("seed", "way"), [(0, "discard"), (8, "apply"), (50, "merge")])
def test_a_bring_back_that_is_killed_can_be_undone_or_done_again(seed: int, way: str) -> None:
    assert run_killed_trial(seed) == way
