"""How fast a shared store on PostgreSQL is: writes compared with pgbench, local reads
compared with a workspace that is not shared, and the writes of a fleet of agents.

    python -m tests.benchmarks.shared [--rows 10000000] [--agents 200] [--seconds 5] [--rounds 3]

The server is one's own, with its usual durable settings. `pgbench` runs the same
statement, prepared, with as many rows in a batch and as many connections, in turns with
ours; it makes only names, keys and bodies are constants, and it seals nothing. The
agents have a LevelDB and a connection each, put at random moments, and count a put as
done when the server has it. For growth the table is filled by the server itself, then
batches are put and rows fetched as at any other time.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helix_desktop import concurrency
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.shared import content_transfer, row_encryption, store_address
from helix_desktop.store.shared.async_rows import AsyncRowStore
from helix_desktop.store.shared.content_transfer import ContentTransfer
from helix_desktop.store.shared.postgres_rows import _SQL, PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.shared_store_link import SharedStoreConnection
from helix_desktop.store.store_thread import StoreThread
from tests.benchmarks.row import Figure, Row, fits
from tests.peers import postgres
from tests.store.putting import put_whole
from tests.store.shared.memory_rows import MemoryRowStore, MemoryServer

BATCH = 100
CONNECTIONS = 4
SMALL = 300  # bytes of an entry, packed: the median of the recorded sessions is 425 as it comes
ABOUT = EntryOrigin("shell", "make test")
EACH = 10  # puts of an agent
MEAN = (
    0.8  # seconds between two: 200 agents then put as many a second as a fleet of 6,000 at its peak
)


@contextmanager
def server() -> Iterator[postgres.Server]:
    one = postgres.Server({"shared_buffers": "'128MB'", "max_wal_size": "'4GB'"})
    try:
        yield one.start()
    finally:
        one.remove()


# --- puts beside pgbench


def ours(url: str, seconds: float) -> float:
    """Rows a second, sealed and put by as many machines as there are connections: a
    process each.
    """
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.shared",
        "--put-into",
        url,
        "--seconds",
        str(seconds),
    ]
    each = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(CONNECTIONS)
    ]
    return sum(float(one.communicate()[0]) for one in each)


def put_alone(url: str, seconds: float) -> float:
    """One machine's rows a second."""
    seal = RowCipher(row_encryption.new_workspace_key())
    engine = PostgresRowStore(url, seal.space)
    content = secrets.token_bytes(SMALL)
    count = 0
    engine.store_rows({secrets.token_bytes(32): seal.encrypt_row(b"n" * 32, content)})
    begun = time.perf_counter()
    while time.perf_counter() < begun + seconds:
        names = [seal.keyed_row_name("entry", secrets.token_bytes(32)) for _ in range(BATCH)]
        engine.store_rows({name: seal.encrypt_row(name, content) for name in names})
        count += BATCH
    engine.close()
    return count / (time.perf_counter() - begun)


def pgbench(one: postgres.Server, seconds: float) -> float:
    """The same statement with the batch as its parameters; only the names are made by
    the server, as each must be new.
    """
    names = (
        "ARRAY(SELECT sha256(convert_to(random()::text || g || :client_id, 'UTF8'))"  # noqa: S608 - our own numbers
        f" FROM generate_series(1, {BATCH}) AS g)"
    )
    statement = _SQL["put"].replace("%%", "%")
    for value in (":space::bytea", names, ":keys", ":bodies", ":space::bytea"):
        statement = statement.replace("%b", value, 1)
    script = one.folder / "put.sql"
    script.write_text(statement.replace("\n", " ") + ";\n")
    postgres.hand_over(script)
    given = {"space": "\\x" + "11" * 16, "keys": _array(32), "bodies": _array(512)}
    variables = [f"--define={name}={value}" for name, value in given.items()]
    command = [
        "-n",
        "-f",
        str(script),
        "-M",
        "prepared",
        "-c",
        str(CONNECTIONS),
        "-j",
        "2",
        "-T",
        str(max(1, round(seconds))),
    ]
    where = ["-h", "127.0.0.1", "-p", str(one.port), "-U", "helix"]
    said = one.run("pgbench", *where, *command, *variables, "postgres")
    transactions = next(line for line in said.splitlines() if line.startswith("tps"))
    return float(transactions.split("=")[1].split()[0]) * BATCH


def _array(size: int) -> str:
    """As PostgreSQL writes one."""
    return "{" + ",".join('"\\\\x' + secrets.token_hex(size) + '"' for _ in range(BATCH)) + "}"


def puts(one: postgres.Server, seconds: float, rounds: int) -> Row:
    ours(one.url, 0.5)  # the tables are there
    mine = []
    theirs = []
    for _ in range(rounds):
        theirs.append(pgbench(one, seconds))
        mine.append(ours(one.url, seconds))
    ratio = statistics.median(a / b for a, b in zip(mine, theirs, strict=True))
    note = f"{ratio:.2f} × pgbench; batches of {BATCH} rows of 512 bytes over {CONNECTIONS} connections; ours are encrypted"
    return Row(
        "puts into PostgreSQL", "rows/s", Figure.of(mine), {"pgbench": Figure.of(theirs)},
        "≥ 0.6 × pgbench with the same statement, batch size and connections", ratio >= 0.6, note=note,
    )  # fmt: skip


# --- local reads


async def reads(rounds: int) -> Row:
    """The same entry got from a workspace that shares and from one that does not, in turns."""
    shelf = MemoryServer()
    seal = RowCipher(row_encryption.new_workspace_key())

    async def connect() -> SharedStoreConnection:
        return SharedStoreConnection(AsyncRowStore(MemoryRowStore(shelf, seal.space)), seal)

    with tempfile.TemporaryDirectory(prefix="helix-reads-") as folder:
        workspaces = AllWorkspaces(Path(folder))
        alone, sharing = [
            await workspaces.open_stored_workspace(workspaces.create_stored_workspace(name).id)
            for name in ("alone", "sharing")
        ]
        sharing.share_content("memory://", connect).start_syncing()
        digests = {}
        for one in (alone, sharing):
            digests[one] = [
                (await one.cache.store_content(b"%d" % number * 500, ABOUT)).digest
                for number in range(200)
            ]
        taken: dict[str, list[float]] = {"alone": [], "sharing": []}
        for _ in range(rounds * 5):
            for one in (alone, sharing):
                begun = time.perf_counter()
                for digest in digests[one] * 5:
                    await one.cache.read_content(digest)
                taken[one.name].append((time.perf_counter() - begun) / 1000 * 1e6)
        for one in (alone, sharing):
            await one.aclose()
    ratio = statistics.median(a / b for a, b in zip(taken["sharing"], taken["alone"], strict=True))
    return Row(
        "local get in a shared workspace", "µs", Figure.of(taken["sharing"]), {"not shared": Figure.of(taken["alone"])},
        "≤ 1.1 × that of a workspace that is not shared", ratio <= 1.1, note=f"{ratio:.2f} ×",
    )  # fmt: skip


# --- a fleet


class Agent:
    """A machine of its own: LevelDB, a connection, a random rhythm."""

    def __init__(self, folder: Path, url: str, seal: RowCipher, number: int) -> None:
        self._chance = random.Random(number)
        self._thread = StoreThread(f"agent-{number}")
        self._folder = folder
        self._remote = AsyncRowStore(
            store_address.open_row_store(store_address.parse_store_address(url), seal.space)
        )
        self._seal = seal
        self.taken: list[float] = []
        self.digests: list[Digest] = []

    async def run(self) -> None:
        cache = await self._thread.run_work(CacheFolder, self._folder)
        content = ContentTransfer(cache, self._thread, self._remote, self._seal)
        await self._remote.find_missing_in_batches([bytes(32)])  # connected
        reached = 0
        await asyncio.sleep(self._chance.random() * MEAN)
        for _ in range(EACH):
            size = min(200_000, int(425 * self._chance.paretovariate(0.8) / 2))
            begun = time.perf_counter()
            stored = await self._thread.run_work(
                put_whole, cache, self._chance.randbytes(size), ABOUT
            )
            reached = await content.send_next_entries(reached)
            self.taken.append((time.perf_counter() - begun) * 1000)
            self.digests.append(stored.digest)
            await asyncio.sleep(self._chance.expovariate(1 / MEAN))
        await self._thread.run_work(cache.close)
        await self._thread.aclose()
        await self._remote.aclose()


async def fleet(url: str, agents: int) -> list[Row]:
    seal = RowCipher(row_encryption.new_workspace_key())
    with tempfile.TemporaryDirectory(prefix="helix-fleet-") as folder:
        all_of = [Agent(Path(folder) / str(number), url, seal, number) for number in range(agents)]
        owner = concurrency.OwnedTasks("fleet")
        begun = time.perf_counter()
        await asyncio.gather(
            *(owner.spawn_task(one.run(), name=f"agent {at}") for at, one in enumerate(all_of))
        )
        seconds = time.perf_counter() - begun
    taken = sorted(one for agent in all_of for one in agent.taken)
    engine = store_address.open_row_store(store_address.parse_store_address(url), seal.space)
    names = [
        content_transfer.entry_row_name(seal, digest)
        for agent in all_of
        for digest in agent.digests
    ]
    lost = sum(
        len(engine.find_missing_rows(names[at : at + 500])) for at in range(0, len(names), 500)
    )
    engine.close()
    rate = len(taken) / seconds
    note = f"{agents} agents, {len(taken):,} puts, {rate:.0f} per second; lost: {lost}"
    middle, high = (taken[int(len(taken) * share)] for share in (0.5, 0.99))
    return [
        Row("time from an agent's put until the content is in PostgreSQL, p50", "ms", Figure(middle, taken[0], taken[-1], len(taken)), note=note),
        Row("time from an agent's put until the content is in PostgreSQL, p99", "ms", Figure(high, taken[0], taken[-1], len(taken)),
            asked="200 agents on one PostgreSQL server, nothing lost", met=lost == 0, note=note),
    ]  # fmt: skip


# --- growth

_FILL = (
    "INSERT INTO helix.rows(name, month, space, key, body) SELECT sha256(int8send(g)), date_trunc('month', now() AT TIME ZONE"
    " 'UTC')::date, '\\x00', decode(repeat('00', 32), 'hex'), decode(repeat('00', 512), 'hex')"
    " FROM generate_series(%d::bigint, %d::bigint) AS g"
)


def growth(url: str, most: int, rounds: int) -> list[Row]:
    """A batch put, and 100 rows fetched, as the table grows tenfold."""
    import psycopg

    seal = RowCipher(row_encryption.new_workspace_key())
    engine = PostgresRowStore(url, seal.space)
    found: list[Row] = []
    there = 0
    size = 10_000
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        engine.store_rows({secrets.token_bytes(32): bytes(600)})
        while size <= most:
            for at in range(there, size, 500_000):
                connection.execute((_FILL % (at + 1, min(size, at + 500_000))).encode())
            there = size
            connection.execute("CHECKPOINT")
            found += _at(engine, seal, size, rounds)
            size *= 10
    engine.close()
    return found


def _at(engine: PostgresRowStore, seal: RowCipher, size: int, rounds: int) -> list[Row]:
    put = []
    get = []
    chance = random.Random(size)
    for _ in range(rounds * 20):
        rows = {
            name: seal.encrypt_row(name, bytes(SMALL))
            for name in (secrets.token_bytes(32) for _ in range(BATCH))
        }
        begun = time.perf_counter()
        engine.store_rows(rows)
        put.append((time.perf_counter() - begun) * 1000)
        names = [
            Digest.of_content(chance.randrange(1, size).to_bytes(8, "big")).raw
            for _ in range(BATCH)
        ]
        begun = time.perf_counter()
        engine.fetch_rows(names)
        get.append((time.perf_counter() - begun) * 1000)
    note = "rows of 512 bytes"
    return [
        Row(
            f"{what} a table of {size:,}", "ms", Figure.of(times), series=series, at=size, note=note
        )
        for what, series, times in (
            (f"put of {BATCH} rows into", "shared put", put),
            (f"get of {BATCH} rows from", "shared get", get),
        )
    ]


def rows(*, quick: bool) -> list[Row]:
    if postgres.why_not():
        return []
    return measured(
        100_000 if quick else 1_000_000, 40 if quick else 200, 2 if quick else 5, 2 if quick else 3
    )


def measured(most: int, agents: int, seconds: float, rounds: int) -> list[Row]:
    with server() as one:
        found = [puts(one, seconds, rounds), asyncio.run(reads(rounds))]
        found += asyncio.run(fleet(one.url, agents))
        return [*found, *growth(one.url, most, rounds)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--agents", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--put-into", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.put_into:
        print(put_alone(arguments.put_into, arguments.seconds))
        return 0
    if why := postgres.why_not():
        print(f"skipped: {why}")
        return 0
    found = measured(arguments.rows, arguments.agents, arguments.seconds, arguments.rounds)
    if arguments.json:
        print(json.dumps([row.as_json() for row in found]))
        return 0
    for row in found:
        peers = ", ".join(f"{name} {figure.median:.3g}" for name, figure in row.peers.items())
        print(
            f"{row.name}: {row.ours.median:.4g} {row.unit} ({row.ours.least:.4g} to {row.ours.most:.4g}) {peers} {row.note}"
        )
    for name, line in fits(found).items():
        print(f"{name}: grows with the size to the power of {line.slope:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
