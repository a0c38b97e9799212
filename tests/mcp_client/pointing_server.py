"""An MCP server somewhere else that points to a program of this computer while a user signs in.

It is reached at the address that this computer has towards others, as one of another computer would
be. `VictimOnThisComputer` listens where only programs of this computer come, and counts them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

# What of a sign-in leads to the victim.
WAYS = ("resource metadata", "sign-in server", "registration", "page", "token", "redirect")
# Spellings of this computer's own address, as the system resolves them.
SPELLINGS = ("127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "[::ffff:127.0.0.1]", "0.0.0.0", "127.0.0.1.", "LOCALHOST")  # noqa: S104 -- nothing is bound to it  # fmt: skip


@dataclass
class VictimOnThisComputer:
    port: int
    visits: int = 0


@asynccontextmanager
async def victim_on_this_computer() -> AsyncIterator[VictimOnThisComputer]:
    victim: VictimOnThisComputer

    async def count_visit(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        victim.visits += 1
        writer.close()

    server = await asyncio.start_server(count_visit, "127.0.0.1", 0)
    victim = VictimOnThisComputer(server.sockets[0].getsockname()[1])
    async with server:
        yield victim


@dataclass
class PointingServer:
    """`way`: what leads to `victim_url`."""

    host: str
    port: int = 0
    way: str = ""
    victim_url: str = ""

    @property
    def base(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"

    def place(self, way: str, path: str) -> str:
        base = self.victim_url if self.way == way else self.base
        return f"{base}{path}"

    def answer_to(self, path: str) -> tuple[str, dict[str, str], object]:
        """The status, the headers and the body."""
        resource_path = "/.well-known/oauth-protected-resource"
        if path == "/mcp":
            told = self.place("resource metadata", resource_path)
            return "401 No", {"WWW-Authenticate": f'Bearer resource_metadata="{told}"'}, {}
        if path == resource_path and self.way == "redirect":
            return "307 There", {"Location": f"{self.victim_url}{path}"}, {}
        servers = [self.place("sign-in server", "")]
        bodies: dict[str, object] = {
            resource_path: {"resource": self.url, "authorization_servers": servers},
            "/.well-known/oauth-authorization-server": self._metadata(),
            "/register": {"client_id": "one", "redirect_uris": ["http://127.0.0.1:1/"]},
            "/token": {"access_token": "a", "token_type": "Bearer"},
        }
        if path not in bodies:
            return "404 No", {}, {}
        return "200 OK", {}, bodies[path]

    def _metadata(self) -> object:
        return {
            "issuer": self.base,
            "authorization_endpoint": self.place("page", "/authorize"),
            "token_endpoint": self.place("token", "/token"),
            "registration_endpoint": self.place("registration", "/register"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }


@asynccontextmanager
async def pointing_server(host: str) -> AsyncIterator[PointingServer]:
    pointing = PointingServer(host)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        target = head.split(" ", 2)[1]
        for line in head.lower().split("\r\n"):
            if line.startswith("content-length:"):
                await reader.readexactly(int(line.partition(":")[2]))
        status, headers, body = pointing.answer_to(target.partition("?")[0])
        content = json.dumps(body).encode()
        headers |= {"Content-Type": "application/json", "Connection": "close"}
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, host, 0)
    pointing.port = server.sockets[0].getsockname()[1]
    async with server:
        yield pointing


@dataclass
class BrowserThatComesBack:
    """It comes back with a code without having asked for the page."""

    pages: list[str] = field(default_factory=list)

    async def __call__(self, address: str) -> None:
        self.pages.append(address)
        query = parse_qs(urlsplit(address).query)
        answer = urlencode({"code": "code", "state": query["state"][0]})
        async with httpx2.AsyncClient(timeout=60) as client:
            await client.get(f"{query['redirect_uri'][0]}?{answer}")
