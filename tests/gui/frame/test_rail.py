from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtTest import QSignalSpy, QTest

from helix_desktop.engine.events import Running
from helix_desktop.gui.frame.rail import Rail, WorkspaceButton
from helix_desktop.gui.theme import Theme
from tests.gui.fake_desk import FakeDesk


def squares(rail: Rail) -> list[WorkspaceButton]:
    return rail.findChildren(WorkspaceButton)


def test_a_square_for_each_workspace_and_a_click_chooses_it(theme: Theme) -> None:
    rail = Rail(theme)
    rail.show_workspaces(FakeDesk().workspaces(), "storage-engine")
    chosen = QSignalSpy(rail.chosen)
    QTest.mouseClick(squares(rail)[1], Qt.MouseButton.LeftButton)
    assert chosen.at(0) == ["parser"]
    assert rail.workspace_at(3) == "infra"
    assert rail.workspace_at(4) == ""


def test_the_open_one_is_marked(theme: Theme) -> None:
    rail = Rail(theme)
    rail.show_workspaces(FakeDesk().workspaces(), "parser")
    assert [square.isChecked() for square in squares(rail)] == [False, True, False]


def test_the_state_is_a_word_as_well_as_a_dot(theme: Theme) -> None:
    rail = Rail(theme)
    rail.show_workspaces(FakeDesk().workspaces(), "parser")
    before = squares(rail)[0].grab().toImage()
    rail.show_running("storage-engine", Running.ASKING)
    square = squares(rail)[0]
    assert square.accessibleName() == "Workspace storage-engine, waiting for you"
    assert square.toolTip().endswith("waiting for you")
    assert square.grab().toImage() != before


def test_everything_has_a_name_for_a_screen_reader(theme: Theme) -> None:
    rail = Rail(theme)
    rail.show_workspaces(FakeDesk().workspaces(), "")
    names = [button.accessibleName() for button in (rail._add, rail._everything, rail._settings, *squares(rail))]
    assert all(names)
