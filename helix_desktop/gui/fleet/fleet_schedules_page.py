"""The page of the fleet with the schedules that add tasks at set times."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.fleet import fleet_rows
from helix_desktop.gui.fleet.fleet_list import FleetColumn, FleetList
from helix_desktop.gui.fleet.fleet_page_parts import FleetPageParts
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import tr
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident.schedules import (
    ScheduleChange,
    WorkSchedule,
    build_schedule,
    parse_days,
    read_schedules,
)


class FleetSchedulesPage(QWidget):
    """`show_trouble`: called after a change with why it was refused, or with nothing.
    `schedule_added`: somebody has just added one, and wants to see it. `schedules_shown`: there may
    be the first schedule, or none any more.
    """

    schedule_added = Signal()
    schedules_shown = Signal()

    def __init__(
        self, parts: FleetPageParts, show_trouble: Callable[[str], object], parent: QWidget
    ) -> None:
        super().__init__(parent)
        self._parts = parts
        self._places = parts.desk.places
        self._show_trouble = show_trouble
        self._schedules: list[WorkSchedule] = []
        columns = (
            FleetColumn(tr("Time"), 200),
            FleetColumn(tr("Days"), 220),
            FleetColumn(tr("Next run"), 170),
            FleetColumn(tr("Workspace"), 150),
            FleetColumn(tr("Task"), 0),
        )
        empty_words = tr("To give an agent work at set times, choose “New schedule…”.")
        self.schedule_list = FleetList(tr("Schedules"), columns, self, empty_words)
        self.schedule_list.currentItemChanged.connect(self._update_buttons)
        self._switch = build_push_button(tr("Turn off"), self, self._turn_chosen_schedule_on_or_off)
        self.remove = build_push_button(tr("Remove"), self, self._remove_chosen_schedule)
        room_before = (QWidget(self), 1)  # A row that wraps begins with no empty space.
        buttons = build_row(room_before, self._switch, self.remove, spacing=8, wraps=True)
        build_column((self.schedule_list, 1), buttons, owner=self, margins=0, spacing=12)

    def read_and_show_schedules(self) -> None:
        reading = asyncio.to_thread(read_schedules, self._places.data)
        self._parts.run_work(reading, self.show_schedules)

    def show_schedules(self, schedules: list[WorkSchedule]) -> None:
        self._schedules = schedules
        cells_by_id: dict[str, list[str]] = {}
        for schedule in schedules:
            cells_by_id[schedule.id] = fleet_rows.schedule_cells(schedule, self._parts.names)
        self.schedule_list.show_rows(cells_by_id)
        self._update_buttons()
        self.schedules_shown.emit()

    def has_schedules(self) -> bool:
        return bool(self._schedules)

    def _update_buttons(self) -> None:
        schedule = self._chosen_schedule()
        self._switch.setEnabled(schedule is not None)
        self.remove.setEnabled(schedule is not None)
        if schedule is not None and not schedule.is_on:
            self._switch.setText(tr("Turn on"))
        else:
            self._switch.setText(tr("Turn off"))

    def _chosen_schedule(self) -> WorkSchedule | None:
        chosen_id = self.schedule_list.chosen_row()
        for schedule in self._schedules:
            if schedule.id == chosen_id:
                return schedule
        return None

    def open_new_schedule_dialog(self) -> None:
        task_fields = fleet_rows.declare_task_fields(self._parts.names)
        fields = task_fields + fleet_rows.declare_schedule_fields()
        words = tr("The task also runs while this window is closed, in a background process that starts when you log in. If the computer is off at that time, the task runs once when it is on again.")  # fmt: skip
        about_window = build_plain_label(words, "muted")
        FieldsDialog(
            tr("New schedule"),
            fields,
            tr("Add schedule"),
            self._add_new_schedule,
            self,
            [about_window],
        ).open()

    def _add_new_schedule(self, values: Mapping[str, Any]) -> None:
        options: list[str] = []
        for permission in values["allowed"].split():
            options += ["--allow", permission]
        new_schedule = build_schedule(
            values["workspace"],
            values["text"],
            values["at"],
            values["zone"],
            parse_days(values["days"]),
            options=tuple(options),
        )

        def add_to_stored(stored: list[WorkSchedule]) -> list[WorkSchedule]:
            return stored + [new_schedule]

        self._save_schedules(add_to_stored)
        self.schedule_added.emit()

    def _turn_chosen_schedule_on_or_off(self) -> None:
        chosen_id = self.schedule_list.chosen_row()

        def toggle_chosen(stored: list[WorkSchedule]) -> list[WorkSchedule]:
            changed: list[WorkSchedule] = []
            for schedule in stored:
                if schedule.id == chosen_id:
                    changed.append(schedule.with_on_off_toggled())
                else:
                    changed.append(schedule)
            return changed

        self._save_schedules(toggle_chosen)

    def _remove_chosen_schedule(self) -> None:
        chosen_id = self.schedule_list.chosen_row()

        def remove_chosen(stored: list[WorkSchedule]) -> list[WorkSchedule]:
            return [schedule for schedule in stored if schedule.id != chosen_id]

        self._save_schedules(remove_chosen)

    def _save_schedules(self, change: ScheduleChange) -> None:
        """Changes the stored schedules, since the shown ones may be out of date."""
        saving = _change_schedules(self._places, change)
        self._parts.run_work(saving, self._show_saved_schedules)

    def _show_saved_schedules(self, refused: str) -> None:
        self.read_and_show_schedules()
        self._show_trouble(translate_sentences(refused))


async def _change_schedules(places: ProgramFolders, change: ScheduleChange) -> str:
    from helix_desktop.resident import schedule_changes

    return await schedule_changes.change_schedules(places, change)
