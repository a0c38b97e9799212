"""Machines that share a workspace: a home each, one store behind them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.store.engine_ports import Cache
from helix_desktop.store.shared.engine import Engine
from helix_desktop.store.shared.link import LOCAL, Connected, Link
from helix_desktop.store.shared.remote import Remote
from helix_desktop.store.shared.sealing import Seal
from helix_desktop.store.workspace import Workspace
from helix_desktop.store.workspaces import Workspaces


@dataclass
class Machine:
    """One machine with the workspace open. `begin` makes its link work by itself; else it does what it is told."""

    workspaces: Workspaces
    workspace: Workspace
    link: Link

    @property
    def cache(self) -> Cache:
        return self.workspace.cache


@asynccontextmanager
async def machine(
    home: Path, engine: Callable[[], Engine], seal: Seal, *, acknowledge: str = LOCAL, begin: bool = False
) -> AsyncIterator[Machine]:
    """The machine of this home, made at the first time."""
    workspaces = Workspaces(home)
    known = next(iter(workspaces.list()), None) or workspaces.create("Shared")
    workspace = await workspaces.open(known.id)

    async def connect() -> Connected:
        return Connected(Remote(engine()), seal)

    link = workspace.share("memory://", connect, acknowledge=acknowledge)
    if begin:
        link.begin()
    async with AsyncExitStack() as last:
        last.push_async_callback(workspace.aclose)
        yield Machine(workspaces, workspace, link)
