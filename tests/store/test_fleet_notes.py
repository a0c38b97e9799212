"""What workers and people note beside the tasks: who works, what to stop, and what is left to spend."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.store.fleet_notes import (
    FleetNotes,
    FleetState,
    SentRequest,
    note_beginning_of_request,
)
from helix_desktop.store.fleet_task_files import SqliteTaskTables
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import FleetTaskOrder, NewFleetTask


@pytest.fixture
def tasks(tmp_path: Path) -> Iterator[FleetTaskList]:
    tables = SqliteTaskTables(tmp_path / "tasks.sqlite3")
    yield tables.open_list_in_file()
    tables.close()


@pytest.fixture
def notes(tasks: FleetTaskList) -> FleetNotes:
    return tasks.notes


# --- What is left to spend


def test_what_is_left_is_by_the_tightest_limit_that_holds_for_the_agent() -> None:
    state = FleetState(
        limits={"workspace": 5.0, "day": 3.0, "agent pi": 1.0},
        spent={"workspace": 1.0, "day": 0.5, "agent pi": 0.75, "fleet": 99.0},
    )
    assert state.dollars_left("") == 2.5
    assert state.tightest_limit("") == "day"
    assert state.dollars_left("pi") == 0.25
    assert state.tightest_limit("pi") == "agent pi"
    assert state.tightest_limit("other") == "day"


def test_without_a_limit_there_is_no_end() -> None:
    state = FleetState(spent={"workspace": 7.0})
    assert state.dollars_left("pi") == math.inf
    assert state.tightest_limit("pi") == ""


def test_of_equally_tight_limits_the_first_is_named_and_an_overspent_one_is_below_zero() -> None:
    equal = FleetState(limits={"workspace": 1.0, "day": 1.0})
    assert equal.tightest_limit("") == "workspace"
    over = FleetState(limits={"fleet": 1.0}, spent={"fleet": 1.5})
    assert over.dollars_left("") == -0.5


# --- Notes


async def test_nothing_is_noted_at_first(notes: FleetNotes) -> None:
    assert await notes.read_state() == FleetState()


async def test_a_worker_is_known_until_it_ends_and_hears_once_that_it_is_to_drain(
    notes: FleetNotes,
) -> None:
    assert not await notes.renew_worker_and_tell_if_draining("one", 30)
    assert not await notes.renew_worker_and_tell_if_draining("two", 30)
    assert (await notes.read_state()).workers == {"one": False, "two": False}
    assert await notes.drain_workers("two") == 1
    assert (await notes.read_state()).workers == {"one": False, "two": True}
    assert await notes.renew_worker_and_tell_if_draining("two", 30)
    assert not await notes.renew_worker_and_tell_if_draining("one", 30)
    assert await notes.drain_workers("nobody") == 0
    assert await notes.drain_workers() == 2
    await notes.remove_worker("two")
    assert (await notes.read_state()).workers == {"one": True}


async def test_a_note_whose_time_has_passed_says_nothing(notes: FleetNotes) -> None:
    await notes.renew_worker_and_tell_if_draining("one", -1)
    await notes.pause_provider("peer", -1)
    await notes.reserve_dollars("one", 2.0, -1, for_all=False)
    assert await notes.read_state() == FleetState()


async def test_trouble_of_a_worker_is_shown_while_there_is_any(notes: FleetNotes) -> None:
    await notes.note_trouble_of_worker("one", setbacks=3, unsent_facts=0, seconds=60)
    await notes.note_trouble_of_worker("two", setbacks=0, unsent_facts=7, seconds=60)
    state = await notes.read_state()
    assert state.setbacks == {"one": 3}
    assert state.unsent_facts == {"two": 7}
    await notes.note_trouble_of_worker("one", setbacks=0, unsent_facts=0, seconds=60)
    assert (await notes.read_state()).setbacks == {}


async def test_a_machine_gives_its_newest_reason_only(notes: FleetNotes) -> None:
    await notes.exclude_machine_for("desk", "No model.", 60)
    await notes.exclude_machine_for("desk", "No key.", 60)
    await notes.exclude_machine_for("desk 2", "No disk.", 60)
    assert (await notes.read_state()).unable == ("desk 2: No disk.", "desk: No key.")
    await notes.include_machine("desk")
    assert (await notes.read_state()).unable == ("desk 2: No disk.",)


async def test_a_limit_is_set_and_lifted(notes: FleetNotes) -> None:
    await notes.set_limit("workspace", 2.0)
    await notes.set_limit("fleet", 9.0)
    await notes.set_limit("workspace", 3.0)
    assert (await notes.read_state()).limits == {"workspace": 3.0, "fleet": 9.0}
    await notes.set_limit("fleet", 0.0)
    assert (await notes.read_state()).limits == {"workspace": 3.0}


async def test_only_the_limit_of_the_fleet_holds_for_other_workspaces(notes: FleetNotes) -> None:
    other = FleetNotes(notes._run_statements, notes._dialect, b"other")
    here = FleetNotes(notes._run_statements, notes._dialect, b"here")
    await here.set_limit("workspace", 2.0)
    await here.set_limit("fleet", 9.0)
    await here.reserve_dollars("one", 0.5, 60, for_all=True)
    await here.reserve_dollars("two", 0.25, 60, for_all=False)
    state = await other.read_state()
    assert state.limits == {"fleet": 9.0}
    assert state.reserved == {"one": 0.5}
    assert (await here.read_state()).reserved == {"one": 0.5, "two": 0.25}


async def test_all_work_is_stopped_and_allowed_again(notes: FleetNotes) -> None:
    question = notes.build_stop_question()
    assert await notes._run_statements([question]) == [[]]
    await notes._run_statements([notes.build_stop_statement(is_stopped=True)])
    assert (await notes.read_state()).is_stopped
    assert len((await notes._run_statements([question]))[0]) == 1
    await notes._run_statements([notes.build_stop_statement(is_stopped=False)])
    assert not (await notes.read_state()).is_stopped


async def test_what_workers_of_ended_processes_had_reserved_is_free(notes: FleetNotes) -> None:
    await notes.reserve_dollars("desk abc.1", 1.0, 60, for_all=False)
    await notes.reserve_dollars("desk def.1", 2.0, 60, for_all=False)
    release = notes.build_release_of_reservations("reserved % abc.%")
    await notes._run_statements([release])
    assert (await notes.read_state()).reserved == {"desk abc.1": 1.0}


# --- Requests of killed workers


def test_a_request_is_noted_under_its_task_its_claim_and_what_it_had_cost() -> None:
    request = SentRequest("t1", 2, 0.5, 0.25)
    assert request.note_name == "request t1 2 0.5"
    assert note_beginning_of_request("t1", 2) == "request t1 2 "


async def test_requests_are_read_back_as_they_were_sent_and_removed_by_their_claim(
    notes: FleetNotes,
) -> None:
    first = SentRequest("t1", 1, 0.1, 0.25)
    second = SentRequest("t1", 2, 1 / 3, 0.5)
    for request in (first, second):
        await notes.note_request(request)
    assert (await notes.read_state()).requests == (first, second)
    await notes.remove_request(first)
    assert (await notes.read_state()).requests == (second,)


async def test_a_request_that_was_cut_off_is_charged_once_to_all_that_it_belongs_to(
    notes: FleetNotes,
) -> None:
    request = SentRequest("t1", 1, 0.0, 0.25)
    await notes.note_request(request)
    await notes.charge_cut_off_request(request, "pi")
    state = await notes.read_state()
    assert state.requests == ()
    expected = dict.fromkeys(("workspace", "day", "fleet", "agent pi", "estimated"), 0.25)
    assert state.spent == expected
    await notes.charge_cut_off_request(request, "pi")
    assert (await notes.read_state()).spent == expected


async def test_a_task_is_charged_for_what_it_has_cost_since_the_last_time(
    tasks: FleetTaskList,
) -> None:
    notes = tasks.notes
    await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("x"))])
    (task,) = await tasks.claim_fleet_tasks("one", 1, 30)
    await notes.note_request(SentRequest(task.id, task.claims, 0.0, 9.0))
    await notes.add_cost(task.id, task.claims, "", 0.5)
    state = await notes.read_state()
    assert state.spent == {"workspace": 0.5, "day": 0.5, "fleet": 0.5}
    assert state.requests == (), "it is known now what the request has cost"
    await notes.add_cost(task.id, task.claims, "pi", 0.75)
    await notes.add_cost(task.id, task.claims, "pi", 0.75)
    state = await notes.read_state()
    assert state.spent["workspace"] == 0.75
    assert state.spent["agent pi"] == 0.25
    # Another worker has claimed it since.
    await notes.add_cost(task.id, task.claims + 1, "", 5.0)
    assert (await notes.read_state()).spent["workspace"] == 0.75
