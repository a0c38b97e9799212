"""What the pages of the fleet work with, in trials: a desk that keeps what is asked of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from helix_desktop.gui.fleet.fleet_page_parts import FleetPageParts
from helix_desktop.gui.fleet.fleet_rows import ListedTask
from helix_desktop.program_folders import ProgramFolders
from tests.gui.fleet.test_fleet_dialog import Desk, Fleet, task


class Parts:
    """`parts` for a page; `went` and `reviewed`: the conversations that were opened; what is asked of the fleet
    is in `fleet.asked`.
    """

    def __init__(self, places: ProgramFolders) -> None:
        self.desk = Desk(places)
        self.went: list[tuple[str, str]] = []
        self.reviewed: list[tuple[str, str]] = []
        names = {"w1": "Thesis", "w2": "Site"}
        self.parts = FleetPageParts(
            self.desk,
            names,
            lambda *where: self.went.append(where),
            lambda *where: self.reviewed.append(where),
            self._run,
        )

    @property
    def fleet(self) -> Fleet:
        return self.desk.fleet

    def _run(
        self, work: Coroutine[Any, Any, Any], then: Callable[[Any], object] | None = None, /
    ) -> None:
        result = asyncio.run(work)
        if then is not None:
            then(result)


def listed(state: str, number: int = 1, **values: Any) -> ListedTask:
    """A row of the list. `values`: fields of the task that are different."""
    stored_state = state.replace("_", "-")
    workspace = {"workspace": "w1", "name": "Thesis"}
    return ListedTask(state, workspace, {**task(number, stored_state), **values})
