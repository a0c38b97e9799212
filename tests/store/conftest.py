from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helix_desktop.engine.ports import Cache, Index, Journal
from helix_desktop.store.memory import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.store.workspace import Workspace
from helix_desktop.store.workspaces import Workspaces


@dataclass(frozen=True)
class Stores:
    """The three ports of one kind; `settle` waits until the index has what was written."""

    journal: Journal
    cache: Cache
    index: Index
    workspace: Workspace | None = None

    async def settle(self) -> None:
        if self.workspace is not None:
            await self.workspace.index.caught_up()


@pytest.fixture
def workspaces(tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "workspaces")


@pytest.fixture
async def workspace(workspaces: Workspaces, tmp_path: Path) -> AsyncIterator[Workspace]:
    known = workspaces.create("Thesis", tmp_path)
    opened = await workspaces.open(known.id)
    yield opened
    await opened.aclose()


@pytest.fixture(params=["memory", "disk"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    if request.param == "memory":
        journal, cache = MemoryJournal(), MemoryCache()
        yield Stores(journal, cache, MemoryIndex(journal, cache))
        return
    workspaces = Workspaces(tmp_path / "workspaces")
    opened = await workspaces.open(workspaces.create("Thesis", tmp_path).id)
    yield Stores(opened.journal, opened.cache, opened.index, opened)
    await opened.aclose()
