"""How many rows PostgreSQL reads for a worker's questions to the list of tasks: no more
because many other tasks wait or have ended.

Each statement is explained before it runs, in a savepoint that is rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg
import pytest

from helix_desktop.store.fleet_statements import POSTGRES, Rows, Statement, TableTransaction
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
)
from helix_desktop.store.procrastinate_task_queue import ProcrastinateTaskQueue
from helix_desktop.store.shared import postgres_pool, row_encryption
from helix_desktop.store.shared.postgres_pool import PoolTransaction
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from tests.peers import postgres

T = TypeVar("T")
BLOCKED = 600


class ExplainingTransaction(PoolTransaction):
    """Adds the rows that each statement's plan reads to `rows_by_statement`."""

    def __init__(self, connection: Any, rows_by_statement: dict[str, float]) -> None:
        super().__init__(connection)
        self._rows_by_statement = rows_by_statement

    def run_all(self, statements: Sequence[Statement]) -> list[Rows]:
        answers: list[Rows] = []
        for text, values in statements:
            self._explain(text, values)
            answers += super().run_all([(text, values)])
        return answers

    def _explain(self, text: str, values: Sequence[Any]) -> None:
        self.connection.execute("SAVEPOINT before_explaining")
        explained = self.connection.execute(
            f"EXPLAIN (ANALYZE, TIMING off, FORMAT json) {text}".encode(), values
        ).fetchone()
        self.connection.execute("ROLLBACK TO before_explaining")
        assert explained is not None
        name = " ".join(text.split())[:80]
        read = sum(_rows_read(explained[0][0]["Plan"]))
        self._rows_by_statement[name] = self._rows_by_statement.get(name, 0) + read


def _rows_read(plan: dict[str, Any]) -> Iterator[float]:
    """Those of each scan of a table or index, also the ones that it then leaves out."""
    if plan["Node Type"].endswith("Scan"):
        kept = plan["Actual Rows"]
        left_out = plan.get("Rows Removed by Filter", 0)
        yield (kept + left_out) * plan["Actual Loops"]
    for below in plan.get("Plans", ()):
        yield from _rows_read(below)


class ExplainedList:
    def __init__(self, engine: PostgresRowStore, seal: RowCipher) -> None:
        self._engine = engine
        self._rows: dict[str, float] = {}
        queue = ProcrastinateTaskQueue(seal.space)
        self.plain = FleetTaskList(self._run, POSTGRES, queue, seal.space, seal)
        self._explained = FleetTaskList(self._run_explained, POSTGRES, queue, seal.space, seal)

    async def _run(self, work: Callable[[TableTransaction], T]) -> T:
        return await asyncio.to_thread(lambda: self._engine.run_work_in_store(work))

    async def _run_explained(self, work: Callable[[TableTransaction], T]) -> T:
        def explain_and_work(transaction: PoolTransaction) -> T:
            return work(ExplainingTransaction(transaction.connection, self._rows))

        return await asyncio.to_thread(lambda: self._engine.run_work_in_store(explain_and_work))

    async def count_rows_read(
        self, ask: Callable[[FleetTaskList], Awaitable[object]]
    ) -> dict[str, float]:
        self._rows.clear()
        await ask(self._explained)
        return dict(self._rows)

    def refresh_statistics(self) -> None:
        tables = ("tasks", "task_needs", "ended_tasks", "notes")
        for table in tables:
            self._engine.run_transaction((f"ANALYZE helix.{table}", ()))


@pytest.fixture
async def explained(server: postgres.Server, seal: RowCipher) -> AsyncIterator[ExplainedList]:
    engine = PostgresRowStore(server.url, seal.space)
    yield ExplainedList(engine, seal)
    engine.close()


def new_task(text: str, **more: Any) -> NewFleetTask:
    return NewFleetTask(FleetTaskOrder(text), **more)


async def take_and_end(tasks: FleetTaskList, state: FleetTaskState) -> None:
    (claimed,) = await tasks.claim_fleet_tasks("desk 1.1", 1, 3600.0)
    assert await tasks.end_fleet_task(claimed, state, FleetTaskResult("", "Done."))


async def add_blocked_and_ready(tasks: FleetTaskList) -> None:
    await tasks.add_fleet_tasks([new_task("need", priority=-1, key="need")])
    blocked = [new_task(f"blocked {number}", after=("need",)) for number in range(BLOCKED)]
    await tasks.add_fleet_tasks(blocked)
    await tasks.add_fleet_tasks([new_task("ready 1"), new_task("ready 2")])


async def add_after_another(tasks: FleetTaskList) -> None:
    await tasks.add_fleet_tasks([new_task("one more", after=("need",))])


QUESTIONS: dict[str, Callable[[FleetTaskList], Awaitable[object]]] = {
    "take and end": lambda tasks: take_and_end(tasks, FleetTaskState.DONE),
    "take and fail": lambda tasks: take_and_end(tasks, FleetTaskState.FAILED),
    "add": add_after_another,
    "counts": lambda tasks: tasks.count_fleet_tasks(),
    "oldest": lambda tasks: tasks.oldest_waiting_seconds(),
    "list": lambda tasks: tasks.list_fleet_tasks(limit=20),
    "list of those that wait": lambda tasks: tasks.list_fleet_tasks("waiting", 20),
    "list of those that are done": lambda tasks: tasks.list_fleet_tasks("done", 20),
}


async def test_the_next_try_of_a_workspace_reads_no_jobs_of_another_workspace(
    explained: ExplainedList, server: postgres.Server, request: pytest.FixtureRequest
) -> None:
    await explained.plain.add_fleet_tasks([new_task(f"other {n}") for n in range(BLOCKED)])
    seal = RowCipher(row_encryption.new_workspace_key())
    engine = PostgresRowStore(server.url, seal.space)
    request.addfinalizer(engine.close)
    explained = ExplainedList(engine, seal)
    await explained.plain.add_fleet_tasks([new_task("given back")])
    (claimed,) = await explained.plain.claim_fleet_tasks("desk 1.1", 1, 3600.0)
    await explained.plain.give_back_after_setback(claimed, FleetTaskResult("The disk was full."))
    rows_read = await explained.count_rows_read(lambda tasks: tasks.seconds_until_next_try())
    assert await explained.plain.seconds_until_next_try() == pytest.approx(2, abs=1.9)
    assert sum(rows_read.values()) < 10, rows_read


@pytest.mark.parametrize("is_first_in_store", [True, False])
async def test_a_workers_questions_read_none_of_the_tasks_that_wait_for_another(
    explained: ExplainedList,
    server: postgres.Server,
    request: pytest.FixtureRequest,
    *,
    is_first_in_store: bool,
) -> None:
    """The statistics are about this workspace, or about another one that was there first."""
    await add_blocked_and_ready(explained.plain)
    explained.refresh_statistics()
    if not is_first_in_store:
        second_seal = RowCipher(row_encryption.new_workspace_key())
        second_engine = PostgresRowStore(server.url, second_seal.space)
        request.addfinalizer(second_engine.close)
        explained = ExplainedList(second_engine, second_seal)
        await add_blocked_and_ready(explained.plain)
    for name, ask in QUESTIONS.items():
        rows_read = await explained.count_rows_read(ask)
        assert sum(rows_read.values()) < 60, (name, rows_read)


def test_a_store_of_an_earlier_version_forgets_how_many_rows_each_workspace_had(
    seal: RowCipher,
) -> None:
    """Otherwise it would go on counting a newer workspace as a single row."""
    store = postgres.Server(postgres.FAST).start()
    try:
        with psycopg.connect(store.url, autocommit=True) as connection:
            connection.execute("CREATE SCHEMA helix")
            connection.execute("CREATE TABLE helix.version(version int NOT NULL)")
            earlier = postgres_pool.VERSION - 1
            connection.execute("INSERT INTO helix.version VALUES (%s)", (earlier,))
            for step in postgres_pool.STEPS[:earlier]:
                connection.execute(step.encode())
            connection.execute(
                "INSERT INTO helix.notes SELECT %s, n::text, 0, 0 FROM generate_series(1, 500) AS n",
                (seal.space,),
            )
            connection.execute("ANALYZE helix.notes")
            assert _columns_with_statistics(connection) == {"space", "name", "until", "amount"}
            postgres_pool.prepare_tables(connection)
            assert _columns_with_statistics(connection) == {"name", "until", "amount"}
            connection.execute("ANALYZE helix.notes")
            assert _columns_with_statistics(connection) == {"name", "until", "amount"}
    finally:
        store.remove()


def _columns_with_statistics(connection: psycopg.Connection) -> set[str]:
    rows = connection.execute("SELECT attname FROM pg_stats WHERE tablename = 'notes'").fetchall()
    return {column for (column,) in rows}
