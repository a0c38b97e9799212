"""Flipped bytes, zeroed pages and cut ends in what a shared store holds: each is found by the
reader, and none is delivered.

In PostgreSQL a byte of a row's key or body is changed in its table; in S3 (moto's
server) a byte of an object. Each time a machine that has nothing reads the entry; then
the byte is put back and it reads it whole.

python -m tests.faults.shared_bits [--flips 1000] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.store.shared import row_encryption
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import RowStore
from helix_desktop.store.shared.s3_rows import S3RowStore
from tests.peers import postgres
from tests.store.shared.conftest import moto_bucket
from tests.store.shared.homes import Machine, machine

ENTRIES = 14
PAGE = 4096
SIZES = (0, 1, 300, 300, 2_000, 40_000, 1_300_000)
_HELD = {
    "key": "SELECT name, key FROM helix.rows WHERE space = %b ORDER BY name",
    "body": "SELECT name, body FROM helix.rows WHERE space = %b ORDER BY name",
}
_PUT = {
    "key": "UPDATE helix.rows SET key = %b WHERE name = %b",
    "body": "UPDATE helix.rows SET body = %b WHERE name = %b",
}
Flip = Callable[
    [random.Random], tuple[str, Callable[[], None]]
]  # does it; gives where, and how it is put back


logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request


async def trial(
    open_engine: Callable[[], RowStore],
    flip: Flip,
    seal: RowCipher,
    flips: int,
    seed: int,
    found: Counter[str],
) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="helix-shared-bits-") as folder:
        async with machine(Path(folder) / "here", open_engine, seal) as here:
            digests = [
                (
                    await here.cache.store_content(
                        chance.randbytes(SIZES[number % len(SIZES)]) + b"%d" % number,
                        EntryOrigin("shell"),
                    )
                ).digest
                for number in range(ENTRIES)
            ]
            await here.link.sync_content_now()
        for number in range(flips):
            where, back = flip(chance)
            async with machine(Path(folder) / f"there-{number}", open_engine, seal) as there:
                await read_all(there, digests, where, found)
            back()
            found["flips"] += 1
        async with machine(Path(folder) / "last", open_engine, seal) as last:
            whole = await last.cache.read_contents(digests)
            found["whole when put back"] = len(whole)


async def read_all(there: Machine, digests: list[Digest], where: str, found: Counter[str]) -> None:
    """The seal and the hash are what is tried: the entries are brought as a reader brings them."""
    noticed = 0
    for digest in digests:
        try:
            content = await there.cache.read_content(digest)
        except HelixError:
            noticed += 1
        else:
            if Digest.of_content(content) != digest:
                found[f"LOST: wrong bytes delivered, {where}"] += 1
    if not noticed:
        found[f"LOST: nobody noticed, {where}"] += 1
    found["found by the reader"] += bool(noticed)
    found[f"entries that could not be read, {where}"] += noticed


def harmed(held: bytes, chance: random.Random) -> bytes:
    """The same with a byte flipped, a page zeroed, or its end cut off."""
    start = chance.randrange(len(held))
    what = chance.choice(("flip", "flip", "zeros", "cut"))
    if what == "zeros":
        page = start - start % PAGE
        zeroed = held[:page] + bytes(len(held[page : page + PAGE])) + held[page + PAGE :]
        if zeroed != held:
            return zeroed
    if what == "cut":
        return held[:start]
    return held[:start] + bytes([held[start] ^ chance.randrange(1, 256)]) + held[start + 1 :]


def in_tables(server: postgres.Server, seal: RowCipher) -> Flip:
    import psycopg

    connection = psycopg.connect(server.url, autocommit=True)

    def flip(chance: random.Random) -> tuple[str, Callable[[], None]]:
        column = chance.choice(("key", "body"))
        rows = connection.execute(_HELD[column].encode(), (seal.space,)).fetchall()
        name, held = chance.choice(rows)
        changed = harmed(held, chance)

        def put(value: bytes) -> None:
            connection.execute(_PUT[column].encode(), (value, name))

        put(changed)
        return f"table, {column}", lambda: put(held)

    return flip


def in_objects(url: str, seal: RowCipher) -> Flip:
    import obstore
    from obstore.store import S3Store

    parts = urlsplit(url)
    endpoint = dict(parse_qsl(parts.query))["endpoint"]
    options = {
        "endpoint": endpoint,
        "access_key_id": "key",
        "secret_access_key": "secret",
        "region": "us-east-1",
    }
    store = S3Store(parts.netloc, config=options, client_options={"allow_http": True})  # type: ignore[arg-type]
    base = f"{parts.path.strip('/')}/{seal.space.hex()}"

    def flip(chance: random.Random) -> tuple[str, Callable[[], None]]:
        folder = chance.choice(("pack", "row", "index"))
        paths = sorted(
            one["path"] for page in obstore.list(store, f"{base}/{folder}/") for one in page
        )
        path = chance.choice(paths)
        held = bytes(obstore.get(store, path).bytes())
        obstore.put(store, path, harmed(held, chance))
        return f"object, {folder}", lambda: obstore.put(store, path, held) and None

    return flip


@contextmanager
def _server() -> Iterator[postgres.Server]:
    server = postgres.Server(postgres.FAST)
    try:
        yield server.start()
    finally:
        server.remove()


def trials(flips: int, seed: int, found: Counter[str]) -> None:
    seal = RowCipher(row_encryption.new_workspace_key())
    if not postgres.why_not():
        with _server() as server:
            asyncio.run(
                trial(
                    lambda: PostgresRowStore(server.url, seal.space),
                    in_tables(server, seal),
                    seal,
                    flips // 2,
                    seed,
                    found,
                )
            )
    with moto_bucket() as url:
        asyncio.run(
            trial(
                lambda: S3RowStore(url, seal.space, login="key:secret"),
                in_objects(url, seal),
                seal,
                flips // 2,
                seed,
                found,
            )
        )


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    found: Counter[str] = Counter()
    begun = time.monotonic()
    trials(arguments.flips, arguments.seed, found)
    for name, count in sorted(found.items()):
        print(f"{name}: {count}")
    print(f"seconds: {time.monotonic() - begun:.0f}")
    return 1 if any(name.startswith("LOST") for name in found) else 0


if __name__ == "__main__":
    sys.exit(main())
