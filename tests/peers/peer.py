"""A scripted HTTP server on loopback, in a thread of its own: real sockets, real HTTP,
every byte under control.

A script is a list of answers, given in order to the requests that are not for the list
of models. An answer is a status, headers and pieces; a piece is bytes, a pause, or the
end of the connection. A callable in the script gets the request and returns the answer.
`requests` is the record of what came in.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is sent for so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Cut:
    """The connection is closed in the middle of the body."""


Piece = bytes | Pause | Cut


@dataclass(frozen=True, slots=True)
class Answer:
    status: int = 200
    pieces: tuple[Piece, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    content_type: str = "text/event-stream"

    def split(self, size: int) -> Answer:
        """The same bytes in pieces of `size`, each sent by itself."""
        pieces: list[Piece] = []
        for piece in self.pieces:
            pieces += (
                [piece[at : at + size] for at in range(0, len(piece), size)]
                if isinstance(piece, bytes)
                else [piece]
            )
        return replace(self, pieces=tuple(pieces))

    def cut_after(self, pieces: int) -> Answer:
        """The connection is lost after so many pieces."""
        return replace(self, pieces=(*self.pieces[:pieces], Cut()))

    def ended_after(self, pieces: int) -> Answer:
        """The body ends properly after so many pieces: what a truncated stream looks like."""
        return replace(self, pieces=self.pieces[:pieces])

    def silent_after(self, pieces: int, seconds: float = 30.0) -> Answer:
        return replace(self, pieces=(*self.pieces[:pieces], Pause(seconds), *self.pieces[pieces:]))

    def with_piece(self, at: int, piece: Piece) -> Answer:
        return replace(self, pieces=(*self.pieces[:at], piece, *self.pieces[at:]))


def sse(*values: Any, names: Sequence[str] = ()) -> tuple[bytes, ...]:
    """Each value as one event; a string stands as it is."""
    made = []
    for position, value in enumerate(values):
        data = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        name = f"event: {names[position]}\n" if names else ""
        made.append(f"{name}data: {data}\n\n".encode())
    return tuple(made)


def json_answer(value: Any, status: int = 200, **headers: str) -> Answer:
    sent = tuple((name.replace("_", "-"), text) for name, text in headers.items())
    return Answer(status, (json.dumps(value).encode(),), sent, "application/json")


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    content: bytes
    time: float = field(default_factory=time.monotonic)

    @property
    def body(self) -> Any:
        return json.loads(self.content) if self.content else None


Scripted = Answer | Callable[[Seen], Answer]


class Peer:
    """Use as a context manager. Subclasses say how a whole list of models looks and
    where the base URL points.
    """

    base_path = ""

    def __init__(self, script: Iterable[Scripted] = (), *, default: Scripted | None = None) -> None:
        self.script: list[Scripted] = list(script)
        self.default = default
        self.requests: list[Seen] = []
        self.connections = 0
        self.left_early = 0  # clients that closed the connection while an answer was being sent
        self.port = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None  # noqa: TID251 (see below)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.base_path}"

    @property
    def bodies(self) -> list[Any]:
        return [seen.body for seen in self.requests if seen.method == "POST"]

    def answer(self, seen: Seen) -> Answer:
        """The next of the script, else the default, else an error that says the script is over."""
        if seen.method == "GET":
            return self.listing(seen)
        item = self.script.pop(0) if self.script else self.default
        if item is None:
            return json_answer({"error": {"message": "the script is over", "type": "script"}}, 400)
        return item if isinstance(item, Answer) else item(seen)

    def listing(self, seen: Seen) -> Answer:
        return json_answer({"error": {"message": f"nothing at {seen.path}"}}, 404)

    # --- the server
    #   --------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        ready: Future[int] = Future()
        self._thread = threading.Thread(  # noqa: TID251 (a test's peer is another program, in spirit)
            target=lambda: asyncio.run(self._serve(ready)), name="peer", daemon=True
        )
        self._thread.start()
        self.port = ready.result(timeout=60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        assert self._thread is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(timeout=60)

    async def _serve(self, ready: Future[int]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        handlers: set[asyncio.Task[None]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            handlers.add(task)
            try:
                with contextlib.suppress(
                    ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError
                ):
                    await self._connection(reader, writer)
            finally:
                handlers.discard(task)
                writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0, limit=64 * 1024 * 1024)
        ready.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while (seen := await _read(reader)) is not None:
            self.requests.append(seen)
            answer = self.answer(seen)
            try:
                whole = await _write(writer, answer)
            except ConnectionError:
                self.left_early += 1
                return
            if not whole:
                return


async def _read(reader: asyncio.StreamReader) -> Seen | None:
    """None, or IncompleteReadError, where the client has left."""
    if not (head := await reader.readuntil(b"\r\n")).strip():
        return None
    method, path, _ = head.decode("latin-1").split(" ", 2)
    headers: dict[str, str] = {}
    while (line := (await reader.readuntil(b"\r\n")).decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return Seen(method, path, headers, content)


async def _write(writer: asyncio.StreamWriter, answer: Answer) -> bool:
    """Send the answer chunk by chunk; False when the connection is to be closed."""
    lines = [
        f"HTTP/1.1 {answer.status} Scripted",
        f"content-type: {answer.content_type}",
        "transfer-encoding: chunked",
    ]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    writer.write("\r\n".join((*lines, "", "")).encode("latin-1"))
    await writer.drain()
    for piece in answer.pieces:
        if isinstance(piece, Cut):
            return False
        if isinstance(piece, Pause):
            await asyncio.sleep(piece.seconds)
        elif piece:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True
