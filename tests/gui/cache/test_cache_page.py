"""The cache page by mouse and keyboard: find, look, choose, and everything that can be
done with an entry.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtTest import QTest

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntryUse
from helix_desktop.gui.cache.cache_page import CachePage
from helix_desktop.gui.cache.entry_columns import number_of_column
from helix_desktop.gui.theme import Theme
from tests.gui.cache.cache_page_hands import CONTROL, SHIFT, Settle, click_row
from tests.gui.cache.catalogue import MemoryCatalogue
from tests.gui.fake_desk import Held, now


def test_the_page_says_what_there_is(page: CachePage, catalogue: MemoryCatalogue) -> None:
    assert page._figures_label.text().startswith("305 stored outputs · ")
    assert "2 duplicates not stored again" in page._figures_label.text()
    assert page.model.rowCount() == 305


@pytest.mark.parametrize(
    ("uses", "words"),
    [
        ([], "not used"),
        ([EntryUse("c", 7, 1.0, "fold")], "used in 1 shortened place"),
        ([EntryUse("c", 7, 1.0, "fold"), EntryUse("c", 19, 2.0, "output")], "used in 1 message"),
    ],
)
def test_an_entry_that_only_folds_use_is_said_to_be_used(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle, uses: list[EntryUse], words: str
) -> None:
    """It was “used in 0 messages”."""
    digest = catalogue.lines[0].stored.digest
    catalogue.used[digest] = uses
    page.open_entry_by_digest(digest)
    settle()
    assert page.viewer._uses_button.text() == words


def test_with_large_text_no_column_and_no_button_of_an_entry_is_cut(
    page: CachePage, catalogue: MemoryCatalogue, theme: Theme, settle: Settle
) -> None:
    """At 200 % the hash's column was the one sign "-", and the button with the uses an
    empty box.
    """
    page.open_entry_by_digest(catalogue.lines[0].stored.digest)
    page.resize(850, 800)
    settle()
    assert page.viewer._uses_button.isVisible()
    theme.set_zoom(2.0)
    settle()
    uses = page.viewer._uses_button
    table = page.table
    assert not uses.isVisible() or uses.width() >= uses.sizeHint().width()
    assert table.horizontalScrollBar().maximum() == 0
    theme.set_zoom(1.0)
    settle()
    assert uses.isVisible()
    assert not table.isColumnHidden(number_of_column("size"))
    # Few people look for a hash: its column is shown once it is chosen.
    assert table.isColumnHidden(number_of_column("hash"))


def test_the_keyboard_goes_through_the_rows(page: CachePage, settle: Settle) -> None:
    click_row(page, 0)
    for _ in range(3):
        QTest.keyClick(page.table, Qt.Key.Key_Down)
    QTest.keyClick(page.table, Qt.Key.Key_Down, SHIFT)
    assert page.table.selected_ranges == [(3, 4)]
    QTest.keyClick(page.table, Qt.Key.Key_End)
    settle()
    assert page.table.current_row == page.model.rowCount() - 1
    assert page.viewer.row is not None
    assert page.viewer.row.stored.digest.hex


def test_a_hash_jumps_and_words_are_searched(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    target = catalogue.lines[1].stored.digest
    QTest.keyClick(page.table, Qt.Key.Key_F, CONTROL)
    page.bar.field.setText(target.hex[:10])
    QTest.keyClick(page.bar.field, Qt.Key.Key_Return)
    settle()
    assert page.viewer.row is not None
    assert page.viewer.row.stored.digest == target
    page.bar.field.setText("upgrade_is_fair")
    QTest.keyClick(page.bar.field, Qt.Key.Key_Return)
    settle()
    assert page.model.rowCount() == 1
    assert page._figures_label.text() == "“upgrade_is_fair”: 1 matching output"
    lines = page.viewer.content_view.lines
    assert list(lines._needles) == ["upgrade_is_fair"]
    page._query = 'tool:read_file "upgrade is" Fairness x'
    page._show_search_hits(page._query, [])
    assert list(lines._needles) == ["upgrade", "upgrad", "is", "fairness", "fair"], (
        "each word is marked, and its other forms"
    )
    page._query = "upgrade_is_fair"
    page._show_search_hits("upgrade_is_fair", [])
    QTest.keyClick(page.bar.field, Qt.Key.Key_Escape)
    page.search_hash_or_text("")
    assert page.model.rowCount() == 305
    settle()
    chosen = (
        page.model.get_or_load_row(page.table.current_row) if page.table.current_row >= 0 else None
    )
    assert chosen is None or chosen.stored.digest == page.viewer.row.stored.digest
    assert page.table.selected_ranges == (
        [(page.table.current_row, page.table.current_row)] if chosen else []
    )


def test_a_hash_after_words_shows_all_entries_again(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    """The rows of the search before it stayed, and the arrow of an order that did not hold."""
    header = page.table.horizontalHeader()
    page.search_hash_or_text("upgrade_is_fair")
    settle()
    assert page.model.rowCount() == 1
    assert not header.isSortIndicatorShown()
    target = catalogue.lines[1].stored.digest
    page.search_hash_or_text(target.hex[:10])
    settle()
    assert page.model.rowCount() == 305
    assert page._figures_label.text().startswith("305 stored outputs")
    assert header.isSortIndicatorShown()
    assert page.viewer.row is not None
    assert page.viewer.row.stored.digest == target


def test_a_hit_of_the_palette_opens_at_its_line_in_place_of_an_older_search(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    """It opened at line 1, or at the words that were searched for before on this page."""
    log = "".join(f"log-line-{number}\n" for number in range(1, 3001))
    log_entry = catalogue.put(log.encode(), "run_command", "seq 1 3000")
    catalogue.put(b"log-line-2555 alone\n", "run_command", "another")
    page.clear_and_reload_entries()
    settle()
    page.bar.field.setText("log-line-2222")
    QTest.keyClick(page.bar.field, Qt.Key.Key_Return)
    settle()
    page.bar._apply_filter(page.bar._tool_button, "search", EntryFilter(tool="search"))
    settle()

    page.open_entry_from_elsewhere(log_entry.stored.digest, "log-line-2555")
    settle()
    assert page.bar.field.text() == "log-line-2555"
    assert not page.bar._pause.isActive()
    assert page.bar.filter == page.model.entry_filter == EntryFilter()
    assert page.viewer.is_entry_shown(log_entry.stored.digest)
    lines = page.viewer.content_view.lines
    first_line_in_sight = lines.verticalScrollBar().value() / lines._line_height
    lines_in_sight = lines.viewport().height() / lines._line_height
    assert first_line_in_sight < 2554 < first_line_in_sight + lines_in_sight
    assert "log-line-2555" in lines._needles

    page.open_entry_from_elsewhere(catalogue.lines[0].stored.digest)
    settle()
    assert page.bar.field.text() == ""
    assert page.model.rowCount() == 307
    assert page.viewer.is_entry_shown(catalogue.lines[0].stored.digest)


def test_an_unknown_hash_is_looked_for_as_text(page: CachePage, settle: Settle) -> None:
    page.search_hash_or_text("abce")
    settle()
    assert page._figures_label.text() == "“abce”: 0 matching outputs"
    assert page.viewer.row is None


def test_the_newest_entry_is_looked_at_first(page: CachePage, catalogue: MemoryCatalogue) -> None:
    assert page.viewer.row is not None
    assert page.viewer.row.stored == catalogue.lines[-1].stored


def test_what_the_program_stored_for_itself_is_not_looked_at_first(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    newest = catalogue.lines[-1]
    catalogue.put(b"Details kept by Helix Desktop", "handover", "details of a conversation")
    catalogue.put(b"\0the agent's lines 1\n{}\n", "import", "lines of 1111.jsonl")
    page.show_cache_of(catalogue)
    settle()
    assert page.viewer.row is not None
    assert page.viewer.row.stored == newest.stored
    assert page.table.current_row == 2
    catalogue.lines = catalogue.lines[-1:]
    page.show_cache_of(catalogue)
    settle()
    assert page.table.current_row == 0, "there is nothing else"


def test_it_is_live(page: CachePage, catalogue: MemoryCatalogue, settle: Settle) -> None:
    click_row(page, 2)
    settle()
    seen = page.viewer.row
    catalogue.put(b"new one", "write_file", "new.txt")
    page.refresh_entries_soon()
    settle()
    assert page.model.rowCount() == 306
    assert page.table.current_row == 3
    assert page.viewer.row is not None
    assert seen is not None
    assert page.viewer.row.stored == seen.stored


def test_what_the_index_learns_late_is_shown_without_another_event(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    """The index is two seconds behind, and the page had asked it half a second after the fact."""
    page.refresh_entries_soon()
    settle()
    assert page.model.rowCount() == 305
    catalogue.put(b"new one", "write_file", "new.txt")
    assert page._late_refresh_timer.isActive()
    page._late_refresh_timer.timeout.emit()
    settle()
    assert page.model.rowCount() == 306


def test_what_is_shown_stays_chosen_when_its_row_was_looked_up_among_old_ones(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    click_row(page, 2)
    settle()
    catalogue.put(b"new one", "write_file", "new.txt")
    page.model.recount_and_reload()
    settle()
    page.table.move_current_row_without_opening(2)  # as found in the rows from before the new one
    page.model.recount_and_reload()
    settle()
    there = page.model.get_or_load_row(page.table.current_row)
    assert there is not None
    assert page.viewer.row is not None
    assert there.stored == page.viewer.row.stored
    assert page.table.current_row == 3


def test_a_hidden_page_waits_until_it_is_shown(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    page.hide()
    catalogue.put(b"meanwhile")
    page.refresh_entries_soon()
    settle()
    assert page.model.rowCount() == 305
    page.show()
    settle()
    assert page.model.rowCount() == 306


def test_an_answer_about_another_workspace_is_let_be(page: CachePage, settle: Settle) -> None:
    held = page._shown.runner._spawn = Held()
    page.entry_actions.verify_shown_entry()
    page._search_entry_contents("output")
    page._fetch_cache_figures()
    other = MemoryCatalogue()
    other.put(b"one", "fetch", "one.txt")
    page._shown.runner._spawn = now
    page.show_cache_of(other)
    settle()
    held.let()
    settle()
    assert page._figures_label.text().startswith("1 stored output · ")
    assert [name for name, _ in page.bar._tools] == ["fetch"]
    assert page.model.rowCount() == 1


def test_filters_are_those_of_the_workspace(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    page.bar.field.setText("output 7")
    page.bar._apply_filter(
        page.bar._conversation_button,
        "R&D",
        replace(page.bar.filter, conversation="c", tool="search"),
    )
    assert page.bar._conversation_button.text() == "R&&D ▾"
    page.show_cache_of(catalogue)
    settle()
    assert (page.bar.filter, page.model.entry_filter, page.bar.field.text()) == (
        EntryFilter(),
        EntryFilter(),
        "",
    )
    assert page.bar._conversation_button.text() == "Any conversation ▾"
    assert page.model.rowCount() == 305


def test_a_conversation_begun_since_can_be_filtered_by(
    page: CachePage, catalogue: MemoryCatalogue
) -> None:
    known = [("c", "Before")]
    page.show_cache_of(catalogue, lambda: known)
    page.hide()
    known.append(("d", "Since"))
    page.show()
    menu = page.bar._conversation_button.menu()
    assert [action.text() for action in menu.actions()] == ["Any conversation", "Before", "Since"]


def test_rows_are_selected_by_hand_and_stay_selected_when_rows_come_in(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    click_row(page, 1)
    click_row(page, 3, SHIFT)
    click_row(page, 5, CONTROL)
    assert page.table.selected_ranges == [(1, 3), (5, 5)]
    click_row(page, 2, CONTROL)
    assert page.table.selected_ranges == [(1, 1), (3, 3), (5, 5)]
    chosen = [page.model.get_or_load_row(row) for row in page.table.selected_rows()]
    catalogue.put(b"new one", "write_file", "new.txt")
    page.refresh_entries_soon()
    settle()
    assert page.table.selected_ranges == [(2, 2), (4, 4), (6, 6)]
    assert [page.model.get_or_load_row(row) for row in page.table.selected_rows()] == chosen
    page.entry_actions.copy_selected_hashes()
    settle()
    assert QGuiApplication.clipboard().text().split("\n") == [
        row.stored.digest.hex for row in chosen if row
    ]


def test_a_selection_holds_while_pages_far_away_are_looked_at(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    click_row(page, 2)
    QTest.keyClick(page.table, Qt.Key.Key_End, SHIFT)
    settle()
    assert page.table.selected_ranges == [(2, 304)]
    QTest.keyClick(page.table, Qt.Key.Key_Home)
    settle()
    assert page.table.selected_ranges == [(0, 0)]
    assert page.viewer.row == page.model.get_or_load_row(0)
    header = page.table.horizontalHeader()
    header.moveSection(header.visualIndex(number_of_column("size")), 0)
    click_row(page, 4, SHIFT)
    assert page.table.selected_count == 5
    click_row(page, 2, CONTROL)
    assert page.table.selected_count == 4


def test_a_filter_that_leaves_fewer_rows_opens_no_other_entry(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    QTest.keyClick(page.table, Qt.Key.Key_End)
    settle()
    opened = page.viewer.row
    assert page.table.current_row == 304
    page.bar.filter_chosen.emit(EntryFilter(tool="search", since=catalogue.lines[200].time))
    settle()
    assert page.model.rowCount() == 105
    assert (page.table.current_row, page.table.selected_ranges) == (-1, [])
    assert page.viewer.row == opened


def test_a_row_of_placeholders_opens_when_its_entry_has_come(
    page: CachePage, settle: Settle
) -> None:
    page.table.select_row_and_open_entry(200)
    assert page.table.is_current_row_loading
    settle()
    assert not page.table.is_current_row_loading
    assert page.viewer.row == page.model.get_or_load_row(200)


def test_letters_typed_into_the_table_look_for_nothing(page: CachePage) -> None:
    """Qt would ask every row for a text that begins with the letter: a million of them
    stand still then.
    """
    before = page.table.current_row
    QTest.keyClicks(page.table, "outp")
    assert page.table.current_row == before
