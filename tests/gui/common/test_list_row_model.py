"""Rows that are painted show which of them has the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QCursor
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractItemView, QLineEdit, QListWidget, QTreeWidgetItem, QWidget

from helix_desktop.engine.changes.folder_state import PathChange
from helix_desktop.engine.changes.turn_changes import FileChange
from helix_desktop.gui.changes.changed_files_list import ChangedFilesList, ChangesListRow
from helix_desktop.gui.common.list_row_model import (
    AIMING_SECONDS,
    LOOKS_FOR_REST_MS,
    AimWatch,
)
from helix_desktop.gui.fleet.fleet_list import FleetColumn, FleetList
from helix_desktop.gui.importing.found_conversations import FoundConversationTree
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.theme import Theme
from tests.turns import qt_works


def changed_files(theme: Theme, owner: QWidget) -> QAbstractItemView:
    made = ChangedFilesList(theme, owner)
    files = [FileChange(PathChange(f"0/{name}", None, None), name) for name in ("a.py", "b.py")]
    made.show_changes_rows([ChangesListRow(file=file) for file in files])
    return made


def fleet(_theme: Theme, owner: QWidget) -> QAbstractItemView:
    made = FleetList("Tasks", [FleetColumn("State", 80), FleetColumn("Task", 0)], owner)
    made.show_rows({"1": ["running", "One"], "2": ["waiting", "Two"]})
    return made


def found_conversations(_theme: Theme, owner: QWidget) -> QAbstractItemView:
    made = FoundConversationTree(owner)
    made.addTopLevelItems([QTreeWidgetItem(["One"]), QTreeWidgetItem(["Two"])])
    return made


@pytest.mark.parametrize("build", [changed_files, fleet, found_conversations])
def test_the_row_with_the_keyboard_is_framed_and_one_that_was_clicked_is_not(
    theme: Theme, build: Callable[[Theme, QWidget], QAbstractItemView]
) -> None:
    owner = QWidget()
    line = QLineEdit(owner)
    rows = build(theme, owner)
    build_column(line, rows, owner=owner)
    owner.resize(400, 300)
    owner.show()
    assert QTest.qWaitForWindowActive(owner)
    rows.setCurrentIndex(rows.model().index(0, 0))
    line.setFocus()

    def accent() -> int:
        """Pixels in the colour of the focus."""
        seen = rows.viewport().grab().toImage()
        wanted = theme.colour_of_token("accent").rgb()
        return sum(
            seen.pixel(x, y) == wanted
            for x in range(seen.width())
            for y in range(0, seen.height(), 3)
        )

    before = accent()
    at = rows.visualRect(rows.model().index(0, 0)).center() + QPoint(40, 0)
    QTest.mouseClick(rows.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert rows.hasFocus()
    assert accent() == before
    line.setFocus()
    QTest.keyClick(line, Qt.Key.Key_Tab)
    assert rows.hasFocus()
    assert accent() > before
    owner.close()


def test_an_empty_list_says_so_and_the_keyboard_passes_it_by() -> None:
    owner = QWidget()
    made = FleetList("Schedules", [FleetColumn("At", 80), FleetColumn("Task", 0)], owner)
    for rows, words, focus in (
        ({}, "This list is empty.", Qt.FocusPolicy.NoFocus),
        ({"1": ["08:00", "One"]}, "", Qt.FocusPolicy.StrongFocus),
        ({}, "This list is empty.", Qt.FocusPolicy.NoFocus),
    ):
        made.show_rows(rows)
        assert made.accessibleDescription() == words
        assert made.focusPolicy() == focus
    made.resize(300, 200)
    empty = made.grab().toImage()
    made.setAccessibleDescription("")
    assert made.grab().toImage() != empty  # The sentence is painted.


def test_rows_stay_while_the_mouse_moves_over_them(theme: Theme) -> None:
    """They changed places under somebody who was about to press one."""
    view = QListWidget()
    view.resize(200, 200)
    view.show()
    aim = AimWatch(view)
    done: list[str] = []
    aim.run_once_at_rest(partial(done.append, "nobody is there"))
    assert done == ["nobody is there"]
    QCursor.setPos(view.viewport().mapToGlobal(QPoint(50, 50)))
    QTest.mouseMove(view.viewport(), QPoint(50, 50))
    aim.run_once_at_rest(partial(done.append, "replaced by the next"))
    aim.run_once_at_rest(partial(done.append, "at rest"))
    assert done == ["nobody is there"]
    aim._moved_at -= AIMING_SECONDS
    qt_works(LOOKS_FOR_REST_MS * 2)
    assert done == ["nobody is there", "at rest"]
    view.close()
