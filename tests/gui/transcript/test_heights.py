"""The tree of heights agrees with a plain list, whatever is done to both."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gui.transcript.heights import Heights

SIZES = st.lists(st.integers(0, 900), min_size=1, max_size=60)
CHANGES = st.lists(st.tuples(st.sampled_from("sac"), st.integers(0, 80), st.integers(0, 900)), max_size=40)


@given(SIZES, CHANGES)
def test_tops_are_sums(sizes: list[int], changes: list[tuple[str, int, int]]) -> None:
    heights = Heights(sizes)
    plain = list(sizes)
    for what, where, height in changes:
        if what == "a":
            heights.append(height)
            plain.append(height)
        elif what == "s" and plain:
            heights.set(where % len(plain), height)
            plain[where % len(plain)] = height
        elif what == "c":
            heights.cut(min(where, len(plain)))
            del plain[where:]
    assert len(heights) == len(plain)
    assert [heights.top(i) for i in range(len(plain) + 1)] == [sum(plain[:i]) for i in range(len(plain) + 1)]


@given(SIZES, st.integers(-20, 70_000))
def test_at_finds_the_item_that_covers_the_place(sizes: list[int], y: int) -> None:
    heights = Heights(sizes)
    index = heights.at(y)
    assert 0 <= index < len(sizes)
    if 0 <= y < heights.total:
        assert heights.top(index) <= y < heights.top(index) + sizes[index]


def test_hidden_items_are_never_found() -> None:
    heights = Heights([10, 0, 0, 10, 0])
    assert [heights.at(y) for y in (0, 9, 10, 19, 25)] == [0, 0, 3, 3, 3]


def test_nothing_is_at_any_place_of_nothing() -> None:
    assert Heights().at(5) == -1
    assert Heights().total == 0
