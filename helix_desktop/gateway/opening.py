"""Workspaces as the gateway opens them: each when it is first asked for, here, or where it is open already."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Protocol

from helix_desktop import instance, tasks
from helix_desktop.errors import NotThere, StoreBusy
from helix_desktop.gateway.arrival import Ask, Rooms
from helix_desktop.gateway.far_room import FarRoom
from helix_desktop.gateway.room import Room
from helix_desktop.places import Places
from helix_desktop.store.workspace import Workspace
from helix_desktop.store.workspaces import Workspaces
from helix_desktop.workbench import desk

NAME = "Connected agents"
PATIENCE = 5.0  # seconds: a command may hold the workspace for a moment
OPEN_AT_MOST = 8  # workspaces nobody uses now
RELEASED = 1.5  # seconds a workspace that was let go is left to who asked for it


class Serving(Protocol):
    """Answers commands about a workspace until `finish`."""

    async def finish(self) -> None: ...


Serve = Callable[[Workspace], Awaitable[Serving | None]]


class OpenWorkspaces:
    """The rooms of workspaces, each opened when it is first asked for: here, or where the workspace is open already. Of those
    nobody uses only a few stay open, so a hundred projects take no more memory than a few.
    """

    def __init__(self, where: Places, usual: str, serve: Serve, ask: Ask) -> None:
        self._where = where
        self._usual = usual
        self._serve = serve
        self._known = Workspaces(where.workspaces)
        self._rooms: dict[str, Rooms] = {}
        self._named: dict[str, str] = {}  # the workspaces that are open, by what they were asked for as
        self._here: dict[str, AsyncExitStack] = {}  # the one that was asked for last stands last
        self._users: Counter[str] = Counter()  # requests that use a room now
        self._lock = asyncio.Lock()
        self._tasks = tasks.Tasks("workspaces of the gateway")
        self._ask = ask

    @asynccontextmanager
    async def used(self, name: str) -> AsyncIterator[Rooms]:
        """The engine of a workspace, which stays open while this lasts; of the usual one where none is named."""
        wanted = name or self._usual or NAME
        room = await self._room(wanted)
        identity = self._named[wanted]
        self._users[identity] += 1
        if (stack := self._here.pop(identity, None)) is not None:
            self._here[identity] = stack
        try:
            yield room
        finally:
            self._users[identity] -= 1
            if len(self._here) > OPEN_AT_MOST:
                self._tasks.spawn(self._close_idle(), name="close idle workspaces")

    async def closed_idle(self) -> None:
        """When those are closed that nobody uses."""
        await self._tasks.ended()

    async def _close_idle(self) -> None:
        """Those that were asked for longest ago, and that nobody uses."""
        async with self._lock:
            idle = [identity for identity in self._here if not self._users[identity]]
            for identity in idle[: max(0, len(self._here) - OPEN_AT_MOST)]:
                await self._close(identity)

    async def _close(self, identity: str) -> None:
        room, stack = self._rooms.pop(identity, None), self._here.pop(identity)
        _released.pop(identity, None)
        if room is not None:
            await room.aclose()
        await stack.aclose()

    async def _room(self, wanted: str) -> Rooms:
        found = self._rooms.get(self._named.get(wanted, ""))
        if found is not None and not (isinstance(found, FarRoom) and found.ended):
            return found
        async with self._lock:
            identity = await self._identity(wanted)
            found = self._rooms.get(identity)
            if isinstance(found, FarRoom) and found.ended:
                found = None
            if found is None:
                found = self._rooms[identity] = await self._opened(identity)
            self._named[wanted] = identity
        return found

    def all(self) -> tuple[Rooms, ...]:
        """Those that are open."""
        return tuple(self._rooms.values())

    async def _identity(self, wanted: str) -> str:
        try:
            return (await asyncio.to_thread(self._known.find, wanted)).id
        except NotThere:
            if wanted != NAME:
                raise
            return (await asyncio.to_thread(self._known.create, NAME)).id

    async def _opened(self, identity: str) -> Rooms:
        until = asyncio.get_running_loop().time() + PATIENCE
        while True:
            try:
                return await self._opened_here(identity)
            except StoreBusy:
                if (wire := await instance.reach(self._where.run, identity)) is not None:
                    return FarRoom(wire, self._ask)
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(0.1)

    async def _opened_here(self, identity: str) -> Rooms:
        async with AsyncExitStack() as undo:
            workspace = await self._known.open(identity)
            undo.push_async_callback(workspace.aclose)
            bench = await undo.enter_async_context(desk.alone(workspace, self._where))
            serving = await self._serve(workspace)
            if serving is not None:
                undo.push_async_callback(serving.finish)
            self._here[identity] = undo.pop_all()
        self._tasks.spawn(asyncio.to_thread(bench.tokens.count, NAME), name="load the vocabulary")
        _released[identity] = lambda: self._tasks.spawn(self._let_go(identity), name="let a workspace go")
        return Room(bench, self._ask)

    async def _let_go(self, identity: str) -> None:
        """Somebody else wants to open it: the window."""
        async with self._lock:
            self._rooms.pop(identity, None)
            if (stack := self._here.pop(identity, None)) is not None:
                await stack.aclose()
            await asyncio.sleep(RELEASED)

    async def aclose(self) -> None:
        """Close what was opened."""
        await self._tasks.aclose(limit=2)
        for room in self._rooms.values():
            await room.aclose()
        for stack in self._here.values():
            await stack.aclose()


_released: dict[str, Callable[[], object]] = {}


def let_go(workspace: str) -> int:
    """Close a workspace that this process has open as a gateway, for somebody else. The exit code."""
    if (release := _released.pop(workspace, None)) is None:
        return 1
    release()
    return 0
