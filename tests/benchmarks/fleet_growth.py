"""How the list of tasks grows: taking, ending, counting and listing with 0, 10,000, 100,000
and 1,000,000 ended tasks and 10,000 blocked ones, in files or in PostgreSQL behind PgBouncer.

All sizes are there at the same time, each in a database of its own, and are asked in turns.
So what else the computer does slows each of them as often, and their ratios hold on a busy
one. Of each question the median and the fastest tenth are given, and the processor time,
which includes no waiting: that of PostgreSQL's processes, or of this process for files. Ratios
are to the least of the sizes that answered with as many rows: with no ended task, a page of older
ones is empty, and any page is slow beside an empty one.

python -m tests.benchmarks.fleet_growth [--quick: to 100,000] [--postgres] [--rounds 100]
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

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
from tests.peers import postgres
from tests.peers.pgbouncer import Pooler

SIZES = (0, 10_000, 100_000, 1_000_000)
BLOCKED = 10_000
READY = 400
ROUNDS = 100
FIRST_ROUNDS = 5  # Not counted: connections and caches are new.
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


@dataclass
class Measured:
    """Of one question at one size, in milliseconds: a value for each time it was asked. `rows`: how
    many tasks the last answer had.
    """

    rows: int = 0
    wall: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)


@dataclass
class GrownList:
    """A list of tasks with `size` ended ones. `processor_seconds`: of what answers it."""

    size: int
    tasks: FleetTaskList
    processor_seconds: Callable[[], float]
    refresh_statistics: Callable[[], None] = lambda: None
    measured: dict[str, Measured] = field(default_factory=dict)


async def measure_in_turns(lists: Sequence[GrownList], rounds: int) -> None:
    """Ask each question of each list in each round, and note how long it took."""
    questions = [build_questions(grown.tasks) for grown in lists]
    for number in range(FIRST_ROUNDS + rounds):
        for name in questions[0]:
            for grown, asked in zip(lists, questions, strict=True):
                measured = grown.measured.setdefault(name, Measured())
                processor_before = grown.processor_seconds()
                began = time.perf_counter()
                answer = await asked[name]()
                wall = time.perf_counter() - began
                processor = grown.processor_seconds() - processor_before
                measured.rows = count_rows(answer)
                if number >= FIRST_ROUNDS:
                    measured.wall.append(1000 * wall)
                    measured.processor.append(1000 * processor)


def count_rows(answer: object) -> int:
    """Return how many tasks an answer lists: a page, or what the Fleet page shows of each state."""
    match answer:
        case list():
            return len(answer)
        case dict():
            return sum(
                len(answer.get(state.value.replace("-", "_"), ())) for state in FleetTaskState
            )
        case _:
            return 0


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


# --- Lists of all sizes


async def fill_list(tasks: FleetTaskList, size: int, ready: int) -> None:
    sample = await add_blocked_tasks(tasks)
    await add_ended_tasks(tasks, sample, 0, size)
    await add_ready_tasks(tasks, ready)


async def add_blocked_tasks(tasks: FleetTaskList) -> str:
    """Add tasks that wait for a first one, and return the ID of that one."""
    (needed,) = await tasks.add_fleet_tasks([_new("need", priority=-1, key="need")])
    blocked = [_new(f"blocked {number}", after=("need",)) for number in range(BLOCKED)]
    await tasks.add_fleet_tasks(blocked)
    return needed


async def add_ready_tasks(tasks: FleetTaskList, number: int = READY) -> None:
    await tasks.add_fleet_tasks([_new(f"ready {n}") for n in range(number)])


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


def open_list_in_file(size: int, closing: ExitStack) -> GrownList:
    folder = Path(tempfile.mkdtemp(prefix="helix-fleet-growth-"))
    closing.callback(shutil.rmtree, folder)
    tables = SqliteTaskTables(folder / "tasks.sqlite3")
    closing.callback(tables.close)
    return GrownList(size, tables.open_list_in_file(), time.process_time)


def open_list_in_postgres(size: int, closing: ExitStack) -> GrownList:
    server = postgres.Server()
    closing.callback(server.remove)
    server.start()
    pooler = Pooler(server)
    closing.callback(pooler.remove)
    seal = RowCipher(bytes(32))
    engine = PostgresRowStore(pooler.url, seal.space)
    closing.callback(engine.close)
    tasks = open_shared_task_list(engine, seal, asyncio.to_thread)

    def refresh_statistics() -> None:
        """Do what PostgreSQL does by itself within a minute after many changes."""
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")

    return GrownList(size, tasks, server.processor_seconds, refresh_statistics)


# --- What is printed


def describe(lists: Sequence[GrownList]) -> list[str]:
    """Return a line for each question and size."""
    lines = [
        f"{'':<36}{'ended':>10}{'rows':>6}{'median ms':>11}{'ratio':>7}{'fastest tenth':>15}{'ratio':>7}{'processor ms':>14}{'ratio':>7}"
    ]
    for name in lists[0].measured:
        all_measured = [grown.measured[name] for grown in lists]
        for grown in lists:
            rows = grown.measured[name].rows
            alike = [measured for measured in all_measured if measured.rows == rows]
            line = f"{name:<36}{grown.size:>10,}{rows:>6}"
            for width, value_of in ((11, _median_wall), (15, _fastest_wall)):
                line += _column(grown.measured[name], alike, value_of, width, decimals=1)
            lines.append(
                line + _column(grown.measured[name], alike, _median_processor, 14, decimals=2)
            )
    return lines


def _column(
    measured: Measured,
    alike: Sequence[Measured],
    value_of: Callable[[Measured], float],
    width: int,
    *,
    decimals: int,
) -> str:
    """Return a value, and its ratio to the least of those that are measured alike."""
    value = value_of(measured)
    least = min(map(value_of, alike))
    ratio = 1.0
    if least:
        ratio = value / least
    return f"{value:>{width}.{decimals}f}{ratio:>7.2f}"


def _median_wall(measured: Measured) -> float:
    return statistics.median(measured.wall)


def _fastest_wall(measured: Measured) -> float:
    """Return the time that a tenth of all do not exceed."""
    return sorted(measured.wall)[len(measured.wall) // 10]


def _median_processor(measured: Measured) -> float:
    return statistics.median(measured.processor)


async def _fill_and_measure(sizes: Sequence[int], rounds: int, *, in_postgres: bool) -> list[str]:
    open_list = open_list_in_postgres if in_postgres else open_list_in_file
    with ExitStack() as closing:
        lists = []
        for size in sizes:
            grown = open_list(size, closing)
            await fill_list(grown.tasks, size, FIRST_ROUNDS + rounds)
            grown.refresh_statistics()
            lists.append(grown)
        await measure_in_turns(lists, rounds)
        return describe(lists)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    given = parser.parse_args()
    sizes = SIZES[:3] if given.quick else SIZES
    filling = _fill_and_measure(sizes, given.rounds, in_postgres=given.postgres)
    sys.stdout.write("\n".join(asyncio.run(filling)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
