from __future__ import annotations

from dataclasses import replace

from PySide6.QtWidgets import QLabel, QPushButton, QTreeWidget, QWidget

from helix_desktop.engine.list_rows import SubagentRow
from helix_desktop.gui.subagents_dialog import SubagentsDialog
from helix_desktop.gui.theme import Theme
from tests.gui.fake_desk import FakeDesk


def test_the_tree_is_shown_and_one_or_all_are_stopped(theme: Theme, desk: FakeDesk) -> None:
    bench = desk.benches["parser"]
    bench.team = [
        SubagentRow("a", "c", "reviewer", "Look at it", "working", 4_000, 128_000, 0.02, 12.0),
        SubagentRow("b", "a", "tester", "Run it", "done", 2_000, 128_000, 0.01, 3.0),
    ]
    window = QWidget()
    opened: list[str] = []
    dialog = SubagentsDialog(bench, "c", opened.append, window)
    tree = dialog.findChildren(QTreeWidget)[0]
    top = tree.topLevelItem(0)
    assert top is not None
    assert [top.text(column) for column in range(6)] == [
        "reviewer",
        "Look at it",
        "working",
        "4K / 128K",
        "$0.020",
        "12 s",
    ]
    below = top.child(0)
    assert below is not None
    assert below.text(0) == "tester"
    assert any(
        "2 agents, 1 working, $0.030" in label.text() for label in dialog.findChildren(QLabel)
    )
    top.setExpanded(False)
    bench.team[0] = replace(bench.team[0], seconds=13.0)
    dialog.update_agent_rows()
    assert tree.topLevelItem(0) is top
    assert top.text(5) == "13 s"
    assert not top.isExpanded()
    of_selected = [
        each for each in dialog.findChildren(QPushButton) if each.text() in ("Open", "Stop")
    ]
    assert not any(button.isEnabled() for button in of_selected)
    tree.setCurrentItem(below)
    assert [button.isEnabled() for button in of_selected] == [True, False], (
        "what is done cannot be stopped"
    )
    next(each for each in of_selected if each.text() == "Open").click()
    tree.setCurrentItem(top)
    assert all(button.isEnabled() for button in of_selected)
    for text in ("Open", "Stop", "Stop all"):
        next(each for each in dialog.findChildren(QPushButton) if each.text() == text).click()
    assert opened == ["b", "a"]
    assert bench.switched == [("a", False), ("c", False)]
    bench.team[0] = replace(bench.team[0], state="done")
    dialog.update_agent_rows()
    assert [button.isEnabled() for button in of_selected] == [True, False]
    dialog.close()
    window.deleteLater()
