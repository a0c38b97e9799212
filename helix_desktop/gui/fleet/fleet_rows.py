"""The lists of the fleet: how tasks, workers and schedules are described."""

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from PySide6.QtCore import QLocale, QSize, Qt
from PySide6.QtGui import QIcon, QResizeEvent
from PySide6.QtWidgets import QHeaderView, QTreeWidgetItem, QWidget

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.common.figure_formats import (
    format_date_and_time,
    format_dollars,
    format_time_ago,
)
from helix_desktop.gui.common.list_row_model import RowTree
from helix_desktop.gui.common.running_states import describe_running_state
from helix_desktop.gui.common.setting_fields import FieldDeclaration
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.transcript.safe_text import make_safe_text, safe_tooltip
from helix_desktop.gui.translation import format_count, format_number, tr, translate_name
from helix_desktop.gui.workbench_types import Workbench
from helix_desktop.resident.schedules import WEEKDAYS, WorkSchedule

# The minimum width, in pixels and in letters, of the column that gets the remaining room.
LEAST_WIDTH, LEAST_LETTERS = 160, 14
NARROW = 100  # A column of at most this many pixels keeps its width.
LONGEST_CELL = 200  # Longer texts in a cell are cut to this many characters.
NOTHING = "–"
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
Figures = Mapping[
    str, Any
]  # Values of a workspace or a task, as `fleet status --json` prints them.


class FleetList(RowTree):
    """`columns`: titles and widths (0: the rest). `figures`: number columns. Only
    changed cells are drawn.

    Cells of the columns `whole` and `figures` are never cut.
    """

    def __init__(
        self,
        name: str,
        columns: Sequence[tuple[str, int]],
        parent: QWidget,
        figures: Sequence[int] = (),
        empty: str = "",
        whole: Sequence[int] = (),
    ) -> None:
        super().__init__(parent, empty)
        self._items: dict[str, QTreeWidgetItem] = {}
        self._figures, self._whole, self._widths = (
            figures,
            (*whole, *figures),
            [width for _, width in columns],
        )
        self.setAccessibleName(name)
        self.setProperty("look", "table")
        self.setIconSize(QSize(9, 9))
        self.setRootIsDecorated(False)
        self.setHeaderLabels([title for title, _ in columns])
        self._align_figures(self.headerItem())
        self.header().setStretchLastSection(False)
        self.header().setSectionResizeMode(self._widths.index(0), QHeaderView.ResizeMode.Stretch)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_columns_to_room()

    def _fit_columns_to_room(self) -> None:
        """Shrinks columns if room is short: first the widest, then all wide ones. If
        there is no room even then, columns are hidden from the last on, but figures
        after all others.
        """
        room = self.viewport().width() - max(
            LEAST_WIDTH, LEAST_LETTERS * self.fontMetrics().averageCharWidth()
        )
        for number in range(len(self._widths)):
            self.setColumnHidden(number, False)  # The title of a hidden column has no width.
        titles = [
            width
            and max(
                self.header().sectionSizeHint(at),
                self.sizeHintForColumn(at) if at in self._whole else 0,
            )
            for at, width in enumerate(self._widths)
        ]
        widths = []
        for column, (width, title) in enumerate(zip(self._widths, titles, strict=True)):
            # A column with little or nothing in it leaves its room to the others.
            filled = min(width, self.sizeHintForColumn(column)) if width > NARROW else width
            widths.append(width and max(filled, title))
        widest = self._widths.index(max(self._widths))
        left = room - sum(widths) + widths[widest]
        widths[widest] = (
            min(widths[widest], left) if left >= max(LEAST_WIDTH // 2, titles[widest]) else 0
        )
        least = [
            min(both) if both[0] > NARROW else both[0] for both in zip(widths, titles, strict=True)
        ]
        for last in sorted(range(1, len(widths)), key=lambda at: (at in self._figures, -at)):
            if sum(least) > room:
                least[last] = widths[last] = 0
        share = min(max((room - sum(least)) / max(sum(widths) - sum(least), 1), 0.0), 1.0)
        for number, width in enumerate(widths):
            self.setColumnHidden(number, bool(self._widths[number]) and not width)
            self.setColumnWidth(number, least[number] + round((width - least[number]) * share))

    def _align_figures(self, row: QTreeWidgetItem) -> None:
        for column in self._figures:
            row.setTextAlignment(
                column, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
            )

    def show_rows(
        self, rows: Mapping[str, Sequence[str]], dots: Mapping[str, QIcon] | None = None
    ) -> None:
        """Replaces the rows. `dots` precede the first cells. The chosen row stays chosen."""
        if list(rows) != list(self._items):
            chosen = self.chosen_row()
            selected = self.selected_row_keys()
            self.clear()
            self._items = {key: QTreeWidgetItem(self) for key in rows}
            for row in self._items.values():
                self._align_figures(row)
            current = self._items.get(chosen) or self.topLevelItem(0)
            if current is not None:
                self.setCurrentItem(current)
            for key in selected:
                if key in self._items:
                    self._items[key].setSelected(True)
        for key, cells in rows.items():
            item = self._items[key]
            for column, text in enumerate(cells):
                if item.text(column) != text:
                    item.setText(column, text)
                    item.setToolTip(column, safe_tooltip(text))
            if dots:
                item.setIcon(0, dots[key])
        self._fit_columns_to_room()

    def filter_fleet_rows(self, words: str) -> None:
        for item in self._items.values():
            held = " ".join(item.text(column) for column in range(self.columnCount())).casefold()
            item.setHidden(not all(word in held for word in words.casefold().split()))

    def chosen_row(self) -> str:
        return next((key for key, item in self._items.items() if item is self.currentItem()), "")

    def selected_row_keys(self) -> list[str]:
        """Return the rows that are selected and not filtered out, from top to bottom."""
        return [
            key for key, item in self._items.items() if item.isSelected() and not item.isHidden()
        ]


def list_conversation_cells(benches: Sequence[Workbench]) -> dict[str, list[str]]:
    """Describes each conversation that runs or works in a copy, and which of its files
    others change.
    """
    rows: dict[str, list[str]] = {}
    for bench in benches:
        titles = {
            row.id: make_safe_text(row.title[:LONGEST_CELL]) for row in bench.list_conversations()
        }
        for row in bench.list_conversations():
            session = bench.sessions.find_open_session(row.id)
            running = session.running if session is not None else ConversationActivity.IDLE
            if running is ConversationActivity.IDLE and not row.copy:
                continue
            files, overlaps = (
                bench.copies.changed.get(row.id, ()),
                bench.copies.overlaps.get(row.id, {}),
            )
            others = sorted(
                {titles.get(name, name) for names in overlaps.values() for name in names}
            )
            shared = f"{_join_file_names(overlaps)} ({', '.join(others)})" if overlaps else ""
            agent = make_safe_text(row.acp_agent or row.agent)
            where = [make_safe_text(bench.name), agent, make_safe_text(row.copy)]
            what, files_and_cost = (
                (describe_running_state(running), titles[row.id]),
                (_join_file_names(files), shared),
            )
            rows[f"{bench.id} {row.id}"] = [
                *what,
                *where,
                *files_and_cost,
                format_dollars(row.whole_cost),
            ]
    return rows


def _join_file_names(paths: Iterable[str]) -> str:
    return make_safe_text(", ".join(path.rpartition("/")[2] for path in paths)[:LONGEST_CELL])


def list_task_rows(found: Sequence[Figures]) -> dict[str, tuple[str, Figures, Figures]]:
    """Returns state, workspace and task for each row: first those that wait longest,
    then the newest.
    """
    rows = {}
    for state in DOT_BY_STATE:
        some = [(one, task) for one in found for task in reversed(one.get(state, ()))]
        oldest_first = sorted(some, key=lambda row: row[1]["added"])
        for one, task in oldest_first if state == "waiting" else reversed(oldest_first):
            rows[f"{one['workspace']} {task['id']}"] = (state, one, task)
    return rows


def describe_task_reason(state: str, task: Figures) -> str:
    """Returns the sentence that says why a task is in its state. A task that continues has none."""
    goes_on = state == "running" or (state == "waiting" and task["asked"])
    if goes_on:
        return ""
    sentence, _ = split_task_question(task)
    return translate_sentences(sentence)


def split_task_question(task: Figures) -> tuple[str, str]:
    """Returns a task's sentence, and exactly what it asks for, which stands below it."""
    sentence, _, exact = task["why"].partition("\n\n")
    return sentence, exact


def task_cells(state: str, one: Figures, task: Figures) -> list[str]:
    where = task["worker"].rpartition(" ")[
        0
    ]  # Removes the process number from the end of the name.
    if task["worker"] in one["lost"]:
        where = tr("{worker} (not responding)", worker=where)
    again = (
        state == "running" and task["claims"] > 1 and not task["asked"]
    )  # A permitted task goes on as before.
    now = describe_task_reason(state, task) or (
        tr("attempt {n}", n=task["claims"]) if again else ""
    )
    text, now = (" ".join(words.split())[:LONGEST_CELL] for words in (task["text"], now))
    words = [
        translate_name("state of a task", state),
        text,
        one["name"],
        task["agent"] or tr("agent"),
        where or NOTHING,
        now,
    ]
    cost = format_dollars(task["cost"]) if task["cost"] else NOTHING
    return [*map(make_safe_text, words), format_time_ago(task["added"], time.time()), cost]


def list_worker_rows(found: Sequence[Figures]) -> dict[str, list[str]]:
    rows = {}
    for one in found:
        for worker, count in sorted(one.get("workers", {}).items()):
            draining = tr("takes no more tasks") if worker in one["draining"] else ""
            state = tr("not responding") if worker in one["lost"] else draining
            tasks = format_count(count, "{n} task", "{n} tasks")
            rows[f"{one['workspace']} {worker}"] = [
                make_safe_text(worker),
                one["name"],
                tasks,
                state,
            ]
        for why in one.get("unable", ()):
            machine, _, sentence = why.partition(": ")
            rows[f"{one['workspace']} {why}"] = [
                machine,
                one["name"],
                "",
                translate_sentences(sentence),
            ]
    return rows


def declare_task_fields(names: Mapping[str, str]) -> list[FieldDeclaration]:
    """Declares the fields of a new task. `allowed` holds the names for `--allow`,
    separated by blanks.
    """
    first, permissions = next(iter(names), ""), (
        tr("The agent waits for you if it needs permission"),
        tr("The agent may edit files without asking"),
        tr("The agent may edit files and run commands without asking"),
    )  # fmt: skip
    return [
        FieldDeclaration("text", tr("What to do"), "", "", long=True),
        FieldDeclaration(
            "workspace", tr("Workspace"), "", first, choices=[*names], words=[*names.values()]
        ),
        FieldDeclaration(
            "allowed", tr("Permissions"), "", "", ("", "edits", "edits commands"), permissions
        ),
    ]


def declare_schedule_fields() -> list[FieldDeclaration]:
    days = [QLocale().dayName(number + 1) for number in range(len(WEEKDAYS))]
    words = [tr("Every day"), tr("Monday to Friday"), tr("Saturday and Sunday"), *days]
    zone = tr("For example, Europe/Berlin. Leave empty to use this computer's time zone.")
    return [
        FieldDeclaration(
            "days", tr("Days"), "", "weekdays", ("every", "weekdays", "weekends", *WEEKDAYS), words
        ),
        FieldDeclaration(
            "at", tr("Time"), tr("Enter hours and minutes, for example 08:00 or 17:30."), "08:00"
        ),
        FieldDeclaration("zone", tr("Time zone"), zone, ""),
    ]


def schedule_cells(schedule: WorkSchedule, names: Mapping[str, str]) -> list[str]:
    short = QLocale.FormatType.ShortFormat
    days = ", ".join(QLocale().dayName(WEEKDAYS.index(day) + 1, short) for day in schedule.days)
    due = (
        format_date_and_time(schedule.next_due(time.time())) if schedule.is_on else tr("turned off")
    )
    name = names.get(schedule.workspace, schedule.workspace)
    text = make_safe_text(" ".join(schedule.text.split())[:LONGEST_CELL])
    return [f"{schedule.at} ({schedule.zone})", days, due, name, text]


def summarise_fleet(found: Sequence[Figures]) -> list[tuple[str, str, str]]:
    """Returns title, figure and note for each of the four cards."""
    sound = [one for one in found if "tasks" in one]
    figures = {
        state: sum(one["tasks"].get(state.replace("_", "-"), 0) for one in sound)
        for state in DOT_BY_STATE
    }
    count = {state: format_number(figure) for state, figure in figures.items()}
    workers = format_count(
        sum(len(one["workers"]) for one in sound), "on {n} worker", "on {n} workers"
    )
    stopped = (
        tr("no task starts until you resume the fleet")
        if any(one["is_stopped"] for one in sound)
        else ""
    )
    set_aside = ""
    if figures["dead_letter"]:
        set_aside = tr("{n} set aside", n=count["dead_letter"])
    ended = tr("{done} done, {failed} failed", done=count["done"], failed=count["failed"])
    cost = format_dollars(sum(one["cost"] for one in sound))
    if limits := [
        one["budgets"]["workspace"]["limit"] for one in sound if "workspace" in one["budgets"]
    ]:
        cost = tr("{spent} of {limit}", spent=cost, limit=format_dollars(sum(limits)))
    return [
        (tr("Running"), count["running"], workers),
        (tr("Waiting"), count["waiting"], stopped),
        (tr("Needs you"), count["needs_you"], set_aside),
        (tr("Ended"), ended, tr("{dollars} for all tasks", dollars=cost)),
    ]
