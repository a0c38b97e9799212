"""Lets a second start, or the command line, run a command in the process that has the workspace or
the window open.

The owner listens on a socket in a private folder, and the caller must be the same user.
A request is a command line. The owner runs it and fetches the caller's input piece by
piece as the command reads it; what the command writes goes to the caller's output. So
every command works beside an open window, with binary data of any size, and is written
once.

A frame is one letter, the length of its content (four bytes, big endian), and the content: H hello
from the owner, who will answer · A arguments (JSON) · R "read a piece of your input" · I part of
such a piece, D end of the piece · O output · S a line for standard output, E for standard error · X
exit code. On Windows, asyncio has no such sockets. There, the owner listens on a loopback port,
whose number and a token (frame T, sent first) are in a file of the private folder.
"""

import asyncio
import contextlib
import hmac
import json
import logging
import os
import secrets
import socket
import stat
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from helix_desktop.atomic_files import ensure_private_folder, lock_open_file, write_file_atomically
from helix_desktop.concurrency import OwnedTasks, wait_with_limit
from helix_desktop.console import PIECE, Console
from helix_desktop.errors import (
    TO_WRITABLE_FOLDER,
    ActionRefused,
    HelixError,
    InvalidInput,
    OwnerEnded,
    StoppedByUser,
    StoreFailed,
)

VERSION = 1
HEADER = struct.Struct(">cI")
LARGEST = PIECE
HELLO_SECONDS = 10.0  # A running program that hangs delays other programs by at most this time.
# Until a caller has said what it wants, it is nobody yet: any program can connect and say nothing.
OPENING_SECONDS = 60.0
MOST_OPENINGS = 200
MOST_ARGUMENT_BYTES = 64 << 20  # An import names each of its files.
MOST_PIECE_BYTES = 512 << 20  # One piece of input may be a message with everything attached to it.
SOCKETS = sys.platform != "win32"
LATER = 75  # The exit code that tells another process of this program: "ask again in a moment".
GIVEN_WAY_SECONDS = (
    1.5  # A process that gives way to another stays out of the workspace for this long.
)

Answer = Callable[[list[str], Console], Awaitable[int]]
log = logging.getLogger(__name__)


class FrameConnection:
    """One end of a socket connection that carries frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send_frame(self, kind: bytes, content: bytes = b"") -> None:
        for start in range(0, max(len(content), 1), LARGEST):
            piece = content[start : start + LARGEST]
            header = HEADER.pack(kind, len(piece))
            self._writer.write(header)
            self._writer.write(piece)
            await self._writer.drain()

    async def receive_frame(self) -> tuple[bytes, bytes]:
        """Returns the next frame. EOFError if the other end has disconnected,
        InvalidInput if it is not a frame.
        """
        kind, length = HEADER.unpack(await self._reader.readexactly(HEADER.size))
        if length > LARGEST:
            raise InvalidInput("The data on the socket is not from this program.")
        return kind, await self._reader.readexactly(length)

    def abort(self) -> None:
        """Closes at once, without sending what has not been sent."""
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    def peer_socket(self) -> socket.socket:
        found: socket.socket = self._writer.get_extra_info("socket")
        return found


class CallerConsole:
    """The calling process's console, for a command that runs in the owner's process."""

    def __init__(self, wire: FrameConnection) -> None:
        self._wire = wire
        self._input: asyncio.Queue[bytes] = asyncio.Queue()
        self._parts = bytearray()
        self._pieces_asked_for = 0

    def handle_frame(self, kind: bytes, content: bytes) -> None:
        """Raises InvalidInput for input that nobody asked for, or without an end: it would all be
        kept.
        """
        if not self._pieces_asked_for or len(self._parts) + len(content) > MOST_PIECE_BYTES:
            raise InvalidInput("The caller sent input that was not asked for.")
        if kind == b"I":
            self._parts += content
        elif kind == b"D":
            self._pieces_asked_for -= 1
            self._input.put_nowait(bytes(self._parts))
            self._parts.clear()

    async def read_input(self) -> bytes:
        self._pieces_asked_for += 1
        await self._wire.send_frame(b"R")
        return await self._input.get()

    async def write_output(self, data: bytes) -> None:
        if data:
            await self._wire.send_frame(b"O", data)

    async def print_line(self, text: str) -> None:
        await self._wire.send_frame(b"S", text.encode("utf-8", "replace"))

    async def print_error(self, sentence: str) -> None:
        await self._wire.send_frame(b"E", sentence.encode("utf-8", "replace"))


class RequestListener:
    """Listens as `name` in the private folder `run` until `aclose`. Create one with
    `listen_for_requests`.
    """

    def __init__(self, address: Path, answer: Answer, patience: float | None) -> None:
        self._address = address
        self._answer = answer
        self._patience = patience
        self._tasks = OwnedTasks("requests")
        self._token = secrets.token_hex(32)
        self._server: asyncio.Server | None = None
        # Callers that have not yet said what they want, in the order in which they came.
        self._openings: dict[FrameConnection, None] = {}

    async def start_listening(self, *, sockets: bool) -> None:
        """Starts listening. No await separates creating and storing the socket:
        cancelling leaves no address.
        """
        if sockets:
            self._address.unlink(
                missing_ok=True
            )  # A crash may have left it. Only the workspace's owner uses it.
            self._server = await asyncio.start_unix_server(
                self._serve_new_connection, path=self._address, limit=LARGEST, start_serving=False
            )
        else:
            self._server = await asyncio.start_server(
                self._serve_new_connection, "127.0.0.1", 0, limit=LARGEST, start_serving=False
            )
        try:
            await self._server.start_serving()
            if not sockets:
                told = json.dumps(
                    {"port": self._server.sockets[0].getsockname()[1], "token": self._token}
                )
                write_file_atomically(self._address, told, private=True)
        except BaseException:
            self._stop_listening()
            raise

    async def finish_requests(self) -> None:
        """Refuses new requests, and waits at most `patience` seconds for running ones.
        Also works in a task that is being cancelled, where `asyncio.timeout` of Python
        3.11.2 fails.
        """
        self._stop_listening()
        try:
            with contextlib.suppress(TimeoutError):
                await wait_with_limit(self._tasks.wait_for_all_tasks(), self._patience)
        finally:
            await self._tasks.aclose(limit=2)

    async def aclose(self) -> None:
        """Refuses new requests, and stops running ones."""
        self._stop_listening()
        await self._tasks.aclose(limit=2)

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._address.unlink(missing_ok=True)
            self._server.close()
            self._server = None

    def _serve_new_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            serving = self._serve_request(FrameConnection(reader, writer))
            self._tasks.spawn_task(serving, name="request")
        except StoppedByUser:
            writer.close()

    async def _serve_request(self, wire: FrameConnection) -> None:
        try:
            self._check_peer_user(wire)
            self._openings[wire] = None
            self._close_longest_opening()
            try:
                async with asyncio.timeout(OPENING_SECONDS):
                    opening = await self._receive_opening(wire)
            finally:
                self._openings.pop(wire, None)
            arguments = _decode_request_arguments(opening)
            await self._run_request(wire, arguments)
        except (EOFError, ConnectionError, TimeoutError):
            log.info("a caller went away")
        except HelixError as error:
            log.warning("a caller was refused: %s", error.what)
        finally:
            await wire.close()

    def _close_longest_opening(self) -> None:
        """Each takes one of the open files that this process may have."""
        if len(self._openings) > MOST_OPENINGS:
            longest = next(iter(self._openings))
            del self._openings[longest]
            longest.abort()

    def _check_peer_user(self, wire: FrameConnection) -> None:
        peer = wire.peer_socket()
        if peer.family == getattr(socket, "AF_UNIX", None) and user_id_of_peer(peer) != os.getuid():
            raise ActionRefused("The request came from another user's program.")

    async def _receive_opening(self, wire: FrameConnection) -> bytes:
        if wire.peer_socket().family != getattr(socket, "AF_UNIX", None):
            kind, content = await wire.receive_frame()
            if kind != b"T" or not hmac.compare_digest(content, self._token.encode()):
                raise ActionRefused("The request came from a program without the token.")
        await wire.send_frame(b"H")
        kind, last = await wire.receive_frame()
        arguments = bytearray(last)
        while kind == b"A" and len(last) == LARGEST:
            kind, last = await wire.receive_frame()
            arguments += last
            if len(arguments) > MOST_ARGUMENT_BYTES:
                raise InvalidInput("The arguments of a request are too long.")
        if kind != b"A":
            raise InvalidInput("A request must start with its arguments.")
        return bytes(arguments)

    async def _run_request(self, wire: FrameConnection, arguments: list[str]) -> None:
        """Runs the command while receiving its input. If the caller disconnects, the
        command is cancelled.
        """
        console = CallerConsole(wire)
        # Task names are logged. The arguments may be private, so this name omits them.
        answering = _answer_request(self._answer, arguments, console)
        work = self._tasks.spawn_task(answering, name="answer")
        listening = self._tasks.spawn_task(_listen_for_input(wire, console), name="input")
        try:
            await asyncio.wait({work, listening}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            listening.cancel()
            if not work.done():
                work.cancel()
        if not work.cancelling():
            exit_code = str(work.result())
            await wire.send_frame(b"X", exit_code.encode())


async def _listen_for_input(wire: FrameConnection, console: CallerConsole) -> None:
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            console.handle_frame(*await wire.receive_frame())


async def _answer_request(answer: Answer, arguments: list[str], console: Console) -> int:
    """Returns the exit code. Errors become sentences for the caller."""
    try:
        return await answer(arguments, console)
    except HelixError as error:
        await console.print_error(str(error))
        return 2 if isinstance(error, InvalidInput) else 1
    except Exception:  # Whatever goes wrong, the sender of the request must be told.
        log.exception("a request failed")
        await console.print_error(
            "The running program failed while it answered, because of a bug. Details are in its log."
        )
        return 1


def _decode_request_arguments(content: bytes) -> list[str]:
    try:
        request = json.loads(content)
        version = request["version"]
        arguments = request["arguments"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InvalidInput("The request is not valid.") from error
    if version != VERSION:
        raise InvalidInput(
            f"The request uses version {version}, but this program requires version {VERSION}."
        )
    return [str(argument) for argument in arguments]


async def listen_for_requests(
    run: Path, name: str, answer: Answer, *, patience: float | None = None, sockets: bool = SOCKETS
) -> RequestListener:
    """Starts to answer requests to `name`. Only the owner of what the name stands for
    may call this.
    """
    try:
        private_folder = check_private_folder(run)
        address = _address_of_owner(private_folder, name, sockets=sockets)
        owner = RequestListener(address, answer, patience)
        await owner.start_listening(sockets=sockets)
    except OSError as error:  # The disk may be full, or the file system may lack sockets.
        raise HelixError(
            f"Helix Desktop cannot listen for commands in {run}: {error.strerror or error}.",
            remedy="Nothing was changed. Free up space in that folder, or start with another folder (--home).",
        ) from error
    return owner


async def connect_to_owner(
    run: Path, name: str, *, sockets: bool = SOCKETS
) -> FrameConnection | None:
    """Connects to the owner of `name`. Returns None if nobody listens or answers."""
    address = _address_of_owner(run, name, sockets=sockets)
    if not address.exists():
        return None
    check_private_folder(run, make=False)
    try:
        wire = await _open_connection(address, sockets=sockets)
    except (OSError, ValueError, KeyError):
        return None
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            await wire.receive_frame()  # The owner's greeting. An owner that is ending sends none.
    except (OSError, EOFError):  # TimeoutError is an OSError, too.
        await wire.close()
        return None
    return wire


def is_listening(run: Path, name: str, *, sockets: bool = SOCKETS) -> bool:
    """Whether the owner of `name` listens already. A killed one can leave a socket at which nobody
    listens.
    """
    address = _address_of_owner(run, name, sockets=sockets)
    if not sockets or not address.exists():
        return address.exists()
    with socket.socket(socket.AF_UNIX) as asking:
        return asking.connect_ex(str(address)) == 0


async def _open_connection(address: Path, *, sockets: bool) -> FrameConnection:
    if sockets:
        return FrameConnection(*await asyncio.open_unix_connection(address, limit=LARGEST))
    at = json.loads(address.read_text(encoding="utf-8"))  # noqa: ASYNC240 - a few bytes
    wire = FrameConnection(*await asyncio.open_connection("127.0.0.1", at["port"], limit=LARGEST))
    await wire.send_frame(b"T", at["token"].encode())
    return wire


async def run_at_owner(wire: FrameConnection, arguments: Sequence[str], console: Console) -> int:
    """Runs a command at the owner with this console. Returns the exit code; HelixError
    if the owner disconnects.
    """
    helpers = OwnedTasks("hand over")
    try:
        with _report_lost_owner():
            content = json.dumps({"version": VERSION, "arguments": list(arguments)}).encode()
            # A frame that is shorter than the longest one ends the arguments.
            await wire.send_frame(b"A", content if len(content) % LARGEST else content + b" ")
        while True:
            with _report_lost_owner():  # Not around the console, whose own reader may also close.
                kind, content = await wire.receive_frame()
            if kind == b"X":
                return int(content)
            if kind == b"R":
                helpers.spawn_task(_send_console_input(wire, console), name="input")
            elif kind == b"O":
                await console.write_output(content)
            elif kind == b"S":
                await console.print_line(content.decode("utf-8", "replace"))
            elif kind == b"E":
                await console.print_error(content.decode("utf-8", "replace"))
    finally:
        await helpers.aclose(limit=1)
        await wire.close()


@contextlib.contextmanager
def _report_lost_owner() -> Iterator[None]:
    try:
        yield
    except (EOFError, ConnectionError) as error:
        raise OwnerEnded(
            "The running program was closed before it answered.", remedy="Try again."
        ) from error


async def _send_console_input(wire: FrameConnection, console: Console) -> None:
    try:
        piece = await console.read_input()
    except HelixError as error:
        await console.print_error(str(error))
        piece = b""
    with contextlib.suppress(ConnectionError):
        await wire.send_frame(b"I", piece)
        await wire.send_frame(b"D")


def _address_of_owner(run: Path, name: str, *, sockets: bool) -> Path:
    if sockets and len(os.fsencode(run / name)) > 98:  # macOS allows 103 bytes with the suffix.
        name = hmac.digest(b"name", name.encode(), "sha256").hex()[:7]
    return run / f"{name}.{'sock' if sockets else 'port'}"


def check_private_folder(folder: Path, *, make: bool = True) -> Path:
    """Returns the folder if it belongs to this user and is closed to others. Otherwise
    raises ActionRefused.
    """
    if make:
        ensure_private_folder(folder)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise ActionRefused(f"{folder} is not a folder.")
    if SOCKETS and (found.st_uid != os.getuid() or found.st_mode & 0o077):
        raise ActionRefused(
            f"Other users can access {folder}.",
            remedy="Remove the folder, or check who created it.",
        )
    return folder


def user_id_of_peer(peer: socket.socket) -> int:
    """Returns the user at the other end of a local socket, according to the kernel."""
    if sys.platform == "linux":
        _, user, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    else:  # On macOS: the struct xucred of LOCAL_PEERCRED at level SOL_LOCAL.
        _, user = struct.unpack_from("II", peer.getsockopt(0, 1, 76))
    return int(user)


def claim_instance(run: Path, name: str) -> IO[bytes] | None:
    """Returns an open file, the claim to listen as `name`, or None when another process
    holds it. The claim is released when the file is closed or the process ends, however
    it ends.
    """
    path = run / f"{name}.lock"
    try:
        check_private_folder(run)
        claim = path.open("ab")
    except OSError as error:
        raise StoreFailed(
            f"{path} cannot be opened: {error.strerror}.", remedy=TO_WRITABLE_FOLDER
        ) from error
    try:
        lock_open_file(claim.fileno())
    except OSError:
        claim.close()
        return None
    return claim
