"""Moves the tasks of a workspace that is shared now from the file of its folder to the list that
the computers share, where alone workers look.
"""

from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_task_needs import IdentifiedTask
from helix_desktop.store.fleet_tasks import UNREADABLE, FleetTask, FleetTaskState, NewFleetTask

# All that have not ended and do not run. A task that waited for a person waits for a worker
# again, which asks once more.
MOVED_STATES = (FleetTaskState.WAITING, FleetTaskState.NEEDS_YOU, FleetTaskState.DEAD_LETTER)
PASSED_DEADLINE_SECONDS = 0.001


async def move_tasks_and_budgets(earlier: FleetTaskList, shared: FleetTaskList) -> None:
    """Move the tasks that have not ended, with their IDs, and the budgets.

    While a worker still runs a task of the earlier list, nothing is moved: the next opening of
    the shared list does it.
    """
    await earlier.return_overdue_tasks()
    counts = await earlier.count_fleet_tasks()
    if counts.by_state[FleetTaskState.RUNNING]:
        return

    await _move_budgets(earlier, shared)
    tasks: list[IdentifiedTask] = []
    for state in MOVED_STATES:
        for task in reversed(await earlier.list_fleet_tasks(state, counts.by_state[state])):
            if task.result is not UNREADABLE:
                tasks.append(await _identify_task(earlier, task))
    # Added before they are removed: an interrupted move is done again, and a task that
    # is here already is not added twice.
    await shared.add_identified_tasks(tasks)
    await earlier.remove_moved_tasks([task.id for task in tasks])


async def _move_budgets(earlier: FleetTaskList, shared: FleetTaskList) -> None:
    """Move the limits of scopes that have none yet in the shared list, and drop the others."""
    earlier_state = await earlier.notes.read_state()
    shared_state = await shared.notes.read_state()
    for scope, dollars in earlier_state.limits.items():
        if scope not in shared_state.limits:
            await shared.notes.set_limit(scope, dollars)
        await earlier.notes.set_limit(scope, 0.0)


async def _identify_task(earlier: FleetTaskList, task: FleetTask) -> IdentifiedTask:
    deadline_seconds = task.deadline_seconds
    if deadline_seconds < 0:  # It has passed. 0 would mean that there is none.
        deadline_seconds = PASSED_DEADLINE_SECONDS
    new_task = NewFleetTask(task.order, priority=task.priority, deadline_seconds=deadline_seconds)
    needs = await earlier.list_needs_of_task(task.id)
    return IdentifiedTask(task.id, tuple(needs), new_task)
