"""The queue of one computer: a row of its list of tasks is in it by its state and its time alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from helix_desktop.store.fleet_statements import TableTransaction
from helix_desktop.store.fleet_task_files import SqliteTaskTables
from helix_desktop.store.row_task_queue import RowTaskQueue
from helix_desktop.store.task_queue import QueueCounts

T = TypeVar("T")


class QueueInFile:
    """The queue, and rows as the list of tasks writes them."""

    def __init__(self, tables: SqliteTaskTables) -> None:
        self.tables = tables
        self.queue = RowTaskQueue()

    def add_row(
        self,
        name: str,
        state: str = "waiting",
        *,
        priority: int = 0,
        until: float = 0,
        **given: float,
    ) -> None:
        columns = {"deadline": 0.0, "open_needs": 0, **given}
        statement = (
            "INSERT INTO tasks(space, id, state, priority, added, deadline, worker, until, claims,"
            " sealed, result, open_needs) VALUES (X'', ?, ?, ?, 0, ?, '', ?, 0, X'', X'', ?)"
        )
        values = (name, state, priority, columns["deadline"], until, columns["open_needs"])
        self.run(lambda transaction: transaction.run_all([(statement, values)]))

    def run(self, work: Callable[[TableTransaction], T]) -> T:
        return self.tables._run_and_commit(work)

    def take(self, limit: int = 10) -> list[str]:
        return self.run(lambda transaction: self.queue.pop_tasks(transaction, limit))

    def seconds_until_next(self) -> float | None:
        return self.run(self.queue.seconds_until_next_task)


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[QueueInFile]:
    tables = SqliteTaskTables(tmp_path / "tasks.sqlite3")
    yield QueueInFile(tables)
    tables.close()


def test_what_may_run_comes_by_priority_and_then_by_age(queue: QueueInFile) -> None:
    queue.add_row("first")
    queue.add_row("second")
    queue.add_row("urgent", priority=1)
    queue.add_row("taken", "running")
    queue.add_row("later", until=time.time() + 3_600)
    queue.add_row("needs another", open_needs=1)
    queue.add_row("too late", deadline=1.0)
    assert queue.take() == ["urgent", "first", "second"]
    assert queue.take(limit=1) == ["urgent"]


def test_a_task_that_is_given_back_waits_and_is_the_next_one(queue: QueueInFile) -> None:
    assert queue.seconds_until_next() is None
    queue.add_row("first")
    assert queue.seconds_until_next() is None  # It may run now.
    queue.run(lambda transaction: queue.queue.give_back_task(transaction, "first", 60))
    assert queue.take() == []
    seconds = queue.seconds_until_next()
    assert seconds is not None
    assert 50 < seconds <= 60
    queue.run(lambda transaction: queue.queue.give_back_task(transaction, "first", 0))
    assert queue.take() == ["first"]


def test_an_empty_queue_has_nothing_of_any_kind(queue: QueueInFile) -> None:
    assert queue.run(queue.queue.count_tasks) == QueueCounts(waiting=0, taken=0, set_aside=0)


def test_tasks_are_counted_by_what_becomes_of_them(queue: QueueInFile) -> None:
    for name in ("a", "b", "c"):
        queue.add_row(name)
    for name in ("d", "e"):
        queue.add_row(name, "running")
    queue.add_row("f", "dead-letter")
    queue.add_row("not in it yet", open_needs=1)
    assert queue.run(queue.queue.count_tasks) == QueueCounts(waiting=3, taken=2, set_aside=1)
