"""The gateway as a process: it listens on this machine alone, opens workspaces when they are asked for, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import socket
import weakref
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import uvicorn

from helix_desktop import durable, instance
from helix_desktop.errors import HelixError, NotThere, WrongUse
from helix_desktop.gateway.app import Gateway, Options
from helix_desktop.gateway.exchange import Rooms
from helix_desktop.gateway.room import Room
from helix_desktop.gateway.wrapping import ADDRESS
from helix_desktop.places import Places
from helix_desktop.store.workspace import Workspace, Workspaces
from helix_desktop.workbench import desk

log = logging.getLogger(__name__)

NAME = "Connected agents"
PORT = 4356
TOKEN_FILE = "gateway.token"  # noqa: S105 -- a name
BACKLOG = 256

_running: weakref.WeakKeyDictionary[asyncio.Task[object] | None, uvicorn.Server] = weakref.WeakKeyDictionary()
Serve = Callable[[Workspace], Awaitable[object]]


def token_of(where: Places) -> str:
    """The token of this user's gateway: made once, readable by the user alone."""
    file = instance.private(where.run) / TOKEN_FILE
    with contextlib.suppress(OSError):
        if found := file.read_text("ascii").strip():
            return found
    made = secrets.token_urlsafe(24)
    durable.write(file, made, private=True)
    return made


def listening(port: int) -> socket.socket:
    """A socket of this machine alone; WrongUse where the port is taken."""
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        raise WrongUse(
            f"Port {port} is taken: {error.strerror}.", remedy="Name another with --port, or 0 for a free one."
        ) from error
    found.listen(BACKLOG)
    return found


class Opening:
    """The rooms of workspaces, each opened when it is first asked for."""

    def __init__(self, where: Places, usual: str, serve: Serve) -> None:
        self._where = where
        self._usual = usual
        self._serve = serve
        self._known = Workspaces(where.workspaces)
        self._rooms: dict[str, Rooms] = {}
        self._lock = asyncio.Lock()
        self._stack = AsyncExitStack()
        self.gateway: Gateway | None = None

    async def room(self, name: str) -> Rooms:
        """The engine of a workspace; of the usual one where none is named."""
        wanted = name or self._usual or NAME
        if wanted in self._rooms:
            return self._rooms[wanted]
        async with self._lock:
            if wanted not in self._rooms:
                self._rooms[wanted] = await self._opened(wanted)
        return self._rooms[wanted]

    def all(self) -> tuple[Rooms, ...]:
        """Those that are open."""
        return tuple(self._rooms.values())

    async def _opened(self, wanted: str) -> Rooms:
        if self.gateway is None:
            raise NotThere("The gateway is not running.")
        try:
            identity = (await asyncio.to_thread(self._known.find, wanted)).id
        except NotThere:
            if wanted != NAME:
                raise
            identity = (await asyncio.to_thread(self._known.create, NAME)).id
        workspace = await self._stack.enter_async_context(self._owned(identity))
        bench = await self._stack.enter_async_context(desk.alone(workspace, self._where))
        await self._serve(workspace)
        return Room(bench, self.gateway.ask)

    @contextlib.asynccontextmanager
    async def _owned(self, identity: str):  # type: ignore[no-untyped-def]  # noqa: ANN202 -- an async context of a Workspace
        workspace = await self._known.open(identity)
        try:
            yield workspace
        finally:
            await workspace.aclose()

    async def aclose(self) -> None:
        """Close what was opened."""
        await self._stack.aclose()


async def run(where: Places, sock: socket.socket, options: Options, usual: str, serve: Serve) -> None:
    """Serve until the process is asked to end."""
    opening = Opening(where, usual, serve)
    gateway = opening.gateway = Gateway(options, opening.room)
    gateway.rooms = opening.all
    config = uvicorn.Config(
        gateway,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
        h11_max_incomplete_event_size=1 << 20,
        ws="none",
    )
    server = uvicorn.Server(config)
    address = instance.private(where.run) / ADDRESS
    durable.write(address, json.dumps({"port": sock.getsockname()[1], "pid": os.getpid()}), private=True)
    _running[asyncio.current_task()] = server
    with contextlib.suppress(HelixError):
        await opening.room("")  # so that the first request does not wait for it
    try:
        await server.serve(sockets=[sock])
    finally:
        address.unlink(missing_ok=True)
        await opening.aclose()


def stop(task: asyncio.Task[object] | None) -> None:
    """End the gateway that this task runs, in order."""
    if (server := _running.get(task)) is not None:
        server.should_exit = True
