"""The models of a workspace, by role."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.engine.facts import ModelRole
from helix_desktop.errors import HelixError
from tests.workbench.conftest import Desks


async def test_a_fast_model_that_is_not_there_any_more_leaves_its_place_to_the_main_one(
    desks: Desks, folder: Path
) -> None:
    bench = await desks().create("Gone", folder)
    await bench.choose_model("demo")
    await bench.change({"models.fast": "removed/quick", "models.long": "removed/long"})
    assert bench.models.client(ModelRole.FAST) is None
    assert bench.models.client(ModelRole.LONG) is None
    await bench.change({"models.main": "removed/large"})
    with pytest.raises(HelixError, match="removed"):
        bench.models.client(ModelRole.MAIN)
