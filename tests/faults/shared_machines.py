"""Two machines that share conversations through a real PostgreSQL, each behind a relay
that delays by 50 ms and cuts.

An interleaving is a few dozen steps by chance: writing, sending, taking over, being cut
in the middle of a call, being killed, coming late. At the end both are mended and catch
up. Lost is a fact that was written and is nowhere, or is not the same on both machines,
a view that differs, a branch where only one wrote, a conversation that cannot be read.
Leases last a third of a second of the server's clock.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop import concurrency
from helix_desktop.engine.facts import ConversationStarted, Text, UserSaid
from helix_desktop.engine.messages import View
from helix_desktop.engine.view import build_state
from helix_desktop.errors import ActionRefused, HelixError, SharedStoreUnreachable
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.conversation_sync import ConversationSync
from helix_desktop.store.shared.postgres_heads import PostgresHeads
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher, new_workspace_key
from helix_desktop.store.shared.sync_state import SyncState
from helix_desktop.store.store_thread import StoreThread
from tests.peers import postgres

DELAY = 0.05
LEASE = 0.33
STEPS = 24
TOGETHER = 32  # interleavings at once; most of their time is the delay
_TEXT = re.compile(r'"(text \d+)"')


class Relay:
    """Between one machine and the server, on a loop of its own. `cut` ends every
    connection and lets none begin.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, port: int) -> None:
        self._loop = loop
        self._far = port
        self._open: set[asyncio.StreamWriter] = set()
        self.is_cut = False
        self.port = asyncio.run_coroutine_threadsafe(self._begin(), loop).result(30)

    async def _begin(self) -> int:
        self._server = await asyncio.start_server(self._meet, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _meet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_cut:
            writer.transport.abort()
            return
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._far)
            self._open |= {writer, far_writer}
            await asyncio.gather(_carry(reader, far_writer, DELAY), _carry(far_reader, writer, 0.0))

    def cut(self) -> None:
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        self.is_cut = True
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    def mend(self) -> None:
        self._loop.call_soon_threadsafe(self._mend)

    def _mend(self) -> None:
        self.is_cut = False

    def close(self) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._server.close)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            await asyncio.sleep(delay)
            writer.write(data)
            await writer.drain()
    with suppress(OSError, RuntimeError):
        writer.close()


@dataclass
class Machine:
    name: str
    relay: Relay
    engine: PostgresRowStore
    remote: AsyncRowStore
    journal: JournalFile
    thread: StoreThread
    seal: RowCipher
    shared: ConversationSync = field(init=False)
    written: set[str] = field(default_factory=set)
    parted: list[str] = field(default_factory=list)

    @classmethod
    async def make(cls, name: str, folder: Path, relay: Relay, seal: RowCipher) -> Machine:
        engine = PostgresRowStore(f"postgresql://helix@127.0.0.1:{relay.port}/postgres", seal.space)
        thread = StoreThread(name)
        journal = await thread.run_work(JournalFile, folder / f"{name}.sqlite3")
        await thread.run_work(journal.connection.execute, "PRAGMA synchronous=OFF")
        made = cls(name, relay, engine, AsyncRowStore(engine), journal, thread, seal)
        await made.start()
        return made

    async def start(self) -> None:
        """Also again, as after a kill: what was in memory is gone."""
        steps = await self.thread.run_work(SyncState, self.journal)
        heads = PostgresHeads(self.engine, self.seal.space)
        self.shared = ConversationSync(
            self.journal, self.thread, steps, self.remote, heads, self.seal, self.name, lease=LEASE
        )
        await self.shared.read_known_writers()
        before = self.shared.open_conversations.on_local_facts_moved

        def parted(conversation: str, new_conversation: str) -> None:
            before(conversation, new_conversation)
            self.parted.append(new_conversation)

        self.shared.open_conversations.on_local_facts_moved = parted  # type: ignore[method-assign]

    async def write(self, conversation: str, text: str) -> None:
        if await self.thread.run_work(self.journal.read_stored_facts, conversation, 0, 1):
            await self.thread.run_work(
                self.journal.append_all_or_nothing, conversation, [UserSaid((Text(text, 1),))]
            )
            self.written.add(text)

    async def everything(self) -> dict[str, list[tuple[int, float, str]]]:
        found: dict[str, list[tuple[int, float, str]]] = {}
        for line in sorted(
            await self.thread.run_work(self.journal.stored_facts_since, 0, 1 << 30),
            key=lambda line: line.seq,
        ):
            found.setdefault(line.conversation, []).append((line.seq, line.time, line.fact))
        return found

    async def aclose(self) -> None:
        self.relay.close()
        with suppress(HelixError):
            await self.remote.aclose()
        await self.thread.run_work(self.journal.close)
        await self.thread.aclose()


async def interleaving(
    relay_of: Callable[[], Relay], chance: random.Random, found: Counter[str]
) -> None:
    seal = RowCipher(new_workspace_key())
    with tempfile.TemporaryDirectory() as folder:
        machines = [
            await Machine.make(name, Path(folder), relay_of(), seal) for name in ("one", "two")
        ]
        try:
            await machines[0].thread.run_work(
                machines[0].journal.append_all_or_nothing, "c", [ConversationStarted("Shared")]
            )
            for machine in machines:
                await machine.shared.sync_once()
            for _ in range(STEPS):
                await _step(chance, machines, found)
            await _end(machines, found)
        finally:
            for machine in machines:
                await machine.aclose()


async def _step(chance: random.Random, machines: list[Machine], found: Counter[str]) -> None:
    machine = chance.choice(machines)
    what = chance.choice(
        (
            "write",
            "write",
            "write",
            "send",
            "send",
            "send",
            "take over",
            "cut",
            "kill",
            "apart",
            "wait",
        )
    )
    found[what] += 1
    if what == "write":
        for _ in range(chance.choice((1, 1, 3, 40))):
            await machine.write("c", _new(found))
    elif what == "apart":
        for each in machines:
            await each.write("c", _new(found))
    elif what == "kill":
        await machine.start()
    elif what == "wait":
        await asyncio.sleep(LEASE)
    else:
        await _call(chance, machine, what, found)


def _new(found: Counter[str]) -> str:
    found["facts"] += 1
    return f"text {found['facts']}"


async def _call(chance: random.Random, machine: Machine, what: str, found: Counter[str]) -> None:
    """A call of the engine; with `cut`, the way ends at some moment of it."""
    work = (
        machine.shared.take_over_lease("c") if what == "take over" else machine.shared.sync_once()
    )
    calling = asyncio.ensure_future(work)  # noqa: TID251 -- awaited below
    if what == "cut":
        await asyncio.sleep(chance.uniform(0, 6 * DELAY))
        machine.relay.cut()
    try:
        await calling
    except SharedStoreUnreachable:
        found["away"] += 1
    except ActionRefused:
        found["refused"] += 1
    if (what == "cut" and chance.random() < 0.7) or (
        machine.relay.is_cut and chance.random() < 0.3
    ):
        machine.relay.mend()


async def _end(machines: list[Machine], found: Counter[str]) -> None:
    for machine in machines:
        machine.relay.mend()
    for _ in range(30):
        for machine in machines:
            await _reached(machine)
        if not await _have_facts_to_send(machines):
            break
        await asyncio.sleep(LEASE + 0.05)
    for machine in machines:
        await _reached(machine)
    first, second = [await machine.everything() for machine in machines]
    texts = set(_TEXT.findall(repr(first)))
    written = machines[0].written | machines[1].written
    branches = sum(len(machine.parted) for machine in machines)
    found["interleavings"] += 1
    found["branches"] += branches
    found["LOST facts"] += len(written - texts)
    found["LOST: not the same on both"] += first != second
    found["LOST: a branch too many or too few"] += len(first) != 1 + branches
    found["LOST: cannot be read"] += sum(len(machine.shared.complaints) for machine in machines)
    for conversation in first.keys() & second.keys():
        one, other = [await _view_of(machine, conversation) for machine in machines]
        found["views"] += 1
        found["LOST: views differ"] += one != other


async def _have_facts_to_send(machines: list[Machine]) -> bool:
    for machine in machines:
        if await machine.thread.run_work(machine.shared.sync_state.count_facts_to_send):
            return True
    return False


async def _view_of(machine: Machine, conversation: str) -> View:
    facts = await machine.thread.run_work(machine.journal.read_recorded, conversation)
    return build_state(facts).get_view()


async def _reached(machine: Machine) -> None:
    """The first calls after a cut may still meet what was cut."""
    for _ in range(5):
        with suppress(SharedStoreUnreachable):
            await machine.shared.sync_once()
            return
        await asyncio.sleep(DELAY)
    await machine.shared.sync_once()


async def trials(count: int, seed: int, found: Counter[str], server: postgres.Server) -> None:
    loop = asyncio.new_event_loop()
    concurrency.start_thread(loop.run_forever, name="relays", daemon=True)
    limit = asyncio.Semaphore(TOGETHER)

    async def one(number: int) -> None:
        async with limit:
            each: Counter[str] = Counter()
            await interleaving(
                lambda: Relay(loop, server.port), random.Random(seed * 100_003 + number), each
            )
            found.update(each)
            if lost := [key for key in each if key.startswith("LOST") and each[key]]:
                print(f"interleaving {number} of seed {seed}: {lost}", flush=True)

    await asyncio.gather(*map(one, range(count)))
    loop.call_soon_threadsafe(loop.stop)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--interleavings", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    if why := postgres.why_not():
        print(f"skipped: {why}")
        return 0
    server = postgres.Server(postgres.FAST).start()
    found: Counter[str] = Counter()
    began = time.monotonic()
    try:
        asyncio.run(trials(given.interleavings, given.seed, found, server))
    finally:
        server.remove()
    print(
        f"{', '.join(f'{key}: {found[key]}' for key in sorted(found))}; {time.monotonic() - began:.0f} s"
    )
    return 1 if any(found[key] for key in found if key.startswith("LOST")) else 0


if __name__ == "__main__":
    sys.exit(main())
