from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QPointF, QRect, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.frame.top_level_window import RAIL_SQUARE, RAIL_WIDTH, rail_width
from helix_desktop.gui.frame.workspace_rail import WorkspaceButton, WorkspaceRail, choose_initials
from helix_desktop.gui.theme import Theme
from helix_desktop.store.all_workspaces import KnownWorkspace
from helix_desktop.store.workspace_settings import WorkspaceConfig
from tests.gui.fake_desk import FakeDesk


def squares(rail: WorkspaceRail) -> list[WorkspaceButton]:
    return rail.findChildren(WorkspaceButton)


def test_a_square_for_each_workspace_and_a_click_chooses_it(theme: Theme) -> None:
    rail = WorkspaceRail(theme)
    rail.show_workspace_buttons(FakeDesk().list_workspaces(), "storage-engine")
    chosen = QSignalSpy(rail.chosen)
    QTest.mouseClick(squares(rail)[1], Qt.MouseButton.LeftButton)
    assert chosen.at(0) == ["parser"]
    assert rail.workspace_id_at(3) == "infra"
    assert rail.workspace_id_at(4) == ""


def test_the_open_one_is_marked(theme: Theme) -> None:
    rail = WorkspaceRail(theme)
    rail.show_workspace_buttons(FakeDesk().list_workspaces(), "parser")
    assert [square.isChecked() for square in squares(rail)] == [False, True, False]


def test_the_focus_goes_with_the_mark(theme: Theme) -> None:
    """After Ctrl+1 the ring of the focus stayed at the one before, and two looked chosen."""
    rail = WorkspaceRail(theme)
    rail.show_workspace_buttons(FakeDesk().list_workspaces(), "parser")
    rail.show()
    squares(rail)[1].setFocus()
    rail.mark_open_workspace("infra")
    assert rail.focusWidget() is squares(rail)[2]
    rail.close()


def test_the_state_is_a_word_as_well_as_a_dot(theme: Theme) -> None:
    rail = WorkspaceRail(theme)
    rail.show_workspace_buttons(FakeDesk().list_workspaces(), "parser")
    before = squares(rail)[0].grab().toImage()
    rail.show_workspace_state("storage-engine", ConversationActivity.ASKING)
    square = squares(rail)[0]
    assert square.accessibleName() == "Workspace storage-engine, needs you"
    assert square.toolTip().endswith("needs you")
    assert square.grab().toImage() != before


@pytest.mark.parametrize(
    ("names", "initials"),
    [
        (["storage-engine", "parser", "infra"], ["S", "P", "I"]),
        (["proj", "proj2", "proj3"], ["P", "P2", "P3"]),
        (["nofolder", "nogit", "withgit"], ["Nf", "Ng", "W"]),
        (["a", "A", "same", "same", "", "work (old)", "work"], ["A", "A", "S", "S", "", "Wo", "W"]),
    ],
)
def test_workspaces_with_one_initial_can_be_told_apart(
    names: list[str], initials: list[str]
) -> None:
    assert choose_initials(names) == initials


def test_everything_has_a_name_for_a_screen_reader(theme: Theme) -> None:
    rail = WorkspaceRail(theme)
    rail.show_workspace_buttons(FakeDesk().list_workspaces(), "")
    names = [button.accessibleName() for button in (rail.menu_button, *squares(rail))]
    assert all(names)


def wheel(delta: int) -> QWheelEvent:
    at = QPointF(20, 20)
    buttons = Qt.MouseButton.NoButton
    phase = Qt.ScrollPhase.NoScrollPhase
    modifiers = Qt.KeyboardModifier.NoModifier
    return QWheelEvent(at, at, QPoint(), QPoint(0, delta), buttons, modifiers, phase, False)


def many(number: int) -> list[KnownWorkspace]:
    settings = [WorkspaceConfig(f"Workspace {n}", "#0d7d74", (f"/x/{n}",)) for n in range(number)]
    return [KnownWorkspace(f"w{n}", Path(f"/data/w{n}"), each) for n, each in enumerate(settings)]


@pytest.fixture
def rail(theme: Theme) -> Iterator[WorkspaceRail]:
    """In a window 600 pixels high, which does not grow with it."""
    window = QWidget()
    made = WorkspaceRail(theme, window)
    window.resize(56, 600)
    made.setGeometry(0, 0, 56, 600)
    window.show()
    yield made
    window.deleteLater()


def shown(rail: WorkspaceRail, number: int) -> list[WorkspaceButton]:
    rail.show_workspace_buttons(many(number), f"w{number - 1}")
    QApplication.processEvents()
    return squares(rail)


@pytest.mark.parametrize("number", [3, 47, 500])
def test_any_number_of_workspaces_keeps_its_squares_apart_and_the_menu_in_sight(
    rail: WorkspaceRail, number: int
) -> None:
    placed = [square.mapTo(rail, QPoint(0, 0)).y() for square in shown(rail, number)]
    assert all(below - above >= 36 for above, below in itertools.pairwise(placed))
    menu = QRect(rail.menu_button.mapTo(rail, QPoint(0, 0)), rail.menu_button.size())
    assert rail.rect().contains(menu)
    end_of_list = rail.area.mapTo(rail, QPoint(0, rail.area.height())).y()
    assert menu.top() >= end_of_list


def test_that_there_are_more_below_is_seen_and_the_bar_covers_no_dot(rail: WorkspaceRail) -> None:
    bar = rail.area.verticalScrollBar()
    rail.show_workspace_buttons(many(3), "w0")
    QApplication.processEvents()
    assert not bar.isVisible()
    rail.show_workspace_buttons(many(47), "w0")
    QApplication.processEvents()
    assert bar.isVisible()
    assert rail.area.viewport().width() >= (RAIL_WIDTH + RAIL_SQUARE) // 2 - 2 + 7
    rail.mark_open_workspace("w46")
    QApplication.processEvents()
    assert rail._inside.x() == 0, "nothing moves to the side"


def test_the_open_one_is_scrolled_into_sight_and_the_wheel_brings_the_others(
    rail: WorkspaceRail,
) -> None:
    placed = shown(rail, 47)
    last = placed[-1].mapTo(rail, QPoint(0, 0)).y()
    assert 0 <= last <= rail.height() - 36
    bar = rail.area.verticalScrollBar()
    before = bar.value()
    QApplication.sendEvent(rail.area.viewport(), wheel(120))
    assert bar.value() < before


def test_squares_are_ordered_by_dragging_and_by_the_menu(rail: WorkspaceRail) -> None:
    placed = shown(rail, 5)
    ordered = QSignalSpy(rail.ordered)
    chosen = QSignalSpy(rail.chosen)
    middle = placed[0].rect().center()
    QTest.mousePress(placed[0], Qt.MouseButton.LeftButton, pos=middle)
    QTest.mouseMove(placed[0], middle + QPoint(0, 100))
    QTest.mouseRelease(placed[0], Qt.MouseButton.LeftButton, pos=middle)
    assert ordered.at(0) == [["w1", "w2", "w0", "w3", "w4"]]
    assert chosen.count() == 0
    rail.move_workspace(rail.workspace_id_at(5), -4)
    assert ordered.at(1) == [["w4", "w1", "w2", "w0", "w3"]]
    assert [rail.workspace_id_at(n) for n in range(1, 6)] == ["w4", "w1", "w2", "w0", "w3"]


def test_squares_and_tools_grow_with_the_text_at_once_and_after_a_restart(theme: Theme) -> None:
    rail = WorkspaceRail(theme)
    rail.show_workspace_buttons(many(3), "w0")
    theme.set_zoom(2.0)
    again = WorkspaceRail(theme)
    again.show_workspace_buttons(many(3), "w0")
    for each in (rail, again):
        assert [square.height() for square in squares(each)] == [2 * RAIL_SQUARE] * 3
        assert each.menu_button.iconSize().width() == 36
        assert each.width() == rail_width(2.0)
    theme.set_zoom(0.5)
    assert squares(rail)[0].height() == RAIL_SQUARE, (
        "small text leaves them large enough for a finger"
    )
    theme.set_zoom(1.0)


def offered_of_first(rail: WorkspaceRail) -> list[str]:
    rail.show_workspace_menu("storage-engine", QPoint(0, 0))
    menu = rail.findChildren(QMenu)[-1]
    return [action.text() for action in menu.actions() if action.text()]


def test_moving_stands_last_in_a_workspace_s_menu_and_not_where_there_is_one(theme: Theme) -> None:
    rail = WorkspaceRail(theme)
    workspaces = FakeDesk().list_workspaces()
    rail.show_workspace_buttons(workspaces, "storage-engine")
    assert offered_of_first(rail)[-2:] == ["Move up", "Move down"]
    alone = WorkspaceRail(theme)
    alone.show_workspace_buttons(workspaces[:1], "storage-engine")
    assert "Move up" not in offered_of_first(alone)
