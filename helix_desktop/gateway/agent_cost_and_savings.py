"""Computes what a connected agent's conversation sent and saved, compared with running
without the gateway.
"""

from bisect import bisect_left

from helix_desktop.engine.facts import ModelReplied, ToolCall
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS


@dataclass(frozen=True, slots=True)
class Figures:
    """Tokens and dollars (0 without a price). A hidden recall counts as sent, but never
    in `without`.
    """

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


def compute_agent_figures(
    conversation: str, state: ConversationState, since: float = 0.0
) -> Figures:
    """Compute figures from what the provider reported. `since`: only what came after that time."""
    ledger = state.record.ledger
    first = bisect_left(ledger.requests, since, key=lambda seq: state.facts[seq - 1].time)
    before = ledger.requests[first - 1] if first else 0
    whole = ledger.sums["without"]
    hidden = recalls = 0
    for at in range(first, len(ledger.requests)):
        fact = state.facts[ledger.requests[at] - 1].fact
        parts = fact.parts if isinstance(fact, ModelReplied) else ()
        calls = sum(isinstance(p, ToolCall) and p.name in HIDDEN_TOOLS for p in parts)
        recalls += calls
        hidden += whole[at + 1] - whole[at] if calls else 0
    now = state.savings_until_moment()
    then = ledger.savings_until(before)
    all_of_it = now.without - then.without
    without = max(0, all_of_it - hidden)
    share = without / all_of_it if all_of_it else 1.0
    return Figures(
        conversation,
        state.agent,
        state.title,
        ledger.count_requests(state.seq) - ledger.count_requests(before),
        now.sent - then.sent,
        without,
        now.cache_read - then.cache_read,
        recalls,
        now.paid - then.paid,
        (now.paid_without - then.paid_without) * share,
    )
