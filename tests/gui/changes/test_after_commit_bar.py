"""After the commit: what can be pushed, the text of a pull request, and its checks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QEvent
from PySide6.QtWidgets import QApplication, QMessageBox, QWidget

from helix_desktop.engine.facts import Attachment, Text
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.changes.after_commit_bar import (
    AfterCommitBar,
    AfterCommitWish,
    PullRequestDialog,
)
from helix_desktop.gui.changes.changes_page import ChangesPage
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.search_suggestions import suggest_actions
from helix_desktop.gui.theme import Theme
from helix_desktop.workbench.branch_publishing import BranchCheck, BranchState, PullRequest
from tests.gui.fake_changes import FakeChanges
from tests.gui.fake_desk import FakeWorkbench

STATE = BranchState(Path("/p"), "work", "1" * 40, "origin", "https://me:s@example.org/it", 2, "gh")
FAILED = BranchCheck("test", "failed", "https://example.org/job/1", "1")
CHECKS = (BranchCheck("build", "passed"), FAILED, BranchCheck("slow", "running"))


@pytest.fixture
def changes() -> FakeChanges:
    made = FakeChanges()
    made.branch_publishing.state = STATE
    return made


@pytest.fixture
def bar(theme: Theme, doing: BackgroundRunner, changes: FakeChanges) -> Iterator[AfterCommitBar]:
    parent = QWidget()
    parent.resize(1_000, 100)
    made = AfterCommitBar(theme, doing, parent)
    made.resize(1_000, 60)
    made.show_branch_of(changes, "c")
    parent.show()
    yield made
    parent.close()


def said(bar: AfterCommitBar) -> list[str]:
    words: list[str] = []
    bar.notice_wanted.connect(words.append)
    return words


def dialog_of(bar: AfterCommitBar) -> PullRequestDialog:
    bar.request_button.click()
    (dialog,) = bar.findChildren(PullRequestDialog)
    return dialog


def test_what_is_not_pushed_is_pushed_and_then_there_is_nothing_to_push(
    bar: AfterCommitBar,
) -> None:
    assert bar._note.accessibleName() == "work: 2 commits are not pushed yet."
    words = said(bar)
    bar.push_button.click()
    assert words == ["work was pushed to https://example.org/it."]
    assert bar._note.accessibleName() == "work is pushed."
    assert bar.push_button.isHidden()


def test_a_refused_push_says_why_and_can_be_tried_again(
    bar: AfterCommitBar, changes: FakeChanges
) -> None:
    words = said(bar)
    changes.branch_publishing.refuses = "git refused: no."
    bar.push_button.click()
    assert words == ["git refused: no."]
    assert bar.push_button.isEnabled()
    changes.branch_publishing.refuses = ""
    bar.push_button.click()
    assert bar.push_button.isHidden()


def test_a_pull_request_is_opened_with_the_text_as_it_was_changed(
    bar: AfterCommitBar, changes: FakeChanges
) -> None:
    words = said(bar)
    dialog = dialog_of(bar)
    assert dialog.heading.text() == "Add a file"
    assert dialog.open_button.text() == "Push and open pull request"
    dialog.heading.setText("")
    assert not dialog.open_button.isEnabled()
    dialog.heading.setText("Mine")
    dialog.body.setPlainText("My words")
    changes.branch_publishing.refuses = "gh refused: no."
    dialog.open_button.click()
    assert dialog.isVisible(), "the text is kept"
    assert dialog.trouble.text() == "gh refused: no."
    changes.branch_publishing.refuses = ""
    dialog.open_button.click()
    assert not dialog.isVisible()
    (written,) = changes.branch_publishing.written
    assert (written.title, written.body) == ("Mine", "My words")
    assert words == ["The pull request was opened: https://example.org/pull/7"]
    assert bar.request_button.text() == "Show the pull request"


def test_no_pull_request_is_offered_from_a_branch_to_itself(
    bar: AfterCommitBar, changes: FakeChanges
) -> None:
    """It was offered from main to main, and gh refused at the end."""
    words = said(bar)
    changes.branch_publishing.state = replace(STATE, base="work")
    bar.reload()
    assert bar.request_button.isHidden()
    bar.carry_out_when_read(AfterCommitWish.PULL_REQUEST)
    bar.reload()
    assert not bar.findChildren(PullRequestDialog)
    assert words == [
        "Pull requests go to work, and you are on it. Commit on a branch of your own first: git switch -c NAME"
    ]


def test_a_remote_that_was_set_up_in_a_terminal_is_seen_when_the_user_comes_back(
    theme: Theme, doing: BackgroundRunner, changes: FakeChanges
) -> None:
    """What was read first stayed until the agent's next change."""
    changes.branch_publishing.state = NO_REMOTE
    page = ChangesPage(theme, doing)
    page.show_changes_of(changes, "c")
    page.show()
    assert page.after_commit.isHidden()
    page.hide()
    changes.branch_publishing.state = STATE
    page.show()
    assert page.after_commit._note.accessibleName() == "work: 2 commits are not pushed yet."
    changes.branch_publishing.state = replace(STATE, unpushed=3)
    QApplication.sendEvent(page, QEvent(QEvent.Type.WindowActivate))
    assert page.after_commit._note.accessibleName() == "work: 3 commits are not pushed yet."
    page.close()


def test_checks_are_counted_and_a_failure_is_handed_on(
    bar: AfterCommitBar, changes: FakeChanges
) -> None:
    assert bar.checks_button.isHidden()
    changes.branch_publishing.request = PullRequest("https://example.org/pull/7", CHECKS)
    bar.reload()
    assert bar.checks_button.text() == "1 check failed, 1 is running, 1 check passed"
    given: list[tuple[str, str]] = []
    bar.failure_given.connect(lambda name, log: given.append((name, log)))
    bar.failure_button.click()
    assert given == [("test", "12:00 FAILED\n")]
    two = (FAILED, BranchCheck("lint", "failed", "", "2"))
    changes.branch_publishing.request = PullRequest("https://example.org/pull/7", two)
    bar.checks_button.click()
    bar.failure_button.click()
    (question,) = bar.findChildren(QMessageBox)
    next(button for button in question.buttons() if button.text() == "lint").click()
    assert given[1:] == [("lint", "12:00 FAILED\n")]


def test_without_a_branch_there_is_no_bar(bar: AfterCommitBar, changes: FakeChanges) -> None:
    assert bar.isVisible()
    changes.branch_publishing.state = None
    bar.reload()
    assert bar.isHidden()


NO_REMOTE = BranchState(Path("/p"), "work", "1" * 40, "", "", 0, "")


def test_nobody_who_did_not_ask_to_push_is_told_of_a_missing_remote(
    bar: AfterCommitBar, changes: FakeChanges
) -> None:
    """A line about it stood there after each commit."""
    changes.branch_publishing.state = NO_REMOTE
    bar.reload()
    assert bar.isHidden()
    told: list[str] = []
    bar.notice_wanted.connect(told.append)
    bar.carry_out_when_read(AfterCommitWish.PUSH)
    bar.reload()
    assert "git remote add origin" in told[0]
    assert bar.isHidden()


@pytest.mark.parametrize(
    ("state", "wish", "words"),
    [
        (None, AfterCommitWish.PUSH, "no commit here"),
        (None, AfterCommitWish.PULL_REQUEST, "no commit here"),
        (NO_REMOTE, AfterCommitWish.PUSH, "git remote add origin"),
        (NO_REMOTE, AfterCommitWish.PULL_REQUEST, "git remote add origin"),
        (STATE, AfterCommitWish.PUSH, "work was pushed to"),
        (replace(STATE, unpushed=0), AfterCommitWish.PUSH, "work is pushed."),
        (replace(STATE, tool=""), AfterCommitWish.PULL_REQUEST, "install gh"),
    ],
)
def test_what_the_search_offers_is_done_or_it_is_said_why_not(
    bar: AfterCommitBar,
    changes: FakeChanges,
    state: BranchState | None,
    wish: AfterCommitWish,
    words: str,
) -> None:
    changes.branch_publishing.state = state
    notices = said(bar)
    bar.carry_out_when_read(wish)
    bar.reload()
    bar.reload()
    assert len(notices) == 1
    assert words in notices[0]


def test_the_search_leads_to_a_push(window: MainWindow, bench: FakeWorkbench) -> None:
    bench.file_changes.branch_publishing.state = STATE
    found = suggest_actions(window.window_actions)
    assert {"Push the branch", "Open a pull request…"} <= {item.text for item in found}
    window.window_actions["push"].trigger()
    assert window.pages.changes.after_commit._note.accessibleName() == "work is pushed."
    bench.file_changes.branch_publishing.refuses = "gh refused: no."
    window.window_actions["pull-request"].trigger()
    assert window.pages.changes.after_commit.findChildren(PullRequestDialog)


def test_the_log_of_a_failure_goes_into_the_message_as_an_entry(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    window.switch_to_page("changes")
    window.pages.changes.failure_given.emit("test", "12:00 FAILED\n")
    assert window.showing.page == "chat"
    parts = window.chat.composer.drafts.get_draft(window.chat.composer.draft_place)
    assert parts[0] == Text("The check “test” failed. Its log is attached. Find out why.")
    assert [part.name for part in parts if isinstance(part, Attachment)] == ["log of test.txt"]
