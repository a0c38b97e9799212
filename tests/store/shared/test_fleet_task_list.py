"""One list of tasks in a file, in PostgreSQL, and behind PgBouncer in transaction mode:
the same answers.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pytest

from helix_desktop.errors import AmbiguousName, InvalidInput, NotFound, SharedStoreUnreachable
from helix_desktop.store import fleet_task_list
from helix_desktop.store.fleet_statements import TableTransaction
from helix_desktop.store.fleet_task_files import SqliteTaskTables, open_shared_task_list
from helix_desktop.store.fleet_task_history import BlankedTasks
from helix_desktop.store.fleet_task_list import MOST_LOST_WORKERS, MOST_SETBACKS, FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
    TaskRetention,
)
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.task_queue import QueueCounts

T = TypeVar("T")
SECRET = "the words of the task"


@pytest.fixture(params=["file", "postgres", "pgbouncer"])
async def tasks(
    request: pytest.FixtureRequest, seal: RowCipher, tmp_path: Path
) -> AsyncIterator[FleetTaskList]:
    if request.param == "file":
        tables = SqliteTaskTables(tmp_path / "tasks.sqlite3")
        yield tables.open_list_in_file()
        tables.close()
        return
    peer = "pooler" if request.param == "pgbouncer" else "server"
    engine = PostgresRowStore(request.getfixturevalue(peer).url, seal.space)
    yield open_shared_task_list(engine, seal, asyncio.to_thread)
    engine.close()


def order(text: str = SECRET) -> FleetTaskOrder:
    return FleetTaskOrder(text, allowed=("edits",), budget=0.5)


async def test_a_forgotten_text_leaves_tasks_and_answers_and_running_tasks_are_named(
    tasks: FleetTaskList,
) -> None:
    ended, waiting, running = await tasks.add_fleet_tasks(
        [
            NewFleetTask(order("the pin is hunter2"), priority=2),
            NewFleetTask(order("wait for hunter2")),
            NewFleetTask(order("use hunter2"), priority=1),
        ]
    )
    (first,) = await tasks.claim_fleet_tasks("one", 1, 30)
    await tasks.end_fleet_task(
        first, FleetTaskState.DONE, FleetTaskResult("done", answer="hunter2 works")
    )
    await tasks.claim_fleet_tasks("two", 1, 30)
    blanked = await tasks.blank_texts_of_tasks(lambda text: text.replace("hunter2", "[removed]"))
    assert blanked == BlankedTasks(2, (running,))
    found = {task.id: task for task in await tasks.list_fleet_tasks()}
    assert (found[ended].order.text, found[ended].result.answer) == (
        "the pin is [removed]",
        "[removed] works",
    )
    assert found[ended].state is FleetTaskState.DONE
    assert found[waiting].order == order("wait for [removed]")
    assert found[running].order.text == "use hunter2"


async def test_many_workers_claim_each_task_once(tasks: FleetTaskList) -> None:
    ids = await tasks.add_fleet_tasks([NewFleetTask(order(f"task {n}")) for n in range(300)])
    claimed = await asyncio.gather(
        *(tasks.claim_fleet_tasks(f"worker {n % 7}", 10, 30) for n in range(40))
    )
    found = [task.id for some in claimed for task in some]
    assert len(found) == len(set(found))
    while more := await tasks.claim_fleet_tasks("the last", 50, 30):
        found += [task.id for task in more]
    assert sorted(found) == sorted(ids)


async def test_workers_that_start_at_once_do_not_take_each_other_for_a_standby(
    tasks: FleetTaskList,
) -> None:
    """Each notes the server's timeline, which nobody has noted before."""
    for _ in range(20):
        await tasks._run_statements(
            [tasks._dialect.build_statement("DELETE FROM {t}notes WHERE space = %s", tasks._space)]
        )
        assert (
            await asyncio.gather(*(tasks.claim_fleet_tasks(f"worker {n}", 1, 30) for n in range(8)))
            == [[]] * 8
        )


async def test_a_claim_has_the_order_and_goes_by_priority_then_age(tasks: FleetTaskList) -> None:
    usual, first, second = await tasks.add_fleet_tasks(
        [
            NewFleetTask(order("usual")),
            NewFleetTask(order("first"), priority=5),
            NewFleetTask(order("second"), priority=5),
        ]
    )
    claimed = [(await tasks.claim_fleet_tasks("me", 1, 30))[0] for _ in range(3)]
    assert [task.id for task in claimed] == [first, second, usual]
    assert claimed[0].order == order("first")
    assert (claimed[0].state, claimed[0].worker, claimed[0].claims) == (
        FleetTaskState.RUNNING,
        "me",
        1,
    )


async def test_a_lease_that_ended_goes_to_another_and_the_first_changes_nothing_any_more(
    tasks: FleetTaskList,
) -> None:
    await tasks.add_fleet_tasks([NewFleetTask(order())])
    (mine,) = await tasks.claim_fleet_tasks("slow", 1, -1)
    (taken,) = await tasks.claim_fleet_tasks("next", 1, 30)
    assert (taken.id, taken.claims) == (mine.id, 2)
    assert await tasks.renew_leases_of_tasks([mine], 30) == frozenset()
    assert not await tasks.end_fleet_task(mine, FleetTaskState.DONE, FleetTaskResult())
    assert await tasks.renew_leases_of_tasks([taken], 30) == {taken.id}
    assert await tasks.end_fleet_task(
        taken, FleetTaskState.DONE, FleetTaskResult(answer="42", cost=0.25)
    )
    assert not await tasks.end_fleet_task(taken, FleetTaskState.FAILED, FleetTaskResult())
    done = await tasks.find_fleet_task(mine.id)
    assert (done.state, done.result) == (
        FleetTaskState.DONE,
        FleetTaskResult(answer="42", cost=0.25),
    )
    assert await tasks.claim_fleet_tasks("next", 1, 30) == []


async def test_a_claim_that_a_standby_lost_is_renewed_before_its_number_is_given_to_another(
    tasks: FleetTaskList,
) -> None:
    await tasks.add_fleet_tasks([NewFleetTask(order())])
    (mine,) = await tasks.claim_fleet_tasks("me", 1, 30)
    for lost in (
        "UPDATE {t}tasks SET state = 'waiting', worker = '', claims = claims - 1, until = 0 WHERE space = %s",
        "UPDATE {t}notes SET amount = amount - 1 WHERE space = %s AND name = 'timeline'",
    ):
        await tasks._run_statements([tasks._dialect.build_statement(lost, tasks._space)])
    for _ in range(2):
        with pytest.raises(SharedStoreUnreachable):
            await tasks.claim_fleet_tasks("other", 1, 30)
    assert await tasks.renew_leases_of_tasks([mine], 30) == {mine.id}
    over = "UPDATE {t}notes SET until = 1 WHERE space = %s AND name = 'timeline'"
    await tasks._run_statements([tasks._dialect.build_statement(over, tasks._space)])
    assert await tasks.claim_fleet_tasks("other", 1, 30) == []
    assert not await tasks.end_fleet_task(
        replace(mine, worker="other"), FleetTaskState.DONE, FleetTaskResult()
    )
    (again,) = await tasks.add_fleet_tasks([NewFleetTask(order())])
    assert [task.id for task in await tasks.claim_fleet_tasks("other", 1, 30)] == [again]
    assert (await tasks.find_fleet_task(mine.id)).worker == "me"


async def test_a_key_adds_a_task_once(tasks: FleetTaskList) -> None:
    one, again = [
        (await tasks.add_fleet_tasks([NewFleetTask(order(), key="monday")]))[0] for _ in range(2)
    ]
    assert one == again
    assert [task.id for task in await tasks.list_fleet_tasks()] == [one]


async def test_a_key_that_is_given_twice_in_one_call_is_one_task_with_the_first_ones_needs(
    tasks: FleetTaskList,
) -> None:
    need, first, again = await tasks.add_fleet_tasks(
        [
            NewFleetTask(order("need"), key="need"),
            NewFleetTask(order("first"), key="same"),
            NewFleetTask(order("again"), key="same", after=("need",)),
        ]
    )
    assert first == again
    claimed = await tasks.claim_fleet_tasks("me", 9, 30)
    assert {task.id: task.order.text for task in claimed} == {need: "need", first: "first"}


async def test_a_task_waits_for_others_and_is_cancelled_when_one_fails(
    tasks: FleetTaskList,
) -> None:
    (need,) = await tasks.add_fleet_tasks([NewFleetTask(order("need"))])
    after, last = await tasks.add_fleet_tasks(
        [
            NewFleetTask(order("after"), key="a", after=(need,)),
            NewFleetTask(order("last"), after=(tasks.task_id_of_key("a"),)),
        ]
    )
    (claimed,) = await tasks.claim_fleet_tasks("me", 5, 30)
    assert claimed.id == need
    await tasks.end_fleet_task(claimed, FleetTaskState.DONE, FleetTaskResult())
    (claimed,) = await tasks.claim_fleet_tasks("me", 5, 30)
    assert claimed.id == after
    await tasks.end_fleet_task(claimed, FleetTaskState.FAILED, FleetTaskResult("It broke."))
    assert await tasks.claim_fleet_tasks("me", 5, 30) == []
    given_up = await tasks.find_fleet_task(last)
    assert given_up.state is FleetTaskState.CANCELLED
    assert "waiting for a task that failed" in given_up.result.why
    with pytest.raises(NotFound):
        await tasks.add_fleet_tasks([NewFleetTask(order(), after=("0" * 20,))])


async def test_a_task_says_for_how_many_others_it_still_waits(tasks: FleetTaskList) -> None:
    first, second, last = await tasks.add_fleet_tasks(
        [
            NewFleetTask(order("first"), key="first"),
            NewFleetTask(order("second"), key="second"),
            NewFleetTask(order("last"), after=("first", "second")),
        ]
    )
    assert (await tasks.find_fleet_task(last)).open_needs == 2
    for still_open in (1, 0):
        (claimed,) = await tasks.claim_fleet_tasks("me 1.1", 1, 60.0)
        assert claimed.id in (first, second)
        assert await tasks.end_fleet_task(claimed, FleetTaskState.DONE, FleetTaskResult())
        assert (await tasks.find_fleet_task(last)).open_needs == still_open
    (listed,) = await tasks.list_fleet_tasks("waiting")
    assert (listed.id, listed.open_needs) == (last, 0)


async def test_a_deadline_that_passed_fails_the_task(tasks: FleetTaskList) -> None:
    soon, late = await tasks.add_fleet_tasks(
        [NewFleetTask(order(), deadline_seconds=1e-6), NewFleetTask(order(), deadline_seconds=3600)]
    )
    await asyncio.sleep(0.01)  # the database's clock goes on
    (claimed,) = await tasks.claim_fleet_tasks("me", 5, 30)
    assert claimed.id == late
    assert 3000 < claimed.deadline_seconds <= 3600
    assert (await tasks.find_fleet_task(soon)).state is FleetTaskState.FAILED


async def test_a_task_keeps_what_it_has_cost_whoever_ends_it(tasks: FleetTaskList) -> None:
    """A task was stopped at its question: its cost became a dash, and the sum still had it."""
    await tasks.add_fleet_tasks([NewFleetTask(order()), NewFleetTask(order())])
    asking, failing = await tasks.claim_fleet_tasks("me", 2, 30)
    paid = FleetTaskResult("It asks.", cost=0.0013)
    assert await tasks.end_fleet_task(asking, FleetTaskState.NEEDS_YOU, paid)
    assert await tasks.cancel_fleet_task(asking.id)
    cancelled = await tasks.find_fleet_task(asking.id)
    assert (cancelled.state, cancelled.result.cost) == (FleetTaskState.CANCELLED, 0.0013)
    assert not await tasks.cancel_fleet_task("0" * 20)

    assert await tasks.end_fleet_task(failing, FleetTaskState.WAITING, replace(paid, why="later"))
    (again,) = await tasks.claim_fleet_tasks("me", 1, 30)
    broken = FleetTaskResult("It broke.")
    assert await tasks.end_fleet_task(again, FleetTaskState.FAILED, broken)
    assert (await tasks.find_fleet_task(failing.id)).result.cost == 0.0013
    assert (await tasks.count_fleet_tasks()).dollars == pytest.approx(2 * 0.0013)


async def test_what_was_cancelled_is_lost_to_its_worker_and_can_be_tried_again(
    tasks: FleetTaskList,
) -> None:
    await tasks.add_fleet_tasks([NewFleetTask(order())])
    (mine,) = await tasks.claim_fleet_tasks("me", 1, 30)
    assert await tasks.cancel_fleet_task(mine.id)
    assert not await tasks.cancel_fleet_task(mine.id)
    assert await tasks.renew_leases_of_tasks([mine], 30) == frozenset()
    assert await tasks.retry_fleet_task(mine, ["run_command"])
    assert not await tasks.retry_fleet_task(mine)
    (again,) = await tasks.claim_fleet_tasks("me", 1, 30)
    assert (again.id, again.claims, again.order.allowed) == (
        mine.id,
        2,
        (*mine.order.allowed, "run_command"),
    )


async def test_lists_and_counts_and_names(tasks: FleetTaskList) -> None:
    ids = await tasks.add_fleet_tasks([NewFleetTask(order(str(n))) for n in range(3)])
    await tasks.claim_fleet_tasks("me", 1, 30)
    assert [task.id for task in await tasks.list_fleet_tasks()] == ids[::-1]
    assert [task.order.text for task in await tasks.list_fleet_tasks("running")] == ["0"]
    counts = await tasks.count_fleet_tasks()
    states = counts.by_state
    assert (states["waiting"], states["running"], states["done"]) == (2, 1, 0)
    assert counts.by_worker == {"me": 1}
    with pytest.raises(AmbiguousName):
        await tasks.find_fleet_task(ids[0][:4])
    with pytest.raises(InvalidInput):
        await tasks.find_fleet_task("no id; DROP")


async def test_notes_say_who_works_and_what_is_left(tasks: FleetTaskList) -> None:
    notes = tasks.notes
    assert not await notes.renew_worker_and_tell_if_draining("a", 30)
    assert not await notes.renew_worker_and_tell_if_draining("gone", -1)
    assert not await notes.renew_worker_and_tell_if_draining("b 1.2", 30)
    assert await notes.drain_workers("b 1.2") == 1
    assert (await notes.read_state()).workers == {"a": False, "b 1.2": True}
    assert await notes.renew_worker_and_tell_if_draining("b 1.2", 30)
    await notes.remove_worker("b 1.2")
    assert await notes.drain_workers() == 1
    assert (await notes.read_state()).workers == {"a": True}
    await notes.pause_provider("peer", 30)
    await notes.pause_provider("other", -1)
    assert (await notes.read_state()).paused == ("peer",)


async def test_a_machine_says_only_what_keeps_it_from_working_now(tasks: FleetTaskList) -> None:
    notes = tasks.notes
    await notes.exclude_machine_for("desk", "No model has been chosen.", 30)
    await notes.exclude_machine_for("desk 2", "No key.", 30)
    await notes.exclude_machine_for("desk", "No key.", 30)
    assert (await notes.read_state()).unable == ("desk 2: No key.", "desk: No key.")
    await notes.include_machine("desk")
    assert (await notes.read_state()).unable == ("desk 2: No key.",)


async def test_each_cost_is_counted_once_for_its_task_agent_day_and_fleet(
    tasks: FleetTaskList,
) -> None:
    before = (await tasks.notes.read_state()).spent.get(
        "fleet", 0.0
    )  # that of all workspaces of the database
    await tasks.add_fleet_tasks(
        [NewFleetTask(FleetTaskOrder("x", agent="reader")), NewFleetTask(order())]
    )
    first, second = await tasks.claim_fleet_tasks("me", 2, 30)
    for cost in (0.5, 0.5, 2.0):
        await tasks.notes.add_cost(first.id, first.claims, "reader", cost)
    await tasks.notes.add_cost(first.id, first.claims - 1, "reader", 9.0)  # a worker that lost it
    await tasks.end_fleet_task(first, FleetTaskState.DONE, FleetTaskResult(cost=2.5))
    await tasks.end_fleet_task(first, FleetTaskState.DONE, FleetTaskResult(cost=2.5))
    await tasks.notes.add_cost(second.id, second.claims, "", 1.0)
    state = await tasks.notes.read_state()
    assert state.spent == {"workspace": 3.5, "day": 3.5, "fleet": before + 3.5, "agent reader": 2.5}
    # A day later, what was spent on a day counts no longer.
    await change_row(tasks, "until = until - 86400 WHERE until > 0", table="notes")
    spent_later = (await tasks.notes.read_state()).spent
    assert spent_later == {"workspace": 3.5, "fleet": before + 3.5, "agent reader": 2.5}
    assert (await tasks.count_fleet_tasks()).dollars == 3.5
    assert state.dollars_left("reader") == float("inf")
    await tasks.notes.set_limit("agent reader", 3.0)
    await tasks.notes.set_limit("fleet", before + 4.0)
    state = await tasks.notes.read_state()
    assert (state.dollars_left("reader"), state.dollars_left("")) == (0.5, 0.5)
    await tasks.notes.set_limit("fleet", 0.0)
    assert (await tasks.notes.read_state()).dollars_left("") == float("inf")


async def change_row(
    tasks: FleetTaskList, change: str, *values: object, table: str = "tasks"
) -> None:
    statement = f"UPDATE {{t}}{table} SET {change}"  # noqa: S608 - no foreign words
    await tasks._run_statements([tasks._dialect.build_statement(statement, *values)])


def as_encoded(tasks: FleetTaskList, task: str, **fields: object) -> bytes:
    """What somebody with the key, or a newer version, may write in the place of an order."""
    content = json.dumps({"text": "x", "allowed": []} | fields).encode()
    return (
        tasks._seal.encrypt_row(tasks._seal.keyed_row_name("task", task.encode()), content)
        if tasks._seal
        else content
    )


@pytest.mark.parametrize(
    "damage", ["bytes", "newer", "type", "number", "large", "time", "state", "id"]
)
async def test_a_task_that_cannot_be_read_stops_no_other(tasks: FleetTaskList, damage: str) -> None:
    """A bit that was lost, a newer version, the store's operator, or somebody with the key."""
    bad, good = await tasks.add_fleet_tasks(
        [NewFleetTask(order("bad")), NewFleetTask(order("good"))]
    )
    fields: dict[str, dict[str, object]] = {
        "newer": {"field": 1},
        "type": {"text": 5},
        "number": {"budget": "all"},
        "large": {"budget": 10**400},
    }
    change = {
        "bytes": ("sealed = %s WHERE id = %s", b"damaged", bad),
        "time": ("added = %s WHERE id = %s", math.inf, bad),
        "state": ("state = %s WHERE id = %s", "made up", bad),
        "id": ("id = %s WHERE id = %s", "../../settings", bad),
    }.get(damage) or ("sealed = %s WHERE id = %s", as_encoded(tasks, bad, **fields[damage]), bad)
    await change_row(tasks, *change)
    listed = {task.order.text: task for task in await tasks.list_fleet_tasks()}
    assert (listed["good"].state, listed[""].state) == (
        FleetTaskState.WAITING,
        FleetTaskState.FAILED,
    )
    assert "cannot be read" in listed[""].result.why
    assert [task.id for task in await tasks.claim_fleet_tasks("me", 10, 30)] == [good]
    assert not await tasks.retry_fleet_task(listed[""])
    states = (await tasks.count_fleet_tasks()).by_state
    assert states[FleetTaskState.FAILED] == int(damage != "state")


async def test_a_task_that_cannot_be_read_can_be_cancelled(tasks: FleetTaskList) -> None:
    (bad,) = await tasks.add_fleet_tasks([NewFleetTask(order("bad"))])
    await change_row(tasks, "sealed = %s", b"damaged")
    assert await tasks.cancel_fleet_task((await tasks.find_fleet_task(bad)).id)
    assert (await tasks.find_fleet_task(bad)).state is FleetTaskState.CANCELLED
    assert await tasks.claim_fleet_tasks("me", 10, 30) == []


async def test_a_task_whose_workers_are_lost_again_and_again_waits_for_a_person(
    tasks: FleetTaskList,
) -> None:
    """As one that takes all memory. What waits for it still waits."""
    bad, good, after = await tasks.add_fleet_tasks(
        [
            NewFleetTask(order("bad"), key="bad"),
            NewFleetTask(order("good")),
            NewFleetTask(order("after"), after=("bad",)),
        ]
    )
    await tasks.claim_fleet_tasks("me", 2, 30)
    await change_row(tasks, "until = 1, setbacks = %s WHERE id = %s", MOST_LOST_WORKERS - 1, bad)
    assert await tasks.claim_fleet_tasks("me", 2, 30) == []
    letter = await tasks.find_fleet_task(bad)
    assert letter.state is FleetTaskState.DEAD_LETTER
    assert "worker stopped responding" in letter.result.why
    assert (await tasks.find_fleet_task(good)).state is FleetTaskState.RUNNING
    assert (await tasks.find_fleet_task(after)).state is FleetTaskState.WAITING
    assert await tasks.retry_fleet_task(letter)
    (again,) = await tasks.claim_fleet_tasks("me", 2, 30)
    assert (again.id, again.setbacks) == (bad, 0)
    await change_row(tasks, "setbacks = %s WHERE id = %s", MOST_LOST_WORKERS - 1, bad)
    await tasks.release_orphaned_tasks("nobody")
    assert (await tasks.find_fleet_task(bad)).state is FleetTaskState.DEAD_LETTER
    assert await tasks.retry_dead_letters() == 1
    assert {task.id for task in await tasks.claim_fleet_tasks("me", 2, 30)} == {bad, good}


async def test_a_worker_lost_once_costs_no_pause_and_each_further_one_a_longer_pause(
    tasks: FleetTaskList,
) -> None:
    await tasks.add_fleet_tasks([NewFleetTask(order())])
    await tasks.claim_fleet_tasks("me", 1, -1)
    assert len(await tasks.claim_fleet_tasks("me", 1, -1)) == 1
    pauses = []
    for _ in range(3):
        assert await tasks.claim_fleet_tasks("me", 1, -1) == []
        pauses.append(await seconds_until_next_try(tasks))
        await let_be_tried_now(tasks)
        assert len(await tasks.claim_fleet_tasks("me", 1, -1)) == 1
    assert pauses == [pytest.approx(expected, abs=2) for expected in (4, 8, 16)]


async def test_what_bad_weather_gave_back_waits_longer_each_time_and_then_for_a_person(
    tasks: FleetTaskList,
) -> None:
    task, after = await tasks.add_fleet_tasks(
        [NewFleetTask(order(), key="a"), NewFleetTask(order("after"), after=("a",))]
    )
    (mine,) = await tasks.claim_fleet_tasks("me", 5, 30)
    full = FleetTaskResult("The disk is full.", cost=0.5)
    assert await tasks.give_back_after_setback(mine, full)
    assert not await tasks.give_back_after_setback(mine, full)
    given_back = await tasks.find_fleet_task(task)
    assert (given_back.state, given_back.result, given_back.setbacks) == (
        FleetTaskState.WAITING,
        full,
        1,
    )
    assert await tasks.claim_fleet_tasks("me", 5, 30) == []
    assert await seconds_until_next_try(tasks) == pytest.approx(2, abs=1.5)
    await change_row(tasks, "setbacks = %s WHERE id = %s", MOST_SETBACKS - 2, task)
    await let_be_tried_now(tasks)
    (mine,) = await tasks.claim_fleet_tasks("me", 5, 30)
    await tasks.give_back_after_setback(mine, full)
    assert await seconds_until_next_try(tasks) == pytest.approx(900, abs=5)
    await let_be_tried_now(tasks)
    (mine,) = await tasks.claim_fleet_tasks("me", 5, 30)
    await tasks.give_back_after_setback(mine, full)
    letter = await tasks.find_fleet_task(task)
    assert (letter.state, letter.result.why) == (FleetTaskState.DEAD_LETTER, full.why)
    assert (await tasks.find_fleet_task(after)).state is FleetTaskState.WAITING
    assert [found.id for found in await tasks.list_fleet_tasks("dead-letter")] == [task]
    assert await tasks.cancel_fleet_task(task)
    assert (await tasks.find_fleet_task(after)).state is FleetTaskState.CANCELLED


async def let_be_tried_now(tasks: FleetTaskList) -> None:
    """As if the pauses of all that was given back had passed."""
    later = "UPDATE {t}tasks SET until = 0 WHERE space = %s"
    if tasks.is_shared:
        later = (
            "UPDATE helix_queue.procrastinate_jobs SET scheduled_at = now() WHERE queue_name ="
            " 'helix ' || encode(%s, 'hex')"
        )
    statements = [tasks._dialect.build_statement(later, tasks._space)]
    if tasks.is_shared:
        statements.insert(0, ("SELECT set_config('search_path', 'helix_queue', true)", ()))
    await tasks._run_statements(statements)


async def seconds_until_next_try(tasks: FleetTaskList) -> float:
    seconds = await tasks.seconds_until_next_try()
    assert seconds is not None
    return seconds


# A longer pause may be a clock that was set, and says nothing of a task's age.
THREE_DAYS = 3 * 86_400.0


async def test_what_ended_long_ago_or_is_beyond_the_number_leaves_the_history(
    tasks: FleetTaskList,
) -> None:
    ids = await tasks.add_fleet_tasks([NewFleetTask(order(str(n))) for n in range(6)])
    for number, task in enumerate(ids[:5]):
        await tasks.cancel_fleet_task(task)
        ended = time.time() - THREE_DAYS + number
        await change_row(tasks, "ended = %s WHERE id = %s", ended, task, table="ended_tasks")
    assert await tasks.remove_old_tasks(TaskRetention(1e10, 3)) == 2
    assert {t.id for t in await tasks.list_fleet_tasks()} == set(ids[2:])
    assert await tasks.remove_old_tasks(TaskRetention(THREE_DAYS / 2, 3)) == 3
    assert [t.id for t in await tasks.list_fleet_tasks()] == [ids[5]]
    counts = await tasks.count_fleet_tasks()
    assert (counts.by_state["waiting"], counts.by_state["cancelled"]) == (1, 0)


async def test_a_task_may_go_on_whose_need_has_left_the_history(tasks: FleetTaskList) -> None:
    need, after = await tasks.add_fleet_tasks(
        [NewFleetTask(order(), key="need"), NewFleetTask(order(), after=("need",))]
    )
    await tasks.cancel_fleet_task(need)
    cancelled = await tasks.find_fleet_task(after)
    assert await tasks.retry_fleet_task(cancelled)
    assert (await tasks.find_fleet_task(after)).state is FleetTaskState.CANCELLED
    ended = time.time() - THREE_DAYS
    await change_row(tasks, "ended = %s WHERE id = %s", ended, need, table="ended_tasks")
    assert await tasks.remove_old_tasks(TaskRetention(THREE_DAYS / 2)) == 1
    assert await tasks.retry_fleet_task(cancelled)
    assert [task.id for task in await tasks.claim_fleet_tasks("me", 5, 30)] == [after]


async def test_pages_of_the_list_follow_each_other(tasks: FleetTaskList) -> None:
    ids = await tasks.add_fleet_tasks([NewFleetTask(order(str(n))) for n in range(7)])
    for task in (ids[1], ids[4]):
        await tasks.cancel_fleet_task(task)
    listed: list[str] = []
    page = await tasks.list_fleet_tasks(limit=3)
    while page:
        listed += [task.id for task in page]
        page = await tasks.list_fleet_tasks(limit=3, before=page[-1].position)
    assert listed == ids[::-1]
    (newest,) = await tasks.list_fleet_tasks("cancelled", 1)
    assert newest.id == ids[4]
    older = await tasks.list_fleet_tasks("cancelled", 5, before=newest.position)
    assert [task.id for task in older] == [ids[1]]


@dataclass
class ModelTask:
    """What the list must know of a task, kept as plainly as possible."""

    needs: set[str]
    state: str = "waiting"


class ModelList:
    """A list that changes at random, beside a plain model of it."""

    def __init__(self, tasks: FleetTaskList, seed: int) -> None:
        self._tasks = tasks
        self._chance = random.Random(seed)
        self.known: dict[str, ModelTask] = {}

    async def change_at_random(self) -> None:
        acts = [self._add, self._add, self._end, self._end, self._end, self._cancel, self._retry]
        act = self._chance.choice(acts) if self.known else self._add
        await act()
        self._cancel_all_that_need_what_failed()

    async def _add(self) -> None:
        needs = self._chance.sample([*self.known], min(len(self.known), self._chance.randrange(3)))
        (task,) = await self._tasks.add_fleet_tasks([NewFleetTask(order(), after=tuple(needs))])
        self.known[task] = ModelTask({need for need in needs if self.known[need].state != "done"})

    async def _cancel(self) -> None:
        task, about = self._chance.choice([*self.known.items()])
        was_live = about.state == "waiting"
        assert await self._tasks.cancel_fleet_task(task) == was_live
        if was_live:
            about.state = "cancelled"

    async def _retry(self) -> None:
        task, about = self._chance.choice([*self.known.items()])
        can_be_retried = about.state in ("failed", "cancelled")
        found = await self._tasks.find_fleet_task(task)
        assert await self._tasks.retry_fleet_task(found) == can_be_retried
        if can_be_retried:
            about.state = "waiting"

    async def _end(self) -> None:
        waiting = {task: about for task, about in self.known.items() if about.state == "waiting"}
        claimed = await self._tasks.claim_fleet_tasks("me", 100, 30)
        ready = {task for task, about in waiting.items() if not about.needs}
        assert {mine.id for mine in claimed} == ready
        for mine in claimed:
            end = self._chance.choice(["done", "failed", "waiting"])
            result = FleetTaskResult(cost=0.5)
            await self._tasks.end_fleet_task(mine, FleetTaskState(end), result)
            self.known[mine.id].state = end
            if end == "done":
                for about in self.known.values():
                    about.needs.discard(mine.id)

    def _cancel_all_that_need_what_failed(self) -> None:
        changed = True
        while changed:
            changed = False
            for about in self.known.values():
                states = {self.known[need].state for need in about.needs}
                if about.state == "waiting" and states & {"failed", "cancelled"}:
                    about.state = "cancelled"
                    changed = True


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_happens_the_list_agrees_with_a_plain_model(
    tasks: FleetTaskList, seed: int
) -> None:
    """States, counts and what can be claimed, after each of many random changes."""
    model = ModelList(tasks, seed)
    for _ in range(60):
        await model.change_at_random()
        listed = {task.id: task.state.value for task in await tasks.list_fleet_tasks()}
        assert listed == {task: about.state for task, about in model.known.items()}
        counted = (await tasks.count_fleet_tasks()).by_state
        expected = Counter(about.state for about in model.known.values())
        assert {state: number for state, number in counted.items() if number} == expected
        ready = [
            about for about in model.known.values() if about.state == "waiting" and not about.needs
        ]
        assert await tasks.count_queued_tasks() == QueueCounts(len(ready), taken=0, set_aside=0)


async def test_a_task_never_starts_before_one_that_is_added_after_it_in_the_same_call(
    tasks: FleetTaskList, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are added in several transactions, and workers claim in between."""
    monkeypatch.setattr(fleet_task_list, "TASKS_IN_CALL", 1)
    run = tasks._run_in_transaction
    early: list[str] = []

    async def run_and_claim(work: Callable[[TableTransaction], T]) -> T:
        answer = await run(work)
        monkeypatch.setattr(tasks, "_run_in_transaction", run)
        early.extend(t.order.text for t in await tasks.claim_fleet_tasks("me", 9, 30))
        monkeypatch.setattr(tasks, "_run_in_transaction", run_and_claim)
        return answer

    monkeypatch.setattr(tasks, "_run_in_transaction", run_and_claim)
    await tasks.add_fleet_tasks(
        [NewFleetTask(order("after"), after=("need",)), NewFleetTask(order("need"), key="need")]
    )
    assert early == ["need"]


async def test_a_need_that_ends_while_a_task_is_added_is_not_waited_for_for_ever(
    tasks: FleetTaskList,
) -> None:
    """Each is claimed and done while others are added that need it."""
    needs = await tasks.add_fleet_tasks([NewFleetTask(order()) for _ in range(12)])
    claimed = await tasks.claim_fleet_tasks("me", 12, 30)

    async def end(mine: FleetTask) -> None:
        await tasks.end_fleet_task(mine, FleetTaskState.DONE, FleetTaskResult())

    async def add(need: str) -> str:
        return (await tasks.add_fleet_tasks([NewFleetTask(order(), after=(need,))]))[0]

    added = await asyncio.gather(*map(add, needs), *map(end, claimed), *map(add, needs))
    wanted = {task for task in added if task is not None}
    assert {task.id for task in await tasks.claim_fleet_tasks("me", 50, 30)} == wanted


async def test_where_all_was_stopped_nothing_is_claimed_before_it_is_allowed(
    tasks: FleetTaskList,
) -> None:
    await tasks.add_fleet_tasks([NewFleetTask(order()), NewFleetTask(order())])
    (mine,) = await tasks.claim_fleet_tasks("me", 1, 30)
    assert await tasks.pause_all_tasks() == 1
    assert (await tasks.notes.read_state()).is_stopped
    assert await tasks.renew_leases_of_tasks([mine], 30) == frozenset()
    assert await tasks.claim_fleet_tasks("me", 5, 30) == []
    await tasks.resume_all_tasks()
    assert len(await tasks.claim_fleet_tasks("me", 5, 30)) == 2


async def test_the_database_is_told_nothing_that_a_task_says(tasks: FleetTaskList) -> None:
    await tasks.add_fleet_tasks([NewFleetTask(order(), key="secret key")])
    (rows,) = await tasks._run_statements(
        [tasks._dialect.build_statement("SELECT * FROM {t}tasks WHERE space = %s", tasks._space)]
    )
    if tasks._seal is not None:
        assert SECRET not in repr(rows)
        assert "secret key" not in repr(rows)
        assert "edits" not in repr(rows)
