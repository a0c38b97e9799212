"""Which cost limit a conversation has reached. Past it, this program sends nothing: no
step, and no request beside steps.
"""

import math
from collections.abc import Callable, Iterator

from helix_desktop.engine.ask_model import ModelInquiry
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import TurnEnd, TurnEnded
from helix_desktop.engine.messages import RetryDelay
from helix_desktop.engine.session_setup import FoldServices
from helix_desktop.errors import ActionRefused
from helix_desktop.fast_dataclass import dataclass

SMALLEST_COST = 1e-9  # Sums of dollars differ by less, depending on their order.


@dataclass(frozen=True, slots=True)
class _SpentBesideLimit:
    """What something has cost, and what it may cost: 0 for no limit. `subject`: as in a sentence."""

    subject: str
    spent: float
    limit: float


class ConversationSpending:
    """What a conversation and its current or last turn have cost, with sub-agents,
    beside the limits.
    """

    def __init__(self, conversation: Conversation, services: FoldServices) -> None:
        self._conversation = conversation
        self._services = services
        # Until the first turn begins, nothing counts as spent in one.
        self._cost_before_turn = math.inf

    def begin_turn(self) -> None:
        self._cost_before_turn = self._cost_with_agents()

    def cost_of_turn(self) -> float:
        return max(0.0, self._cost_with_agents() - self._cost_before_turn)

    def _cost_with_agents(self) -> float:
        own_cost = sum(spent.usage.cost for spent in self._conversation.state.spent)
        return own_cost + self._services.agents_spent().below

    def find_turn_end_at_limit(self) -> TurnEnded | None:
        """Return the end of the turn if a limit is reached, and otherwise None."""
        for checked in self._spending_beside_limits():
            if checked.limit and checked.spent >= checked.limit - SMALLEST_COST:
                why = f"{checked.subject} has cost ${checked.spent:.2f}; the limit is ${checked.limit:.2f}."
                return TurnEnded(TurnEnd.SPENDING_LIMIT, why)
        return None

    def _spending_beside_limits(self) -> Iterator[_SpentBesideLimit]:
        """Yield what the turn, the conversation, the day and so on have cost, and may cost."""
        limits = self._services.limits()
        agents = self._services.agents_spent()
        cost_of_turn = max(self.cost_of_turn(), agents.turn_above)
        yield _SpentBesideLimit("This turn", cost_of_turn, limits.turn_cost)
        conversation_cost = self._cost_with_agents()
        yield _SpentBesideLimit("This conversation", conversation_cost, limits.conversation_cost)
        # To add up all conversations takes longer, so it is done only for a limit.
        if limits.day_cost or limits.workspace_cost:
            cost_today, cost_ever = self._services.spent()
            yield _SpentBesideLimit("Today", cost_today, limits.day_cost)
            yield _SpentBesideLimit("This workspace", cost_ever, limits.workspace_cost)
        yield _SpentBesideLimit(
            "All agents of this conversation", agents.whole_team, agents.limit_of_team
        )

    def build_model_inquiry(
        self,
        heard: Callable[[], None] = lambda: None,
        retrying: Callable[[RetryDelay], None] = lambda _: None,
        wrote: Callable[[], None] | None = None,
    ) -> ModelInquiry:
        return ModelInquiry(
            self._conversation.append_facts, self.refuse_past_limit, heard, retrying, wrote
        )

    def refuse_past_limit(self) -> None:
        turn_end = self.find_turn_end_at_limit()
        if turn_end is not None:
            raise ActionRefused(turn_end.why)
