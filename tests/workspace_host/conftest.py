"""One workspace with the scripted model, and its host as each kind of client sees it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import pytest

from helix_desktop import running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console
from helix_desktop.workbench import Workbench
from helix_desktop.workspace_host import host_connection
from helix_desktop.workspace_host.byte_streams import SocketStream
from helix_desktop.workspace_host.host_interface import WorkspaceHost
from helix_desktop.workspace_host.host_server import serve_host_client
from helix_desktop.workspace_host.local_workspace_host import LocalWorkspaceHost
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from tests.workbench.conftest import Desks, desks, folder

__all__ = ["desks", "folder"]
NewHost = Callable[[], Awaitable[WorkspaceHost]]


@pytest.fixture
async def bench(desks: Desks, folder: Path) -> Workbench:
    made = await desks().create_workspace("Pairs", folder)
    await made.choose_model_for_role("demo/demo")
    return made


async def socket_streams() -> tuple[SocketStream, SocketStream]:
    ours, theirs = socket.socketpair()
    here = SocketStream(*await asyncio.open_unix_connection(sock=ours))
    there = SocketStream(*await asyncio.open_unix_connection(sock=theirs))
    return here, there


async def open_over_socket(bench: Workbench, until_closed: AsyncExitStack) -> WorkspaceHost:
    tasks = OwnedTasks("host of a test")
    until_closed.push_async_callback(tasks.aclose, limit=2)
    here, there = await socket_streams()
    tasks.spawn_task(serve_host_client(LocalWorkspaceHost(bench), there), name="serve")
    host = await RemoteWorkspaceHost.connect_over_stream(here)
    until_closed.push_async_callback(host.close_host)
    return host


async def open_in_process(bench: Workbench, _: AsyncExitStack) -> WorkspaceHost:
    return LocalWorkspaceHost(bench)


async def open_at_owner(bench: Workbench, until_closed: AsyncExitStack, run: Path) -> WorkspaceHost:
    """As another process does it: by a command at whoever has the workspace open."""

    async def answer(arguments: list[str], console: Console) -> int:
        assert arguments == [*host_connection.HOST_ARGUMENTS, bench.id]
        await host_connection.serve_host_over_console(bench, console)
        return 0

    if not list(run.glob(f"{bench.id}*")):
        owner = await running_instance.listen_for_requests(run, bench.id, answer)
        until_closed.push_async_callback(owner.aclose)
    host = await host_connection.connect_to_host(run, bench.id)
    assert host is not None
    until_closed.push_async_callback(host.close_host)
    return host


WAYS = ("in the process", "over a socket", "at the owner")


@pytest.fixture(params=WAYS)
async def new_host(
    request: pytest.FixtureRequest, bench: Workbench, tmp_path: Path
) -> AsyncIterator[NewHost]:
    """Opens a further client of the same host."""
    run = tmp_path / "run"
    opening_by_way: dict[str, Callable[..., Awaitable[WorkspaceHost]]] = {
        "in the process": open_in_process,
        "over a socket": open_over_socket,
        "at the owner": partial(open_at_owner, run=run),
    }
    opening = opening_by_way[request.param]
    running_instance.check_private_folder(run)
    async with AsyncExitStack() as until_closed:
        yield partial(opening, bench, until_closed)


@pytest.fixture
async def host(new_host: NewHost) -> WorkspaceHost:
    return await new_host()
