"""What a connected agent's conversation sent and saved. The baseline is the agent without any gateway."""

from __future__ import annotations

from dataclasses import dataclass

from helix_desktop.engine.budget import savings
from helix_desktop.engine.facts import ModelReplied, ToolCall
from helix_desktop.engine.view import State
from helix_desktop.gateway.veil import OURS


@dataclass(frozen=True, slots=True)
class Figures:
    """Tokens and dollars; dollars are 0 where no price is known. A hidden recall counts as sent, and never in `without`."""

    conversation: str
    agent: str
    title: str
    requests: int
    sent: int
    without: int
    cache_read: int
    recalls: int
    paid: float
    paid_without: float


def figures(conversation: str, state: State) -> Figures:
    """Of one conversation, from what its provider reported."""
    ledger = state.record.ledger
    whole = ledger.sums["without"]
    hidden = recalls = 0
    for at, seq in enumerate(ledger.requests):
        fact = state.facts[seq - 1].fact
        calls = (
            sum(isinstance(p, ToolCall) and p.name in OURS for p in fact.parts) if isinstance(fact, ModelReplied) else 0
        )
        recalls += calls
        hidden += whole[at + 1] - whole[at] if calls else 0
    sums = savings(state)
    without = max(0, sums.without - hidden)
    share = without / sums.without if sums.without else 1.0
    return Figures(
        conversation,
        state.agent,
        state.title,
        len(ledger.requests),
        sums.sent,
        without,
        sums.cache_read,
        recalls,
        sums.paid,
        sums.paid_without * share,
    )
