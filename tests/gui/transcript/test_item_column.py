"""What the reader looks at stays where it is, whatever is learned about the heights of the rest."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import item_layout
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.item_column import ItemColumn
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.layout_context import LayoutContext
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
