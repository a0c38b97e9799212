"""Requests of every shape through the gateway with folds off: equal in value at the
provider, and replies byte for byte.

python -m tests.faults.gateway_exact [--requests N] [--seed S] [--protocol P] [--recorded FOLDER]

N of each protocol, or of one; FOLDER: recorded sessions as well.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hypothesis import HealthCheck, given, settings

from helix_desktop.gateway.request_routes import CONNECTION_HEADERS
from helix_desktop.histories import history_reading
from helix_desktop.histories.recorded_session import RecordedSession
from tests.faults.store_report import report
from tests.gateway.running import WIRES, running
from tests.gateway.written import FIELDS, PATHS, dumped, units
from tests.peers.agent_provider import WRITERS, Block, Calls, Says
from tests.peers.serving import serve_in_thread

Json = Any
LONGEST = 600.0  # seconds a request may take, on whatever machine
POOL = 150  # shapes of messages a protocol's requests are put together from


@dataclass
class Echo:
    """A provider that notes what it gets and sends what it is told to, in pieces."""

    reply: bytes = b""
    kind: str = "text/event-stream"
    status: int = 200
    cuts: Sequence[int] = ()
    raw: bytes = b""
    headers: list[tuple[str, str]] = field(default_factory=list)
    path: str = ""

    @contextmanager
    def running(self) -> Iterator[str]:
        """Its address."""
        echo = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                echo.raw = self.rfile.read(int(self.headers.get("content-length") or 0))
                echo.headers, echo.path = (
                    [(n.lower(), v) for n, v in self.headers.items()],
                    self.path,
                )
                self.send_response(echo.status)
                self.send_header("content-type", echo.kind)
                self.send_header("transfer-encoding", "chunked")
                self.send_header("x-of-the-provider", "yes")
                self.end_headers()
                for begin, end in zip((0, *echo.cuts), (*echo.cuts, len(echo.reply)), strict=True):
                    if piece := echo.reply[begin:end]:
                        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        serve_in_thread(server, "echo")
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()


def pool(protocol: str, size: int) -> list[Json]:
    """Messages of all shapes."""
    found: list[Json] = []

    @settings(
        max_examples=size, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(units(protocol))
    def draw(unit: Json) -> None:
        found.append(unit)

    draw()
    return found


def bodies(protocol: str, count: int, rng: random.Random) -> Iterator[bytes]:
    """Requests: new ones, and such that go on with the one before, changed at some place or not."""
    shapes = pool(protocol, min(POOL, 10 + count))
    said: list[Json] = []
    for _ in range(count):
        if rng.random() < 0.3 or len(said) > 40:
            said = []
        elif rng.random() < 0.2:
            del said[rng.randrange(len(said) + 1) :]
        said = [*said, *rng.choices(shapes, k=rng.randint(1, 4))]
        tool = {
            "name": "Bash",
            "function": {"name": "Bash"},
            "description": rng.choice(["run it", "é\u2028"]),
        }
        fields: list[tuple[str, Json]] = [
            ("model", "a-model"),
            (FIELDS[protocol], said),
            ("tools", [tool]),
            ("stream", rng.random() < 0.7),
        ]
        if rng.random() < 0.5:
            fields.append(
                (
                    "metadata",
                    rng.choice([{"a": [1.5, -0.0, None]}, {"messages": []}, {"": "\u0000"}]),
                )
            )
        rng.shuffle(fields)
        yield dumped(dict(fields), rng.randrange(4))


def recorded(protocol: str, recording: RecordedSession) -> Iterator[bytes]:
    """Every request of a recorded session."""
    wire: Any = WIRES[protocol]
    said: list[Json] = []
    names: dict[str, str] = {}
    for message in recording.messages:
        if message.role == "assistant":
            yield json.dumps(
                {"model": "a-model", "tools": [{"name": "Bash"}], FIELDS[protocol]: said}
            ).encode()
            blocks: list[Block] = [Says(message.text)] if message.text else []
            blocks += [
                Calls(call.name, {"text": call.arguments}, call.id) for call in message.calls
            ]
            names |= {call.id: call.name for call in message.calls}
            if blocks:
                said += wire.parse_reply(
                    WRITERS[protocol].whole(blocks, {"input": 1, "read": 0, "write": 0}, "1")
                ).message.units
        elif message.role == "tool":
            said.append(
                wire.result_message(
                    message.answers or "", names.get(message.answers or "", "x"), message.text
                )
            )
        else:
            said.append(wire.user_message(message.text))


def _reply(protocol: str, rng: random.Random) -> tuple[str, bytes]:
    usage = {"input": 3, "read": 0, "write": 0}
    both: list[Block] = [Says("fine"), Calls("Bash", {"command": "ls"}, f"call_{rng.random()}")]
    blocks = both[: rng.randint(1, 2)]
    if rng.random() < 0.3:
        whole = json.dumps(
            WRITERS[protocol].whole(blocks, usage, "1"), indent=rng.choice([None, 1])
        )
        return "application/json", rng.choice([whole.encode(), b"no json", b""])
    stream = b"".join(_event(event) for event in WRITERS[protocol].events(blocks, usage, "1"))
    return "text/event-stream", rng.choice(
        [b"", b": a comment\n\n", b"event: of nobody\r\ndata: {x}\r\n\r\n"]
    ) + stream


def _event(event: Json) -> bytes:
    if isinstance(event, bytes):
        return event
    if isinstance(event, tuple):
        return (
            b"event: "
            + str(event[0]).encode()
            + b"\ndata: "
            + json.dumps(event[1]).encode()
            + b"\n\n"
        )
    return b"data: " + (event if isinstance(event, str) else json.dumps(event)).encode() + b"\n\n"


# A header that only providers of the protocol know.
OWN_HEADERS = {
    "anthropic": "anthropic-beta",
    "openai-chat": "openai-organization",
    "openai-responses": "openai-beta",
    "gemini": "x-goog-api-client",
}


def trial(
    protocol: str, requests: Iterator[bytes], rng: random.Random, found: Counter[str]
) -> None:
    """What went through, counted, and what was wrong."""
    echo = Echo()
    with tempfile.TemporaryDirectory() as home, echo.running() as upstream, running(Path(home), upstream, folds=False, headers=("x-odd",)) as url:  # fmt: skip
        at = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=LONGEST)
        for content in requests:
            found[f"{protocol} requests"] += 1
            echo.status = rng.choice([200, 200, 200, 200, 429, 529])
            echo.kind, echo.reply = _reply(protocol, rng)
            echo.cuts = sorted(
                rng.sample(range(len(echo.reply)), min(len(echo.reply), rng.randint(0, 4)))
            )
            sent = [
                ("content-type", "application/json"),
                ("x-api-key", "k"),
                (OWN_HEADERS[protocol], "a,b"),
                ("x-claude-code-session-id", f"s{rng.randrange(20)}"),
                ("x-odd", rng.choice(["", "ä".encode().decode("latin-1"), "a; b"])),
            ]
            at.putrequest("POST", urlsplit(url).path + PATHS[protocol], skip_accept_encoding=True)
            for name, value in [*sent, ("content-length", str(len(content)))]:
                at.putheader(name, value.encode("latin-1"))
            at.endheaders(content)
            reply = at.getresponse()
            got = reply.read()
            count = found[f"{protocol} requests"]
            found.update(
                f"LOST {protocol} {count}: {what}"
                for what in _differences(echo, content, sent, reply, got)
            )
        at.close()


def _differences(
    echo: Echo,
    content: bytes,
    sent: list[tuple[str, str]],
    reply: http.client.HTTPResponse,
    got: bytes,
) -> Iterator[str]:
    if echo.raw != content and json.loads(echo.raw) != json.loads(content):
        yield f"the body arrived as {echo.raw[:200]!r}, sent as {content[:200]!r}"
    if sorted(h for h in echo.headers if h[0] not in CONNECTION_HEADERS) != sorted(sent):
        yield f"the headers arrived as {echo.headers}"
    if got != echo.reply:
        yield f"the reply came as {got[:200]!r}, sent as {echo.reply[:200]!r}"
    if reply.status != echo.status or reply.getheader("x-of-the-provider") != "yes":
        yield f"the status came as {reply.status}, sent as {echo.status}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--protocol", choices=tuple(FIELDS), help="only this one")
    parser.add_argument("--recorded", type=Path)
    arguments = parser.parse_args()
    files = sorted(arguments.recorded.rglob("*.json*")) if arguments.recorded else []
    sessions = [one for file in files for one in history_reading.read_history_file(file).recordings]

    def trials(found: Counter[str]) -> None:
        for protocol in (arguments.protocol,) if arguments.protocol else FIELDS:
            rng = random.Random(f"{arguments.seed}{protocol}")
            trial(protocol, bodies(protocol, arguments.requests, rng), rng, found)
            trial(
                protocol, (each for one in sessions for each in recorded(protocol, one)), rng, found
            )

    return report("gateway exact", arguments.seed, trials)


if __name__ == "__main__":
    sys.exit(main())
