"""The end of a line from another computer, and the process that has the workspace open for it.

They are two processes, so that the agent goes on when the line breaks. The end of the line ends with
it. The other process (the kept host) stays as long as it has a client, or an agent at work.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from helix_desktop import concurrency, running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.starter import (
    DEVNULL,
    ChildProcess,
    CommandAuthor,
    ProcessLaunch,
    open_process,
)
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workspace_host.byte_streams import OwnerStream
from helix_desktop.workspace_host.host_connection import HOST_ARGUMENTS, count_clients

T = TypeVar("T")
# What the end of a line writes first. Before it, a login may print anything.
START_OF_LINE = b"\n== helix-desktop host ==\n"
UNUSED_SECONDS = 60.0
LOOK_SECONDS = 1.0
OPEN_SECONDS = 30.0
# Who has been told of the wait waits longer than a kept host does for who has the workspace open.
TOLD_AFTER_SECONDS = 5.0
OPEN_SECONDS_IF_TOLD = 180.0
PAUSE_SECONDS = 0.1
LONGEST_COMPLAINT = 2_000


async def wait_until_unused(bench: Workbench) -> None:
    """Returns when there has been no client and no agent at work for a while."""
    loop = asyncio.get_running_loop()
    last_used = loop.time()
    while loop.time() - last_used < UNUSED_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        has_work = any(session.is_working for session in bench.sessions)
        if has_work or count_clients(bench.id):
            last_used = loop.time()


class HostStarter:
    """Starts a kept host where nobody has the workspace open. `program` starts this program.
    `console`: is told if this takes long, and then it may take longer.
    """

    def __init__(
        self, run: Path, workspace: str, program: Sequence[str], console: Console | None = None
    ) -> None:
        self.run = run
        self.workspace = workspace
        self._program = list(program)
        self._console_to_tell = console
        self._longest_wait_seconds = OPEN_SECONDS
        if console is not None:
            self._longest_wait_seconds = OPEN_SECONDS_IF_TOLD
        self._kept_host: ChildProcess | None = None

    async def connect_or_start(self, connect: Callable[[], Awaitable[T | None]]) -> T:
        """Returns what `connect` returns, as soon as there is a host. It returns None until then."""
        # A file without a name: the host may outlive this process, and must be able to write to it.
        with tempfile.TemporaryFile() as complaint_file:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            while loop.time() < begun + self._longest_wait_seconds:
                connection = await connect()
                if connection is not None:
                    return connection
                self._raise_if_host_failed(complaint_file)
                if loop.time() > begun + TOLD_AFTER_SECONDS:
                    await self._say_once_that_it_takes_long()
                await self._start_host_unless_running(complaint_file)
                await asyncio.sleep(PAUSE_SECONDS)
        raise HelixError(
            "The workspace could not be opened.",
            remedy="Another program may have it open. The log of Helix Desktop may say more.",
        )

    async def _start_host_unless_running(self, complaint_file: IO[bytes]) -> None:
        """A command may have the workspace open for a moment. The kept host waits for its end."""
        is_running = self._kept_host is not None and self._kept_host.poll() is None
        if not is_running:
            start = partial(self._start_kept_host, complaint_file)
            self._kept_host = await asyncio.to_thread(start)

    async def _say_once_that_it_takes_long(self) -> None:
        if self._console_to_tell is not None:
            await self._console_to_tell.print_error(
                "The workspace is not open yet. Waiting for the program that has it open or is opening it…"
            )
            self._console_to_tell = None

    def _start_kept_host(self, complaint_file: IO[bytes]) -> ChildProcess:
        """Starts it apart from this process, whose end it must not notice."""
        argv = list(self._program) + ["host", "--keep", "--workspace", self.workspace]
        launch = ProcessLaunch(CommandAuthor.PROGRAM, argv, has_own_session=True)
        complaints = complaint_file.fileno()
        kept_host = open_process(launch, stdin=DEVNULL, stdout=DEVNULL, stderr=complaints)
        # It mostly outlives this process. If it does not, the system must be told that nobody waits for it.
        concurrency.start_thread(kept_host.wait, name="wait for the host", daemon=True)
        return kept_host

    def _raise_if_host_failed(self, complaint_file: IO[bytes]) -> None:
        """Raises what the host said when it could not open the workspace."""
        if self._kept_host is None or self._kept_host.poll() in (None, 0, running_instance.LATER):
            return
        complaint_file.seek(0)
        complaint = complaint_file.read(LONGEST_COMPLAINT).decode("utf-8", "replace").strip()
        if complaint:
            raise HelixError(f"The workspace could not be opened. {complaint}")


class LineEnd:
    """Carries bytes between `console`, where the line from the other computer arrives, and the
    process that has the workspace open.
    """

    def __init__(self, starter: HostStarter, console: Console) -> None:
        self._starter = starter
        self._console = console
        self._tasks = OwnedTasks("line from another computer")

    async def carry_until_either_ends(self) -> int:
        """Returns LATER if the host has ended, and 0 if the other computer has left."""
        host = await self._starter.connect_or_start(self._connect_to_running_host)
        try:
            await self._console.write_output(START_OF_LINE + host.first_bytes)
            carrying_there = self._carry_to_host(host.stream)
            receiving = self._tasks.spawn_task(carrying_there, name="to the host")
            carrying_back = self._carry_from_host(host.stream)
            sending = self._tasks.spawn_task(carrying_back, name="from the host")
            await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                return running_instance.LATER
            return 0
        finally:
            await self._tasks.aclose(limit=1)
            await host.stream.close_stream()

    async def _connect_to_running_host(self) -> "AnsweringHost | None":
        wire = await running_instance.connect_to_owner(self._starter.run, self._starter.workspace)
        if wire is None:
            return None
        stream = OwnerStream(wire, [*HOST_ARGUMENTS, self._starter.workspace])
        first_bytes = await stream.read_bytes()
        if first_bytes:
            return AnsweringHost(stream, first_bytes)
        await stream.close_stream()
        return None

    async def _carry_to_host(self, stream: OwnerStream) -> None:
        while piece := await self._console.read_input():
            await stream.write_bytes(piece)

    async def _carry_from_host(self, stream: OwnerStream) -> None:
        while piece := await stream.read_bytes():
            await self._console.write_output(piece)


@dataclass(frozen=True, slots=True)
class AnsweringHost:
    """A connection to a host, and what it has said on it already."""

    stream: OwnerStream
    first_bytes: bytes
