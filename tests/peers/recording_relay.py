"""A relay in front of a real server that keeps what goes through it, byte for byte."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

PIECE_BYTES = 65_536


class RecordingRelay:
    """Use as a context manager. `url` is where the server is reached through the relay."""

    def __init__(self, server_url: str) -> None:
        self._server = urlsplit(server_url)
        self._asked: list[bytearray] = []  # What clients sent, a buffer for each connection.
        self._answered = bytearray()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._thread: threading.Thread | None = None  # noqa: TID251 (stands for another program)
        self.url = ""

    def answers(self) -> bytes:
        return bytes(self._answered)

    def json_bodies(self) -> list[Any]:
        """Return the bodies of all posted requests, of each connection in their order."""
        bodies: list[Any] = []
        for asked in self._asked:
            rest = bytes(asked)
            while b"\r\n\r\n" in rest:
                head, _, rest = rest.partition(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                if length is None:
                    continue
                size = int(length[1])
                if size:
                    bodies.append(json.loads(rest[:size]))
                rest = rest[size:]
        return bodies

    def __enter__(self) -> Self:
        ready: Future[int] = Future()
        self._thread = threading.Thread(  # noqa: TID251 (as above)
            target=lambda: asyncio.run(self._serve(ready)), name="relay", daemon=True
        )
        self._thread.start()
        self.url = f"http://127.0.0.1:{ready.result(timeout=60)}"
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
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        ready.set_result(server.sockets[0].getsockname()[1])
        await self._stop.wait()
        server.close()

    async def _relay(
        self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        from_server, to_server = await asyncio.open_connection(
            self._server.hostname, self._server.port
        )
        asked = bytearray()
        self._asked.append(asked)
        try:
            await asyncio.gather(
                _pass_on(from_client, to_server, asked),
                _pass_on(from_server, to_client, self._answered),
            )
        finally:
            to_server.close()
            to_client.close()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, kept: bytearray
) -> None:
    """Pass on until one side ends, and end the other side then."""
    try:
        while piece := await reader.read(PIECE_BYTES):
            kept += piece
            writer.write(piece)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()
