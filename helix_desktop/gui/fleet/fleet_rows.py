"""What the tables of the fleet say of tasks, conversations, workers and schedules."""

import re
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from PySide6.QtCore import QLocale

from helix_desktop.engine.facts import ModelRole
from helix_desktop.engine.hidden_characters import mark_on_one_line
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import (
    format_date_and_time,
    format_dollars,
    format_time_ago,
)
from helix_desktop.gui.common.running_states import describe_running_state
from helix_desktop.gui.common.setting_fields import FieldDeclaration
from helix_desktop.gui.model_setup_port import has_unknown_price
from helix_desktop.gui.sentence_translation import translate_sentences, translate_title
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, format_number, tr, translate_name
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.resident.schedules import WEEKDAYS, WorkSchedule

_MARKDOWN_MARKS = re.compile(r"\*+|`+|^#+ ")  # A cell shows the words of an answer alone.
LONGEST_CELL = 200  # Longer texts in a cell are cut to this many characters.
NOTHING = "–"
OWN_AGENT = "Helix"  # The name of the program's own agent.
# In the order of the list: what needs a person stands above what goes on by itself.
DOT_BY_STATE = {
    "running": "output",
    "needs_you": "handover",
    "dead_letter": "danger",
    "failed": "danger",
    "waiting": "faint",
    "done": "conversation",
    "cancelled": "edge",
}
# Values of a workspace or a task, as `fleet status --json` prints them.
Figures = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListedTask:
    """A row of the list of tasks. `workspace`: the figures of the task's workspace. All
    are empty where no row is chosen.
    """

    state: str = ""
    workspace: Figures = field(default_factory=dict)
    task: Figures = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KnownRun:
    """What an open workspace knows of a task's conversation, which the list of tasks does not say.

    `machine`: the computer that ran it last; empty for this one. `cost_words`: what stands for a
    cost of nothing, such as "assumed free".
    """

    machine: str
    cost_words: str


def find_known_runs(benches: Sequence[Workbench]) -> dict[str, KnownRun]:
    """Returns what is known of the conversations of open workspaces, by workspace and id."""
    runs: dict[str, KnownRun] = {}
    for bench in benches:
        cost_words = _describe_cost_of_nothing(bench)
        for row in bench.list_conversations():
            runs[f"{bench.id} {row.id}"] = KnownRun(row.machine, cost_words)
    return runs


def find_main_models(benches: Sequence[Workbench]) -> dict[str, str]:
    """Returns the names of the main models, by the ids of the workspaces."""
    models: dict[str, str] = {}
    for bench in benches:
        for model in bench.models.model_facts():
            if model.role is ModelRole.MAIN:
                models[bench.id] = model.model.rpartition("/")[2]
    return models


def _describe_cost_of_nothing(bench: Workbench) -> str:
    """Says why a task of this workspace cost nothing: the model runs here, or its price is unknown."""
    for model in bench.models.model_facts():
        if model.role is not ModelRole.MAIN or model.price_input > 0:
            continue
        if has_unknown_price(model):
            return tr("not known")
        return tr("assumed free")  # A server here may pass requests on to a paid provider.
    return NOTHING


def list_conversation_cells(benches: Sequence[Workbench]) -> dict[str, list[str]]:
    """Describes each conversation that runs or works in a copy, and which of its files
    others change.
    """
    rows: dict[str, list[str]] = {}
    for bench in benches:
        conversations = bench.list_conversations()
        titles = {row.id: make_safe_text(row.title[:LONGEST_CELL]) for row in conversations}
        for row in conversations:
            session = bench.sessions.find_open_session(row.id)
            activity = ConversationActivity.IDLE
            if session is not None:
                activity = session.running
            if activity is ConversationActivity.IDLE and not row.copy:
                continue
            changed_files = bench.copies.changed.get(row.id, ())
            overlaps = bench.copies.overlaps.get(row.id, {})
            cells = [
                describe_running_state(activity),
                titles[row.id],
                make_safe_text(bench.name),
                make_safe_text(row.acp_agent or row.agent),
                make_safe_text(row.copy),
                _join_file_names(changed_files),
                _describe_overlaps(overlaps, titles),
                format_dollars(row.whole_cost),
            ]
            rows[f"{bench.id} {row.id}"] = cells
    return rows


def _describe_overlaps(overlaps: Mapping[str, Iterable[str]], titles: Mapping[str, str]) -> str:
    """Returns the files that other conversations change too, and their titles."""
    if not overlaps:
        return ""
    other_titles: set[str] = set()
    for conversations in overlaps.values():
        for conversation in conversations:
            other_titles.add(titles.get(conversation, conversation))
    return f"{_join_file_names(overlaps)} ({', '.join(sorted(other_titles))})"


def _join_file_names(paths: Iterable[str]) -> str:
    names: list[str] = []
    for path in paths:
        _folder, _slash, name = path.rpartition("/")
        names.append(name)
    return make_safe_text(", ".join(names)[:LONGEST_CELL])


def list_task_rows(workspaces: Sequence[Figures]) -> dict[str, ListedTask]:
    """Returns the tasks of all workspaces, by the order of the states. Of the waiting
    tasks, the oldest is first; of all others, the newest.
    """
    rows_by_key: dict[str, ListedTask] = {}
    for state in DOT_BY_STATE:
        rows_of_state: list[ListedTask] = []
        for workspace in workspaces:
            for task in reversed(workspace.get(state, ())):
                rows_of_state.append(ListedTask(state, workspace, task))
        rows_of_state.sort(key=lambda row: row.task["added"])
        if state != "waiting":
            rows_of_state.reverse()
        for row in rows_of_state:
            key = f"{row.workspace['workspace']} {row.task['id']}"
            rows_by_key[key] = row
    return rows_by_key


def describe_task_reason(state: str, task: Figures) -> str:
    """Returns the sentence that says why a task is in its state. A task that continues has none."""
    was_answered = state == "waiting" and task["asked"]  # It waits only for a free worker.
    if state == "running" or was_answered:
        return ""
    sentence, _exact_request = split_task_question(task)
    return translate_sentences(sentence)


def split_task_question(task: Figures) -> tuple[str, str]:
    """Returns a task's sentence, and exactly what it asks for, which stands below it."""
    sentence, _blank_line, exact_request = task["why"].partition("\n\n")
    return sentence, exact_request


def task_cells(row: ListedTask, run: KnownRun | None = None, model: str = "") -> list[str]:
    """Describes a task. `run`: what an open workspace knows of its conversation. `model`: the one
    that does its tasks, by which the program's own agent is called.
    """
    task = row.task
    state = translate_name("state of a task", row.state)
    what_to_do = _shorten_to_cell(task["text"])
    agent = task["agent"] or model or OWN_AGENT
    place = _describe_place(row.workspace, task, run)
    what_it_does_now = _shorten_to_cell(_describe_now(row.state, task))
    texts = [state, what_to_do, row.workspace["name"], agent, place, what_it_does_now]
    cells = [make_safe_text(text) for text in texts]
    cells.append(format_time_ago(task["added"], time.time()))
    if task["cost"]:
        cells.append(format_dollars(task["cost"]))
    elif row.state == "done" and run is not None:
        cells.append(run.cost_words)
    else:
        cells.append(NOTHING)
    return cells


def _describe_place(workspace: Figures, task: Figures, run: KnownRun | None) -> str:
    """Says where a task runs or ran last. A task that no worker has begun is nowhere yet."""
    worker = _describe_worker(workspace, task)
    if worker:
        return worker
    if not task["claims"]:
        return NOTHING
    if run is None:
        # The list of conversations may not have it yet. Only a shared workspace's tasks run elsewhere.
        if workspace.get("is_shared", True):
            return NOTHING
        return tr("this computer")
    return run.machine or tr("this computer")


def _shorten_to_cell(text: str) -> str:
    return " ".join(text.split())[:LONGEST_CELL]


def _describe_worker(workspace: Figures, task: Figures) -> str:
    worker: str = task["worker"]
    computer = _name_computer_of_worker(worker)
    if worker in workspace["lost"]:
        return tr("{worker} (not responding)", worker=computer)
    return computer


def _name_computer_of_worker(worker: str) -> str:
    """Returns the computer of a worker, whose name has the number of its process behind that."""
    computer, _blank, _process = worker.rpartition(" ")
    if computer == socket.gethostname():
        return tr("this computer")
    return computer or worker


def _describe_now(state: str, task: Figures) -> str:
    if state == "done":
        first_line, _newline, _rest = task["answer"].strip().partition("\n")
        return _MARKDOWN_MARKS.sub("", first_line)
    open_needs = task.get("open_needs", 0)
    if open_needs:
        return format_count(open_needs, "waits for {n} task", "waits for {n} tasks")
    reason = describe_task_reason(state, task)
    if state == "needs_you" and task["asked"]:
        # The state says already that it needs you, and there is room only for what it asks.
        _needs_permission, _colon, title = split_task_question(task)[0].partition(": ")
        if title:
            return translate_title(title.removesuffix("."), mark_on_one_line)
    if reason:
        return reason
    # A task that was given a permission goes on as before.
    if state == "running" and task["claims"] > 1 and not task["asked"]:
        return tr("attempt {n}", n=task["claims"])
    return ""


def list_worker_rows(workspaces: Sequence[Figures]) -> dict[str, list[str]]:
    """Returns the cells of each worker, and of each computer that can run no task, with the
    reason.
    """
    rows: dict[str, list[str]] = {}
    for workspace in workspaces:
        identity = workspace["workspace"]
        for worker, task_count in sorted(workspace.get("workers", {}).items()):
            rows[f"{identity} {worker}"] = [
                make_safe_text(_name_computer_of_worker(worker)),
                workspace["name"],
                format_count(task_count, "{n} task", "{n} tasks"),
                _describe_worker_state(workspace, worker),
            ]
        for machine_and_reason in workspace.get("unable", ()):
            machine, _colon, sentence = machine_and_reason.partition(": ")
            reason = translate_sentences(sentence)
            key = f"{identity} {machine_and_reason}"
            rows[key] = [machine, workspace["name"], "", reason]
    return rows


def _describe_worker_state(workspace: Figures, worker: str) -> str:
    if worker in workspace["lost"]:
        return tr("not responding")
    if worker in workspace["draining"]:
        return tr("takes no more tasks")
    return ""


def declare_task_fields(
    names: Mapping[str, str], models: Sequence[str] = ()
) -> list[FieldDeclaration]:
    """Declares the fields of a new task. `allowed` holds the names for `--allow`,
    separated by blanks. `models`: those to choose from, besides that of the workspace.
    """
    first_workspace = next(iter(names), "")
    permissions = (
        tr("The agent asks you if it needs permission"),
        tr("The agent may edit files without asking"),
        tr("The agent may edit files and run commands without asking"),
    )
    text_field = FieldDeclaration("text", tr("What to do"), "", "", long=True)
    workspace_ids = list(names)
    workspace_names = list(names.values())
    workspace_field = FieldDeclaration(
        "workspace",
        tr("Workspace"),
        "",
        first_workspace,
        choices=workspace_ids,
        words=workspace_names,
    )
    allowed = ("", "edits", "edits commands")
    permission_field = FieldDeclaration(
        "allowed", tr("Permissions"), "", "", choices=allowed, words=permissions
    )
    fields = [text_field, workspace_field, permission_field]
    if models:
        words = [tr("The workspace's model"), *models]
        fields.append(
            FieldDeclaration("model", tr("Model"), "", "", choices=["", *models], words=words)
        )
    return fields


def declare_schedule_fields() -> list[FieldDeclaration]:
    label_by_choice = {
        "every": tr("Every day"),
        "weekdays": tr("Monday to Friday"),
        "weekends": tr("Saturday and Sunday"),
    }
    locale = QLocale()
    for index, day in enumerate(WEEKDAYS):
        label_by_choice[day] = locale.dayName(index + 1)  # Qt counts from Monday, which is 1.
    days_field = FieldDeclaration(
        "days",
        tr("Days"),
        "",
        "weekdays",
        choices=list(label_by_choice),
        words=list(label_by_choice.values()),
    )
    time_help = tr("Enter hours and minutes, for example 08:00 or 17:30.")
    time_field = FieldDeclaration("at", tr("Time"), time_help, "08:00")
    zone_help = tr("For example, Europe/Berlin. Leave empty to use this computer's time zone.")
    zone_field = FieldDeclaration("zone", tr("Time zone"), zone_help, "")
    return [days_field, time_field, zone_field]


def schedule_cells(schedule: WorkSchedule, names: Mapping[str, str]) -> list[str]:
    short = QLocale.FormatType.ShortFormat
    day_names: list[str] = []
    for day in schedule.days:
        day_number = WEEKDAYS.index(day) + 1  # Qt counts the days from Monday, which is 1.
        day_names.append(QLocale().dayName(day_number, short))
    if schedule.is_on:
        next_run = format_date_and_time(schedule.next_due(time.time()))
    else:
        next_run = tr("turned off")
    workspace_name = names.get(schedule.workspace, schedule.workspace)
    text = make_safe_text(_shorten_to_cell(schedule.text))
    time_and_zone = f"{schedule.at} ({schedule.zone})"
    return [time_and_zone, ", ".join(day_names), next_run, workspace_name, text]


@dataclass(frozen=True, slots=True)
class SummaryCard:
    """One of the cards above the list of tasks."""

    title: str
    figure: str
    note: str


def summarise_fleet(workspaces: Sequence[Figures]) -> list[SummaryCard]:
    # The figures of a workspace that cannot be read have no tasks.
    readable = [workspace for workspace in workspaces if "tasks" in workspace]
    count_by_state: dict[str, int] = {}
    words_by_state: dict[str, str] = {}
    for state in DOT_BY_STATE:
        count = _count_in_state(readable, state)
        count_by_state[state] = count
        words_by_state[state] = format_number(count)
    stopped_note = ""
    if any(workspace["is_stopped"] for workspace in readable):
        stopped_note = tr("no task starts until you resume the fleet")
    set_aside_note = ""
    if count_by_state["dead_letter"]:
        set_aside_note = tr("{n} set aside", n=words_by_state["dead_letter"])
    ended = tr(
        "{done} done, {failed} failed",
        done=words_by_state["done"],
        failed=words_by_state["failed"],
    )
    spent = _describe_cost(readable)
    cost_note = ""
    if spent:  # Where no task has a cost, "$0" would stand beside dashes in the column of costs.
        cost_note = tr("{dollars} for all tasks", dollars=spent)
    return [
        SummaryCard(tr("Running"), words_by_state["running"], _describe_computers(readable)),
        SummaryCard(tr("Waiting"), words_by_state["waiting"], stopped_note),
        SummaryCard(tr("Needs you"), words_by_state["needs_you"], set_aside_note),
        SummaryCard(tr("Ended"), ended, cost_note),
    ]


def _describe_computers(workspaces: Sequence[Figures]) -> str:
    """Says on which computers, or on how many, programs are there that run tasks."""
    computers: set[str] = set()
    for workspace in workspaces:
        for worker in _list_worker_names(workspace):
            computers.add(_name_computer_of_worker(worker))
    if not computers:
        return ""
    if computers == {tr("this computer")}:
        return tr("on this computer")
    return format_count(len(computers), "on {n} computer", "on {n} computers")


def _list_worker_names(workspace: Figures) -> set[str]:
    """The workers that have said that they are there, and those that have a task. The window runs
    tasks too, and is a worker only while it does.
    """
    names = set(workspace["workers"])
    for task in workspace.get("running", ()):
        if task["worker"]:
            names.add(task["worker"])
    return names


def _count_in_state(workspaces: Sequence[Figures], state: str) -> int:
    key_of_count = state.replace("_", "-")  # The counts are printed with hyphens.
    return sum(workspace["tasks"].get(key_of_count, 0) for workspace in workspaces)


def _describe_cost(workspaces: Sequence[Figures]) -> str:
    """Returns what all tasks cost, and of how much, if workspaces have a budget. Nothing where
    nothing was spent.
    """
    total_cost = sum(workspace["cost"] for workspace in workspaces)
    spent = format_dollars(total_cost)
    limits: list[float] = []
    for workspace in workspaces:
        budget = workspace["budgets"].get("workspace")
        if budget is not None:
            limits.append(budget["limit"])
    if limits:
        return tr("{spent} of {limit}", spent=spent, limit=format_dollars(sum(limits)))
    if total_cost:
        return spent
    return ""
