"""Files as lines and as tables, however large they are."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtWidgets import QLabel

from helix_desktop.gui.preview.file_views import WIDEST_COLUMN, parse_csv_rows
from helix_desktop.gui.preview.preview_pane import PreviewPane
from tests.gui.preview.shown_files import show


def test_a_cell_of_a_million_letters_does_not_hold_the_window(
    pane: PreviewPane, tmp_path: Path
) -> None:
    """The defect: sixteen million letters in a cell held it for more than a minute."""
    before = time.process_time()
    show(pane, tmp_path, "a.csv", b"a,b\n" + b"x" * 2_000_000 + b",y\n")
    pane.table.grab()
    assert time.process_time() - before < 2


def test_a_file_of_very_many_lines_does_not_hold_the_window(
    pane: PreviewPane, tmp_path: Path
) -> None:
    """The defect: thirty million ends of lines held it for more than forty seconds."""
    before = time.process_time()
    show(pane, tmp_path, "a.txt", b"\n" * 3_000_000)
    assert time.process_time() - before < 2
    assert "1,000,000" in " ".join(label.text() for label in pane.findChildren(QLabel))


def test_columns_of_a_table_are_as_wide_as_their_cells(pane: PreviewPane, tmp_path: Path) -> None:
    """An id had room for twenty letters, and each date was cut."""
    cells = b"7,2026-01-31T08:30:00+01:00 in the morning," + b"word " * 200
    show(pane, tmp_path, "a.csv", b"id,lent,remarks\n" + cells + b"\n")
    table = pane.table
    letters = table.fontMetrics().horizontalAdvance("2026-01-31T08:30:00+01:00 in the morning")
    assert table.columnWidth(0) < letters / 2
    assert letters < table.columnWidth(1) < 2 * letters
    assert table.columnWidth(2) == WIDEST_COLUMN


def test_a_table_of_very_many_columns_does_not_hold_the_window(
    pane: PreviewPane, tmp_path: Path
) -> None:
    before = time.process_time()
    show(pane, tmp_path, "a.csv", b"1," * 20_000 + b"\n" + b"2," * 20_000 + b"\n")
    pane.table.grab()
    assert time.process_time() - before < 2


def test_csv_is_read() -> None:
    assert parse_csv_rows('a;b\n"1;1";2\n') == [["a", "b"], ["1;1", "2"]]
