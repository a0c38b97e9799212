"""The trial in its short form: on one computer, where everything is killed at once."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.faults.fleet_kill import trials


@pytest.mark.skipif(sys.platform == "win32", reason="the trial is written for Unix")
def test_tasks_of_a_killed_worker_are_done_once() -> None:
    found: Counter[str] = Counter()
    trials(6, 1, 3, found, alone=True)
    assert [key for key in found if key.startswith("LOST")] == []
    assert found["done"] == 6
    assert found["kills"] >= 1
