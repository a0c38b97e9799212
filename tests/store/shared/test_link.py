"""Content shared by machines, over every engine: sent, fetched, checked, forgotten, collected."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from helix_desktop.engine.blocks import Block, Kind, Role, View
from helix_desktop.engine.contents import Contents
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import PartRef, Stored, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import About
from helix_desktop.errors import Away, CacheCorrupt, NotThere, StoreFull
from helix_desktop.store.cache import CHECKPOINT
from helix_desktop.store.records import CHUNK
from helix_desktop.store.shared import entry, noted
from helix_desktop.store.shared.engine import KEY
from helix_desktop.store.shared.link import SHARED
from helix_desktop.store.shared.memory import MemoryEngine, Shelf
from helix_desktop.store.shared.sealing import Seal
from tests.store.shared.conftest import Another
from tests.store.shared.homes import Machine, machine

SHELL = About("shell", "ls -l /home/me")


@pytest.fixture
async def two(tmp_path: Path, another: Another, seal: Seal) -> AsyncIterator[tuple[Machine, Machine]]:
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(machine(tmp_path / "here", another, seal))
        there = await stack.enter_async_context(machine(tmp_path / "there", another, seal))
        yield here, there


async def test_what_one_machine_puts_the_other_gets(two: tuple[Machine, Machine]) -> None:
    here, there = two
    contents = [b"", b"small", secrets.token_bytes(CHUNK), secrets.token_bytes(2 * CHUNK + 17), b"a" * (3 * CHUNK)]
    stored = [await here.cache.put(content, SHELL) for content in contents]
    await here.link.sync()
    assert [await there.cache.get(one.digest) for one in stored] == contents
    entry_there = await there.cache.about(stored[3].digest)
    assert entry_there.about == SHELL
    assert entry_there.time == (await here.cache.about(stored[3].digest)).time


async def test_parts_and_many_at_once_are_fetched_too(two: tuple[Machine, Machine]) -> None:
    here, there = two
    stored = [await here.cache.put(b"line\n" * number, SHELL) for number in range(1, 30)]
    large = await here.cache.put(secrets.token_bytes(CHUNK + 5), SHELL)
    await here.link.sync()
    assert await there.cache.read(stored[9].digest, 5, 9) == b"line\nline"
    found = await there.cache.contents([*(one.digest for one in stored), large.digest, Digest.of(b"nobody has it")])
    assert len(found) == 30
    pieces = [piece async for piece in there.cache.stream(large.digest)]
    assert b"".join(pieces) == await here.cache.get(large.digest)


async def test_what_nobody_has_is_not_there(two: tuple[Machine, Machine]) -> None:
    _, there = two
    with pytest.raises(NotThere, match="There is no entry"):
        await there.cache.get(Digest.of(b"nobody has it"))


async def test_an_entry_that_a_fact_names_is_found_by_the_start_of_its_hash(two: tuple[Machine, Machine]) -> None:
    here, there = two
    stored = await here.cache.put(b"named by a fact", SHELL)
    await here.link.sync()
    short = stored.digest.hex[:10]
    with pytest.raises(NotThere):
        await there.cache.resolve(short)
    await there.workspace.journal.append("c", [ToolReturned("1", stored, 2)])
    await there.workspace.index.caught_up()
    assert await there.cache.resolve(short) == stored.digest
    other = await here.cache.put(b"named by nobody", SHELL)
    await here.link.sync()
    assert await there.cache.resolve(other.digest.hex) == other.digest


async def test_a_damaged_entry_comes_back_from_the_store(two: tuple[Machine, Machine]) -> None:
    here, _ = two
    stored = await here.cache.put(b"precious", SHELL)
    await here.link.sync()
    folder = here.workspace._stores.cache
    await here.workspace._stores.thread.run(folder.quarantine, stored.digest, "a flipped bit")
    assert await here.cache.get(stored.digest) == b"precious"


async def test_what_checkpoints_store_stays_on_its_machine(two: tuple[Machine, Machine]) -> None:
    here, there = two
    stored = await here.cache.put(b"a file of this machine", About(CHECKPOINT))
    await here.link.sync()
    with pytest.raises(NotThere):
        await there.cache.get(stored.digest)


async def test_a_flipped_byte_in_the_store_is_found_and_a_check_mends_it(tmp_path: Path, seal: Seal) -> None:
    shelf = Shelf()
    async with machine(tmp_path / "here", lambda: MemoryEngine(shelf, seal.space), seal) as here:
        small = await here.cache.put(b"small", SHELL)
        large = await here.cache.put(secrets.token_bytes(2 * CHUNK), SHELL)
        await here.link.sync()
        for name, (sealed, time, space) in shelf.rows.items():
            shelf.rows[name] = (sealed[:-1] + bytes([sealed[-1] ^ 1]), time, space)
        async with machine(tmp_path / "there", lambda: MemoryEngine(shelf, seal.space), seal) as there:
            for digest in (small.digest, large.digest):
                with pytest.raises(CacheCorrupt):
                    await there.cache.get(digest)
            assert await there.cache.contents([small.digest, large.digest]) == {}
            assert await here.link.check() == (2, 0, 2)
            assert await here.link.check() == (2, 0, 0)
            assert await there.cache.get(small.digest) == b"small"
            assert len(await there.cache.get(large.digest)) == 2 * CHUNK


async def test_what_was_forgotten_here_is_forgotten_there_and_cannot_come_back(two: tuple[Machine, Machine]) -> None:
    here, there = two
    secret, large = b"the secret " * 10, secrets.token_bytes(CHUNK + 100)
    stored = [await here.cache.put(content, SHELL) for content in (secret, large)]
    await here.link.sync()
    for one in stored:
        await there.cache.get(one.digest)
    fact = ToolReturned("1", stored[0], 2, head=secret.decode())
    await there.workspace.journal.append("c", [UserSaid((Text("show it", 2),)), fact])
    purged = await here.workspace.forget(entries=[one.digest for one in stored])
    assert set(purged.entries) == {one.digest for one in stored}
    assert purged.elsewhere == ()
    await there.link.sync()
    for each in (here, there):
        for one in stored:
            with pytest.raises(NotThere, match="forgotten"):
                await each.cache.get(one.digest)
    facts = await there.workspace.journal.read("c")
    assert isinstance(facts[1].fact, ToolReturned)
    assert facts[1].fact.head == ""
    await there.cache.put(secret, SHELL)
    await there.link.sync()
    rows = await (await there.link.ready()).remote.get([entry.name((await there.link.ready()).seal, stored[0].digest)])
    assert rows == {}
    await there.link.sync()
    assert await there.cache.get(stored[0].digest) == secret  # put again by hand: it stays on that machine


async def test_a_description_that_held_the_text_is_sent_again_without_it(two: tuple[Machine, Machine]) -> None:
    here, there = two
    for content in (b"200 OK", secrets.token_bytes(CHUNK + 100)):
        stored = await here.cache.put(content, About("shell", "curl -H 'token: swordfish' localhost"))
        await here.link.sync()
        await here.workspace.forget(text="swordfish")
        assert await there.cache.get(stored.digest) == content
        described = await there.cache.about(stored.digest)
        assert described.about.source == "curl -H 'token: [forgotten]' localhost"
    assert (await here.link.status()).burying == 0


async def test_what_was_forgotten_while_the_store_was_away_is_forgotten_when_it_is_back(
    tmp_path: Path, seal: Seal
) -> None:
    shelf, engines = Shelf(), list[MemoryEngine]()

    def engine() -> MemoryEngine:
        engines.append(MemoryEngine(shelf, seal.space))
        return engines[-1]

    async with machine(tmp_path / "here", engine, seal) as here:
        stored = await here.cache.put(b"the secret", SHELL)
        await here.link.sync()
        engines[0].away = True
        purged = await here.workspace.forget(entries=[stored.digest])
        assert "Not yet forgotten in the shared store" in purged.elsewhere[0]
        assert (await here.link.status()).burying == 1
        assert shelf.rows
    async with machine(tmp_path / "here", engine, seal) as here:  # also after the program was closed
        await here.link.sync()
        assert not shelf.rows
        assert (await here.link.status()).burying == 0


async def test_while_the_store_is_away_work_goes_on_and_then_it_is_caught_up_in_order(
    tmp_path: Path, seal: Seal
) -> None:
    shelf = Shelf()
    engine = MemoryEngine(shelf, seal.space)
    engine.away = True
    async with machine(tmp_path / "here", lambda: engine, seal) as here:
        stored = [await here.cache.put(b"%d" % number, SHELL) for number in range(450)]
        with pytest.raises(Away):
            await here.link.sync()
        status = await here.link.status()
        assert (status.waiting, status.waiting_bytes) == (450, sum(one.size for one in stored))
        assert status.away
        assert "is not responding" in status.trouble
        assert await here.cache.get(stored[0].digest) == b"0"
        elsewhere = Stored(Digest.of(b"perhaps there"), 13)
        with pytest.raises(NotThere, match="not on this computer"):
            await here.cache.get(elsewhere.digest)
        view = View((Block(Kind.OUTPUT, Role.USER, PartRef(1), elsewhere, 1),))
        shown = await Contents(here.cache).of(view)  # a turn goes on without it
        assert "not on this computer" in str(shown[elsewhere])
        engine.away = False
        await here.link.sync()
        assert list(shelf.rows) == [entry.name(seal, one.digest) for one in stored]
        assert (await here.link.status()).waiting == 0


async def test_what_waits_lasts_through_a_crash(tmp_path: Path, seal: Seal) -> None:
    shelf = Shelf()
    engine = MemoryEngine(shelf, seal.space)
    engine.away = True
    async with machine(tmp_path / "here", lambda: engine, seal) as here:
        stored = await here.cache.put(b"waits", SHELL)
    (here.workspace.folder / noted.NAME).unlink(missing_ok=True)  # as if it had never been written
    engine.away = False
    async with machine(tmp_path / "here", lambda: engine, seal, begin=True) as here:
        while (await here.link.status()).waiting:
            await asyncio.sleep(0.01)
        assert entry.name(seal, stored.digest) in shelf.rows


async def test_with_the_setting_shared_a_put_returns_when_the_store_has_it(tmp_path: Path, seal: Seal) -> None:
    shelf = Shelf()
    engine = MemoryEngine(shelf, seal.space)
    async with machine(tmp_path / "here", lambda: engine, seal, acknowledge=SHARED) as here:
        stored = await asyncio.gather(*(here.cache.put(b"%d" % number, SHELL) for number in range(40)))
        assert {entry.name(seal, one.digest) for one in stored} == set(shelf.rows)
        engine.away = True
        with pytest.raises(Away):
            await here.cache.put(b"cannot be acknowledged", SHELL)
        assert await here.cache.get(Digest.of(b"cannot be acknowledged"))


async def test_a_full_store_is_a_sentence_and_work_goes_on(tmp_path: Path, seal: Seal) -> None:
    shelf = Shelf(room=3000)
    async with machine(tmp_path / "here", lambda: MemoryEngine(shelf, seal.space), seal) as here:
        await here.cache.put(b"fits", SHELL)
        await here.link.sync()
        await here.cache.put(secrets.token_bytes(9000), SHELL)
        with pytest.raises(StoreFull, match="is full"):
            await here.link.sync()
        assert "Free up space in the store" in (await here.link.status()).trouble
        shelf.room = 0
        await here.link.sync()


async def test_rows_that_no_machine_uses_are_collected(tmp_path: Path, seal: Seal) -> None:
    shelf = Shelf()

    def engine() -> MemoryEngine:
        return MemoryEngine(shelf, seal.space)

    async with machine(tmp_path / "here", engine, seal) as here, machine(tmp_path / "there", engine, seal) as there:
        mine, theirs, nobodys = [
            await each.cache.put(content, SHELL)
            for each, content in ((here, b"mine"), (there, secrets.token_bytes(CHUNK + 3)), (here, b"nobody's"))
        ]
        for each, one in ((here, mine), (there, theirs)):
            await each.workspace.journal.append("c", [ToolReturned("1", one, 2)])
            await each.link.sync()
        await there.link.publish()
        assert await here.link.collect(grace=3600) == 0
        assert await here.link.collect(grace=-1) == 1
        assert entry.name(seal, nobodys.digest) not in shelf.rows
        assert len(shelf.rows) == 4
        await there.link.leave()
        assert await here.link.collect(grace=-1) == 3
        await there.link.publish()  # what it still uses comes back
        assert len(shelf.rows) == 4


async def test_rows_tell_no_text_and_no_size(tmp_path: Path, seal: Seal) -> None:
    shelf = Shelf()
    async with machine(tmp_path / "here", lambda: MemoryEngine(shelf, seal.space), seal) as here:
        for number in range(60):
            await here.cache.put(b"confidential " * number, About("shell", "/home/me/confidential"))
        await here.link.sync()
        await here.link.publish()
        sizes = {len(sealed) - KEY for sealed, *_ in shelf.rows.values()}
        assert sizes <= {512, 1024}
        everything = b"".join([*shelf.rows, *(sealed for sealed, *_ in shelf.rows.values()), *shelf.machines.values()])
        assert b"confidential" not in everything
        assert b"shell" not in everything
        assert not any(Digest.of(b"confidential " * number).raw in everything for number in range(60))


async def test_what_will_be_forgotten_is_on_the_disk_before_it_begins(two: tuple[Machine, Machine]) -> None:
    here, _ = two
    small = await here.cache.put(b"small", SHELL)
    large = await here.cache.put(secrets.token_bytes(CHUNK + 5), SHELL)
    await here.link.will_forget([])
    assert not noted.read(here.workspace.folder).burying
    await here.link.will_forget([small.digest, large.digest], [Digest.of(b"b"), Digest.of(b"a")])
    written = noted.read(here.workspace.folder)
    assert dict(written.burying) == {small.digest.hex: 1, large.digest.hex: 2}
    assert list(written.renewing) == sorted([Digest.of(b"a").hex, Digest.of(b"b").hex])
    here.link._obeying = frozenset([Digest.of(b"theirs")])  # another machine forgot it: it knows
    await here.link.will_forget([Digest.of(b"theirs")])
    assert dict(noted.read(here.workspace.folder).burying) == dict(written.burying)


async def test_the_start_of_a_hash_that_fits_two_entries_elsewhere_is_not_one_of_them(
    two: tuple[Machine, Machine],
) -> None:
    here, there = two
    first: dict[str, bytes] = {}
    for number in range(20_000):
        content = b"%d" % number
        short = Digest.of(content).hex[:4]
        if short in first:
            break
        first[short] = content
    stored = [await here.cache.put(each, SHELL) for each in (first[short], content)]
    await here.link.sync()
    await there.workspace.journal.append("c", [ToolReturned(str(one.digest), one, 2) for one in stored])
    await there.workspace.index.caught_up()
    with pytest.raises(NotThere):
        await there.cache.resolve(short)
    assert await there.cache.resolve(stored[0].digest.hex[:12]) == stored[0].digest
    with pytest.raises(NotThere):
        await there.cache.resolve("0" * 12)
