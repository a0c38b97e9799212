"""One entry: what it is, where it is used, and what is said of it."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QLabel

from helix_desktop.gui.cache.cache_page import CachePage
from helix_desktop.gui.cache.entry_columns import name_of_writer
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.chat_actions import ChatIntent, RecallEntry, ShowInChat
from helix_desktop.gui.translation import set_translations
from tests.gui.cache.cache_page_hands import LEFT, SHIFT, Settle, click_row, shown
from tests.gui.cache.catalogue import MemoryCatalogue
from tests.gui.fake_desk import Held, now
from tests.turns import qt_works


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


def test_the_versions_of_one_file_stand_together_and_lead_to_each_other(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    """They lay between the outputs of other tools, each in a row of its own."""
    read = catalogue.put(b"one", "read_file", "src/app.py")
    catalogue.put(b"something else", "run_command", "cat src/app.py")
    before = catalogue.put(b"two", "version", "src/app.py")
    answer = catalogue.put(b"The file was changed.", "edit_file", "src/app.py")
    other = catalogue.put(b"three", "version", "old/src/app.py")
    after = catalogue.put(b"four", "version", "src/app.py")
    page.open_entry_by_digest(before.stored.digest)
    settle()
    button = page.viewer._versions_button
    assert button.isVisible()
    assert button.text() == "3 versions ▾"
    assert button.accessibleName() == "Versions of this file: 3 versions"
    menu = page.viewer._versions_menu
    assert [action.isChecked() for action in menu.actions()] == [False, True, False]
    assert [action.text().split(" · ")[1:] for action in menu.actions()] == [
        ["Version of a file", "4 B"],
        ["Version of a file", "3 B"],
        ["Read", "3 B"],
    ]
    menu.actions()[0].trigger()
    settle()
    assert page.viewer.is_entry_shown(after.stored.digest)
    assert button.text() == "3 versions ▾"
    menu.actions()[2].trigger()
    settle()
    assert page.viewer.is_entry_shown(read.stored.digest)
    for alone in (answer, other):
        page.open_entry_by_digest(alone.stored.digest)
        settle()
        assert not button.isVisible()


def test_a_document_and_its_text_lead_to_each_other(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    """They stood in two rows of one name, and nothing led from one to the other."""
    pdf = "application/pdf"
    original = catalogue.put(b"%PDF-1.7 with pages", "user", "report.pdf", media=pdf)
    text = catalogue.put(b"the text of the pages", "user", "report.pdf")
    message = catalogue.put(b"a long message", "user", "message")
    catalogue.put(b"another long message", "user", "message")
    page.open_entry_by_digest(original.stored.digest)
    settle()
    button = page.viewer._versions_button
    assert button.text() == "2 versions ▾"
    menu = page.viewer._versions_menu
    assert [action.text().split(" · ")[1] for action in menu.actions()] == [
        "Text of your file",
        "Your file",
    ]
    menu.actions()[0].trigger()
    settle()
    assert page.viewer.is_entry_shown(text.stored.digest)
    page.open_entry_by_digest(message.stored.digest)
    settle()
    assert not button.isVisible()


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


def test_what_no_tool_wrote_is_named_in_the_users_words() -> None:
    """The column said "handover", a word that the window explains nowhere."""
    assert [name_of_writer(tool) for tool in ("handover", "user", "read_file")] == [
        "Summary",
        "You",
        "Read",
    ]
