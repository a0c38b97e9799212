"""What every queue of tasks does, verb by verb: that of a file, procrastinate's, and the same
behind PgBouncer. `test_fleet_task_list` tries them below the list, with many workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from helix_desktop.store.fleet_statements import TableTransaction
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import FleetTaskOrder, NewFleetTask
from helix_desktop.store.task_queue import QueueCounts, TaskQueue
from tests.store.shared.test_fleet_task_list import change_row, let_be_tried_now, tasks

__all__ = ["tasks"]  # A fixture.
T = TypeVar("T")


class Queue:
    """The queue of a list, with each verb in a transaction of its own. Who takes a task
    also says so in its row, as the list does.
    """

    def __init__(self, of: FleetTaskList) -> None:
        self._list = of
        self._queue: TaskQueue = of._queue

    async def run(self, work: Callable[[TableTransaction, TaskQueue], T]) -> T:
        return await self._list._run_in_transaction(lambda change: work(change, self._queue))

    async def take(self, limit: int) -> list[str]:
        taken = await self.run(lambda change, queue: queue.pop_tasks(change, limit))
        for task in taken:
            await self.set_state(task, "running")
        return taken

    async def give_back(self, task: str, seconds: float) -> None:
        await self.set_state(task, "waiting")
        await self.run(lambda change, queue: queue.give_back_task(change, task, seconds))

    async def set_aside(self, task: str) -> None:
        await self.set_state(task, "dead-letter")
        await self.run(lambda change, queue: queue.set_task_aside(change, task))

    async def finish(self, *names: str) -> None:
        await self.run(lambda change, queue: queue.finish_tasks(change, names))
        for task in names:
            await self.set_state(task, "needs-you")

    async def count(self) -> QueueCounts:
        return await self.run(lambda change, queue: queue.count_tasks(change))

    async def set_state(self, task: str, state: str) -> None:
        await change_row(self._list, "state = %s WHERE id = %s", state, task)


def new(priority: int = 0) -> NewFleetTask:
    return NewFleetTask(FleetTaskOrder("x"), priority=priority)


async def test_tasks_are_taken_once_by_priority_then_age(tasks: FleetTaskList) -> None:
    first, second, urgent, low = await tasks.add_fleet_tasks([new(), new(), new(9), new(-1)])
    queue = Queue(tasks)
    assert await queue.take(1) == [urgent]
    assert await queue.take(2) == [first, second]
    assert await queue.take(9) == [low]
    assert await queue.take(9) == []
    assert await queue.count() == QueueCounts(waiting=0, taken=4, set_aside=0)


async def test_what_is_given_back_is_taken_again_when_its_time_has_come(
    tasks: FleetTaskList,
) -> None:
    one, two = await tasks.add_fleet_tasks([new(), new()])
    queue = Queue(tasks)
    await queue.take(2)
    await queue.give_back(one, 100.0)
    await queue.give_back(two, 0.0)
    assert await queue.take(9) == [two]
    seconds = await tasks.seconds_until_next_try()
    assert seconds is not None
    assert 90 < seconds <= 100
    await let_be_tried_now(tasks)
    assert await queue.take(9) == [one]


async def test_what_is_set_aside_is_not_taken_before_it_is_given_back(
    tasks: FleetTaskList,
) -> None:
    (task,) = await tasks.add_fleet_tasks([new()])
    queue = Queue(tasks)
    await queue.take(1)
    await queue.set_aside(task)
    assert await queue.count() == QueueCounts(waiting=0, taken=0, set_aside=1)
    assert await queue.take(9) == []
    await queue.give_back(task, 0.0)
    assert await queue.take(9) == [task]


async def test_what_is_finished_leaves_the_queue_and_can_come_back(
    tasks: FleetTaskList,
) -> None:
    taken, waiting, aside = await tasks.add_fleet_tasks([new(1), new(), new(2)])
    queue = Queue(tasks)
    assert await queue.take(2) == [aside, taken]
    await queue.set_aside(aside)
    await queue.finish(taken, waiting, aside)
    assert await queue.count() == QueueCounts(0, 0, 0)
    assert await queue.take(9) == []
    await queue.give_back(waiting, 0.0)
    assert await queue.take(9) == [waiting]
