"""Rows come when they are looked at, and only the pages that are looked at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort
from helix_desktop.engine.ports import NOT_RUN, VERSION, EntryOrigin
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache.entries_model import (
    ROWS_PER_PAGE,
    EntriesModel,
)
from helix_desktop.gui.cache.entry_columns import ENTRY_COLUMNS
from helix_desktop.gui.theme import Theme
from tests.gui.cache.catalogue import NOW, MemoryCatalogue
from tests.gui.fake_desk import now

Settle = Callable[[], None]


def model_of(catalogue: MemoryCatalogue, settle: Settle) -> EntriesModel:
    made = EntriesModel(BackgroundRunner(now))
    made._load_timer.setInterval(0)
    made.show_entries_of(catalogue, EntryFilter())
    settle()
    return made


def test_only_pages_that_are_looked_at_are_read(
    theme: Theme, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    model = model_of(catalogue, settle)
    assert model.rowCount() == len(catalogue.lines)
    assert catalogue.asked == [0]
    assert model.get_or_load_row(ROWS_PER_PAGE * 2 + 5) is None
    settle()
    row = model.get_or_load_row(ROWS_PER_PAGE * 2 + 5)
    assert row is not None
    assert catalogue.asked == [0, ROWS_PER_PAGE * 2]
    assert row.time == NOW + len(catalogue.lines) - 1 - (ROWS_PER_PAGE * 2 + 5)


def test_while_dragging_pages_that_went_by_are_not_read(theme: Theme, settle: Settle) -> None:
    catalogue = MemoryCatalogue()
    catalogue.lines = [catalogue.put(b"x")] * 100_000
    model = model_of(catalogue, settle)
    for row in range(0, 100_000, 5_000):
        model.get_or_load_row(row)
    settle()
    assert len(catalogue.asked) <= 4


def test_another_order_and_another_filter(
    theme: Theme, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    model = model_of(catalogue, settle)
    model.set_sort_order(EntrySort.SIZE, descending=True)
    settle()
    sizes = [row.stored.size for i in range(20) if (row := model.get_or_load_row(i)) is not None]
    assert sizes == sorted(sizes, reverse=True)
    model.set_entry_filter(EntryFilter(tool="run_command"))
    settle()
    assert model.rowCount() == 1


def test_new_entries_come_in_above(
    theme: Theme, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    model = model_of(catalogue, settle)
    grown: list[int] = []
    model.rows_added_above.connect(grown.append)
    new = catalogue.put(b"the newest")
    model.recount_and_reload()
    settle()
    assert grown == [1]
    row = model.get_or_load_row(0)
    assert row is not None
    assert row.stored == new.stored


def test_a_late_answer_to_an_earlier_question_is_dropped(
    theme: Theme, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    model = model_of(catalogue, settle)
    earlier = model._load_generation
    model.set_entry_filter(EntryFilter(tool="run_command"))
    model._store_loaded_page(0, earlier, catalogue.lines[:5])
    settle()
    row = model.get_or_load_row(0)
    assert row is not None
    assert row.about.tool == "run_command"


def test_cells() -> None:
    line = MemoryCatalogue().put(
        b"x" * 19_354, "read_file", "a\u202eb", tokens=4_812, time=NOW - 120
    )
    shown = [column.text(line, NOW) for column in ENTRY_COLUMNS]
    assert shown[:7] == ["a⟨202E⟩b", "Read", "19.4 KB", "4.8K", "1", "2 min ago", "–"]
    assert shown[7] == f"{line.stored.digest.hex[:8]}…{line.stored.digest.hex[-4:]}"
    assert shown[8] == "–"
    of_lines = replace(line, stored=replace(line.stored, lines=1_234))
    assert ENTRY_COLUMNS[8].text(of_lines, NOW) == "1,234"


def test_an_entry_about_calls_that_were_not_run_says_what_it_is(
    catalogue: MemoryCatalogue,
) -> None:
    """The note stood in the column of the origin, and the call in that of the tool."""
    row = replace(catalogue.lines[0], about=NOT_RUN)
    (source, tool, *_) = [column.text(row, NOW) for column in ENTRY_COLUMNS]
    assert (source, tool) == ("Call that was not run", "Note to the model")


def test_what_a_file_was_before_a_change_is_not_called_a_change(catalogue: MemoryCatalogue) -> None:
    row = replace(catalogue.lines[0], about=EntryOrigin(VERSION, "src/fees.py"))
    (source, tool, *_) = [column.text(row, NOW) for column in ENTRY_COLUMNS]
    assert (source, tool) == ("src/fees.py", "Version of a file")
