"""The page of the computers that run tasks: what can be done with the one that is chosen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, cast

import pytest
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.fleet.fleet_computers_page import FleetComputersPage
from helix_desktop.gui.fleet.fleet_page_parts import FleetPageParts
from helix_desktop.gui.theme import Theme

QUIET = {"workspace": "w1", "name": "Thesis", "workers": {}, "lost": [], "draining": []}


class Fleet:
    """Keeps what is asked of it. It is the desk and its own list of tasks as well."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []
        self.fleet = self.notes = self

    async def do_tasks_here(self, workspace: str) -> None:
        self.asked.append(("here", workspace))

    async def run_on_task_list(self, workspace: str, work: Callable[[Any], Any]) -> None:
        self.asked.append(("list", workspace))
        await work(self)

    async def drain_workers(self, worker: str) -> None:
        self.asked.append(("drain", worker))


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def page(theme: Theme, fleet: Fleet) -> Iterator[FleetComputersPage]:
    def run_work(work: Coroutine[Any, Any, Any], _then: object = None, /) -> None:
        asyncio.run(work)

    def open_nothing(_workspace: str, _conversation: str) -> None:
        raise AssertionError

    parts = FleetPageParts(cast(Any, fleet), {"w1": "Thesis"}, open_nothing, open_nothing, run_work)
    parent = QWidget()
    yield FleetComputersPage(parts, parent)
    parent.close()


@pytest.mark.parametrize(
    ("figures", "can_run_here"),
    [({}, False), ({"waiting": [1]}, True), ({"lost": ["old 1.1"]}, True)],
)
def test_tasks_that_wait_or_whose_worker_is_gone_can_be_run_here(
    page: FleetComputersPage, fleet: Fleet, figures: dict[str, Any], can_run_here: bool
) -> None:
    other = {**QUIET, "workspace": "w2"}
    page.show_computers_of_fleet([{**QUIET, **figures}, other])
    assert page.run_here.isEnabled() == can_run_here
    assert page.has_computers() == can_run_here
    page.run_here.click()
    assert fleet.asked == [("here", "w1")] * can_run_here


def test_the_chosen_worker_is_told_to_finish_once_and_one_that_is_told_already_is_not(
    page: FleetComputersPage, fleet: Fleet
) -> None:
    figures = {**QUIET, "workers": {"a 1": 1, "b 2": 0}, "draining": ["b 2"]}
    page.show_computers_of_fleet([figures])
    assert page.has_computers()
    page.worker_list.choose_row("w1 a 1")
    assert page.drain.isEnabled()
    page.drain.click()
    assert fleet.asked == [("list", "w1"), ("drain", "a 1")]
    page.worker_list.choose_row("w1 b 2")
    assert not page.drain.isEnabled()


def test_a_computer_that_can_run_nothing_cannot_be_told_to_finish(
    page: FleetComputersPage,
) -> None:
    page.show_computers_of_fleet([{**QUIET, "unable": ["lap: No model."]}])
    page.worker_list.choose_row("w1 lap: No model.")
    assert not page.drain.isEnabled()
    page.show_computers_of_fleet([{"workspace": "w2", "name": "Site", "trouble": "away"}])
    assert not page.drain.isEnabled()
    assert not page.run_here.isEnabled()
