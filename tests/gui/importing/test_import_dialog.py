"""Bringing in conversations: what is found is ticked, what came is told, and can be taken back."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QLabel, QMenu, QMessageBox, QPushButton, QScrollArea

from helix_desktop.gui.importing.history_import_port import (
    ChosenHistories,
    HistoryDetails,
    ImportOutcome,
)
from helix_desktop.gui.importing.import_dialog import ImportConversationsDialog
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.theme import Theme
from helix_desktop.histories.history_finding import FoundHistories
from helix_desktop.program_settings import RECORDER
from tests.gui.fake_setup import FakeHistories
from tests.turns import qt_works


def shown(
    window: MainWindow, histories: FakeHistories
) -> tuple[ImportConversationsDialog, list[ImportOutcome], list[bool]]:
    brought: list[ImportOutcome] = []
    changed: list[bool] = []
    dialog = ImportConversationsDialog(
        window,
        window.background_runner,
        histories,
        window.settings,
        brought.append,
        lambda: changed.append(True),
    )
    dialog.open()
    return dialog, brought, changed


def words(dialog: ImportConversationsDialog) -> str:
    return " ".join(label.text() for label in dialog.findChildren(QLabel))


def pressed(dialog: ImportConversationsDialog, text: str) -> None:
    button = next(one for one in dialog.findChildren(QPushButton) if one.text() == text)
    assert button.isVisible()
    button.click()


def test_what_was_found_is_listed_and_all_of_it_ticked(window: MainWindow) -> None:
    dialog, _, _ = shown(window, FakeHistories())
    dialog.find_conversations()
    assert "13 conversations were found" in words(dialog)
    assert dialog.import_button.text() == "Import 13 conversations"
    dialog.found.rows["/b.jsonl", "/gone"].setCheckState(0, Qt.CheckState.Unchecked)
    assert dialog.import_button.text() == "Import 12 conversations"
    dialog.found._project_items()[0].setCheckState(0, Qt.CheckState.Unchecked)
    assert not dialog.import_button.isEnabled()


def test_each_conversation_has_its_title_date_length_and_cost(window: MainWindow) -> None:
    dialog, _, _ = shown(window, FakeHistories())
    dialog.find_conversations()
    row = dialog.found.rows["/b.jsonl", "/gone"]
    assert [row.text(column) for column in (0, 2, 3)] == [
        "Extract the lock manager",
        "24 messages",
        "$0.310",
    ]
    assert "Dec 2025" in row.text(1)
    assert not dialog.found.horizontalScrollBar().isVisible()


def test_a_filter_leaves_some_and_only_those_are_imported(window: MainWindow) -> None:
    histories = FakeHistories()
    dialog, _, _ = shown(window, histories)
    dialog.find_conversations()
    dialog.filter_line.setText("lock codex")
    assert dialog.import_button.text() == "Import 1 conversation"
    dialog.filter_line.setText("/tmp/no-such.jsonl")
    assert not dialog.import_button.isEnabled()
    assert not dialog._nothing_label.isHidden()
    assert "“/tmp/no-such.jsonl”" in dialog._nothing_label.text()
    assert "“Choose files…”" in dialog._nothing_label.text()
    dialog.filter_line.setText("LOCK")
    assert dialog._nothing_label.isHidden()
    dialog.import_checked_groups()
    assert [[group.program for group in groups] for groups in histories.done] == [["Codex"]]


def test_why_one_was_not_taken_stands_beside_it(window: MainWindow) -> None:
    histories = FakeHistories()
    histories.details = HistoryDetails(
        "b", reason="/b.jsonl doesn't contain a session that can be read."
    )
    dialog, _, _ = shown(window, histories)
    dialog.find_conversations()
    row = dialog.found.rows["/b.jsonl", "/gone"]
    assert row.text(0) == "b — b.jsonl doesn't contain a session that can be read."
    assert row.checkState(0) == Qt.CheckState.Unchecked
    assert dialog.found.show_reasons_and_return_others(
        ["/b.jsonl was left out because it contains no reply.", "elsewhere"]
    ) == ["elsewhere"]
    assert row.text(0) == "b — b.jsonl was left out because it contains no reply."


def test_the_date_is_that_of_the_last_message_and_not_of_the_file(window: MainWindow) -> None:
    histories = FakeHistories()
    histories.details = HistoryDetails(
        "b", 2, last=dt.datetime(2025, 3, 4, 12, tzinfo=dt.UTC).timestamp()
    )
    dialog, _, _ = shown(window, histories)
    dialog.find_conversations()
    row = dialog.found.rows["/b.jsonl", "/gone"]
    project = row.parent()
    assert project is not None
    assert (row.text(1), project.text(1)) == ("4 Mar 2025", "4 Mar 2025")


def test_what_came_is_told_and_taken_back(window: MainWindow) -> None:
    histories = FakeHistories()
    dialog, brought, changed = shown(window, histories)
    dialog.find_conversations()
    dialog.import_checked_groups()
    assert [len(groups) for groups in histories.done] == [2]
    assert brought[0].new_count == 13
    assert (
        "13 conversations were imported. Workspaces: Imported, thesis. 2 conversations had already"
        in words(dialog)
    )
    assert dialog.found.chosen_groups() == [], (
        "a second click would import nothing and take Undo away"
    )
    dialog.found.show_details(histories.done[0][0], HistoryDetails(title="It came later"))
    assert not dialog.import_button.isVisibleTo(dialog)
    pressed(dialog, "Undo")
    assert histories.undone
    assert changed == [True]
    assert "was undone" in words(dialog)
    next(iter(dialog.found.rows.values())).setCheckState(0, Qt.CheckState.Checked)
    assert dialog.import_button.isVisibleTo(dialog)


def test_keys_are_shown_masked_and_forgotten_after_a_question(window: MainWindow) -> None:
    histories = FakeHistories()
    dialog, _, _ = shown(window, histories)
    dialog.find_conversations()
    dialog.import_checked_groups()
    assert "sk-ant-…9f" in words(dialog)
    pressed(dialog, "Forget the secret…")
    box = dialog.findChild(QMessageBox)
    assert box is not None
    assert not histories.forgotten
    next(button for button in box.buttons() if button.text() == "Forget them").click()
    assert histories.forgotten


def test_closing_while_it_goes_on_stops_it(window: MainWindow) -> None:
    histories = FakeHistories()
    dialog, _, _ = shown(window, histories)
    dialog.find_conversations()
    dialog._show_import_running(is_running=True)
    dialog.reject()
    assert histories.stopped


def test_recording_is_off_until_it_is_chosen_here(window: MainWindow) -> None:
    dialog, _, _ = shown(window, FakeHistories())
    assert not window.settings[RECORDER]
    assert RECORDER.sentence in {
        label.text() for label in dialog.findChildren(QLabel) if label.isVisible()
    }
    dialog.recorder_box.click()
    assert window.settings[RECORDER]
    again, _, _ = shown(window, FakeHistories())
    assert again.recorder_box.isChecked()
    again.recorder_box.click()
    assert not window.settings[RECORDER]


def test_what_was_imported_is_one_press_away(window: MainWindow) -> None:
    """After an import, the dialog named a workspace, and nothing led there."""
    histories = FakeHistories()
    dialog, brought, _ = shown(window, histories)
    wanted: list[tuple[str, str]] = []
    dialog.conversation_wanted.connect(lambda *place: wanted.append(place))
    dialog.find_conversations()
    assert not dialog._show_first.isVisibleTo(dialog)
    assert "which costs nothing" in words(dialog), "the column of costs was read as a price"
    dialog.import_checked_groups()
    assert dialog._show_first.property("look") == "primary"
    assert dialog._close.property("look") != "primary", "one filled button"
    assert "can be continued here" in words(dialog)
    pressed(dialog, "Open the newest")
    assert wanted == [brought[0].first_conversation]
    assert not dialog.isVisible()


def test_nothing_found_is_said(window: MainWindow) -> None:
    histories = FakeHistories()
    histories.groups = []
    dialog, _, _ = shown(window, histories)
    dialog.find_conversations()
    assert "No conversations from other programs were found" in words(dialog)
    assert "a ChatGPT export" in words(dialog)
    assert not dialog._delete_button.isVisibleTo(dialog)
    assert histories.done == []


def test_what_was_recorded_of_an_agent_is_deleted_after_a_question(window: MainWindow) -> None:
    histories = FakeHistories()
    dialog, _, changed = shown(window, histories)
    button = next(
        one
        for one in dialog.findChildren(QPushButton)
        if one.text() == "Delete recorded conversations ▾"
    )
    (menu,) = (each for each in button.menu().findChildren(QMenu) if each.title() == "Codex")
    next(action for action in menu.actions() if action.text() == "Older than 30 days").trigger()
    box = dialog.findChild(QMessageBox)
    assert isinstance(box, QMessageBox)
    assert "cannot be undone" in box.text()
    next(one for one in box.buttons() if one.text() == "Delete permanently").click()
    assert histories.deleted == ("codex", 30)
    assert "2 conversations deleted" in words(dialog)
    assert changed == [True]


def test_in_large_letters_the_empty_dialog_is_as_high_as_what_it_says(
    window: MainWindow, theme: Theme
) -> None:
    """The defect: at 300 % a strip was left of it, which scrolled both ways."""
    theme.set_zoom(3.0)
    histories = FakeHistories()
    histories.groups = []
    dialog, _, _ = shown(window, histories)
    qt_works(30)
    dialog.find_conversations()
    qt_works(30)
    area = dialog.findChild(QScrollArea)
    assert area is not None
    assert dialog.height() > dialog.screen().availableGeometry().height() / 2
    assert not area.horizontalScrollBar().maximum()


def test_what_is_here_already_is_marked_and_not_ticked(window: MainWindow) -> None:
    """Opened again, the dialog ticked all seven conversations, though all were recorded here."""
    dialog, _, _ = shown(window, FakeHistories())
    dialog.found.show_groups(
        [
            FoundHistories(
                "codex", Path("/a.jsonl"), "/gone", 1, 20_000, 0.0, 2.0, is_imported=True
            ),
            FoundHistories("codex", Path("/b.jsonl"), "/gone", 1, 20_000, 0.0, 1.0),
        ]
    )
    known = dialog.found.rows["/a.jsonl", "/gone"]
    new = dialog.found.rows["/b.jsonl", "/gone"]
    assert [row.checkState(0) for row in (known, new)] == [
        Qt.CheckState.Unchecked,
        Qt.CheckState.Checked,
    ]
    dialog.found.show_details(known.data(0, Qt.ItemDataRole.UserRole), HistoryDetails("A title", 3))
    assert known.text(0) == "A title — already imported"
    assert dialog.import_button.text() == "Import 1 conversation"


def test_files_that_were_chosen_are_added_to_what_was_found(window: MainWindow) -> None:
    histories = FakeHistories()
    dialog, brought, _ = shown(window, histories)
    dialog.find_conversations()
    dialog.found.rows["/b.jsonl", "/gone"].setCheckState(0, Qt.CheckState.Unchecked)
    pressed(dialog, "Choose files…")
    picker = dialog.findChildren(QFileDialog)[-1]
    picker.filesSelected.emit(["/x/export.zip", "/x/notes.txt"])
    picker.close()
    assert "3 conversations are in the files that you chose." in words(dialog)
    assert "/x/notes.txt is not a file." in words(dialog)
    assert dialog.import_button.text() == "Import 15 conversations", "what was unticked stays so"
    dialog.list_chosen_files([Path("/x/export.zip")])
    assert dialog.import_button.text() == "Import 15 conversations", "a file is listed once"
    pressed(dialog, "Import 15 conversations")
    assert len(brought) == 1
    assert Path("/x/export.zip") in {group.path for group in histories.done[0]}


def test_of_a_file_that_is_no_conversation_only_that_is_said(window: MainWindow) -> None:
    """It began with "0 conversations are in the files that you chose.", and why stood below."""
    dialog, _, _ = shown(window, FakeHistories())
    dialog._add_chosen_files(ChosenHistories((), ["/x/notes.txt is not a file."]))
    assert "/x/notes.txt is not a file." in words(dialog)
    assert "0 conversations" not in words(dialog)


def test_after_a_file_was_refused_the_keyboard_is_on_choosing_another(window: MainWindow) -> None:
    """It was on "Delete recorded conversations", as the pressed button is grey meanwhile."""
    dialog, _, _ = shown(window, FakeHistories())
    dialog.find_conversations()
    dialog._files_button.setFocus()
    dialog.list_chosen_files([Path("/x/notes.txt")])
    assert dialog.focusWidget() is dialog._files_button


def test_after_files_were_added_the_keyboard_is_on_importing_them(window: MainWindow) -> None:
    dialog, _, _ = shown(window, FakeHistories())
    dialog.find_conversations()
    dialog._files_button.setFocus()
    dialog.list_chosen_files([Path("/x/export.zip")])
    assert dialog.focusWidget() is dialog.import_button


def test_after_an_import_was_undone_the_keyboard_is_on_closing(window: MainWindow) -> None:
    dialog, _, _ = shown(window, FakeHistories())
    dialog.find_conversations()
    dialog.import_checked_groups()
    dialog._undo.setFocus()
    dialog._undo.click()
    assert dialog.focusWidget() is dialog._close


def test_each_conversation_names_the_models_that_wrote_it(window: MainWindow) -> None:
    histories = FakeHistories()
    histories.details = HistoryDetails("A title", 3, models=("claude-haiku-4-5", "claude-opus-4-6"))
    dialog, _, _ = shown(window, histories)
    dialog.find_conversations()
    row = dialog.found.rows["/b.jsonl", "/gone"]
    assert row.text(4) == "claude-haiku-4-5, claude-opus-4-6"
    assert row.toolTip(4) == "claude-haiku-4-5, claude-opus-4-6"
    assert not dialog.found.horizontalScrollBar().isVisible()


def test_files_can_be_chosen_where_nothing_was_found(window: MainWindow) -> None:
    histories = FakeHistories()
    histories.groups = []
    dialog, _, _ = shown(window, histories)
    dialog.find_conversations()
    assert not dialog.found.isVisible()
    dialog.list_chosen_files([Path("/x/export.zip")])
    assert dialog.found.isVisible()
    assert dialog.import_button.text() == "Import 3 conversations"
