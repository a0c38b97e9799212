"""A relay on this machine that adds a token to every request, for programs that have no
option for headers.

It passes bytes on as they came, and names its own address as the server's, so that what
a server says to a strange host, origin or header is the server's own word.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"(?i)\r\ncontent-length: *(\d+)")


@asynccontextmanager
async def relayed(url: str, token: str) -> AsyncIterator[str]:
    """The same server without a token, at another port."""
    port = urlsplit(url).port or 80

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        back = asyncio.ensure_future(_copy(far_reader, writer))  # noqa: TID251 -- ended with its connection
        try:
            with suppress(asyncio.IncompleteReadError, OSError):
                while True:
                    await _request(reader, far_writer, own, port, token)
        finally:
            far_writer.close()
            await back

    server = await asyncio.start_server(meet, "127.0.0.1", 0, limit=1 << 20)
    own = server.sockets[0].getsockname()[1]
    async with server:
        yield f"http://127.0.0.1:{own}{urlsplit(url).path}"


async def _request(
    reader: asyncio.StreamReader, far: asyncio.StreamWriter, own: int, port: int, token: str
) -> None:
    """One request, with the token in place of any other."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = _LENGTH.search(head)
    first, _, rest = head.partition(b"\r\n")
    rest = re.sub(rb"(127\.0\.0\.1|localhost):%d\b" % own, rb"\1:%d" % port, rest)
    far.write(first + b"\r\nAuthorization: " + token.encode() + b"\r\n" + rest)
    far.write(await reader.readexactly(int(length[1])) if length else b"")
    await far.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.close()
