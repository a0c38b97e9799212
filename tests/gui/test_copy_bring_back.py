"""A conversation's copy of the folders is brought back, or asked about before it is deleted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QMessageBox

from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.frame.conversation_list import has_second_line
from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.test_main_window import press


def test_a_conversation_in_a_copy_is_named_as_one_and_brought_back(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    window.window_actions["bring-back"].trigger()
    assert bench.copies.brought_back == []
    window.window_actions["new-copy"].trigger()
    press(window, "With my uncommitted changes")
    assert window.current_session is not None
    row = bench.rows[window.current_session.id]
    assert row.copy == "main with changes"
    assert has_second_line(row, ConversationActivity.IDLE)
    bench.copies.in_other_copies[row.id] = ["/project/both.txt"] + [f"more {n}" for n in range(20)]
    window.window_actions["bring-back"].trigger()
    text = window.findChildren(QMessageBox)[-1].text()
    assert "also changed in other copies:\n/project/both.txt\n" in text
    assert text.endswith("and 11 more")
    press(window, "Cancel")
    for words, way in (
        ("Merge", "merge"),
        ("Rebase", "rebase"),
        ("Apply as uncommitted changes", "apply"),
    ):
        window.window_actions["bring-back"].trigger()
        assert (
            "\n\nNot brought back yet:\nREADME.md\n\n"
            in window.findChildren(QMessageBox)[-1].text()
        )
        press(window, words)
        assert bench.copies.brought_back[-1] == (row.id, way, row.title)
    # After "Apply", all ways were offered again.
    bench.copies.not_brought_back = ()
    window.window_actions["bring-back"].trigger()
    box = window.findChildren(QMessageBox)[-1]
    assert "has been brought back already" in box.text()
    assert [each.text() for each in box.buttons()] == ["Cancel", "Discard…"]
    press(window, "Cancel")
    bench.copies.not_brought_back = ("README.md",)
    bench.copies.conflicts = ["README.md"]
    for words, choice in (
        ("Keep mine", "yours"),
        ("Use the copy's", "copy"),
        ("Add conflict markers", "markers"),
    ):
        window.window_actions["bring-back"].trigger()
        press(window, "Apply as uncommitted changes")
        assert window.findChildren(QMessageBox)[-1].text().endswith("\n\nREADME.md")
        press(window, words)
        assert bench.copies.brought_back[-1] == (row.id, f"apply {choice}", row.title)
    bench.copies.brought_back.append((row.id, "apply", row.title))
    window.window_actions["bring-back"].trigger()
    press(window, "Discard…")
    assert bench.copies.brought_back[-1][1] == "apply"
    assert window.findChildren(QMessageBox)[-1].text().endswith("\n\nNot brought back:\nREADME.md")
    press(window, "Discard")
    assert bench.copies.brought_back[-1][1] == "discard"


@pytest.mark.parametrize(
    ("words", "brought_back"), [("Keep the copy", []), ("Discard the copy", ["discard"])]
)
def test_deleting_a_conversation_asks_what_becomes_of_its_copy(
    window: MainWindow, bench: FakeWorkbench, words: str, brought_back: list[str]
) -> None:
    bench.rows["flaky"] = replace(bench.rows["flaky"], copy="main", trashed=True)
    for place in ("delete", "trash"):
        if place == "delete":
            window.sidebar.conversation_action_wanted.emit("delete", "flaky")
        else:
            window.sidebar.show_conversations_in("trashed")
            QTest.mouseClick(window.sidebar.empty_trash_link, Qt.MouseButton.LeftButton)
        assert (
            window.findChildren(QMessageBox)[-1].text().endswith("\n\nNot brought back:\nREADME.md")
        )
        press(window, "Cancel" if place == "delete" else words)
        assert ("flaky" in bench.rows) is (place == "delete")
    assert [way for _, way, _ in bench.copies.brought_back] == brought_back
