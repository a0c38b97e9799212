"""A world for every test of tools: the folder, the user, and a toolbox that may do everything."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from helix_desktop.tools.sandbox import SandboxKind, is_sandbox_effective
from tests.tools.world import World, world


@pytest_asyncio.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


@pytest_asyncio.fixture(
    params=[SandboxKind.BUBBLEWRAP, SandboxKind.LANDLOCK, SandboxKind.NONE], ids=str
)
async def everywhere(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """The same in every sandbox there is."""
    async with world(tmp_path) as made:
        sandbox = dataclasses.replace(made.kit.sandbox, kind=request.param)
        if request.param is not SandboxKind.NONE and not await is_sandbox_effective(sandbox):
            pytest.skip(f"{request.param} does not work here")
        made.kit.commands.sandbox = sandbox
        yield made
