"""The page of changes: files by turn, hunks that are kept or taken back, a comment for
the agent, a commit.
"""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QMenu,
    QPushButton,
    QWidget,
)

from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import (
    UncoveredPath,
    mark_renames,
)
from helix_desktop.engine.facts import ConversationStarted, Origin, Recorded
from helix_desktop.gui.answer_author import agent_of_conversation
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
from helix_desktop.gui.changes.undo_dialog import (
    UndoChangesDialog,
)
from helix_desktop.gui.theme import Theme
from tests.gui.changes.changes_page_hands import AFTER, dialog
from tests.gui.fake_changes import FakeChanges, State


def press_with_control(field: QWidget, key: Qt.Key) -> None:
    pressed = QKeyEvent(QEvent.Type.KeyPress, key, Qt.KeyboardModifier.ControlModifier)
    QApplication.sendEvent(field, pressed)


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


def test_beside_what_is_committed_nothing_is_left_to_decide(
    page: ChangesPage, changes: FakeChanges
) -> None:
    assert page.body.keep.isVisible()
    changes.git_repository.committed.append((("0/src/a.py",), "In a terminal"))
    page.reload_changes()
    assert page.body.keep.isHidden()
    assert page.body.undo_button.isHidden()
    assert not any(buttons.isVisible() for buttons in page.body.view._buttons)
    page.undo_button.click()
    words = [action.text() for action in page.findChildren(QMenu)[-1].actions()]
    assert words[0] == "Undo src/a.py…", "it can still be undone, after a question"
    page.files.setCurrentIndex(page.files.files.index(row_of_file(page, "new.txt")))
    assert page.body.keep.isVisible()


def test_no_other_file_comes_to_where_one_was_undone(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """A double click, or the space bar, took back a second file."""
    page.files.setCurrentIndex(page.files.files.index(row_of_file(page, "new.txt")))
    undo = next(each.back for each in page.body.view._buttons if each.isVisible())
    undo.setFocus()
    del changes.versions_of["new.txt"]
    for _reading in range(2):  # The undo and its fact both have the list read.
        page.reload_changes()
        assert page._shown is None
        assert not page.files.currentIndex().isValid()
        assert page.body.undo_button.isHidden()
        assert page.body._sentence_label.text().startswith("Nothing is left of this change.")
        assert page.window().focusWidget() is page.files
    page.files.setCurrentIndex(page.files.files.index(row_of_file(page, "src/a.py")))
    assert page.body.undo_button.isVisible()


def row_of_file(page: ChangesPage, place: str) -> int:
    for number, row in enumerate(page.files.files.items):
        if row.file is not None and row.file.place == place:
            return number
    raise AssertionError(place)


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


def test_a_grey_commit_button_says_why_and_where_other_changes_are_committed(
    page: ChangesPage, changes: FakeChanges
) -> None:
    everything = ("0/src/a.py", "0/gone.txt", "0/new.txt")
    changes.git_repository.committed.append((everything, "All of it"))
    page.reload_changes()
    assert not page.commit_button.isEnabled()
    assert page._note.text().endswith("There is nothing to commit in this list.")
    changes.git_repository.has_other_changes = True
    page.reload_changes()
    assert "The repository has other uncommitted changes" in page._note.text()
    assert "Since a git revision…" in page.commit_button.toolTip()
    changes.git_repository.committed.clear()
    page.reload_changes()
    assert page.commit_button.isEnabled()
    assert "nothing to commit" not in page._note.text()
    assert page.commit_button.toolTip() == ""


def test_a_long_heading_of_a_turn_is_cut_before_its_count(page: ChangesPage) -> None:
    """The count of files was cut: "… · 1 f…"."""
    heading = page.files.files.items[0]
    assert heading.heading.endswith(heading.whole_ending)
    assert heading.whole_ending == " · 3 files"


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


def test_a_new_empty_file_has_no_line_counts(changes: FakeChanges) -> None:
    """It said +0 −0."""
    file = replace(changes._files()[0], added=0, removed=0)
    row = ChangesListRow(file=file)
    assert describe_changes_row(row) == "src/a.py, changed"


def test_a_folder_beside_files_is_listed_and_counted_by_itself(changes: FakeChanges) -> None:
    """“Each turn” listed the folder that a command had made, and the whole conversation did not."""
    file = changes._files()[0]
    folder = replace(
        file, change=PathChange("0/.benchmarks", None, TreeItem(PathKind.FOLDER, 0o755))
    )
    group = ChangesGroup("All", [folder, file])
    committed = frozenset({file.path_of_change})
    rows = _build_group_rows(group, frozenset())
    assert rows[0].heading == "All · 1 file · 1 folder"
    assert [row.file for row in rows if row.file is not None] == [file, folder]
    assert _build_group_rows(group, committed)[0].heading.endswith(" · committed")


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
    assert page._note.text() == "The first checkpoint is being made: 300 of 20,000 files."
    changes.checkpoint_progress = State("ready", 20_000, 20_000)
    changes.listeners[0](changes.checkpoint_progress)
    assert page._note.text().startswith("This list shows changes by the agent")


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


@pytest.mark.parametrize("width", [1_100, 700, 420])
def test_the_note_above_the_changes_is_never_cut(page: ChangesPage, width: int) -> None:
    """The defect: “This list shows changes by the agent and its comma…” stood there."""
    page._note_on_commit = "You can commit only where the workspace was opened first: in another window, or on the other computer."
    page._show_coverage_note(State("ready", 20_000, 20_000))  # type: ignore[arg-type]
    page.resize(width, 700)
    page.show()
    QApplication.processEvents()
    note = page._note
    bar = note.parentWidget()
    assert bar is not None
    assert note.isVisible()
    assert note.text().endswith("or on the other computer.")
    assert note.height() >= note.heightForWidth(note.width())
    assert note.geometry().right() <= bar.width()
    assert page.commit_button.geometry().bottom() <= bar.height()


def test_a_turn_that_was_undone_stays_in_the_list_and_says_so(
    page: ChangesPage, changes: FakeChanges
) -> None:
    """Its rows were gone, and beside the other turn's an empty pane was left."""
    (turn,) = page._turns
    other_turn = replace(turn, seq=20, number=2, last=2, title="Test it")
    rows = list(page.files.files.items)
    rows_of_other = [replace(row, turn=other_turn) if row.turn else row for row in rows]
    shown = [*rows_of_other, *rows]
    page._show_gathered_changes(
        GatheredChanges(changes, page._conversation, [turn, other_turn], shown)
    )
    last_place = len(shown) - 1 - [row.file is not None for row in reversed(shown)].index(True)
    page.files.setCurrentIndex(page.files.files.index(last_place))
    (source,) = turn.sources
    undo = replace(source, fact=replace(source.fact, by="undo"))
    undone_turn = replace(turn, sources=(source, undo))
    heading = _build_group_rows(ChangesGroup("“Extract it”", [], undone_turn), frozenset())
    assert [describe_changes_row(row) for row in heading] == ["“Extract it” · undone"]
    assert _build_group_rows(ChangesGroup("“Extract it”", [], turn), frozenset()) == []
    page._show_gathered_changes(
        GatheredChanges(
            changes, page._conversation, [undone_turn, other_turn], [*rows_of_other, *heading]
        )
    )
    assert page.body._sentence_label.text().startswith("You undid the changes of this turn.")
