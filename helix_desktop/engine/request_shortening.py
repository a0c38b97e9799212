"""Shortens a request that would not fit, in several ways in turn. The last ways need no model."""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator

from helix_desktop.engine.context_usage import estimate_billed_tokens, reserved_tokens
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import FoldFailed, FoldKind, PartRef, Reasoning, Span
from helix_desktop.engine.failed_fold_attempts import FailedFoldAttempts
from helix_desktop.engine.fold_document_writer import (
    LEAST_DOCUMENT_TOKENS,
    FoldDocumentWriter,
    WrittenDocument,
    gather_material,
)
from helix_desktop.engine.marker_folding import PartShortener
from helix_desktop.engine.messages import Block, Role
from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.engine.strategies import fold_strategy, markers, truncation
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass

LARGE_PART = 700  # When a request does not fit, parts with more tokens are replaced by excerpts.
EXCERPT = 300  # The number of tokens in the excerpt that replaces a longer part.
KEPT_STEPS = (
    8,
    4,
    2,
    1,
)  # How many of the last steps truncation keeps, in each successive attempt.
OVERFLOW_SHARE = 0.8  # A request refused as too long is shortened to this share of its size.
WHY = "the next request would not fit"


@dataclass(frozen=True, slots=True)
class ShortenerSupport:
    """What `ConversationFolding` provides. `wait_for_fold`: False if it was cancelled."""

    situation: Callable[[], fold_strategy.FoldSituation]
    spawn: TaskSpawner
    append: Callable[[WrittenDocument], Awaitable[object]]
    wait_for_fold: Callable[[float], Awaitable[bool]]
    failed: FailedFoldAttempts
    record_failure: Callable[[FoldKind, str], Awaitable[object]]


class RequestShortener:
    def __init__(
        self,
        conversation: Conversation,
        writer: FoldDocumentWriter,
        shortener: PartShortener,
        aid: ShortenerSupport,
    ) -> None:
        self._conversation = conversation
        self._aid = aid
        self._writer = writer
        self._shortener = shortener
        self._target = 0
        self._waited = 0.0
        self._may_ask = True

    async def reduce_until_it_fits(self, *, overflowed: bool) -> None:
        """Try one measure after another. Record a failure if the request still does not fit."""
        meter = self._conversation.current_meter()
        room = meter.window - meter.reserve
        self._target = room
        if overflowed:
            # The provider refused what the meter thought would fit.
            self._target = min(room, int(meter.used * OVERFLOW_SHARE))
        tried = False
        for rung in self._reduction_steps():
            if self._target_is_met():
                return
            await rung()
            await asyncio.sleep(0)  # Each measure looks at the whole, perhaps long, context.
            tried = True
        if tried and not self._target_is_met():
            figures = self._conversation.current_meter().format_meter()
            why = f"everything that can be shortened is already shortened, and the context window still contains {figures}"
            failed = FoldFailed(FoldKind.TRUNCATION, why)
            # Record the failure only once, even if the request is tried several times.
            if self._conversation.state.facts[-1].fact != failed:
                await self._conversation.append_facts(failed)

    async def reduce_without_model(self, target: int) -> None:
        """Shorten old parts until so many tokens are left, as far as that is possible."""
        self._target = target
        self._may_ask = False
        for rung in self._reduction_steps():
            if self._target_is_met():
                return
            await rung()
            await asyncio.sleep(0)

    def _reduction_steps(self) -> Iterator[Callable[[], Awaitable[object]]]:
        """Yield measures, from the one that loses least: huge parts, markers, a
        summary, and those without a model.
        """
        policy = self._conversation.policy
        window = self._conversation.current_meter().window
        if policy.truncation:
            yield functools.partial(self._excerpt_largest_parts, window * policy.oversized_share)
        if policy.caching != "off":
            yield self._replace_old_parts_with_markers
        if policy.handover != "off" and self._may_ask:
            yield self._wait_for_fold_or_give_up
            yield self._try_handover
        if policy.truncation:
            yield functools.partial(self._excerpt_largest_parts, LARGE_PART)
            for steps in KEPT_STEPS:
                if steps == KEPT_STEPS[-1] or self._truncation_may_suffice(steps):
                    yield functools.partial(self._truncate_history, steps)
                    yield functools.partial(self._excerpt_largest_parts, LARGE_PART)

    def _target_is_met(self) -> bool:
        return self._conversation.current_meter().used <= self._target

    def _truncation_may_suffice(self, steps: int) -> bool:
        """Whether truncation to so many steps, with large parts as excerpts, may suffice."""
        situation = self._aid.situation()
        branch = situation.branch
        state = situation.state
        until = _first_seq_of_last_steps(situation, steps)
        words = branch.count_tokens_kept_beside_fold(Span(branch.order[0], until - 1), panic=True)
        tokens = state.settings.settings_tokens + words + LEAST_DOCUMENT_TOKENS
        for item in branch.items_from_fact(until):
            for block in item.blocks:
                if block.tokens > LARGE_PART and _is_excerptable(block):
                    tokens += EXCERPT
                else:
                    tokens += block.tokens
        return estimate_billed_tokens(tokens, state) <= self._target

    async def _replace_old_parts_with_markers(self) -> None:
        situation = self._aid.situation()
        clearing = markers.plan_clearing_of_all_before(
            situation, fold_strategy.first_seq_kept_in_panic(situation)
        )
        if clearing is not None:
            await self._shortener.replace_with_markers(
                clearing.parts_to_clear(situation), WHY, panic=True
            )

    async def _wait_for_fold_or_give_up(self) -> None:
        """Use the fold being written if it is finished in time. Otherwise, it is cancelled."""
        started = asyncio.get_running_loop().time()
        self._may_ask = await self._aid.wait_for_fold(self._conversation.policy.panic_wait)
        self._waited = asyncio.get_running_loop().time() - started

    async def _try_handover(self) -> None:
        """Ask a model for a handover, unless too many failed, or no time is left."""
        situation = self._aid.situation()
        span = fold_strategy.find_foldable_span(
            situation, fold_strategy.first_seq_kept_in_panic(situation)
        )
        left = situation.policy.panic_wait - self._waited
        failed = self._aid.failed
        broken = failed.is_over(FoldKind.HANDOVER)
        limit_reached = self._writer.spending.find_turn_end_at_limit()
        if span is None or broken or left <= 0 or not self._may_ask or limit_reached:
            return
        reading = gather_material(
            fold_strategy.FoldPlan(FoldKind.HANDOVER, span, WHY, panic=True), situation
        )
        conversation = self._conversation
        work = self._writer.write_document(
            reading,
            conversation.new_fold_name(FoldKind.HANDOVER),
            left,
            failed.ways_left(FoldKind.HANDOVER),
        )
        writing = self._aid.spawn(work, name=f"handover of {conversation.id}")
        try:
            why = await self._writer.wait_and_return_why_given_up(writing, situation.policy, left)
            if not why:
                await self._aid.append(writing.result())
        except HelixError as error:
            why = error.what
        finally:
            writing.cancel()
        for reason in filter(None, why.split("; ")):  # One for each way that was tried.
            await self._aid.record_failure(FoldKind.HANDOVER, reason)

    async def _excerpt_largest_parts(self, least: float) -> None:
        """Shorten parts of more than `least` tokens, largest first, until the request fits."""
        for _, ref in sorted(self._find_large_parts(least), reverse=True):
            if self._target_is_met():
                return
            try:
                await self._shortener.shorten_to_excerpt_or_marker(ref, WHY, EXCERPT)
            except HelixError:
                continue  # This measure failed, but the next, stronger one may still work.

    def _find_large_parts(self, least: float) -> list[tuple[int, PartRef]]:
        view = self._conversation.current_view()
        return [
            (block.tokens, block.source)
            for block in view.blocks
            if block.tokens > least and isinstance(block.source, PartRef) and _is_excerptable(block)
        ]

    async def _truncate_history(self, steps: int) -> None:
        situation = self._aid.situation()
        plan = truncation.plan_truncation(situation, _first_seq_of_last_steps(situation, steps))
        if plan is None:
            return
        reading = gather_material(plan, situation)
        if reading.shown - reading.kept <= reserved_tokens(situation.state, situation.policy) // 20:
            return
        await self._aid.append(
            await self._writer.write_truncation(
                reading, self._conversation.new_fold_name(FoldKind.TRUNCATION)
            )
        )


def _first_seq_of_last_steps(situation: fold_strategy.FoldSituation, steps: int) -> int:
    branch = situation.branch
    if len(branch.steps) < steps:
        return branch.order[0]
    return branch.steps[-steps]


def _is_excerptable(block: Block) -> bool:
    return (
        block.role is not Role.SYSTEM
        and not block.pinned
        and not isinstance(block.content, Reasoning)
    )
