"""Schedules: the stored ones are changed, not those that are shown, and the buttons say what they do."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from PySide6.QtTest import QSignalSpy

from helix_desktop.gui.fleet.fleet_schedules_page import FleetSchedulesPage
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident import schedule_changes, schedules
from helix_desktop.resident.schedules import ScheduleChange, WorkSchedule
from tests.gui.fleet.fleet_parts import Parts
from tests.gui.fleet.test_fleet_dialog import places

__all__ = ["places"]


class Shown:
    """A page with two schedules, and the troubles that it showed."""

    def __init__(self, where: ProgramFolders) -> None:
        self.where = where
        self.parts = Parts(where)
        self.troubles: list[str] = []
        self.page = FleetSchedulesPage(self.parts.parts, self.troubles.append, None)  # type: ignore[arg-type]
        self.page.resize(900, 400)

    def choose(self, row: int) -> None:
        item = self.page.schedule_list.topLevelItem(row)
        self.page.schedule_list.setCurrentItem(item)  # type: ignore[arg-type]

    def stored(self) -> Sequence[WorkSchedule]:
        return schedules.read_schedules(self.where.data)


@pytest.fixture
def shown(places: ProgramFolders, monkeypatch: pytest.MonkeyPatch, application: object) -> Shown:
    async def change(where: ProgramFolders, change: ScheduleChange) -> str:
        schedules.write_schedules(where.data, change(schedules.read_schedules(where.data)))
        return "It was refused." if refuses else ""

    refuses: list[bool] = []
    monkeypatch.setattr(schedule_changes, "change_schedules", change)
    (first,) = schedules.read_schedules(places.data)
    second = WorkSchedule("s2", "w2", "Check", "09:30", "Europe/Berlin")
    schedules.write_schedules(places.data, [first, second])
    made = Shown(places)
    made.refuses = refuses  # type: ignore[attr-defined]
    return made


def test_the_schedules_are_listed_and_one_must_be_chosen_to_change_it(shown: Shown) -> None:
    page = shown.page
    said = QSignalSpy(page.schedules_shown)
    assert not page.has_schedules()
    page.show_schedules([])
    assert not page._switch.isEnabled()
    assert not page.remove.isEnabled()
    page.read_and_show_schedules()
    assert page.has_schedules()
    assert said.count() == 2
    assert page.schedule_list.topLevelItemCount() == 2
    shown.choose(1)
    assert page._switch.isEnabled()
    assert page.remove.isEnabled()
    assert page._switch.text() == "Turn off"


def test_only_the_chosen_one_is_turned_off_and_on(shown: Shown) -> None:
    page = shown.page
    page.read_and_show_schedules()
    shown.choose(1)
    page._switch.click()
    assert [one.is_on for one in shown.stored()] == [True, False]
    assert page._switch.text() == "Turn on"
    shown.choose(0)
    assert page._switch.text() == "Turn off"
    shown.choose(1)
    page._switch.click()
    assert [one.is_on for one in shown.stored()] == [True, True]
    assert shown.troubles == ["", ""]


def test_only_the_chosen_one_is_removed_also_if_others_were_added_since(shown: Shown) -> None:
    page = shown.page
    page.read_and_show_schedules()
    shown.choose(0)
    third = WorkSchedule("s3", "w1", "New", "10:00", "Europe/Berlin")
    schedules.write_schedules(shown.where.data, [*shown.stored(), third])
    page.remove.click()
    assert [one.id for one in shown.stored()] == ["s2", "s3"]
    assert page.schedule_list.topLevelItemCount() == 2


def test_a_new_one_has_what_was_entered_and_is_shown(shown: Shown) -> None:
    page = shown.page
    added = QSignalSpy(page.schedule_added)
    values = {
        "workspace": "w2",
        "text": "Look",
        "at": "7:30",
        "zone": "Asia/Tokyo",
        "days": "sat",
        "allowed": "edits web",
    }
    page._add_new_schedule(values)
    made = shown.stored()[-1]
    assert (made.workspace, made.text, made.at, made.zone) == ("w2", "Look", "7:30", "Asia/Tokyo")
    assert made.options == ("--allow", "edits", "--allow", "web")
    assert made.days == ("sat",)
    assert added.count() == 1
    page._add_new_schedule({**values, "allowed": ""})
    assert shown.stored()[-1].options == ()
    assert len(shown.stored()) == 4


def test_why_a_change_was_refused_is_shown(shown: Shown) -> None:
    shown.page.read_and_show_schedules()
    shown.choose(0)
    shown.refuses.append(True)  # type: ignore[attr-defined]
    shown.page._switch.click()
    assert shown.troubles == ["It was refused."]


def test_the_list_gets_the_room_and_its_columns_their_widths(shown: Shown) -> None:
    page = shown.page
    columns = page.schedule_list._columns
    assert [(one.title, one.width) for one in columns] == [
        ("Time", 200),
        ("Days", 220),
        ("Next run", 170),
        ("Workspace", 150),
        ("Task", 0),
    ]
    layout = page.layout()
    assert layout is not None
    assert layout.spacing() == 12
    assert layout.contentsMargins().left() == layout.contentsMargins().bottom() == 0
    page.show()
    assert page.schedule_list.height() > 300
    assert page.remove.x() + page.remove.width() == page.width(), "as on the other pages"
    assert page.remove.x() - page._switch.x() - page._switch.width() == 8
