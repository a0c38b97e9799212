"""Entries on their way between a cache and a store: what is checked, what is sent
again, what waits.
"""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, SharedStoreUnreachable, WrittenByNewerVersion
from helix_desktop.store.cache_folder import CHECKPOINT
from helix_desktop.store.cache_records import CHUNK
from helix_desktop.store.shared.content_transfer import (
    compress_content,
    decrypt_chunk_rows,
    entry_row_name,
    list_row_names_of_entry,
    parse_first_row,
)
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import Tombstone
from helix_desktop.store.shared.shared_store_link import SHARED
from tests.store.shared.homes import Machine, machine
from tests.store.shared.memory_rows import MemoryRowStore, MemoryServer

SHELL = EntryOrigin("shell", "ls", "text/plain")
LARGE = secrets.token_bytes(2 * CHUNK + 5)


class Store:
    """A shelf, and machines with this workspace."""

    def __init__(self, folder: Path, seal: RowCipher, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.seal = seal
        self.stack = stack
        self.shelf = MemoryServer()
        self.rows = [MemoryRowStore(self.shelf, seal.space)]

    async def machine(self, name: str, **more: Any) -> Machine:
        def engine() -> MemoryRowStore:
            self.rows.append(MemoryRowStore(self.shelf, self.seal.space))
            return self.rows[-1]

        return await self.stack.enter_async_context(
            machine(self.folder / name, engine, self.seal, **more)
        )

    def drop(self, *names: bytes) -> None:
        for name in names:
            del self.shelf.rows[name]

    def spoil(self, name: bytes) -> None:
        sealed, time, space = self.shelf.rows[name]
        self.shelf.rows[name] = sealed[:-1] + bytes([sealed[-1] ^ 1]), time, space


@pytest.fixture
async def store(tmp_path: Path, seal: RowCipher) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        yield Store(tmp_path, seal, stack)


def row(content: bytes, **changed: object) -> bytes:
    head = {
        "entry": 1,
        "size": len(content),
        "count": 1,
        "time": 5.0,
        "tool": "shell",
        "source": "ls",
        "media_type": "text/plain",
        **changed,
    }
    text = json.dumps(head).encode()
    return len(text).to_bytes(4, "big") + text + compress_content(content)


def test_a_first_row_says_what_the_entry_is() -> None:
    digest = Digest.of_content(b"small")
    found = parse_first_row(digest, row(b"small"))
    assert (found.count, found.time, found.about, found.content) == (1, 5.0, SHELL, b"small")
    several = parse_first_row(digest, row(b"", count=3, size=2 * CHUNK + 1))
    assert (several.count, several.content) == (3, b""), "its content is in other rows"


@pytest.mark.parametrize(
    "content",
    [
        row(b"other"), row(b"small", count="x"), row(b"small")[:-3], b"", row(b"small")[3:], b"\0\0\0\2[]",
        row(b"small", time=None), row(b"small", entry="1"), row(b"x" * (CHUNK + 1)),
    ],
)  # fmt: skip
def test_a_first_row_that_is_not_the_entry_is_not_used(content: bytes) -> None:
    with pytest.raises(CacheCorrupt, match="does not match its hash"):
        parse_first_row(Digest.of_content(b"small"), content)


def test_a_first_row_of_a_newer_version_is_left_alone() -> None:
    with pytest.raises(WrittenByNewerVersion) as refused:
        parse_first_row(Digest.of_content(b"small"), row(b"small", entry=2))
    assert "Nothing was changed" in refused.value.remedy


def test_chunks_are_opened_in_their_order_as_far_as_they_are_there(seal: RowCipher) -> None:
    digest = Digest.of_content(LARGE)
    names = list_row_names_of_entry(seal, digest, 3)
    first = names.pop()
    assert (len(names), first) == (3, entry_row_name(seal, digest))
    assert list_row_names_of_entry(seal, digest, 1) == [first]
    rows = {
        name: seal.encrypt_row(name, compress_content(bytes([at]))) for at, name in enumerate(names)
    }
    assert list(decrypt_chunk_rows(seal, digest, names, rows)) == [b"\0", b"\1", b"\2"]
    assert list(decrypt_chunk_rows(seal, digest, names[1:], rows)) == [b"\1", b"\2"]
    rows[names[1]] = seal.encrypt_row(names[1], b"no frame")
    with pytest.raises(CacheCorrupt):
        list(decrypt_chunk_rows(seal, digest, names, rows))


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 2_000_000},
        {"count": 2},
        {"count": 0},
        {"size": CHUNK + 1},
        {"count": 1 << 40, "size": 1 << 60},
        {"time": 1e300},
        {"time": math.nan},
        {"time": -1.0},
        {"count": math.inf},
    ],
    ids=str,
)
def test_a_first_row_that_stands_for_more_than_it_is_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(CacheCorrupt):
        parse_first_row(Digest.of_content(b"x"), row(b"x", **changes))


async def test_only_what_is_missing_is_sent(store: Store) -> None:
    here = await store.machine("here")
    there = await store.machine("there")
    contents = [secrets.token_bytes(12 << 10) for _ in range(4)]
    for content in contents[:2] + [LARGE]:
        await here.cache.store_content(content, SHELL)
    await here.link.sync_content_now()
    names = list_row_names_of_entry(store.seal, Digest.of_content(LARGE), 3)
    kept = {name: sealed for name, sealed in store.shelf.rows.items() if name != names[1]}
    store.drop(names[1])
    for content in contents + [LARGE]:
        await there.cache.store_content(content, SHELL)
    await there.link.sync_content_now()
    assert len(store.shelf.rows) == 8
    assert {name: store.shelf.rows[name] for name in kept} == kept
    third = await store.machine("third")
    assert await third.cache.read_content(Digest.of_content(LARGE)) == LARGE
    assert [await third.cache.read_content(Digest.of_content(one)) for one in contents] == contents


async def test_of_an_entry_whose_part_is_missing_nothing_is_taken(store: Store) -> None:
    here = await store.machine("here")
    there = await store.machine("there")
    await here.cache.store_content(LARGE, SHELL)
    await here.cache.store_content(b"small", SHELL)
    await here.link.sync_content_now()
    digests = [Digest.of_content(content) for content in (LARGE, b"small")]
    store.drop(list_row_names_of_entry(store.seal, digests[0], 3)[1])
    assert await there.link.fetch_content(digests) == {digests[1]}
    assert await there.link.fetch_content(digests[:1]) == frozenset()
    assert await there.link.fetch_content([Digest.of_content(b"nobody's")]) == frozenset()


async def test_a_damaged_entry_is_told_where_it_alone_is_asked_for(store: Store) -> None:
    here = await store.machine("here")
    there = await store.machine("there")
    stored = [
        (await here.cache.store_content(content, SHELL)).digest
        for content in (b"one", b"two", LARGE)
    ]
    await here.link.sync_content_now()
    store.spoil(entry_row_name(store.seal, stored[0]))
    assert await there.link.fetch_content(stored[:2]) == {stored[1]}
    with pytest.raises(CacheCorrupt):
        await there.link.fetch_content(stored[:1])
    swapped = list_row_names_of_entry(store.seal, stored[2], 3)
    for at, name in enumerate(swapped[:2]):
        store.drop(name)
        sealed = store.seal.encrypt_row(
            name, compress_content(LARGE[(1 - at) * CHUNK : (2 - at) * CHUNK])
        )
        store.shelf.rows[name] = sealed, 0.0, store.seal.space
    with pytest.raises(CacheCorrupt):
        await there.link.fetch_content(stored[2:])
    assert await there.cache.find_missing_content(stored) != frozenset()


async def test_a_check_sends_again_what_is_missing_or_damaged_and_counts_each(store: Store) -> None:
    here = await store.machine("here")
    stored = [
        (await here.cache.store_content(content, SHELL)).digest
        for content in (b"one", b"two", b"three", LARGE)
    ]
    await here.cache.store_content(b"of this machine", EntryOrigin(CHECKPOINT))
    await here.link.sync_content_now()
    assert await here.link.repair_shared_entries() == (4, 0, 0)
    whole = set(store.shelf.rows)
    store.drop(
        entry_row_name(store.seal, stored[0]), list_row_names_of_entry(store.seal, stored[3], 3)[2]
    )
    store.spoil(entry_row_name(store.seal, stored[1]))
    assert await here.link.repair_shared_entries() == (4, 2, 1)
    assert await here.link.repair_shared_entries() == (4, 0, 0)
    assert set(store.shelf.rows) == whole
    there = await store.machine("there")
    assert [len(await there.cache.read_content(one)) for one in stored] == [3, 3, 5, len(LARGE)]


async def test_what_waits_is_counted_without_what_stays_here(store: Store) -> None:
    here = await store.machine("here")
    status = await here.link.link_status()
    assert (status.waiting, status.waiting_bytes, status.contact, status.trouble) == (0, 0, 0.0, "")
    for content in (b"one", LARGE):
        await here.cache.store_content(content, SHELL)
    await here.cache.store_content(b"of this machine", EntryOrigin(CHECKPOINT))
    status = await here.link.link_status()
    assert (status.waiting, status.waiting_bytes) == (2, 3 + len(LARGE))
    await here.link.sync_content_now()
    status = await here.link.link_status()
    assert (status.waiting, status.waiting_bytes, status.away) == (0, 0, 0.0)
    assert status.contact > 0
    described, usage = await here.link.test_connection()
    assert (bool(described), usage.rows) == (True, len(store.shelf.rows))


async def test_while_the_store_is_away_that_is_told_and_since_when(store: Store) -> None:
    here = await store.machine("here")
    told: list[str] = []
    here.link.changed = lambda: told.append(here.link.trouble)
    await here.link.sync_content_now()
    assert told == []
    for content in (b"one", b"two"):
        await here.cache.store_content(content, SHELL)
    store.rows[-1].is_away = True
    for _ in range(2):
        with pytest.raises(SharedStoreUnreachable):
            await here.link.sync_content_now()
    assert len(told) == 2
    assert "not responding" in told[0]
    since = here.link.away
    assert (since > 0, here.link.waiting) == (True, 2)
    assert (await here.link.link_status()).trouble == told[0]
    store.rows[-1].is_away = False
    await here.link.sync_content_now()
    assert (here.link.away, here.link.trouble, here.link.waiting) == (0.0, "", 0)
    assert told[2:] == [""]
    await here.link.sync_content_now()
    assert len(told) == 3, "nothing changed"


async def test_only_who_wants_it_waits_for_the_store(store: Store) -> None:
    here = await store.machine("here")
    shared = await store.machine("shared", acknowledge=SHARED)
    for one, rows in ((here, 0), (shared, 1)):
        await one.cache.store_content(secrets.token_bytes(9), SHELL)
        await one.link.wait_until_acknowledged()
        assert len(store.shelf.rows) == rows


async def test_marks_of_another_workspace_say_nothing(store: Store) -> None:
    here = await store.machine("here")
    transfer = await here.link._ensure_transfer()
    name = entry_row_name(store.seal, Digest.of_content(b"gone"))
    sealed = store.seal.encrypt_row(name, Digest.of_content(b"gone").raw)
    short = store.seal.encrypt_row(name, b"too short")
    tombs = [
        Tombstone(name, sealed),
        Tombstone(name, b""),
        Tombstone(b"x" * 32, sealed),
        Tombstone(name, short),
    ]
    assert list(transfer.entries_of_tombstones(tombs)) == [Digest.of_content(b"gone")]


async def test_what_another_machine_forgot_is_forgotten_here_and_not_told_again(
    store: Store,
) -> None:
    here = await store.machine("here")
    there = await store.machine("there")
    digest = (await here.cache.store_content(LARGE, SHELL)).digest
    await here.link.sync_content_now()
    assert await there.cache.read_content(digest) == LARGE
    await here.link.save_entries_to_forget([digest])
    assert (await here.link.link_status()).burying == 1
    left, copies = await here.link.forget_saved_entries_in_store()
    assert left == ()
    assert isinstance(copies, tuple)
    assert (await here.link.link_status()).burying == 0
    assert store.shelf.rows == {}
    assert not there.link.was_forgotten(digest)
    await there.link.learn_what_others_forgot()
    assert there.link.was_forgotten(digest)
    assert there.link._has_new_work.is_set(), "it is forgotten here soon"
    await there.link.save_entries_to_forget([digest])
    assert (await there.link.link_status()).burying == 0


async def test_what_could_not_be_forgotten_there_yet_is_told(store: Store) -> None:
    here = await store.machine("here")
    digest = (await here.cache.store_content(b"secret", SHELL)).digest
    await here.link.sync_content_now()
    assert await here.link.forget_saved_entries_in_store() == ((), ())
    await here.link.save_entries_to_forget([digest])
    store.rows[-1].is_away = True
    (waits,), none = await here.link.forget_saved_entries_in_store()
    assert "Not yet forgotten in the shared store" in waits
    assert none == ()
    store.rows[-1].is_away = False
    assert (await here.link.forget_saved_entries_in_store())[0] == ()
    assert store.shelf.rows == {}


def test_names_of_rows_are_as_they_always_were() -> None:
    """Every machine must find what another version of the program has put there."""
    names = list_row_names_of_entry(RowCipher(bytes(range(32))), Digest.of_content(b"x"), 2)
    assert [name.hex() for name in names] == [
        "e2923914fff691ad7f26de2adb697c1ea306e81ca3c0ddbfa2d501ed02694b6a",
        "fd2aea773e95345278c63927d77401966b18a854a2b375432d2d337ecd42c714",
        "22a57dee7e0ae8b1146673093e33b55b63b229836b4c4380c19b7dde90955220",
    ]


@pytest.mark.parametrize("content", [b"small", LARGE])
async def test_what_was_never_fetched_is_forgotten_there_with_all_its_parts(
    store: Store, content: bytes
) -> None:
    here = await store.machine("here")
    there = await store.machine("there")
    digest = (await here.cache.store_content(content, SHELL)).digest
    await here.link.sync_content_now()
    await there.link.save_entries_to_forget([digest, Digest.of_content(b"nobody's")])
    assert await there.link.forget_saved_entries_in_store() == ((), ())
    assert store.shelf.rows == {}
    sealed = [tomb.sealed_digest for _, tomb in store.shelf.tombs]
    assert (len(sealed), sealed.count(b"")) == ((5, 3) if content is LARGE else (2, 0))
    await here.link.learn_what_others_forgot()
    assert here.link.was_forgotten(digest)
