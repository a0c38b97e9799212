"""Observation: raw history becomes a dense list of dated, prioritised facts, each with the seq it came from."""

from __future__ import annotations

from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.facts import FoldKind, Span
from helix_desktop.engine.strategies.plan import Plan, Situation, Strategy, foldable

TITLE = "[Observations of the conversation so far]"
FEWEST = 3  # facts that are worth an observation


def due(situation: Situation) -> Plan | None:
    """An observation once raw history has passed its share of the window."""
    policy, meter = situation.policy, situation.meter
    raw = meter.parts[Kind.CONVERSATION] + meter.parts[Kind.OUTPUT]
    if not policy.observation or raw < policy.observation_share * meter.window:
        return None
    span = unobserved(situation)
    if span is None:
        return None
    return Plan(FoldKind.OBSERVATIONS, span, f"unfolded history takes up {raw / meter.window:.0%} of the window")


def unobserved(situation: Situation) -> Span | None:
    """What stands after the last document, but the tail."""
    whole = foldable(situation)
    if whole is None:
        return None
    branch = situation.branch
    first = whole.first
    for cover, _ in branch.outer(whole):
        first = max(first, cover.last + 1)
    span = Span(first, whole.last)
    return span if branch.count_messages(span, FEWEST) >= FEWEST else None


def question(span: Span, *, wish: str = "", limit: int = 2_000) -> str:
    """What the writer is asked, behind the transcript."""
    wanted = f"\nThe user asks to keep in particular: {wish}" if wish else ""
    return (
        f"Turn the numbers {span.first} to {span.last} of this conversation into observations: one line each, "
        "`- <date and time> <priority: !!!, !! or !> <fact> [<number>]`, in order, dense, in at most "
        f"{limit * 3 // 5} words together. Keep what the user demanded (!!!), decisions, results, paths, names, values "
        "and errors word for word; leave out what is without consequence. Do not call tools; answer with the lines "
        f"alone.{wanted}"
    )


def _asked(plan: Plan, limit: int, tail: int) -> str:  # noqa: ARG001 -- the shape of every strategy
    return question(plan.span, wish=plan.wish, limit=min(limit, 2_000))


STRATEGY = Strategy(FoldKind.OBSERVATIONS, TITLE, due, unobserved, _asked, dated=True)
