"""The scripted model of the loop benchmark, in a process of its own: 2,000 events a
second, a command of 50 MB, a slow document.

python -m tests.benchmarks.loop_server [EVENTS] [MEGABYTES]      prints its port
"""

from __future__ import annotations

import asyncio
import sys
import time

from tests.peers import peer
from tests.peers.chat_server import ChatServer, chunk, reply
from tests.peers.peer import Answer, Pause, Piece, Seen, sse
from tests.workbench.recorded import ASIDES, SUMMARY, texts_of

RATE = 2_000  # events a second
PACED = ("x-paced", "yes")
BATCH = 20  # written together, as a network delivers them


class Flood(ChatServer):
    """What is asked for stands in the user's words."""

    def __init__(self, events: int, megabytes: int) -> None:
        super().__init__()
        self.events = events
        self.megabytes = megabytes

    def answer(self, seen: Seen) -> Answer:
        if seen.method == "GET":
            return self.listing(seen)
        messages = seen.body["messages"]
        last = texts_of(messages[-1])
        if any(mark in last for mark in ASIDES):
            whole = reply(SUMMARY)
            pieces: list[Piece] = []
            for piece in whole.pieces:
                pieces += [piece, Pause(0.02)]
            return Answer(pieces=tuple(pieces))
        if messages[-1]["role"] == "tool":
            return reply("It is done.")
        if "flood" in last:
            return self.flood()
        if "print" in last:
            line = (
                f"yes 'a line of a command that prints very much' | head -c {self.megabytes}000000"
            )
            return reply("I print.", calls=[("run_command", {"command": line})])
        return reply(" ".join(f"word{len(self.requests)}-{number}" for number in range(800)))

    def flood(self) -> Answer:
        """Words numbered, so that a lost one is seen; the pace is the server's, not the
        sum of its pauses.
        """
        texts = [
            f"w{number} " if number % 12 else f"w{number}\n\n" for number in range(self.events)
        ]
        events = sse(*(chunk({"content": text}) for text in texts), chunk({}, "stop"), "[DONE]")
        batches = tuple(b"".join(events[at : at + BATCH]) for at in range(0, len(events), BATCH))
        return Answer(pieces=batches, headers=(PACED,))


async def _paced(writer: asyncio.StreamWriter, answer: Answer) -> bool:
    """As `peer` writes it, but a long stream at its rate."""
    if PACED not in answer.headers:
        return await _plain(writer, answer)
    begun = time.monotonic()
    head = "HTTP/1.1 200 Scripted\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    writer.write(head.encode())
    for number, piece in enumerate(answer.pieces):
        assert isinstance(piece, bytes)
        await asyncio.sleep(max(0.0, begun + number * BATCH / RATE - time.monotonic()))
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    print(f"sent in {time.monotonic() - begun:.2f} s", file=sys.stderr)
    return True


_plain = peer._write


def main(events: str = "20000", megabytes: str = "50") -> int:
    peer._write = _paced
    with Flood(int(events), int(megabytes)) as server:
        print(server.port, flush=True)
        for _ in sys.stdin:
            continue
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
