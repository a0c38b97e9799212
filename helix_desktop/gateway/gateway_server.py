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
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import uvicorn

from helix_desktop import atomic_files, concurrency, glibc_memory, running_instance
from helix_desktop.bounded_http_protocol import BoundedHttpProtocol
from helix_desktop.errors import HelixError
from helix_desktop.gateway.conversations_port import AgentConversations, AskAgentModel
from helix_desktop.gateway.gateway_app import GatewayApp
from helix_desktop.gateway.last_agent_requests import LastAgentRequests
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
OPENING_END_SECONDS = 2.0  # At the end, a workspace that is being opened gets so long.
_ENDING_SIGNALS = {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}


def read_or_create_token(where: ProgramFolders) -> str:
    """Return the token of this user's gateway, created once and readable only by the user."""
    file = running_instance.check_private_folder(where.run) / TOKEN_FILE
    with contextlib.suppress(OSError):  # There is none yet.
        stored_token = file.read_text("ascii").strip()
        if stored_token:
            return stored_token
    token = new_token()
    atomic_files.write_file_atomically(file, token, private=True)
    return token


class _LateWorkspaces:
    """The gateway's workspaces, made once they are first needed.

    Most of the program is imported only then, when the port answers already: requests wait for
    it and do not fail.
    """

    def __init__(
        self,
        where: ProgramFolders,
        usual_workspace: str,
        serve: "ServeWorkspaceCommands",
        ask_agent_model: AskAgentModel,
    ) -> None:
        self._where = where
        self._usual_workspace = usual_workspace
        self._serve = serve
        self._ask_agent_model = ask_agent_model
        self._workspaces: GatewayWorkspaces | None = None

    async def _ensure_workspaces(self) -> "GatewayWorkspaces":
        """Return the workspaces, made if they are needed for the first time."""
        if self._workspaces is None:
            module = await asyncio.to_thread(
                importlib.import_module, "helix_desktop.gateway.gateway_workspaces"
            )
            if self._workspaces is None:  # Another request may have made them meanwhile.
                self._workspaces = module.GatewayWorkspaces(
                    self._where, self._usual_workspace, self._serve, self._ask_agent_model
                )
        return self._workspaces

    def list_open_conversations(self) -> tuple[AgentConversations, ...]:
        if self._workspaces is None:
            return ()
        return self._workspaces.list_open_conversations()

    @contextlib.asynccontextmanager
    async def use_conversations(self, name: str) -> AsyncIterator[AgentConversations]:
        """Yield a workspace's conversations. The workspace stays open meanwhile."""
        workspaces = await self._ensure_workspaces()
        async with workspaces.hold_workspace_open(name) as conversations:
            yield conversations

    async def open_usual_workspace(self) -> None:
        """Open the workspace that most requests are for, before the first of them comes."""
        with contextlib.suppress(HelixError):  # The first request will say why it does not open.
            workspaces = await self._ensure_workspaces()
            await workspaces.open_usual_if_known()

    async def aclose(self) -> None:
        if self._workspaces is not None:
            await self._workspaces.aclose()


async def serve_gateway(
    where: ProgramFolders,
    sock: socket.socket,
    registrations: GatewayRegistrations,
    usual_workspace: str,
    serve: "ServeWorkspaceCommands",
    registration_lines: BinaryIO | None = None,
) -> None:
    """Serve agents' requests until the process must end.

    `registration_lines`: where the program in the background writes which agents may send
    requests (registrations). When it closes, this process ends, too.
    """
    last_requests = LastAgentRequests()
    workspaces = _LateWorkspaces(where, usual_workspace, serve, last_requests.ask_agent_model)
    conversations_file: Path | None = None
    if registration_lines is not None:
        conversations_file = where.run / CONVERSATIONS_FILE
    gateway = GatewayApp(
        registrations, workspaces.use_conversations, conversations_file, last_requests
    )
    gateway.memory.list_open_conversations = workspaces.list_open_conversations
    server = _build_http_server(gateway)
    if registration_lines is not None:
        follow = partial(_follow_registrations, registration_lines, registrations, server)
        concurrency.start_thread(follow, name="hear of registrations", daemon=True)

    # Python sets handlers of signals only in its main thread.
    if threading.current_thread() is threading.main_thread():
        _stop_in_order_on_signals(server)
    tasks = concurrency.OwnedTasks("gateway's engine")
    tasks.spawn_task(workspaces.open_usual_workspace(), name="open the usual workspace")
    collecting = tasks.spawn_task(_collect_garbage_when_idle(gateway), name="collect garbage")
    try:
        await server.serve(sockets=[sock])
    finally:
        collecting.cancel()
        with contextlib.suppress(TimeoutError):
            # Waits for a workspace that is being opened, so that it is not left half open.
            await concurrency.wait_with_limit(tasks.wait_for_all_tasks(), OPENING_END_SECONDS)
        await tasks.aclose(limit=1)
        await workspaces.aclose()


async def _collect_garbage_when_idle(gateway: GatewayApp) -> None:
    """Collect garbage only when idle: for up to half a second no agent is answered."""
    while True:
        await asyncio.sleep(IDLE_SECONDS)
        if gateway.idle_seconds >= IDLE_SECONDS:
            gc.collect()
            # Long histories leave much free memory.
            await asyncio.to_thread(glibc_memory.return_free_pages)
            await asyncio.sleep(COLLECTION_PAUSE_SECONDS)


def _build_http_server(gateway: GatewayApp) -> uvicorn.Server:
    """Build the server that hands requests to the gateway. It logs nothing of them, and does not
    say in its replies what it is.
    """
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

    for signal_number in _ENDING_SIGNALS:
        signal.signal(signal_number, stop)


def _should_log_record(record: logging.LogRecord) -> bool:
    """Drop Uvicorn's line on a cut reply, as the gateway has logged the reason itself."""
    return not record.getMessage().startswith("ASGI callable returned without completing")


def parse_registrations(line: bytes) -> list[GatewayRegistration]:
    return [GatewayRegistration(**value) for value in json.loads(line)]


def _follow_registrations(
    lines: BinaryIO, registrations: GatewayRegistrations, server: uvicorn.Server
) -> None:
    """Take over the registrations that the resident sends, each time all of them in a line."""
    for line in iter(lines.readline, b""):
        registrations.replace_all(parse_registrations(line))
    server.should_exit = True  # The resident has ended, so its socket is closed.
