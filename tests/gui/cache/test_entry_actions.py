"""What can be done with entries: copy, pin, check, compare and forget."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QContextMenuEvent, QGuiApplication
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMessageBox

from helix_desktop.engine.cache_entry_rows import EntryUse
from helix_desktop.gui.cache.cache_page import CachePage
from helix_desktop.gui.views.text_comparison import TextComparisonDialog
from tests.gui import story
from tests.gui.cache.cache_page_hands import CONTROL, LEFT, Settle, click_row, menu_of
from tests.gui.cache.catalogue import MemoryCatalogue


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
