"""The tasks of all workspaces: what is summed up, chosen, stopped and tried again."""

from __future__ import annotations

from typing import Any

import pytest
from PySide6.QtCore import QPoint
from PySide6.QtTest import QSignalSpy
from PySide6.QtWidgets import QApplication, QPushButton, QWidget

from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.setting_fields import LongTextField
from helix_desktop.gui.fleet.fleet_tasks_page import FleetTasksPage
from helix_desktop.gui.theme import Theme
from helix_desktop.program_folders import ProgramFolders
from tests.gui.fleet.fleet_parts import Parts
from tests.gui.fleet.test_fleet_dialog import FOUND, places, task

__all__ = ["places"]


@pytest.fixture
def parts(places: ProgramFolders) -> Parts:
    return Parts(places)


@pytest.fixture
def page(theme: Theme, parts: Parts) -> FleetTasksPage:
    made = FleetTasksPage(parts.parts, theme, None)  # type: ignore[arg-type]
    made.resize(1_200, 700)
    made.show()
    return made


def figures(**values: Any) -> list[dict[str, Any]]:
    return [{**FOUND[0], **values}]


def select(page: FleetTasksPage, *words: str) -> None:
    page.task_list.clearSelection()
    for number in range(page.task_list.topLevelItemCount()):
        item = page.task_list.topLevelItem(number)
        assert item is not None
        if item.text(1) in words:
            page.task_list.setCurrentItem(
                item, 0, page.task_list.selectionModel().SelectionFlag.Select
            )


def listed(page: FleetTasksPage) -> list[str]:
    count = page.task_list.topLevelItemCount()
    items = [page.task_list.topLevelItem(number) for number in range(count)]
    return [item.text(1) for item in items if item is not None]


def test_without_tasks_there_is_nothing_to_sum_up_to_filter_or_to_stop(
    page: FleetTasksPage,
) -> None:
    page.show_tasks_of_fleet([])
    assert not page.summary_row.isVisible()
    assert not page.filter.isVisible()
    assert not page.card.isVisible()
    assert not page._older.isVisible()
    assert not page._again.isVisible()
    assert (page.has_tasks(), page.has_tasks_to_stop()) == (False, False)


def test_an_example_is_put_into_a_new_task_by_one_press_and_not_started(
    page: FleetTasksPage, parts: Parts
) -> None:
    """The page was one sentence, and nothing said what a task can be."""
    page.show_tasks_of_fleet([])
    assert page.example_card.isVisible()
    (use,) = page.example_card.findChildren(QPushButton)
    use.click()
    (dialog,) = page.findChildren(FieldsDialog)
    assert str(dialog.values["text"]).startswith("Read the files in this folder")
    assert dialog.values["allowed"] == ""
    text = dialog.findChild(LongTextField, "text")
    assert text is not None
    assert text.textCursor().atEnd(), "Return moved the example down"
    assert parts.fleet.asked == []
    dialog.reject()
    page.show_tasks_of_fleet(FOUND)
    assert not page.example_card.isVisible()


def test_tasks_are_listed_and_the_chosen_one_is_shown_below(page: FleetTasksPage) -> None:
    page.show_tasks_of_fleet(FOUND)
    assert page.has_tasks()
    assert page.has_tasks_to_stop()
    assert page.summary_row.isVisible()
    assert page.filter.isVisible()
    assert sorted(listed(page)) == [f"Task {number}" for number in range(1, 7)]
    assert all(labels.title.text() for labels in page._summary_labels)
    assert len(page._summary_labels) == 4
    select(page, "Task 6")
    assert page.card.isVisible()
    assert page.card.title.text() == "Task 6"
    assert page.chosen_task().state == "failed"
    select(page, "Task 5", "Task 6")
    assert page.card.title.text() == "2 tasks are selected."


@pytest.mark.parametrize(
    ("state", "to_stop"),
    [("running", True), ("waiting", True), ("needs_you", True), ("failed", False), ("done", False)],
)
def test_what_can_be_stopped_is_what_is_not_finished(
    page: FleetTasksPage, state: str, *, to_stop: bool
) -> None:
    empty: dict[str, list[Any]] = {
        name: [] for name in ("running", "needs_you", "waiting", "failed")
    }
    page.show_tasks_of_fleet(figures(**{**empty, state: [task(1, state.replace("_", "-"))]}))
    assert page.has_tasks_to_stop() is to_stop


def test_older_tasks_and_those_set_aside_have_their_buttons_only_if_there_are_any(
    page: FleetTasksPage, parts: Parts
) -> None:
    page.show_tasks_of_fleet(FOUND)
    assert not page._older.isVisible()
    assert not page._again.isVisible()
    aside = {"dead_letter": [task(9, "dead-letter")], "has_older": True}
    page.show_tasks_of_fleet([*figures(**aside), *figures(workspace="w2")])
    page._older.click()
    page._again.click()
    assert parts.fleet.asked == [("older",), ("retry dead letters", "w1")]


def test_the_filter_stays_while_the_figures_change(page: FleetTasksPage) -> None:
    page.show_tasks_of_fleet(FOUND)
    page.filter.setText("Task 6")

    def shown() -> list[str]:
        count = page.task_list.topLevelItemCount()
        items = [page.task_list.topLevelItem(number) for number in range(count)]
        return [item.text(1) for item in items if item is not None and not item.isHidden()]

    assert shown() == ["Task 6"]
    page.show_tasks_of_fleet(figures(cost=2.0))
    assert shown() == ["Task 6"]


def test_the_selected_tasks_are_stopped_or_run_again_as_their_state_allows(
    page: FleetTasksPage, parts: Parts
) -> None:
    page.show_tasks_of_fleet(FOUND)
    select(page, "Task 1", "Task 4", "Task 6")
    page.card.stop_wanted.emit()
    ids = {one["id"] for one in (task(1, "running"), task(4, "waiting"))}
    assert {one[2] for one in parts.fleet.asked} == ids
    assert {one[0] for one in parts.fleet.asked} == {"cancel"}
    parts.fleet.asked.clear()
    page.card.retry_wanted.emit()
    assert parts.fleet.asked == [("retry", "w1", task(6, "failed")["id"], ())]


def test_the_conversation_of_the_chosen_task_is_opened_if_it_has_one(
    page: FleetTasksPage, parts: Parts
) -> None:
    page._open_chosen_conversation()
    page.show_tasks_of_fleet(FOUND)
    select(page, "Task 4")
    page.card.open_wanted.emit()
    assert parts.went == [], "it never began"
    select(page, "Task 6")
    page.card.open_wanted.emit()
    assert parts.went == [("w1", task(6, "failed")["id"])]


def test_a_task_that_was_added_is_chosen_once_it_is_listed_and_not_an_older_one_with_its_words(
    page: FleetTasksPage, parts: Parts
) -> None:
    added = QSignalSpy(page.task_added)
    page.show_tasks_of_fleet(FOUND)
    with pytest.raises(InvalidInput, match="The task has no text"):
        page.add_new_task({"workspace": "w1", "text": "  ", "allowed": ""})
    assert added.count() == 0
    page.add_new_task({"workspace": "w1", "text": " Task 6 ", "allowed": "edits web"})
    assert added.count() == 1
    assert parts.fleet.asked == [("add", "w1", "Task 6", ("edits", "web"))]
    page.show_tasks_of_fleet(FOUND)
    assert page.chosen_task().task.get("text") != "Task 6"
    new = {**task(8, "waiting", claims=0), "text": "Task 6"}
    page.show_tasks_of_fleet(figures(waiting=[new, *FOUND[0]["waiting"]]))
    assert page.chosen_task().task["id"] == new["id"]
    select(page, "Task 1")
    page.show_tasks_of_fleet(figures(waiting=[new, *FOUND[0]["waiting"]]))
    assert page.card.title.text() != "", "it is chosen once"
    assert page._awaited.text == ""


def test_what_could_not_be_added_stands_in_the_next_dialog(
    page: FleetTasksPage, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> None:
        raise NotFound("The workspace is gone.")

    monkeypatch.setattr(parts.fleet, "add_task", refuse)
    values = {"workspace": "w2", "text": "My words", "allowed": ""}
    with pytest.raises(NotFound):
        page.add_new_task(values)
    page.open_new_task_dialog()
    (dialog,) = page.findChildren(FieldsDialog)
    assert dialog.windowTitle() == "New task"
    assert page._refused_values == values
    monkeypatch.undo()
    page.add_new_task(values)
    assert page._refused_values == {}


def test_a_command_that_is_asked_for_says_what_it_would_start(
    page: FleetTasksPage, parts: Parts
) -> None:
    asks: dict[str, Any] = {"why": "It asks.\n\nmake all", "asked": "run_command"}
    page.show_tasks_of_fleet(figures(needs_you=[task(3, "needs-you", **asks)]))
    select(page, "Task 3")
    assert page._list_programs_asked_for(page.chosen_task())
    parts.desk.bench.id = "w9"
    assert page._list_programs_asked_for(page.chosen_task()) == (), "it is not open here"
    parts.desk.bench.id = "w1"
    other: dict[str, Any] = {**asks, "asked": "fetch_url"}
    page.show_tasks_of_fleet(figures(needs_you=[task(3, "needs-you", **other)]))
    assert page._list_programs_asked_for(page.chosen_task()) == ()


def test_the_list_gets_the_room_and_its_columns_their_widths(page: FleetTasksPage) -> None:
    columns = page.task_list._columns
    described = [(one.title, one.width, one.is_whole, one.is_figure) for one in columns]
    assert described == [
        ("State", 150, True, False),
        ("Task", 0, False, False),
        ("Workspace", 130, False, False),
        ("Agent", 110, False, False),
        ("Where", 130, False, False),
        ("Result", 260, False, False),
        ("Age", 115, True, False),
        ("Cost", 80, False, True),
    ]
    assert page.task_list.header().visualIndex(5) == 2, "what it does now follows the task"
    layout = page.layout()
    assert layout is not None
    assert layout.spacing() == 12
    assert layout.contentsMargins().left() == layout.contentsMargins().top() == 0
    page.show_tasks_of_fleet(FOUND)
    QApplication.processEvents()
    assert page.task_list.height() > 300
    cards = [page._summary_labels[number].title.parentWidget() for number in range(4)]
    heights = {card.height() for card in cards if isinstance(card, QWidget)}
    assert len(heights) == 1
    for labels in page._summary_labels:
        card = labels.title.parentWidget()
        assert card is not None
        assert labels.title.mapTo(card, QPoint()).toTuple() == (14, 10)
        card_layout = card.layout()
        assert card_layout is not None
        assert card_layout.spacing() == 2
        margins = card_layout.contentsMargins()
        assert (margins.right(), margins.bottom()) == (14, 10)
