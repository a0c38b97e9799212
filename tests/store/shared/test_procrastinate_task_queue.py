"""The queue of several computers: what procrastinate and its own tools do with it, how its
tables come to be, and what earlier versions left.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import psycopg
import pytest

from helix_desktop.errors import NotFound, WrittenByNewerVersion
from helix_desktop.store import fleet_task_list, procrastinate_jobs
from helix_desktop.store.fleet_task_files import open_shared_task_list
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.task_queue import QueueCounts
from tests.peers.postgres import Server

NEW = NewFleetTask(FleetTaskOrder("do it"))
WITHOUT_TASKS = """
import asyncio, sys
from helix_desktop.store.fleet_task_files import open_shared_task_list
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
seal = RowCipher(bytes(32))
tasks = open_shared_task_list(PostgresRowStore(sys.argv[1], seal.space), seal, asyncio.to_thread)
async def look():
    await tasks.claim_fleet_tasks("me", 4, 30)
    await tasks.seconds_until_next_try()
    await tasks.count_fleet_tasks()
asyncio.run(look())
sys.exit("procrastinate" in sys.modules)
"""


@pytest.fixture
def engine(server: Server, seal: RowCipher) -> Iterator[PostgresRowStore]:
    opened = PostgresRowStore(server.url, seal.space)
    yield opened
    opened.close()


@pytest.fixture
def tasks(engine: PostgresRowStore, seal: RowCipher) -> FleetTaskList:
    return open_shared_task_list(engine, seal, asyncio.to_thread)


def run_sql(engine: PostgresRowStore, text: str, *values: object) -> list[tuple[object, ...]]:
    search_path = ("SELECT set_config('search_path', 'helix_queue', true)", ())
    return engine.run_transaction(search_path, (text, values))[1]


def test_without_tasks_procrastinate_is_not_imported(server: Server) -> None:
    command = [sys.executable, "-c", WITHOUT_TASKS, server.url]
    assert subprocess.run(command, check=False).returncode == 0


async def test_without_procrastinate_the_package_is_named(
    tasks: FleetTaskList, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "helix_desktop.store.procrastinate_jobs", None)
    monkeypatch.delattr("helix_desktop.store.procrastinate_jobs")
    with pytest.raises(NotFound, match="procrastinate"):
        await tasks.add_fleet_tasks([NEW])
    monkeypatch.undo()
    assert await tasks.list_fleet_tasks() == []


async def test_a_job_is_removed_with_its_task_whatever_state_it_was_in(
    tasks: FleetTaskList, engine: PostgresRowStore
) -> None:
    ids = await tasks.add_fleet_tasks([NEW] * 5)
    first, second, third = await tasks.claim_fleet_tasks("me", 3, 30)
    await tasks.end_fleet_task(first, FleetTaskState.DONE, FleetTaskResult())
    await tasks.end_fleet_task(second, FleetTaskState.NEEDS_YOU, FleetTaskResult())
    await set_aside(tasks, third)
    assert await tasks.count_queued_tasks() == QueueCounts(waiting=2, taken=0, set_aside=1)
    for task in ids[1:]:
        await tasks.cancel_fleet_task(task)
    assert await tasks.count_queued_tasks() == QueueCounts(0, 0, 0)
    numbers = run_sql(
        engine, "SELECT count(*) FROM procrastinate_jobs WHERE args ->> 'task' = ANY(%s)", ids
    )
    assert numbers == [(0,)]


async def set_aside(tasks: FleetTaskList, mine: FleetTask) -> None:
    almost = f"setbacks = {fleet_task_list.MOST_SETBACKS - 1}"
    change = f"UPDATE helix.tasks SET {almost} WHERE id = %s"  # noqa: S608 - no foreign words
    await tasks._run_statements([(change, (mine.id,))])
    state = await tasks.give_back_after_setback(mine, FleetTaskResult("The disk is full."))
    assert state is FleetTaskState.DEAD_LETTER


async def test_what_was_set_aside_can_be_tried_again_with_the_tools_of_procrastinate(
    tasks: FleetTaskList, engine: PostgresRowStore
) -> None:
    """Its shell calls this function for `retry`."""
    await tasks.add_fleet_tasks([NEW])
    (mine,) = await tasks.claim_fleet_tasks("me", 1, 30)
    await set_aside(tasks, mine)
    assert await tasks.claim_fleet_tasks("me", 1, 30) == []
    retry = "SELECT procrastinate_retry_job_v2(id, now(), NULL, NULL, NULL) FROM procrastinate_jobs WHERE args ->> 'task' = %s"
    run_sql(engine, retry, mine.id)
    (again,) = await tasks.claim_fleet_tasks("me", 1, 30)
    assert (again.id, again.claims, again.state) == (mine.id, 2, FleetTaskState.RUNNING)


async def test_a_job_that_its_tools_gave_to_another_worker_is_not_run_twice(
    tasks: FleetTaskList, engine: PostgresRowStore
) -> None:
    """As its tool for stalled jobs does, which does not know of our leases."""
    await tasks.add_fleet_tasks([NEW])
    (mine,) = await tasks.claim_fleet_tasks("me", 1, 30)
    retry = "SELECT procrastinate_retry_job_v2(id, now(), NULL, NULL, NULL) FROM procrastinate_jobs WHERE args ->> 'task' = %s"
    run_sql(engine, retry, mine.id)
    assert await tasks.claim_fleet_tasks("other", 1, 30) == []
    assert await tasks.renew_leases_of_tasks([mine], 30) == {mine.id}
    assert await tasks.end_fleet_task(mine, FleetTaskState.DONE, FleetTaskResult())
    assert await tasks.count_queued_tasks() == QueueCounts(0, 0, 0)


@pytest.mark.parametrize("change", ["DELETE FROM", "cancel"])
async def test_a_task_whose_job_is_gone_is_not_lost(
    tasks: FleetTaskList, engine: PostgresRowStore, change: str
) -> None:
    await tasks.add_fleet_tasks([NEW])
    (mine,) = await tasks.claim_fleet_tasks("me", 1, 30)
    if change == "cancel":
        run_sql(
            engine,
            "UPDATE procrastinate_jobs SET status = 'cancelled' WHERE args ->> 'task' = %s",
            mine.id,
        )
    else:
        run_sql(engine, "DELETE FROM procrastinate_jobs WHERE args ->> 'task' = %s", mine.id)
    assert await tasks.end_fleet_task(mine, FleetTaskState.WAITING, FleetTaskResult())
    assert [task.id for task in await tasks.claim_fleet_tasks("me", 1, 30)] == [mine.id]


async def test_tasks_that_an_earlier_version_added_are_taken_over_once(
    tasks: FleetTaskList,
) -> None:
    ids = await tasks.add_fleet_tasks([NEW] * 3)
    forgotten = "UPDATE helix.tasks SET job = NULL WHERE space = %s"
    await tasks._run_statements([(forgotten, (tasks._space,))])
    claimed = await tasks.claim_fleet_tasks("me", 9, 30)
    assert {task.id for task in claimed} == set(ids)
    assert await tasks.claim_fleet_tasks("other", 9, 30) == []


def test_each_migration_of_procrastinate_is_run_once_and_a_newer_one_is_refused(
    server: Server, seal: RowCipher
) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE with_migrations")
    url = server.url.replace("/postgres", "/with_migrations")
    engine = PostgresRowStore(url, seal.space)
    engine.run_work_in_store(procrastinate_jobs.prepare_queue_tables)
    names = "SELECT name FROM helix_queue.migrations_run ORDER BY name"
    first = engine.run_transaction((names, ()))
    assert len(first[0]) == len(procrastinate_jobs._read_migrations())
    last = first[0][-1][0]
    undo = [
        ("DELETE FROM helix_queue.migrations_run WHERE name = %s", (last,)),
        ("DROP FUNCTION helix_queue.procrastinate_retry_job_v1", ()),
    ]
    engine.run_transaction(*undo)
    engine.run_work_in_store(procrastinate_jobs.prepare_queue_tables)
    assert engine.run_transaction((names, ())) == first
    engine.run_transaction(("INSERT INTO helix_queue.migrations_run VALUES ('99_later.sql')", ()))
    with pytest.raises(WrittenByNewerVersion, match=r"99_later\.sql"):
        engine.run_work_in_store(procrastinate_jobs.prepare_queue_tables)
    engine.close()


async def test_tasks_that_are_taken_and_cancelled_at_once_end_once(tasks: FleetTaskList) -> None:
    """Taking locks the job first and cancelling the task, so the database ends one of
    two that wait for each other, which is then run again.
    """
    ids = await tasks.add_fleet_tasks([NEW] * 40)
    claims = [tasks.claim_fleet_tasks(f"worker {number}", 2, 30) for number in range(20)]
    cancels = [tasks.cancel_fleet_task(task) for task in ids]
    await asyncio.gather(*claims, *cancels)
    listed = await tasks.list_fleet_tasks()
    assert {task.state for task in listed} == {FleetTaskState.CANCELLED}
    assert await tasks.count_queued_tasks() == QueueCounts(0, 0, 0)
