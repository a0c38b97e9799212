"""The gateway as a process: it listens on this machine alone, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import weakref
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import uvicorn

from helix_desktop import durable, instance, tasks
from helix_desktop.errors import HelixError
from helix_desktop.gateway.app import Gateway
from helix_desktop.gateway.arrival import Rooms
from helix_desktop.gateway.registration import Registration, Registrations, new_token
from helix_desktop.places import Places

if TYPE_CHECKING:
    from helix_desktop.gateway.opening import OpenWorkspaces, Serve

TOKEN_FILE = "gateway.token"  # noqa: S105 -- a name

_running: weakref.WeakKeyDictionary[asyncio.Task[object] | None, uvicorn.Server] = weakref.WeakKeyDictionary()


def token_of(where: Places) -> str:
    """The token of this user's gateway: made once, readable by the user alone."""
    file = instance.private(where.run) / TOKEN_FILE
    with contextlib.suppress(OSError):
        if found := file.read_text("ascii").strip():
            return found
    made = new_token()
    durable.write(file, made, private=True)
    return made


def _opening() -> type[OpenWorkspaces]:
    """Most of the program: imported when the port answers. Who sends something meanwhile waits."""
    from helix_desktop.gateway.opening import OpenWorkspaces

    return OpenWorkspaces


async def run(
    where: Places,
    sock: socket.socket,
    registrations: Registrations,
    usual: str,
    serve: Serve,
    told: BinaryIO | None = None,
) -> None:
    """Serve until the process is asked to end. `told`: where it hears of other registrations, and ends when nobody is there to
    tell of any.
    """
    here = tasks.Tasks("gateway's engine")
    made: list[OpenWorkspaces] = []

    async def opened() -> OpenWorkspaces:
        if not made:
            kind = await asyncio.to_thread(_opening)
            made[:] = made or [kind(where, usual, serve, gateway.ask)]
        return made[0]

    @contextlib.asynccontextmanager
    async def room(name: str) -> AsyncIterator[Rooms]:
        async with (await opened()).used(name) as found:
            yield found

    async def usual_room() -> None:
        with contextlib.suppress(HelixError):
            async with room(""):
                """So that the first request does not wait for it."""

    gateway = Gateway(registrations, room)
    gateway.rooms = lambda: made[0].all() if made else ()
    config = uvicorn.Config(
        gateway,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
        http="httptools",
        ws="none",
    )
    server = uvicorn.Server(config)
    _running[asyncio.current_task()] = server
    if told is not None:
        tasks.thread(partial(_hear, told, registrations, server), name="hear of registrations", daemon=True)
    here.spawn(usual_room(), name="open the usual workspace")
    try:
        await server.serve(sockets=[sock])
    finally:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(here.ended(), 2)  # a workspace that is being opened is not left half open
        await here.aclose(limit=1)
        for opening in made:
            await opening.aclose()


def read_registrations(line: bytes) -> list[Registration]:
    """The registrations that a line of the resident names."""
    return [Registration(**value) for value in json.loads(line)]


def _hear(told: BinaryIO, registrations: Registrations, server: uvicorn.Server) -> None:
    while line := told.readline():
        registrations.replace(read_registrations(line))
    server.should_exit = True  # the resident has gone, and its socket with it


def stop(task: asyncio.Task[object] | None) -> None:
    """End the gateway that this task runs, in order."""
    if (server := _running.get(task)) is not None:
        server.should_exit = True
