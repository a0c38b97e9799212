"""Hostile repositories are copied and brought back, or refused: nothing of theirs runs,
and nothing outside is written.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workbench.conftest import Desks
from tests.workbench.hostile_copies import WAYS, HostileCopy
from tests.workbench.test_open_workbench import bench_on


@pytest.mark.parametrize("number", range(len(WAYS)))
async def test_nothing_of_a_hostile_repository_runs(
    desks: Desks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    hostile = HostileCopy(tmp_path / "hostile", number)
    hostile.create_repository()
    before = hostile.outside()
    became = await hostile.copy_and_bring_back(await bench_on(desks, hostile.project), WAYS[number])
    assert hostile.problems(before) == ""
    assert hostile.has_bitten or became == "refused"
