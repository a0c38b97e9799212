"""Rows of the table of entries: which is open, and which are selected."""

from __future__ import annotations

from collections.abc import Callable

from helix_desktop.gui.cache.cache_page import CachePage


def test_a_row_is_selected_alone_and_opened_also_where_it_is_open_already(
    page: CachePage, settle: Callable[[], None]
) -> None:
    opened: list[int] = []
    page.table.current_row_changed.connect(opened.append)
    page.table.select_row_and_open_entry(3)
    settle()
    assert (page.table.current_row, list(page.table.selected_rows())) == (3, [3])
    page.table.select_row_and_open_entry(3)
    settle()
    assert (page.table.current_row, list(page.table.selected_rows())) == (3, [3])
    assert opened.count(3) == 2
