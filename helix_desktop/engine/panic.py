"""Panic: the next request would not fit. One rung after the other, until it does; the last ones need no model."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator

from helix_desktop.engine import budget
from helix_desktop.engine.blocks import Block, Role
from helix_desktop.engine.clearing import Sweeping
from helix_desktop.engine.collaborators import Spawn
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.document_writer import SMALLEST, Writer, Written, read, spent_on
from helix_desktop.engine.facts import FoldFailed, FoldKind, PartRef, Reasoning, Span
from helix_desktop.engine.strategies import caching, truncation
from helix_desktop.engine.strategies.plan import Plan, Situation, foldable, panic_start
from helix_desktop.errors import HelixError
from helix_desktop.values import dataclass

LARGE = 700  # tokens of a part that an excerpt makes shorter
EXCERPT = 300  # tokens of such an excerpt
TAILS = (8, 4, 2, 1)  # steps that truncation leaves standing, less and less
OVERFLOW_SHARE = 0.8  # of what was refused as too long may be asked again
WHY = "the next request would not fit"


@dataclass(frozen=True, slots=True)
class Aid:
    """What the steward does for a climb. `flown`: wait for the fold in flight; False where it had to be given up."""

    situation: Callable[[], Situation]
    spawn: Spawn
    append: Callable[[Written], Awaitable[object]]
    flown: Callable[[float], Awaitable[bool]]


class Panic:
    """One climb of the ladder."""

    def __init__(self, conversation: Conversation, writer: Writer, sweeping: Sweeping, aid: Aid) -> None:
        self._conversation = conversation
        self._aid = aid
        self._writer = writer
        self._sweeping = sweeping
        self._target = 0
        self._waited = 0.0
        self._may_ask = True

    async def climb(self, *, overflowed: bool) -> None:
        """Rung by rung; what is left undone after the last is recorded."""
        meter = self._conversation.meter()
        room = meter.window - meter.reserve
        self._target = min(room, int(meter.used * OVERFLOW_SHARE)) if overflowed else room
        tried = False
        for rung in self._rungs():
            if self._fits():
                return
            await rung()
            tried = True
        if tried and not self._fits():
            figures = self._conversation.meter().figures()
            why = f"everything that can be folded is already folded, and the window contains {figures}"
            failed = FoldFailed(FoldKind.TRUNCATION, why)
            if self._conversation.state.facts[-1].fact != failed:  # said once, however often the request is tried
                await self._conversation.append(failed)

    def _rungs(self) -> Iterator[Callable[[], Awaitable[object]]]:
        """What loses least comes first: single huge parts, markers, a summary; then what needs no model."""
        policy = self._conversation.policy
        window = self._conversation.meter().window
        if policy.truncation:
            yield functools.partial(self._excerpts, window * policy.oversized_share)
        if policy.caching != "off":
            yield self._markers
        if policy.handover != "off":
            yield self._in_flight
            yield self._handover
        if policy.truncation:
            yield functools.partial(self._excerpts, LARGE)
            for steps in TAILS:
                if steps == TAILS[-1] or self._may_fit(steps):
                    yield functools.partial(self._truncation, steps)
                    yield functools.partial(self._excerpts, LARGE)

    def _fits(self) -> bool:
        return self._conversation.meter().used <= self._target

    def _may_fit(self, steps: int) -> bool:
        """Whether a truncation that leaves so many steps standing, their large parts as excerpts, can be enough."""
        situation = self._aid.situation()
        branch, state = situation.branch, situation.state
        until = _until(situation, steps)
        words = branch.kept_tokens(Span(branch.order[0], until - 1), panic=True)
        standing = [block for item in branch.tail(until) for block in item.blocks]
        shown = sum(
            EXCERPT if block.tokens > LARGE and _may_be_excerpted(block) else block.tokens for block in standing
        )
        fixed = state.settings.tokens
        return budget.corrected(fixed + words + SMALLEST + shown, state) <= self._target

    async def _markers(self) -> None:
        situation = self._aid.situation()
        clearing = caching.everything_old(situation, panic_start(situation))
        if clearing is not None:
            await self._sweeping.sweep(clearing.parts(situation), WHY, panic=True)

    async def _in_flight(self) -> None:
        """What is being written already, if it comes in time."""
        started = asyncio.get_running_loop().time()
        self._may_ask = await self._aid.flown(self._conversation.policy.panic_wait)
        self._waited = asyncio.get_running_loop().time() - started

    async def _handover(self) -> None:
        """By a model, where the breaker is closed and nobody was waited for in vain, and as long as there is time."""
        situation = self._aid.situation()
        span = foldable(situation, panic_start(situation))
        left = situation.policy.panic_wait - self._waited
        broken = situation.branch.failures[FoldKind.HANDOVER] >= situation.policy.failures
        if span is None or broken or left <= 0 or not self._may_ask:
            return
        reading = read(Plan(FoldKind.HANDOVER, span, WHY, panic=True), situation)
        conversation = self._conversation
        work = self._writer.write(reading, conversation.new_fold(FoldKind.HANDOVER), left)
        writing = self._aid.spawn(work, name=f"handover of {conversation.id}")
        try:
            why = await self._writer.wait_for(writing, situation.policy, left)
            if not why:
                await self._aid.append(writing.result())
        except HelixError as error:
            await conversation.append(*spent_on(error), FoldFailed(FoldKind.HANDOVER, error.what))
        else:
            if why:
                await conversation.append(FoldFailed(FoldKind.HANDOVER, why))
        finally:
            writing.cancel()

    async def _excerpts(self, least: float) -> None:
        """The largest parts wherever they stand, down to so many tokens."""
        for _, ref in sorted(self._large(least), reverse=True):
            if self._fits():
                return
            try:
                await self._sweeping.excerpt(ref, WHY, EXCERPT)
            except HelixError:
                continue  # the next one may work

    def _large(self, least: float) -> list[tuple[int, PartRef]]:
        view = self._conversation.view()
        return [
            (block.tokens, block.source)
            for block in view.blocks
            if block.tokens > least and isinstance(block.source, PartRef) and _may_be_excerpted(block)
        ]

    async def _truncation(self, steps: int) -> None:
        situation = self._aid.situation()
        plan = truncation.plan(situation, _until(situation, steps))
        if plan is None:
            return
        reading = read(plan, situation)
        if reading.shown - reading.kept <= budget.reserve(situation.state, situation.policy) // 20:
            return
        await self._aid.append(await self._writer.truncate(reading, self._conversation.new_fold(FoldKind.TRUNCATION)))


def _until(situation: Situation, steps: int) -> int:
    """The first message that a truncation leaving `steps` steps leaves standing."""
    made = situation.branch.steps
    if len(made) < steps:
        return situation.branch.order[0]
    return made[-steps]


def _may_be_excerpted(block: Block) -> bool:
    return block.role is not Role.SYSTEM and not block.pinned and not isinstance(block.content, Reasoning)
