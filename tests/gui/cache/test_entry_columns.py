"""The columns of the table: kept, restored, sorted by."""

from __future__ import annotations

import json

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QStandardItemModel
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QHeaderView

from helix_desktop.engine.cache_entry_rows import EntryRow, EntrySort
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui import translation
from helix_desktop.gui.cache.cache_page import CachePage
from helix_desktop.gui.cache.entry_columns import ENTRY_COLUMNS, number_of_column
from tests.gui.cache.cache_page_hands import LEFT, Settle


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


@pytest.mark.parametrize(
    ("tool", "source", "media_type", "words"),
    [
        ("write_file", "notes.txt", "text/plain", "Result of a change"),
        ("version", "notes.txt", "text/plain", "Version of a file"),
        ("user", "report.pdf", "application/pdf", "Your file"),
        ("user", "report.pdf", "text/plain", "Text of your file"),
        ("user", "notes.txt", "text/plain", "You"),
    ],
)
def test_two_entries_of_one_origin_are_told_apart(
    tool: str, source: str, media_type: str, words: str
) -> None:
    """Each stood there twice, and only the size was another one."""
    stored = Stored(Digest.of_content(b"x"), 1, 1, media_type)
    row = EntryRow(stored, EntryOrigin(tool, source, media_type), 1, 1, 0.0)
    column = ENTRY_COLUMNS[number_of_column("tool")]
    assert column.text(row, 0.0) == words


def test_versions_of_a_file_within_a_minute_have_seconds() -> None:
    """Two rows said "app.py, Version of a file, 349 B, 7 min ago"."""
    stored = Stored(Digest.of_content(b"x"), 1, 1, "text/plain")
    column = ENTRY_COLUMNS[number_of_column("time")]
    moment = 1_779_999_972.0  # 12 seconds past a minute, in every time zone.

    def cells(tool: str, now: float) -> list[str]:
        about = EntryOrigin(tool, "app.py", "text/plain")
        rows = [EntryRow(stored, about, 1, 1, moment + seconds) for seconds in (0, 3)]
        return [column.text(row, now) for row in rows]

    soon = moment + 425
    assert cells("read_file", soon) == ["7 min ago", "7 min ago"]
    first, second = cells("version", soon)
    assert ":12" in first
    assert ":15" in second
    assert cells("version", moment + 3 * 86_400 + 5) == ["3 days ago", "3 days ago"]


@pytest.mark.parametrize(
    ("tool", "source", "words"),
    [
        ("import", "lines of talk.jsonl", "Alle Zeilen von talk.jsonl"),
        ("copy", "copy of project", "Kopie von project"),
        ("handover", "details of a conversation", "Einzelheiten hinter einer Zusammenfassung"),
        ("user", "message", "Lange Nachricht"),
        # A file may be called so.
        ("read_file", "message", "message"),
        ("run_command", "lines of a.txt", "lines of a.txt"),
    ],
)
def test_what_the_program_stored_itself_is_named_in_the_users_language(
    tool: str, source: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """German rows said "lines of talk.jsonl" and "details of a conversation"."""
    stored = Stored(Digest.of_content(b"x"), 1, 1, "text/plain")
    row = EntryRow(stored, EntryOrigin(tool, source, "text/plain"), 1, 1, 0.0)
    column = ENTRY_COLUMNS[number_of_column("source")]
    german = json.loads(translation.translation_catalogue_path("de").read_text("utf-8"))
    monkeypatch.setattr(translation, "_translations", german)
    assert column.text(row, 0.0) == words
