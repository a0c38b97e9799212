"""Machines that share a workspace: a home each, one store behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.async_stores import StoreCache
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import RowStore
from helix_desktop.store.shared.shared_store_link import (
    LOCAL,
    SharedStoreConnection,
    SharedStoreLink,
)
from helix_desktop.store.stored_workspace import StoredWorkspace


@dataclass
class Machine:
    """One machine with the workspace open. `begin` makes its link work by itself; else
    it does what it is told.
    """

    workspaces: AllWorkspaces
    workspace: StoredWorkspace
    link: SharedStoreLink

    @property
    def cache(self) -> StoreCache:
        return self.workspace.cache


@asynccontextmanager
async def machine(
    home: Path,
    engine: Callable[[], RowStore],
    seal: RowCipher,
    *,
    acknowledge: str = LOCAL,
    begin: bool = False,
    url: str = "memory://",
) -> AsyncIterator[Machine]:
    """The machine of this home, made at the first time."""
    workspaces = AllWorkspaces(home)
    known = next(iter(workspaces.list_workspaces()), None) or workspaces.create_stored_workspace(
        "Shared"
    )
    workspace = await workspaces.open_stored_workspace(known.id)

    async def connect() -> SharedStoreConnection:
        return SharedStoreConnection(AsyncRowStore(engine()), seal)

    link = workspace.share_content(url, connect, acknowledge=acknowledge)
    if begin:
        link.start_syncing()
    async with AsyncExitStack() as last:
        last.push_async_callback(workspace.aclose)
        yield Machine(workspaces, workspace, link)
