"""Which file stays selected when the list of changed files is read again."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.turn_changes import FileChange, TurnOfChanges
from helix_desktop.gui.changes.changed_files_list import (
    ChangedFilesList,
    ChangesListRow,
    group_rows_by_folder,
)
from helix_desktop.gui.theme import Theme


def test_a_file_of_an_older_turn_stays_selected_when_a_newer_turn_changes_it(
    theme: Theme, application: QApplication
) -> None:
    """The list jumped to the newest turn with each step of the agent."""
    owner = QWidget()
    changed_files = ChangedFilesList(theme, owner)
    opened: list[ChangesListRow] = []
    changed_files.row_opened.connect(opened.append)
    first_turn = TurnOfChanges(1, 3, 9, "First", ())
    second_turn = TurnOfChanges(2, 10, 15, "Second", ())
    third_turn = TurnOfChanges(3, 16, 20, "Third", ())
    changed_files.show_changes_rows(
        [row_of("a.py", second_turn), row_of("a.py", first_turn), row_of("b.py", first_turn)]
    )
    changed_files.setCurrentIndex(changed_files.files.index(1))
    reading_again = [
        row_of("b.py", third_turn),
        row_of("a.py", second_turn),
        row_of("a.py", replace(first_turn, title="Read again")),
    ]
    changed_files.show_changes_rows(reading_again, opened[-1])
    assert opened[-1] is reading_again[2]
    without_first_turn = reading_again[:2]
    changed_files.show_changes_rows(without_first_turn, opened[-1])
    assert opened[-1] is without_first_turn[1], "the same file in another turn comes next"


def test_the_first_file_is_opened_and_not_an_empty_folder_before_it(
    theme: Theme, application: QApplication
) -> None:
    owner = QWidget()
    changed_files = ChangedFilesList(theme, owner)
    turn = TurnOfChanges(1, 3, 9, "Tests", ())
    made_folder = PathChange("0/.benchmarks", None, TreeItem(PathKind.FOLDER, 0o755))
    folder = ChangesListRow(file=FileChange(made_folder, ".benchmarks"), turn=turn)
    rows = [folder, row_of("a.py", turn), row_of("b.py", turn)]
    changed_files.show_changes_rows(rows)
    assert changed_files.current_changes_row is rows[1]
    changed_files.show_changes_rows(rows, folder)
    assert changed_files.current_changes_row is folder, "what the user opened stays open"
    changed_files.show_changes_rows([folder])
    assert changed_files.current_changes_row is folder


def test_what_programs_leave_comes_behind_the_files_of_the_user() -> None:
    made_folder = PathChange("0/.benchmarks", None, TreeItem(PathKind.FOLDER, 0o755))
    files = [FileChange(made_folder, ".benchmarks")]
    for place in ("__pycache__/a.pyc", "fees.py", "src/a.py", ".pytest_cache/README.md"):
        files.append(FileChange(PathChange(f"0/{place}", None, file_item()), place))
    rows = group_rows_by_folder(files, None, frozenset())
    assert [row.file.place for row in rows if row.file] == [
        "src/a.py",
        "fees.py",
        ".pytest_cache/README.md",
        "__pycache__/a.pyc",
        ".benchmarks",
    ]


def file_item() -> TreeItem:
    return TreeItem(PathKind.FILE, 0o644)


def row_of(name: str, turn: TurnOfChanges) -> ChangesListRow:
    written = TreeItem(PathKind.FILE, 0o644, 1, b"content")
    return ChangesListRow(file=FileChange(PathChange(f"0/{name}", None, written), name), turn=turn)
