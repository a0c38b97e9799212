"""The gateway as a process: it listens on this machine alone, and ends in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import socket
import weakref
from typing import TYPE_CHECKING

import uvicorn

from helix_desktop import durable, instance, tasks
from helix_desktop.errors import HelixError
from helix_desktop.gateway.app import Gateway, Options
from helix_desktop.gateway.arrival import Rooms
from helix_desktop.gateway.wrapping import ADDRESS
from helix_desktop.places import Places

if TYPE_CHECKING:
    from helix_desktop.gateway.opening import Opening, Serve

PORT = 4356
TOKEN_FILE = "gateway.token"  # noqa: S105 -- a name

_running: weakref.WeakKeyDictionary[asyncio.Task[object] | None, uvicorn.Server] = weakref.WeakKeyDictionary()


def token_of(where: Places) -> str:
    """The token of this user's gateway: made once, readable by the user alone."""
    file = instance.private(where.run) / TOKEN_FILE
    with contextlib.suppress(OSError):
        if found := file.read_text("ascii").strip():
            return found
    made = secrets.token_urlsafe(24)
    durable.write(file, made, private=True)
    return made


def _opening() -> type[Opening]:
    """Most of the program: imported when the port answers. Who sends something meanwhile waits."""
    from helix_desktop.gateway.opening import Opening

    return Opening


async def run(where: Places, sock: socket.socket, options: Options, usual: str, serve: Serve) -> None:
    """Serve until the process is asked to end."""
    here = tasks.Tasks("gateway's engine")
    made: list[Opening] = []

    async def opened() -> Opening:
        if not made:
            kind = await asyncio.to_thread(_opening)
            made[:] = made or [kind(where, usual, serve, gateway.ask)]
        return made[0]

    async def room(name: str) -> Rooms:
        return await (await opened()).room(name)

    async def usual_room() -> None:
        with contextlib.suppress(HelixError):
            await room("")  # so that the first request does not wait for it

    gateway = Gateway(options, room)
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
    address = instance.private(where.run) / ADDRESS
    durable.write(address, json.dumps({"port": sock.getsockname()[1], "pid": os.getpid()}), private=True)
    _running[asyncio.current_task()] = server
    here.spawn(usual_room(), name="open the usual workspace")
    try:
        await server.serve(sockets=[sock])
    finally:
        address.unlink(missing_ok=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(here.ended(), 2)  # a workspace that is being opened is not left half open
        await here.aclose(limit=1)
        for opening in made:
            await opening.aclose()


def stop(task: asyncio.Task[object] | None) -> None:
    """End the gateway that this task runs, in order."""
    if (server := _running.get(task)) is not None:
        server.should_exit = True
