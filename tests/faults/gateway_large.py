"""A long history of many small messages at the gateway: how soon it is answered, what
it takes, and that all of it is recorded.

python -m tests.faults.gateway_large [--messages 73825] [--kills 0] [--seed 1]

An agent sends 73,825 messages (30 MB) as a new conversation and goes on with it;
another one sends a small request every 50 ms, and so does a third one without the
gateway, by which it is told what the machine did. All times are also given as a
multiple of what the fastest JSON reader takes for the same bytes. Then the gateway is
left alone until everything is recorded, or killed meanwhile, started again and asked
again; every message must be in the journal once, in its order, and be found.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import http.client
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson

from helix_desktop import concurrency, program_folders
from helix_desktop.engine import facts
from helix_desktop.gateway.local_conversations import known_messages_from_facts
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.faults.gateway_bodies import memory_mb, processor_seconds
from tests.faults.store_report import report

Json = Any
MESSAGES = 73_825
BESIDE_SECONDS = 40.0  # For so long of the recording the other client is measured.
TIMES_READER, TIMES_BODY, LATE_MS = 3.0, 6.0, 20.0
_WORDS = [f"{a}{b}" for a in ("load", "store", "find", "send", "count", "merge") for b in ("Part", "File", "Row", "Node", "Key", "Line")]  # fmt: skip


# --- who stands at the ends


def serve_provider() -> None:
    """Answers at once with a short text; says the hash of what it received in
    `x-received`, of large bodies in the next reply.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    while True:
        peer, _ = listening.accept()
        concurrency.start_thread(partial(_answer_peer, peer), name="peer", daemon=True)


def _answer_peer(peer: socket.socket) -> None:
    reading = peer.makefile("rb")
    while line := reading.readline():
        size = 0
        while (line := reading.readline()) not in (b"\r\n", b""):
            name, _, value = line.lower().partition(b":")
            size = int(value) if name == b"content-length" else size
        body = reading.read(size) if size else b""
        number = hashlib.sha256(body).hexdigest()[:20]
        told = {"type": "message", "role": "assistant", "id": f"msg_{number}", "model": "claude-opus-4-6", "content": [], "usage": {"input_tokens": 9, "output_tokens": 1}}  # fmt: skip
        events: list[Json] = [
            {"type": "message_start", "message": told},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "text", "text": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": f"answer {number}"},
            },
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 9},
            },
            {"type": "message_stop"},
        ]
        content = b"".join(
            b"event: %s\ndata: %s\n\n" % (e["type"].encode(), orjson.dumps(e)) for e in events
        )
        peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(content) + content)  # fmt: skip


@contextmanager
def provider() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.faults.gateway_large", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield (process.stdout.readline() if process.stdout else "").strip()
        finally:
            process.kill()


class Gateway:
    """The real program on one home; killed, it is started again on the same home."""

    def __init__(self, home: str, upstream: str) -> None:
        self._command = [sys.executable, "-m", "helix_desktop", "--home", home, "gateway", "--port", "0", "--upstream", upstream]  # fmt: skip
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline() if self.process.stdout else ""
        self.url, self.pid = line.split()[-1], self.process.pid

    def end(self, *, kill: bool = False) -> None:
        (self.process.kill if kill else self.process.terminate)()
        self.process.wait(600)  # In order, it ends when everything is recorded.
        if self.process.stdout:
            self.process.stdout.close()


class Agent:
    """One conversation. `step` returns the seconds to the first byte and to the last one."""

    def __init__(self, session: str, count: int, chance: random.Random, marks: bool = True) -> None:
        self._session = session
        schema = {"type": "object", "properties": {"command": {"type": "string"}}}
        self.body: dict[str, Json] = {
            "model": "claude-opus-4-6", "max_tokens": 4000, "stream": True, "system": "You are an agent. " * 40,
            "tools": [{"name": "Bash", "description": "run it", "input_schema": schema}], "messages": [],
        }  # fmt: skip
        self.units: list[Json] = self.body["messages"]
        self.units.append(
            {"role": "user", "content": [{"type": "text", "text": f"look around in {session}"}]}
        )
        for number in range((count - 1) // 2):
            call = f"toolu_{session.replace(' ', '')}_{number}"
            use = {
                "type": "tool_use",
                "id": call,
                "name": "Bash",
                "input": {"command": f"cat {call}"},
            }
            output = " ".join(chance.choices(_WORDS, k=68)) + f" number{number}z"
            result = {"type": "tool_result", "tool_use_id": call, "content": output}
            self.units.append({"role": "assistant", "content": [use]})
            self.units.append({"role": "user", "content": [result]})

    def say(self, text: str) -> None:
        self.units.append({"role": "user", "content": [{"type": "text", "text": text}]})

    def content(self) -> bytes:
        return orjson.dumps(self.body)

    def step(self, url: str, content: bytes = b"", timeout: float = 900.0) -> tuple[float, float]:
        content = content or self.content()
        at = http.client.HTTPConnection(urlsplit(url).netloc, timeout=timeout)
        headers = {
            "content-type": "application/json",
            "x-api-key": "k",
            "x-claude-code-session-id": self._session,
        }
        began = time.perf_counter()
        at.request("POST", urlsplit(url).path + "/v1/messages", content, headers)
        reply = at.getresponse()
        start = reply.read(1)
        first = time.perf_counter() - began
        start += reply.read()
        last = time.perf_counter() - began
        if reply.status != 200 or b"message_stop" not in start:
            raise RuntimeError(f"{reply.status}: {start[-300:]!r}")
        text = start.partition(b'"text":"answer ')[2].partition(b'"')[0].decode()
        self.units.append(
            {"role": "assistant", "content": [{"type": "text", "text": f"answer {text}"}]}
        )
        at.close()
        return first, last


def ask_all_the_time(urls: Sequence[str]) -> None:
    """A small request every 50 ms at each address, by turns: prints when, where, and
    the milliseconds to the first byte.
    """
    agents: list[Agent] = []
    for number in range(10**9):
        if number % 20 == 0:
            agents = [
                Agent(f"small {at} {number}", 3, random.Random(number)) for at in range(len(urls))
            ]
        for at, (agent, url) in enumerate(zip(agents, urls, strict=True)):
            first, _ = agent.step(url)
            agent.say(f"go on {number}")
            print(f"{time.monotonic():.4f} {at} {number % 20 == 0:d} {first * 1e3:.2f}", flush=True)
        time.sleep(0.05)


class OtherClient:
    def __init__(self, *urls: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-m", "tests.faults.gateway_large", "--ask", *urls], stdout=subprocess.PIPE, text=True)  # fmt: skip
        self._found: list[tuple[float, int, bool, float]] = []
        self._thread = concurrency.start_thread(self._read, name="other client", daemon=True)

    def _read(self) -> None:
        for line in self._process.stdout or ():
            when, at, begins_session, wait = line.split()
            self._found.append((float(when), int(at), begins_session == "1", float(wait)))

    def _between(self, begin: float, end: float, at: int) -> str:
        """Those that begin a session by themselves: they wait for several commits, also
        beside nobody.
        """
        found = [each for each in list(self._found) if each[1] == at and begin <= each[0] <= end]
        first, later = (
            sorted(wait for *_, begins, wait in found if begins is kind) for kind in (True, False)
        )
        return f"{said_of(later)}; first of a session: {said_of(first)}"

    def report(self, begin: float, two: float, three: float) -> None:
        for at, who in enumerate(("another client", "one without the gateway")):
            print(f"{who}: before {self._between(begin - 4, begin, at)}", flush=True)
            print(f"{who}: beside the two steps {self._between(begin, two, at)}", flush=True)
            print(f"{who}: beside recording {self._between(two, three, at)}", flush=True)
        self.end()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


def said_of(waits: Sequence[float]) -> str:
    if not waits:
        return "none"
    return f"median {statistics.median(waits):.1f}, one of a hundred {waits[max(-len(waits) // 100 - 1, -len(waits))]:.1f}, worst {waits[-1]:.1f} ms of {len(waits)}"  # fmt: skip


# --- what is recorded


async def recorded(home: str, session: str, chain: int, words: str) -> list[str]:
    """What is wrong with the conversation of that session."""
    where = program_folders.find_program_folders(Path(home))
    known = AllWorkspaces(where.workspaces_folder)
    wrong: list[str] = []
    workspace = await known.open_stored_workspace(
        (await asyncio.to_thread(known.find_known_workspace, "Connected agents")).id
    )
    try:
        from helix_desktop.engine.content_recall import search_entries

        found = []
        for row in await workspace.journal.list_conversations():
            line = known_messages_from_facts(
                row.id, recorded_facts := await workspace.journal.read_facts(row.id)
            )
            if line.session == session:
                found.append(len(line.chain))
                said = Counter(type(each.fact).__name__ for each in recorded_facts)
                print(
                    f"recorded: {len(line.chain)} messages; {dict(said.most_common(6))}", flush=True
                )
                calls = [
                    each.fact.call
                    for each in recorded_facts
                    if isinstance(each.fact, facts.ToolReturned)
                ]
                if len(set(calls)) != len(calls):
                    wrong.append("LOST a result is recorded twice")
        if found != [chain]:
            wrong.append(f"LOST recorded {found} messages, not {chain}")
        if words and "No " in (text := await search_entries(workspace.index, words, limit=3))[:20]:
            wrong.append(f"LOST not found: {words}: {text[:100]}")
    finally:
        await workspace.aclose()
    return wrong


def wait_until_at_rest(pid: int, most: float) -> float:
    """Until the process has taken no processor for 3 s; the seconds."""
    began, before, quiet = time.monotonic(), processor_seconds(pid), 0
    while quiet < 15 and time.monotonic() - began < most:
        time.sleep(0.2)
        now = processor_seconds(pid)
        quiet, before = (quiet + 1, before) if now - before < 0.02 else (0, now)
    return time.monotonic() - began - 3


def fastest_reader(content: bytes) -> float:
    found = []
    for _ in range(5):
        began = time.perf_counter()
        value = orjson.loads(content)
        found.append(time.perf_counter() - began)
        del value
    return statistics.median(found)


def trial(messages: int, kills: int, seed: int, other: bool, found: Counter[str]) -> None:
    chance = random.Random(seed)
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory())
        upstream = stack.enter_context(provider())
        agent = Agent("large", messages, chance)
        content = agent.content()
        size = len(content) / (1 << 20)
        reader = fastest_reader(content)
        direct = Agent("direct", 3, chance).step(upstream, content)
        gateway = Gateway(home, upstream)
        try:
            for number in range(3):
                Agent(f"before {number}", 3, chance).step(gateway.url)
            wait_until_at_rest(gateway.pid, 20)
            rest, busy = memory_mb(gateway.pid, "VmRSS"), processor_seconds(gateway.pid)
            print(f"body {size:.1f} MB, {len(agent.units)} messages; fastest reader {reader * 1e3:.0f} ms; direct {direct[1] / reader:.2f} x; at rest {rest:.0f} MB", flush=True)  # fmt: skip
            if other:
                beside = OtherClient(gateway.url, upstream)
                stack.callback(beside.end)
                time.sleep(5)
            begin = time.monotonic()
            first = agent.step(gateway.url, content)
            print(f"first step: {first[0] / reader:.2f} x to the first byte, {first[1] / reader:.2f} x to the last ({first[1]:.2f} s); peak {memory_mb(gateway.pid, 'VmHWM'):.0f} MB; processor {processor_seconds(gateway.pid) - busy:.1f} s", flush=True)  # fmt: skip
            agent.say("go on")
            content = agent.content()
            second = agent.step(gateway.url, content)
            two = time.monotonic()
            print(f"second step: {second[0] / reader:.2f} x to the first byte, {second[1] / reader:.2f} x to the last ({second[1]:.2f} s)", flush=True)  # fmt: skip
            for _ in range(kills):
                time.sleep(chance.uniform(2, 30))
                gateway.end(kill=True)
                gateway.start()
                again = agent.step(gateway.url, agent.content())
                agent.units.pop()
                print(f"after a kill: {again[1]:.2f} s, {again[1] / reader:.2f} x", flush=True)
            if other:
                time.sleep(BESIDE_SECONDS)
                beside.report(begin, two, time.monotonic())
            wait_until_at_rest(gateway.pid, 1500)
            taken = time.monotonic() - two - 3
            peak = memory_mb(gateway.pid, "VmHWM")
            print(f"recorded after {taken:.0f} s, processor {processor_seconds(gateway.pid) - busy:.1f} s; peak {peak:.0f} MB = {peak / size:.1f} x the body, {(peak - rest) / size:.1f} x above rest; now {memory_mb(gateway.pid, 'VmRSS'):.0f} MB", flush=True)  # fmt: skip
            agent.say("go on again")
            third = agent.step(gateway.url, agent.content())
            print(f"a later step: {third[0] / reader:.2f} x to the first byte, {third[1] / reader:.2f} x to the last", flush=True)  # fmt: skip
            wait_until_at_rest(gateway.pid, 60)
        finally:
            gateway.end()
        last = (messages - 1) // 2 - 1
        found.update(asyncio.run(recorded(home, "large", len(agent.units), f"number{last}z")))
        found["histories"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--serve", action="store_true")
    parser.add_argument("--ask", nargs="+")
    arguments = parser.parse_args()
    if arguments.serve:
        serve_provider()
    if arguments.ask:
        ask_all_the_time(arguments.ask)
    return report("gateway large", arguments.seed, lambda found: trial(arguments.messages, arguments.kills, arguments.seed, not arguments.alone, found))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
