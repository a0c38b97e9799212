"""Reflection: merges observations, drops repeated and outdated ones, and sets new priorities."""

from helix_desktop.engine.facts import FoldKind, Span
from helix_desktop.engine.fold_kinds import KINDS_OF_NOTES
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.strategies.fold_strategy import FoldPlan, FoldSituation, FoldStrategy
from helix_desktop.engine.strategies.observation import TITLE


def find_due_reflection(situation: FoldSituation) -> FoldPlan | None:
    """Return a plan once observations exceed their share of the window, or None."""
    policy = situation.policy
    meter = situation.meter
    observation_tokens = meter.parts[ContextKind.OBSERVATIONS]
    if not policy.observation or observation_tokens < policy.reflection_share * meter.window:
        return None
    span = span_of_observations(situation)
    if span is None:
        return None
    share = observation_tokens / meter.window
    why = f"dated notes take up {share:.0%} of the context window"
    return FoldPlan(FoldKind.REFLECTION, span, why)


def span_of_observations(situation: FoldSituation) -> Span | None:
    """Return the span of the view's consecutive observations."""
    observations: list[Span] = []
    for item in situation.branch.items:
        fold = situation.branch.folds.get(item.fold)
        if fold is not None and fold.kind in KINDS_OF_NOTES:
            observations.append(Span(item.first, item.last))
        elif observations:
            break  # They are no longer consecutive.
    if not observations:
        return None
    return Span(observations[0].first, observations[-1].last)


def reflection_question(plan: FoldPlan, limit: int, _tail: int) -> str:
    """Return the writer's question, after the observations."""
    return (
        f"Merge these observations about the numbers {plan.span.first} to {plan.span.last} of a conversation: same form, one line "
        "each with its date, priority and [number]. Join what belongs together, drop repetition and what later lines "
        "made untrue, reconsider the priorities. What the user demanded stays word for word. At most "
        f"{min(limit, 3_000) * 3 // 5} words. Do not call tools; answer with the lines alone.{plan.sentence_of_wish}"
    )


STRATEGY = FoldStrategy(
    FoldKind.REFLECTION, TITLE, find_due_reflection, span_of_observations, reflection_question
)
