"""Computes what a connected agent's conversation sent and saved, compared with running
without the gateway.
"""

from bisect import bisect_left

from helix_desktop.engine.facts import Fact, ModelReplied, ModelRole, Spent, ToolCall
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS


@dataclass(frozen=True, slots=True)
class Figures:
    """Tokens and dollars (0 without a price). A hidden recall counts as sent, but never
    in `without`. `unanswered`: so many of the requests got no whole answer, so that their tokens
    are estimates. `too_large`: so many would not have fit into the model's window as they came, so
    `without` has only what could have been sent of them.
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
    unanswered: int = 0
    estimated: int = 0  # The tokens that these are in `sent`.
    too_large: int = 0


def compute_agent_figures(
    conversation: str, state: ConversationState, since: float = 0.0
) -> Figures:
    """Compute what a conversation of an agent has sent and cost, and what it would have without
    the gateway, from what the provider reported. `since`: only what came after that time.
    """
    ledger = state.record.ledger

    def time_of_request(seq: int) -> float:
        return state.facts[seq - 1].time

    first_request = bisect_left(ledger.requests, since, key=time_of_request)
    seq_before = 0
    if first_request:
        seq_before = ledger.requests[first_request - 1]

    # For each request, the tokens of it and all before it, had there been no gateway.
    sums_without = ledger.sums["without"]
    recalls = 0
    tokens_of_recalls = 0  # Without the gateway, there would be no such requests.
    unanswered = 0
    estimated_tokens = 0
    too_large = 0
    window = _window_of(state)
    for number in range(first_request, len(ledger.requests)):
        reply_seq = ledger.requests[number]
        answer = state.facts[reply_seq - 1].fact
        if isinstance(answer, Spent) and answer.is_estimate:
            unanswered += 1
            estimated_tokens += answer.usage.input
        if window and ledger.whole[reply_seq - 1] > window:
            too_large += 1
        recalls_of_reply = _count_recalls(answer)
        if recalls_of_reply:
            recalls += recalls_of_reply
            tokens_of_recalls += sums_without[number + 1] - sums_without[number]

    savings_now = state.savings_until_moment()
    savings_before = ledger.savings_until(seq_before)
    all_tokens = savings_now.without - savings_before.without
    without = max(0, all_tokens - tokens_of_recalls)
    share_without_recalls = 1.0
    if all_tokens:
        share_without_recalls = without / all_tokens
    paid_without = savings_now.paid_without - savings_before.paid_without

    return Figures(
        conversation=conversation,
        agent=state.agent,
        title=state.title,
        requests=ledger.count_requests(state.seq) - ledger.count_requests(seq_before),
        sent=savings_now.sent - savings_before.sent,
        without=without,
        cache_read=savings_now.cache_read - savings_before.cache_read,
        recalls=recalls,
        paid=savings_now.paid - savings_before.paid,
        paid_without=paid_without * share_without_recalls,
        unanswered=unanswered,
        estimated=estimated_tokens,
        too_large=too_large,
    )


def _window_of(state: ConversationState) -> int:
    """Return the tokens that the model takes, or 0 if that is not known."""
    model = state.settings.model_for_role(ModelRole.MAIN)
    if model is None:
        return 0
    return model.window


def _count_recalls(fact: Fact) -> int:
    """Return how many of a reply's calls are of our own tools."""
    if not isinstance(fact, ModelReplied):
        return 0
    count = 0
    for part in fact.parts:
        if isinstance(part, ToolCall) and part.name in HIDDEN_TOOLS:
            count += 1
    return count
