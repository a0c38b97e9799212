"""Tasks to add, and in which order, as a task may wait for others of them."""

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.fleet_tasks import NewFleetTask


@dataclass(frozen=True, slots=True)
class IdentifiedTask:
    """A task to add, with its id and the ids of the tasks that it waits for."""

    id: str
    needs: tuple[str, ...]
    new: NewFleetTask


def sort_needed_tasks_first(tasks: Sequence[IdentifiedTask]) -> list[IdentifiedTask]:
    """Return the tasks so that each follows those it waits for, otherwise in their order.

    A task whose need is not in the list yet would start too early.
    """
    added_ids = {task.id for task in tasks}
    sorter = TopologicalSorter[str]()
    for task in tasks:
        # Needs that are in the list already are no matter here.
        sorter.add(task.id, *added_ids.intersection(task.needs))
    try:
        sorter.prepare()
    except CycleError as error:
        raise InvalidInput(
            "Some of these tasks depend on each other in a circle, so they would never start.",
            remedy="Nothing was added.",
        ) from error
    in_order: list[IdentifiedTask] = []
    while sorter.is_active():
        ready_ids = set(sorter.get_ready())
        for task in tasks:
            if task.id in ready_ids:
                in_order.append(task)
        sorter.done(*ready_ids)
    return in_order
