"""The small dialogs; here the one for files and folders, with its keyboard."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QFileSystemModel,
    QLabel,
    QLineEdit,
    QListView,
    QScrollArea,
    QWidget,
)

from helix_desktop.gui import question_dialogs
from helix_desktop.gui.question_dialogs import DialogChoice

WRITTEN = QItemSelectionModel.SelectionFlag.ClearAndSelect | QItemSelectionModel.SelectionFlag.Rows


def line_of(dialog: QFileDialog) -> QLineEdit:
    """Where a path is typed, with the keyboard on it."""
    assert QTest.qWaitForWindowActive(dialog)
    line = dialog.findChild(QLineEdit)
    assert line is not None
    line.setFocus()
    return line


def select_another(dialog: QFileDialog, folder: Path) -> None:
    """What Qt's dialog does by itself, when its thread has listed a folder on the way."""
    shown = dialog.findChild(QListView, "listView")
    files = dialog.findChild(QFileSystemModel)
    assert shown is not None
    assert files is not None
    shown.selectionModel().select(files.index(str(folder)), WRITTEN)


@pytest.mark.parametrize("by", ["word", "home"])
def test_a_folder_typed_as_a_whole_is_taken_whatever_is_selected(
    application: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "one" / "two"
    folder.mkdir(parents=True)
    parent = QWidget()
    taken = list[Path]()
    dialog = question_dialogs.ask_folder(parent, "A folder", taken.append)
    line = line_of(dialog)
    QTest.keyClicks(line, str(folder) if by == "word" else "~/one/two")
    select_another(dialog, tmp_path / "one")
    QTest.keyClick(line, Qt.Key.Key_Return)
    assert taken == [folder]
    assert not dialog.isVisible()


def test_files_are_looked_for_and_saved_in_the_users_folder(
    application: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The dialogs for one file opened in the folder where the program had been started."""
    monkeypatch.setenv("HOME", str(tmp_path))
    parent = QWidget()
    opening = question_dialogs.ask_file(parent, "Import", "Workspaces (*.helix)", str)
    saving = question_dialogs.ask_new_file(parent, "Save", "copy.log", str)
    assert saving.defaultSuffix() == "log", "for a name that is typed without an ending"
    assert Path(opening.directory().path()) == tmp_path
    assert Path(saving.directory().path()) == tmp_path
    opening.close()
    saving.close()


def test_a_name_is_one_line_and_not_endless(application: object) -> None:
    parent = QWidget()
    names = list[str]()
    dialog = question_dialogs.ask_text(parent, "Rename", "Title", "", names.append)
    dialog.setTextValue(" one\u2028 two\tthree " + "x" * 1_000)
    dialog.accept()
    assert names[0].startswith("one two three x")
    assert len(names[0]) == question_dialogs.LONGEST_NAME


def test_a_long_text_of_a_question_is_wrapped_before_the_box_is_fitted_to_the_screen(
    application: object,
) -> None:
    """A line longer than the screen became a single line in a scroll area, at the
    corner of the screen.
    """
    text = "A sentence of some length about what each button does. " * 8
    parent = QWidget()
    box = question_dialogs.ask_to_choose_one(parent, "How?", text, [DialogChoice("One", str)])
    assert box.findChild(QScrollArea) is None
    label = box.findChild(QLabel, "qt_msgbox_label")
    assert label is not None
    assert label.height() >= 3 * label.fontMetrics().height()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
# Windows, macOS, KDE and GNOME.
@pytest.mark.parametrize("order", [0, 1, 2, 3])
def test_cancel_never_stands_between_the_ways(application: object, count: int, order: int) -> None:
    """On Linux it stood between them, so that a habit pressed the wrong button."""
    parent = QWidget()
    choices = [DialogChoice(f"Way {n}", str) for n in range(count)]
    box = question_dialogs.ask_to_choose_one(parent, "T", "Text", choices, is_first_usual=True)
    box.setStyleSheet(f"QDialogButtonBox {{ button-layout: {order}; }}")
    box.show()
    QApplication.processEvents()
    places = sorted((button.x(), button.text()) for button in box.buttons())
    names = [name for _, name in places]
    assert "Cancel" in (names[0], names[-1])
    main = next(button for button in box.buttons() if button.text() == "Way 0")
    assert box.defaultButton() is main
    assert main.property("look") == "primary"
    box.reject()


def test_what_cannot_be_undone_is_not_done_by_return(application: object) -> None:
    parent = QWidget()
    done: list[str] = []
    box = question_dialogs.ask_to_confirm(parent, "T", "Gone?", "Delete", lambda: done.append("x"))
    assert box.defaultButton().text() == "Cancel"
    box.reject()
    assert not done
