"""The queue of one computer: each row of its list of tasks says by itself when it may run.

So a task is in the queue as soon as its row is there, and leaves it with its row.
"""

from collections.abc import Sequence

from helix_desktop.resources import read_sql_statements
from helix_desktop.store.fleet_statements import SQLITE, Rows, TableTransaction
from helix_desktop.store.task_queue import QueueCounts, QueuedTask

ONE_SPACE = b""  # A file has the tasks of one workspace.
_SQL = read_sql_statements("row_task_queue_statements")


class RowTaskQueue:
    """task_queue.TaskQueue in the rows of the tasks in a file."""

    def add_tasks(self, transaction: TableTransaction, tasks: Sequence[QueuedTask]) -> None:
        """Do nothing: the rows are there already."""

    def pop_tasks(self, transaction: TableTransaction, limit: int) -> list[str]:
        rows = self._query_task_rows(transaction, "pick", ONE_SPACE, limit)
        return [task for (task,) in rows]

    def give_back_task(self, transaction: TableTransaction, task: str, seconds: float) -> None:
        self._query_task_rows(transaction, "give_back", seconds, ONE_SPACE, task)

    def set_task_aside(self, transaction: TableTransaction, task: str) -> None:
        """Do nothing: the row's state says it."""

    def finish_tasks(self, transaction: TableTransaction, tasks: Sequence[str]) -> None:
        """Do nothing: the rows leave the table, or their state says it."""

    def seconds_until_next_task(self, transaction: TableTransaction) -> float | None:
        ((seconds,),) = self._query_task_rows(transaction, "next", ONE_SPACE)
        if seconds is None:
            return None
        return float(seconds)

    def count_tasks(self, transaction: TableTransaction) -> QueueCounts:
        count_by_state: dict[str, int] = {}
        for state, count in self._query_task_rows(transaction, "count", ONE_SPACE):
            count_by_state[state] = int(count)
        return QueueCounts(
            waiting=count_by_state.get("waiting", 0),
            taken=count_by_state.get("running", 0),
            set_aside=count_by_state.get("dead-letter", 0),
        )

    def _query_task_rows(self, transaction: TableTransaction, name: str, *values: object) -> Rows:
        (rows,) = transaction.run_all([SQLITE.build_statement(_SQL[name], *values)])
        return rows
