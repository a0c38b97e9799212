"""What becomes of tasks that have ended: how long they stay in the list, and how a text is
removed from them for good.
"""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.content_age import DOUBTED_PAUSES, LONGEST_CERTAIN_PAUSE
from helix_desktop.store.fleet_statements import TableTransaction
from helix_desktop.store.fleet_task_reading import FleetTaskReader
from helix_desktop.store.fleet_tasks import (
    ENDED,
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    TaskRetention,
)

REMOVED_AT_ONCE = 1_000
LISTED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class BlankedTasks:
    """How many tasks were changed, and the ids of those that workers still have."""

    number_changed: int
    running_ids: tuple[str, ...]


class FleetTaskHistory(FleetTaskReader):
    """Removes old tasks, and texts from all tasks."""

    async def remove_old_tasks(self, retention: TaskRetention) -> int:
        """Remove tasks from the history that ended too long ago, and the oldest if there
        are too many. Their conversations stay. Return how many were removed.
        """
        counts = await self.count_fleet_tasks()
        number_ended = sum(counts.by_state[state] for state in ENDED)
        certain_seconds = await self._age_that_is_certain(retention.seconds)
        removed = await self._remove_ended_before(certain_seconds, number_ended)
        too_many = number_ended - removed - retention.tasks
        removed += await self._remove_ended_before(0.0, too_many)
        if removed:
            forget_needs = self._statement("remove_needs_of_unknown", self._space)
            await self._run_statements([forget_needs])
        return removed

    async def _age_that_is_certain(self, seconds: float) -> float:
        """Return from which age by the clock on a task is certainly older than so many seconds.

        A long pause in which nothing ended may be a clock that was set forward, and no time that
        really passed. It does not count then.
        """
        age = seconds
        for _ in range(DOUBTED_PAUSES):
            question = self._statement("pause_at_age", self._space, age, self._space, age)
            (rows,) = await self._run_statements([question])
            ((pause_seconds,),) = rows
            if pause_seconds is None or pause_seconds < LONGEST_CERTAIN_PAUSE:
                break
            age += float(pause_seconds)
        return age

    async def _remove_ended_before(self, seconds: float, most: int) -> int:
        """Remove up to `most` tasks that ended that many seconds ago, the oldest first.
        Return how many were removed.
        """
        removed = 0
        while removed < most:
            limit = min(REMOVED_AT_ONCE, most - removed)
            remove = self._statement("remove_old", self._space, self._space, seconds, limit)
            (rows,) = await self._run_statements([remove])
            if not rows:
                break
            removed += len(rows)
        return removed

    async def blank_texts_of_tasks(self, blank: Callable[[str], str]) -> BlankedTasks:
        """Forget a text in tasks and results."""
        number_changed = 0
        running_ids: list[str] = []
        async for task in self._iterate_tasks():
            blank_order = _blank_order(task.order, blank)
            blank_result = _blank_result(task.result, blank)
            if blank_order == task.order and blank_result == task.result:
                continue

            sealed_order = self._codec.encode_order(task.id, blank_order)
            sealed_result = self._codec.encode_result(task.id, blank_result)
            values = (sealed_order, sealed_result, self._space, task.id, task.claims)
            blank_live = self._statement("blank_live", *values)
            blank_ended = self._statement("blank_ended", *values)
            live, ended = await self._run_statements([blank_live, blank_ended])
            if live or ended:
                number_changed += 1
            else:  # A worker has the task, and would write its texts again.
                running_ids.append(task.id)
        return BlankedTasks(number_changed, tuple(running_ids))

    async def remove_copy_of_0_2(self) -> None:
        """Remove the copy of this workspace's tasks that was kept in the shared store when
        the tasks of version 0.2 were taken over. It cannot be searched for a text.
        """
        space = self._space

        def remove_copied_rows(transaction: TableTransaction) -> None:
            (rows,) = transaction.run_all([self._statement("find_copy")])
            ((copy_table,),) = rows
            if copy_table is not None:
                removals = [
                    self._statement("remove_tasks_of_copy", space),
                    self._statement("remove_needs_of_copy", space),
                ]
                transaction.run_all(removals)

        if self.is_shared:  # The copy of a file is a file.
            await self._run_in_transaction(remove_copied_rows)

    async def _iterate_tasks(self) -> AsyncIterator[FleetTask]:
        """Yield all tasks, newest first, a page at a time."""
        page = await self.list_fleet_tasks(limit=LISTED_AT_ONCE)
        while page:
            for task in page:
                yield task
            page = await self.list_fleet_tasks(limit=LISTED_AT_ONCE, before=page[-1].position)


def _blank_order(order: FleetTaskOrder, blank: Callable[[str], str]) -> FleetTaskOrder:
    allowed = [blank(permission) for permission in order.allowed]
    return replace(order, text=blank(order.text), allowed=tuple(allowed))


def _blank_result(result: FleetTaskResult, blank: Callable[[str], str]) -> FleetTaskResult:
    why = blank(result.why)
    answer = blank(result.answer)
    asked = blank(result.asked)
    return replace(result, why=why, answer=answer, asked=asked)
