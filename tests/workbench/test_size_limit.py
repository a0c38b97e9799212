from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop import tasks
from helix_desktop.engine.ports import About
from helix_desktop.store.workspace import Workspace
from helix_desktop.store.workspaces import Workspaces
from helix_desktop.workbench.size_limit import Room

NOISE = bytes(range(256)) * 4


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[Workspace]:
    workspaces = Workspaces(tmp_path / "workspaces")
    opened = await workspaces.open(workspaces.create("W", tmp_path).id)
    yield opened
    await opened.aclose()


async def test_who_watches_hears_when_the_limit_is_passed_and_when_no_longer(workspace: Workspace) -> None:
    owner, heard = tasks.Tasks("test"), list[int]()
    room = Room(workspace, owner.spawn, pause=0)
    workspace.cache.changed = room.look
    stop = room.watch(heard.append)
    await workspace.cache.put(NOISE, About("shell"))
    await owner.ended()
    assert (room.over, heard) == (0, []), "there is no limit"

    workspace.change({"limits.cache_bytes": 10})
    await workspace.cache.put(b"more", About("shell"))
    await owner.ended()
    assert room.over == await workspace.over_limit() > 0
    assert heard == [room.over]

    await workspace.cache.put(b"and more", About("shell"))
    await owner.ended()
    assert len(heard) == 1, "told already"
    assert (await workspace.index.stats()).entries == 3, "nothing is removed by itself"

    await workspace.cache.collect(10)
    await owner.ended()
    assert (room.over, heard[1:]) == (0, [0])

    stop()
    workspace.change({"limits.cache_bytes": 1})
    await workspace.cache.put(b"yet more", About("shell"))
    await owner.ended()
    assert (room.over > 0, len(heard)) == (True, 2)
    await owner.aclose()


async def test_what_comes_while_it_counts_is_counted_too(workspace: Workspace) -> None:
    owner = tasks.Tasks("test")
    room = Room(workspace, owner.spawn, pause=0)
    workspace.change({"limits.cache_bytes": 1})
    room.look()
    await workspace.cache.put(NOISE, About("shell"))
    room.look()
    await owner.ended()
    assert room.over == await workspace.over_limit() > 0
    await owner.aclose()


async def test_who_is_closing_does_not_fail_a_put(workspace: Workspace) -> None:
    owner = tasks.Tasks("test")
    workspace.cache.changed = Room(workspace, owner.spawn).look
    workspace.change({"limits.cache_bytes": 1})
    await owner.aclose()
    stored = await workspace.cache.put(NOISE, About("shell"))
    assert await workspace.cache.get(stored.digest) == NOISE
