"""The cache page by mouse and keyboard: find, look, choose, and everything that can be
done with an entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from PySide6.QtCore import QBuffer, QIODevice, QPoint, Qt
from PySide6.QtGui import QColor, QContextMenuEvent, QGuiApplication, QImage, QStandardItemModel
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QHeaderView, QLabel, QMenu, QMessageBox

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort, EntryUse
from helix_desktop.gui.cache.cache_page import CachePage
from helix_desktop.gui.cache.content_shapes import ContentShape
from helix_desktop.gui.cache.entry_columns import name_of_writer, number_of_column
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.chat_actions import ChatIntent, RecallEntry, ShowInChat
from helix_desktop.gui.translation import set_translations
from helix_desktop.gui.views.text_comparison import TextComparisonDialog
from tests.gui import story
from tests.gui.cache.catalogue import MemoryCatalogue
from tests.gui.fake_desk import Held, now
from tests.turns import qt_works

Settle = Callable[[], None]
LEFT = Qt.MouseButton.LeftButton
CONTROL = Qt.KeyboardModifier.ControlModifier
SHIFT = Qt.KeyboardModifier.ShiftModifier


def click_row(
    page: CachePage, row: int, modifiers: Qt.KeyboardModifier = Qt.KeyboardModifier.NoModifier
) -> None:
    y = page.table.rowViewportPosition(row) + 10
    QTest.mouseClick(page.table.viewport(), LEFT, modifiers, QPoint(40, y))


def shown(page: CachePage) -> str:
    lines = page.viewer.content_view.lines.viewed_lines
    return "\n".join(lines[i] for i in range(len(lines)))


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


def test_a_click_shows_an_entry_and_where_it_is_used(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    wanted: list[ChatIntent] = []
    page.intent_wanted.connect(wanted.append)
    page.open_entry_by_digest(catalogue.lines[0].stored.digest)
    settle()
    assert shown(page).startswith("use std::collections")
    assert page.viewer._checked_chip.isVisible()
    assert page.viewer._uses_button.text() == "used in 2 messages"
    QTest.mouseClick(page.viewer._show, LEFT)
    QTest.mouseClick(page.viewer.recall_button, LEFT)
    digest = catalogue.lines[0].stored.digest
    assert wanted == [ShowInChat("c", 19), RecallEntry(digest, None)]


def test_selected_lines_are_recalled(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    wanted: list[ChatIntent] = []
    page.intent_wanted.connect(wanted.append)
    page.open_entry_by_digest(catalogue.lines[0].stored.digest)
    settle()
    lines = page.viewer.content_view.lines
    QTest.mousePress(lines.viewport(), LEFT, pos=QPoint(8, 10 + 3 * 19))
    QTest.mouseRelease(lines.viewport(), LEFT, pos=QPoint(8, 10 + 3 * 19))
    QTest.keyClick(lines, Qt.Key.Key_Down, SHIFT)
    assert page.viewer.recall_button.text() == "Add lines 4–5 to next message"
    QTest.mouseClick(page.viewer.recall_button, LEFT)
    assert wanted == [RecallEntry(catalogue.lines[0].stored.digest, (4, 5))]


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


def test_choosing_all_and_copying_hashes(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    page.table.setFocus()
    QTest.keyClick(page.table, Qt.Key.Key_A, CONTROL)
    assert "305 selected" in page._figures_label.text()
    QTest.keyClick(page.table, Qt.Key.Key_C, CONTROL)
    settle()
    page.table.select_row_and_open_entry(1)
    settle()
    assert "selected" not in page._figures_label.text()
    assert page._figures_label.text().startswith("305 stored outputs")
    QTest.keyClick(page.table, Qt.Key.Key_A, CONTROL)
    settle()
    text = QGuiApplication.clipboard().text().split("\n")
    assert len(text) == 305
    assert set(text) == {line.stored.digest.hex for line in catalogue.lines}


def test_a_click_on_a_header_sorts(page: CachePage, settle: Settle) -> None:
    header = page.table.horizontalHeader()
    x = header.sectionViewportPosition(number_of_column("size")) + 20
    QTest.mouseClick(header.viewport(), LEFT, pos=QPoint(x, 10))
    settle()
    sizes = [
        row.stored.size for i in range(10) if (row := page.model.get_or_load_row(i)) is not None
    ]
    assert sizes == sorted(sizes)
    QTest.mouseClick(header.viewport(), LEFT, pos=QPoint(x, 10))
    settle()
    first = page.model.get_or_load_row(0)
    assert first is not None
    assert first.stored.size > 2_000


def test_the_arrow_points_down_for_the_newest_first(page: CachePage, settle: Settle) -> None:
    """The defect: Qt draws an arrow that points up beside what gets smaller downwards."""
    header = page.table.horizontalHeader()
    widths: dict[Qt.SortOrder, list[int]] = {}
    for order in (Qt.SortOrder.DescendingOrder, Qt.SortOrder.AscendingOrder):
        header.setSortIndicator(number_of_column("time"), order)
        settle()
        with_arrow = header.grab().toImage()
        header.setSortIndicatorShown(False)
        without_arrow = header.grab().toImage()
        header.setSortIndicatorShown(True)
        widths[order] = []
        for y in range(with_arrow.height()):
            pixels = [
                x
                for x in range(with_arrow.width())
                if with_arrow.pixel(x, y) != without_arrow.pixel(x, y)
            ]
            if pixels:
                widths[order].append(max(pixels) - min(pixels))
    descending = widths[Qt.SortOrder.DescendingOrder]
    ascending = widths[Qt.SortOrder.AscendingOrder]
    assert descending[0] > descending[-1]
    assert ascending[0] < ascending[-1]


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


def test_every_kind_of_content_has_its_shape(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    for number, shape in (
        (2, ContentShape.JSON),
        (3, ContentShape.TEXT),
        (4, ContentShape.HEX),
        (0, ContentShape.TEXT),
    ):
        page.open_entry_by_digest(catalogue.lines[number].stored.digest)
        settle()
        assert page.viewer.content_view.shape is shape
    page.open_entry_by_digest(catalogue.lines[4].stored.digest)
    settle()
    assert shown(page).startswith("00 01 02 03")


def test_a_large_entry_comes_page_by_page(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    large = catalogue.put(b"".join(b"line %07d\n" % i for i in range(300_000)))
    page.open_entry_by_digest(large.stored.digest)
    settle()
    body = page.viewer.content_view
    assert body._page_label.text().startswith("page 1 of 4")
    QTest.mouseClick(body._next_button, LEFT)
    settle()
    assert body._page_label.text().startswith("page 2 of 4")
    number = body._first_lines[1]
    assert body.lines.viewed_lines[1] == f"line {number:07d}"


def test_damage_is_said_where_it_is_met(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    line = catalogue.lines[0]
    catalogue.damaged.add(line.stored.digest)
    page.open_entry_by_digest(line.stored.digest)
    settle()
    said = page.viewer.content_view.findChildren(QLabel)
    assert any(
        "do not match their hash" in label.text() and "Restore a backup" in label.text()
        for label in said
    )
    assert page.viewer._checked_chip._text == "damaged"
    assert not page.viewer.recall_button.isEnabled()


def test_what_was_removed_for_room_says_so(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    catalogue.lines[0] = replace(catalogue.lines[0], gone=True)
    page.open_entry_by_digest(catalogue.lines[0].stored.digest)
    settle()
    said = page.viewer.content_view.findChildren(QLabel)
    assert any("removed to free up space" in label.text() for label in said)
    assert not page.viewer.recall_button.isEnabled()


def test_pin_and_verify(page: CachePage, catalogue: MemoryCatalogue, settle: Settle) -> None:
    digest = catalogue.lines[0].stored.digest
    page.open_entry_by_digest(digest)
    settle()
    page.viewer._toggle_pin()
    settle()
    page.entry_actions.verify_shown_entry()
    assert catalogue.done == [("pin", digest), ("verify", digest)]
    assert page.viewer.row is not None
    assert page.viewer.row.pinned
    assert "matches its hash" in page._figures_label.text()


def test_forgetting_says_what_it_means_first(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    digest = catalogue.lines[0].stored.digest
    page.open_entry_by_digest(digest)
    settle()
    catalogue.used[digest] = [
        *catalogue.used[digest],
        EntryUse("c", 23, 3.0, "output"),
    ]  # Used since it was shown.
    page.entry_actions.ask_to_forget_entry()
    settle()
    (box,) = [
        w for w in QApplication.topLevelWidgets() if isinstance(w, QMessageBox) and w.isVisible()
    ]
    assert "3 messages refer to this output" in box.text()
    assert catalogue.done == []
    QTest.mouseClick(next(b for b in box.buttons() if "Forget" in b.text()), LEFT)
    settle()
    assert catalogue.done == [("forget", digest)]
    assert page.model.rowCount() == 304
    assert page.viewer.row is None or page.viewer.row.stored.digest != digest


def test_the_newest_entry_is_looked_at_first(page: CachePage, catalogue: MemoryCatalogue) -> None:
    assert page.viewer.row is not None
    assert page.viewer.row.stored == catalogue.lines[-1].stored


def test_what_a_fold_stored_for_itself_is_not_looked_at_first(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    newest = catalogue.lines[-1]
    catalogue.put(b"Details kept by Helix Desktop", "handover", "details of a conversation")
    page.show_cache_of(catalogue)
    settle()
    assert page.viewer.row is not None
    assert page.viewer.row.stored == newest.stored
    assert page.table.current_row == 1
    catalogue.lines = catalogue.lines[-1:]
    page.show_cache_of(catalogue)
    settle()
    assert page.table.current_row == 0, "there is nothing else"


def test_two_entries_are_compared(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    catalogue.lines = catalogue.lines[:2]
    catalogue.put(story.TABLE.replace("epoch", "era").encode())
    page.show_cache_of(catalogue)
    settle()
    click_row(page, 0)
    click_row(page, 2, CONTROL)
    page.entry_actions.compare_selected_entries()
    settle()
    (dialog,) = [w for w in QApplication.topLevelWidgets() if isinstance(w, TextComparisonDialog)]
    assert dialog._result_label.text().startswith("2 lines are only on the left")


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


def test_columns_and_divider_are_kept(page: CachePage, settle: Settle) -> None:
    header = page.table.horizontalHeader()
    header.moveSection(header.visualIndex(number_of_column("size")), 1)
    page.table._set_column_hidden(number_of_column("recalled"), hidden=False)
    page._split.setSizes([500, 200])
    kept = page.encode_cache_layout()
    sizes = page._split.sizes()
    header.moveSection(1, 3)
    page.table._set_column_hidden(number_of_column("recalled"), hidden=True)
    page._split.setSizes([200, 500])
    page.restore_cache_layout("nonsense")
    page.restore_cache_layout(kept)
    assert header.visualIndex(number_of_column("size")) == 1
    assert not header.isSectionHidden(number_of_column("recalled"))
    assert page._split.sizes() == sizes


def test_a_layout_of_an_earlier_version_without_the_newest_columns_is_kept(
    page: CachePage, settle: Settle
) -> None:
    earlier_header = QHeaderView(Qt.Orientation.Horizontal)
    earlier_header.setModel(QStandardItemModel(0, 8, earlier_header))
    earlier_header.moveSection(earlier_header.visualIndex(number_of_column("size")), 1)
    earlier_header.hideSection(number_of_column("tokens"))
    kept = bytes(earlier_header.saveState().toBase64().data()).decode()
    earlier_header.deleteLater()
    _header, split, _columns = page.encode_cache_layout().split(" ")
    page.restore_cache_layout(f"{kept} {split}")
    header = page.table.horizontalHeader()
    assert header.visualIndex(number_of_column("size")) == 1
    assert header.isSectionHidden(number_of_column("tokens"))
    assert header.isSectionHidden(number_of_column("lines"))


def test_a_column_without_an_order_in_the_index_leaves_the_order_as_it_is(
    page: CachePage, settle: Settle
) -> None:
    header = page.table.horizontalHeader()
    header.setSortIndicator(number_of_column("size"), Qt.SortOrder.AscendingOrder)
    page.table._set_column_hidden(number_of_column("lines"), hidden=False)
    x = header.sectionViewportPosition(number_of_column("lines")) + 20
    QTest.mouseClick(header.viewport(), LEFT, pos=QPoint(x, 10))
    assert header.sortIndicatorSection() == number_of_column("size")
    assert header.sortIndicatorOrder() == Qt.SortOrder.AscendingOrder
    assert page.model.sort_by is EntrySort.SIZE


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


def test_what_is_checked_is_said_of_the_entry_it_was_asked_for(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    """Reading a large one takes its time, and somebody looks at another entry meanwhile."""
    held = page._shown.runner._spawn = Held()
    checked = page.viewer.row
    assert checked is not None
    page.entry_actions.verify_shown_entry()
    page.entry_actions.set_shown_entry_pinned(True)
    click_row(page, 1)
    looked_at = page.viewer.row
    held.let("verify")
    assert (
        page._figures_label.text()
        == f"{checked.stored.digest.short_hex}: The content matches its hash."
    )
    assert not page.viewer._checked_chip.isVisible()
    page._shown.runner._spawn = now
    held.let()
    settle()
    assert page.viewer.row is looked_at


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


def test_pages_that_come_late_are_not_shown_as_others(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    line = catalogue.put(
        b"".join(b"line %07d\n" % number for number in range(250_000)), source="long.txt"
    )
    page.open_entry_by_digest(line.stored.digest)
    settle()
    held = page._shown.runner._spawn = Held()
    page.viewer.content_view.turn_page_by(1)
    page.viewer.content_view.turn_page_by(1)
    held.let("read_range", newest=True)
    second = shown(page)
    held.let("read_range")
    page._shown.runner._spawn = now
    held.let()
    assert shown(page) == second


def test_uses_are_those_of_the_entry_that_is_shown(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    page.open_entry_by_digest(catalogue.lines[0].stored.digest)
    settle()
    assert len(page.viewer.uses) == 2
    held = page._shown.runner._spawn = Held()
    click_row(page, 1)
    assert page.viewer.uses == ()
    page._shown.runner._spawn = now
    held.let()


def test_how_an_entry_is_used_is_said_in_the_user_s_language(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    set_translations({"output": "Ausgabe", "recall": "Abruf"})
    try:
        page.open_entry_by_digest(catalogue.lines[0].stored.digest)
        settle()
        words = [
            action.text().partition(",")[0] for action in page.viewer._uses_button.menu().actions()
        ]
    finally:
        set_translations({})
    assert words == ["Abruf", "Ausgabe"]


def menu_of(page: CachePage, reason: QContextMenuEvent.Reason, at: QPoint) -> list[str]:
    QApplication.sendEvent(
        page.table.viewport(), QContextMenuEvent(reason, at, page.table.mapToGlobal(at))
    )
    menus = [each for each in page.findChildren(QMenu) if each.isVisible()]
    names = [action.text() for menu in menus for action in menu.actions() if action.text()]
    for menu in menus:
        menu.close()
    return names


def test_the_menu_by_keyboard_is_of_the_chosen_entry(page: CachePage) -> None:
    click_row(page, 1)
    names = menu_of(page, QContextMenuEvent.Reason.Keyboard, page.table.viewport().rect().center())
    assert names[0] == "Copy the hash"
    assert list(page.table.selected_rows()) == [1]


def test_where_nothing_is_chosen_there_is_no_menu(page: CachePage, settle: Settle) -> None:
    page.bar.field.setText("no entry holds this")
    QTest.keyClick(page.bar.field, Qt.Key.Key_Return)
    settle()
    assert menu_of(page, QContextMenuEvent.Reason.Mouse, QPoint(40, 40)) == []


def test_large_text_moves_the_second_buttons_into_the_menu(page: CachePage, theme: Theme) -> None:
    assert page.viewer._copy.isVisible()
    theme.set_zoom(2.0)
    assert not page.viewer._copy.isVisible()
    theme.set_zoom(1.0)
    assert page.viewer._copy.isVisible()


def test_with_large_text_the_first_button_is_not_cut(
    page: CachePage, theme: Theme, settle: Settle
) -> None:
    page.table.select_row_and_open_entry(0)
    settle()
    for zoom in (1.0, 1.5, 1.75, 2.0):
        theme.set_zoom(zoom)
        page.resize(1_000, 850)
        settle()
        assert page.viewer.recall_button.width() >= page.viewer.recall_button.sizeHint().width(), (
            zoom
        )
    theme.set_zoom(1.0)


def test_what_is_copied_is_what_is_shown_whatever_its_shape(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    """The text of the entry before is still laid out behind a picture."""
    clipboard = QGuiApplication.clipboard()
    page.open_entry_by_digest(catalogue.lines[0].stored.digest)
    settle()
    for number, text in (
        (2, '{"a": [1, 2, {"b": null}], "c": "text"}'),
        (3, "name,count\nalpha,1\nbeta,2"),
    ):
        page.open_entry_by_digest(catalogue.lines[number].stored.digest)
        settle()
        assert page.viewer.content_view.shape in (ContentShape.JSON, ContentShape.TEXT)
        if page.viewer.content_view.shape is ContentShape.JSON:
            assert shown(page).startswith('{\n  "a": [\n    1,\n')
        page.viewer.copy_shown_content()
        assert clipboard.text() == text
    picture = QImage(3, 2, QImage.Format.Format_RGB32)
    picture.fill(QColor("#0d7d74"))
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    picture.save(buffer, "PNG")  # type: ignore[call-overload]  # Qt takes a str
    line = catalogue.put(bytes(buffer.data().data()), source="x.png", media="image/png")
    page.open_entry_by_digest(line.stored.digest)
    settle()
    assert page.viewer.content_view.shape is ContentShape.IMAGE
    page.viewer.copy_shown_content()
    assert clipboard.image().size() == picture.size()


def test_the_line_a_search_found_is_shown_when_its_entry_has_come(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    text = "\n".join("needle" if number == 700 else f"line {number}" for number in range(1_000))
    catalogue.put(text.encode(), source="long.txt")
    held = page._shown.runner._spawn = Held()
    page.search_hash_or_text("needle")
    held.let("search_entries")
    qt_works(80)
    held.let("read_range")
    page._shown.runner._spawn = now
    held.let()
    settle()
    assert page.viewer.content_view.lines.verticalScrollBar().value() > 0


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


def test_what_no_tool_wrote_is_named_in_the_users_words() -> None:
    """The column said "handover", a word that the window explains nowhere."""
    assert [name_of_writer(tool) for tool in ("handover", "user", "read_file")] == [
        "summary",
        "you",
        "Read",
    ]
