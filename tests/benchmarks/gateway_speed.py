"""What the gateway adds to a request: time to the first byte, memory, requests a second; beside a plain proxy.

A client sends one growing conversation to a provider that answers at once: directly, through a proxy of the same libraries
that only passes bytes on, and through the real program. `parse and dump` is the least anything can take that reads a body.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import httpx
import orjson

from tests.benchmarks.gateway import gateway

Json = Any
SHORT, LONG = 20_000, 500_000  # tokens of history
LETTERS = 4  # a token, roughly
STEPS = 60
LARGE_BODY = 30 << 20
CLIENTS = 50
MANY = 10_000


# --- what stands at the ends: each a process of its own ------------------------------------------------------------


async def provider(scope: Json, receive: Json, send: Json) -> None:
    """Answers at once with one short call, as a stream of Anthropic's; a path with `slow` takes a second, an event each 5 ms."""
    if scope["type"] != "http":
        await _live(receive, send)
        return
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    number = time.monotonic_ns()
    block = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {}}
    begin = {"type": "message", "role": "assistant", "id": f"msg_{number}", "model": "claude-sonnet-4-5", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}  # fmt: skip
    await _event(send, {"type": "message_start", "message": begin})
    if "slow" in scope["path"]:
        for _ in range(200):
            await _event(send, {"type": "ping", "at": time.monotonic()})
            await asyncio.sleep(0.005)
    await _event(send, {"type": "content_block_start", "index": 0, "content_block": block})
    await _event(send, {"type": "content_block_stop", "index": 0})
    await _event(send, {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}})
    await _event(send, {"type": "message_stop"})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _event(send: Json, value: Json) -> None:
    content = b"event: " + value["type"].encode() + b"\ndata: " + orjson.dumps(value) + b"\n\n"
    await send({"type": "http.response.body", "body": content, "more_body": True})


async def _live(receive: Json, send: Json) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def proxy(upstream: str) -> Any:
    """The least a proxy of starlette and httpx can be."""
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import StreamingResponse
    from starlette.routing import Route

    client = httpx.AsyncClient(timeout=None)  # noqa: S113 -- a stream has none

    async def passed(request: Request) -> StreamingResponse:
        headers = [(n, v) for n, v in request.headers.raw if n not in (b"host", b"content-length")]
        asked = client.build_request(
            request.method, upstream + request.url.path, headers=headers, content=await request.body()
        )
        reply = await client.send(asked, stream=True)
        return StreamingResponse(reply.aiter_raw(), reply.status_code, dict(reply.headers), background=None)

    return Starlette(routes=[Route("/{path:path}", passed, methods=["POST", "GET"])])


@contextmanager
def server(what: str, *arguments: str) -> Iterator[tuple[str, int]]:
    """One of the two, on a free port: its address and its process."""
    command = [sys.executable, "-m", "tests.benchmarks.gateway_speed", "--serve", what, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            yield line.strip(), process.pid
        finally:
            process.terminate()
            process.wait(20)


def serve(what: str, upstream: str) -> None:
    """Until it is ended."""
    import socket

    import uvicorn

    sock = socket.socket(proto=socket.IPPROTO_TCP)
    sock.bind(("127.0.0.1", 0))
    sock.listen(256)
    print(f"http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
    app = provider if what == "provider" else proxy(upstream)
    uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, timeout_keep_alive=600)).run(sockets=[sock])


# --- a client ------------------------------------------------------------------------------------------------------


class Client:
    """One conversation, and a connection that stays."""

    def __init__(self, url: str, tokens: int, session: str = "speed") -> None:
        self._at = http.client.HTTPConnection(urlsplit(url).netloc.partition(":")[0], urlsplit(url).port)
        self._session = session
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        self.body: dict[str, Json] = {
            "model": "claude-opus-4-6", "max_tokens": 4000, "stream": True, "system": "You are an agent. " * 40,
            "tools": [{"name": "Bash", "description": "run it", "input_schema": schema}], "messages": [],
        }  # fmt: skip
        self.messages: list[Json] = self.body["messages"]
        self.messages.append({"role": "user", "content": [{"type": "text", "text": f"look around in {session}"}]})
        each = 800
        for number in range(tokens * LETTERS // (each + 200)):
            self._called(f"toolu_begin_{number}", _output(number, each))

    def _called(self, call: str, output: str) -> None:
        use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"cat {call}"}}
        result = {"type": "tool_result", "tool_use_id": call, "content": output}
        self.messages.append({"role": "assistant", "content": [use]})
        self.messages.append({"role": "user", "content": [result]})

    def step(self, path: str = "/v1/messages") -> float:
        """One request; the seconds until the first byte of its reply."""
        content = orjson.dumps(self.body)
        headers = {"content-type": "application/json", "x-api-key": "k", "x-claude-code-session-id": self._session}
        began = time.perf_counter()
        self._at.request("POST", path, content, headers)
        reply = self._at.getresponse()
        first = reply.read(1)
        took = time.perf_counter() - began
        rest = first + reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {rest[:300]!r}")
        found = rest.partition(b'"id":"toolu_')[2].partition(b'"')[0].decode()
        self._called(f"toolu_{found}", _output(len(self.messages), 120))
        return took


def _output(number: int, letters: int) -> str:
    return (f"line {number}: the quick brown fox number {number * 7919}\n" * (letters // 45 + 1))[:letters]


def waits(urls: Sequence[str], tokens: int, steps: int) -> list[list[float]]:
    """The seconds to the first byte at each address, the steps taken in turn."""
    clients = [Client(url, tokens) for url in urls]
    for client in clients:
        client.step()
        client.step()
    found: list[list[float]] = [[] for _ in urls]
    for _ in range(steps):
        for client, taken in zip(clients, found, strict=True):
            taken.append(client.step())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=("provider", "proxy"))
    parser.add_argument("upstream", nargs="?", default="")
    parser.add_argument("--tokens", type=int, default=SHORT)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.upstream)
        return
    with ExitStack() as stack:
        upstream, _ = stack.enter_context(server("provider"))
        plain, _ = stack.enter_context(server("proxy", upstream))
        ours, _ = stack.enter_context(gateway(upstream))
        names = ("direct", "proxy", "gateway")
        for name, taken in zip(names, waits((upstream, plain, ours), arguments.tokens, arguments.steps), strict=True):
            print(f"{name}: {median(taken) * 1e3:.2f} ms ({min(taken) * 1e3:.2f}-{max(taken) * 1e3:.2f})")
        client = Client(upstream, arguments.tokens)
        content = orjson.dumps(client.body)
        began = time.perf_counter()
        for _ in range(5):
            orjson.dumps(orjson.loads(content))
        print(f"parse and dump of {len(content)} bytes: {(time.perf_counter() - began) / 5 * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
