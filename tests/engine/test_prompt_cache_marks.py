"""Where a request asks to be remembered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import prompt_cache_marks
from helix_desktop.engine.prompt_cache_marks import MarkedRequest


def sent(*requests: str) -> MarkedRequest:
    """The last of some requests, a letter for each block."""
    last = MarkedRequest()
    for request in requests:
        last = last.mark_next_request(request)
    return last


def test_a_request_that_goes_on_is_marked_where_the_one_before_it_ended() -> None:
    assert sent("abc").numbers_of_marked_blocks == (2,)
    assert sent("abc", "abcdef").numbers_of_marked_blocks == (2, 5)
    assert sent("").numbers_of_marked_blocks == ()


def test_after_a_fold_the_last_place_that_is_known_is_marked_and_what_the_fold_changed() -> None:
    folded = sent("abc", "abcde", "abcdefgh", "abcXeYghij")
    assert (folded.stable, folded.settled) == (3, 6)
    assert folded.numbers_of_marked_blocks == (2, 5, 9)


def test_the_place_behind_the_last_change_stays_marked_until_the_next() -> None:
    later = sent("abcdefgh", "abXYefgh", "abXYefghij", "abXYefghijkl")
    assert later.numbers_of_marked_blocks == (3, 9, 11)
    again = later.mark_next_request("abXYefZZijklmn")
    assert (again.stable, again.settled) == (4, 8)


def test_where_marks_are_few_the_end_comes_first_and_then_what_the_provider_would_not_see() -> None:
    later = sent("abcdefgh", "abXYefgh", "abXYefghij")
    assert (later.stable, later.settled, later.base) == (8, 4, 1)
    marks = [later.limit_marks(count, near=True).marks for count in range(-1, 5)]
    assert marks == [(), (), (10,), (4, 10), (1, 4, 10), (1, 4, 8, 10)]
    assert later.limit_marks(2, near=False).marks == (8, 10)
    again = later.limit_marks(2, near=True).mark_next_request("abXYefZZijkl")
    assert (again.stable, again.settled, again.base) == (4, 8, 4)
    assert sent("abc").limit_marks(2, near=False).marks == (1, 3)


def test_where_the_last_block_is_another_one_what_was_settled_stays_so() -> None:
    settled = sent("abcdef", "abXdef", "abXdefg")
    assert settled.settled == 3
    assert settled.mark_next_request("abXdefQ").settled == 3
    assert settled.mark_next_request("aQ").settled == 1


def test_the_common_beginning_ends_at_the_first_change() -> None:
    assert prompt_cache_marks.count_equal_first_blocks("abcd", "abxd") == 2
    assert prompt_cache_marks.count_equal_first_blocks("abcd", "abcdef") == 4
    assert prompt_cache_marks.count_equal_first_blocks("", "ab") == 0


@given(st.lists(st.text("abc", max_size=12), max_size=12))
def test_marks_are_few_and_stand_where_an_earlier_request_was_marked_or_something_is_new(
    requests: list[str],
) -> None:
    marked = set[str]()
    last = MarkedRequest()
    for request in requests:
        last = last.mark_next_request(request)
        assert len(last.numbers_of_marked_blocks) < 4
        assert not request or last.numbers_of_marked_blocks[-1] == len(request) - 1
        assert not last.stable or request[: last.stable] in marked
        marked |= {request[: place + 1] for place in last.numbers_of_marked_blocks}
        assert last.settled <= len(request)
        assert all(0 < place <= len(request) for place in last.limit_marks(4, near=True).marks)
