"""Observations: due by the share of raw history, over what no document covers yet."""

from __future__ import annotations

from helix_desktop.engine import context_policy
from helix_desktop.engine.facts import FoldKind, ModelRole, ModelSet, Span
from helix_desktop.engine.strategies import observation
from helix_desktop.engine.strategies.fold_strategy import FoldPlan
from tests.engine.strategies.test_markers import situation
from tests.engine.talk import Talk

OBSERVATIONAL = context_policy.preset_policy("observational")


def talk_of(tokens: int) -> Talk:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 100_000))
    talk.user("go", tokens=100)
    talk.steps(30, tokens=tokens // 30)
    return talk


def test_due_when_raw_history_passes_its_share() -> None:
    assert observation.find_due_observation(situation(talk_of(25_000), OBSERVATIONAL)) is None
    plan = observation.find_due_observation(situation(talk_of(31_000), OBSERVATIONAL))
    assert plan is not None
    assert plan.kind is FoldKind.OBSERVATIONS
    assert "messages that are not shortened take up 32% of the context window" in plan.why
    assert (
        observation.find_due_observation(
            situation(talk_of(31_000), context_policy.preset_policy("layered"))
        )
        is None
    )


def test_only_what_no_document_covers_yet() -> None:
    talk = talk_of(60_000)
    talk.fold("o", Span(2, 11), kind=FoldKind.OBSERVATIONS)
    plan = observation.find_due_observation(situation(talk, OBSERVATIONAL))
    assert plan is not None
    assert plan.span == Span(12, talk.state.branch.steps[-8] - 1)
    talk.fold("p", plan.span, kind=FoldKind.OBSERVATIONS)
    assert observation.find_due_observation(situation(talk, OBSERVATIONAL)) is None


def test_the_question_names_what_is_to_be_observed() -> None:
    text = observation.observation_question(
        FoldPlan(FoldKind.OBSERVATIONS, Span(3, 9), "", wish="names"), 2_000, 0
    )
    assert "3 to 9" in text
    assert "names" in text
