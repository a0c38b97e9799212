"""What the gateway adds to a request: time to the first byte, memory, requests a
second; beside a plain proxy.

A client sends one growing conversation to a provider that answers at once: directly,
through a proxy of the same libraries that only passes bytes on, and through the real
program. `parse and dump` is the least anything can take that reads a body.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import random
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

from helix_desktop import concurrency
from tests.benchmarks.gateway import gateway, mark, private_memory, rest
from tests.benchmarks.row import Figure, Row

Json = Any
SHORT, LONG = 20_000, 500_000  # tokens of history
LETTERS = 4  # a token, roughly
STEPS = 60
LARGE_BODY = 30 << 20
CLIENTS = 50
MANY = 10_000
KINDS = ("output", "pictures", "messages")


# --- what stands at the ends: each a process of its own


async def provider(scope: Json, receive: Json, send: Json) -> None:
    """Answers at once with one short call, as a stream of Anthropic's; a path with
    `slow` takes a second, an event each 5 ms.
    """
    if scope["type"] != "http":
        await _live(receive, send)
        return
    while (await receive()).get("more_body"):
        pass
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-type", b"text/event-stream")],
        }
    )
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
    await _event(
        send,
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 9},
        },
    )
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
            request.method,
            upstream + request.url.path,
            headers=headers,
            content=await request.body(),
        )
        reply = await client.send(asked, stream=True)
        return StreamingResponse(
            reply.aiter_raw(), reply.status_code, dict(reply.headers), background=None
        )

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
    uvicorn.Server(
        uvicorn.Config(app, log_config=None, access_log=False, timeout_keep_alive=600)
    ).run(sockets=[sock])


# --- a client


class Client:
    """One conversation, and a connection that stays."""

    def __init__(self, url: str, tokens: int, session: str = "speed") -> None:
        self._at = http.client.HTTPConnection(
            urlsplit(url).netloc.partition(":")[0], urlsplit(url).port
        )
        self._path = urlsplit(url).path
        self._session = session
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        self.body: dict[str, Json] = {
            "model": "claude-opus-4-6", "max_tokens": 4000, "stream": True, "system": "You are an agent. " * 40,
            "tools": [{"name": "Bash", "description": "run it", "input_schema": schema}], "messages": [],
        }  # fmt: skip
        self.messages: list[Json] = self.body["messages"]
        self.messages.append(
            {"role": "user", "content": [{"type": "text", "text": f"look around in {session}"}]}
        )
        each = 800
        for number in range(tokens * LETTERS // (each + 200)):
            self.called(f"toolu_begin_{number}", _output(number, each))

    def called(self, call: str, output: str) -> None:
        use = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": f"cat {call}"}}
        result = {"type": "tool_result", "tool_use_id": call, "content": output}
        self.messages.append({"role": "assistant", "content": [use]})
        self.messages.append({"role": "user", "content": [result]})

    def step(self, path: str = "/v1/messages") -> float:
        """One request; the seconds until the first byte of its reply."""
        mark(self.messages)
        content = orjson.dumps(self.body)
        headers = {
            "content-type": "application/json",
            "x-api-key": "k",
            "x-claude-code-session-id": self._session,
        }
        began = time.perf_counter()
        self._at.request("POST", self._path + path, content, headers)
        reply = self._at.getresponse()
        first = reply.read(1)
        took = time.perf_counter() - began
        rest = first + reply.read()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {rest[:300]!r}")
        found = rest.partition(b'"id":"toolu_')[2].partition(b'"')[0].decode()
        self.called(f"toolu_{found}", _output(len(self.messages), 120))
        return took


def _output(number: int, letters: int) -> str:
    return (f"line {number}: the quick brown fox number {number * 7919}\n" * (letters // 45 + 1))[
        :letters
    ]


def waits(urls: Sequence[str], tokens: int, steps: int, pid: int) -> list[list[float]]:
    """The seconds to the first byte at each address, the steps taken in turn; of each
    address the first request first. `pid`: the gateway, which is left alone until it
    has recorded that one and folded what was due, as between steps of an agent.
    """
    for url in urls:
        Client(url, 0, "before it is measured").step()
    clients = [Client(url, tokens) for url in urls]
    found = [[client.step()] for client in clients]
    for _ in range(3):
        for client in clients:
            client.step()
        rest(pid)
    for _ in range(steps):
        for client, taken in zip(clients, found, strict=True):
            taken.append(client.step())
    return found


# --- a large body beside a stream


def large_body(kind: str, session: str) -> bytes:
    """30 MB: as one long output, as pictures, or as a history of some thousand messages."""
    if kind == "messages":
        return orjson.dumps(Client("http://127.0.0.1:1", LARGE_BODY // LETTERS, session).body)
    client = Client("http://127.0.0.1:1", 0, session)
    if kind == "output":
        client.called("toolu_large", _output(1, LARGE_BODY))
    else:
        picture = random.Random(1).randbytes(3 << 20).hex()[: 5 << 20]
        source = {"type": "base64", "media_type": "image/png", "data": picture}
        client.messages[0]["content"] += [{"type": "image", "source": source}] * 6
    return orjson.dumps(client.body)


def send(url: str, kind: str, count: int) -> None:
    """Large bodies, each twice: as a new conversation and as the same one going on."""
    at = http.client.HTTPConnection(urlsplit(url).netloc.partition(":")[0], urlsplit(url).port)
    for number in range(count):
        content = large_body(kind, f"large {kind} {number}")
        headers = {
            "x-claude-code-session-id": f"large {kind} {number}",
            "content-type": "application/json",
        }
        print("sent", flush=True)
        for _ in range(2):
            began = time.perf_counter()
            at.request("POST", urlsplit(url).path + "/v1/messages", content, headers)
            at.getresponse().read()
            print(f"{(time.perf_counter() - began) * 1e3:.0f}", flush=True)


def delays(url: str, ends: Sequence[Any]) -> list[float]:
    """How late each event of a slow stream came, until all of `ends` have ended."""
    found: list[float] = []
    while not found or any(process.poll() is None for process in ends):
        at = http.client.HTTPConnection(urlsplit(url).netloc.partition(":")[0], urlsplit(url).port)
        body = Client(url, 0, "slow").body
        at.request(
            "POST",
            urlsplit(url).path + "/slow/v1/messages",
            orjson.dumps(body),
            {"x-claude-code-session-id": "slow"},
        )
        reply = at.getresponse()
        while line := reply.readline():
            if b'"ping"' in line:
                found.append(time.monotonic() - orjson.loads(line[5:])["at"])
        at.close()
    return found


def beside(url: str, kind: str, count: int) -> tuple[list[float], str]:
    """How late the events of one client came while another sent large bodies, and what
    that one saw.
    """
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.gateway_speed",
        "--send",
        kind,
        "--count",
        str(count),
        url,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None or process.stdout.readline() != "sent\n":
            raise RuntimeError("the sender did not begin")
        found = delays(url, [process])
        return found, process.stdout.read()


# --- many


def many(url: str, clients: int, steps: int) -> tuple[int, float]:
    """How many requests of so many clients at once were answered, and how many a second."""
    began = time.perf_counter()

    def work(number: int) -> int:
        client = Client(url, 200, f"client {number}")
        return sum(client.step() > 0 for _ in range(steps))

    with concurrency.create_thread_pool("client", threads=clients) as pool:
        done = sum(pool.map(work, range(clients)))
    return done, done / (time.perf_counter() - began)


def growth(url: str, pid: int, requests: int) -> tuple[float, float]:
    """MB that so many requests of one conversation add, and how many a second. The
    first ones make the process what it is.
    """
    client = Client(url, 0, "long")
    for _ in range(200):
        client.step()
    before = private_memory(pid)
    began = time.perf_counter()
    for _ in range(requests):
        client.step()
        del client.messages[
            201:
        ]  # it goes back, as an agent that tries again: its history stays short
    return private_memory(pid) - before, requests / (time.perf_counter() - began)


def rows(*, quick: bool = False) -> list[Row]:
    """Everything, beside a plain proxy of the same libraries."""
    return [row for part in PARTS.values() for row in part(10 if quick else STEPS, quick)]


def first_bytes(steps: int, quick: bool) -> Iterator[Row]:
    """Of a usual history."""
    with ExitStack() as stack:
        upstream, _ = stack.enter_context(server("provider"))
        plain, _ = stack.enter_context(server("proxy", upstream))
        ours, pid = stack.enter_context(gateway(upstream))
        _direct, bare, taken = (
            each[1:] for each in waits((upstream, plain, ours), SHORT, steps, pid)
        )
        ratio = median(taken) / median(bare)
        yield Row("first byte at 20,000 tokens", "ms", _ms(taken), {"plain proxy": _ms(bare)}, "at most 1.5 x the plain proxy", ratio <= 1.5, note=f"{ratio:.2f} x")  # fmt: skip


def long_steps(steps: int, quick: bool) -> Iterator[Row]:
    """Of a history that fills the largest windows."""
    with ExitStack() as stack:
        upstream, _ = stack.enter_context(server("provider"))
        plain, _ = stack.enter_context(server("proxy", upstream))
        ours, pid = stack.enter_context(gateway(upstream))
        (_, *direct), (bare_first, *bare), (first, *taken) = waits(
            (upstream, plain, ours), LONG, max(3, steps // 3), pid
        )
        yield Row("first request at 500,000 tokens", "ms", _ms([first]), {"plain proxy": _ms([bare_first])}, note="to the first byte")  # fmt: skip
        least = _parse_and_dump(LONG)
        added = median(taken) - median(direct)
        yield Row("added at 500,000 tokens", "ms", Figure.of([added * 1e3]), {"parse and dump": Figure.of([least * 1e3])}, "at most 2 x parse and dump", added <= 2 * least, note=f"{added / least:.2f} x; a plain proxy {(median(bare) - median(direct)) / least:.2f} x")  # fmt: skip


def large_bodies(steps: int, quick: bool) -> Iterator[Row]:
    """Beside which another client is answered."""
    with ExitStack() as stack:
        upstream, _ = stack.enter_context(server("provider"))
        ours, _ = stack.enter_context(gateway(upstream))
        for kind in KINDS:
            late, _ = beside(ours, kind, 1 if quick else 3)
            yield Row(f"event of another client beside 30 MB of {kind}", "ms late", _ms(late), asked="at most 20 at the latest", met=max(late) <= 0.02)  # fmt: skip


def many_requests(steps: int, quick: bool) -> Iterator[Row]:
    """Of many clients, and of one for long."""
    with ExitStack() as stack:
        upstream, _ = stack.enter_context(server("provider"))
        ours, pid = stack.enter_context(gateway(upstream))
        done, each = many(ours, CLIENTS, 4 if quick else 20)
        yield Row(
            f"{CLIENTS} clients at once",
            "requests a second",
            Figure.of([each]),
            note=f"{done} answered",
        )
        more, each = growth(ours, pid, 300 if quick else MANY)
        yield Row("10,000 requests of one conversation", "MB more", Figure.of([more]), asked="at most 20", met=more <= 20, note=f"{each:.0f} requests a second")  # fmt: skip


PARTS = {"first": first_bytes, "long": long_steps, "large": large_bodies, "many": many_requests}


def _ms(taken: Sequence[float]) -> Figure:
    return Figure.of([each * 1e3 for each in taken])


def _parse_and_dump(tokens: int) -> float:
    content = orjson.dumps(Client("http://127.0.0.1:1", tokens).body)
    found = []
    for _ in range(7):
        began = time.perf_counter()
        orjson.dumps(orjson.loads(content))
        found.append(time.perf_counter() - began)
    return median(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", choices=("provider", "proxy"))
    parser.add_argument("--send", choices=KINDS)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=tuple(PARTS))
    parser.add_argument("upstream", nargs="?", default="")
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.serve, arguments.upstream)
    elif arguments.send:
        send(arguments.upstream, arguments.send, arguments.count)
    else:
        for name in [arguments.part] if arguments.part else PARTS:
            for row in PARTS[name](10 if arguments.quick else STEPS, arguments.quick):
                peers = "; ".join(f"{peer} {each.median:.2f}" for peer, each in row.peers.items())
                print(f"{row.name}: {row.ours.median:.2f} ({row.ours.least:.2f}-{row.ours.most:.2f}) {row.unit}, {row.note} {peers}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
