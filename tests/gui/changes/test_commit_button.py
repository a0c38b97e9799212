"""A commit takes the chosen files, and its message is never lost."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from helix_desktop.gui.changes.changes_page import ChangesPage
from helix_desktop.gui.changes.commit_button import CommitDialog
from helix_desktop.workbench.branch_publishing import BranchState
from tests.gui.changes.changes_page_hands import dialog
from tests.gui.fake_changes import FakeChanges


def test_a_commit_takes_the_chosen_files_with_a_proposed_message(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """Neither the branch was named nor which file is deleted, and git's own words came after it."""
    changes.branch_publishing.state = BranchState(Path("/p"), "work", "1" * 40, "", "", 0, "")
    notices: list[str] = []
    page.commit_button.notice_wanted.connect(notices.append)
    page.commit_button.click()
    asked = dialog(page, CommitDialog)
    assert isinstance(asked, CommitDialog)
    assert not asked.commit_button.isEnabled()
    assert asked.branch_label.text() == "On branch work"
    assert [asked.list.item(row).text() for row in range(3)] == [
        "src/a.py · +3 −2",
        "gone.txt · deleted · +0 −1",
        "new.txt · added · +1 −0",
    ]
    assert asked.focusWidget() is asked.message, (
        "a space in the message would untick the first file"
    )
    QTest.keyClick(asked.message, Qt.Key.Key_Tab)
    assert asked.focusWidget() is asked.propose, "Tab was written into the message"
    asked.propose.click()
    assert asked.focusWidget() is asked.message
    assert asked.message.toPlainText() == "Change 3 files"
    asked.accept()
    assert changes.git_repository.committed == [
        (("0/src/a.py", "0/gone.txt", "0/new.txt"), "Change 3 files")
    ]
    assert notices == ["Committed to main: Change 3 files (1234567)"]
    assert not page.commit_button.isEnabled(), "all of it is committed"
    page.reload_changes()
    assert not page.commit_button.isEnabled()


def test_a_proposed_message_replaces_what_was_written_and_can_be_undone(
    page: ChangesPage,
) -> None:
    page.commit_button.click()
    asked = dialog(page, CommitDialog)
    assert isinstance(asked, CommitDialog)
    QTest.keyClicks(asked.message, "Mine")
    asked.propose.click()
    assert asked.message.toPlainText() == "Change 3 files"
    asked.message.undo()
    assert asked.message.toPlainText() == "Mine"


def test_a_second_commit_offers_what_the_first_left(
    page: ChangesPage, changes: FakeChanges
) -> None:
    page.commit_button.click()
    first = dialog(page, CommitDialog)
    assert isinstance(first, CommitDialog)
    first.list.item(1).setCheckState(Qt.CheckState.Unchecked)
    first.message.setPlainText("Two of three")
    first.accept()
    first.setParent(None)
    page.commit_button.click()
    second = dialog(page, CommitDialog)
    assert isinstance(second, CommitDialog)
    assert [file.place for file in second.checked_files] == ["gone.txt"]


def test_a_message_of_a_commit_that_git_refuses_is_still_there(
    page: ChangesPage, changes: FakeChanges
) -> None:
    changes.git_repository.refuses = "git refused."
    for words in ("", "Why it changed"):
        page.commit_button.click()
        asked = dialog(page, CommitDialog)
        assert isinstance(asked, CommitDialog)
        assert asked.message.toPlainText() == words
        asked.message.setPlainText("Why it changed")
        asked.accept()
        asked.setParent(None)
    assert changes.git_repository.committed == []


def test_in_a_folder_without_git_a_repository_is_offered_before_a_message(
    page: ChangesPage, changes: FakeChanges
) -> None:
    changes.git_repository.has_git = False
    page.reload_changes()
    assert page.commit_button.text() == "Set up git here"
    assert page.commit_button.property("look") != "primary"
    page.commit_button.click()
    assert changes.git_repository.has_git
    assert page.commit_button.text() == "Commit…"
    assert isinstance(dialog(page, CommitDialog), CommitDialog)
