"""What the reader looks at stays where it is, whatever is learned about the heights of the rest."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import item_column, item_layout
from helix_desktop.gui.transcript.basic_boxes import ToggleSection
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.item_column import (
    DrawnPlaces,
    ItemColumn,
    compute_scroll_and_redraw,
)
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.layout_context import OUTPUT_LINES, LayoutContext
from tests.gui.transcript.facts import Told, call
from tests.gui.transcript.laid_out_items import NoContents

HEIGHT = 400


def column(theme: Theme, lengths: list[int]) -> ItemColumn:
    told = Told()
    for number, length in enumerate(lengths):
        if number % 3 == 0:
            told.user("word " * length)
        else:
            told.reply("word " * length, *([call(number)] if number % 3 == 1 else []))
    items = TranscriptItems()
    items.add_many_facts(told.facts)
    return ItemColumn(LayoutContext(DrawingStyle(theme), 720.0, items, NoContents(), lambda: 0.0))


LENGTHS = st.lists(st.integers(1, 300), min_size=3, max_size=30)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
@given(LENGTHS, st.floats(0, 1))
def test_what_was_laid_out_and_in_sight_does_not_move(
    theme: Theme, lengths: list[int], share: float
) -> None:
    made = column(theme, lengths)
    y = int(share * max(0, made.total_height - HEIGHT))
    y, _ = made.lay_out_visible(y, HEIGHT, time.perf_counter() + 600)
    for _ in range(4):
        up = max(0, y - 150)
        seen = [
            i
            for i in made.visible_items(up, HEIGHT)
            if made.existing_layout(i) is not None and made.heights.total_height_before(i) >= up
        ]
        before = {i: made.heights.total_height_before(i) - up for i in seen}
        y, complete = made.lay_out_visible(up, HEIGHT, time.perf_counter() + 600)
        assert complete
        assert {i: made.heights.total_height_before(i) - y for i in seen} == before


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20, deadline=None
)
@given(LENGTHS)
def test_preparing_the_next_screen_moves_nothing(theme: Theme, lengths: list[int]) -> None:
    made = column(theme, lengths)
    y, _ = made.lay_out_visible(made.total_height // 2, HEIGHT, time.perf_counter() + 600)
    seen = {i: made.heights.total_height_before(i) - y for i in made.visible_items(y, HEIGHT)}
    ready = False
    while not ready:
        y, ready = made.lay_out_nearby(y, HEIGHT, time.perf_counter() + 600)
    assert {i: made.heights.total_height_before(i) - y for i in seen} == seen


def test_what_stands_at_the_place_jumped_to_is_there_at_once(
    theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_layout, "LONGER", 60.0)
    told = Told()
    told.reply(("word " * 100 + "\n\n") * 60)
    items = TranscriptItems()
    items.add_many_facts(told.facts)
    made = ItemColumn(LayoutContext(DrawingStyle(theme), 720.0, items, NoContents(), lambda: 0.0))
    y = made.total_height // 2
    _, complete = made.lay_out_visible(y, HEIGHT, deadline=time.perf_counter())
    answer = made.existing_layout(0)
    assert answer is not None
    assert y < made.content_top(0) + answer.bottom_edge < y + HEIGHT
    assert not complete


def test_only_what_is_seen_is_laid_out(theme: Theme) -> None:
    made = column(theme, [40] * 600)
    made.lay_out_visible(made.total_height // 2, HEIGHT, time.perf_counter() + 600)
    seen = [i for i in range(len(made.heights)) if made.existing_layout(i) is not None]
    assert 0 < len(seen) < 30


def test_a_settle_without_time_says_that_it_is_not_complete(theme: Theme) -> None:
    made = column(theme, [300] * 10)
    _, complete = made.lay_out_visible(0, HEIGHT, time.perf_counter() - 1)
    assert not complete


def test_lines_of_tools_stand_close_together(theme: Theme) -> None:
    told = Told()
    told.user("go")
    told.reply("", call(1), call(2))
    items = TranscriptItems()
    items.add_many_facts(told.facts)
    made = ItemColumn(LayoutContext(DrawingStyle(theme), 720.0, items, NoContents(), lambda: 0.0))
    assert [made.gap_above(i) for i in range(3)] == pytest.approx([18, 18, 6])


# --- What scrolling draws again


def test_what_moved_with_the_rest_is_not_drawn_again() -> None:
    before: DrawnPlaces = {"a": (0, 0.0, 10.0), "b": (20, 5.0, 10.0), "c": (60, 0.0, 30.0)}
    moved: DrawnPlaces = {"a": (-7, 0.0, 10.0), "b": (13, 5.0, 10.0), "c": (53, 0.0, 30.0)}
    assert compute_scroll_and_redraw(before, moved) == (-7, [])
    assert compute_scroll_and_redraw(before, before) == (0, [])
    grown: DrawnPlaces = {**moved, "c": (53, 0.0, 40.0)}
    found = compute_scroll_and_redraw(before, grown)
    assert found is not None
    assert (found[0], sorted(found[1])) == (-7, [(53, 83), (53, 93)])
    new: DrawnPlaces = {**moved, "d": (90, 2.0, 10.0)}
    assert compute_scroll_and_redraw(before, new) == (-7, [(92, 102)])


def test_all_is_drawn_again_where_nothing_is_as_it_was() -> None:
    before: DrawnPlaces = {"a": (0, 0.0, 10.0)}
    assert compute_scroll_and_redraw(before, {"b": (0, 0.0, 10.0)}) is None
    assert compute_scroll_and_redraw({}, before) is None


# --- Heights before anything is laid out


def column_of(theme: Theme, told: Told) -> ItemColumn:
    items = TranscriptItems()
    items.add_many_facts(told.facts)
    return ItemColumn(LayoutContext(DrawingStyle(theme), 700.0, items, NoContents(), lambda: 0.0))


def test_a_height_is_estimated_by_the_kind_and_by_the_text(theme: Theme) -> None:
    told = Told()
    told.user("x" * 99)  # One line of 700 pixels has 100 letters.
    told.user("x" * 100)
    told.user("x" * 10_000)
    told.reply("y" * 10_000, call(1))
    made = column_of(theme, told)
    estimates = [made._estimate_item_height(item) for item in made.page.items.all]
    assert estimates[:5] == [46, 68, 24 + 22 * 41, 24 + 22 * 101, 38]
    gaps = [height + 18 for height in estimates]
    assert [made.heights[index] for index in range(5)] == gaps[:5]
    assert made.total_height == sum(gaps) + 18
    assert made._estimate_heights(3) == gaps[3:]


def test_the_first_item_stands_below_a_margin_and_the_others_below_each_other(
    theme: Theme,
) -> None:
    made = column(theme, [5, 5, 5])
    assert made.content_top(0) == 18
    assert made.content_top(1) == made.heights[0] + 18
    assert made._visible_item_above(0) == -1
    assert made._visible_item_above(1) == 0
    assert made.scroll_value_of_fact(0, 5) is None
    first = made.page.items.all[0].fact_seq
    assert made.scroll_value_of_fact(first, 5) == 5


# --- What is opened


def test_an_output_is_opened_as_far_as_something_was_found_in_it(theme: Theme) -> None:
    told = Told()
    told.reply("", call(1))
    made = column_of(theme, told)
    item = made.page.items.all[0]
    lines = made.page.section_key("lines", item.fact_seq, item.part)
    made.lay_out_fully(0)
    assert not made.is_output_open(0)
    made.open_output_with_hits(0, OUTPUT_LINES - 1)
    assert made.is_output_open(0)
    assert made.page.section_amounts[lines] == 0
    assert made.existing_layout(0) is None, "it is laid out anew"
    made.open_output_with_hits(0, OUTPUT_LINES + 4)
    assert made.page.section_amounts[lines] == 5
    made.open_output_with_hits(0, 3)
    assert made.page.section_amounts[lines] == 5, "what was shown stays"
    made.lay_out_fully(0)
    made.close_output(0)
    assert not made.is_output_open(0)
    assert made.existing_layout(0) is None


def test_a_section_opens_and_closes_or_shows_more(theme: Theme) -> None:
    made = column(theme, [5, 5, 5])
    amounts = made.page.section_amounts
    for index in range(3):
        made.lay_out_fully(index)
    made.toggle_section(ToggleSection(("more", 1)))
    assert amounts[("more", 1)] == 1
    assert made.existing_layout(0) is None
    made.toggle_section(ToggleSection(("more", 1)))
    assert amounts[("more", 1)] == 0
    made.toggle_section(ToggleSection(("lines", 1), extra_lines=20))
    made.toggle_section(ToggleSection(("lines", 1), extra_lines=20))
    assert amounts[("lines", 1)] == 40
    made.toggle_section(ToggleSection(("live",)))
    assert amounts[("live",)] == 0, "live reasoning is open until it is closed"
    for key in (("more",), ("more", "x"), ("more", 9_999)):
        assert not made._is_section_open_by_default(ToggleSection(key))


def test_of_many_layouts_those_unused_for_longest_go(
    theme: Theme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(item_column, "KEPT", 2)
    made = column(theme, [5] * 4)
    for index in (0, 1, 0, 2):
        made.lay_out_fully(index)
    kept = [index for index in range(4) if made.existing_layout(index) is not None]
    assert kept == [0, 2]
    assert made.is_laid_out(0)
    assert not made.is_laid_out(1)
    made.discard_layouts(lambda layout: layout is made.existing_layout(2))
    assert [made.is_laid_out(index) for index in (0, 2)] == [True, False]


def test_the_end_is_laid_out_from_the_last_item_upwards(theme: Theme) -> None:
    made = column(theme, [50] * 40)
    y, is_complete = made.lay_out_end(HEIGHT, time.perf_counter() + 600)
    assert is_complete
    assert y == made.total_height - HEIGHT
    assert made.is_laid_out(len(made.heights) - 1)
    assert not made.is_laid_out(0)
    short = column(theme, [1])
    assert short.lay_out_end(HEIGHT, time.perf_counter() + 600)[0] == 0


def test_the_anchor_is_the_first_item_in_sight_whose_height_is_known(theme: Theme) -> None:
    made = column(theme, [50] * 6)
    assert made._find_anchor_item(0, HEIGHT) == 0
    made.lay_out_fully(2)
    top = made.heights.total_height_before(2)
    assert made._find_anchor_item(top - 50, HEIGHT) == 2
    assert made._find_anchor_item(top + 1, HEIGHT) == 2, "it is the first in sight"
    made.lay_out_fully(1)
    assert made._find_anchor_item(made.heights.total_height_before(1) + 1, HEIGHT) == 1
