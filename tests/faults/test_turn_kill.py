"""The trial in its short form."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.faults import question_kill
from tests.faults.turn_kill import trials


@pytest.mark.skipif(sys.platform == "win32", reason="the trial forks")
def test_a_killed_turn_loses_nothing_and_goes_on() -> None:
    found = trials(3, 5)
    assert found["kills"] == 3
    assert [key for key in found if key.startswith("LOST")] == []


@pytest.mark.skipif(sys.platform == "win32", reason="the trial forks")
def test_a_question_that_was_pending_at_a_kill_is_asked_again() -> None:
    found: Counter[str] = Counter()
    question_kill.run_trials(2, 5, found)
    assert found["kills"] == 2
    assert [key for key in found if key.startswith("LOST")] == []
