"""Whether a worker's lease of a task still holds, and what it may do if it does not."""

from __future__ import annotations

import asyncio

import pytest

from helix_desktop.errors import ActionRefused, StoreBusy, StoreFailed, StoreFull
from helix_desktop.store.fleet_tasks import FleetTask, FleetTaskOrder, FleetTaskState
from helix_desktop.workbench import claimed_fleet_task
from helix_desktop.workbench.claimed_fleet_task import ClaimedFleetTask, LostFleetTask, TaskLease

NOW = 1000.0


def claimed_until(held_until: float) -> ClaimedFleetTask:
    task = FleetTask("0" * 20, FleetTaskState.RUNNING, 0, 0.0, "me", 1, 0.0, FleetTaskOrder("x"))
    return ClaimedFleetTask(task, held_until, 0.0)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claimed_fleet_task, "seconds_since_start_of_computer", lambda: NOW)


async def test_whether_a_lease_holds_is_known_or_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr(claimed_fleet_task, "seconds_since_start_of_computer", lambda: now)
    task = FleetTask("0" * 20, FleetTaskState.RUNNING, 0, 0.0, "me", 1, 0.0, FleetTaskOrder("x"))
    claimed = ClaimedFleetTask(task, now + 30, 0.0)
    await claimed.ensure_held()
    now += 29  # asleep for so long: nobody knows
    waiting = asyncio.ensure_future(claimed.ensure_held())  # noqa: TID251
    await asyncio.sleep(0)
    assert not waiting.done()
    claimed.extend_lease(now + 30)
    await asyncio.wait_for(waiting, 60)
    claimed.lease = TaskLease.CANCELLED
    with pytest.raises(StoreFailed):
        await claimed.ensure_held()


@pytest.mark.parametrize(
    ("to_another", "may_write"), [(True, False), (False, True)], ids=["taken", "cancelled"]
)
async def test_nothing_is_written_once_another_worker_has_the_task(
    *, to_another: bool, may_write: bool
) -> None:
    """After a cancellation nobody else writes, so the end of the turn is recorded."""
    claimed = claimed_until(NOW + 30)
    await claimed.ensure_may_write()
    claimed.lose_lease(to_another=to_another)
    if may_write:
        await claimed.ensure_may_write()
    else:
        with pytest.raises(LostFleetTask):
            await claimed.ensure_may_write()
    with pytest.raises(LostFleetTask):
        await claimed.ensure_held()


async def test_writing_waits_while_nobody_knows_whether_the_lease_holds() -> None:
    claimed = claimed_until(NOW + 1)
    writing = asyncio.ensure_future(claimed.ensure_may_write())  # noqa: TID251
    await asyncio.sleep(0)
    assert not writing.done()
    claimed.extend_lease(NOW + 30)
    await asyncio.wait_for(writing, 60)


async def test_a_worker_that_ends_writes_nothing_that_may_be_beside_another() -> None:
    claimed = claimed_until(NOW + 1)
    claimed.must_be_given_back = True
    with pytest.raises(LostFleetTask):
        await claimed.ensure_may_write()


@pytest.mark.parametrize("trouble", [StoreFull, StoreBusy, ActionRefused])
async def test_work_is_tried_again_until_it_is_done_or_the_task_is_lost(
    monkeypatch: pytest.MonkeyPatch, trouble: type[StoreFailed]
) -> None:
    monkeypatch.setattr(claimed_fleet_task, "AWAY_SECONDS", 0.0)
    claimed = claimed_until(NOW + 30)
    troubles = [trouble("not yet"), trouble("no")]

    async def work() -> str:
        if troubles:
            raise troubles.pop()
        return "done"

    assert await claimed.retry_while_held(work) == "done"
    claimed.lose_lease(to_another=False)
    with pytest.raises(LostFleetTask):
        await claimed.retry_while_held(work)
