"""A durable put and a checked get, in one run beside what they are made of and beside other stores.

    python -m tests.benchmarks.store_put [--rounds 15] [--json]

Each round does the same puts with each store, in an order that changes; each figure is
the median over rounds of the median put of a round, in microseconds, with the least and
the most of the rounds. `parts` is what ours cannot do without, measured in the same
rounds: SHA-256, zstd level 1 and plyvel's own synced put of the compressed bytes; for a
get, plyvel's get, zstd and SHA-256. Every store syncs each put, but for one:
`diskcache` lets SQLite sync its database and leaves the file of a larger value to the
system, so that a power cut may lose it; `diskcache with sync` is what it takes to put
that right. lmdb and the files keep the bytes as they are, and so does diskcache; sqlite
gets them packed with zstd-1.

Ours is the only one that proves on every get that what it gives out is what was put.
SHA-256 alone of 32 KB or a megabyte, a part of every get of ours, takes longer than an
unchecked read of a file in memory, as diskcache does it. `diskcache with hash check`
gets like for like, but for the unpacking: it takes four times the room.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import diskcache
import lmdb
import plyvel
import zstandard

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.cache_folder import CacheFolder
from tests.store.putting import put_whole

SIZES = {"2 KB": 2_000, "32 KB": 32_000, "1 MB": 1_000_000}
ABOUT = EntryOrigin("shell", "make test")
Put = Callable[[bytes], None]
Get = Callable[[bytes], bytes]


@contextmanager
def ours(folder: Path) -> Iterator[tuple[Put, Get]]:
    cache = CacheFolder(folder)
    yield (
        lambda content: void(put_whole(cache, content, ABOUT)),
        lambda digest: cache.reader.get_content(Digest(digest)),
    )
    cache.close()


@contextmanager
def parts(folder: Path) -> Iterator[tuple[Put, Get]]:
    database = plyvel.DB(
        str(folder),
        create_if_missing=True,
        compression=None,
        bloom_filter_bits=10,
        write_buffer_size=4 << 20,
    )
    pack = zstandard.ZstdCompressor(level=1)
    unpack = zstandard.ZstdDecompressor()

    def get(digest: bytes) -> bytes:
        content = unpack.decompress(database.get(digest))
        if hashlib.sha256(content).digest() != digest:
            raise ValueError
        return content

    yield lambda c: database.put(hashlib.sha256(c).digest(), pack.compress(c), sync=True), get
    database.close()


@contextmanager
def plyvel_alone(folder: Path) -> Iterator[tuple[Put, Get]]:
    database = plyvel.DB(str(folder), create_if_missing=True)
    yield lambda c: database.put(hashlib.sha256(c).digest(), c, sync=True), database.get
    database.close()


@contextmanager
def sqlite(folder: Path) -> Iterator[tuple[Put, Get]]:
    folder.mkdir()
    pack = zstandard.ZstdCompressor(level=1)
    unpack = zstandard.ZstdDecompressor()
    with closing(sqlite3.connect(folder / "db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE blobs(digest BLOB PRIMARY KEY, content BLOB)")

        def put(content: bytes) -> None:
            values = (hashlib.sha256(content).digest(), pack.compress(content))
            connection.execute("INSERT OR REPLACE INTO blobs VALUES(?, ?)", values)

        def get(digest: bytes) -> bytes:
            row = connection.execute(
                "SELECT content FROM blobs WHERE digest = ?", (digest,)
            ).fetchone()
            return unpack.decompress(row[0])

        yield put, get


@contextmanager
def lmdb_alone(folder: Path) -> Iterator[tuple[Put, Get]]:
    with lmdb.open(str(folder), map_size=8 << 30) as environment:

        def put(content: bytes) -> None:
            with environment.begin(write=True) as transaction:
                transaction.put(hashlib.sha256(content).digest(), content)

        def get(digest: bytes) -> bytes:
            with environment.begin() as transaction:
                return bytes(transaction.get(digest) or b"")

        yield put, get


@contextmanager
def disk_cache(folder: Path) -> Iterator[tuple[Put, Get]]:
    cache = diskcache.Cache(str(folder), sqlite_synchronous=2, size_limit=8 << 30)
    yield (
        lambda c: void(cache.set(hashlib.sha256(c).digest(), c)),
        lambda digest: bytes(cache[digest]),
    )
    cache.close()


@contextmanager
def disk_cache_checked(folder: Path) -> Iterator[tuple[Put, Get]]:
    """Proves what it gives out, as ours does."""
    with disk_cache(folder) as (put, unchecked):

        def get(digest: bytes) -> bytes:
            content = unchecked(digest)
            if hashlib.sha256(content).digest() != digest:
                raise ValueError
            return content

        yield put, get


@contextmanager
def disk_cache_synced(folder: Path) -> Iterator[tuple[Put, Get]]:
    """What it put is on the disk when it returns, as with ours: a value in a file of
    its own as well, and that file's name.
    """
    cache = diskcache.Cache(str(folder), sqlite_synchronous=2, size_limit=8 << 30, disk=SyncedDisk)
    yield (
        lambda c: void(cache.set(hashlib.sha256(c).digest(), c)),
        lambda digest: bytes(cache[digest]),
    )
    cache.close()


class SyncedDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache has no types
    """diskcache's files, and the folders it makes for them, synced before its database
    names them.
    """

    def store(self, value: Any, read: bool, key: Any = diskcache.UNKNOWN) -> Any:
        stored = super().store(value, read, key)
        if (name := stored[2]) is not None:
            for place in (name, *Path(name).parents):
                sync(Path(self._directory, place))
        return stored


def sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


@contextmanager
def files(folder: Path) -> Iterator[tuple[Put, Get]]:
    folder.mkdir()

    def put(content: bytes) -> None:
        path = folder / hashlib.sha256(content).hexdigest()
        with path.with_suffix(".new").open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".new").replace(path)
        sync(folder)

    yield put, lambda digest: (folder / digest.hex()).read_bytes()


def void(_: object) -> None:
    return None


STORES = {
    "ours": ours,
    "parts": parts,
    "plyvel (snappy)": plyvel_alone,
    "sqlite + zstd-1": sqlite,
    "lmdb": lmdb_alone,
    "diskcache": disk_cache,
    "diskcache with hash check": disk_cache_checked,
    "diskcache with sync": disk_cache_synced,
    "files": files,
}


def contents(size: int, count: int, chance: random.Random) -> list[bytes]:
    """Text as tools print it: paths, numbers and words that repeat, so that it packs
    about four to one.
    """
    words = [chance.randbytes(chance.randrange(2, 6)).hex() for _ in range(300)]
    found = []
    for _ in range(count):
        lines = []
        left = size
        while left > 0:
            line = f"src/{chance.choice(words)}/{chance.choice(words)}.py:{chance.randrange(2000)}: {' '.join(chance.choices(words, k=6))}\n"
            lines.append(line)
            left -= len(line)
        found.append("".join(lines).encode()[:size])
    return found


def measure(rounds: int) -> dict[str, dict[str, dict[str, tuple[float, float, float]]]]:
    chance = random.Random(1)
    figures: dict[str, dict[str, dict[str, tuple[float, float, float]]]] = {}
    for label, size in SIZES.items():
        per_round = 8 if size > 500_000 else 40
        taken: dict[str, dict[str, list[float]]] = {name: {"put": [], "get": []} for name in STORES}
        base = Path(tempfile.mkdtemp(prefix="helix-put-"))
        try:
            opened = {name: make(base / name) for name, make in STORES.items()}
            calls = {name: context.__enter__() for name, context in opened.items()}
            for _ in range(rounds):
                _round(calls, contents(size, per_round, chance), chance, taken)
            for context in opened.values():
                context.__exit__(None, None, None)
        finally:
            shutil.rmtree(base)
        figures[label] = {
            name: {what: (statistics.median(t), min(t), max(t)) for what, t in both.items()}
            for name, both in taken.items()
        }
    return figures


def _round(
    calls: dict[str, tuple[Put, Get]],
    batch: list[bytes],
    chance: random.Random,
    taken: dict[str, dict[str, list[float]]],
) -> None:
    """Content by content, each store in turn, so that whatever else the machine does is
    shared by all.
    """
    puts: dict[str, list[float]] = {name: [] for name in calls}
    gets: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for content in batch:
        chance.shuffle(names)
        for name in names:
            started = time.perf_counter()
            calls[name][0](content)
            puts[name].append((time.perf_counter() - started) * 1e6)
    for content in batch:
        digest = hashlib.sha256(content).digest()
        chance.shuffle(names)
        for name in names:
            started = time.perf_counter()
            got = calls[name][1](digest)
            gets[name].append((time.perf_counter() - started) * 1e6)
            if got != content:
                raise ValueError(name)
    for name in calls:
        taken[name]["put"].append(statistics.median(puts[name]))
        taken[name]["get"].append(statistics.median(gets[name]))


async def through_the_port(rounds: int) -> dict[str, float]:
    """The same put as the program calls it, a coroutine over the store's thread: alone,
    and sixteen at once.
    """
    base = Path(tempfile.mkdtemp(prefix="helix-put-"))
    chance = random.Random(2)
    figures = {}
    try:
        workspaces = AllWorkspaces(base)
        workspace = await workspaces.open_stored_workspace(
            workspaces.create_stored_workspace("bench").id
        )
        for together in (1, 16):
            taken = []
            for _ in range(rounds * 4):
                batch = contents(2_000, together, chance)
                started = time.perf_counter()
                await asyncio.gather(
                    *(workspace.cache.store_content(content, ABOUT) for content in batch)
                )
                taken.append((time.perf_counter() - started) * 1e6 / together)
            figures[f"put of 2 KB through the async interface, {together} at once"] = (
                statistics.median(taken)
            )
        await workspace.aclose()
    finally:
        shutil.rmtree(base)
    return figures


def shown(figures: dict[str, dict[str, dict[str, tuple[float, float, float]]]]) -> str:
    lines = []
    for label, stores in figures.items():
        lines.append(
            f"\n{label:<18} {'put µs (least-most)':>26} {'/ parts':>8} {'get µs (least-most)':>26} {'/ parts':>8}"
        )
        for name, both in stores.items():
            cells = []
            for what in ("put", "get"):
                middle, least, most = both[what]
                cells.append(f"{middle:>10.0f} ({least:.0f}-{most:.0f})".rjust(26))
                cells.append(f"{middle / stores['parts'][what][0]:>8.2f}")
            lines.append(f"{name:<18} {' '.join(cells)}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.rounds)
    port = asyncio.run(through_the_port(arguments.rounds))
    if arguments.json:
        print(json.dumps({"stores": figures, "port": port}))
    else:
        print(shown(figures))
        for name, value in port.items():
            print(f"{name}: {value:.0f} µs each")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
