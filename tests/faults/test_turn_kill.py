"""The trial in its short form."""

from __future__ import annotations

import sys

import pytest

from tests.faults.turn_kill import trials


@pytest.mark.skipif(sys.platform == "win32", reason="the trial forks")
def test_a_killed_turn_loses_nothing_and_goes_on() -> None:
    found = trials(3, 5)
    assert found["kills"] == 3
    assert [key for key in found if key.startswith("LOST")] == []
