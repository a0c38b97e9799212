"""Computes what a connected agent's conversation sent and saved, compared with running
without the gateway.
"""

from bisect import bisect_left

from helix_desktop.engine.facts import Fact, ModelReplied, ToolCall
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
    before = 0
    if first:
        before = ledger.requests[first - 1]
    whole = ledger.sums["without"]
    recalls = 0
    tokens_of_recalls = 0  # Without the gateway, there would be no such requests.
    for number in range(first, len(ledger.requests)):
        calls = _count_recalls(state.facts[ledger.requests[number] - 1].fact)
        if calls:
            recalls += calls
            tokens_of_recalls += whole[number + 1] - whole[number]
    now = state.savings_until_moment()
    then = ledger.savings_until(before)
    all_tokens = now.without - then.without
    without = max(0, all_tokens - tokens_of_recalls)
    share = 1.0
    if all_tokens:
        share = without / all_tokens
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


def _count_recalls(fact: Fact) -> int:
    if not isinstance(fact, ModelReplied):
        return 0
    return sum(isinstance(part, ToolCall) and part.name in HIDDEN_TOOLS for part in fact.parts)
