"""The page of changes: files by turn, hunks that are kept or taken back, a comment for
the agent, a commit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QLabel,
    QMenu,
    QPushButton,
    QScrollArea,
    QWidget,
)

from helix_desktop.engine.changes.diff_hunks import find_hunks
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
    FileChange,
    PlannedUndo,
    TurnOfChanges,
    UncoveredPath,
    UndoOutlook,
    mark_renames,
)
from helix_desktop.engine.facts import ConversationStarted, Origin, Recorded
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import NotFound
from helix_desktop.gui.answer_author import agent_of_conversation
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.changes.changed_files_list import (
    ChangesListRow,
    describe_changes_row,
    group_uncovered_paths_by_rule,
)
from helix_desktop.gui.changes.changes_page import (
    ChangesGroup,
    ChangesPage,
    GatheredChanges,
    _build_group_rows,
)
from helix_desktop.gui.changes.commit_button import CommitDialog
from helix_desktop.gui.changes.coverage_dialog import CheckpointCoverageDialog
from helix_desktop.gui.changes.undo_and_redo import name_turn
from helix_desktop.gui.changes.undo_dialog import (
    ThreeVersionsDialog,
    UndoChangesDialog,
    find_differing_lines,
)
from helix_desktop.gui.common.figure_formats import format_time_of_day
from helix_desktop.gui.theme import Theme
from helix_desktop.workbench.branch_publishing import BranchState
from tests.gui import fake_changes
from tests.gui.fake_changes import FakeChanges, State
from tests.gui.fake_desk import now

BEFORE = b"".join(b"line %d\n" % n for n in range(60))
AFTER = BEFORE.replace(b"line 5\n", b"LINE 5\n").replace(b"line 40\n", b"line forty\nmore\n")


@pytest.fixture
def changes() -> FakeChanges:
    made = FakeChanges()
    made.fill(
        {"src/a.py": (BEFORE, AFTER), "new.txt": (b"", b"new\n"), "gone.txt": (b"gone\n", b"")}
    )
    made.left = [UncoveredPath("target/", "target/ beside Cargo.toml")]
    return made


@pytest.fixture
def page(theme: Theme, changes: FakeChanges, application: QApplication) -> ChangesPage:
    made = ChangesPage(theme, BackgroundRunner(now))
    made.resize(1100, 800)
    made.show_changes_of(changes, "c1")
    made.show()
    return made


def press_with_control(field: QWidget, key: Qt.Key) -> None:
    pressed = QKeyEvent(QEvent.Type.KeyPress, key, Qt.KeyboardModifier.ControlModifier)
    QApplication.sendEvent(field, pressed)


def dialog(page: ChangesPage, kind: type) -> object:
    found: list[object] = list(page.findChildren(kind))
    return found[0]


def test_files_stand_under_their_turn_and_what_is_not_covered_is_listed(page: ChangesPage) -> None:
    words = [
        entry.heading or entry.folder or (entry.file.place if entry.file else entry.uncovered.path)  # type: ignore[union-attr]
        for entry in page.files.files.items
    ]
    assert words == [
        "“Extract it” · 3 files",
        "src/",
        "src/a.py",
        "gone.txt",
        "new.txt",
        "Undo does not cover",
        "target/",
    ]
    assert page.files.current_changes_row is not None
    assert page.files.current_changes_row.file is not None
    assert page.files.current_changes_row.file.place == "src/a.py"
    origin = page.body._origin_chip.accessibleName()
    assert "step" not in origin, "the list counts in turns"
    assert [row.head for row in page.body.view._sheet.rows if row.head] == [
        "@@ -3,7 +3,7 @@",
        "@@ -38,7 +38,8 @@",
    ]


def test_a_renamed_file_is_one_row_with_its_other_name(
    page: ChangesPage, changes: FakeChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was two rows, each with half of it, and “Undo file” undid one half."""
    changes.fill({"src/a.py": (b"", AFTER), "old.py": (AFTER, b""), "gone.txt": (b"gone\n", b"")})
    monkeypatch.setattr(changes, "_files", lambda: mark_renames(FakeChanges._files(changes)))
    page.reload_changes()
    rows = [describe_changes_row(row) for row in page.files.files.items]
    assert rows[:4] == [
        "“Extract it” · 2 files",
        "src/ +0 −0",
        "src/a.py, renamed from old.py",
        "gone.txt, deleted, +0 −1",
    ]
    page.grab()
    assert page.body._sentence_label.text() == "Renamed from old.py. The content has not changed."
    page.commit_button.click()
    commit = dialog(page, CommitDialog)
    assert isinstance(commit, CommitDialog)
    assert commit.list.item(0).text() == "src/a.py ← old.py"
    commit.list.item(1).setCheckState(Qt.CheckState.Unchecked)
    assert [file.place for file in commit.checked_files] == ["old.py", "src/a.py"]
    page.body.undo_button.click()
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    asked.accept()
    assert changes.now == {"old.py": AFTER, "src/a.py": b""}


def test_what_is_committed_is_marked_and_not_offered_again(
    page: ChangesPage, changes: FakeChanges
) -> None:
    changes.git_repository.committed.append((("0/src/a.py", "0/gone.txt"), "In a terminal"))
    page.reload_changes()
    assert [
        describe_changes_row(row) for row in page.files.files.items if row.heading or row.file
    ] == [
        "“Extract it” · 3 files",
        "src/a.py, changed, +3 −2, committed",
        "gone.txt, deleted, +0 −1, committed",
        "new.txt, added, +1 −0",
        "Undo does not cover",
    ]
    marked = page.files.grab().toImage()
    page.commit_button.click()
    asked = dialog(page, CommitDialog)
    assert isinstance(asked, CommitDialog)
    assert [file.place for file in asked.checked_files] == ["new.txt"]
    asked.message.setPlainText("The rest")
    asked.accept()
    assert page.files.files.items[0].heading == "“Extract it” · 3 files · committed"
    assert page.files.grab().toImage() != marked


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_Enter])
def test_ctrl_and_enter_commit_once_there_is_a_message(
    page: ChangesPage, changes: FakeChanges, key: Qt.Key
) -> None:
    page.commit_button.click()
    asked = dialog(page, CommitDialog)
    assert isinstance(asked, CommitDialog)
    press_with_control(asked.message, key)
    assert asked.isVisible(), "there is no message yet"
    QTest.keyClicks(asked.message, "All of it")
    press_with_control(asked.message, key)
    assert [message for _paths, message in changes.git_repository.committed] == ["All of it"]


def test_an_empty_folder_alone_is_no_file_and_cannot_be_committed(
    page: ChangesPage, changes: FakeChanges
) -> None:
    folder = TreeItem(PathKind.FOLDER, 0o755)
    changes.fill({"empty": (b"", b"")})
    (file,) = changes._files()
    group = ChangesGroup("Turn 2", [replace(file, change=PathChange("0/empty", None, folder))])
    rows = _build_group_rows(group, frozenset())
    page._show_gathered_changes(GatheredChanges(changes, "c1", (), rows))
    assert page.files.files.items[0].heading == "Turn 2 · 1 folder"
    assert not page.commit_button.isEnabled()


def test_a_hunk_is_taken_back_and_another_kept(page: ChangesPage, changes: FakeChanges) -> None:
    first, second = find_hunks(BEFORE, AFTER)
    said: list[str] = []
    page.notice_wanted.connect(lambda words, _button: said.append(words))
    page.body.view.hunk_undo_requested.emit(first.stable_id)
    page.body.view.hunk_keep_requested.emit(second.stable_id)
    assert changes.now["src/a.py"] == AFTER.replace(b"LINE 5\n", b"line 5\n")
    assert changes.kept_hunks == {"0/src/a.py": {second.stable_id}}
    assert said == ["The change was undone. The rest of the file was not changed."]


def test_an_undo_asks_first_and_what_somebody_else_changed_is_the_users_choice(
    page: ChangesPage, changes: FakeChanges
) -> None:
    changes.now["new.txt"] = b"mine\n"
    turn = page._turns[0]
    page.undo.confirm_and_undo_sources(turn.sources, "Undo turn 12")
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    assert asked.choices_by_path == {"0/new.txt": "now"}
    assert changes.now["src/a.py"] == AFTER, "nothing is done before the answer"
    asked.accept()
    assert changes.undone == [{"0/new.txt": "now"}]
    assert changes.now["src/a.py"] == BEFORE
    assert changes.now["new.txt"] == b"mine\n"


def test_a_file_that_a_later_turn_of_the_agent_changed_is_said_to_be_so(
    page: ChangesPage, changes: FakeChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was laid to the user's charge."""
    (turn,) = page._turns
    later = replace(
        turn,
        number=13,
        last=13,
        seq=10,
        title="Then more",
        sources=(replace(turn.sources[0], seq=11),),
    )
    page.undo.turns = (turn, later)
    files = [replace(file, sources=turn.sources) for file in changes._files()]
    changes.now["new.txt"] = b"newer\n"

    async def files_of(sources: Sequence[ChangeSource]) -> Sequence[FileChange]:
        new = next(file for file in files if file.place == "new.txt")
        after = PathChange("0/new.txt", new.change.after, fake_changes._item(b"newer\n"))
        return [replace(new, change=after)] if sources == later.sources else files

    monkeypatch.setattr(changes, "changes_with_folders", files_of)

    def said() -> list[str]:
        page.undo.confirm_and_undo_sources(turn.sources, "Undo turn 12")
        asked = page.findChildren(UndoChangesDialog)[-1]
        return [label.text() for label in asked.findChildren(QLabel)]

    assert (
        "The agent changed these files again in later turns. Choose what to do with each file:"
        in said()
    )
    assert "new.txt · “Then more”" in said()
    changes.now["new.txt"] = b"mine\n"
    assert (
        "You or another program changed these files later. Choose what to do with each file:"
        in said()
    )


def test_what_was_undone_can_be_redone_from_the_notice_and_undone_again(
    page: ChangesPage, changes: FakeChanges
) -> None:
    buttons: list[dict[str, Any]] = []
    page.notice_wanted.connect(lambda _words, button: buttons.append(button))
    page.undo.confirm_and_undo_sources(page._turns[0].sources, "Undo turn 12")
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    asked.accept()
    assert changes.now["src/a.py"] == BEFORE
    for button, content in (("Redo", AFTER), ("Undo", BEFORE), ("Redo", AFTER)):
        assert buttons[-1]["button"] == button
        buttons[-1]["act"]()
        assert changes.now["src/a.py"] == content
    page.undo.plan_and_confirm_undo(changes._files(), redo=True)
    asked = next(each for each in page.findChildren(UndoChangesDialog) if each.isVisible())
    asked.accept()
    assert buttons[-1]["button"] == "Undo", "what was redone can be undone"


def test_the_question_tells_what_goes_and_a_redo_speaks_of_the_undo(
    page: ChangesPage, theme: Theme
) -> None:
    def item(content: bytes) -> TreeItem:
        return TreeItem(PathKind.FILE, 0o644, 1, content)

    def shown(*, redo: bool) -> UndoChangesDialog:
        planned = (
            PlannedUndo("0/old", item(b"1"), item(b"2"), item(b"2"), UndoOutlook.RESTORE),
            PlannedUndo("0/new", None, item(b"2"), item(b"2"), UndoOutlook.RESTORE),
            PlannedUndo("0/src", TreeItem(PathKind.FOLDER, 0o755), None, None, UndoOutlook.RESTORE),
            PlannedUndo("0/both", item(b"1"), item(b"2"), item(b"3"), UndoOutlook.CONFLICT),
        )
        return UndoChangesDialog(theme, "Undo", (), planned, page, redo=redo)

    def words(of: UndoChangesDialog) -> list[str]:
        (box,) = of.findChildren(QComboBox)
        return [box.itemText(at) for at in range(1, box.count())]

    said = [label.text() for label in shown(redo=False).findChildren(QLabel)]
    assert said[:2] == ["1 file will be restored: old", "1 file will be deleted: new"]
    assert words(shown(redo=False)) == [
        "Restore the file to its state before the agent's changes",
        "Undo only the agent's lines",
    ]
    assert words(shown(redo=True)) == [
        "Restore the file to its state before the undo",
        "Redo only the agent's lines",
    ]


def test_a_long_path_pushes_nothing_out_of_the_dialog(page: ChangesPage, theme: Theme) -> None:
    """Beside it, the button “Compare…” was cut."""
    item = TreeItem(PathKind.FILE, 0o644, 1, b"1")
    planned = [PlannedUndo(f"0/{'deep/' * 20}report.py", item, item, item, UndoOutlook.CONFLICT)]
    dialog = UndoChangesDialog(theme, "Undo", (), planned, page)
    dialog.show()
    QApplication.processEvents()
    (area,) = dialog.findChildren(QScrollArea)
    assert area.horizontalScrollBar().maximum() == 0
    dialog.reject()


def test_three_versions_are_shown(page: ChangesPage, changes: FakeChanges, theme: Theme) -> None:
    shown = ThreeVersionsDialog(theme, "a", (b"one", b"two\n", b"\0"), page)
    assert [
        [view.viewed_lines[n] for n in range(len(view.viewed_lines))] for view in shown.views
    ] == [
        ["one"],
        ["two", ""],
        ["1 B"],
    ]


def test_the_lines_that_differ_stand_out_in_three_versions(page: ChangesPage, theme: Theme) -> None:
    versions = (b"a\nb\nc\n", b"a\nB\nc\n", b"a\nB\nc\nmine\n")
    differing = find_differing_lines(versions)
    assert differing == [{1}, {1}, {3}]
    plain, marked = (
        ThreeVersionsDialog(theme, "a", versions, page, differing=each)
        for each in ([(), (), ()], differing)
    )
    for shown in (plain, marked):
        shown.show()
    for old, new in zip(plain.views, marked.views, strict=True):
        assert old.grab().toImage() != new.grab().toImage()
    assert [view._labels(number) for view, number in zip(marked.views, (1, 1, 0), strict=True)] == [  # type: ignore[misc]
        "2 -",
        "2 +",
        "1  ",
    ]


def test_a_comment_goes_to_the_agent_with_its_place(page: ChangesPage) -> None:
    said: list[str] = []
    page.agent_message_written.connect(said.append)
    view = page.body.view
    number = next(
        i
        for i, row in enumerate(view._sheet.rows)
        if row.right is not None and row.right.text == "LINE 5"
    )
    view.open_comment_on_row(number)
    view._comment.words.setPlainText("Why capitals?")
    view._comment._send_comment()
    assert said == ["About src/a.py, line 6:\n\n    LINE 5\n\nWhy capitals?"]


def test_a_comment_that_is_being_written_outlives_what_the_agent_changes_meanwhile(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """The words and the place were gone with the agent's next step."""
    said: list[str] = []
    page.agent_message_written.connect(said.append)
    page.resize(1100, 300)
    view = page.body.view
    view.open_comment_on_row(row_of_text(page, "LINE 5"))
    view._comment.words.setPlainText("Why capitals?")
    view.verticalScrollBar().setValue(7)
    changes.fill({"src/a.py": (BEFORE, b"first\n" + AFTER)})
    page.reload_changes()
    assert view._comment.isVisible()
    assert view.verticalScrollBar().value() == 7
    assert view._heights.commented_row == row_of_text(page, "LINE 5")
    view._comment._send_comment()
    assert said == ["About src/a.py, line 7:\n\n    LINE 5\n\nWhy capitals?"]


def test_a_comment_stays_where_its_line_was_and_goes_with_another_file(
    page: ChangesPage, changes: FakeChanges
) -> None:
    view = page.body.view
    view.open_comment_on_row(row_of_text(page, "LINE 5"))
    view._comment.words.setPlainText("Why capitals?")
    changes.fill({"src/a.py": (BEFORE, BEFORE + b"last\n"), "new.txt": (b"", b"new\n")})
    page.reload_changes()
    assert view._comment.isVisible()
    assert view._comment.words.toPlainText() == "Why capitals?"
    new_row = next(
        number
        for number, entry in enumerate(page.files.files.items)
        if entry.file is not None and entry.file.place == "new.txt"
    )
    page.files.setCurrentIndex(page.files.files.index(new_row))
    assert not view._comment.isVisible()


def row_of_text(page: ChangesPage, text: str) -> int:
    for number, row in enumerate(page.body.view._sheet.rows):
        if row.right is not None and row.right.text == text:
            return number
    raise AssertionError(text)


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
    asked.propose.setFocus()
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


def test_both_columns_hold_the_same_lines(page: ChangesPage) -> None:
    """The button with an arrow looked like a menu, and changed the view at once."""
    chosen = QSignalSpy(page.columns_chosen)
    page.columns.click()
    (menu,) = page.findChildren(QMenu)
    assert [(action.text(), action.isChecked()) for action in menu.actions()] == [
        ("Unified", True),
        ("Side by side", False),
    ]
    menu.actions()[1].trigger()
    assert page.columns.text().startswith("Side by side")
    assert chosen.count() == 1
    rows = [row for row in page.body.view._sheet.rows if not row.head]
    assert [row.left.text for row in rows if row.left and row.left.mark == "-"] == [
        "line 5",
        "line 40",
    ]
    assert [row.right.text for row in rows if row.right and row.right.mark == "+"] == [
        "LINE 5",
        "line forty",
        "more",
    ]
    page.grab()


def test_a_binary_and_a_picture_have_their_own_way(page: ChangesPage, changes: FakeChanges) -> None:
    changes.fill({"x.bin": (b"\0a", b"\0b"), "y.png": (b"", b"no picture")})
    page.reload_changes()
    assert "a file of 2 B" in page.body._sentence_label.text()
    page.files.setCurrentIndex(page.files.files.index(2))
    assert page.body._stack.currentIndex() == 2
    assert {"After", "Before", "no picture", "—"} <= {
        label.text() for label in page.body.findChildren(QLabel)
    }


def test_500_files_with_50000_changed_lines_show_at_once(
    page: ChangesPage, changes: FakeChanges
) -> None:
    before = b"".join(b"x = %d\n" % n for n in range(100))
    changes.fill({f"src/f{n}.py": (before, before.replace(b"x", b"y")) for n in range(500)})
    began = time.process_time()
    page.reload_changes()
    page.grab()
    assert time.process_time() - began < 3, "tests/benchmarks has the figure"
    assert len(page.files.files.items) == 504


def test_undo_offers_each_step_the_turn_and_all_since(
    page: ChangesPage, changes: FakeChanges
) -> None:
    page.undo_button.click()
    (menu,) = page.findChildren(QMenu)
    assert [action.text() for action in menu.actions()] == ["Undo “Extract it”…"]
    source = page._turns[0].sources[0]
    source = replace(source, fact=replace(source.fact, files=1, names=("src/R&D.md",)))
    later = replace(
        source,
        seq=20,
        what="run_command",
        step=40,
        fact=replace(source.fact, files=3, names=("a", "b")),
    )
    two = replace(page._turns[0], sources=(source, later))
    page._turns = [two, replace(two, number=13, seq=10, end=30, title="Then more")]
    page.files.files.items = [replace(entry, turn=two) for entry in page.files.files.items]
    menu.deleteLater()
    page.undo_button.click()
    words = [action.text() for action in page.findChildren(QMenu)[-1].actions()]
    assert words == [
        "Undo only “Run a, b, …”…",
        "Undo only “Edit src/R&&D.md”…",
        "Undo “Extract it”…",
        "Undo everything since “Extract it”…",
        "",  # the line before the other turns
        "Undo “Then more”…",
    ]
    undo = replace(later, seq=40, fact=replace(later.fact, by="undo", undoes=(8,)))
    page._turns = [replace(two, sources=(source, undo))]
    page.files.files.items = [
        replace(entry, turn=page._turns[0]) for entry in page.files.files.items
    ]
    page.undo_button.click()
    words = [action.text() for action in page.findChildren(QMenu)[-1].actions()]
    assert words == [
        f"Reverse the undo of 3 files, {format_time_of_day(undo.time)}…",
        "Undo “Extract it”…",
    ]


def test_a_turn_is_named_by_its_message_and_by_its_time_if_that_was_sent_twice(
    page: ChangesPage,
) -> None:
    """It was "Turn 3", where two messages were in sight: one that was edited counts, too."""
    (turn,) = page._turns
    assert name_turn(turn, [turn]) == "“Extract it”"
    long = replace(turn, title="Please fix the fee and then " * 3)
    assert name_turn(long, [long]) == "“Please fix the fee and then Please fix…”"
    assert name_turn(replace(turn, title=""), [turn]) == "turn 12"
    again = replace(turn, number=13, seq=10)
    assert name_turn(again, [turn, again]) == f"“Extract it”, {format_time_of_day(1.0)}"
    assert name_turn(replace(turn, last=14), [turn]) == "“Extract it” + 2 more messages"


def test_of_steps_with_one_name_each_says_its_number(page: ChangesPage) -> None:
    (turn,) = page._turns
    first = turn.sources[0]
    second = replace(first, seq=20, step=32)
    page._turns = [replace(turn, sources=(first, second))]
    page.files.files.items = [
        replace(entry, turn=page._turns[0]) for entry in page.files.files.items
    ]
    page.undo_button.click()
    words = [action.text() for action in page.findChildren(QMenu)[-1].actions()]
    assert words[:2] == ["Undo only “Edit” (step 32)…", "Undo only “Edit” (step 31)…"]


def test_each_undo_can_be_reversed_not_only_the_last(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """A first undo may have taken the user's own lines, and its notice is gone after
    some seconds.
    """
    (turn,) = page._turns
    undo = replace(turn.sources[0].fact, by="undo", undoes=(8,), files=1, names=("src/a.py",))
    first = replace(turn.sources[0], seq=40, time=1.0, fact=undo)
    second = replace(first, seq=41, time=9e5, fact=replace(first.fact, files=2))
    page._turns = [replace(turn, sources=(*turn.sources, first, second))]
    page.files.files.items = [
        replace(entry, turn=page._turns[0]) for entry in page.files.files.items
    ]
    page.undo_button.click()
    actions = page.findChildren(QMenu)[-1].actions()
    assert [action.text() for action in actions] == [
        f"Reverse the undo of 2 files, {format_time_of_day(9e5)}…",
        f"Reverse the undo of src/a.py, {format_time_of_day(1.0)}…",
        "Undo “Extract it”…",
    ]
    actions[0].trigger()
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    assert asked.undo_button.text() == "Redo"


def test_an_undo_that_was_reversed_at_once_is_not_offered_again(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """After Undo and Redo, two lines looked the same: one would have taken the changes
    away again.
    """
    (turn,) = page._turns
    states = Digest.of_content(b"one"), Digest.of_content(b"two")
    fact = replace(turn.sources[0].fact, by="undo", undoes=(8,), before=states[0], after=states[1])
    undo = replace(turn.sources[0], seq=40, time=1.0, fact=fact)
    redo = replace(undo, seq=41, time=2.0, fact=replace(fact, before=states[1], after=states[0]))
    page._turns = [replace(turn, sources=(*turn.sources, undo, redo))]
    page.files.files.items = [
        replace(entry, turn=page._turns[0]) for entry in page.files.files.items
    ]
    page.undo_button.click()
    assert [action.text() for action in page.findChildren(QMenu)[-1].actions()] == [
        "Undo “Extract it”…"
    ]


def test_a_step_that_is_undone_already_is_not_offered(
    page: ChangesPage, changes: FakeChanges
) -> None:
    class OneUndone(FakeChanges):
        async def changes_with_folders(
            self, sources: Sequence[ChangeSource]
        ) -> Sequence[FileChange]:
            return self._files() if len(sources) % 2 else []  # each undo or redo turns it over

    changes = OneUndone()
    changes.fill({"a.py": (BEFORE, AFTER)})
    page.show_changes_of(changes, "c1")
    (turn,) = page._turns
    first = turn.sources[0]
    second = replace(first, seq=9, what="run_command", step=40)
    undo = replace(first, seq=20, fact=replace(first.fact, by="undo", undoes=(9,)))

    def offered(*sources: ChangeSource) -> list[str]:
        page._turns = [replace(turn, sources=sources)]
        page.files.files.items = [
            replace(entry, turn=page._turns[0]) for entry in page.files.files.items
        ]
        page.undo_button.click()
        return [
            action.text()
            for action in page.findChildren(QMenu)[-1].actions()
            if action.text().startswith("Undo only")
        ]

    assert offered(first, second, undo) == ["Undo only “Edit”…"]
    assert offered(first, second, undo, replace(undo, seq=21)) == [
        "Undo only “Run”…",
        "Undo only “Edit”…",
    ]


def test_a_turn_that_was_undone_can_be_redone_and_is_called_so(
    page: ChangesPage, changes: FakeChanges
) -> None:
    (turn,) = page._turns
    undo = replace(turn.sources[0], fact=replace(turn.sources[0].fact, by="undo"))
    undone_turn = replace(turn, sources=(*turn.sources, undo))
    page._show_gathered_changes(GatheredChanges(changes, page._conversation, [undone_turn], []))
    assert (
        page.body._sentence_label.text()
        == "The agent's changes here have been undone. You can redo them from the Undo menu."
    )
    page.undo_button.click()
    assert [action.text() for action in page.findChildren(QMenu)[-1].actions()] == [
        "Redo “Extract it”…"
    ]


def test_an_undo_of_what_was_committed_says_so_and_stays_in_sight(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """The turn vanished, and nothing said that there was a new change to commit."""
    notices = QSignalSpy(page.notice_wanted)
    changes.git_repository.committed.append((("0/src/a.py",), "Extract it"))
    page.reload_changes()
    hunk = find_hunks(BEFORE, AFTER)[0]
    page.body.view.hunk_undo_requested.emit(hunk.stable_id)
    assert notices.at(0)[0].endswith(
        "The commit keeps what it has: this undo is a new change to commit."
    )

    class TurnUndone(FakeChanges):
        async def file_changes_of_steps(
            self, sources: Sequence[ChangeSource]
        ) -> Sequence[FileChange]:
            is_undo_alone = all(source.fact.by == "undo" for source in sources)
            return self._files(undo=True) if is_undo_alone else []

        async def turns_with_changes(self, conversation: str) -> Sequence[TurnOfChanges]:
            (turn,) = await super().turns_with_changes(conversation)
            (source,) = turn.sources
            undo = replace(source, fact=replace(source.fact, by="undo"))
            return [replace(turn, sources=(source, undo))]

    undone = TurnUndone()
    undone.fill({"src/a.py": (BEFORE, AFTER), "b.py": (BEFORE, AFTER)})
    undone.git_repository.changed_since_commit = frozenset({"0/src/a.py"})
    page.show_changes_of(undone, "c1")
    assert page.files.files.items[0].heading == "Undone by you, not committed yet · 1 file"
    assert [file.place for file in page._files] == ["src/a.py"]
    assert page.commit_button.isEnabled()


def test_a_new_empty_file_has_no_line_counts(changes: FakeChanges) -> None:
    """It said +0 −0."""
    file = replace(changes._files()[0], added=0, removed=0)
    row = ChangesListRow(file=file)
    assert describe_changes_row(row) == "src/a.py, changed"


def test_what_is_redone_is_called_so_in_the_question(page: ChangesPage) -> None:
    class AllUndone(FakeChanges):
        async def changes_with_folders(
            self, sources: Sequence[ChangeSource]
        ) -> Sequence[FileChange]:
            return self._files() if all(source.fact.by == "undo" for source in sources) else []

    changes = AllUndone()
    changes.fill({"a.py": (BEFORE, AFTER)})
    page.show_changes_of(changes, "c1")
    source = page._turns[0].sources[0]
    page.undo.confirm_and_undo_sources(
        [source, replace(source, fact=replace(source.fact, by="undo"))], "Redo “Extract it”…"
    )
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    assert (asked.windowTitle(), asked.undo_button.text()) == ("Redo “Extract it”", "Redo")


def test_a_folder_over_the_limit_asks_what_is_covered(
    page: ChangesPage, changes: FakeChanges
) -> None:
    assert page.cover_button.isHidden()
    changes.left = [UncoveredPath("data/huge", "over the limit", is_beyond_limits=True)]
    changes.listeners[0](State("ready"))
    assert not page.cover_button.isHidden()
    page.cover_button.click()
    asked = dialog(page, CheckpointCoverageDialog)
    assert isinstance(asked, CheckpointCoverageDialog)
    assert asked.state.text() == "Checkpoints include 300,022 files (6.0 GB)."
    asked.list.item(0).setCheckState(Qt.CheckState.Unchecked)
    asked.accept()
    assert changes.covered == [(True, ["node_modules/", "*.iso", "data/"])]
    changes.left = [UncoveredPath("data", "data/")]
    changes.listeners[0](State("ready"))
    assert page.files.files.items[-1].uncovered == UncoveredPath("data", "data/")


def test_the_first_checkpoint_is_shown_while_it_is_made(
    page: ChangesPage, changes: FakeChanges
) -> None:
    changes.listeners[0](State("reading", 300, 20_000))
    assert page._note._words == "The first checkpoint is being made: 300 of 20,000 files."
    changes.checkpoint_progress = State("ready", 20_000, 20_000)
    changes.listeners[0](changes.checkpoint_progress)
    assert page._note._words.startswith("This list shows changes by the agent")


def test_since_a_checkpoint_and_everything_put_back_to_it(
    page: ChangesPage, changes: FakeChanges
) -> None:
    page._show_scope_menu()
    menus = page.findChildren(QMenu)
    (moment,) = [
        action
        for menu in menus
        for action in menu.actions()
        if action.text().endswith("“Extract it”")
    ]
    moment.trigger()
    assert page.scope.text() == "Since “Extract it” ▾"
    assert page.files.files.items[0].heading == "Since “Extract it” · 3 files"
    page._ask_what_to_undo()
    asked = dialog(page, UndoChangesDialog)
    assert isinstance(asked, UndoChangesDialog)
    assert (
        asked.windowTitle()
        == "Restore everything to its state before “Extract it” (your own changes are undone too)"
    )
    asked.accept()
    assert changes.now["src/a.py"] == BEFORE


def test_a_file_of_a_turn_is_shown_from_the_chat(page: ChangesPage) -> None:
    page.show_turn_of_fact(9, "/somewhere/else/new.txt")
    assert page.files.current_changes_row is not None
    assert page.files.current_changes_row.file is not None
    assert page.files.current_changes_row.file.place == "new.txt"


@pytest.mark.parametrize("width", [420, 580, 900])
def test_in_a_narrow_window_no_button_is_cut(page: ChangesPage, width: int) -> None:
    page.resize(width, 420)
    QApplication.processEvents()
    for button in page.findChildren(QPushButton):
        if button.isVisible() and width > 420:
            assert button.width() >= button.sizeHint().width(), button.text()
    assert page.files.width() >= 150


@pytest.mark.parametrize(("zoom", "width"), [(1.0, 670), (2.0, 590), (2.0, 1_100), (3.0, 970)])
def test_with_large_text_no_button_is_cut(
    page: ChangesPage, theme: Theme, zoom: float, width: int
) -> None:
    theme.set_zoom(zoom)
    page.resize(width, 480)
    QApplication.processEvents()
    seen = [button for button in page.findChildren(QPushButton) if button.isVisible()]
    assert len(seen) >= 5
    for button in seen:
        needed = button.sizeHint()
        assert (button.width() >= needed.width(), button.height() >= needed.height()) == (
            True,
            True,
        ), button.text()
    assert min(page.files.height(), page.body._stack.height()) >= theme.zoomed_pixels(90)


def test_a_file_whose_content_is_gone_does_not_leave_another_one_in_its_place(
    page: ChangesPage, changes: FakeChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(_file: object) -> tuple[bytes, bytes]:
        raise NotFound("The entry was forgotten.")

    monkeypatch.setattr(changes, "contents_of_both_versions", gone)
    page._load_and_show_changed_file(page.files.files.items[-3])
    assert page.body._sentence_label.text() == "The entry was forgotten."


@pytest.mark.parametrize(
    ("started", "words"),
    [
        (ConversationStarted(), "The agent has not changed any files here."),
        (
            ConversationStarted(origin=Origin("claude-code", "s")),
            "that Claude Code changes. Its edits are in the chat.",
        ),
        (ConversationStarted(agent="Codex"), "does not follow the files that Codex changes."),
    ],
)
def test_without_changes_it_says_whether_the_agents_files_are_followed(
    page: ChangesPage, monkeypatch: pytest.MonkeyPatch, started: ConversationStarted, words: str
) -> None:
    """The defect: "The agent has not changed any files here" where Claude Code had edited one."""
    said: list[str] = []
    monkeypatch.setattr(page.body, "show_sentence_only", said.append)
    page.show_changes_of(
        FakeChanges(), "c2", agent_of_conversation([Recorded("c2", 1, 1.0, started)])
    )
    assert words in said[-1]


def test_a_rule_that_leaves_out_several_folders_is_named_once() -> None:
    """Every conversation listed "src/__pycache__ __pycache__/", and one such line for each folder."""
    rule = "__pycache__/"
    rows = group_uncovered_paths_by_rule(
        [
            UncoveredPath("src/__pycache__", rule),
            UncoveredPath("tests/__pycache__", rule),
            UncoveredPath("target", "target/ beside Cargo.toml"),
            UncoveredPath("data/.venv", ".venv/"),
            UncoveredPath("film.mkv", "larger than 2 GB", is_beyond_limits=True),
        ]
    )
    assert [describe_changes_row(row) for row in rows] == [
        "__pycache__/: in 2 places: src/__pycache__, tests/__pycache__",
        "target: target/ beside Cargo.toml",
        "data/.venv: left out by a rule",
        "film.mkv: larger than 2 GB",
    ]
