"""The ways on which frames travel: sockets and pipes, and the console of a command."""

import asyncio
import contextlib
import logging
from typing import Protocol

from helix_desktop import running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console
from helix_desktop.errors import HelixError

log = logging.getLogger(__name__)
PIECE = 1 << 18


class ByteStream(Protocol):
    async def read_bytes(self) -> bytes:
        """Returns the next piece, or empty bytes at the end."""

    async def write_bytes(self, content: bytes) -> None:
        """Returns when the other side has room for more. ConnectionError if it has gone."""

    async def close_stream(self) -> None: ...


class SocketStream:
    """A connected socket, or the pipes of a process."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read_bytes(self) -> bytes:
        try:
            return await self._reader.read(PIECE)
        except OSError:  # A network that no longer leads there is one without ConnectionError.
            return b""

    async def write_bytes(self, content: bytes) -> None:
        self._writer.write(content)
        try:
            await self._writer.drain()
        except ConnectionError:
            raise
        except OSError as error:
            raise ConnectionResetError("the line no longer leads to the other side") from error

    async def close_stream(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class ConsoleStream:
    """The host's end, if its client is the console of a command."""

    def __init__(self, console: Console) -> None:
        self._console = console

    async def read_bytes(self) -> bytes:
        return await self._console.read_input()

    async def write_bytes(self, content: bytes) -> None:
        await self._console.write_output(content)

    async def close_stream(self) -> None:
        """The console closes when the command has ended."""


class OwnerStream:
    """The client's end: a command at the process that has the workspace open.

    It is the console of that command. What the host writes comes as the command's output.
    """

    def __init__(self, wire: running_instance.FrameConnection, arguments: list[str]) -> None:
        self._unsent: asyncio.Queue[bytes] = asyncio.Queue()
        self._unread: asyncio.Queue[bytes] = asyncio.Queue()
        self._tasks = OwnedTasks("client of a workspace host")
        self.exit_code = 0
        self.complaint = ""
        self._tasks.spawn_task(
            self._run_host_command_line(wire, arguments), name="run the host's command"
        )

    async def _run_host_command_line(
        self, wire: running_instance.FrameConnection, arguments: list[str]
    ) -> None:
        try:
            self.exit_code = await running_instance.run_at_owner(wire, arguments, self)
        except HelixError as error:
            log.info("a workspace host has gone: %s", error.what)
        finally:
            self._unread.put_nowait(b"")

    # --- The stream

    async def read_bytes(self) -> bytes:
        return await self._unread.get()

    async def write_bytes(self, content: bytes) -> None:
        self._unsent.put_nowait(content)

    async def close_stream(self) -> None:
        await self._tasks.aclose(limit=1)

    # --- The console of the command

    async def read_input(self) -> bytes:
        pieces = [await self._unsent.get()]
        while not self._unsent.empty():
            pieces.append(self._unsent.get_nowait())
        return b"".join(pieces)

    async def write_output(self, data: bytes) -> None:
        self._unread.put_nowait(data)

    async def print_line(self, text: str) -> None:
        log.info("a workspace host says: %s", text)

    async def print_error(self, sentence: str) -> None:
        self.complaint = sentence
