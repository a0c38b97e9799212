"""A table of the fleet: its rows, which are chosen, and how its columns share the room."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtGui import QIcon, QImage, QPainter, QPixmap
from PySide6.QtWidgets import QAbstractItemView, QStyleOptionViewItem, QWidget

from helix_desktop.gui.fleet.fleet_list import (
    ColumnShare,
    FleetColumn,
    FleetList,
    share_room,
)
from helix_desktop.gui.theme import Theme

COLUMNS = (FleetColumn("State", 150, is_whole=True), FleetColumn("Task", 0), FleetColumn("Cost", 80, is_figure=True))  # fmt: skip
ROWS = {
    "a": ["running", "Look at the tests", "$1"],
    "b": ["waiting", "Write the Report", ""],
    "c": ["done", "Read it", "$0.5"],
}


@pytest.fixture
def parent(theme: Theme) -> Iterator[QWidget]:
    made = QWidget()
    made.resize(900, 400)
    yield made
    made.close()


@pytest.fixture
def listed(parent: QWidget) -> FleetList:
    made = FleetList("Tasks", COLUMNS, parent)
    made.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
    made.resize(900, 400)
    made.show_rows(ROWS)
    parent.show()
    return made


def shown(listed: FleetList) -> list[list[str]]:
    rows: list[list[str]] = []
    for number in range(listed.topLevelItemCount()):
        item = listed.topLevelItem(number)
        assert item is not None
        if not item.isHidden():
            rows.append([item.text(column) for column in range(listed.columnCount())])
    return rows


def item_of(listed: FleetList, key: str) -> Any:
    return listed._items[key]


def select(listed: FleetList, *keys: str) -> None:
    listed.clearSelection()
    for key in keys:
        item_of(listed, key).setSelected(True)


def test_rows_stand_in_the_order_in_which_they_are_given_and_the_first_is_chosen(
    listed: FleetList,
) -> None:
    assert shown(listed) == list(ROWS.values())
    assert listed.chosen_row() == "a"
    assert listed.accessibleName() == "Tasks"


def test_a_cell_shows_all_of_its_words_when_it_is_pointed_at(listed: FleetList) -> None:
    assert "Look at the tests" in item_of(listed, "a").toolTip(1)
    listed.show_rows({**ROWS, "a": ["running", "Something else", "$1"]})
    assert "Something else" in item_of(listed, "a").toolTip(1)


def test_figures_stand_below_each_other_and_words_do_not(listed: FleetList) -> None:
    right = Qt.AlignmentFlag.AlignRight
    for item in (listed.headerItem(), item_of(listed, "a")):
        assert Qt.AlignmentFlag(item.textAlignment(2)) & right
        assert not Qt.AlignmentFlag(item.textAlignment(1)) & right


def test_the_same_rows_are_not_replaced_and_new_ones_keep_what_was_chosen(
    listed: FleetList,
) -> None:
    listed.choose_row("b")
    before = item_of(listed, "b")
    listed.show_rows({**ROWS, "b": ["running", "Write the Report", ""]})
    assert item_of(listed, "b") is before
    assert before.text(0) == "running"
    listed.show_rows({"new": ["waiting", "New", ""], **ROWS})
    assert listed.chosen_row() == "b"
    assert listed.selected_row_keys() == ["b"]
    listed.show_rows({"a": ROWS["a"], "c": ROWS["c"]})
    assert listed.chosen_row() == "a", "the chosen one is gone"
    listed.show_rows({})
    assert listed.chosen_row() == ""
    assert listed.selected_row_keys() == []


def test_selected_rows_stay_selected_where_they_are_still_there(listed: FleetList) -> None:
    listed.setCurrentItem(item_of(listed, "b"), 0, QItemSelectionModel.SelectionFlag.NoUpdate)
    select(listed, "b", "c")
    listed.show_rows({"new": ["waiting", "New", ""], **ROWS})
    assert listed.selected_row_keys() == ["b", "c"]
    listed.show_rows({"c": ROWS["c"], "b": ROWS["b"]})
    assert listed.selected_row_keys() == ["c", "b"]


def test_choosing_a_row_selects_it_alone(listed: FleetList) -> None:
    select(listed, "a", "b")
    listed.choose_row("c")
    assert listed.selected_row_keys() == ["c"]


def test_each_dot_stands_before_its_row(listed: FleetList) -> None:
    assert item_of(listed, "a").icon(0).isNull()
    picture = QImage(9, 9, QImage.Format.Format_RGB32)
    dot = QIcon(QPixmap.fromImage(picture))
    listed.show_rows(ROWS, {"a": dot, "b": QIcon(), "c": dot})
    icons = [item_of(listed, key).icon(0).isNull() for key in ROWS]
    assert icons == [False, True, False]


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ("", ["a", "b", "c"]),
        ("report", ["b"]),
        ("RE", ["b", "c"]),
        ("read done", ["c"]),
        ("read running", []),
        ("$", ["a", "c"]),
    ],
)
def test_a_row_stays_if_its_cells_have_all_words(
    listed: FleetList, words: str, kept: list[str]
) -> None:
    listed.filter_fleet_rows(words)
    assert shown(listed) == [ROWS[key] for key in kept]


def test_what_is_filtered_out_is_not_selected(listed: FleetList) -> None:
    select(listed, "a", "b", "c")
    listed.filter_fleet_rows("re")
    assert listed.selected_row_keys() == ["b", "c"]
    listed.filter_fleet_rows("")
    assert listed.selected_row_keys() == ["a", "b", "c"]


# --- The width of the columns


def share(
    number: int, width: int, least: int, *, wanted: int = 0, is_figure: bool = False
) -> ColumnShare:
    column = FleetColumn(str(number), width, is_figure=is_figure)
    return ColumnShare(number, column, wanted=wanted or width, least=least)


def widths(shares: list[ColumnShare], room: int) -> list[int]:
    """The width of each column, 0 if it is hidden."""
    part = share_room(shares, room)
    return [each.width_at(part) for each in shares]


def three_columns() -> list[ColumnShare]:
    return [share(0, 150, 50), share(1, 300, 60), share(2, 80, 80, is_figure=True)]


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (900, [150, 300, 80]),  # All have what they want.
        (530, [150, 300, 80]),
        (430, [150, 200, 80]),  # The widest shrinks first.
        (310, [150, 80, 80]),
        (309, [150, 0, 80]),  # There it has no room for a few words.
        (230, [150, 0, 80]),
        (180, [100, 0, 80]),  # Then the others shrink.
        (130, [50, 0, 80]),
        (129, [129, 0, 0]),  # And at last, figures are hidden.
        (40, [50, 0, 0]),  # The first column is never hidden.
    ],
)
def test_columns_share_the_room_there_is(room: int, expected: list[int]) -> None:
    assert widths(three_columns(), room) == expected


def test_columns_of_words_are_hidden_from_the_last_on_and_before_figures() -> None:
    def columns() -> list[ColumnShare]:
        return [
            share(0, 100, 100),
            share(1, 60, 60, is_figure=True),
            share(2, 50, 50),
            share(3, 50, 50),
            share(4, 100, 100),
        ]

    # The first of the two widest is hidden by its rule, so one that is wider stands behind.
    wide = [*columns(), share(5, 400, 50)]
    assert widths(wide, 260) == [100, 60, 50, 50, 0, 0]
    wide = [*columns(), share(5, 400, 50)]
    assert widths(wide, 210) == [100, 60, 50, 0, 0, 0]
    wide = [*columns(), share(5, 400, 50)]
    assert widths(wide, 160) == [100, 60, 0, 0, 0, 0]


def test_wide_columns_shrink_in_proportion() -> None:
    shares = [share(0, 200, 100), share(1, 100, 50), share(2, 400, 300)]
    assert widths(shares, 225) == [150, 75, 0]


def test_a_table_hides_no_column_in_a_wide_window_and_some_in_a_narrow_one(
    parent: QWidget,
) -> None:
    columns = (*COLUMNS, FleetColumn("Now", 260))
    listed = FleetList("Tasks", columns, parent)
    listed.resize(900, 400)
    parent.show()
    listed.show_rows({"a": ["running", "Look at the tests", "$1", "words " * 30]})
    assert not any(listed.isColumnHidden(column) for column in range(4))
    assert listed.columnWidth(1) > listed.columnWidth(0)
    listed.resize(230, 400)
    hidden = [listed.isColumnHidden(column) for column in range(4)]
    assert hidden == [False, False, True, True]
    listed.resize(900, 400)
    assert not any(listed.isColumnHidden(column) for column in range(4))


def test_a_column_with_little_in_it_leaves_its_room_to_others(parent: QWidget) -> None:
    columns = (FleetColumn("A", 0), FleetColumn("B", 300), FleetColumn("C", 90))
    listed = FleetList("Tasks", columns, parent)
    listed.resize(1_200, 300)
    parent.show()
    listed.show_rows({"a": ["words", "x", "y"]})
    assert listed.columnWidth(1) < 150
    assert listed.columnWidth(2) == 90
    listed.show_rows({"a": ["words", "x" * 400, "y"]})
    assert listed.columnWidth(1) == 300


# --- Words that run on into an empty cell


@pytest.fixture
def running_on(parent: QWidget) -> FleetList:
    columns = (FleetColumn("A", 90), FleetColumn("Words", 0), FleetColumn("Now", 200))
    listed = FleetList("Tasks", columns, parent)
    listed.let_words_run_on(1, 2)
    listed.resize(560, 200)
    parent.show()
    return listed


def picture_of_cell(listed: FleetList, column: int, *cells: str) -> QImage:
    """What is drawn in one cell of a row with these words."""
    # Another row has words in each cell, so that the columns are always equally wide.
    listed.show_rows({"first": ["a", "b", "wide words " * 5], "row": cells})
    index = listed.indexFromItem(item_of(listed, "row")).siblingAtColumn(column)
    picture = QImage(listed.viewport().size(), QImage.Format.Format_RGB32)
    picture.fill(Qt.GlobalColor.white)
    painter = QPainter(picture)
    option = QStyleOptionViewItem()
    option.rect = listed.visualRect(index)
    option.widget = listed
    listed.itemDelegate().paint(painter, option, index)
    painter.end()
    if column > 0:
        beside = picture.pixelColor(option.rect.left() - 2, option.rect.center().y())
        assert beside == Qt.GlobalColor.white, "nothing is drawn outside of the cell"
    return picture.copy(option.rect)


LONG = "many words of a task " * 20


def test_words_run_on_into_the_next_cell_where_that_is_empty(running_on: FleetList) -> None:
    assert running_on.header().visualIndex(2) == 2
    long_words = picture_of_cell(running_on, 2, "a", LONG, "")
    assert long_words != picture_of_cell(running_on, 2, "a", "short", "")
    assert picture_of_cell(running_on, 1, "a", LONG, "") != picture_of_cell(
        running_on, 1, "a", "short", ""
    )


def test_a_cell_with_words_of_its_own_shows_only_these(running_on: FleetList) -> None:
    beside_long_words = picture_of_cell(running_on, 2, "a", LONG, "now")
    assert beside_long_words == picture_of_cell(running_on, 2, "a", "short", "now")
    assert beside_long_words != picture_of_cell(running_on, 2, "a", LONG, "then")


def test_other_cells_are_drawn_as_always(running_on: FleetList) -> None:
    one = picture_of_cell(running_on, 0, "a", LONG, "")
    assert one == picture_of_cell(running_on, 0, "a", "short", "")
    assert one != picture_of_cell(running_on, 0, "other", LONG, "")


def test_the_column_into_which_words_run_on_moves_beside_theirs(parent: QWidget) -> None:
    columns = [FleetColumn(title, 100) for title in ("State", "Task", "Where", "Now")]
    shown = FleetList("Tasks", columns, parent)
    shown.let_words_run_on(1, 3)
    header = shown.header()
    assert [header.logicalIndex(place) for place in range(4)] == [0, 1, 3, 2]
