"""What the window sees of tasks, also of workspaces that are not open, and how it gives and does them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helix_desktop.store.fleet_task_files import NAME, open_fleet_task_list
from helix_desktop.store.fleet_tasks import FleetTaskOrder, NewFleetTask
from helix_desktop.workbench.fleet_overview import FleetOverview
from tests.peers.chat_server import reply
from tests.workbench.conftest import Desks
from tests.workbench.test_fleet_worker import CALL, place

Found = list[Mapping[str, Any]]


async def seen(fleet: FleetOverview, what: Callable[[Found], bool]) -> Found:
    """What it shows once this is so."""
    shown: asyncio.Future[Found] = asyncio.get_running_loop().create_future()

    def show(found: Found) -> None:
        if what(found) and not shown.done():
            shown.set_result(found)

    following = asyncio.ensure_future(fleet.follow_fleet(show))  # noqa: TID251
    try:
        return await asyncio.wait_for(shown, 60)
    finally:
        following.cancel()


async def test_a_task_given_here_is_done_here_and_asks_for_what_it_needs(desks: Desks, folder: Path) -> None:
    desk = desks()
    async with place(lambda: desk, folder, CALL, CALL, reply("It is made.")) as (bench, _, _):
        fleet = desk.fleet
        await fleet.add_task(bench.id, "make it", ())
        (found,) = await seen(fleet, lambda found: bool(found[0]["needs_you"]))
        (task,) = found["needs_you"]
        assert (task["asked"], found["tasks"]["needs-you"], found["name"]) == ("write_file", 1, "Tasks")
        await fleet.retry_task(bench.id, task["id"], ["write_file"])
        (found,) = await seen(fleet, lambda found: bool(found[0]["done"]))
        assert (found["done"][0]["answer"], found["done"][0]["allow"]) == ("It is made.", ("write_file",))
        assert (folder / "made.txt").read_text() == "made"


async def test_a_closed_workspace_is_read_and_changed_without_being_opened(desks: Desks, folder: Path) -> None:
    desk = desks()
    bench = await desk.create_workspace("Tasks", folder)
    other = await desk.create_workspace("Without", folder)
    async with open_fleet_task_list(bench.workspace) as tasks:
        (task,) = await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("one"))])
        await tasks.notes.renew_worker_and_tell_if_draining("build 1.1", 3_600)
    await desk.close_workspace(bench.id)
    (found,) = await seen(desk.fleet, bool)
    assert (found["workspace"], found["workers"], found["waiting"][0]["text"]) == (bench.id, {"build 1.1": 0}, "one")
    assert await desk.fleet.run_on_task_list(bench.id, lambda tasks: tasks.cancel_fleet_task(task))
    await seen(desk.fleet, lambda found: found[0]["tasks"]["cancelled"] == 1)
    assert [one.id for one in desk.opened_workbenches()] == [other.id]
    assert not (other.workspace.folder / NAME).exists()


async def test_only_what_changed_is_read_again(desks: Desks, folder: Path) -> None:
    async with place(desks, folder) as (_, tasks, _):
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("one"))])
        before = await tasks.read_fingerprint()
        assert await tasks.read_fingerprint() == before
        await tasks.claim_fleet_tasks("me", 1, 30)
        assert await tasks.read_fingerprint() != before
