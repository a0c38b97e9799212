"""The queue of several computers: procrastinate, which others keep, in the database that
stores the list of tasks.

Each task that can run is a job of procrastinate. It says which job is next and when a
job may be tried again, keeps those that were set aside as failed jobs, and changes its
own tables from version to version. Operators can look at the jobs with its own tools.
A job says nothing but the id of its task.

procrastinate is only imported once a shared workspace has tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_sql_statements
from helix_desktop.store.shared.postgres_pool import PoolTransaction
from helix_desktop.store.task_queue import QueueCounts, QueuedTask

if TYPE_CHECKING:
    from datetime import datetime

    from helix_desktop.store.fleet_statements import Rows, TableTransaction
    from helix_desktop.store.procrastinate_jobs import ProcrastinateJobs

# Tasks without a job get one, at most so many at a time: an earlier version added them.
TAKEN_OVER_AT_ONCE = 250
WAITING = "todo"
TAKEN = "doing"
SET_ASIDE = "failed"
INSTALL = "Install the program again from its source folder, with: pipx install --force '.[shared,fleet]'."
_SQL = read_sql_statements("procrastinate_task_queue_statements")


@dataclass(frozen=True, slots=True)
class _FoundJob:
    """`status` is empty if the task has no job. `time`: by the database's clock."""

    number: int
    status: str
    priority: int
    time: datetime


class ProcrastinateTaskQueue:
    """task_queue.TaskQueue of the workspace `space`."""

    def __init__(self, space: bytes) -> None:
        self._space = space
        self._queue_name = f"helix {space.hex()}"
        self._has_tables = False

    def add_tasks(self, transaction: TableTransaction, tasks: Sequence[QueuedTask]) -> None:
        """Let these tasks be taken: give each of them a job, unless it has one."""
        ids = [task.id for task in tasks]
        rows = self._run_queue_statement(transaction, "without_job", self._space, ids)
        ids_without_job = {task_id for (task_id,) in rows}
        tasks_without_job = [task for task in tasks if task.id in ids_without_job]
        if not tasks_without_job:
            return
        job_numbers = self._open_jobs(transaction).add_jobs(tasks_without_job)
        for task, number in zip(tasks_without_job, job_numbers, strict=True):
            self._run_queue_statement(transaction, "note_job", number, self._space, task.id)

    def pop_tasks(self, transaction: TableTransaction, limit: int) -> list[str]:
        """Take up to `limit` waiting tasks, by taking their jobs from Procrastinate's queue.

        First, tasks that have no job get one: an earlier version added tasks without jobs. A job
        whose task is gone or has another job is removed on the way.
        """
        is_any_waiting, tasks_without_job = transaction.run_all(
            [
                (_SQL["has_waiting"], (self._space,)),
                (_SQL["waiting_without_job"], (self._space, TAKEN_OVER_AT_ONCE)),
            ]
        )
        if not is_any_waiting:
            return []
        jobs = self._open_jobs(transaction)
        if tasks_without_job:
            self.add_tasks(transaction, [QueuedTask(*row) for row in tasks_without_job])
        taken: list[str] = []
        while len(taken) < limit:
            job = jobs.fetch_job()
            if job is None:
                break
            rows = self._run_queue_statement(transaction, "task_of_job", self._space, job)
            if not rows:
                jobs.remove_job(job)
            taken += [task for (task,) in rows]
        return taken

    def give_back_task(self, transaction: TableTransaction, task: str, seconds: float) -> None:
        jobs = self._open_jobs(transaction)
        for found in self._find_jobs(transaction, [task], seconds):
            if found.status in (TAKEN, SET_ASIDE):
                jobs.retry_job(found.number, found.time)
            elif found.status != WAITING:  # It has none, or somebody cancelled it there.
                self._run_queue_statement(transaction, "forget_jobs", self._space, [task])
                self.add_tasks(transaction, [QueuedTask(task, found.priority)])

    def set_task_aside(self, transaction: TableTransaction, task: str) -> None:
        """Keep the job as a failed one: procrastinate's tools show it and can retry it."""
        jobs = self._open_jobs(transaction)
        for found in self._find_jobs(transaction, [task]):
            if found.status in (WAITING, TAKEN):
                jobs.fail_job(found.number)

    def finish_tasks(self, transaction: TableTransaction, tasks: Sequence[str]) -> None:
        jobs = self._open_jobs(transaction)
        for found in self._find_jobs(transaction, tasks):
            if found.status == SET_ASIDE:  # A failed job can only be removed after a retry.
                jobs.retry_job(found.number, found.time)
            if found.status in (WAITING, TAKEN, SET_ASIDE):
                jobs.remove_job(found.number)
        self._run_queue_statement(transaction, "forget_jobs", self._space, list(tasks))

    def seconds_until_next_task(self, transaction: TableTransaction) -> float | None:
        if not self._run_queue_statement(transaction, "has_waiting", self._space):
            return None
        self._open_jobs(transaction)
        ((seconds,),) = self._run_queue_statement(transaction, "next", self._space)
        if seconds is None:
            return None
        return float(seconds)

    def count_tasks(self, transaction: TableTransaction) -> QueueCounts:
        return self._open_jobs(transaction).count_jobs()

    def _open_jobs(self, transaction: TableTransaction) -> ProcrastinateJobs:
        """Return procrastinate's jobs, whose tables are created or upgraded when they are first
        used.
        """
        assert isinstance(transaction, PoolTransaction)  # noqa: S101 - what this queue is made for
        try:
            from helix_desktop.store import procrastinate_jobs
        except ImportError as error:
            raise NotFound(
                "Tasks of a shared workspace require the Python package procrastinate, which is not installed.",
                remedy=INSTALL,
            ) from error
        if not self._has_tables:
            procrastinate_jobs.prepare_queue_tables(transaction)
            self._has_tables = True
        return procrastinate_jobs.ProcrastinateJobs(transaction, self._queue_name)

    def _find_jobs(
        self, transaction: TableTransaction, tasks: Sequence[str], seconds: float = 0.0
    ) -> list[_FoundJob]:
        """Find the jobs of tasks. `seconds`: how far from now the found `time` is."""
        rows = self._run_queue_statement(
            transaction, "find_jobs", seconds, self._space, list(tasks)
        )
        return [_FoundJob(*row) for row in rows]

    def _run_queue_statement(self, transaction: TableTransaction, name: str, *values: Any) -> Rows:
        (rows,) = transaction.run_all([(_SQL[name], values)])
        return rows
