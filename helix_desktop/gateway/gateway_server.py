"""Runs the gateway as a process that listens only on this machine and shuts down in order."""

import asyncio
import contextlib
import gc
import importlib
import json
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import uvicorn

from helix_desktop import atomic_files, concurrency, glibc_memory, running_instance
from helix_desktop.bounded_http_protocol import BoundedHttpProtocol
from helix_desktop.errors import HelixError
from helix_desktop.gateway.conversations_port import AgentConversations
from helix_desktop.gateway.gateway_app import GatewayApp
from helix_desktop.gateway.registration import (
    CONVERSATIONS_FILE,
    GatewayRegistration,
    GatewayRegistrations,
    new_token,
)
from helix_desktop.program_folders import ProgramFolders

if TYPE_CHECKING:
    from helix_desktop.gateway.gateway_workspaces import GatewayWorkspaces, ServeWorkspaceCommands

TOKEN_FILE = "gateway.token"  # noqa: S105 -- a name
IDLE_SECONDS = 5.0  # Full garbage collection waits until no request has come for this long.
COLLECTION_PAUSE_SECONDS = 120.0


def read_or_create_token(where: ProgramFolders) -> str:
    """Return the token of this user's gateway, created once and readable only by the user."""
    file = running_instance.check_private_folder(where.run) / TOKEN_FILE
    with contextlib.suppress(OSError):
        if found := file.read_text("ascii").strip():
            return found
    made = new_token()
    atomic_files.write_file_atomically(file, made, private=True)
    return made


async def serve_gateway(
    where: ProgramFolders,
    sock: socket.socket,
    registrations: GatewayRegistrations,
    usual_workspace: str,
    serve: "ServeWorkspaceCommands",
    registration_lines: BinaryIO | None = None,
) -> None:
    """Serve until the process must end, or until `registration_lines`, which name
    registrations, closes.
    """
    here = concurrency.OwnedTasks("gateway's engine")
    made: list[GatewayWorkspaces] = []

    async def ensure_workspaces() -> "GatewayWorkspaces":
        if not made:
            # Import most of the program once the port answers: requests wait and do not fail.
            name = "helix_desktop.gateway.gateway_workspaces"
            kind = (await asyncio.to_thread(importlib.import_module, name)).GatewayWorkspaces
            made[:] = made or [
                kind(where, usual_workspace, serve, gateway.memory.last_requests.ask_agent_model)
            ]
        return made[0]

    def list_conversations_of_gateway() -> tuple[AgentConversations, ...]:
        if not made:
            return ()
        return made[0].list_open_conversations()

    @contextlib.asynccontextmanager
    async def use_conversations(name: str) -> AsyncIterator[AgentConversations]:
        async with (await ensure_workspaces()).hold_workspace_open(name) as found:
            yield found

    async def open_usual_workspace() -> None:
        with contextlib.suppress(HelixError):
            await (await ensure_workspaces()).open_usual_if_known()

    kept = where.run / CONVERSATIONS_FILE if registration_lines is not None else None
    gateway = GatewayApp(registrations, use_conversations, kept)
    gateway.memory.list_open_conversations = list_conversations_of_gateway
    server = _build_http_server(gateway)
    if registration_lines is not None:
        hear = partial(_follow_registrations, registration_lines, registrations, server)
        concurrency.start_thread(hear, name="hear of registrations", daemon=True)
    if threading.current_thread() is threading.main_thread():
        _stop_in_order_on_signals(server)
    here.spawn_task(open_usual_workspace(), name="open the usual workspace")
    collecting = here.spawn_task(_collect_garbage_when_idle(gateway), name="collect garbage")
    try:
        await server.serve(sockets=[sock])
    finally:
        collecting.cancel()
        with contextlib.suppress(TimeoutError):
            # Waits for a workspace that is being opened, so that it is not left half open.
            await concurrency.wait_with_limit(here.wait_for_all_tasks(), 2)
        await here.aclose(limit=1)
        for opening in made:
            await opening.aclose()


async def _collect_garbage_when_idle(gateway: GatewayApp) -> None:
    """Collect garbage only when idle: for up to half a second no agent is answered."""
    while True:
        await asyncio.sleep(IDLE_SECONDS)
        if gateway.idle_seconds >= IDLE_SECONDS:
            gc.collect()
            await asyncio.to_thread(
                glibc_memory.return_free_pages
            )  # Long histories leave much free memory.
            await asyncio.sleep(COLLECTION_PAUSE_SECONDS)


def _build_http_server(gateway: GatewayApp) -> uvicorn.Server:
    logging.getLogger("uvicorn.error").addFilter(_should_log_record)
    config = uvicorn.Config(
        gateway,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=75,
        http=BoundedHttpProtocol,
        ws="none",
    )
    return uvicorn.Server(config)


def _stop_in_order_on_signals(server: uvicorn.Server) -> None:
    """Shut down in order. Uvicorn raises signals again, which would end the process
    before workspaces close.
    """

    def stop(_number: int, _frame: object) -> None:
        server.should_exit = True

    for number in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        signal.signal(number, stop)


def _should_log_record(record: logging.LogRecord) -> bool:
    """Drop Uvicorn's line on a cut reply, as the gateway has logged the reason itself."""
    return not record.getMessage().startswith("ASGI callable returned without completing")


def parse_registrations(line: bytes) -> list[GatewayRegistration]:
    return [GatewayRegistration(**value) for value in json.loads(line)]


def _follow_registrations(
    lines: BinaryIO, registrations: GatewayRegistrations, server: uvicorn.Server
) -> None:
    while line := lines.readline():
        registrations.replace_all(parse_registrations(line))
    server.should_exit = True  # The resident has ended, so its socket is closed.
