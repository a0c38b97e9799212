"""Observation: a dense list of dated facts with priorities and sources replaces older messages."""

from helix_desktop.engine.facts import FoldKind, Span
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.strategies.fold_strategy import (
    FoldPlan,
    FoldSituation,
    FoldStrategy,
    find_foldable_span,
)

TITLE = "[Observations of the conversation so far]"
FEWEST_MESSAGES = 3  # An observation of fewer messages than this is not worth writing.


def find_due_observation(situation: FoldSituation) -> FoldPlan | None:
    """Return a plan once unfolded history exceeds its share of the window, or None."""
    policy = situation.policy
    meter = situation.meter
    unfolded_tokens = meter.parts[ContextKind.CONVERSATION] + meter.parts[ContextKind.OUTPUT]
    if not policy.observation or unfolded_tokens < policy.observation_share * meter.window:
        return None
    span = find_unobserved_span(situation)
    if span is None:
        return None
    share = unfolded_tokens / meter.window
    why = f"messages that are not shortened take up {share:.0%} of the context window"
    return FoldPlan(FoldKind.OBSERVATIONS, span, why)


def find_unobserved_span(situation: FoldSituation) -> Span | None:
    """Return the span after the last document, without the tail."""
    foldable_span = find_foldable_span(situation)
    if foldable_span is None:
        return None
    branch = situation.branch
    first = foldable_span.first
    for cover, _ in branch.outermost_folds(foldable_span):
        first = max(first, cover.last + 1)
    unobserved_span = Span(first, foldable_span.last)
    if branch.count_messages(unobserved_span, FEWEST_MESSAGES) < FEWEST_MESSAGES:
        return None
    return unobserved_span


def observation_question(plan: FoldPlan, limit: int, _tail: int) -> str:
    """Return the writer's question, after the transcript."""
    return (
        f"Turn the numbers {plan.span.first} to {plan.span.last} of this conversation into observations: one line each, "
        "`- <date and time> <priority: !!!, !! or !> <fact> [<number>]`, in order, dense, in at most "
        f"{min(limit, 2_000) * 3 // 5} words together. Keep what the user demanded (!!!), decisions, results, paths, names, values "
        "and errors word for word; leave out what is without consequence. Do not call tools; answer with the lines "
        f"alone.{plan.sentence_of_wish}"
    )


STRATEGY = FoldStrategy(
    FoldKind.OBSERVATIONS,
    TITLE,
    find_due_observation,
    find_unobserved_span,
    observation_question,
    dated=True,
)
