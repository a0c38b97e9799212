"""The trial in its short form: more workspaces with tasks than may be open at once."""

from __future__ import annotations

import sys
from collections import Counter

import pytest

from tests.faults.fleet_many_workspaces import run_trial


@pytest.mark.skipif(sys.platform != "linux", reason="the trial reads /proc")
def test_a_worker_opens_only_workspaces_with_tasks_and_closes_them() -> None:
    found: Counter[str] = Counter()
    run_trial(25, 4, 180, found)
    assert [key for key in found if key.startswith("LOST")] == []
    assert found["tasks done"] == 24
    assert found["most handles"] <= 180
