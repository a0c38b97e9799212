"""The conversations that a worker has claimed. Each step and call first checks that it
still has them.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import field, replace

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import CallContext, CallOutcome
from helix_desktop.engine.session_setup import TurnLimits
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.toolbox import CallHooks


@dataclass(frozen=True, slots=True)
class WorkerClaim:
    """`ensure_may_act` waits until the worker may act, and raises StoreFailed if it
    never may again. `ensure_may_call` also waits until others know of the next calls.
    `ensure_may_write` does so before each fact, and `ensure_sent` waits until others have
    the facts of a conversation that were written before.
    `budget`: dollars for the conversation and its sub-agents, 0 for no limit.
    `waiting`: the conversations in which a call waits for other tasks. `is_ending`:
    whether its turn was told to stop. `removed` is set once the claim is held no more.
    """

    ensure_may_act: Callable[[], Awaitable[None]]
    ensure_may_call: Callable[[], Awaitable[None]]
    ensure_may_write: Callable[[], Awaitable[None]]
    ensure_sent: Callable[[str], Awaitable[None]]
    budget: float = 0.0
    waiting: list[str] = field(default_factory=list)
    is_ending: Callable[[], bool] = bool
    removed: asyncio.Event = field(default_factory=asyncio.Event)


class WorkerClaims:
    """Claims by conversation; sub-agents have that of their parent. Calls check the
    claim, then run `hooks`.
    """

    def __init__(self, hooks: CallHooks, ids_above: Callable[[str], Sequence[str]]) -> None:
        self._hooks = hooks
        self._ids_above = ids_above
        self.held: dict[str, WorkerClaim] = {}

    @asynccontextmanager
    async def hold_claim(self, conversation: str, claim: WorkerClaim) -> AsyncIterator[None]:
        """Hold a claim, after waiting for an earlier claim of the same conversation to end."""
        while conversation in self.held:
            await self.held[conversation].removed.wait()
        self.held[conversation] = claim
        try:
            yield
        finally:
            del self.held[conversation]
            claim.removed.set()

    def find_claim(self, conversation: str) -> WorkerClaim | None:
        """Return the claim of a conversation, or of the nearest one above it that has one."""
        if not self.held:  # Usually nothing is held, and the ids above need not be found.
            return None
        claim = self.held.get(conversation)
        if claim is not None:
            return claim
        for conversation_above in self._ids_above(conversation):
            if conversation_above in self.held:
                return self.held[conversation_above]
        return None

    @contextmanager
    def give_up_worker_slot(self, conversation: str) -> Iterator[None]:
        """Let its worker do another task meanwhile, which may be the one that it waits for."""
        claim = self.find_claim(conversation)
        if claim is None:
            yield
            return
        claim.waiting.append(conversation)
        try:
            yield
        finally:
            claim.waiting.remove(conversation)

    async def ensure_may_act(self, conversation: str) -> None:
        claim = self.find_claim(conversation)
        if claim is not None:
            await claim.ensure_may_act()

    def limit_conversation_cost(self, conversation: str, limits: TurnLimits) -> TurnLimits:
        claim = self.held.get(conversation)
        if claim is None or not claim.budget:
            return limits
        return replace(limits, conversation_cost=claim.budget)

    async def run_hooks_before_call(self, call: ToolCall, context: CallContext) -> None:
        claim = self.find_claim(context.conversation)
        if claim is not None:
            await claim.ensure_may_call()
        await self._hooks.run_hooks_before_call(call, context)

    async def run_hooks_after_call(
        self, call: ToolCall, context: CallContext, outcome: CallOutcome
    ) -> None:
        await self._hooks.run_hooks_after_call(call, context, outcome)
