"""The tree of heights agrees with a plain list, whatever is done to both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gui.transcript.item_heights import ItemHeights

SIZES = st.lists(st.integers(0, 900), min_size=1, max_size=60)
CHANGES = st.lists(
    st.tuples(st.sampled_from("sac"), st.integers(0, 80), st.integers(0, 900)), max_size=40
)


@given(SIZES, CHANGES)
def test_tops_are_sums(sizes: list[int], changes: list[tuple[str, int, int]]) -> None:
    heights = ItemHeights(sizes)
    plain = list(sizes)
    for what, where, height in changes:
        if what == "a":
            heights.append_item_height(height)
            plain.append(height)
        elif what == "s" and plain:
            heights.set_item_height(where % len(plain), height)
            plain[where % len(plain)] = height
        elif what == "c":
            heights.truncate_items(min(where, len(plain)))
            del plain[where:]
    assert len(heights) == len(plain)
    assert [heights.total_height_before(i) for i in range(len(plain) + 1)] == [
        sum(plain[:i]) for i in range(len(plain) + 1)
    ]


@given(SIZES, st.integers(-20, 70_000))
def test_at_finds_the_item_that_covers_the_place(sizes: list[int], y: int) -> None:
    heights = ItemHeights(sizes)
    index = heights.item_covering(y)
    assert 0 <= index < len(sizes)
    if 0 <= y < heights.sum_of_heights:
        assert (
            heights.total_height_before(index)
            <= y
            < heights.total_height_before(index) + sizes[index]
        )


@given(SIZES, st.integers(0, 70_000), st.integers(0, 2_000))
def test_visible_items_are_those_between_two_places(sizes: list[int], y: int, height: int) -> None:
    heights = ItemHeights(sizes)
    first = heights.item_covering(y)
    expected = [
        index
        for index in range(first, len(sizes))
        if sizes[index] and heights.total_height_before(index) < y + height
    ]
    assert list(heights.visible_items(y, y + height)) == expected


def test_hidden_items_are_never_found() -> None:
    heights = ItemHeights([10, 0, 0, 10, 0])
    assert [heights.item_covering(y) for y in (0, 9, 10, 19, 25)] == [0, 0, 3, 3, 3]


def test_nothing_is_at_any_place_of_nothing() -> None:
    assert ItemHeights().item_covering(5) == -1
    assert list(ItemHeights().visible_items(0, 100)) == []
    assert ItemHeights().sum_of_heights == 0
