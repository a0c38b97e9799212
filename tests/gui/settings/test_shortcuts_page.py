"""Shortcuts: what a key does, and what lost it."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QKeySequenceEdit, QLineEdit

from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.settings.shortcuts_page import ShortcutsPage
from tests.gui.settings.page_widgets import button, said


def test_each_shortcut_is_named_to_a_screen_reader(window: MainWindow) -> None:
    """The line in the field is what has the keyboard."""
    page = ShortcutsPage(window.window_actions)
    lines = page.findChildren(QLineEdit)
    assert lines
    assert [line for line in lines if not line.accessibleName()] == []


def test_a_shortcut_is_changed_and_the_one_that_lost_it_is_named(window: MainWindow) -> None:
    page = ShortcutsPage(window.window_actions)
    edits = {edit.accessibleName(): edit for edit in page.findChildren(QKeySequenceEdit)}
    edit = edits["Shortcut for Duplicate conversation"]
    edit.setKeySequence(QKeySequence("Ctrl+N"))
    edit.editingFinished.emit()
    assert "“New conversation” no longer has a shortcut." in said(page)
    assert window.window_actions["fork"].shortcut() == QKeySequence("Ctrl+N")
    QTest.mouseClick(button(page, "Reset all"), Qt.MouseButton.LeftButton)
    assert window.window_actions["new"].shortcut() == QKeySequence("Ctrl+N")


def test_keys_that_type_or_move_are_no_shortcuts(window: MainWindow) -> None:
    """Down and End became shortcuts while the page was walked by keyboard, each taken
    from the action before.
    """
    page = ShortcutsPage(window.window_actions)
    edits = {edit.accessibleName(): edit for edit in page.findChildren(QKeySequenceEdit)}
    edit = edits["Shortcut for Duplicate conversation"]
    before = window.window_actions["fork"].shortcut()
    for keys in ("Down", "End", "A", "Shift+A", "Space", "F7", "Alt+Down"):
        edit.setKeySequence(QKeySequence(keys))
        edit.editingFinished.emit()
        taken = keys in ("F7", "Alt+Down")
        assert window.window_actions["fork"].shortcut() == (QKeySequence(keys) if taken else before)
        assert edit.keySequence() == window.window_actions["fork"].shortcut()
        assert ("This key is used to type or to move the cursor." in said(page)) == (not taken)
    assert {line.placeholderText() for line in page.findChildren(QLineEdit)} == {"Press keys"}
