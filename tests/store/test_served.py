from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import About
from helix_desktop.errors import CacheCorrupt, NotThere
from helix_desktop.store.catalogue import Filter, Sort
from helix_desktop.store.index import Progress
from helix_desktop.store.records import CHUNK
from helix_desktop.store.workspace import Workspace

SHELL = About("shell", "ls")


async def test_puts_that_come_together_share_a_sync(workspace: Workspace) -> None:
    level = workspace._stores.cache.level
    batches: list[int] = []
    write = level.write

    def counted(writes: list[tuple[bytes, bytes | None]]) -> None:
        batches.append(len(writes))
        write(writes)

    level.write = counted  # type: ignore[method-assign, assignment]  # counts, and does it
    await asyncio.gather(*(workspace.cache.put(b"%d" % number, SHELL) for number in range(50)))
    assert sum(batches) == 150
    assert len(batches) < 25


async def test_a_failing_put_fails_alone(workspace: Workspace) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield bytes(2 * CHUNK)
        raise EOFError

    results = await asyncio.gather(
        workspace.cache.put(b"one", SHELL),
        workspace.cache.put(broken(), SHELL),
        workspace.cache.put(b"two", SHELL),
        return_exceptions=True,
    )
    assert isinstance(results[1], EOFError)
    assert await workspace.cache.get(Digest.of(b"two")) == b"two"
    assert len(await workspace._stores.thread.run(list, workspace._stores.cache.level.keys(b"b", b"c"))) == 2


async def test_a_cancelled_stream_leaves_nothing(workspace: Workspace) -> None:
    halfway = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield bytes(CHUNK)
        halfway.set()
        await asyncio.Event().wait()

    putting = asyncio.get_running_loop().create_task(workspace.cache.put(endless(), SHELL))
    await halfway.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert await workspace._stores.thread.run(list, workspace._stores.cache.level.keys(b"b", b"c")) == []


async def test_a_large_entry_is_streamed_in_checked_chunks(workspace: Workspace) -> None:
    stored = await workspace.cache.put(bytes(range(256)) * 12_000, SHELL)
    await workspace.index.caught_up()  # or it might meet the damage first
    chunks = [chunk async for chunk in workspace.cache.stream(stored.digest)]
    assert [len(chunk) for chunk in chunks] == [CHUNK, CHUNK, 256 * 12_000 - 2 * CHUNK]
    cache = workspace._stores.cache
    blob = cache.record(stored.digest).blob
    await workspace._stores.thread.run(cache.level.write, [(b"b" + blob.to_bytes(8, "big") + b"\0\0\0\2", b"\0wrong")])
    got = []

    async def take() -> None:
        async for chunk in workspace.cache.stream(stored.digest):
            got.append(chunk)  # noqa: PERF401 - what came before it failed is what matters

    with pytest.raises(CacheCorrupt):
        await take()
    assert got == chunks[:2]


async def test_the_index_follows_by_itself(workspace: Workspace) -> None:
    await workspace.cache.put(b"a needle", SHELL)
    await workspace.journal.append("c", [UserSaid((Text("a needle too"),))])
    for _ in range(1000):
        if len(await workspace.index.search("needle")) == 2:
            break
        await asyncio.sleep(0.005)
    else:
        pytest.fail("the index never had them")
    assert workspace.index.progress.done


async def test_a_rebuild_reports_how_far_it_is(workspace: Workspace) -> None:
    for number in range(400):
        await workspace.cache.put(b"entry %d" % number, SHELL)
    seen: list[Progress] = []

    async def nothing() -> None: ...

    await workspace.index.renew(nothing)
    await workspace.index.caught_up(seen.append)
    assert seen[-1].done
    assert seen[-1].entries == 400
    assert [each.words for each in seen] == sorted(each.words for each in seen)


async def test_the_catalogue_through_the_port(workspace: Workspace) -> None:
    stored = [await workspace.cache.put(b"x" * number, About(f"tool{number % 2}")) for number in range(1, 9)]
    await workspace.cache.pin(stored[3].digest)
    await workspace.index.caught_up()
    rows = await workspace.index.entries(sort=Sort.SIZE)
    assert [row.stored.size for row in rows] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert await workspace.index.count(Filter(pinned=True)) == 1
    assert await workspace.index.tools() == (("tool0", 4), ("tool1", 4))
    assert (await workspace.index.stats()).entries == 8
    row = await workspace.index.row(stored[3].digest)
    assert row is not None
    assert row.pinned
    assert await workspace.index.uses(stored[3].digest) == ()
    with pytest.raises(NotThere):
        await workspace.cache.pin(Digest.of(b"none"))
