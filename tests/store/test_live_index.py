from __future__ import annotations

import asyncio

import pytest

from helix_desktop.engine.catalogue import Filter, Sort
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import About
from helix_desktop.errors import NotThere, StoreBusy
from helix_desktop.store.index import Progress
from helix_desktop.store.workspace import Workspace

SHELL = About("shell", "ls")


async def test_the_index_follows_by_itself(workspace: Workspace) -> None:
    await workspace.cache.put(b"a needle", SHELL)
    await workspace.journal.append("c", [UserSaid((Text("a needle too"),))])
    for _ in range(1000):
        if len(await workspace.index.search("needle")) == 2 and workspace.index.progress.done:
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


async def test_what_is_asked_while_something_is_removed_is_refused_and_no_disk_is_blamed(workspace: Workspace) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    async def removing() -> None:
        begun.set()
        await go.wait()

    index = workspace.index
    renewing = asyncio.ensure_future(index.renew(removing))  # noqa: TID251
    await begun.wait()
    for ask in (index.caught_up(), index.kept(), index.search("needle"), anext(index.expected())):
        with pytest.raises(StoreBusy, match="removed from this workspace"):
            await ask
    go.set()
    await renewing
    assert (await index.caught_up()).done


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


async def test_what_the_cache_takes_is_known_with_the_last_put(workspace: Workspace) -> None:
    assert await workspace.index.kept() == 0
    await workspace.cache.put(bytes(range(256)), SHELL)
    kept = await workspace.index.kept()
    assert kept > 0
    await workspace.cache.put(bytes(range(255, -1, -1)), SHELL)
    assert await workspace.index.kept() > kept


async def test_what_is_asked_while_the_index_is_only_rebuilt_says_so(workspace: Workspace) -> None:
    index = workspace.index
    rebuilding = asyncio.ensure_future(index.begin_anew())  # noqa: TID251
    await asyncio.sleep(0)
    with pytest.raises(StoreBusy, match="index of this workspace is being rebuilt"):
        await index.search("needle")
    await rebuilding
    assert not await index.search("needle")
