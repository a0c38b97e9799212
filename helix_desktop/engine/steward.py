"""The steward of one conversation's context: decides, with the policy, what is folded when, and sees it through.

Three phases for every strategy: read without a pause; ask the model while everything goes on; append if the covered
facts are still the same. One fold is in flight at a time; three failures in a row of a kind open its breaker. Nothing
here ever fails a turn: what goes wrong is recorded as `FoldFailed`, and in panic the next rung is taken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from helix_desktop.engine import budget
from helix_desktop.engine.clearing import Sweeping
from helix_desktop.engine.collaborators import Spawn
from helix_desktop.engine.contents import Contents
from helix_desktop.engine.conversation import Conversation, Draft
from helix_desktop.engine.document_writer import NothingWritten, Reading, Writer, Written, read, spent_on, still_same
from helix_desktop.engine.events import Folding
from helix_desktop.engine.facts import (
    Fact,
    Folded,
    FoldFailed,
    FoldKind,
    ModelRole,
    Recorded,
    Refolded,
    ToolReturned,
    Unfolded,
    UserSaid,
)
from helix_desktop.engine.large_outputs import Admission
from helix_desktop.engine.panic import Aid, Panic
from helix_desktop.engine.ports import Cache, Clock, Index, ModelClient, Tokens
from helix_desktop.engine.strategies import admission, caching, handover
from helix_desktop.engine.strategies.plan import Plan, Situation, tail_start
from helix_desktop.engine.strategies.registry import STRATEGIES
from helix_desktop.engine.view import State
from helix_desktop.errors import HelixError, NotThere, Refused, Stopped

log = logging.getLogger(__name__)
T = TypeVar("T")
ASKED = "requested by the user"
RETRY_AFTER = 60.0  # seconds a strategy rests after a failure


class Steward:
    """`before_step` and `admit` are awaited by the turn; `after_turn` and background writing take none of its time."""

    def __init__(
        self,
        conversation: Conversation,
        *,
        cache: Cache,
        index: Index,
        tokens: Tokens,
        clock: Clock,
        models: Callable[[ModelRole], ModelClient | None],
        spawn: Spawn,
    ) -> None:
        self.conversation = conversation
        self.index = index
        self._clock = clock
        self.spawn = spawn
        self._contents = Contents(cache)
        self._writer = Writer(conversation, cache, tokens, clock, models, self._contents)
        self._sweeping = Sweeping(conversation, cache, tokens)
        self._admission = Admission(conversation, cache, tokens, models, self._contents)
        self._flying: asyncio.Task[object] | None = None
        self._flying_plan: Plan | None = None
        self._ready: Written | None = None
        self._failed_at: dict[FoldKind, float] = {}

    def ahead(self, draft: Draft) -> Steward:
        """The same for a copy of the conversation: it admits what arrives, asks no model and starts nothing."""
        cache, tokens = self._admission.cache, self._admission.tokens
        return Steward(
            draft, cache=cache, index=self.index, tokens=tokens, clock=self._clock, models=_no_model, spawn=_not_now
        )

    # --- for the turn -----------------------------------------------------------------------------------------------

    async def admit(
        self, batch: Sequence[ToolReturned], keeps: Mapping[str, str] | None = None, seqs: Sequence[int] = ()
    ) -> tuple[Fact, ...]:
        """The excerpts to append behind the batch in one transaction; `keeps`: by call, what it asked to keep; `seqs`:
        of those at the beginning of the batch that are recorded already.
        """
        try:
            return await self._admission.outputs(batch, keeps or {}, seqs)
        except HelixError as error:
            log.info("admission failed: %s", type(error).__name__)  # its words may be a provider's
            return (FoldFailed(FoldKind.EXCERPT, error.what),)

    async def admit_message(self, said: UserSaid) -> tuple[Fact, ...]:
        """The user's message, its oversized parts stored and excerpted, to append in one transaction."""
        try:
            return await self._admission.message(said)
        except HelixError as error:
            log.info("storing a large message failed: %s", error.what)
            return (said, FoldFailed(FoldKind.EXCERPT, error.what))

    async def before_step(self, *, overflowed: bool = False) -> None:
        """Adopt what is ready, clear what is due, start what is due, and see to it that the next request fits. While
        a document is being written nothing is cleared: its adoption takes clearing along, and rewrites the prefix once.

        `overflowed`: the provider has just refused a request as too long, whatever the meter says.
        """
        await self._guarded(FoldKind.HANDOVER, self.adopt)
        if overflowed or not self.conversation.meter().fits:
            await self._guarded(FoldKind.TRUNCATION, lambda: self._panic(overflowed=overflowed))
        elif self._flying is None:
            await self._guarded(FoldKind.MARKER, self._clear)
        self._start_due()

    def after_turn(self) -> None:
        """Start what is due between turns, in the background."""
        self._start_due()

    # --- for the user -----------------------------------------------------------------------------------------------

    async def fold_now(self, kind: FoldKind, wish: str = "") -> tuple[Recorded, ...]:
        """Fold on demand. Refused, with the reason, where there is nothing to fold or a fold is being made."""
        if kind is FoldKind.MARKER:
            return await self._markers_now()
        plan = self._asked_plan(kind, wish)
        if plan is None:
            raise Refused("There is nothing to fold yet: the most recent part of a conversation is never folded.")
        await self._drop()
        if self._flying is not None:
            raise Refused("A fold is already in progress.", remedy="Wait for the current fold to finish, or cancel it.")
        reading = read(plan, self.situation())
        if kind is FoldKind.TRUNCATION:
            return await self.append(await self._writer.truncate(reading, self.conversation.new_fold(kind)))
        if too_little := self._writer.too_little(reading):
            raise Refused(too_little)
        self._start(plan)
        return await self._finished()

    async def _markers_now(self) -> tuple[Recorded, ...]:
        situation = self.situation()
        clearing = caching.everything_old(situation, tail_start(situation))
        if clearing is None:
            raise Refused("No old output would become shorter as a marker.")
        return await self._sweeping.sweep(clearing.parts(situation), ASKED)

    async def undo(self, fold: str) -> tuple[Recorded, ...]:
        """Take a fold out of force. Refused, with the figures, where the view would not fit then."""
        state = self.conversation.state
        if state.fold(fold) is None:
            raise NotThere(f"There is no fold {fold!r} in this conversation.")
        if fold not in state.branch.live:
            raise Refused("This fold has already been undone.")
        meter = self.situation(self.conversation.ahead).meter
        more = round((state.branch.tokens_without(fold) - state.branch.total_tokens) * meter.factor)
        if more > max(meter.free, 0):
            raise Refused(
                f"Undoing this fold would add {more:,} tokens, but only {max(meter.free, 0):,} are free: {meter.figures()}.",
                remedy="Fold something else first, or recall only the part you need.",
            )
        return await self.conversation.append(Unfolded(fold))

    async def redo(self, fold: str) -> tuple[Recorded, ...]:
        """Put an undone fold back. Refused where another one crosses it by now."""
        branch = self.conversation.state.branch
        folded = branch.folds.get(fold)
        if folded is None:
            raise NotThere(f"There is no fold {fold!r} in this conversation.")
        if fold in branch.live:
            raise Refused("This fold is already active.")
        if not branch.may_nest(folded.cover):
            raise Refused("Another fold now covers some of the same messages.", remedy="Undo that fold first.")
        return await self.conversation.append(Refolded(fold))

    def cancel(self) -> None:
        """Stop the fold that is being made."""
        if self._flying is not None:
            self._flying.cancel()

    async def _drop(self) -> None:
        """Forget the fold that is ready but not adopted; what it cost stays recorded."""
        ready, self._ready = self._ready, None
        if ready is not None:
            await self.conversation.append(*ready.spent)

    def is_quiet(self, tokens: int) -> bool:
        """Whether nothing is to be done before a step that so many tokens of outputs and messages come in for: they are shown
        whole and fit, no fold waits to be adopted, and the provider's cache is warm.
        """
        situation = self.situation()
        meter = situation.meter
        whole = admission.always_whole(situation.policy, meter.window)
        return (
            self._ready is None and tokens * meter.factor <= min(whole, meter.free) and not caching.is_cold(situation)
        )

    @property
    def at_rest(self) -> bool:
        """Whether no fold is being made, and none waits to be adopted."""
        return self._flying is None and self._ready is None

    async def aclose(self) -> None:
        """Stop, and let go of what was read; nothing is lost but the fold that was being made."""
        flying = self._flying
        if flying is not None:
            flying.cancel()
            await asyncio.wait([flying])
        with suppress(HelixError):
            await self._drop()
        self._writer.let_go()

    def forecast(self) -> str:
        """What would be folded next, and why, in a sentence."""
        if self._flying_plan is not None:
            return f"A {self._flying_plan.kind.value} is being written: {self._flying_plan.why}."
        situation = self.situation(self.conversation.ahead)
        plan, clearing = self._due(situation), caching.due(situation)
        if plan is not None:
            return f"Next: {plan.kind.value}, because {plan.why}."
        if clearing is not None:
            return f"Next: old outputs become markers, {clearing.why}."
        return f"Nothing to fold now: {situation.meter.figures()}. {outlook(situation)}"

    def freed_by_markers(self) -> int:
        """The tokens that markers for everything old would free; 0 where the policy makes them at the next step anyway."""
        situation = self.situation(self.conversation.ahead)
        clearing = caching.everything_old(situation, tail_start(situation))
        if clearing is None or caching.due(situation) is not None:
            return 0
        return round(caching.freed(situation, clearing) * situation.meter.factor)

    # --- deciding ---------------------------------------------------------------------------------------------------

    def situation(self, state: State | None = None) -> Situation:
        """How things stand now, or in this state."""
        state = state or self.conversation.state
        chosen = self.conversation.policy_of(state)
        return Situation(state, chosen, budget.meter(state, chosen), self._clock.now())

    def _due(self, situation: Situation) -> Plan | None:
        for strategy in STRATEGIES.values():
            plan = strategy.due(situation)
            if plan is not None and not self._resting(plan.kind, situation):
                return plan
        return None

    def _resting(self, kind: FoldKind, situation: Situation) -> bool:
        """After a failure for a while; after three in a row until the user says so."""
        if situation.branch.failures[kind] >= situation.policy.failures:
            return True
        failed = self._failed_at.get(kind)
        return failed is not None and 0 <= situation.now - failed < RETRY_AFTER

    def _asked_plan(self, kind: FoldKind, wish: str) -> Plan | None:
        situation = self.situation()
        if kind not in STRATEGIES:
            raise Refused("Excerpts are made only when an output arrives.", remedy="Use markers for old outputs.")
        span = STRATEGIES[kind].span(situation)
        return None if span is None else Plan(kind, span, ASKED, wish=wish)

    # --- writing in the background ----------------------------------------------------------------------------------

    def _start_due(self) -> None:
        if self._flying is None and self._ready is None:
            plan = self._due(self.situation())
            if plan is not None:
                self._start(plan)

    def _start(self, plan: Plan) -> None:
        reading = read(plan, self.situation())
        try:
            self._flying = self.spawn(self._write(reading), name=f"{plan.kind.value} of {self.conversation.id}")
        except Stopped:
            return
        self._flying_plan = plan
        self.conversation.tell(Folding(self.conversation.id, plan.kind, plan.why))

    async def _write(self, reading: Reading) -> None:
        """The task of a fold in flight. Its end is told whatever it is."""
        plan = reading.plan
        try:
            wait = reading.situation.policy.summary_wait
            self._ready = await self._writer.write(reading, self.conversation.new_fold(plan.kind), wait)
        except HelixError as error:
            await self._failed(plan.kind, error.what, spent_on(error))
        except Exception:
            log.exception("a %s could not be written", plan.kind.value)
            await self._failed(plan.kind, "a bug in Helix Desktop (see the log)")
        finally:
            self._flying, self._flying_plan = None, None
            self.conversation.tell(Folding(self.conversation.id, plan.kind, plan.why, done=True))

    async def _failed(self, kind: FoldKind, why: str, spent: Sequence[Fact] = ()) -> None:
        self._failed_at[kind] = self._clock.now()
        await self.conversation.append(*spent, FoldFailed(kind, why))

    async def _finished(self) -> tuple[Recorded, ...]:
        """What the fold in flight came to, adopted."""
        flying = self._flying
        if flying is not None:
            await asyncio.wait([flying])
        if self._ready is None:
            failures = [r.fact for r in self.conversation.state.facts[-3:] if isinstance(r.fact, FoldFailed)]
            raise NothingWritten(f"Nothing was folded: {failures[-1].why if failures else 'it was cancelled'}")
        recorded = await self.adopt()
        if not recorded and self._ready is None:
            raise NothingWritten("Nothing was folded: the messages changed in the meantime")
        return recorded

    async def adopt(self) -> tuple[Recorded, ...]:
        """Append what is ready, if the covered facts are still the same; clearing is taken along. What was begun in a
        turn that is over by now waits for the next one: between turns the last one stays whole.
        """
        ready = self._ready
        if ready is None:
            return ()
        same = still_same(ready.reading, self.conversation.state)
        if same and ready.reading.plan.span.last >= tail_start(self.situation()):
            return ()
        if not same:
            log.info("%s was not adopted: what it covers has changed", ready.fold.fold)
            await self._drop()
            return ()
        self._ready = None
        recorded = await self.append(ready)
        if recorded and self.conversation.policy.caching != "off":
            situation = self.situation()
            along = caching.everything_old(situation, tail_start(situation))
            if along is not None:
                await self._sweeping.sweep(along.parts(situation), along.why, batch=ready.fold.fold)
        return recorded

    async def append(self, written: Written) -> tuple[Recorded, ...]:
        """Phase three."""

        def facts(_: int) -> tuple[Fact, ...]:
            same = still_same(written.reading, self.conversation.state)
            return (*written.spent, *((written.fold,) if same else ()))

        recorded = await self.conversation.append_made(facts)
        return tuple(one for one in recorded if isinstance(one.fact, Folded))

    # --- clearing and panic -----------------------------------------------------------------------------------------

    async def _clear(self) -> None:
        situation = self.situation()
        clearing = caching.due(situation)
        if clearing is not None:
            await self._sweeping.sweep(clearing.parts(situation), clearing.why)

    async def _panic(self, *, overflowed: bool) -> None:
        """The ladder, until the next request fits."""
        aid = Aid(self.situation, self.spawn, self.append, self.flown)
        await Panic(self.conversation, self._writer, self._sweeping, aid).climb(overflowed=overflowed)

    async def flown(self, seconds: float) -> bool:
        """Wait for the fold in flight, if there is one, and adopt it. False where it had to be given up."""
        flying, plan = self._flying, self._flying_plan
        if flying is None or plan is None:
            return True
        why = await self._writer.wait_for(flying, self.conversation.policy, seconds)
        if why:
            self.cancel()
            await self._failed(plan.kind, why)
            return False
        await self.adopt()
        return True

    async def _guarded(self, kind: FoldKind, work: Callable[[], Awaitable[object]]) -> None:
        """A failure of a strategy is recorded and never fails a turn."""
        try:
            await work()
        except HelixError as error:
            log.info("%s failed: %s", kind.value, type(error).__name__)  # its words may be a provider's
            await self._failed(kind, error.what)
        except Exception:
            log.exception("a %s failed", kind.value)
            await self._failed(kind, "a bug in Helix Desktop (see the log)")


def _no_model(_: ModelRole) -> ModelClient | None:
    return None


def _not_now(coroutine: Coroutine[Any, Any, T], /, *, name: str) -> asyncio.Task[T]:
    coroutine.close()
    raise Stopped(f"{name} is not available yet.")


def outlook(situation: Situation) -> str:
    """What the policy will do later, and from which figures on."""
    policy, window = situation.policy, situation.meter.window
    later = []
    if policy.caching == "steps":
        later.append(f"outputs older than {policy.caching_steps} steps become markers")
    if policy.caching == "pays":
        later.append("old outputs become markers if that saves money")
    if policy.observation:
        later.append(f"above {policy.observation_share * window:,.0f} tokens, history is condensed into observations")
    if policy.handover == "pays":
        later.append(f"a handover is written above {handover.floor(situation):,.0f} tokens if that saves money")
    if policy.handover in ("share", "pays"):
        later.append(f"always at {handover.latest(situation):,.0f} tokens")
    if not later:
        return "This policy folds nothing."
    return f"Later: {', '.join(later)}."
