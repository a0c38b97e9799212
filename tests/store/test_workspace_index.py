from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable

import pytest

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import NotFound, StoreBusy
from helix_desktop.store import workspace_index
from helix_desktop.store.index_file import IndexProgress
from helix_desktop.store.stored_workspace import StoredWorkspace

SHELL = EntryOrigin("shell", "ls")


async def test_the_index_follows_by_itself(workspace: StoredWorkspace) -> None:
    await workspace.cache.store_content(b"a needle", SHELL)
    await workspace.journal.append_to_journal("c", [UserSaid((Text("a needle too"),))])
    for _ in range(1000):
        if (
            len(await workspace.index.search_index("needle")) == 2
            and workspace.index.progress.is_complete
        ):
            break
        await asyncio.sleep(0.005)
    else:
        pytest.fail("the index never had them")
    assert workspace.index.progress.is_complete


async def test_a_search_finds_what_was_stored_just_before(workspace: StoredWorkspace) -> None:
    await workspace.index.wait_until_indexed()
    for word in ("thimble", "spindle"):  # the second while the index would gather for a while
        await workspace.cache.store_content(f"a {word} in the hay".encode(), SHELL)
        assert len(await workspace.index.search_index(word)) == 1, word


async def test_nobody_waits_while_the_index_gathers(
    workspace: StoredWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await workspace.index.wait_until_indexed()
    monkeypatch.setattr(workspace_index, "GATHER_SECONDS", 1000.0)
    index = workspace.index
    async with asyncio.timeout(100):
        asks: list[Callable[[], Awaitable[object]]] = [
            index.measure_kept_bytes,
            index.recount_checkpoint_contents,
            workspace.aclose,
        ]
        for number, ask in enumerate(asks):
            stored = await workspace.cache.store_content(b"entry %d" % number, SHELL)
            await index.refresh_entry_rows([stored.digest])
            await workspace.cache.store_content(b"another %d" % number, SHELL)
            await ask()


async def test_what_is_stored_while_the_index_reads_is_in_the_next_slice(
    workspace: StoredWorkspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = workspace.index
    read = threading.Event()
    stored = threading.Event()
    await index.wait_until_indexed()
    real = index._file.index_next_slice

    def slow_slice() -> IndexProgress:
        progress = real()
        read.set()
        stored.wait(100)
        return progress

    monkeypatch.setattr(index._file, "index_next_slice", slow_slice)
    await workspace.cache.store_content(b"a thimble", SHELL)
    await asyncio.to_thread(read.wait, 100)
    await workspace.cache.store_content(b"a spindle", SHELL)
    stored.set()
    assert len(await index.search_index("spindle")) == 1


async def test_a_rebuild_reports_how_far_it_is(workspace: StoredWorkspace) -> None:
    for number in range(400):
        await workspace.cache.store_content(b"entry %d" % number, SHELL)
    seen: list[IndexProgress] = []

    async def nothing() -> None: ...

    await workspace.index.rebuild_after(nothing)
    await workspace.index.wait_until_indexed(seen.append)
    assert seen[-1].is_complete
    assert seen[-1].entries == 400
    assert [each.words for each in seen] == sorted(each.words for each in seen)


async def test_what_is_written_while_the_index_is_begun_anew_goes_into_the_new_one(
    workspace: StoredWorkspace,
) -> None:
    """The first checkpoint of a workspace is taken while somebody forgets an entry, or
    pins another one.
    """
    stored = await workspace.cache.store_content(b"an entry", SHELL)
    index = workspace.index
    begun = asyncio.Event()
    go = asyncio.Event()
    await index.wait_until_indexed()

    async def removing() -> None:
        begun.set()
        await go.wait()

    renewing = asyncio.ensure_future(index.rebuild_after(removing))  # noqa: TID251
    await begun.wait()
    async with asyncio.TaskGroup() as asked:
        asked.create_task(index.recount_checkpoint_contents())
        asked.create_task(workspace.cache.pin_entry(stored.digest))
        await asyncio.sleep(0)
        go.set()
    await renewing
    await index.wait_until_indexed()
    row = await index.find_entry_row(stored.digest)
    assert row is not None
    assert row.pinned
    assert await index.measure_checkpoint_bytes() == (0, 0)


async def test_what_is_asked_while_something_is_removed_is_refused_and_no_disk_is_blamed(
    workspace: StoredWorkspace,
) -> None:
    begun = asyncio.Event()
    go = asyncio.Event()

    async def removing() -> None:
        begun.set()
        await go.wait()

    index = workspace.index
    renewing = asyncio.ensure_future(index.rebuild_after(removing))  # noqa: TID251
    await begun.wait()
    for ask in (
        index.wait_until_indexed(),
        index.measure_kept_bytes(),
        index.search_index("needle"),
        anext(index.stream_expected_entries()),
    ):
        with pytest.raises(StoreBusy, match="removed from this workspace"):
            await ask
    go.set()
    await renewing
    assert (await index.wait_until_indexed()).is_complete


async def test_the_catalogue_through_the_port(workspace: StoredWorkspace) -> None:
    stored = [
        await workspace.cache.store_content(b"x" * number, EntryOrigin(f"tool{number % 2}"))
        for number in range(1, 9)
    ]
    await workspace.cache.pin_entry(stored[3].digest)
    await workspace.index.wait_until_indexed()
    rows = await workspace.index.entries_page(sort=EntrySort.SIZE)
    assert [row.stored.size for row in rows] == [8, 7, 6, 5, 4, 3, 2, 1]
    assert await workspace.index.count_entries(EntryFilter(pinned=True)) == 1
    assert await workspace.index.count_tools() == (("tool0", 4), ("tool1", 4))
    assert (await workspace.index.compute_figures()).entries == 8
    row = await workspace.index.find_entry_row(stored[3].digest)
    assert row is not None
    assert row.pinned
    assert await workspace.index.find_entry_uses(stored[3].digest) == ()
    with pytest.raises(NotFound):
        await workspace.cache.pin_entry(Digest.of_content(b"none"))


async def test_what_the_cache_takes_is_known_with_the_last_put(workspace: StoredWorkspace) -> None:
    assert await workspace.index.measure_kept_bytes() == 0
    await workspace.cache.store_content(bytes(range(256)), SHELL)
    kept = await workspace.index.measure_kept_bytes()
    assert kept > 0
    await workspace.cache.store_content(bytes(range(255, -1, -1)), SHELL)
    assert await workspace.index.measure_kept_bytes() > kept


async def test_what_is_asked_while_the_index_is_only_rebuilt_says_so(
    workspace: StoredWorkspace,
) -> None:
    index = workspace.index
    rebuilding = asyncio.ensure_future(index.rebuild_in_background())  # noqa: TID251
    await asyncio.sleep(0)
    with pytest.raises(StoreBusy, match="index of this workspace is being rebuilt"):
        await index.search_index("needle")
    await rebuilding
    assert not await index.search_index("needle")
