"""The line from a client to the host of one workspace, made again whenever it has broken.

It may be broken for hours. What the agent does at the host goes on meanwhile, and a command that was
on its way is sent again with the same id, so that it is done once.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from enum import StrEnum

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import ActionRefused, HelixError, OwnerEnded
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.workspace_host.host_interface import CommandResult, HostCommand, new_command_id
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
# Returns None if no process has the workspace open any more.
ConnectToHost = Callable[[], Awaitable[RemoteWorkspaceHost | None]]


class LineStage(StrEnum):
    """`WAITING`: the line broke, and is tried again in a while. `UNHOSTED`: nobody has the workspace
    open any more, so there is no other end.
    """

    CONNECTING = "connecting"
    CONNECTED = "connected"
    WAITING = "waiting"
    UNHOSTED = "unhosted"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LineState:
    """`why`: what went wrong last. `next_try`: when it is tried again, in seconds of
    `time.monotonic`.
    """

    stage: LineStage
    why: str = ""
    next_try: float = 0.0


class HostLine:
    """`computer`: the other computer, as the user calls it; empty for this one."""

    def __init__(self, connect: ConnectToHost, computer: str = "") -> None:
        self.computer = computer
        self.state = LineState(LineStage.CONNECTING)
        self.host: RemoteWorkspaceHost | None = None
        self._connect = connect
        self._listeners: list[Callable[[LineState], None]] = []
        self._has_host = asyncio.Event()
        self._is_tried_now = asyncio.Event()
        self._tasks = OwnedTasks("line to a workspace's host")

    def watch_line(self, listener: Callable[[LineState], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def connect_line(self) -> bool:
        """Connects for the first time, and raises what is wrong if that fails. Returns False if no
        process has the workspace open.
        """
        host = await self._connect()
        if host is None:
            return False
        self._use_host(host)
        self._tasks.spawn_task(self._connect_as_often_as_it_breaks(host), name="keep connected")
        return True

    def try_now(self) -> None:
        """Ends the pause before the next attempt."""
        self._is_tried_now.set()

    async def wait_for_host(self) -> RemoteWorkspaceHost:
        while self.host is None:
            await self._has_host.wait()
        return self.host

    async def run_at_host(self, command: HostCommand) -> CommandResult:
        """Runs a command at once, or refuses it while the line is broken. If the line breaks while
        it runs, its answer is asked for again when there is a line.
        """
        if self.host is None:
            raise ActionRefused(
                "There is no connection to the workspace at this moment.",
                remedy="Nothing was done. Try again when it is back.",
            )
        return await self.run_at_next_host(command)

    async def run_at_next_host(self, command: HostCommand, command_id: str = "") -> CommandResult:
        """Waits for a line if there is none."""
        used_id = command_id or new_command_id()
        while True:
            host = await self.wait_for_host()
            try:
                return await host.run_host_command(command, used_id)
            except OwnerEnded:
                if self.state.stage is LineStage.CLOSED:
                    raise
                self.note_end_of_host(host)

    async def close_line(self) -> None:
        self._set_line_state(LineState(LineStage.CLOSED))
        host = self.host
        self.host = None
        self._has_host.clear()
        await self._tasks.aclose(limit=1)
        if host is not None:
            await host.close_host()

    # --- Connecting again

    async def _connect_as_often_as_it_breaks(self, host: RemoteWorkspaceHost) -> None:
        current_host: RemoteWorkspaceHost | None = host
        while current_host is not None:
            await current_host.has_ended.wait()
            self.note_end_of_host(current_host)
            await current_host.close_host()
            current_host = await self._connect_again()

    async def _connect_again(self) -> RemoteWorkspaceHost | None:
        """Returns the next connection, or None if nobody has the workspace open any more."""
        pause_seconds = FIRST_PAUSE_SECONDS
        while True:
            try:
                host = await self._connect()
            except HelixError as error:
                next_try = time.monotonic() + pause_seconds
                self._set_line_state(LineState(LineStage.WAITING, error.what, next_try))
                await self._pause_before_next_try(pause_seconds)
                pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
                self._set_line_state(LineState(LineStage.CONNECTING, error.what))
                continue
            if host is None:
                self._set_line_state(LineState(LineStage.UNHOSTED))
                return None
            self._use_host(host)
            return host

    async def _pause_before_next_try(self, seconds: float) -> None:
        self._is_tried_now.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._is_tried_now.wait()
        except TimeoutError:
            pass

    def _use_host(self, host: RemoteWorkspaceHost) -> None:
        self.host = host
        self._has_host.set()
        self._set_line_state(LineState(LineStage.CONNECTED))

    def note_end_of_host(self, host: RemoteWorkspaceHost) -> None:
        """Several may notice that the same line broke. Each calls this before it waits for the
        next.
        """
        if self.host is host:
            self.host = None
            self._has_host.clear()
            self._set_line_state(LineState(LineStage.CONNECTING))

    def _set_line_state(self, state: LineState) -> None:
        self.state = state
        for listener in tuple(self._listeners):
            listener(state)
