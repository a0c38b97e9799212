"""Which cost limit a conversation has reached. Past it, this program sends nothing: no
step, and no request beside steps.
"""

import math
from collections.abc import Callable

from helix_desktop.engine.ask_model import ModelInquiry
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import TurnEnd, TurnEnded
from helix_desktop.engine.session_setup import FoldServices
from helix_desktop.errors import ActionRefused

SMALLEST_COST = 1e-9  # Sums of dollars differ by less, depending on their order.


class ConversationSpending:
    """What a conversation and its current or last turn have cost, with sub-agents,
    beside the limits.
    """

    def __init__(self, conversation: Conversation, services: FoldServices) -> None:
        self._conversation, self._services = conversation, services
        self._paid_before_turn = math.inf

    def begin_turn(self) -> None:
        self._paid_before_turn = self._cost_with_agents()

    def cost_of_turn(self) -> float:
        return max(0.0, self._cost_with_agents() - self._paid_before_turn)

    def _cost_with_agents(self) -> float:
        return (
            sum(one.usage.cost for one in self._conversation.state.spent)
            + self._services.agents_spent()[0]
        )

    def find_turn_end_at_limit(self) -> TurnEnded | None:
        limits, (_, of_turn, of_agents, limit_of_agents) = (
            self._services.limits(),
            self._services.agents_spent(),
        )
        day, ever = (
            self._services.spent() if limits.day_cost or limits.workspace_cost else (0.0, 0.0)
        )
        for what, spent, limit in (
            ("This turn", max(self.cost_of_turn(), of_turn), limits.turn_cost),
            ("This conversation", self._cost_with_agents(), limits.conversation_cost),
            ("Today", day, limits.day_cost),
            ("This workspace", ever, limits.workspace_cost),
            ("All agents of this conversation", of_agents, limit_of_agents),
        ):
            if limit and spent >= limit - SMALLEST_COST:
                why = f"{what} has cost ${spent:.2f}; the limit is ${limit:.2f}."
                return TurnEnded(TurnEnd.SPENDING_LIMIT, why)
        return None

    def build_model_inquiry(self, heard: Callable[[], None] = lambda: None) -> ModelInquiry:
        return ModelInquiry(self._conversation.append_facts, self.refuse_past_limit, heard)

    def refuse_past_limit(self) -> None:
        if (end := self.find_turn_end_at_limit()) is not None:
            raise ActionRefused(end.why)
