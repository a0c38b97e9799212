from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop import concurrency
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench.cache_size_limit import CacheSizeLimit

NOISE = bytes(range(256)) * 4


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[StoredWorkspace]:
    workspaces = AllWorkspaces(tmp_path / "workspaces")
    opened = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("W", tmp_path).id
    )
    yield opened
    await opened.aclose()


async def test_who_watches_hears_when_the_limit_is_passed_and_when_no_longer(
    workspace: StoredWorkspace,
) -> None:
    owner = concurrency.OwnedTasks("test")
    heard = list[int]()
    room = CacheSizeLimit(workspace, owner.spawn_task, pause=0)
    workspace.cache.changed = room.count_cache_size_soon
    stop = room.watch_cache_size(heard.append)
    await workspace.cache.store_content(NOISE, EntryOrigin("shell"))
    await owner.wait_for_all_tasks()
    assert (room.excess_bytes, heard) == (0, []), "there is no limit"

    workspace.change_settings({"limits.cache_bytes": 10})
    await workspace.cache.store_content(b"more", EntryOrigin("shell"))
    await owner.wait_for_all_tasks()
    assert room.excess_bytes == await workspace.bytes_over_limit() > 0
    assert heard == [room.excess_bytes]

    await workspace.cache.store_content(b"and more", EntryOrigin("shell"))
    await owner.wait_for_all_tasks()
    assert len(heard) == 1, "told already"
    assert (await workspace.index.compute_figures()).entries == 3, "nothing is removed by itself"

    await workspace.cache.remove_unused_down_to(10)
    await owner.wait_for_all_tasks()
    assert (room.excess_bytes, heard[1:]) == (0, [0])

    stop()
    workspace.change_settings({"limits.cache_bytes": 1})
    await workspace.cache.store_content(b"yet more", EntryOrigin("shell"))
    await owner.wait_for_all_tasks()
    assert (room.excess_bytes > 0, len(heard)) == (True, 2)
    await owner.aclose()


async def test_what_comes_while_it_counts_is_counted_too(workspace: StoredWorkspace) -> None:
    owner = concurrency.OwnedTasks("test")
    room = CacheSizeLimit(workspace, owner.spawn_task, pause=0)
    workspace.change_settings({"limits.cache_bytes": 1})
    room.count_cache_size_soon()
    await workspace.cache.store_content(NOISE, EntryOrigin("shell"))
    room.count_cache_size_soon()
    await owner.wait_for_all_tasks()
    assert room.excess_bytes == await workspace.bytes_over_limit() > 0
    await owner.aclose()


async def test_who_is_closing_does_not_fail_a_put(workspace: StoredWorkspace) -> None:
    owner = concurrency.OwnedTasks("test")
    workspace.cache.changed = CacheSizeLimit(workspace, owner.spawn_task).count_cache_size_soon
    workspace.change_settings({"limits.cache_bytes": 1})
    await owner.aclose()
    stored = await workspace.cache.store_content(NOISE, EntryOrigin("shell"))
    assert await workspace.cache.read_content(stored.digest) == NOISE
