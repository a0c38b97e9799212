"""Content shared by machines, over every engine: sent, fetched, checked, forgotten, collected."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest

from helix_desktop.engine.facts import PartRef, Stored, Text, ToolReturned, UserSaid
from helix_desktop.engine.messages import Block, ContextKind, Role, View
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import (
    ActionRefused,
    CacheCorrupt,
    NotFound,
    SharedStoreUnreachable,
    StoreFull,
)
from helix_desktop.store.cache_folder import CHECKPOINT
from helix_desktop.store.cache_records import CHUNK, RAW, key_of_chunk
from helix_desktop.store.shared import (
    content_transfer,
    link_progress,
    row_encryption,
    shared_store_link,
)
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.shared.row_store import ROW_KEY_BYTES, RowUsage, Tombstone
from helix_desktop.store.shared.shared_store_link import LOCAL, SHARED, LinkStatus
from tests.peers import postgres
from tests.store.shared.conftest import Another
from tests.store.shared.homes import Machine, machine
from tests.store.shared.memory_rows import MemoryRowStore, MemoryServer

SHELL = EntryOrigin("shell", "ls -l /home/me")


@pytest.fixture
async def two(
    tmp_path: Path, another: Another, seal: RowCipher
) -> AsyncIterator[tuple[Machine, Machine]]:
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(machine(tmp_path / "here", another, seal))
        there = await stack.enter_async_context(machine(tmp_path / "there", another, seal))
        yield here, there


async def test_before_anything_is_put_nothing_waits(two: tuple[Machine, Machine]) -> None:
    assert [one.link.waiting for one in two] == [0, 0]


async def test_what_one_machine_puts_the_other_gets(two: tuple[Machine, Machine]) -> None:
    here, there = two
    contents = [
        b"",
        b"small",
        secrets.token_bytes(CHUNK),
        secrets.token_bytes(2 * CHUNK + 17),
        b"a" * (3 * CHUNK),
    ]
    stored = [await here.cache.store_content(content, SHELL) for content in contents]
    await here.link.sync_content_now()
    assert [await there.cache.read_content(one.digest) for one in stored] == contents
    entry_there = await there.cache.describe_entry(stored[3].digest)
    assert entry_there.about == SHELL
    assert entry_there.time == (await here.cache.describe_entry(stored[3].digest)).time


async def test_parts_and_many_at_once_are_fetched_too(two: tuple[Machine, Machine]) -> None:
    here, there = two
    stored = [await here.cache.store_content(b"line\n" * number, SHELL) for number in range(1, 30)]
    large = await here.cache.store_content(secrets.token_bytes(CHUNK + 5), SHELL)
    await here.link.sync_content_now()
    assert await there.cache.read_range(stored[9].digest, 5, 9) == b"line\nline"
    digests = [one.digest for one in stored]
    digests += [large.digest, Digest.of_content(b"nobody has it")]
    found = await there.cache.read_contents(digests)
    assert len(found) == 30
    pieces = [piece async for piece in there.cache.stream_content(large.digest)]
    assert b"".join(pieces) == await here.cache.read_content(large.digest)


async def test_what_nobody_has_is_not_there(two: tuple[Machine, Machine]) -> None:
    _, there = two
    with pytest.raises(NotFound, match="There is no entry"):
        await there.cache.read_content(Digest.of_content(b"nobody has it"))


async def test_an_entry_that_a_fact_names_is_found_by_the_start_of_its_hash(
    two: tuple[Machine, Machine],
) -> None:
    here, there = two
    stored = await here.cache.store_content(b"named by a fact", SHELL)
    await here.link.sync_content_now()
    short = stored.digest.hex[:10]
    with pytest.raises(NotFound):
        await there.cache.resolve_prefix(short)
    await there.workspace.journal.append_to_journal("c", [ToolReturned("1", stored, 2)])
    await there.workspace.index.wait_until_indexed()
    assert await there.cache.resolve_prefix(short) == stored.digest
    other = await here.cache.store_content(b"named by nobody", SHELL)
    await here.link.sync_content_now()
    assert await there.cache.resolve_prefix(other.digest.hex) == other.digest


async def test_a_damaged_entry_comes_back_from_the_store(two: tuple[Machine, Machine]) -> None:
    here, _ = two
    stored = await here.cache.store_content(b"precious", SHELL)
    await here.link.sync_content_now()
    folder = here.workspace._stores.cache
    await here.workspace._stores.thread.run_work(
        folder.reader.quarantine_entry, stored.digest, "a flipped bit"
    )
    assert await here.cache.read_content(stored.digest) == b"precious"


async def test_a_part_that_is_found_damaged_while_it_is_streamed_comes_back_from_the_store(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    content = secrets.token_bytes(2 * CHUNK + 5)
    async with machine(tmp_path / "here", lambda: MemoryRowStore(shelf, seal.space), seal) as here:
        stored = await here.cache.store_content(content, SHELL)
        await here.link.sync_content_now()
        folder = here.workspace._stores.cache
        thread = here.workspace._stores.thread
        record = await thread.run_work(folder.reader.record_of_content, stored.digest)
        damaged_part = (key_of_chunk(record.blob, 1), bytes([RAW]) + b"flipped")
        await thread.run_work(folder.level.write_batch, [damaged_part])
        pieces = [piece async for piece in here.cache.stream_content(stored.digest)]
        assert b"".join(pieces) == content

        # Whoever asks whether an entry is damaged is told so.
        record = await thread.run_work(folder.reader.record_of_content, stored.digest)
        damaged_part = (key_of_chunk(record.blob, 1), bytes([RAW]) + b"flipped")
        await thread.run_work(folder.level.write_batch, [damaged_part])
        with pytest.raises(CacheCorrupt):
            await here.cache.verify_entry(stored.digest)


async def test_what_checkpoints_store_stays_on_its_machine(two: tuple[Machine, Machine]) -> None:
    here, there = two
    stored = await here.cache.store_content(b"a file of this machine", EntryOrigin(CHECKPOINT))
    await here.link.sync_content_now()
    with pytest.raises(NotFound):
        await there.cache.read_content(stored.digest)


async def test_a_flipped_byte_in_the_store_is_found_and_a_check_mends_it(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    async with machine(tmp_path / "here", lambda: MemoryRowStore(shelf, seal.space), seal) as here:
        small = await here.cache.store_content(b"small", SHELL)
        large = await here.cache.store_content(secrets.token_bytes(2 * CHUNK), SHELL)
        await here.link.sync_content_now()
        for name, (sealed, time, space) in shelf.rows.items():
            shelf.rows[name] = (sealed[:-1] + bytes([sealed[-1] ^ 1]), time, space)
        async with machine(
            tmp_path / "there", lambda: MemoryRowStore(shelf, seal.space), seal
        ) as there:
            for digest in (small.digest, large.digest):
                with pytest.raises(CacheCorrupt):
                    await there.cache.read_content(digest)
            assert await there.cache.read_contents([small.digest, large.digest]) == {}
            assert await here.link.repair_shared_entries() == (2, 0, 2)
            assert await here.link.repair_shared_entries() == (2, 0, 0)
            assert await there.cache.read_content(small.digest) == b"small"
            assert len(await there.cache.read_content(large.digest)) == 2 * CHUNK


async def test_what_was_forgotten_here_is_forgotten_there_and_cannot_come_back(
    two: tuple[Machine, Machine],
) -> None:
    here, there = two
    secret = b"the secret " * 10
    large = secrets.token_bytes(CHUNK + 100)
    stored = [await here.cache.store_content(content, SHELL) for content in (secret, large)]
    await here.link.sync_content_now()
    for one in stored:
        await there.cache.read_content(one.digest)
    fact = ToolReturned("1", stored[0], 2, head=secret.decode())
    await there.workspace.journal.append_to_journal("c", [UserSaid((Text("show it", 2),)), fact])
    purged = await here.workspace.forget_content(entries=[one.digest for one in stored])
    assert set(purged.entries) == {one.digest for one in stored}
    assert purged.elsewhere == ()
    await there.link.sync_content_now()
    for each in (here, there):
        for one in stored:
            with pytest.raises(NotFound, match="permanently removed"):
                await each.cache.read_content(one.digest)
    facts = await there.workspace.journal.read_facts("c")
    assert isinstance(facts[1].fact, ToolReturned)
    assert facts[1].fact.head == ""
    await there.cache.store_content(secret, SHELL)
    await there.link.sync_content_now()
    rows = await (await there.link.ensure_connected()).remote.fetch_in_batches(
        [
            content_transfer.entry_row_name(
                (await there.link.ensure_connected()).seal, stored[0].digest
            )
        ]
    )
    assert rows == {}
    await there.link.sync_content_now()
    assert (
        await there.cache.read_content(stored[0].digest) == secret
    )  # put again by hand: it stays on that machine


async def test_after_the_store_was_restored_to_an_earlier_state_what_is_forgotten_is_heard_of(
    tmp_path: Path, server: postgres.Server
) -> None:
    seal = RowCipher(row_encryption.new_workspace_key())
    homes = [
        machine(tmp_path / name, lambda: PostgresRowStore(server.url, seal.space), seal)
        for name in "ab"
    ]
    async with homes[0] as here, homes[1] as there:
        stored = [
            await here.cache.store_content(b"secret %d" % number * 10, SHELL) for number in range(2)
        ]
        await here.link.sync_content_now()
        for one in stored:
            await there.cache.read_content(one.digest)
        with psycopg.connect(server.url, autocommit=True) as connection:
            (before,) = connection.execute(
                "SELECT nextval('helix.forgotten_mark_seq')"
            ).fetchone() or (0,)
            connection.execute("SELECT setval('helix.forgotten_mark_seq', %s)", [before + 5_000])
            await here.workspace.forget_content(entries=[stored[0].digest])
            await there.link.sync_content_now()
            connection.execute("DELETE FROM helix.forgotten WHERE space = %s", [seal.space])
            connection.execute("SELECT setval('helix.forgotten_mark_seq', %s)", [before])
            await here.workspace.forget_content(entries=[stored[1].digest])
            connection.execute("SELECT setval('helix.forgotten_mark_seq', %s)", [before + 5_000])
        await there.link.sync_content_now()
        with pytest.raises(NotFound, match="permanently removed"):
            await there.cache.read_content(stored[1].digest)


async def test_a_description_that_held_the_text_is_sent_again_without_it(
    two: tuple[Machine, Machine],
) -> None:
    here, there = two
    for content in (b"200 OK", secrets.token_bytes(CHUNK + 100)):
        stored = await here.cache.store_content(
            content, EntryOrigin("shell", "curl -H 'token: swordfish' localhost")
        )
        await here.link.sync_content_now()
        await here.workspace.forget_content(text="swordfish")
        assert await there.cache.read_content(stored.digest) == content
        described = await there.cache.describe_entry(stored.digest)
        assert described.about.source == "curl -H 'token: [forgotten]' localhost"
    assert (await here.link.link_status()).burying == 0


async def test_what_was_forgotten_while_the_store_was_away_is_forgotten_when_it_is_back(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    engines: list[MemoryRowStore] = []

    def engine() -> MemoryRowStore:
        engines.append(MemoryRowStore(shelf, seal.space))
        return engines[-1]

    async with machine(tmp_path / "here", engine, seal) as here:
        stored = await here.cache.store_content(b"the secret", SHELL)
        await here.link.sync_content_now()
        engines[0].is_away = True
        purged = await here.workspace.forget_content(entries=[stored.digest])
        assert "Not yet forgotten in the shared store" in purged.elsewhere[0]
        assert (await here.link.link_status()).burying == 1
        assert shelf.rows
    async with machine(
        tmp_path / "here", engine, seal
    ) as here:  # also after the program was closed
        await here.link.sync_content_now()
        assert not shelf.rows
        assert (await here.link.link_status()).burying == 0


async def test_while_the_store_is_away_work_goes_on_and_then_it_is_caught_up_in_order(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    engine = MemoryRowStore(shelf, seal.space)
    engine.is_away = True
    async with machine(tmp_path / "here", lambda: engine, seal) as here:
        stored = [await here.cache.store_content(b"%d" % number, SHELL) for number in range(450)]
        with pytest.raises(SharedStoreUnreachable):
            await here.link.sync_content_now()
        status = await here.link.link_status()
        assert (status.waiting, status.waiting_bytes) == (450, sum(one.size for one in stored))
        assert status.away
        assert "is not responding" in status.trouble
        assert await here.cache.read_content(stored[0].digest) == b"0"
        elsewhere = Stored(Digest.of_content(b"perhaps there"), 13)
        with pytest.raises(NotFound, match="not on this computer"):
            await here.cache.read_content(elsewhere.digest)
        view = View((Block(ContextKind.OUTPUT, Role.USER, PartRef(1), elsewhere, 1),))
        shown = await ViewContents(here.cache).read_view_contents(view)  # a turn goes on without it
        assert "not on this computer" in str(shown[elsewhere])
        engine.is_away = False
        await here.link.sync_content_now()
        assert list(shelf.rows) == [
            content_transfer.entry_row_name(seal, one.digest) for one in stored
        ]
        assert (await here.link.link_status()).waiting == 0


async def test_what_waits_lasts_through_a_crash(tmp_path: Path, seal: RowCipher) -> None:
    shelf = MemoryServer()
    engine = MemoryRowStore(shelf, seal.space)
    engine.is_away = True
    async with machine(tmp_path / "here", lambda: engine, seal) as here:
        stored = await here.cache.store_content(b"waits", SHELL)
    (here.workspace.folder / link_progress.PROGRESS_FILE).unlink(
        missing_ok=True
    )  # as if it had never been written
    engine.is_away = False
    async with machine(tmp_path / "here", lambda: engine, seal, begin=True) as here:
        while (await here.link.link_status()).waiting:
            await asyncio.sleep(0.01)
        assert content_transfer.entry_row_name(seal, stored.digest) in shelf.rows


async def test_with_the_setting_shared_a_put_returns_when_the_store_has_it(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    engine = MemoryRowStore(shelf, seal.space)
    async with machine(tmp_path / "here", lambda: engine, seal, acknowledge=SHARED) as here:
        stored = await asyncio.gather(
            *(here.cache.store_content(b"%d" % number, SHELL) for number in range(40))
        )
        assert {content_transfer.entry_row_name(seal, one.digest) for one in stored} == set(
            shelf.rows
        )
        engine.is_away = True
        with pytest.raises(SharedStoreUnreachable):
            await here.cache.store_content(b"cannot be acknowledged", SHELL)
        assert await here.cache.read_content(Digest.of_content(b"cannot be acknowledged"))


async def test_what_a_standby_that_took_over_lacks_is_sent_again(
    tmp_path: Path, seal: RowCipher
) -> None:
    shelf = MemoryServer()
    async with machine(tmp_path / "here", lambda: MemoryRowStore(shelf, b"space"), seal) as here:
        stored = await here.cache.store_content(b"confirmed last", SHELL)
        await here.link.sync_content_now()
        shelf.rows.clear()
        await here.link.send_waiting_content(resend_count=1)
        async with machine(
            tmp_path / "there", lambda: MemoryRowStore(shelf, b"space"), seal
        ) as there:
            assert await there.cache.read_content(stored.digest) == b"confirmed last"


async def test_a_full_store_is_a_sentence_and_work_goes_on(tmp_path: Path, seal: RowCipher) -> None:
    shelf = MemoryServer(most_bytes=3000)
    async with machine(tmp_path / "here", lambda: MemoryRowStore(shelf, seal.space), seal) as here:
        await here.cache.store_content(b"fits", SHELL)
        await here.link.sync_content_now()
        await here.cache.store_content(secrets.token_bytes(9000), SHELL)
        with pytest.raises(StoreFull, match="is full"):
            await here.link.sync_content_now()
        assert "Free up space in the shared store" in (await here.link.link_status()).trouble
        shelf.most_bytes = 0
        await here.link.sync_content_now()


async def test_rows_that_no_machine_uses_are_collected(tmp_path: Path, seal: RowCipher) -> None:
    shelf = MemoryServer()

    def engine() -> MemoryRowStore:
        return MemoryRowStore(shelf, seal.space)

    async with (
        machine(tmp_path / "here", engine, seal) as here,
        machine(tmp_path / "there", engine, seal) as there,
    ):
        mine, theirs, nobodys = [
            await each.cache.store_content(content, SHELL)
            for each, content in (
                (here, b"mine"),
                (there, secrets.token_bytes(CHUNK + 3)),
                (here, b"nobody's"),
            )
        ]
        for each, one in ((here, mine), (there, theirs)):
            await each.workspace.journal.append_to_journal("c", [ToolReturned("1", one, 2)])
            await each.link.sync_content_now()
        await there.link.announce_and_send_missing()
        assert await here.link.remove_unused_rows(grace=3600) == 0
        assert await here.link.remove_unused_rows(grace=-1) == 1
        assert content_transfer.entry_row_name(seal, nobodys.digest) not in shelf.rows
        assert len(shelf.rows) == 4
        await there.link.withdraw_used_rows()
        assert await here.link.remove_unused_rows(grace=-1) == 3
        await there.link.announce_and_send_missing()  # what it still uses comes back
        assert len(shelf.rows) == 4


async def test_rows_tell_no_text_and_no_size(tmp_path: Path, seal: RowCipher) -> None:
    shelf = MemoryServer()
    async with machine(tmp_path / "here", lambda: MemoryRowStore(shelf, seal.space), seal) as here:
        for number in range(60):
            await here.cache.store_content(
                b"confidential " * number, EntryOrigin("shell", "/home/me/confidential")
            )
        await here.link.sync_content_now()
        await here.link.announce_and_send_missing()
        sizes = {len(sealed) - ROW_KEY_BYTES for sealed, *_ in shelf.rows.values()}
        assert sizes <= {512, 1024}
        everything = b"".join(
            [*shelf.rows, *(sealed for sealed, *_ in shelf.rows.values()), *shelf.machines.values()]
        )
        assert b"confidential" not in everything
        assert b"shell" not in everything
        assert not any(
            Digest.of_content(b"confidential " * number).raw in everything for number in range(60)
        )


async def test_what_will_be_forgotten_is_on_the_disk_before_it_begins(
    two: tuple[Machine, Machine],
) -> None:
    here, _ = two
    small = await here.cache.store_content(b"small", SHELL)
    large = await here.cache.store_content(secrets.token_bytes(CHUNK + 5), SHELL)
    await here.link.save_entries_to_forget([])
    assert not link_progress.read_link_progress(here.workspace.folder).burying
    await here.link.save_entries_to_forget(
        [small.digest, large.digest], [Digest.of_content(b"b"), Digest.of_content(b"a")]
    )
    written = link_progress.read_link_progress(here.workspace.folder)
    assert dict(written.burying) == {small.digest.hex: 1, large.digest.hex: 2}
    assert list(written.renewing) == sorted(
        [Digest.of_content(b"a").hex, Digest.of_content(b"b").hex]
    )
    here.link._forgotten_by_others = frozenset(
        [Digest.of_content(b"theirs")]
    )  # another machine forgot it: it knows
    await here.link.save_entries_to_forget([Digest.of_content(b"theirs")])
    assert dict(link_progress.read_link_progress(here.workspace.folder).burying) == dict(
        written.burying
    )


async def test_the_start_of_a_hash_that_fits_two_entries_elsewhere_is_not_one_of_them(
    two: tuple[Machine, Machine],
) -> None:
    here, there = two
    first: dict[str, bytes] = {}
    for number in range(20_000):
        content = b"%d" % number
        short = Digest.of_content(content).hex[:4]
        if short in first:
            break
        first[short] = content
    stored = [await here.cache.store_content(each, SHELL) for each in (first[short], content)]
    await here.link.sync_content_now()
    await there.workspace.journal.append_to_journal(
        "c", [ToolReturned(str(one.digest), one, 2) for one in stored]
    )
    await there.workspace.index.wait_until_indexed()
    with pytest.raises(NotFound):
        await there.cache.resolve_prefix(short)
    assert await there.cache.resolve_prefix(stored[0].digest.hex[:12]) == stored[0].digest
    with pytest.raises(NotFound):
        await there.cache.resolve_prefix("0" * 12)


async def test_what_another_machine_forgot_counts_as_forgotten_as_soon_as_it_is_heard_of(
    two: tuple[Machine, Machine],
) -> None:
    here, there = two
    stored = [await here.cache.store_content(content, SHELL) for content in (b"the secret", b"cod")]
    await here.link.sync_content_now()
    for one in stored:
        await there.cache.read_content(one.digest)
    await here.workspace.forget_content(entries=[stored[0].digest])
    assert [there.link.was_forgotten(one.digest) for one in stored] == [False, False]
    await there.link.learn_what_others_forgot()
    assert [there.link.was_forgotten(one.digest) for one in stored] == [True, False]
    assert await there.cache.read_content(stored[0].digest) == b"the secret", (
        "it is forgotten with the next sync"
    )
    await there.link.sync_content_now()
    assert [there.link.was_forgotten(one.digest) for one in stored] == [True, False]
    with pytest.raises(NotFound):
        await there.cache.read_content(stored[0].digest)


async def test_who_shows_the_link_hears_when_the_store_goes_away_and_when_it_is_back(
    tmp_path: Path, seal: RowCipher
) -> None:
    engine = MemoryRowStore(MemoryServer(), seal.space)
    heard: list[bool] = []
    async with machine(tmp_path / "here", lambda: engine, seal) as here:
        here.link.changed = lambda: heard.append(bool(here.link.away))
        await here.link.sync_content_now()
        assert heard == [], "nothing changed"
        engine.is_away = True
        await here.cache.store_content(b"waits", SHELL)
        with pytest.raises(SharedStoreUnreachable):
            await here.link.sync_content_now()
        assert (heard, here.link.waiting) == ([True], 1)
        engine.is_away = False
        await here.link.sync_content_now()
        await here.link.sync_content_now()
        assert heard == [True, False]


# --- one machine and a store that does as the test wants


class Slow(MemoryRowStore):
    """`before`: called in the engine's thread before rows are fetched or forgotten."""

    before: Callable[[], object] = staticmethod(lambda: None)
    is_closed = False
    copies: Sequence[str] = ()
    page = 10_000
    marks: Sequence[int] = ()  # From which tombstones were asked for.

    def fetch_tombstones(self, after: int) -> tuple[Sequence[Tombstone], int]:
        self.marks = (*self.marks, after)
        return super().fetch_tombstones(after)

    def fetch_rows(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        self.before()
        return super().fetch_rows(names)

    def forget_rows(self, tombs: Sequence[Tombstone]) -> None:
        self.before()
        super().forget_rows(tombs)

    def list_old_rows(
        self, older: float, after: bytes = b"", limit: int = 10_000
    ) -> Sequence[bytes]:
        return super().list_old_rows(older, after, min(limit, self.page))

    def describe_remaining_copies(self) -> Sequence[str]:
        return self.copies

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def shelf() -> MemoryServer:
    return MemoryServer()


@pytest.fixture
def slow(shelf: MemoryServer, seal: RowCipher) -> Slow:
    return Slow(shelf, seal.space)


async def test_the_store_is_connected_to_once_and_again_only_if_that_failed(
    tmp_path: Path, slow: Slow, seal: RowCipher
) -> None:
    tried: list[int] = []

    def engine() -> MemoryRowStore:
        tried.append(len(tried))
        if len(tried) == 1:
            raise SharedStoreUnreachable("The shared store is not responding.")
        return slow

    async with machine(tmp_path, engine, seal) as here:
        with pytest.raises(SharedStoreUnreachable):
            await here.link.ensure_connected()
        connected = await asyncio.gather(*(here.link.ensure_connected() for _ in range(3)))
        one = connected[0]
        others = connected[1:]
        assert all(other is one for other in others)
        assert tried == [0, 1]
        assert await here.link.test_connection() == ("memory of this process", RowUsage(0, 0))
    assert slow.is_closed


async def test_what_was_sent_to_one_store_is_sent_to_another_one_from_the_start(
    tmp_path: Path,
) -> None:
    keys = [RowCipher(bytes([number]) * 32) for number in range(2)]
    stores = [("one://", keys[0]), ("two://", keys[0]), ("one://", keys[1]), ("one://", keys[1])]
    sent = []
    contents = [b"one", b"two"]
    for url, seal in stores:
        shelf = MemoryServer()
        async with machine(
            tmp_path,
            lambda: MemoryRowStore(shelf, seal.space),  # noqa: B023
            seal,
            url=url,
        ) as here:
            for content in contents:
                await here.cache.store_content(content, SHELL)
            await here.link.sync_content_now()
            assert here.link.sent >= 2
            assert here.link.url == url
            sent.append(len(shelf.rows))
        noted = link_progress.read_link_progress(here.workspace.folder)
        assert noted.sent == here.link.sent, "also after the program was closed"
    assert sent == [2, 2, 2, 0]


async def test_a_store_that_takes_too_long_is_a_sentence_and_the_content_waits(
    tmp_path: Path, slow: Slow, seal: RowCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    slow.before = go_on.wait
    async with machine(tmp_path, lambda: slow, seal) as here:
        await here.link.ensure_connected()
        monkeypatch.setattr(shared_store_link, "CALL_TIMEOUT_SECONDS", 0.01)
        with pytest.raises(
            SharedStoreUnreachable, match="The shared store is taking too long to respond"
        ) as late:
            await here.link.fetch_content([Digest.of_content(b"far away")])
        assert late.value.remedy == "Try again later."
        async with here.link._sending:  # Another sending goes on and on.
            await here.link.wait_until_acknowledged()
            here.link.acknowledge = SHARED
            with pytest.raises(SharedStoreUnreachable, match="did not confirm in time") as late:
                await here.link.wait_until_acknowledged()
        assert "stored on this computer and is waiting to be sent" in late.value.remedy
        go_on.set()


async def test_so_many_of_the_last_entries_are_sent_again(
    tmp_path: Path, shelf: MemoryServer, seal: RowCipher
) -> None:
    async with machine(tmp_path, lambda: MemoryRowStore(shelf, seal.space), seal) as here:
        for content in (b"one", b"two", b"three"):
            await here.cache.store_content(content, SHELL)
        await here.link.sync_content_now()
        for again, found in ((1, 1), (2, 2), (100, 3)):
            shelf.rows.clear()
            here.link.waiting = 5
            await here.link.send_waiting_content(resend_count=again)
            assert (len(shelf.rows), here.link.waiting) == (found, 0)
        shelf.rows.clear()
        await here.link.send_waiting_content()
        assert shelf.rows == {}, "what was sent is not sent again unasked"
        await here.cache.store_content(b"four", SHELL)
        assert await here.link.repair_shared_entries() == (4, 3, 0), "what waits is no damage"


async def test_after_the_store_was_reset_what_was_put_again_by_hand_stays(
    tmp_path: Path, shelf: MemoryServer, seal: RowCipher
) -> None:
    def engine() -> MemoryRowStore:
        return MemoryRowStore(shelf, seal.space)

    async with (
        machine(tmp_path / "here", engine, seal) as here,
        machine(tmp_path / "there", engine, seal) as there,
    ):
        stored = [await here.cache.store_content(content, SHELL) for content in (b"one", b"two")]
        await here.link.sync_content_now()
        for one in stored:
            await there.cache.read_content(one.digest)
            await here.workspace.forget_content(entries=[one.digest])
        await there.link.sync_content_now()
        assert len(shelf.tombs) == 2, "nobody tells of it again"
        await there.cache.store_content(b"one", SHELL)
        del shelf.tombs[1:]
        await there.link.sync_content_now()
        assert await there.cache.read_content(stored[0].digest) == b"one"
        assert there.link._progress.obeyed == 1


async def test_tombstones_are_asked_for_from_where_they_were_heard_of_and_all_of_a_store_that_was_reset(
    tmp_path: Path,
    slow: Slow,
    shelf: MemoryServer,
    seal: RowCipher,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(shared_store_link, "_SAVE_PROGRESS_SECONDS", -1.0)
    async with machine(tmp_path, lambda: slow, seal) as here:
        stored = [
            (await here.cache.store_content(b"secret %d" % number, SHELL)).digest
            for number in range(3)
        ]
        names = [content_transfer.entry_row_name(seal, one) for one in stored]
        tombs = [
            Tombstone(name, seal.encrypt_row(name, one.raw))
            for name, one in zip(names, stored, strict=True)
        ]
        shelf.tombs += [(seal.space, tomb) for tomb in tombs[:2]]
        with caplog.at_level("INFO"):
            await here.link.sync_forgotten_content()
        assert "2 entries that another machine forgot are forgotten here" in caplog.messages
        assert link_progress.read_link_progress(here.workspace.folder).obeyed == 2
        for _ in range(2):
            await here.link.sync_forgotten_content()
        assert list(slow.marks) == [0, 2, 2]
        shelf.tombs[:] = [(seal.space, tombs[2])]
        await here.link.sync_forgotten_content()
        assert list(slow.marks) == [0, 2, 2, 2, 0]
        assert all(here.link.was_forgotten(one) for one in stored)


async def test_what_is_forgotten_before_the_store_was_ever_reached_is_forgotten_there(
    tmp_path: Path, slow: Slow, shelf: MemoryServer, seal: RowCipher
) -> None:
    digest = Digest.of_content(b"the secret")
    name = content_transfer.entry_row_name(seal, digest)
    shelf.rows[name] = b"what others sent", 0.0, seal.space
    async with machine(tmp_path, lambda: slow, seal) as here:
        await here.link.save_entries_to_forget([digest])
        await here.link.ensure_connected()
        assert await here.link.forget_saved_entries_in_store() == ((), ())
        assert shelf.rows == {}


async def test_a_description_is_not_sent_before_it_is_changed_here(
    tmp_path: Path, shelf: MemoryServer, seal: RowCipher
) -> None:
    async with machine(tmp_path, lambda: MemoryRowStore(shelf, seal.space), seal) as here:
        stored = await here.cache.store_content(b"one", SHELL)
        await here.link.sync_content_now()
        name = content_transfer.entry_row_name(seal, stored.digest)
        before = shelf.rows[name]
        await here.link.save_entries_to_forget([], [stored.digest])
        await here.link.sync_forgotten_content()
        assert shelf.rows[name] == before
        noted = link_progress.read_link_progress(here.workspace.folder)
        assert list(noted.renewing) == [stored.digest.hex]
        assert await here.link.forget_saved_entries_in_store() == ((), ())
        assert shelf.rows[name] != before
        assert list(link_progress.read_link_progress(here.workspace.folder).renewing) == []


async def test_what_is_to_be_forgotten_meanwhile_is_forgotten_the_next_time(
    tmp_path: Path, slow: Slow, shelf: MemoryServer, seal: RowCipher
) -> None:
    async with machine(tmp_path, lambda: slow, seal) as here:
        stored = [
            (await here.cache.store_content(content, SHELL)).digest
            for content in (b"one", b"two", b"three")
        ]
        await here.link.sync_content_now()
        loop = asyncio.get_running_loop()

        def more() -> None:
            slow.before = lambda: None
            asyncio.run_coroutine_threadsafe(
                here.link.save_entries_to_forget(stored[1:2], stored[2:]), loop
            ).result()

        await here.link.save_entries_to_forget(stored[:1])
        slow.before = more
        slow.copies = ("Backups may hold ciphertext.",)
        assert await here.link.forget_saved_entries_in_store() == ((), slow.copies)
        assert len(shelf.rows) == 2
        noted = link_progress.read_link_progress(here.workspace.folder)
        assert (dict(noted.burying), list(noted.renewing)) == ({stored[1].hex: 1}, [stored[2].hex])
        assert (await here.link.link_status()).burying == 1
        await here.link.forget_saved_entries_in_store()
        assert list(shelf.rows) == [content_transfer.entry_row_name(seal, stored[2])]


async def test_what_is_to_be_forgotten_adds_up_while_the_store_is_away(
    tmp_path: Path, slow: Slow, seal: RowCipher
) -> None:
    async with machine(tmp_path, lambda: slow, seal) as here:
        stored = [
            (await here.cache.store_content(content, SHELL)).digest
            for content in (b"one", b"two", b"three")
        ]
        await here.link.sync_content_now()
        slow.is_away = True
        with pytest.raises(SharedStoreUnreachable):
            await here.link.sync_content_now()
        assert here.link.waiting == 0
        await here.link.save_entries_to_forget(stored[:1], stored[2:])
        await here.link.save_entries_to_forget(stored[1:2], stored[2:])
        noted = link_progress.read_link_progress(here.workspace.folder)
        assert set(noted.burying) == {one.hex for one in stored[:2]}
        assert list(noted.renewing) == [stored[2].hex]
        (waits,), copies = await here.link.forget_saved_entries_in_store()
        assert copies == ()
        assert waits == (
            "Not yet forgotten in the shared store: The shared store is not responding. It will be forgotten there as soon "
            "as the store answers. It can no longer be read from here."
        )
        status = await here.link.link_status()
        assert here.link.away > 0
        assert status == LinkStatus(
            "memory://", LOCAL, 0, 0, 2, status.contact, here.link.away, here.link.trouble
        )


async def test_how_far_it_sent_is_noted_at_once_and_then_now_and_then(
    tmp_path: Path, shelf: MemoryServer, seal: RowCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine(tmp_path, lambda: MemoryRowStore(shelf, seal.space), seal) as here:

        async def noted_after_sending(content: bytes) -> int:
            await here.cache.store_content(content, SHELL)
            await here.link.sync_content_now()
            return link_progress.read_link_progress(here.workspace.folder).sent

        monkeypatch.setattr(shared_store_link, "_SAVE_PROGRESS_SECONDS", 0.0)
        first = await noted_after_sending(b"one")
        assert first == here.link.sent > 0
        monkeypatch.setattr(shared_store_link, "_SAVE_PROGRESS_SECONDS", 1e9)
        assert await noted_after_sending(b"two") == first < here.link.sent
        monkeypatch.setattr(shared_store_link, "_SAVE_PROGRESS_SECONDS", -1.0)
        assert await noted_after_sending(b"three") == here.link.sent


async def test_a_machine_says_which_rows_it_uses_and_those_of_all_stay(
    tmp_path: Path, slow: Slow, shelf: MemoryServer, seal: RowCipher
) -> None:
    async def others() -> list[bytes]:
        return [b"row of the conversations"]

    slow.page = 1
    async with machine(tmp_path, lambda: slow, seal) as here:
        stored = [await here.cache.store_content(b"used %d" % number, SHELL) for number in range(3)]
        nobodys = [
            await here.cache.store_content(b"nobody's %d" % number, SHELL) for number in range(4)
        ]
        await here.workspace.journal.append_to_journal(
            "c", [ToolReturned(str(one.digest), one, 2) for one in stored]
        )
        here.link.list_other_used_rows = others
        names = [content_transfer.entry_row_name(seal, one.digest) for one in stored]
        own = frozenset([name[:12] for name in names] + [b"row of the c"])
        assert await here.link.announce_used_rows() == own
        (((space, made), sealed),) = shelf.machines.items()
        assert (space, made.hex()) == (seal.space, here.link._progress.machine)
        assert seal.decrypt_row(seal.keyed_row_name("uses", made), sealed) == b"".join(sorted(own))
        assert shelf.rows == {}
        assert here.link._progress.published == 0.0
        assert await here.link.announce_and_send_missing() == own
        assert set(shelf.rows) == set(names)
        noted = link_progress.read_link_progress(here.workspace.folder)
        assert noted.published == here.link._progress.published > 0
        await here.link.sync_content_now()
        assert len(shelf.rows) == 7
        assert await here.link.remove_unused_rows(grace=-1) == len(nobodys)
        assert set(shelf.rows) == set(names)
        await here.link.withdraw_used_rows()
        assert shelf.machines == {}


# --- the link that works by itself


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_store_link, "LOOK_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(shared_store_link, "SLOWEST_RETRY_SECONDS", 0.01)


async def until(found: Callable[[], object]) -> None:
    while not found():
        await asyncio.sleep(0.01)


@pytest.mark.usefixtures("_often")
async def test_by_itself_it_sends_hears_of_what_was_forgotten_and_says_once_a_day_what_it_uses(
    tmp_path: Path, shelf: MemoryServer, seal: RowCipher
) -> None:
    def engine() -> MemoryRowStore:
        return MemoryRowStore(shelf, seal.space)

    async with (
        machine(tmp_path / "here", engine, seal) as here,
        machine(tmp_path / "there", engine, seal, begin=True) as there,
    ):
        stored = await here.cache.store_content(b"the secret", SHELL)
        await here.link.sync_content_now()
        assert await there.cache.read_content(stored.digest) == b"the secret"
        await until(lambda: shelf.machines)
        assert shelf.machines.keys() == {(seal.space, bytes.fromhex(there.link._progress.machine))}
        shelf.machines.clear()
        await here.workspace.forget_content(entries=[stored.digest])
        await until(lambda: there.link.was_forgotten(stored.digest))
        await there.cache.store_content(b"more", SHELL)
        await until(lambda: len(shelf.rows) == 1)
        contact = there.link._progress.contact
        await until(lambda: there.link._progress.contact > contact)
        assert shelf.machines == {}, "it was said today"


@pytest.mark.usefixtures("_often")
async def test_by_itself_it_goes_on_when_the_store_is_back(
    tmp_path: Path, slow: Slow, shelf: MemoryServer, seal: RowCipher
) -> None:
    slow.is_away = True
    told: list[tuple[bool, str]] = []
    async with machine(tmp_path, lambda: slow, seal, begin=True) as here:
        here.link.changed = lambda: told.append((bool(here.link.away), here.link.trouble))
        await here.cache.store_content(b"waits", SHELL)
        await until(lambda: len(told) > 2)
        since = here.link.away
        slow.is_away = False
        await until(lambda: shelf.rows and not here.link.away)
        assert here.link.trouble == ""
    assert asyncio.all_tasks() == {asyncio.current_task()}, "it ends with its workspace"
    away = told[:-1]
    back = told[-1]
    assert back == (False, "")
    assert {each[0] for each in away} == {True}
    assert since > 0


@pytest.mark.usefixtures("_often")
async def test_while_a_session_works_what_others_forgot_waits_and_nothing_is_in_the_way(
    tmp_path: Path, shelf: MemoryServer, seal: RowCipher
) -> None:
    def engine() -> MemoryRowStore:
        return MemoryRowStore(shelf, seal.space)

    refused: list[int] = []
    async with (
        machine(tmp_path / "here", engine, seal) as here,
        machine(tmp_path / "there", engine, seal) as there,
    ):
        stored = await here.cache.store_content(b"the secret", SHELL)
        await here.link.sync_content_now()
        await there.cache.read_content(stored.digest)
        forget = there.link.forget_here

        async def forget_later(digests: Collection[Digest]) -> object:
            refused.append(len(digests))
            if len(refused) == 1:
                raise ActionRefused("A session is working.")
            return await forget(digests)

        there.link.forget_here = forget_later
        await here.workspace.forget_content(entries=[stored.digest])
        there.link.start_syncing()
        await until(lambda: refused)
        assert (there.link.away, there.link.trouble) == (0.0, "")
        there.link.notify_new_content()
        await until(lambda: there.workspace._stores.cache.reader.was_forgotten(stored.digest))
        assert refused == [1, 1]


async def test_by_itself_it_looks_when_there_is_something_new_and_else_rests(
    tmp_path: Path,
    slow: Slow,
    shelf: MemoryServer,
    seal: RowCipher,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_store_link, "LOOK_EVERY_SECONDS", 1e6)
    async with machine(tmp_path, lambda: slow, seal, begin=True) as here:
        await until(lambda: here.link._progress.published)
        await here.cache.store_content(b"new", SHELL)
        await until(lambda: shelf.rows)
        for _ in range(20):
            await here.link.link_status()  # Time for many looks.
        assert len(slow.marks) < 10
