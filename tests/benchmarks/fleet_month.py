"""How large the tables of a shared list of tasks are during a month: each day, tasks are added,
some of which wait for others, run, are given back once, and end; the oldest leave the history;
and PostgreSQL's vacuum runs, as it does by itself. Once the history is full, no table may grow.

A day is as many tasks as `--tasks`, and the history keeps ten days of them.

python -m tests.benchmarks.fleet_month [--days 30] [--tasks 300]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import ExitStack

import psycopg

from helix_desktop.store.fleet_task_files import open_shared_task_list
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
    TaskRetention,
)
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from tests.peers import postgres
from tests.peers.pgbouncer import Pooler

DAYS_KEPT = 10
CLAIMED_AT_ONCE = 20
EVERY_NEEDS = 5  # Each fifth task waits for the one before it.
SHOWN_DAYS = (1, 5, 10, 15, 20, 25, 30)
_SIZES = (
    "SELECT n.nspname || '.' || c.relname, pg_total_relation_size(c.oid) FROM pg_class AS c JOIN pg_namespace AS n"
    " ON n.oid = c.relnamespace WHERE c.relkind = 'r' AND n.nspname IN ('helix', 'helix_queue') ORDER BY 1"
)


async def work_for_a_day(tasks: FleetTaskList, day: int, number: int) -> None:
    new_tasks: list[NewFleetTask] = []
    for n in range(number):
        needs: tuple[str, ...] = ()
        if n % EVERY_NEEDS == EVERY_NEEDS - 1:
            needs = (f"{day}-{n - 1}",)
        order = FleetTaskOrder(f"Look at the reports of day {day}, number {n}")
        new_tasks.append(NewFleetTask(order, key=f"{day}-{n}", after=needs))
    await tasks.add_fleet_tasks(new_tasks)
    worker = f"desk {day}.1"
    claimed = await tasks.claim_fleet_tasks(worker, CLAIMED_AT_ONCE, 3600.0)
    while claimed:
        await tasks.notes.renew_worker_and_tell_if_draining(worker, 30.0)
        await tasks.renew_leases_of_tasks(claimed, 3600.0)
        for task in claimed:
            if task.claims == 1 and task.position % 50 == 0:
                await tasks.end_fleet_task(task, FleetTaskState.WAITING, FleetTaskResult("Again"))
            else:
                result = FleetTaskResult("", "All reports are there.", 0.01)
                await tasks.end_fleet_task(task, FleetTaskState.DONE, result)
        claimed = await tasks.claim_fleet_tasks(worker, CLAIMED_AT_ONCE, 3600.0)
    await tasks.remove_old_tasks(TaskRetention(90 * 86400.0, number * DAYS_KEPT))


def vacuum_and_measure(url: str) -> dict[str, int]:
    """Return each table's bytes with its indexes, after what autovacuum does each day."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM (ANALYZE)")
        return dict(connection.execute(_SIZES).fetchall())


async def measure_month(days: int, number: int) -> list[str]:
    with ExitStack() as closing:
        server = postgres.Server(postgres.FAST)
        closing.callback(server.remove)
        server.start()
        pooler = Pooler(server)
        closing.callback(pooler.remove)
        seal = RowCipher(bytes(32))
        engine = PostgresRowStore(pooler.url, seal.space)
        closing.callback(engine.close)
        tasks = open_shared_task_list(engine, seal, asyncio.to_thread)
        sizes_by_day: dict[int, dict[str, int]] = {}
        for day in range(1, days + 1):
            await work_for_a_day(tasks, day, number)
            sizes_by_day[day] = await asyncio.to_thread(vacuum_and_measure, server.url)
        counts = await tasks.count_fleet_tasks()
        return describe(sizes_by_day, f"{counts.by_state} in the list after {days} days")


def describe(sizes_by_day: dict[int, dict[str, int]], last_line: str) -> list[str]:
    """Return a line for each table that is not tiny: its KB on some of the days."""
    days = [day for day in SHOWN_DAYS if day in sizes_by_day]
    lines = [f"{'KB after day':<46}" + "".join(f"{day:>8}" for day in days)]
    for table in sizes_by_day[days[-1]]:
        kilobytes = [sizes_by_day[day].get(table, 0) // 1024 for day in days]
        if max(kilobytes) >= 64:
            lines.append(f"{table:<46}" + "".join(f"{size:>8,}" for size in kilobytes))
    totals = [sum(sizes_by_day[day].values()) // 1024 for day in days]
    lines.append(f"{'all tables':<46}" + "".join(f"{size:>8,}" for size in totals))
    lines.append(last_line)
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--tasks", type=int, default=300)
    given = parser.parse_args()
    lines = asyncio.run(measure_month(given.days, given.tasks))
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
