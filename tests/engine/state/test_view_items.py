"""What stands in the view, item by item, with its sums."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import PartRef, Pinned, Span, Unfolded
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.state.view_items import (
    MARKER_TOKENS,
    MESSAGE_TOKENS,
    count_clearable_tokens,
    is_worth_a_marker,
)
from tests.engine.talk import Talk


def talked() -> Talk:
    talk = Talk()
    talk.user("go", tokens=100)
    talk.steps(4, tokens=990)
    talk.user("next", tokens=100)
    return talk


def test_what_stands_where_before_and_after_a_fold() -> None:
    talk = talked()
    branch = talk.state.branch
    assert [item.first for item in branch.items_in_span(Span(2, 5))] == [2, 3, 4, 5]
    assert [item.first for item in branch.items_from_fact(8)] == [8, 9, 10]
    assert branch.message_position(5) == 4
    talk.fold("h", Span(2, 5))
    assert [(item.first, item.last) for item in branch.items_in_span(Span(3, 6))] == [
        (2, 5),
        (6, 6),
    ]
    assert branch.item_at(4).fold == "h"
    assert branch.messages_of_item(branch.item_at(4)) == [2, 3, 4, 5]
    assert branch.covered_messages(Span(1, 3)) == [1, 2, 3]


def test_tokens_with_what_each_message_costs_besides() -> None:
    talk = talked()
    branch = talk.state.branch
    assert branch.total_tokens == 100 + 4 * 1_000 + 100 + 10 * MESSAGE_TOKENS
    assert branch.shown_tokens(Span(2, 3)) == 1_000
    assert branch.shown_tokens(PartRef(3)) == 990
    talk.fold("h", Span(2, 5), tokens=50)
    assert branch.total_tokens == 100 + 50 + 2 * 1_000 + 100 + 7 * MESSAGE_TOKENS
    assert branch.shown_tokens(Span(2, 5)) == 50


def test_counting_messages_stops_when_there_are_enough() -> None:
    talk = talked()
    assert talk.state.branch.count_messages(Span(1, 10), 3) == 3
    assert talk.state.branch.count_messages(Span(1, 10), 99) == 10
    talk.fold("h", Span(2, 5))
    assert talk.state.branch.count_messages(Span(1, 10), 99) == 6


def test_the_sums_by_message() -> None:
    talk = talked()
    branch = talk.state.branch
    assert branch.token_sums.sum_between(1, 5) == 2_000
    assert branch.freed_sums.sum_before(10) == 4 * (990 - MARKER_TOKENS)
    talk.add(Pinned(PartRef(3)))
    assert branch.freed_sums.sum_before(10) == 3 * (990 - MARKER_TOKENS)


@pytest.mark.parametrize("last", range(2, 11))
@pytest.mark.parametrize("first", [1, 2, 4])
def test_the_sums_are_those_of_what_is_left_however_much_of_it_a_fold_covers(
    first: int, last: int
) -> None:
    """Of a fold of most messages the rest is counted anew; all others are taken out one by one."""
    talk = talked()
    branch = talk.state.branch
    talk.fold("h", Span(first, max(first, last)), tokens=50)
    check_sums(branch)
    talk.add(Unfolded("h"))
    check_sums(branch)
    assert [item.first for item in branch.items] == list(range(1, 11))


def check_sums(branch: ConversationBranch) -> None:
    """The sums that a branch keeps are those of its items, counted one by one."""
    total_tokens = 0
    shown_messages = 0
    plain_tokens = 0
    token_births = 0
    clearable_tokens = 0
    plain_outputs: list[int] = []
    for item in branch.items:
        total_tokens += item.tokens
        shown_messages += bool(item.blocks)
        if item.fold:
            continue
        plain_tokens += item.tokens
        token_births += item.tokens * item.born
        clearable_tokens += count_clearable_tokens(item.blocks)
        if any(map(is_worth_a_marker, item.blocks)):
            plain_outputs.append(item.first)
    assert branch.tokens.total() == total_tokens
    assert branch.token_sums.sum_before(10) == total_tokens
    assert branch.shown_messages == shown_messages
    assert branch.plain_tokens == plain_tokens
    assert branch.token_births == token_births
    assert branch.freed_sums.sum_before(10) == clearable_tokens
    assert branch.plain_outputs == plain_outputs


def test_from_which_item_on_something_changed() -> None:
    talk = talked()
    branch = talk.state.branch
    branch.pop_first_changed_index()
    assert branch.pop_first_changed_index() == 10
    talk.user("more")
    assert branch.pop_first_changed_index() == 10
    talk.fold("h", Span(2, 5))
    assert branch.pop_first_changed_index() == 1
