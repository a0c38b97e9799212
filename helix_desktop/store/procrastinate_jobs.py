"""procrastinate's own functions for jobs, used within a transaction of the shared store.

Its tables are in a schema of their own, which its schema and migrations make. Importing
this module imports procrastinate, so only `procrastinate_task_queue` does, when it must.
"""

from collections.abc import Collection, Coroutine, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, LiteralString, TypeVar

from procrastinate.connector import BaseAsyncConnector
from procrastinate.jobs import Job, Status
from procrastinate.manager import JobManager
from procrastinate.schema import SchemaManager
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from helix_desktop.errors import WrittenByNewerVersion
from helix_desktop.store.shared.postgres_pool import PoolTransaction
from helix_desktop.store.task_queue import QueueCounts, QueuedTask

T = TypeVar("T")
SCHEMA = "helix_queue"
TASK_NAME = "helix_desktop.run_task"
# Leases of tasks are the list's, which renews them and gives back what a worker lost.
_NO_WORKER: Any = None
_LOCK = 0x48454C4959  # Only one computer at a time may change the tables.


class _TransactionConnector(BaseAsyncConnector):
    """Runs procrastinate's queries in a transaction that has begun. The shared store's
    threads may block, so these coroutines never wait.
    """

    def __init__(self, transaction: PoolTransaction) -> None:
        self._connection = transaction.connection

    async def execute_query_async(self, query: LiteralString, **arguments: Any) -> None:
        self._connection.execute(query, _as_json_where_needed(arguments))

    async def execute_query_one_async(
        self, query: LiteralString, **arguments: Any
    ) -> dict[str, Any]:
        (row,) = await self.execute_query_all_async(query, **arguments)
        return row

    async def execute_query_all_async(
        self, query: LiteralString, **arguments: Any
    ) -> list[dict[str, Any]]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            cursor.execute(query, _as_json_where_needed(arguments))
            return cursor.fetchall()


def _as_json_where_needed(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _convert_argument(value) for name, value in arguments.items()}


def _convert_argument(value: Any) -> Any:
    if isinstance(value, dict):
        return Jsonb(value)
    if isinstance(value, tuple):
        return tuple(_convert_argument(part) for part in value)
    if isinstance(value, list):
        return [_convert_argument(part) for part in value]
    return value


class ProcrastinateJobs:
    """The jobs of one queue, within a transaction."""

    def __init__(self, transaction: PoolTransaction, queue: str) -> None:
        self._queue = queue
        self._manager = JobManager(_TransactionConnector(transaction))
        # For this transaction alone: a pooler gives the connection to others afterwards.
        transaction.run_all([("SELECT set_config('search_path', %s, true)", (SCHEMA,))])

    def add_jobs(self, tasks: Sequence[QueuedTask]) -> list[int]:
        """Add a job for each task, and return the jobs' numbers in order."""
        jobs = []
        for task in tasks:
            job = Job(
                queue=self._queue,
                task_name=TASK_NAME,
                priority=task.priority,
                task_kwargs={"task": task.id},
                lock=None,
                queueing_lock=None,
            )
            jobs.append(job)
        added = _run_without_waiting(self._manager.batch_defer_jobs_async(jobs))
        return [job.id for job in added if job.id is not None]

    def fetch_job(self) -> int | None:
        """Fetch the next job, and return its number, or None if none can run now."""
        job = _run_without_waiting(self._manager.fetch_job([self._queue], _NO_WORKER))
        if job is None:
            return None
        return job.id

    def retry_job(self, job: int, retry_at: datetime) -> None:
        """Let a job be fetched again that was fetched or has failed."""
        _run_without_waiting(self._manager.retry_job_by_id_async(job, retry_at))

    def fail_job(self, job: int) -> None:
        """Keep a job that was fetched, but let nobody fetch it before `retry_job`."""
        failing = self._manager.finish_job_by_id_async(job, Status.FAILED, delete_job=False)
        _run_without_waiting(failing)

    def remove_job(self, job: int) -> None:
        """Remove a job that waits or was fetched."""
        removing = self._manager.finish_job_by_id_async(job, Status.SUCCEEDED, delete_job=True)
        _run_without_waiting(removing)

    def count_jobs(self) -> QueueCounts:
        for queue in _run_without_waiting(self._manager.list_queues_async(queue=self._queue)):
            return QueueCounts(queue["todo"], queue["doing"], queue["failed"])
        return QueueCounts(0, 0, 0)


def _run_without_waiting(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never waits, as all do with this connector."""
    try:
        work.send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    work.close()
    raise RuntimeError("A function of procrastinate waits where it used not to.")


def prepare_queue_tables(transaction: PoolTransaction) -> None:
    """Create procrastinate's tables, or run those of its migrations that were not run yet. A
    migration changes the tables from one version to the next. Raises WrittenByNewerVersion if a
    newer program has run one that this program does not have.

    Whether there is anything to do is asked again behind the lock, as another computer may have
    done it meanwhile.
    """
    connection = transaction.connection
    migrations = _read_migrations()
    if _list_migrations_run(transaction) == migrations.keys():
        return
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
    already_run = _list_migrations_run(transaction)
    unknown = already_run - migrations.keys()
    if unknown:
        migration = max(unknown)
        raise WrittenByNewerVersion(
            f"The shared store has a queue of tasks from a newer version of Helix Desktop ({migration})."
        )
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}".encode())
    connection.execute("SELECT set_config('search_path', %s, true)", (SCHEMA,))
    if not already_run:
        connection.execute("CREATE TABLE migrations_run(name text PRIMARY KEY)")
        connection.execute(SchemaManager.get_schema())
    for name in sorted(migrations.keys() - already_run):
        if already_run:  # procrastinate's schema contains what all its migrations do.
            connection.execute(migrations[name].read_bytes())
        connection.execute("INSERT INTO migrations_run VALUES (%s)", (name,))


def _read_migrations() -> dict[str, Path]:
    folder = Path(SchemaManager.get_migrations_path())
    return {path.name: path for path in folder.glob("*.sql")}


def _list_migrations_run(transaction: PoolTransaction) -> Collection[str]:
    """Return the names of the migrations that were run in this database, or none before the
    tables exist.
    """
    # Not `to_regclass`, which may return what was true before we waited for the lock.
    look = (
        "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
        " WHERE nspname = %s AND relname = 'migrations_run'"
    )
    (rows,) = transaction.run_all([(look, (SCHEMA,))])
    if not rows:
        return frozenset()
    (names,) = transaction.run_all([("SELECT name FROM helix_queue.migrations_run", ())])
    return frozenset(name for (name,) in names)
