"""Says what the next message will probably cost, by what the last ones of the conversation cost.

A message costs more than the request that sends it: the reply, a request for each step with
tools, recalls, and summaries. How many there will be, nobody knows before, but people go on as they
began. On recorded sessions, the request alone was in the middle a sixth of what the message cost,
and the middle of the last nine messages was 1.04 times of it.
"""

from collections.abc import Sequence

from helix_desktop.engine.facts import ModelRole
from helix_desktop.engine.state.moment import Moment
from helix_desktop.fast_dataclass import dataclass

# With more messages, the forecast follows too late when the work changes.
MOST_MESSAGES = 9
# The first message of a conversation costs more than others: nothing is cached before it.
FEWEST_MESSAGES = 2


@dataclass(frozen=True, slots=True)
class MessageCostForecast:
    """`dollars` is the middle of what so many `messages` cost. Half of them cost between `low`
    and `high`.
    """

    dollars: float
    low: float
    high: float
    messages: int


def forecast_message_cost(state: Moment) -> MessageCostForecast | None:
    """Return what the next message will probably cost, or None if too little is known."""
    if _is_other_model_chosen(state):
        return None
    costs = state.record.ledger.list_costs_of_messages(state.seq, MOST_MESSAGES)
    if len(costs) < FEWEST_MESSAGES:
        return None
    costs.sort()
    return MessageCostForecast(
        dollars=_quantile(costs, 0.5),
        low=_quantile(costs, 0.25),
        high=_quantile(costs, 0.75),
        messages=len(costs),
    )


def _is_other_model_chosen(state: Moment) -> bool:
    """Whether the next message goes to another model than the last ones did."""
    chosen = state.settings.model_for_role(ModelRole.MAIN)
    recorded = state.record.settings_at(state.seq).model_for_role(ModelRole.MAIN)
    if chosen is None or recorded is None:
        return chosen is not recorded
    return chosen.model != recorded.model


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies, between two if need be."""
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)
