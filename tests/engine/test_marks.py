"""Where a request asks to be remembered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import marks
from helix_desktop.engine.marks import Sent


def sent(*requests: str) -> Sent:
    """The last of some requests, a letter for each block."""
    last = Sent()
    for request in requests:
        last = last.then(request)
    return last


def test_a_request_that_goes_on_is_marked_where_the_one_before_it_ended() -> None:
    assert sent("abc").places == (2,)
    assert sent("abc", "abcdef").places == (2, 5)
    assert sent("").places == ()


def test_after_a_fold_the_last_place_that_is_known_is_marked_and_what_the_fold_changed() -> None:
    folded = sent("abc", "abcde", "abcdefgh", "abcXeYghij")
    assert (folded.stable, folded.settled) == (3, 6)
    assert folded.places == (2, 5, 9)


def test_the_place_behind_the_last_change_stays_marked_until_the_next() -> None:
    later = sent("abcdefgh", "abXYefgh", "abXYefghij", "abXYefghijkl")
    assert later.places == (3, 9, 11)
    again = later.then("abXYefZZijklmn")
    assert (again.stable, again.settled) == (4, 8)


def test_where_marks_are_few_the_end_comes_first_and_then_what_the_provider_would_not_see() -> None:
    later = sent("abcdefgh", "abXYefgh", "abXYefghij")
    assert (later.stable, later.settled, later.base) == (8, 4, 1)
    marks = [later.at_most(count, near=True).marks for count in range(-1, 5)]
    assert marks == [(), (), (10,), (4, 10), (1, 4, 10), (1, 4, 8, 10)]
    assert later.at_most(2, near=False).marks == (8, 10)
    again = later.at_most(2, near=True).then("abXYefZZijkl")
    assert (again.stable, again.settled, again.base) == (4, 8, 4)
    assert sent("abc").at_most(2, near=False).marks == (1, 3)


def test_where_the_last_block_is_another_one_what_was_settled_stays_so() -> None:
    settled = sent("abcdef", "abXdef", "abXdefg")
    assert settled.settled == 3
    assert settled.then("abXdefQ").settled == 3
    assert settled.then("aQ").settled == 1


def test_the_common_beginning_ends_at_the_first_change() -> None:
    assert marks.common("abcd", "abxd") == 2
    assert marks.common("abcd", "abcdef") == 4
    assert marks.common("", "ab") == 0


@given(st.lists(st.text("abc", max_size=12), max_size=12))
def test_marks_are_few_and_stand_where_an_earlier_request_was_marked_or_something_is_new(requests: list[str]) -> None:
    marked, last = set[str](), Sent()
    for request in requests:
        last = last.then(request)
        assert len(last.places) < 4
        assert not request or last.places[-1] == len(request) - 1
        assert not last.stable or request[: last.stable] in marked
        marked |= {request[: place + 1] for place in last.places}
        assert last.settled <= len(request)
        assert all(0 < place <= len(request) for place in last.at_most(4, near=True).marks)
