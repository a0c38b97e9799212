"""Runs a server as a process that exchanges lines of JSON, and leaves nothing of it when it ends.

The SDK's transport copies long lines repeatedly, parses without limits, and waits two
seconds at the end.
"""

import asyncio
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from functools import partial
from typing import cast

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage

from helix_desktop.concurrency import wait_with_limit
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import has_more_values
from helix_desktop.processes.jail import jail_command_line
from helix_desktop.processes.running_command import RunningCommand, kill_descendants
from helix_desktop.processes.starter import (
    PIPE,
    CommandAuthor,
    Process,
    ProcessLaunch,
    ProcessPlace,
)

LONGEST = 24 << 20  # Messages with more bytes are refused.
MOST_VALUES = 500_000  # So are those with more values: parsed, they would take gigabytes.
IN_THREAD = 1 << 20  # Messages with more bytes are parsed in a thread.
MOST_LOG_LINES = 500
LONGEST_LOG_LINE = 4_000  # In bytes. Of a longer line, only the end is kept.
_PIECE = 1 << 16
_ASK_SECONDS = 0.4
_FORCE_SECONDS = 0.4
Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@dataclass(slots=True)
class ServerLog:
    """The last lines of a server's standard error, and what is wrong with its standard output."""

    lines: deque[str] = field(default_factory=lambda: deque(maxlen=MOST_LOG_LINES))
    why: str = ""  # Why the connection ended, if more precise than the SDK's reason.

    def append_log_text(self, text: str) -> None:
        self.lines.append(text[:2_000])


@asynccontextmanager
async def start_server_process(
    argv: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    record: ServerLog,
    lost: Callable[[], None],
) -> AsyncIterator[Streams]:
    """Start a server, yield the streams of its messages, and leave nothing of it afterwards.

    `record` gets what it writes to standard error. `lost` is called when its output ends. Three
    tasks move messages and lines between the process and the streams, which the SDK uses.
    """
    launch = ProcessLaunch(
        CommandAuthor.USER, argv, folder, environment, place=ProcessPlace.WATCHED
    )
    command = await RunningCommand.start_in_jail(
        launch, partial(_server_keeper_command, argv), stdin=PIPE, stderr=PIPE
    )
    process = command.process
    to_session, incoming = anyio.create_memory_object_stream[Incoming](0)
    outgoing, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with incoming, outgoing, to_session, from_session, anyio.create_task_group() as group:
            group.start_soon(_read_process_messages, process, to_session, record, lost)
            group.start_soon(_write_process_messages, process, from_session)
            group.start_soon(_read_standard_error, process, record)
            try:
                yield incoming, outgoing
            finally:
                group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _end_server_process(command)


def _server_keeper_command(argv: Sequence[str], lifeline: int) -> list[str]:
    """Return the command line that runs the server under our keeper (`jail.py`).

    The keeper ends the server with all that it started, even if this program is killed.
    `lifeline`: the number of the pipe whose end tells it to.
    """
    if sys.platform == "win32":
        return list(argv)
    return jail_command_line({"lifeline": lifeline, "attended": True}, argv)


async def _read_process_messages(
    process: Process,
    to_session: MemoryObjectSendStream[Incoming],
    record: ServerLog,
    lost: Callable[[], None],
) -> None:
    """Pass on the server's messages, each a line of JSON, until its output ends.

    It also ends at a message that is too large. Then the connection counts as lost.
    """
    output = cast(asyncio.StreamReader, process.stdout)
    async with to_session:
        # From here on, the connection counts as lost.
        record.why = await _deliver_lines_until_end(output, to_session, record)
    await _wait_for_standard_error(process)
    lost()


async def _deliver_lines_until_end(
    output: asyncio.StreamReader, to_session: MemoryObjectSendStream[Incoming], record: ServerLog
) -> str:
    """Pass on each line, and return why no more are read."""
    unfinished_line: list[bytes] = []  # In pieces: joining them each time would copy them all.
    unfinished_bytes = 0
    while True:
        data = await output.read(_PIECE)
        if not data:
            return "it closed the connection"
        parts = data.split(b"\n")
        beginning_of_next_line = parts.pop()
        for end_of_line in parts:
            unfinished_line.append(end_of_line)
            line = b"".join(unfinished_line)
            if has_more_values(line, MOST_VALUES):
                return f"it sent a message of more than {MOST_VALUES:,} values"
            await _deliver_message_line(line, to_session, record)
            unfinished_line.clear()
            unfinished_bytes = 0
        unfinished_line.append(beginning_of_next_line)
        unfinished_bytes += len(beginning_of_next_line)
        if unfinished_bytes > LONGEST:
            return f"it sent a message of more than {LONGEST:,} bytes"


async def _wait_for_standard_error(process: Process) -> None:
    """Wait briefly for the rest of its standard error, before saying why it ended."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.2):
            await process.wait()
            await asyncio.sleep(0.02)


async def _deliver_message_line(
    line: bytes, to_session: MemoryObjectSendStream[Incoming], record: ServerLog
) -> None:
    """Pass on the message that a line is. What is none goes into the server's log."""
    if not line.strip():
        return
    parse = partial(types.jsonrpc_message_adapter.validate_json, line, by_name=False)
    try:
        if len(line) > IN_THREAD:
            message = await asyncio.to_thread(parse)
        else:
            message = parse()
    except ValueError:
        beginning = line[:200].decode("utf-8", "replace")
        record.append_log_text(f"[on standard output, and no message] {beginning}")
        return
    # The session may have ended meanwhile, so that nobody takes messages any more.
    with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
        await to_session.send(SessionMessage(message))


async def _write_process_messages(
    process: Process, from_session: MemoryObjectReceiveStream[SessionMessage]
) -> None:
    """Write the session's messages to the server's input, a line each."""
    stdin = cast(asyncio.StreamWriter, process.stdin)
    async with from_session:
        async for outgoing in from_session:
            line = outgoing.message.model_dump_json(by_alias=True, exclude_unset=True)
            with suppress(OSError):  # If the process has ended, its output is closed.
                stdin.write(line.encode() + b"\n")
                await stdin.drain()


async def _read_standard_error(process: Process, record: ServerLog) -> None:
    """Read its standard error by lines. A line without an end is cut."""
    standard_error = cast(asyncio.StreamReader, process.stderr)
    unfinished_line = b""
    while True:
        data = await standard_error.read(_PIECE)
        if not data:
            break
        lines = (unfinished_line + data).split(b"\n")
        unfinished_line = lines.pop()[-LONGEST_LOG_LINE:]
        for line in lines:
            record.append_log_text(line.decode("utf-8", "replace").rstrip())
    if unfinished_line:
        record.append_log_text(unfinished_line.decode("utf-8", "replace"))


async def _end_server_process(command: RunningCommand) -> None:
    """End a server: ask it by closing its input, and then kill it with all that it started.

    It waits without `asyncio.timeout`, which fails in a cancelled task of Python 3.11.2.
    """
    process = command.process
    # A server that is well made ends when its input ends.
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    has_ended = await _has_ended_within(process, _ASK_SECONDS)
    if not has_ended:
        command.kill_process_tree()
        has_ended = await _has_ended_within(process, _FORCE_SECONDS)
    if not has_ended:
        _kill_server_and_children(process.pid)
        await _has_ended_within(process, _FORCE_SECONDS)
    command.kill_process_tree()
    _kill_server_and_children(process.pid)  # Children may still be running.
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            # Read to its end, since a pipe that nobody reads is never closed.
            with suppress(TimeoutError):
                await wait_with_limit(_read_until_empty(stream), _FORCE_SECONDS)


async def _has_ended_within(process: Process, seconds: float) -> bool:
    """Wait for the end of a process. False: it is still running after this time."""
    try:
        await wait_with_limit(process.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _kill_server_and_children(keeper: int) -> None:
    kill_descendants(keeper)
    with suppress(OSError):
        if sys.platform != "win32":
            os.killpg(keeper, signal.SIGKILL)


async def _read_until_empty(stream: asyncio.StreamReader) -> None:
    while await stream.read(_PIECE):
        pass
