"""Reflections: due by the share of observations, over those that stand one behind the other."""

from __future__ import annotations

from helix_desktop.engine import context_policy
from helix_desktop.engine.facts import FoldKind, ModelRole, ModelSet, Span
from helix_desktop.engine.strategies import reflection
from helix_desktop.engine.strategies.fold_strategy import FoldPlan
from tests.engine.strategies.test_markers import situation
from tests.engine.talk import Talk

OBSERVATIONAL = context_policy.preset_policy("observational")


def test_due_when_observations_pass_their_share() -> None:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 10_000))
    talk.user("go", tokens=3_000)
    talk.steps(10, tokens=900)
    talk.user("next", tokens=100)
    talk.fold("one", Span(2, 6), kind=FoldKind.OBSERVATIONS, tokens=3_000)
    assert reflection.find_due_reflection(situation(talk, OBSERVATIONAL)) is None
    talk.fold("two", Span(7, 14), kind=FoldKind.OBSERVATIONS, tokens=3_000)
    plan = reflection.find_due_reflection(situation(talk, OBSERVATIONAL))
    assert plan is not None
    assert plan.span == Span(2, 14)
    assert plan.kind is FoldKind.REFLECTION
    assert (
        reflection.find_due_reflection(situation(talk, context_policy.preset_policy("layered")))
        is None
    )


def test_nothing_to_reflect_on() -> None:
    talk = Talk()
    assert reflection.span_of_observations(situation(talk)) is None
    talk.user("go")
    assert reflection.span_of_observations(situation(talk)) is None
    assert "2 to 14" in reflection.reflection_question(
        FoldPlan(FoldKind.REFLECTION, Span(2, 14), ""), 3_000, 0
    )
