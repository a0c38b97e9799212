"""What a strategy of an extension may choose from, and which of its choices become a plan."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import (
    Excluded,
    Folded,
    FoldKind,
    PartRef,
    Span,
    TurnEnd,
    TurnEnded,
)
from helix_desktop.engine.strategies.added_strategies import (
    OFFERED_KIND,
    ChosenFold,
    find_foldable_context,
    no_added_strategies,
    plan_chosen_fold,
)
from helix_desktop.engine.strategies.fold_strategy import find_foldable_span
from tests.engine.strategies.test_markers import situation
from tests.engine.talk import Talk


def two_turns(steps: int = 2) -> Talk:
    """A turn that is done, with so many calls, and one that has just begun and ended."""
    talk = Talk()
    talk.user("one")
    talk.steps(steps)
    talk.reply("done")
    talk.add(TurnEnded(TurnEnd.DONE))
    talk.user("two")
    talk.reply("done")
    talk.add(TurnEnded(TurnEnd.DONE))
    return talk


def test_nothing_may_be_chosen_from_a_conversation_without_anything_to_fold() -> None:
    assert find_foldable_context(situation(Talk())) is None
    talk = Talk()
    talk.user("one")
    assert find_foldable_context(situation(talk)) is None
    assert plan_chosen_fold(situation(talk), ChosenFold(1, "why")) is None
    assert no_added_strategies() == ()


def test_each_message_says_its_role_its_tools_and_whether_it_may_be_the_last() -> None:
    now = situation(two_turns())
    context = find_foldable_context(now)
    assert context is not None
    assert [message.role for message in context.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    calls = [message.tools for message in context.messages]
    assert [len(names) for names in calls] == [0, 1, 0, 1, 0, 0]
    assert [message.may_be_last for message in context.messages] == [
        True,
        False,  # A call and its result stay together.
        True,
        False,
        True,
        True,
    ]
    span = find_foldable_span(now)
    assert span is not None
    assert context.messages[0].number == span.first
    assert context.messages[-1].number == span.last
    assert all(message.tokens > 0 for message in context.messages)
    assert (context.used, context.window) == (now.meter.used, now.meter.window)


def test_what_stands_for_messages_is_a_summary() -> None:
    talk = two_turns()
    span = find_foldable_span(situation(talk))
    assert span is not None
    talk.add(Folded("h1", FoldKind.HANDOVER, span, "what was said", 10, 500, number=1))
    talk.user("three")
    talk.reply("done")
    talk.add(TurnEnded(TurnEnd.DONE))
    context = find_foldable_context(situation(talk))
    assert context is not None
    assert context.messages[0].role == "summary"
    assert context.messages[0].number == span.last


def test_what_the_user_has_excluded_is_not_offered() -> None:
    talk = two_turns()
    first = talk.state.branch.order[0]
    before = find_foldable_context(situation(talk))
    talk.add(Excluded(PartRef(first)))
    after = find_foldable_context(situation(talk))
    assert before is not None
    assert after is not None
    assert [one.number for one in after.messages] == [one.number for one in before.messages][1:]


def test_all_up_to_what_was_chosen_becomes_the_plan_with_its_reason() -> None:
    now = situation(two_turns())
    context = find_foldable_context(now)
    assert context is not None
    for message in context.messages:
        plan = plan_chosen_fold(now, ChosenFold(message.number, "it is old"))
        if not message.may_be_last:
            assert plan is None
            continue
        assert plan is not None
        assert plan.kind is OFFERED_KIND
        assert plan.span == Span(context.messages[0].number, message.number)
        assert plan.why == "it is old"


@pytest.mark.parametrize("beyond", [1, 2, 99])
def test_what_is_not_offered_becomes_no_plan(beyond: int) -> None:
    now = situation(two_turns())
    context = find_foldable_context(now)
    assert context is not None
    chosen = ChosenFold(context.messages[-1].number + beyond, "too much")
    assert plan_chosen_fold(now, chosen) is None
    assert plan_chosen_fold(now, ChosenFold(0, "nothing")) is None
