"""Where a request asks to be remembered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import marks


def test_a_change_in_the_middle_is_marked_before_it() -> None:
    assert marks.places(50, 30) == (0, 29, 49)
    assert marks.places(90, 30) == (0, 29, 59, 89)
    assert marks.places(50, 48) == (0, 47, 49)


def test_nothing_known_is_marked_at_its_ends() -> None:
    assert marks.places(1, 0) == (0,)
    assert marks.places(3, 0) == (0, 2)
    assert marks.places(0, 0) == ()


def test_the_common_beginning_ends_at_the_first_change() -> None:
    assert marks.common("abcd", "abxd") == 2
    assert marks.common("abcd", "abcdef") == 4
    assert marks.common("", "ab") == 0


@given(st.integers(0, 500), st.integers(0, 500))
def test_never_more_than_four_and_always_the_end(count: int, same: int) -> None:
    places = marks.places(count, min(same, count))
    assert len(places) <= marks.MOST
    assert list(places) == sorted(set(places))
    assert all(0 <= place < count for place in places)
    assert not count or places[-1] == count - 1
