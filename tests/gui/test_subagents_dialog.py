from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from PySide6.QtWidgets import QLabel, QPushButton, QTreeWidget, QTreeWidgetItem, QWidget

from helix_desktop.engine.list_rows import SubagentRow
from helix_desktop.gui.subagents_dialog import SubagentsDialog
from helix_desktop.gui.theme import Theme
from tests.gui.fake_desk import FakeDesk, FakeWorkbench


@pytest.fixture
def team(desk: FakeDesk) -> FakeWorkbench:
    """A conversation c with a reviewer at work, who has a tester who is done."""
    bench = desk.benches["parser"]
    bench.team = [
        SubagentRow("a", "c", "reviewer", "Look at it", "working", 4_000, 128_000, 0.02, 12.0),
        SubagentRow("b", "a", "tester", "Run it", "done", 2_000, 128_000, 0.01, 3.0),
    ]
    return bench


@dataclass(frozen=True)
class ShownTeam:
    """The dialog, the names of the conversations opened from it, and its rows."""

    dialog: SubagentsDialog
    opened: list[str]
    tree: QTreeWidget
    reviewer: QTreeWidgetItem
    tester: QTreeWidgetItem

    def button(self, text: str) -> QPushButton:
        (found,) = [b for b in self.dialog.findChildren(QPushButton) if b.text() == text]
        return found

    def enabled(self) -> list[bool]:
        """Whether what is selected can be opened, and whether it can be stopped."""
        return [self.button("Open").isEnabled(), self.button("Stop").isEnabled()]


@pytest.fixture
def shown(theme: Theme, team: FakeWorkbench) -> Iterator[ShownTeam]:
    window = QWidget()
    opened: list[str] = []
    dialog = SubagentsDialog(team, "c", opened.append, window)
    tree = dialog.findChildren(QTreeWidget)[0]
    reviewer = tree.topLevelItem(0)
    assert reviewer is not None
    tester = reviewer.child(0)
    assert tester is not None
    yield ShownTeam(dialog, opened, tree, reviewer, tester)
    dialog.close()
    window.deleteLater()


def test_the_tree_shows_who_works_for_whom(shown: ShownTeam) -> None:
    assert [shown.reviewer.text(column) for column in range(6)] == [
        "reviewer",
        "Look at it",
        "working",
        "4K / 128K",
        "$0.020",
        "12 s",
    ]
    assert shown.tester.text(0) == "tester"
    texts = [label.text() for label in shown.dialog.findChildren(QLabel)]
    assert any("2 agents, 1 working, $0.030" in text for text in texts)


def test_a_row_that_changes_stays_the_row_it_is(shown: ShownTeam, team: FakeWorkbench) -> None:
    shown.reviewer.setExpanded(False)
    team.team[0] = replace(team.team[0], seconds=13.0)
    shown.dialog.update_agent_rows()
    assert shown.tree.topLevelItem(0) is shown.reviewer
    assert shown.reviewer.text(5) == "13 s"
    assert not shown.reviewer.isExpanded()


def test_one_or_all_are_stopped(shown: ShownTeam, team: FakeWorkbench) -> None:
    assert shown.enabled() == [False, False]
    shown.tree.setCurrentItem(shown.tester)
    assert shown.enabled() == [True, False], "what is done cannot be stopped"
    shown.button("Open").click()
    shown.tree.setCurrentItem(shown.reviewer)
    assert shown.enabled() == [True, True]
    shown.button("Open").click()
    shown.button("Stop").click()
    shown.button("Stop all").click()
    assert shown.opened == ["b", "a"]
    assert team.switched == [("a", False), ("c", False)]
    team.team[0] = replace(team.team[0], state="done")
    shown.dialog.update_agent_rows()
    assert shown.enabled() == [True, False]
