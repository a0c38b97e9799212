from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helix_desktop.engine.ports import ContentCache, JournalPort, SearchIndex
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.store.stored_workspace import StoredWorkspace


@dataclass(frozen=True)
class Stores:
    """The three ports of one kind; `settle` waits until the index has what was written."""

    journal: JournalPort
    cache: ContentCache
    index: SearchIndex
    workspace: StoredWorkspace | None = None

    async def settle(self) -> None:
        if self.workspace is not None:
            await self.workspace.index.wait_until_indexed()


@pytest.fixture
def workspaces(tmp_path: Path) -> AllWorkspaces:
    return AllWorkspaces(tmp_path / "workspaces")


@pytest.fixture
async def workspace(workspaces: AllWorkspaces, tmp_path: Path) -> AsyncIterator[StoredWorkspace]:
    known = workspaces.create_stored_workspace("Thesis", tmp_path)
    opened = await workspaces.open_stored_workspace(known.id)
    yield opened
    await opened.aclose()


@pytest.fixture(params=["memory", "disk"])
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    if request.param == "memory":
        journal = MemoryJournal()
        cache = MemoryCache()
        yield Stores(journal, cache, MemoryIndex(journal, cache))
        return
    workspaces = AllWorkspaces(tmp_path / "workspaces")
    opened = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Thesis", tmp_path).id
    )
    yield Stores(opened.journal, opened.cache, opened.index, opened)
    await opened.aclose()
