"""Every moment of every history is what replaying the facts up to it comes to."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.facts import Folded, FoldKind, PartRef, Pinned, Rewound, Unfolded
from helix_desktop.engine.view import state_of
from tests.engine.talk import Talk
from tests.engine.test_properties import SCRIPTS, played, without_folds


@settings(max_examples=150)
@given(SCRIPTS, st.data())
def test_a_moment_is_the_state_the_facts_come_to(acts: list[tuple[str, int, int]], data: st.DataObject) -> None:
    talk = played(acts)
    seq = data.draw(st.integers(0, talk.state.last_seq))
    then, replayed = talk.state.at(seq), state_of(talk.facts[:seq])
    assert then.view() == replayed.view()
    assert then.view().seq == seq
    assert then.branch.tokens == +replayed.branch.tokens
    assert then.tokens == replayed.tokens == talk.state.record.ledger.shown[seq]
    assert then.live_folds == replayed.live_folds
    assert then.branch.pins == replayed.branch.pins
    assert then.branch.exclusions == replayed.branch.exclusions
    assert then.branch.barred == replayed.branch.barred
    assert then.settings.values == replayed.settings.values
    assert then.present() == replayed.present()
    assert then.factor() == replayed.factor()


@settings(max_examples=100)
@given(SCRIPTS)
def test_the_count_without_folds_is_that_of_the_same_facts_without_them(acts: list[tuple[str, int, int]]) -> None:
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
    name, before = live[number % len(live)], talk.view()
    counted = talk.state.branch.tokens_without(name)
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
    there = talk.state.last_seq
    before = talk.view()
    talk.add(Rewound(1))
    assert talk.state.live_folds == ()
    assert not talk.state.branch.pins
    talk.user("another way")
    talk.add(Rewound(there))
    assert talk.view() == before
    assert list(talk.state.branch.live) == ["m"]
    assert talk.state.record.path(talk.state.seq) == [(1, there), (talk.state.seq, talk.state.seq)]
