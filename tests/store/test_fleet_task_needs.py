"""Tasks that wait for each other: in which order they are added, and what is refused."""

from __future__ import annotations

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.store.fleet_task_needs import IdentifiedTask, sort_needed_tasks_first
from helix_desktop.store.fleet_tasks import FleetTaskOrder, NewFleetTask


def task(identity: str, *needs: str) -> IdentifiedTask:
    return IdentifiedTask(identity, needs, NewFleetTask(FleetTaskOrder("x")))


@pytest.mark.parametrize(
    ("tasks", "order"),
    [
        ([], ""),
        ([task("a"), task("b"), task("c")], "abc"),
        ([task("c", "b"), task("b", "a"), task("a")], "abc"),
        ([task("d", "a", "b"), task("b"), task("a"), task("c")], "bacd"),
        ([task("a", "elsewhere"), task("b", "a", "elsewhere")], "ab"),
    ],
)
def test_each_task_follows_those_it_waits_for_and_otherwise_keeps_its_place(
    tasks: list[IdentifiedTask], order: str
) -> None:
    assert "".join(one.id for one in sort_needed_tasks_first(tasks)) == order


@pytest.mark.parametrize(
    "tasks",
    [
        [task("a", "a")],
        [task("a", "b"), task("b", "a")],
        [task("x"), task("a", "b"), task("b", "a")],
    ],
)
def test_a_circle_is_refused_as_it_would_never_start(tasks: list[IdentifiedTask]) -> None:
    with pytest.raises(InvalidInput, match="depend on each other in a circle"):
        sort_needed_tasks_first(tasks)
