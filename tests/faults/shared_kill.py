"""SIGKILL of clients and of the database under them: what the store acknowledged is
there, and is what was put.

A primary with a synchronous standby. Machines put entries through real links with the
setting `shared`; each acknowledgement is noted with the SHA-256. Then one of them is
killed: a client in the middle of its work, or the whole primary; now and then the
standby takes its place for good and gets a standby of its own. In the end every
acknowledged entry is read by a machine that never had it.

python -m tests.faults.shared_kill [--kills 3000] [--promotions 20] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.store.shared import row_encryption
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_store import RowStore
from helix_desktop.store.shared.shared_store_link import SHARED
from tests.faults.store_load import in_child, told
from tests.peers import postgres
from tests.store.shared.homes import machine

CLIENTS = 3
SETTINGS = {
    # what was written outlives a SIGKILL in the system's memory; else each restart
    # syncs every file for 4 s
    "fsync": "off",
    "synchronous_standby_names": "'*'",
    "wal_keep_size": "'256MB'",
    "max_wal_senders": "8",
    # of the standby: else it asks a primary that is back only after 5 s
    "wal_retrieve_retry_interval": "'50ms'",
}
SIZES = (10, 400, 400, 400, 3_000, 3_000, 40_000)  # and now and then one of several chunks
PATIENCE = 60.0  # seconds a promotion may take


class Pair:
    """A primary and its synchronous standby. `new_folder` makes each server's folder."""

    def __init__(
        self,
        settings: Mapping[str, str] = SETTINGS,
        new_folder: Callable[[], Path] = postgres.new_folder,
    ) -> None:
        self._new_folder = new_folder
        self.primary = postgres.Server(settings, folder=new_folder())
        self._trust_replication(self.primary)
        self.primary.start()
        self.standby = self._standby_of(self.primary)

    @property
    def url(self) -> str:
        """Both: a client finds the one that takes writes."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://helix@{hosts}/postgres?target_session_attrs=read-write"

    def kill_primary(self) -> None:
        self.primary.kill()
        self.primary.start()

    def promote(self, lag: float = 0.0) -> None:
        """The primary is lost with its disk; the standby goes on, and gets a standby of
        its own. `lag`: seconds of which it has nothing.
        """
        if lag:
            with (self.standby.data / "postgresql.auto.conf").open("a") as file:
                file.write("primary_conninfo = ''\n")
            self.standby.run("pg_ctl", "reload", "-D", str(self.standby.data))
            time.sleep(lag)
        lost, self.primary = self.primary, self.standby
        lost.kill()
        shutil.rmtree(lost.folder, ignore_errors=True)
        self.primary.run(
            "pg_ctl", "promote", "-D", str(self.primary.data), "-w", "-t", str(int(PATIENCE))
        )
        self.standby = self._standby_of(self.primary)

    def remove(self) -> None:
        for server in (self.standby, self.primary):
            server.remove()

    def _trust_replication(self, server: postgres.Server) -> None:
        with (server.data / "pg_hba.conf").open("a") as file:
            file.write("host replication all 127.0.0.1/32 trust\n")

    def _standby_of(self, primary: postgres.Server) -> postgres.Server:
        folder = self._new_folder()
        postgres.hand_over(folder)
        source = f"host=127.0.0.1 port={primary.port} user=helix application_name=standby"
        primary.run(
            "pg_basebackup",
            "-D",
            str(folder / "data"),
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "-d",
            source,
        )
        return postgres.Server({}, folder=folder).start()


def trials(kills: int, promotions: int, seed: int, found: Counter[str]) -> None:
    """What was found, counted. Anything under a key that begins with LOST is a failure."""
    chance = random.Random(seed)
    homes = Path(tempfile.mkdtemp(prefix="helix-shared-kill-"))
    pair = Pair()
    clients = Clients(homes, row_encryption.new_workspace_key(), chance, found)
    try:
        every = max(1, kills // max(1, promotions))
        for kill in range(kills):
            clients.go_on(pair.url)
            clients.wait(chance.randrange(1, 16))
            time.sleep(0.02 * chance.random())
            if promotions and kill % every == every - 1 and found["promotions"] < promotions:
                pair.promote()
                clients.end()
                found["promotions"] += 1
            elif chance.random() < 0.5:
                clients.kill(chance.randrange(CLIENTS))
            else:
                pair.kill_primary()
                found["servers killed"] += 1
                clients.wait(1)  # they go on by themselves
            found["kills"] += 1
        clients.end()
        check(pair.url, clients.key, clients.acknowledged, found)
    finally:
        clients.end()
        pair.remove()
        shutil.rmtree(homes, ignore_errors=True)


class Clients:
    """Machines at work, a process each, and what was acknowledged to them."""

    def __init__(self, homes: Path, key: bytes, chance: random.Random, found: Counter[str]) -> None:
        self.key = key
        self.acknowledged: dict[str, str] = {}
        self._homes = homes
        self._chance = chance
        self._found = found
        self._processes: dict[int, tuple[int, int, float]] = {}  # pid, pipe, since when
        self._said: dict[int, bytearray] = {}

    def go_on(self, url: str) -> None:
        """Those that were killed begin again; so do those that have been at work for so
        long that `in_child` would end them.
        """
        for number in range(CLIENTS):
            if number in self._processes and time.monotonic() - self._processes[number][2] > 60:
                self._end(number)
            if number not in self._processes:
                work = working(
                    self._homes / str(number), url, self.key, self._chance.randrange(1 << 40)
                )
                pid, reading = in_child(work)
                self._processes[number] = (pid, reading, time.monotonic())
                self._said[reading] = bytearray()

    def wait(self, puts: int, limit: float = 30.0) -> None:
        """Until so many more are acknowledged."""
        until = self._puts() + puts
        end = time.monotonic() + limit
        while self._puts() < until and time.monotonic() < end:
            for reading in select.select(list(self._said), [], [], 0.05)[0]:
                self._said[reading] += os.read(reading, 65536)
        self._found["waited in vain"] += self._puts() < until

    def _puts(self) -> int:
        return self._found["acknowledged"] + sum(
            text.count(b"put ") for text in self._said.values()
        )

    def kill(self, number: int) -> None:
        self._found["clients killed"] += 1
        self._end(number)

    def end(self) -> None:
        for number in list(self._processes):
            self._end(number)

    def _end(self, number: int) -> None:
        pid, reading, _ = self._processes.pop(number)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        text = self._said.pop(reading).decode() + "".join(f"{line}\n" for line in told(reading))
        count(text, self.acknowledged, self._found)


def count(text: str, acknowledged: dict[str, str], found: Counter[str]) -> None:
    for line in text.splitlines():
        what, _, rest = line.partition(" ")
        if what == "put" and rest.count(":") == 1:
            digest, _, recipe = rest.partition(" ")
            acknowledged[digest] = recipe
            found["acknowledged"] += 1
        elif what:
            found[f"said {what}"] += 1


def working(home: Path, url: str, key: bytes, seed: int) -> Callable[[Callable[[str], None]], None]:
    def work(say: Callable[[str], None]) -> None:
        asyncio.run(_puts(home, url, row_encryption.RowCipher(key), random.Random(seed), say))

    return work


async def _puts(
    home: Path,
    url: str,
    seal: row_encryption.RowCipher,
    chance: random.Random,
    say: Callable[[str], None],
) -> None:
    async with machine(
        home, lambda: PostgresRowStore(url, seal.space), seal, acknowledge=SHARED
    ) as one:
        while True:
            recipe = f"{chance.randrange(1 << 60)}:{1_200_000 if chance.random() < 0.01 else chance.choice(SIZES)}"
            content = made(recipe)
            try:
                stored = await one.cache.store_content(content, EntryOrigin("shell", recipe))
            except StoreFailed as error:
                say(f"refused-{type(error).__name__}")
                await asyncio.sleep(0.1)
                continue
            say(f"put {stored.digest.hex} {recipe}")


def made(recipe: str) -> bytes:
    """Content from a few letters, so that what was acknowledged can be told in a line."""
    seed, _, size = recipe.partition(":")
    return random.Random(int(seed)).randbytes(int(size))


def check(url: str, key: bytes, acknowledged: dict[str, str], found: Counter[str]) -> None:
    """A machine that never had anything reads all of it."""
    home = Path(tempfile.mkdtemp(prefix="helix-shared-check-"))
    try:
        asyncio.run(_read_all(home, url, row_encryption.RowCipher(key), acknowledged, found))
    finally:
        shutil.rmtree(home, ignore_errors=True)


async def _read_all(
    home: Path,
    url: str,
    seal: row_encryption.RowCipher,
    acknowledged: dict[str, str],
    found: Counter[str],
) -> None:
    def engine() -> RowStore:
        return PostgresRowStore(url, seal.space)

    async with machine(home, engine, seal) as one:
        left = list(acknowledged)
        for at in range(0, len(left), 50):
            some = left[at : at + 50]
            for digest in some:
                try:
                    content = await one.cache.read_content(Digest.from_hex(digest))
                except HelixError as error:
                    found[f"LOST {digest[:12]}: {error}"] += 1
                    continue
                found["read"] += 1
                if content != made(acknowledged[digest]):
                    found[f"LOST {digest[:12]}: wrong bytes"] += 1


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=3000)
    parser.add_argument("--promotions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if why := postgres.why_not():
        print(f"skipped: {why}")
        return 0
    found: Counter[str] = Counter()
    begun = time.monotonic()
    trials(arguments.kills, min(arguments.promotions, arguments.kills), arguments.seed, found)
    for name, count in sorted(found.items()):
        print(f"{name}: {count}")
    print(f"seconds: {time.monotonic() - begun:.0f}")
    return 1 if any(name.startswith("LOST") for name in found) else 0


if __name__ == "__main__":
    sys.exit(main())
