"""Hostile bodies at the gateway, as requests and as replies of a provider: every
compression, nested, damaged, cut, huge, deep.

python -m tests.faults.gateway_bodies [--bodies 1000] [--seed 1]

Each request is refused with a sentence or goes on as it came, each reply reaches the
agent as it came or ends with a sentence. Beside them another client asks all the time:
how late its answers are is measured. What memory the gateway takes at its peak is
limited, and it is given back.
"""

from __future__ import annotations

import argparse
import asyncio
import bz2
import gzip
import json
import lzma
import os
import random
import sys
import tempfile
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import httpx
import zstandard

from helix_desktop import concurrency, program_folders
from helix_desktop.resident import resident_client
from tests.faults.store_report import report
from tests.gateway.running import PROTOCOLS, Agent, wrapped
from tests.peers.agent_provider import Asked, Provider, Raw

PACKERS: Mapping[str, Callable[[bytes], bytes]] = {
    "gzip": lambda content: gzip.compress(content, 6),
    "deflate": zlib.compress,
    "zstd": zstandard.compress,
    # The gateway reads neither of these two: such a body goes on as it came, so the
    # quickest way to make it will do.
    "xz": lambda content: lzma.compress(content, preset=0),
    "bzip2": lambda content: pack_pieces(bz2.compress, content),
}
PIECE = 4_290 * 20  # a multiple of the length of each filling
# of the processor's time in the gateway, for one body: so it means the same on a busy
# machine
SLOWEST_SECONDS = 60.0
# for the other client, without what it and the gateway waited for a processor: on a busy
# machine both get one late, and nothing here is at fault
LATEST_SECONDS = 5.0
MOST_MEMORY_MB = 1_000.0  # at the peak: a body of 64 MB is held a few times while it is read
MOST_KEPT_MB = 500.0  # some seconds after the last
FILLINGS = (
    b" ",
    b"[",
    b"0,",
    b'{"messages":[',
    b"[],",
    b'{"a":',
    b"data: {}\n\n",
    b"data: [[]]\n",
    b"\n",
)
MARK = "a hostile reply, please"  # A header of its own would not reach the provider.
SIZES = (0, 1_000, 1 << 20, 30 << 20, 60 << 20, 70 << 20, 300 << 20)


def pack_pieces(pack: Callable[[bytes], bytes], content: bytes) -> bytes:
    """A stream for each piece, one behind another. Equal pieces are compressed once: 300 MB
    of one filling take a minute otherwise, at which the gateway only waits.
    """
    packed: dict[bytes, bytes] = {}
    streams: list[bytes] = []
    for start in range(0, len(content), PIECE):
        piece = content[start : start + PIECE]
        if piece not in packed:
            packed[piece] = pack(piece)
        streams.append(packed[piece])
    return b"".join(streams)


@lru_cache(maxsize=400)
def packed_content(filling: bytes, size: int, names: tuple[str, ...]) -> bytes:
    """So much of it, compressed in these ways one after another."""
    if not names:
        return filling * (size // len(filling))
    *earlier, last = names
    if earlier:
        content = packed_content(filling, size, tuple(earlier))
    else:
        content = filling * (size // len(filling))  # Too large to be kept.
    return PACKERS[last](content)


def hostile(chance: random.Random) -> tuple[str, bytes]:
    """The value of Content-Encoding, and a body."""
    names = chance.choices(sorted(PACKERS), k=chance.choice([0, 1, 1, 2, 3]))
    size = chance.choice(SIZES if names else SIZES[:5])
    packed = packed_content(chance.choice(FILLINGS), size, tuple(names))
    if chance.random() < 0.2:
        packed = packed[: chance.randrange(len(packed) + 1)]
    if chance.random() < 0.2 and packed:
        at = chance.randrange(len(packed))
        packed = packed[:at] + bytes([packed[at] ^ 1 << chance.randrange(8)]) + packed[at + 1 :]
    return ", ".join(chance.choice([names, names, names[::-1], [*names, "br"]])), packed


class HostileReplies:
    """The provider's script: a short reply whatever the request is, or the one that is
    set where it carries the mark.
    """

    def __init__(self) -> None:
        self.reply: Raw | None = None

    def __call__(self, asked: Asked) -> Raw:
        is_for_it = MARK.encode() in asked.raw
        return self.reply if self.reply is not None and is_for_it else Raw(b"{}")


def hostile_reply(chance: random.Random) -> Raw:
    encoding, content = hostile(chance)
    chunk = (
        chance.choice((0, 0, 1_000, 100_000))
        if len(content) > 200_000
        else chance.choice((0, 1, 7, 1_000))
    )
    media = chance.choice(("application/json", "text/event-stream"))
    return Raw(content, encoding, chance.choice((200, 200, 200, 400, 413, 500)), media, chunk)


def memory_mb(pid: int, name: str) -> float:
    """`VmHWM`: the most a process has had so far; `VmRSS`: what it has now."""
    lines = Path(f"/proc/{pid}/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) / 1024


def processor_seconds(pid: int) -> float:
    """What a process has taken of the processors so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def waits_for_processor(pid: int) -> dict[str, float]:
    """The seconds that each thread of a process could have run and got no processor."""
    found: dict[str, float] = {}
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # It has ended meanwhile.
            fields = (thread / "schedstat").read_text("ascii").split()
            found[thread.name] = int(fields[1]) / 1e9
    return found


def longest_wait_since(before: Mapping[str, float], pid: int) -> float:
    """That of the thread that waited longest: one may hold what the others wait for."""
    after = waits_for_processor(pid)
    return max(seconds - before.get(thread, 0.0) for thread, seconds in after.items())


@dataclass(frozen=True)
class Waited:
    """For an answer. `starved`: of these seconds, those in which a thread of the gateway, or
    of this process, waited for a processor.
    """

    seconds: float
    starved: float

    @property
    def late(self) -> float:
        return max(0.0, self.seconds - self.starved)


@contextmanager
def measured_client(url: str, pid: int) -> Iterator[list[Waited]]:
    """Another agent that asks all the time: how long it waited for each answer."""
    waits: list[Waited] = []
    ended = threading.Event()
    processes = (pid, os.getpid())

    def ask() -> None:
        with httpx.Client(timeout=300) as client:
            while not ended.wait(0.02):
                before = [waits_for_processor(each) for each in processes]
                began = time.monotonic()
                client.get(f"{url}/v1/models").raise_for_status()
                seconds = time.monotonic() - began
                starved = sum(map(longest_wait_since, before, processes))
                waits.append(Waited(seconds, starved))

    thread = concurrency.start_thread(ask, name="other client", daemon=True)
    try:
        yield waits
    finally:
        ended.set()
        thread.join(300)


def send_hostile_request(url: str, body: tuple[str, bytes], found: Counter[str]) -> None:
    encoding, content = body
    headers = {"content-encoding": encoding} if encoding else {}
    reply = httpx.post(f"{url}/v1/messages", content=content, headers=headers, timeout=300)
    found["requests refused" if reply.status_code == 413 else "requests passed on"] += 1
    if reply.status_code not in (200, 413):
        found[f"LOST {encoding}, {len(content)} bytes: {reply.status_code} {reply.text[:80]}"] += 1
    if reply.status_code == 413 and "64 MB" not in reply.text:
        found["LOST a refusal says no reason"] += 1


def receive_hostile_reply(
    url: str, protocol: str, sent: Raw, replies: HostileReplies, found: Counter[str]
) -> None:
    """An agent asks, and gets the reply as it came, or one that says why it was ended."""
    replies.reply = sent
    agent = Agent(protocol, url, streams=sent.media_type != "application/json")
    agent.say(MARK)
    came = bytearray()
    headers = {"x-api-key": "k"}
    with httpx.stream(
        "POST", url + agent.path, json=agent.body(), headers=headers, timeout=300
    ) as reply:
        for piece in reply.iter_raw():
            came += piece
    same, told = came == sent.content, b"Send it again" in came[-400:]
    decoded = "content-encoding" not in reply.headers and bool(sent.encoding)
    found[
        "replies as they came"
        if same
        else "replies ended with a sentence"
        if told
        else "replies read"
    ] += 1
    if reply.status_code != sent.status or not (same or told or decoded):
        found[
            f"LOST reply {json.dumps([sent.encoding, sent.status, sent.media_type, sent.chunk_bytes])}"
        ] += 1


def trials(bodies: int, seed: int, found: Counter[str]) -> None:
    """So many bodies, half of them requests and half replies."""
    chance, replies, slowest = random.Random(seed), HostileReplies(), 0.0
    with (
        tempfile.TemporaryDirectory() as home,
        Provider(replies, strict=False) as provider,
        wrapped(Path(home), provider.url) as held,
    ):
        provider.asked = _Forgetting()
        folders = program_folders.find_program_folders(Path(home))
        pid = (asyncio.run(resident_client.ask_resident(folders, "status")) or {})["gateway"]
        with measured_client(held.addresses[0], pid) as waits:
            for number in range(bodies):
                if number % 100 == 0:
                    print(f"gateway bodies: {number} done, {dict(found)}", flush=True)
                # Made before the measurement: it may take minutes, in which the other
                # client makes work too.
                reply, request = (
                    (hostile_reply(chance), None) if number % 2 else (None, hostile(chance))
                )
                began = processor_seconds(pid)
                if reply is not None:
                    receive_hostile_reply(
                        held.addresses[0], chance.choice(PROTOCOLS), reply, replies, found
                    )
                elif request is not None:
                    send_hostile_request(held.addresses[0], request, found)
                slowest = max(slowest, processor_seconds(pid) - began)
        peak, kept = memory_mb(pid, "VmHWM"), memory_mb(pid, "VmRSS")
        if (asyncio.run(resident_client.ask_resident(folders, "status")) or {})["gateway"] != pid:
            found["LOST the gateway ended"] += 1
    late = sorted(waited.late for waited in waits)
    longest = max(waits, key=lambda waited: waited.seconds)
    found[
        f"bodies: slowest {slowest:.1f} s of work; {peak:.0f} MB at the peak, {kept:.0f} MB kept; the other client waited "
        f"{late[len(late) // 2]:.3f} s as the median, {late[-len(late) // 100 - 1]:.2f} s in one of a hundred, {late[-1]:.2f} s at most; by the clock {longest.seconds:.2f} s at most, "
        f"{longest.starved:.2f} s of them for a processor"
    ] += bodies
    if (
        slowest > SLOWEST_SECONDS
        or peak > MOST_MEMORY_MB
        or kept > MOST_KEPT_MB
        or late[-1] > LATEST_SECONDS
    ):
        found["LOST too slow, too late, or too much memory"] += 1


class _Forgetting(list[Asked]):
    """The provider's requests, of which only the last is kept: they are large."""

    def append(self, asked: Asked) -> None:
        self[:] = [asked]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bodies", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "gateway bodies",
        arguments.seed,
        lambda found: trials(arguments.bodies, arguments.seed, found),
    )


if __name__ == "__main__":
    sys.exit(main())
