"""What the tables of the fleet say, cell by cell."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from helix_desktop.engine.facts import ModelRole, ModelSet
from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.common.setting_fields import FieldDeclaration
from helix_desktop.gui.fleet import fleet_rows
from helix_desktop.gui.fleet.fleet_rows import (
    LONGEST_CELL,
    NOTHING,
    KnownRun,
    ListedTask,
    SummaryCard,
    describe_task_reason,
    find_known_runs,
    list_conversation_cells,
    list_task_rows,
    list_worker_rows,
    schedule_cells,
    split_task_question,
    summarise_fleet,
    task_cells,
)
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.resident.schedules import WorkSchedule

STATE, TASK, WORKSPACE, AGENT, WHERE, NOW, AGE, COST = range(8)
WORKSPACE_FIGURES: dict[str, Any] = {
    "workspace": "w1",
    "name": "Thesis",
    "lost": [],
    "draining": [],
    "workers": {},
    "budgets": {},
    "is_stopped": False,
    "cost": 0.0,
    "tasks": {},
}


def a_task(**values: Any) -> dict[str, Any]:
    return {
        "id": "t1",
        "text": "Look at it",
        "agent": "",
        "worker": "",
        "claims": 0,
        "why": "",
        "asked": "",
        "answer": "",
        "added": 0.0,
        "cost": 0.0,
        **values,
    }


def workspace(**values: Any) -> dict[str, Any]:
    return {**WORKSPACE_FIGURES, **values}


def cells(
    state: str, run: KnownRun | None = None, *, of: dict[str, Any] | None = None, **values: Any
) -> list[str]:
    return task_cells(ListedTask(state, of or workspace(), a_task(**values)), run)


# --- Tasks


def test_a_task_is_described_by_its_words_on_one_line_its_workspace_and_its_agent() -> None:
    row = cells("waiting", text="Look\n  at \tit", agent="Codex")
    assert row[STATE] == "waiting"
    assert row[TASK:WHERE] == ["Look at it", "Thesis", "Codex"]
    assert cells("waiting")[AGENT] == "Helix"
    assert len(row) == 8


def test_a_cell_is_cut_where_nobody_would_read_on() -> None:
    assert cells("waiting", text="x" * 500)[TASK] == "x" * LONGEST_CELL
    assert cells("done", answer="y" * 500)[NOW] == "y" * LONGEST_CELL


def test_a_task_is_where_its_worker_is() -> None:
    here = f"{socket.gethostname()} 12.1"
    assert cells("running", worker="build-2 12.1", claims=1)[WHERE] == "build-2"
    assert cells("running", worker=here, claims=1)[WHERE] == "this computer"
    lost = workspace(lost=["build-2 12.1"])
    shown = cells("running", of=lost, worker="build-2 12.1", claims=1)
    assert shown[WHERE] == "build-2 (not responding)"
    assert cells("running", worker="name-without-number", claims=1)[WHERE] == "name-without-number"


@pytest.mark.parametrize(
    ("claims", "run", "is_shared", "where"),
    [
        (0, KnownRun("build-2", NOTHING), True, NOTHING),
        (1, KnownRun("build-2", NOTHING), True, "build-2"),
        (1, KnownRun("", NOTHING), True, "this computer"),
        (1, None, True, NOTHING),
        (1, None, False, "this computer"),
    ],
)
def test_a_task_that_has_run_is_where_its_conversation_was(
    claims: int, run: KnownRun | None, is_shared: bool, where: str
) -> None:
    assert cells("done", run, of=workspace(is_shared=is_shared), claims=claims)[WHERE] == where


def test_what_a_task_cost_or_why_it_cost_nothing() -> None:
    assumed_free = KnownRun("", "assumed free")
    assert cells("done", cost=0.25)[COST] == "$0.250"
    assert cells("done", assumed_free, cost=0.25)[COST] == "$0.250"
    assert cells("done", assumed_free)[COST] == "assumed free"
    assert cells("running", assumed_free)[COST] == NOTHING
    assert cells("done")[COST] == NOTHING


def test_a_task_that_is_done_shows_the_first_line_of_its_answer_without_marks() -> None:
    assert cells("done", answer="\n## All **done**\nMore of it")[NOW] == "All done"
    assert cells("done", answer="")[NOW] == ""


def test_a_task_waits_for_others_before_it_waits_for_a_worker() -> None:
    assert cells("waiting", open_needs=1)[NOW] == "waits for 1 task"
    assert cells("waiting", open_needs=3)[NOW] == "waits for 3 tasks"
    assert cells("waiting", open_needs=0)[NOW] == ""


def test_a_second_attempt_is_said_while_it_runs_unless_it_only_goes_on() -> None:
    assert cells("running", claims=1)[NOW] == ""
    assert cells("running", claims=2)[NOW] == "attempt 2"
    assert cells("running", claims=2, asked="run_command")[NOW] == ""
    assert cells("waiting", claims=2)[NOW] == ""


def test_what_a_task_asks_for_stands_in_its_cell_without_the_sentence_before_it() -> None:
    why = "The task needs your permission: Run make all.\n\nmake all"
    assert cells("needs_you", why=why, asked="run_command")[NOW] == "Run make all"
    assert cells("failed", why=why, asked="run_command")[NOW].startswith("The task needs")
    assert cells("needs_you", why="Nobody was there.", asked="x")[NOW] == "Nobody was there."


def test_a_reason_is_said_unless_the_task_goes_on() -> None:
    assert describe_task_reason("failed", a_task(why="It broke.")) == "It broke."
    assert describe_task_reason("running", a_task(why="It broke.")) == ""
    assert describe_task_reason("waiting", a_task(why="It broke.", asked="run_command")) == ""
    assert describe_task_reason("waiting", a_task(why="It broke.")) == "It broke."
    assert describe_task_reason("done", a_task(why="It broke.", asked="x")) == "It broke."


def test_a_question_is_its_sentence_and_what_it_asks_for_exactly() -> None:
    asked = a_task(why="May it?\n\nmake\n\nall")
    assert split_task_question(asked) == ("May it?", "make\n\nall")
    assert split_task_question(a_task(why="May it?")) == ("May it?", "")


def listed_ids(*workspaces: dict[str, Any]) -> list[str]:
    return [row.task["id"] for row in list_task_rows(workspaces).values()]


def test_tasks_are_listed_by_state_the_newest_first_and_waiting_ones_in_their_turn() -> None:
    def at(identity: str, added: float) -> dict[str, Any]:
        return a_task(id=identity, added=added)

    thesis = workspace(
        waiting=[at("w2", 2), at("w1", 1)],
        done=[at("d2", 5), at("d1", 4)],
        running=[at("r1", 9)],
    )
    site = workspace(workspace="w2", done=[at("d3", 6)], waiting=[at("w3", 3)], failed=[at("f", 1)])
    assert listed_ids(thesis, site) == ["r1", "f", "w1", "w2", "w3", "d3", "d2", "d1"]
    assert [*list_task_rows([site])] == ["w2 f", "w2 w3", "w2 d3"]
    assert list_task_rows([site])["w2 f"].state == "failed"
    assert list_task_rows([workspace()]) == {}


# --- Computers


def test_each_worker_has_a_row_with_its_tasks_and_whether_it_goes_on() -> None:
    figures = workspace(
        workers={"old 1.1": 0, "build-2 2.1": 1, "exit 3.1": 2},
        lost=["old 1.1"],
        draining=["exit 3.1"],
    )
    rows = list_worker_rows([figures])
    assert [*rows] == ["w1 build-2 2.1", "w1 exit 3.1", "w1 old 1.1"]
    assert rows["w1 build-2 2.1"] == ["build-2", "Thesis", "1 task", ""]
    assert rows["w1 exit 3.1"] == ["exit", "Thesis", "2 tasks", "takes no more tasks"]
    assert rows["w1 old 1.1"] == ["old", "Thesis", "0 tasks", "not responding"]


def test_a_computer_that_can_run_no_task_says_why() -> None:
    rows = list_worker_rows([workspace(unable=["lap: Its disk: full."])])
    assert rows == {"w1 lap: Its disk: full.": ["lap", "Thesis", "", "Its disk: full."]}
    assert list_worker_rows([{"workspace": "w", "name": "n"}]) == {}


# --- Conversations


class Copies:
    def __init__(self) -> None:
        self.changed = {"c1": ("/p/src/a.py", "b.py")}
        self.overlaps = {"c1": {"/p/src/a.py": ["c2", "gone"], "b.py": ["c2"]}}


class Bench:
    """An open workspace with one conversation at work, one in a copy and one at rest."""

    id = "w1"
    name = "Thesis"
    copies = Copies()

    def __init__(self, *models: ModelSet) -> None:
        self._models = models

    @property
    def sessions(self) -> Bench:
        return self

    models = sessions

    def model_facts(self) -> Sequence[ModelSet]:
        return self._models

    def list_conversations(self) -> list[Row]:
        return [
            Row("c1", "One", 0, acp_agent="Codex", agent="other", cost=0.5),
            Row("c2", "Two", 0, copy="main", agent="pi", machine="build-2"),
            Row("c3", "Three", 0),
        ]

    def find_open_session(self, conversation: str) -> Any:
        if conversation == "c1":
            return SimpleNamespace(running=ConversationActivity.TOOLS)
        if conversation == "c3":
            return SimpleNamespace(running=ConversationActivity.IDLE)
        return None


def bench(*models: ModelSet) -> Workbench:
    return cast(Workbench, Bench(*models))


def test_conversations_that_run_or_have_a_copy_are_listed_with_what_they_changed() -> None:
    rows = list_conversation_cells([bench()])
    assert [*rows] == ["w1 c1", "w1 c2"]
    state, *rest = rows["w1 c1"]
    assert rest == ["One", "Thesis", "Codex", "", "a.py, b.py", "a.py, b.py (Two, gone)", "$0.500"]
    idle, *rest = rows["w1 c2"]
    assert rest == ["Two", "Thesis", "pi", "main", "", "", "$0"]
    assert state != idle


def main_model(name: str, price: float = 0.0, role: ModelRole = ModelRole.MAIN) -> ModelSet:
    return ModelSet(role, name, 32_000, 8_000, price)


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ((), NOTHING),
        ((main_model("ollama/qwen"),), "assumed free"),
        ((main_model("elsewhere/m"),), "not known"),
        ((main_model("elsewhere/m", 3.0),), NOTHING),
        ((main_model("ollama/qwen", role=ModelRole.FAST),), NOTHING),
        ((main_model("ollama/q", role=ModelRole.FAST), main_model("elsewhere/m")), "not known"),
    ],
)
def test_what_stands_for_a_cost_of_nothing(models: tuple[ModelSet, ...], words: str) -> None:
    runs = find_known_runs([bench(*models)])
    assert runs == {
        "w1 c1": KnownRun("", words),
        "w1 c2": KnownRun("build-2", words),
        "w1 c3": KnownRun("", words),
    }


# --- The cards above the list


def test_the_cards_count_what_runs_waits_asks_and_has_ended() -> None:
    thesis = workspace(
        tasks={
            "running": 1,
            "waiting": 2,
            "needs-you": 3,
            "dead-letter": 4,
            "done": 1_500,
            "failed": 6,
        },
        workers={"build-2 2.1": 1},
        cost=1.25,
    )
    site = workspace(tasks={"running": 10}, workers={"build-3 1.1": 1}, cost=0.25)
    unreadable = {"workspace": "w3", "name": "Gone", "trouble": "It does not answer."}
    assert summarise_fleet([thesis, site, unreadable]) == [
        SummaryCard("Running", "11", "on 2 computers"),
        SummaryCard("Waiting", "2", ""),
        SummaryCard("Needs you", "3", "4 set aside"),
        SummaryCard("Ended", "1,500 done, 6 failed", "$1.50 for all tasks"),
    ]


def test_the_cards_say_nothing_of_what_is_not_there() -> None:
    cards = summarise_fleet([workspace()])
    assert [card.note for card in cards] == ["", "", "", ""]
    assert [card.figure for card in cards] == ["0", "0", "0", "0 done, 0 failed"]
    assert summarise_fleet([])[0].figure == "0"


def test_a_fleet_that_was_stopped_says_that_no_task_starts() -> None:
    note = summarise_fleet([workspace(), workspace(is_stopped=True)])[1].note
    assert note == "no task starts until you resume the fleet"


def test_what_is_spent_is_said_beside_the_limits_if_there_are_any() -> None:
    limited = workspace(cost=1.5, budgets={"workspace": {"limit": 50.0}})
    other = workspace(cost=0.5, budgets={"workspace": {"limit": 10.0}, "agent": {"limit": 5.0}})
    assert summarise_fleet([limited, other])[3].note == "$2.00 of $60.00 for all tasks"
    assert summarise_fleet([workspace(budgets={"workspace": {"limit": 50.0}})])[3].note != ""
    assert summarise_fleet([workspace(cost=0.5)])[3].note == "$0.500 for all tasks"


def test_the_window_that_runs_a_task_counts_as_a_computer() -> None:
    here = f"{socket.gethostname()} 9.1"
    alone = workspace(running=[a_task(worker=here), a_task(worker="")])
    assert summarise_fleet([alone])[0].note == "on this computer"
    other = workspace(running=[a_task(worker=here)], workers={"build-2 2.1": 0})
    assert summarise_fleet([other])[0].note == "on 2 computers"
    assert summarise_fleet([workspace(workers={"build-2 2.1": 0})])[0].note == "on 1 computer"


# --- New tasks and schedules


def fields_by_name(fields: Sequence[FieldDeclaration]) -> dict[str, FieldDeclaration]:
    return {each.name: each for each in fields}


def test_a_new_task_is_for_the_first_workspace_and_may_do_nothing_unasked() -> None:
    fields = fields_by_name(fleet_rows.declare_task_fields({"w1": "Thesis", "w2": "Site"}))
    assert [*fields] == ["text", "workspace", "allowed"]
    assert fields["text"].long
    assert fields["workspace"].value == "w1"
    assert [*fields["workspace"].choices] == ["w1", "w2"]
    assert [*fields["workspace"].words] == ["Thesis", "Site"]
    assert fields["allowed"].value == ""
    assert [*fields["allowed"].choices] == ["", "edits", "edits commands"]
    assert "asks you" in fields["allowed"].words[0]
    assert fields_by_name(fleet_rows.declare_task_fields({}))["workspace"].value == ""


def test_a_schedule_can_be_for_every_day_or_for_one_and_names_the_days() -> None:
    fields = fields_by_name(fleet_rows.declare_schedule_fields())
    assert [*fields] == ["days", "at", "zone"]
    named = dict(zip(fields["days"].choices, fields["days"].words, strict=True))
    assert [*named][:3] == ["every", "weekdays", "weekends"]
    assert len(named) == 10
    assert [*named.values()][3:5] == ["Monday", "Tuesday"]
    assert [*named.values()][-1] == "Sunday"
    assert (fields["days"].value, fields["at"].value, fields["zone"].value) == (
        "weekdays",
        "08:00",
        "",
    )


def test_a_schedule_says_when_it_runs_next_or_that_it_is_turned_off() -> None:
    schedule = WorkSchedule("s1", "w1", "Sum\nit up", "08:00", "Europe/Berlin", ("mon", "sun"))
    time_and_zone, days, next_run, name, text = schedule_cells(schedule, {"w1": "Thesis"})
    assert time_and_zone == "08:00 (Europe/Berlin)"
    assert days == "Mon, Sun"
    assert "turned off" not in next_run
    assert (name, text) == ("Thesis", "Sum it up")
    off = schedule_cells(schedule.with_on_off_toggled(), {})
    assert off[2:4] == ["turned off", "w1"]
