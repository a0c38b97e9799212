"""What a strategy may cover: from the first that is not barred to the last legal cut
before the tail.
"""

from __future__ import annotations

from helix_desktop.engine.facts import (
    ModelRole,
    ModelSet,
    PartRef,
    Span,
    TurnEnd,
    TurnEnded,
    Unfolded,
)
from helix_desktop.engine.strategies.fold_strategy import (
    find_foldable_span,
    find_legal_cut,
    first_seq_kept_in_panic,
    first_seq_of_tail,
    was_restored_by_user,
)
from tests.engine.strategies.test_markers import situation
from tests.engine.talk import Talk


def test_between_turns_the_tail_is_the_last_turn_whole() -> None:
    talk = Talk()
    first = talk.user("one")
    talk.steps(3)
    talk.reply("done")
    talk.add(TurnEnded(TurnEnd.DONE))
    second = talk.user("two")
    talk.steps(20)
    last = talk.reply("done")
    talk.add(TurnEnded(TurnEnd.DONE))
    assert first_seq_of_tail(situation(talk)) == second
    assert find_foldable_span(situation(talk)) == Span(
        first, talk.state.branch.order[talk.state.branch.order.index(second) - 1]
    )
    assert last > second


def test_inside_a_turn_the_tail_is_the_last_steps() -> None:
    talk = Talk()
    talk.user("one")
    talk.steps(7)
    assert find_foldable_span(situation(talk)) is None
    talk.steps(5)
    branch = talk.state.branch
    assert first_seq_of_tail(situation(talk)) == branch.steps[-8]
    assert find_foldable_span(situation(talk)) == Span(1, branch.steps[-8] - 1)


def test_a_turn_that_begins_protects_no_more_than_was_protected_between_turns() -> None:
    talk = Talk()
    for _ in range(6):
        begun = talk.user("go")
        talk.steps(2)
        talk.add(TurnEnded(TurnEnd.DONE))
    between = first_seq_of_tail(situation(talk))
    assert between == begun
    talk.user("go on")
    assert first_seq_of_tail(situation(talk)) == between
    talk.steps(7)
    assert first_seq_of_tail(situation(talk)) >= between


def test_an_open_call_is_never_cut() -> None:
    talk = Talk()
    talk.user("one")
    talk.steps(9)
    talk.reply("", "open", "other")
    talk.output("other")
    branch = talk.state.branch
    assert find_legal_cut(branch, branch.order[-1]) == branch.steps[-1]


def test_what_was_brought_back_is_not_covered_again_but_in_panic() -> None:
    talk = Talk()
    talk.user("one", tokens=100)
    talk.steps(20)
    talk.fold("h", Span(1, 9))
    talk.add(Unfolded("h"))
    span = find_foldable_span(situation(talk))
    assert span is not None
    assert span.first == 10
    assert was_restored_by_user(situation(talk), PartRef(5))
    assert not was_restored_by_user(situation(talk), PartRef(12))
    panic = find_foldable_span(situation(talk), talk.state.branch.steps[-2])
    assert panic is not None
    assert panic.first == 1


def test_what_an_outer_fold_still_covers_is_not_barred_for_a_later_one() -> None:
    talk = Talk()
    talk.user("one", tokens=100)
    talk.steps(20)
    talk.fold("inner", Span(1, 9))
    talk.fold("outer", Span(1, 15))
    talk.add(Unfolded("inner"))
    span = find_foldable_span(situation(talk))
    assert span is not None
    assert span.first == 1


def test_in_panic_the_tail_is_a_quarter_of_the_window_in_whole_steps() -> None:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 16_000))
    talk.user("one")
    talk.steps(20, tokens=1_500)
    branch = talk.state.branch
    assert first_seq_kept_in_panic(situation(talk)) == branch.steps[-2]
    talk.step("huge", tokens=50_000)
    assert first_seq_kept_in_panic(situation(talk)) == branch.steps[-1]


def test_an_empty_conversation_has_nothing_to_fold() -> None:
    talk = Talk()
    assert first_seq_of_tail(situation(talk)) == 1
    assert find_foldable_span(situation(talk)) is None
