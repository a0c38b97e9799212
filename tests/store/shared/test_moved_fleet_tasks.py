"""Tasks from before a workspace was shared go on in the shared list: each once, whatever
interrupts the move, and none under a worker that still has one.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop.store.fleet_task_files import TASK_FILE, SqliteTaskTables, open_shared_task_list
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_task_moving import move_tasks_and_budgets
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from tests.peers import postgres

LEASE_SECONDS = 3600.0


@pytest.fixture
async def shared(server: postgres.Server, seal: RowCipher) -> AsyncIterator[FleetTaskList]:
    engine = PostgresRowStore(server.url, seal.space)
    yield open_shared_task_list(engine, seal, asyncio.to_thread)
    engine.close()


@pytest.fixture
async def tables(tmp_path: Path) -> AsyncIterator[SqliteTaskTables]:
    opened = SqliteTaskTables(tmp_path / TASK_FILE)
    yield opened
    opened.close()


def new_task(text: str, **more: object) -> NewFleetTask:
    return NewFleetTask(FleetTaskOrder(text), **more)  # type: ignore[arg-type]


async def claim_one(tasks: FleetTaskList) -> FleetTask:
    (claimed,) = await tasks.claim_fleet_tasks("desk 1.1", 1, LEASE_SECONDS)
    return claimed


async def states(tasks: FleetTaskList) -> dict[str, str]:
    return {task.order.text: task.state.value for task in await tasks.list_fleet_tasks()}


async def test_nothing_moves_while_a_worker_has_a_task_and_then_the_rest_does(
    shared: FleetTaskList, tables: SqliteTaskTables
) -> None:
    earlier = tables.open_list_in_file()
    await earlier.add_fleet_tasks([new_task("first", key="first", priority=1)])
    await earlier.add_fleet_tasks([new_task("second", after=("first",)), new_task("third")])
    running = await claim_one(earlier)
    await move_tasks_and_budgets(earlier, shared)
    assert await states(shared) == {}
    await earlier.end_fleet_task(running, FleetTaskState.DONE, FleetTaskResult("", "Done."))
    await move_tasks_and_budgets(earlier, shared)
    assert await states(shared) == {"second": "waiting", "third": "waiting"}
    assert await states(earlier) == {"first": "done"}
    assert (await claim_one(shared)).order.text == "second"  # What it waited for is done.


async def test_a_task_of_a_lost_worker_and_one_that_waits_for_you_wait_for_a_worker(
    shared: FleetTaskList, tables: SqliteTaskTables
) -> None:
    earlier = tables.open_list_in_file()
    await earlier.add_fleet_tasks([new_task("asks"), new_task("lost")])
    asking = await claim_one(earlier)
    await earlier.end_fleet_task(asking, FleetTaskState.NEEDS_YOU, FleetTaskResult("May I?"))
    await earlier.claim_fleet_tasks("desk 1.1", 1, -1.0)
    await move_tasks_and_budgets(earlier, shared)
    assert await states(shared) == {"asks": "waiting", "lost": "waiting"}
    assert await states(earlier) == {}


async def test_a_deadline_that_has_passed_is_still_one(
    shared: FleetTaskList, tables: SqliteTaskTables
) -> None:
    earlier = tables.open_list_in_file()
    await earlier.add_fleet_tasks([new_task("late", deadline_seconds=0.001)])
    await move_tasks_and_budgets(earlier, shared)
    assert await shared.claim_fleet_tasks("desk 1.1", 1, LEASE_SECONDS) == []
    assert await states(shared) == {"late": "failed"}


async def test_a_move_that_is_repeated_after_a_task_has_ended_adds_nothing(
    shared: FleetTaskList, tables: SqliteTaskTables, tmp_path: Path
) -> None:
    """As after a crash between the adding and the removing."""
    earlier = tables.open_list_in_file()
    await earlier.add_fleet_tasks([new_task("once"), new_task("twice")])
    copied = tmp_path / "copy" / TASK_FILE
    copied.parent.mkdir()
    for file in tmp_path.glob(f"{TASK_FILE}*"):
        shutil.copy(file, copied.parent)
    await move_tasks_and_budgets(earlier, shared)
    done = await claim_one(shared)
    await shared.end_fleet_task(done, FleetTaskState.DONE, FleetTaskResult("", "Done."))
    tables_of_copy = SqliteTaskTables(copied)
    try:
        await move_tasks_and_budgets(tables_of_copy.open_list_in_file(), shared)
    finally:
        tables_of_copy.close()
    assert await states(shared) == {"once": "done", "twice": "waiting"}
