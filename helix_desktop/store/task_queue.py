"""The port between the list of tasks and what hands them out: which task may run now,
and when one that was given back may run again.

The list (`fleet_task_list`) knows tasks' words, needs, budgets and leases. A queue only
knows ids of tasks that can run. There are two: `row_task_queue` for the file of one
computer, and `procrastinate_task_queue` for several computers.
Each method works within a transaction of the list, so that queue and list never differ.
"""

from collections.abc import Sequence
from typing import Protocol

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.fleet_statements import TableTransaction


@dataclass(frozen=True, slots=True)
class QueuedTask:
    """A task that can run. Those with a higher priority come first, then the oldest."""

    id: str
    priority: int


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """`waiting`: tasks that can be taken, now or later. `taken`: those that workers have.
    `set_aside`: those that wait for a person.
    """

    waiting: int
    taken: int
    set_aside: int


class TaskQueue(Protocol):
    def add_tasks(self, transaction: TableTransaction, tasks: Sequence[QueuedTask]) -> None:
        """Let these tasks be taken. What is in the queue already stays as it is."""
        ...

    def pop_tasks(self, transaction: TableTransaction, limit: int) -> list[str]:
        """Take up to `limit` tasks that may run now, so that nobody else takes them."""
        ...

    def give_back_task(self, transaction: TableTransaction, task: str, seconds: float) -> None:
        """Let a task be taken after so many seconds, which was taken, set aside, or is new."""
        ...

    def set_task_aside(self, transaction: TableTransaction, task: str) -> None:
        """Keep a task, but let nobody take it before it is given back."""
        ...

    def finish_tasks(self, transaction: TableTransaction, tasks: Sequence[str]) -> None:
        """Remove tasks that ended, were cancelled, or wait for an answer."""
        ...

    def seconds_until_next_task(self, transaction: TableTransaction) -> float | None:
        """Return when the next task may be taken that was given back, or None without one."""
        ...

    def count_tasks(self, transaction: TableTransaction) -> QueueCounts: ...
