"""How the list of tasks grows: taking, ending, counting and listing with 0 to 1,000,000
ended tasks and 10,000 blocked ones, in a file or in PostgreSQL behind PgBouncer.

python -m tests.benchmarks.fleet_growth [--quick: to 100,000] [--postgres]
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from helix_desktop.store.fleet_task_files import SqliteTaskTables, open_shared_task_list
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
from helix_desktop.workbench.fleet_overview import collect_fleet_state
from tests.benchmarks import report
from tests.benchmarks.growth import _taken
from tests.benchmarks.row import Figure, Row
from tests.peers.pgbouncer import Pooler
from tests.peers.postgres import Server

SIZES = (0, 10_000, 100_000, 1_000_000)
BLOCKED = 10_000
READY = 400
ENDED_AT_ONCE = 50_000
# Copies of a task, since ending a million one by one would take hours. Positions are below
# those of live tasks, where older tasks are.
ADD_ENDED = {
    False: (
        "WITH RECURSIVE numbers(n) AS (SELECT %s UNION ALL SELECT n + 1 FROM numbers WHERE n < %s) INSERT INTO"
        " ended_tasks(space, id, position, state, priority, added, deadline, claims, sealed, result, charged, setbacks,"
        " reason, ended) SELECT space, printf('%%020x', n), -n - 1, CASE WHEN n %% 50 = 0 THEN 'failed' ELSE 'done' END, 0,"
        " added, 0, 1, sealed, result, 0.01, 0, '', {now} FROM tasks, numbers WHERE space = %s AND id = %s"
    ),
    True: (
        "INSERT INTO helix.ended_tasks(space, id, position, state, priority, added, deadline, claims, sealed, result,"
        " charged, setbacks, reason, ended) SELECT space, lpad(to_hex(n), 20, '0'), -n - 1, CASE WHEN n %% 50 = 0 THEN"
        " 'failed' ELSE 'done' END, 0, added, 0, 1, sealed, result, 0.01, 0, '', {now} FROM helix.tasks,"
        " generate_series(%s::bigint, %s::bigint) AS n WHERE space = %s AND id = %s"
    ),
}


ADD_COUNT = (
    "INSERT INTO helix.task_counts AS c VALUES (%s, 0, %s, %s) ON CONFLICT (space, slot, name) DO UPDATE SET amount ="
    " c.amount + excluded.amount"
)


def rows(sizes: Sequence[int], *, postgres: bool) -> list[Row]:
    if not postgres:
        folder = Path(tempfile.mkdtemp(prefix="helix-fleet-growth-"))
        tables = SqliteTaskTables(folder / "tasks.sqlite3")
        try:
            return asyncio.run(_measure(tables.open_list_in_file(), sizes))
        finally:
            tables.close()
            shutil.rmtree(folder)
    server = Server().start()
    pooler = Pooler(server)
    seal = RowCipher(bytes(32))
    engine = PostgresRowStore(pooler.url, seal.space)
    try:
        tasks = open_shared_task_list(engine, seal, asyncio.to_thread)
        return asyncio.run(_measure(tasks, sizes))
    finally:
        engine.close()
        pooler.remove()
        server.remove()


async def _measure(tasks: FleetTaskList, sizes: Sequence[int]) -> list[Row]:
    sample = await add_blocked_tasks(tasks)
    ended = 0
    measured: list[Row] = []
    for size in sizes:
        await add_ended_tasks(tasks, sample, ended, size)
        ended = size
        await add_ready_tasks(tasks)
        for name, figure in (await _ask(tasks)).items():
            title = f"{name}, with {size:,} ended and {BLOCKED:,} blocked tasks"
            measured.append(Row(title, "µs", figure, {}, series=name, at=size))
    return measured


async def add_blocked_tasks(tasks: FleetTaskList) -> str:
    """Add tasks that wait for a first one, and return the ID of that one."""
    (needed,) = await tasks.add_fleet_tasks([_new("need", priority=-1, key="need")])
    blocked = [_new(f"blocked {number}", after=("need",)) for number in range(BLOCKED)]
    await tasks.add_fleet_tasks(blocked)
    return needed


async def add_ready_tasks(tasks: FleetTaskList) -> None:
    await tasks.add_fleet_tasks([_new(f"ready {number}") for number in range(READY)])


async def add_ended_tasks(tasks: FleetTaskList, sample: str, ended: int, wanted: int) -> None:
    """Let there be `wanted` ended tasks, where there are `ended` already."""
    for first in range(ended, wanted, ENDED_AT_ONCE):
        await _add_ended(tasks, sample, first, min(ENDED_AT_ONCE, wanted - first))


def _new(
    text: str, *, priority: int = 0, key: str = "", after: tuple[str, ...] = ()
) -> NewFleetTask:
    return NewFleetTask(FleetTaskOrder(text), key=key, priority=priority, after=after)


async def _add_ended(tasks: FleetTaskList, sample: str, first: int, count: int) -> None:
    values = (first, first + count - 1, tasks._space, sample)
    adding = tasks._dialect.build_statement(ADD_ENDED[tasks.is_shared], *values)
    if not tasks.is_shared:
        await tasks._run_statements([adding])
        return
    # Counted at once: so many changes of one row in one transaction take PostgreSQL hours.
    without_triggers = ("SET LOCAL session_replication_role = replica", ())
    failed = len(range(-(-first // 50) * 50, first + count, 50))
    counts = []
    for state, number in (("failed", failed), ("done", count - failed)):
        counts.append((ADD_COUNT, (tasks._space, state, number)))
    await tasks._run_statements([without_triggers, adding, *counts])


async def _ask(tasks: FleetTaskList) -> dict[str, Figure]:
    return {name: await _taken(ask) for name, ask in build_questions(tasks).items()}


def build_questions(tasks: FleetTaskList) -> dict[str, Callable[[], Awaitable[object]]]:
    """Return what workers and people ask of the list, by name, in the order to ask it in."""
    taken: list[FleetTask] = []

    async def take() -> None:
        taken.extend(await tasks.claim_fleet_tasks("desk 1.1", 1, 3600.0))

    async def end() -> None:
        await tasks.end_fleet_task(taken.pop(), FleetTaskState.DONE, FleetTaskResult("", "Done."))

    middle = -10
    return {
        "take": take,
        "end": end,
        "counts": tasks.count_fleet_tasks,
        "list of 100": lambda: tasks.list_fleet_tasks(limit=100),
        "list of 100 done": lambda: tasks.list_fleet_tasks("done", 100),
        "older page of 100": lambda: tasks.list_fleet_tasks(limit=100, before=middle),
        "fleet status": lambda: collect_fleet_state(
            tasks, [FleetTaskState.RUNNING, FleetTaskState.NEEDS_YOU, FleetTaskState.FAILED]
        ),
        "what the Fleet page shows": lambda: collect_fleet_state(tasks, FleetTaskState),
        "the Fleet page's look for changes": tasks.read_fingerprint,
    }


def main() -> int:
    sizes = SIZES[:3] if "--quick" in sys.argv else SIZES
    measured = rows(sizes, postgres="--postgres" in sys.argv)
    sys.stdout.write("\n".join([*report.table(measured), *report.fit_lines(measured)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
