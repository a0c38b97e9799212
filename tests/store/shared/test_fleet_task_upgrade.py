"""The tables of tasks that version 0.2 left in PostgreSQL are taken over as they were."""

from __future__ import annotations

import asyncio

import psycopg

from helix_desktop.store.fleet_task_encoding import FleetTaskCodec
from helix_desktop.store.fleet_task_files import open_shared_task_list
from helix_desktop.store.fleet_tasks import FleetTaskOrder, FleetTaskResult
from helix_desktop.store.shared.postgres_pool import STEPS
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from tests.peers.postgres import Server
from tests.store.test_fleet_task_files import OLD_NEEDS, OLD_TASKS

VERSION_OF_0_2 = 4
ADD = (
    "INSERT INTO helix.tasks(space, id, state, priority, added, deadline, worker, until, claims, sealed, result, charged)"
    " VALUES (%s, %s, %s, 0, 5.0, 0, '', 0, %s, %s, %s, %s)"
)


def write_old_tables(url: str, seal: RowCipher) -> None:
    codec = FleetTaskCodec(seal)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA helix")
        connection.execute("CREATE TABLE helix.version(version int NOT NULL)")
        connection.execute("INSERT INTO helix.version VALUES (%s)", (VERSION_OF_0_2,))
        for step in STEPS[:VERSION_OF_0_2]:
            connection.execute(step.encode())
        for task, state, claims, charged in OLD_TASKS:
            order = codec.encode_order(task, FleetTaskOrder(task))
            result = codec.encode_result(task, FleetTaskResult())
            values = (seal.space, task, state, claims, order, result, charged)
            connection.execute(ADD, values)
        for task, need in OLD_NEEDS:
            need_row = (seal.space, task, need)
            connection.execute("INSERT INTO helix.task_needs VALUES (%s, %s, %s)", need_row)


async def test_tasks_of_version_0_2_are_taken_over_in_postgresql(
    server: Server, seal: RowCipher
) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE of_version_0_2")
    url = server.url.replace("/postgres", "/of_version_0_2")
    write_old_tables(url, seal)
    engine = PostgresRowStore(url, seal.space)

    tasks = open_shared_task_list(engine, seal, asyncio.to_thread)
    listed = {task.id[0]: task for task in await tasks.list_fleet_tasks()}
    assert {name: task.state.value for name, task in listed.items()} == {
        "d": "done",
        "f": "failed",
        "1": "waiting",
        "2": "cancelled",
        "3": "waiting",
        "4": "needs-you",
    }
    assert listed["2"].result.why.startswith("This task was waiting for a task that failed")
    assert listed["f"].order.text == "f" * 20
    counts = await tasks.count_fleet_tasks()
    assert counts.dollars == 1.0
    assert {state: number for state, number in counts.by_state.items() if number} == {
        "waiting": 2,
        "needs-you": 1,
        "done": 1,
        "failed": 1,
        "cancelled": 1,
    }
    (first,) = await tasks.claim_fleet_tasks("me", 9, 30)
    assert first.id == "1" * 20
    await tasks.end_fleet_task(first, type(first.state)("done"), FleetTaskResult())
    assert [task.id[0] for task in await tasks.claim_fleet_tasks("me", 9, 30)] == ["3"]
    kept = ("SELECT id, state, claims, charged FROM helix.tasks_of_0_2 ORDER BY id", ())
    assert engine.run_transaction(kept)[0] == sorted(OLD_TASKS)
    await tasks.remove_copy_of_0_2()
    assert engine.run_transaction(kept)[0] == []
    engine.close()
