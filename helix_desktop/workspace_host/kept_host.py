"""The end of a line from another computer, and the process that has the workspace open for it.

They are two processes, so that the agent goes on when the line breaks. The end of the line ends with
it. The other process (the kept host) stays as long as it has a client, or an agent at work.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from helix_desktop import running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console
from helix_desktop.errors import HelixError
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

# What the end of a line writes first. Before it, a login may print anything.
START_OF_LINE = b"\n== helix-desktop host ==\n"
UNUSED_SECONDS = 60.0
LOOK_SECONDS = 1.0
OPEN_SECONDS = 30.0
PAUSE_SECONDS = 0.1


async def wait_until_unused(bench: Workbench) -> None:
    """Returns when there has been no client and no agent at work for a while."""
    loop = asyncio.get_running_loop()
    last_used = loop.time()
    while loop.time() - last_used < UNUSED_SECONDS:
        await asyncio.sleep(LOOK_SECONDS)
        has_work = not all(session.is_idle for session in bench.sessions)
        if has_work or count_clients(bench.id):
            last_used = loop.time()


class LineEnd:
    """Carries bytes between `console`, where the line from the other computer arrives, and the
    process that has the workspace open. `program` starts this program.
    """

    def __init__(self, run: Path, workspace: str, program: Sequence[str], console: Console) -> None:
        self._run = run
        self._workspace = workspace
        self._program = list(program)
        self._console = console
        self._tasks = OwnedTasks("line from another computer")

    async def carry_until_either_ends(self) -> int:
        """Returns LATER if the host has ended, and 0 if the other computer has left."""
        stream, first_piece = await self._connect_or_start_host()
        try:
            await self._console.write_output(START_OF_LINE + first_piece)
            receiving = self._tasks.spawn_task(self._carry_to_host(stream), name="to the host")
            sending = self._tasks.spawn_task(self._carry_from_host(stream), name="from the host")
            await asyncio.wait({receiving, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                return running_instance.LATER
            return 0
        finally:
            await self._tasks.aclose(limit=1)
            await stream.close_stream()

    async def _carry_to_host(self, stream: OwnerStream) -> None:
        while piece := await self._console.read_input():
            await stream.write_bytes(piece)

    async def _carry_from_host(self, stream: OwnerStream) -> None:
        while piece := await stream.read_bytes():
            await self._console.write_output(piece)

    async def _connect_or_start_host(self) -> tuple[OwnerStream, bytes]:
        """Returns the connection, and what the host has said on it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + OPEN_SECONDS
        kept_host: ChildProcess | None = None
        while loop.time() < until:
            wire = await running_instance.connect_to_owner(self._run, self._workspace)
            if wire is not None:
                stream = OwnerStream(wire, [*HOST_ARGUMENTS, self._workspace])
                first_piece = await stream.read_bytes()
                if first_piece:
                    return stream, first_piece
                # A command has the workspace open for a moment.
                await stream.close_stream()
            elif kept_host is None or kept_host.poll() is not None:
                kept_host = await asyncio.to_thread(self._start_kept_host)
            await asyncio.sleep(PAUSE_SECONDS)
        raise HelixError(
            "The workspace could not be opened there.",
            remedy="Another program may have it open. Look into the log of Helix Desktop on that computer.",
        )

    def _start_kept_host(self) -> ChildProcess:
        """Starts it apart from this process, whose end it must not notice."""
        argv = [*self._program, "host", "--keep", "--workspace", self._workspace]
        launch = ProcessLaunch(CommandAuthor.PROGRAM, argv, has_own_session=True)
        return open_process(launch, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL)
