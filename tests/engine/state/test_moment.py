"""Every moment of every history is what replaying the facts up to it comes to."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.facts import (
    Excluded,
    Folded,
    FoldKind,
    PartRef,
    Pinned,
    Refolded,
    Rewound,
    Span,
    TurnEnd,
    TurnEnded,
    Unfolded,
)
from helix_desktop.engine.view import build_state
from tests.engine.talk import Talk
from tests.engine.test_properties import SCRIPTS, played, without_folds


@settings(max_examples=150)
@given(SCRIPTS, st.data())
def test_a_moment_is_the_state_the_facts_come_to(
    acts: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    talk = played(acts)
    seq = data.draw(st.integers(0, talk.state.seq))
    then = talk.state.past_moment(seq)
    replayed = build_state(talk.facts[:seq])
    assert then.get_view() == replayed.get_view()
    assert then.get_view().seq == seq
    assert then.branch.tokens == +replayed.branch.tokens
    assert then.counted_tokens == replayed.counted_tokens == talk.state.record.ledger.shown[seq]
    assert then.live_folds == replayed.live_folds
    assert then.branch.pins == replayed.branch.pins
    assert then.branch.exclusions == replayed.branch.exclusions
    assert then.branch.barred == replayed.branch.barred
    assert then.settings.comparable_settings == replayed.settings.comparable_settings
    assert then.facts_on_path() == replayed.facts_on_path()
    assert then.billed_per_counted_token() == replayed.billed_per_counted_token()


@settings(max_examples=100)
@given(SCRIPTS)
def test_the_count_without_folds_is_that_of_the_same_facts_without_them(
    acts: list[tuple[str, int, int]],
) -> None:
    talk = played(acts)
    branch = talk.state.branch
    assert branch.unfolded == without_folds(talk.facts).branch.total_tokens
    assert branch.live or branch.unfolded == branch.total_tokens


@settings(max_examples=100)
@given(SCRIPTS, st.integers(0, 100))
def test_counting_an_undo_is_what_the_undo_comes_to_and_changes_nothing(
    acts: list[tuple[str, int, int]], number: int
) -> None:
    talk = played(acts)
    live = list(talk.state.branch.live)
    if not live:
        return
    name = live[number % len(live)]
    before = talk.view()
    counted = talk.state.branch.view_tokens_without_fold(name)
    assert talk.view() == before
    assert list(talk.state.branch.live) == live
    talk.add(Unfolded(name))
    assert talk.state.branch.total_tokens == counted


def test_a_rewind_away_and_back_finds_everything_as_it_was() -> None:
    talk = Talk()
    talk.user("go")
    output = talk.step("a")
    talk.add(Folded("m", FoldKind.MARKER, PartRef(output), "short", 5, 500))
    talk.add(Pinned(PartRef(1)))
    there = talk.state.seq
    before = talk.view()
    talk.add(Rewound(1))
    assert talk.state.live_folds == ()
    assert not talk.state.branch.pins
    talk.user("another way")
    talk.add(Rewound(there))
    assert talk.view() == before
    assert list(talk.state.branch.live) == ["m"]
    assert talk.state.record.runs_leading_to(talk.state.seq) == [
        (1, there),
        (talk.state.seq, talk.state.seq),
    ]


def test_a_fold_that_is_undone_counts_as_it_is() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(3)
    talk.add(TurnEnded(TurnEnd.DONE))
    talk.fold("h", Span(1, 4), tokens=50)
    inside = talk.state.branch
    assert inside.is_inside_live_fold(Span(2, 3))
    assert not inside.is_inside_live_fold(Span(3, 6))
    talk.add(Unfolded("h"))
    assert not inside.is_inside_live_fold(Span(2, 3))
    assert inside.view_tokens_without_fold("h") == inside.total_tokens


def test_of_nested_spans_the_outermost_shows_and_of_equal_ones_the_younger() -> None:
    """Undoing a handover shows what stood there before it, in the order of the facts."""
    talk = Talk()
    talk.user("go")
    talk.steps(6)
    talk.add(TurnEnded(TurnEnd.DONE))
    talk.fold("late", Span(6, 7), tokens=50)
    talk.fold("early", Span(2, 3), tokens=50)
    talk.fold("whole", Span(1, 9), tokens=40)
    talk.fold("again", Span(1, 9), tokens=30)
    assert shown_folds(talk) == ["again"]
    talk.add(Unfolded("again"))
    assert shown_folds(talk) == ["whole"]
    talk.add(Unfolded("whole"))
    assert shown_folds(talk) == ["early", "late"]
    talk.add(Refolded("whole"))
    talk.add(Refolded("again"))
    assert shown_folds(talk) == ["again"]
    assert [fold.fold for fold in talk.state.live_folds] == ["late", "early", "whole", "again"]


def test_the_step_before_a_fact_is_the_last_reply_before_it() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(2)
    assert [talk.state.branch.last_reply_before(seq) for seq in (1, 2, 3, 4, 5, 9)] == [
        None,
        None,
        2,
        2,
        4,
        4,
    ]


def test_what_pins_count_is_their_originals() -> None:
    talk = Talk()
    talk.user("go", tokens=10)
    talk.step("a", tokens=500)
    talk.add(Pinned(PartRef(3)))
    branch = talk.state.branch
    assert branch.count_pinned_tokens() == 500
    assert branch.count_pinned_tokens(Span(1, 1)) == 510
    talk.add(Excluded(PartRef(3)))
    assert branch.count_pinned_tokens() == 0
    assert branch.tool_output_at(3).tokens == 500
    with pytest.raises(TypeError):
        branch.tool_output_at(1)


def test_messages_are_counted_within_the_span_and_up_to_enough() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(4)
    branch = talk.state.branch
    assert branch.count_messages(Span(4, 7), 99) == 4
    assert branch.count_messages(Span(4, 7), 2) == 2
    talk.add(TurnEnded(TurnEnd.DONE))
    talk.fold("h", Span(4, 5), tokens=5)
    assert branch.count_messages(Span(4, 7), 99) == 2


def shown_folds(talk: Talk) -> list[str]:
    return [item.fold for item in talk.state.branch.items if item.fold]
