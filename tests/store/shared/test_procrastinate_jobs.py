"""procrastinate's own functions in a transaction of the shared store: what a transaction that
fails leaves, which job is next, and which jobs nobody can fetch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import uuid4

import psycopg
import pytest

from helix_desktop.store import procrastinate_jobs
from helix_desktop.store.procrastinate_jobs import ProcrastinateJobs, prepare_queue_tables
from helix_desktop.store.shared.postgres_pool import PoolTransaction, PostgresPool
from helix_desktop.store.task_queue import QueueCounts, QueuedTask
from tests.peers import postgres

T = TypeVar("T")
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


class Jobs:
    """The jobs of a queue that no other test uses, each call in a transaction of its own."""

    def __init__(self, pool: PostgresPool) -> None:
        self._pool = pool
        self._queue = f"queue {uuid4().hex}"

    def run(self, work: Callable[[ProcrastinateJobs], T]) -> T:
        def work_in(transaction: PoolTransaction) -> T:
            return work(ProcrastinateJobs(transaction, self._queue))

        return self._pool.run_work_in_transaction(work_in)

    def add(self, *priorities: int) -> list[int]:
        tasks = [QueuedTask(f"task{n}", priority) for n, priority in enumerate(priorities)]
        return self.run(lambda jobs: jobs.add_jobs(tasks))

    def fetch(self) -> int | None:
        return self.run(lambda jobs: jobs.fetch_job())

    def count(self) -> QueueCounts:
        return self.run(lambda jobs: jobs.count_jobs())


@pytest.fixture
def pool(server: postgres.Server) -> Iterator[PostgresPool]:
    opened = PostgresPool(psycopg, {"conninfo": server.url})
    opened.users = 1
    opened.run_work_in_transaction(prepare_queue_tables)
    yield opened
    opened.close()


@pytest.fixture
def jobs(pool: PostgresPool) -> Jobs:
    return Jobs(pool)


def test_the_numbers_of_jobs_are_in_the_order_of_their_tasks_and_the_urgent_is_fetched_first(
    jobs: Jobs,
) -> None:
    first, second, urgent = jobs.add(0, 0, 5)
    assert [jobs.fetch() for _ in range(4)] == [urgent, first, second, None]
    assert jobs.count() == QueueCounts(waiting=0, taken=3, set_aside=0)


def test_a_job_of_another_queue_is_not_fetched(pool: PostgresPool, jobs: Jobs) -> None:
    Jobs(pool).add(9)
    (mine,) = jobs.add(0)
    assert [jobs.fetch(), jobs.fetch()] == [mine, None]


def test_a_transaction_that_fails_leaves_its_jobs_as_they_were(jobs: Jobs) -> None:
    (job,) = jobs.add(0)

    def fetch_add_and_fail(inside: ProcrastinateJobs) -> None:
        assert inside.fetch_job() == job
        inside.add_jobs([QueuedTask("another", 0)])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        jobs.run(fetch_add_and_fail)
    assert jobs.count() == QueueCounts(waiting=1, taken=0, set_aside=0)
    assert jobs.fetch() == job


def test_a_job_given_back_is_fetched_when_its_time_has_come(jobs: Jobs) -> None:
    (job,) = jobs.add(0)
    assert jobs.fetch() == job
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    jobs.run(lambda inside: inside.retry_job(job, tomorrow))
    assert jobs.fetch() is None
    assert jobs.count() == QueueCounts(waiting=1, taken=0, set_aside=0)
    (due,) = jobs.add(0)
    assert jobs.fetch() == due
    jobs.run(lambda inside: inside.retry_job(due, LONG_AGO))
    assert jobs.fetch() == due


def test_a_failed_job_is_fetched_only_after_it_is_retried_and_a_removed_one_never(
    jobs: Jobs,
) -> None:
    (job,) = jobs.add(0)
    assert jobs.fetch() == job
    jobs.run(lambda inside: inside.fail_job(job))
    assert jobs.fetch() is None
    assert jobs.count() == QueueCounts(waiting=0, taken=0, set_aside=1)
    jobs.run(lambda inside: inside.retry_job(job, LONG_AGO))
    assert jobs.fetch() == job
    jobs.run(lambda inside: inside.remove_job(job))
    assert jobs.fetch() is None
    assert jobs.count() == QueueCounts(0, 0, 0)


def test_the_connection_looks_elsewhere_for_tables_after_the_transaction(
    pool: PostgresPool, jobs: Jobs
) -> None:
    """A pooler gives it to somebody else."""
    jobs.add(0)
    (((path,),),) = pool.run_in_transaction([("SHOW search_path", ())])
    assert procrastinate_jobs.SCHEMA not in str(path)


def test_tables_that_are_there_are_not_made_again(pool: PostgresPool, jobs: Jobs) -> None:
    (job,) = jobs.add(0)
    pool.run_work_in_transaction(prepare_queue_tables)
    assert jobs.fetch() == job


def test_a_function_of_procrastinate_that_waits_is_refused() -> None:
    with pytest.raises(RuntimeError, match="waits where it used not to"):
        procrastinate_jobs._run_without_waiting(asyncio.sleep(0))
