"""What `fleet` prints of a workspace, and what it says of names that are in none or in several."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest

from helix_desktop.commands import fleet_command
from helix_desktop.commands.fleet_command import describe_task_state
from helix_desktop.errors import AmbiguousName, InvalidInput, NotFound
from helix_desktop.store.fleet_tasks import FleetTaskState

QUIET: dict[str, Any] = {
    "name": "Thesis",
    "tasks": {"waiting": 0, "needs-you": 1, "dead-letter": 2},
    "cost": 1.5,
    "is_stopped": False,
    "budgets": {},
    "paused_providers": [],
    "workers": {},
    "draining": [],
    "running": [],
    "needs_you": [],
}


def described(**values: Any) -> list[str]:
    return fleet_command._describe_fleet({**QUIET, **values})


def listed(state: str, number: int = 1, **values: Any) -> dict[str, Any]:
    return {
        "id": f"t{number}",
        "state": state,
        "text": "Look  at\nit",
        "why": "It broke.",
        "worker": "",
        **values,
    }


def test_a_quiet_workspace_is_one_line_with_its_counts_in_the_words_of_the_window() -> None:
    assert described() == [
        "Thesis: 0 waiting, 1 needs you, 2 set aside; $1.50 for all tasks",
    ]
    assert describe_task_state("running") == "running"


def test_a_workspace_that_could_not_be_asked_says_why() -> None:
    assert described(trouble="It is locked.") == ["Thesis: It is locked."]


def test_how_long_the_oldest_task_waits_is_said_while_one_waits() -> None:
    tasks = {"waiting": 1}
    line = described(tasks=tasks, oldest_waiting_seconds=7_200.0)[1]
    assert line == "  the oldest waiting task has waited for 120 minutes"
    assert described(tasks=tasks)[1].endswith("for 0 minutes"), "an older program does not say it"
    assert len(described(oldest_waiting_seconds=7_200.0)) == 1


def test_what_keeps_tasks_from_starting_is_said() -> None:
    lines = described(is_stopped=True, paused_providers=["anthropic"], unable=["lap: No model."])
    assert lines[1:] == [
        "  Stopped: no task starts until you run `fleet start`.",
        "  anthropic asked the workers to wait for a while",
        "  starts no tasks at the moment: lap: No model.",
    ]


def test_each_budget_has_a_line_and_what_is_estimated_is_said_only_beside_one() -> None:
    budgets = {"workspace": {"spent": 1.5, "limit": 50.0}, "day": {"spent": 0.25, "limit": 2.0}}
    assert described(budgets=budgets, estimated_cost=0.5)[1:] == [
        "  budget (workspace): $1.50 of $50.00",
        "  budget (day): $0.25 of $2.00",
        "  $0.50 of this workspace's spending is estimated: requests whose worker was killed",
    ]
    assert len(described(budgets=budgets)) == 3
    assert len(described(estimated_cost=0.5)) == 1


def test_workers_are_listed_by_name_with_what_is_unusual_about_them() -> None:
    lines = described(
        workers={"b 2": 1, "a 1": 0},
        draining=["b 2"],
        setbacks={"a 1": 1, "b 2": 3},
        unsent_facts={"b 2": 7},
    )
    assert lines[1:] == [
        "  a 1: 0",
        "  b 2: 1 (draining)",
        "  a 1 gave tasks back once, to be tried again",
        "  b 2 gave tasks back 3 times, to be tried again",
        "  7 facts are only on the computer of b 2 so far",
    ]


def test_tasks_are_listed_with_where_they_run_or_why_they_do_not() -> None:
    lines = described(
        running=[listed("running", 1, worker="b 2")],
        needs_you=[listed("needs-you", 2, why="May it?\n\nmake")],
        dead_letter=[listed("dead-letter", 3)],
        failed=[listed("failed", 4, text="x" * 100)],
    )
    assert lines[1:] == [
        "  running    t1  Look at it  (b 2)",
        "  needs you  t2  Look at it  (May it?)",
        "  set aside  t3  Look at it  (It broke.)",
        f"  failed     t4  {'x' * 60}  (It broke.)",
    ]


def test_of_many_failed_tasks_and_dead_letters_five_of_each_are_printed() -> None:
    many = [listed("failed", number) for number in range(9)]
    aside = [listed("dead-letter", number) for number in range(9)]
    assert len(described(failed=many, dead_letter=aside)) == 1 + 5 + 5
    assert len(described(running=[listed("running")] * 9)) == 10


def test_counts_of_several_workspaces_are_added_up_also_for_states_that_one_does_not_know() -> None:
    total = fleet_command._sum_tasks_by_state([{"tasks": {"done": 1}}, {"tasks": {"done": 2}}])
    assert total == {state.value: 0 for state in FleetTaskState} | {"done": 3}
    assert fleet_command._sum_tasks_by_state([]) == {}


def answer(name: str, *changed: str, **values: Any) -> dict[str, Any]:
    return {"name": name, "changed": changed, **values}


def test_each_name_must_be_in_exactly_one_workspace_before_anything_is_stopped() -> None:
    check = fleet_command._check_each_is_in_one_workspace
    check(["t1", "t2"], [answer("One", "t1"), answer("Two", "t2")])
    with pytest.raises(AmbiguousName, match="begin with t1: One, Two") as ambiguous:
        check(["t1"], [answer("One", "t1"), answer("Two", "t1")])
    assert "No task was stopped." in str(ambiguous.value.remedy)
    with pytest.raises(NotFound, match=r"no task t3 to stop\. Two: It is locked\.") as missing:
        check(["t1", "t3"], [answer("One", "t1"), {"name": "Two", "trouble": "It is locked."}])
    assert "`fleet status` lists tasks." in str(missing.value.remedy)


def arguments(act: Any, **values: Any) -> Namespace:
    given = {"tasks": [], "workers": [], "per": "workspace", "agent": "", "dollars": 1.0}
    return Namespace(act=act, **{**given, **values})


def test_a_worker_that_no_workspace_has_is_named() -> None:
    draining = arguments(fleet_command._drain_workers, workers=["a 1", "b 2"])
    fleet_command._check_all_were_changed(draining, {"a 1", "b 2", "c"})
    with pytest.raises(NotFound, match="There is no worker b 2"):
        fleet_command._check_all_were_changed(draining, {"a 1"})


def test_a_budget_of_the_fleet_needs_a_shared_workspace() -> None:
    of_fleet = arguments(fleet_command._set_budget, per="fleet")
    fleet_command._check_all_were_changed(of_fleet, {"fleet"})
    with pytest.raises(InvalidInput, match="Only a shared workspace"):
        fleet_command._check_all_were_changed(of_fleet, set())
    of_workspace = arguments(fleet_command._set_budget)
    fleet_command._check_all_were_changed(of_workspace, set())


def test_what_the_user_named_is_what_not_every_workspace_has() -> None:
    named = fleet_command._named_by_user
    assert named(arguments(fleet_command._stop_tasks, tasks=["t1"])) == ["t1"]
    assert named(arguments(fleet_command._drain_workers, workers=["a"])) == ["a"]
    assert named(arguments(fleet_command._set_budget, per="fleet")) == ["fleet"]
    assert named(arguments(fleet_command._set_budget, per="day")) == []
    assert named(arguments(None, tasks=["t1"], workers=["a"], per="fleet")) == []


@pytest.mark.parametrize("dollars", [-0.01, float("inf"), float("nan")])
def test_a_budget_is_an_amount_of_dollars(dollars: float) -> None:
    with pytest.raises(InvalidInput, match="0 dollars or more"):
        fleet_command._check_budget_arguments(arguments(None, dollars=dollars))


def test_a_budget_of_nothing_is_one_and_an_agents_is_for_the_whole_workspace() -> None:
    fleet_command._check_budget_arguments(arguments(None, dollars=0.0))
    fleet_command._check_budget_arguments(arguments(None, agent="pi"))
    fleet_command._check_budget_arguments(arguments(None, per="day"))
    with pytest.raises(InvalidInput, match="--agent and --per day cannot be combined"):
        fleet_command._check_budget_arguments(arguments(None, agent="pi", per="day"))
