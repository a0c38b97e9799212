"""Shortens a request that would not fit, in several ways in turn. The last ways need no model."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager

from helix_desktop.engine.context_usage import estimate_billed_tokens
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import FoldFailed, FoldKind, PartRef, Reasoning, Span
from helix_desktop.engine.failed_fold_attempts import FailedFoldAttempts
from helix_desktop.engine.fold_document_writer import (
    LEAST_DOCUMENT_TOKENS,
    DocumentMaterial,
    FoldDocumentWriter,
    WrittenDocument,
    gather_material,
    reason_not_to_fold,
)
from helix_desktop.engine.marker_folding import PartShortener
from helix_desktop.engine.messages import Block, Role
from helix_desktop.engine.session_setup import TaskSpawner
from helix_desktop.engine.strategies import fold_strategy, markers, truncation
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass

LARGE_PART = 700  # When a request does not fit, parts with more tokens are replaced by excerpts.
EXCERPT = 300  # The number of tokens in the excerpt that replaces a longer part.
# In a small window, beside tools that take half of it, even parts of a usual size are too much.
USUAL_PART = 250
SHORT_EXCERPT = 120
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
    """What `ConversationFolding` provides. `wait_for_fold`: False if it was cancelled. `show_writing`:
    the user is shown that a fold is being written, and can stop its task, as long as this is open.
    """

    situation: Callable[[], fold_strategy.FoldSituation]
    spawn: TaskSpawner
    append: Callable[[WrittenDocument], Awaitable[object]]
    wait_for_fold: Callable[[float], Awaitable[bool]]
    failed: FailedFoldAttempts
    record_failure: Callable[[FoldKind, str], Awaitable[object]]
    show_writing: Callable[
        [fold_strategy.FoldPlan, asyncio.Task[WrittenDocument]], AbstractContextManager[None]
    ]


def estimate_tokens_left_without_model(situation: fold_strategy.FoldSituation) -> int:
    """Return how many tokens are left of the next request after the measures that are taken before
    a model is asked for a summary: excerpts of huge parts, and one line for each old output.
    """
    meter = situation.meter
    policy = situation.policy
    target = meter.window - meter.reserve
    freed_tokens = 0

    def tokens_left() -> int:
        return meter.used - round(freed_tokens * meter.factor)

    huge_part = meter.window * policy.oversized_share
    excerpted: set[PartRef] = set()
    if policy.truncation:
        blocks = situation.state.get_view().blocks
        for tokens, ref in sorted(_find_large_parts(blocks, huge_part), reverse=True):
            if tokens_left() <= target:
                return tokens_left()
            freed_tokens += tokens - EXCERPT
            excerpted.add(ref)
    if policy.caching != "off" and tokens_left() > target and situation.branch.order:
        first = situation.branch.order[0]
        end = fold_strategy.first_seq_kept_in_panic(situation)
        for ref, freed_by_part in markers.tokens_freed_between(situation, first, end):
            if ref not in excerpted:
                freed_tokens += freed_by_part
    return tokens_left()


class RequestShortener:
    """Shortens one request. `_target`: the tokens that it may have. `_waited`: the seconds that
    were spent waiting for a fold. `_may_ask`: whether a model may still be asked. `_was_any_taken`:
    whether any measure was taken.
    """

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
        self._was_any_taken = False

    async def reduce_until_it_fits(self, *, overflowed: bool) -> None:
        """Shorten the next request, one measure after another, until it fits the window.

        `overflowed`: the provider refused what the meter thought would fit. Record a failure
        if the request still does not fit.
        """
        meter = self._conversation.current_meter()
        self._target = meter.window - meter.reserve
        if overflowed:
            self._target = min(self._target, int(meter.used * OVERFLOW_SHARE))
        await self._take_measures()
        if not self._was_any_taken or self._target_is_met():
            return
        figures = self._conversation.current_meter().format_meter()
        reason = f"everything that can be shortened is already shortened, and the context window still contains {figures}"
        failure = FoldFailed(FoldKind.TRUNCATION, reason)
        # Record the failure only once, even if the request is tried several times.
        newest_fact = self._conversation.state.facts[-1].fact
        if newest_fact != failure:
            await self._conversation.append_facts(failure)

    async def reduce_without_model(self, target: int) -> None:
        """Shorten old parts until so many tokens are left, as far as that is possible."""
        self._target = target
        self._may_ask = False
        await self._take_measures()

    async def _take_measures(self) -> None:
        """Take one measure after another until the target is met, the one that loses least first.

        First, huge parts become excerpts, and old outputs one-line markers. Then a model is asked
        for a summary, the handover. If that is not enough either, history is cut off without a
        model, so that fewer and fewer of the last steps stay.
        """
        policy = self._conversation.policy
        window = self._conversation.current_meter().window
        if policy.truncation:
            huge_part = window * policy.oversized_share
            await self._take_if_needed(self._excerpt_largest_parts, huge_part)
        if policy.caching != "off":
            await self._take_if_needed(self._replace_old_parts_with_markers)
        if policy.handover != "off" and self._may_ask:
            await self._take_if_needed(self._wait_for_fold_or_give_up)
            await self._take_if_needed(self._try_handover)
        if not policy.truncation:
            return
        await self._take_if_needed(self._excerpt_largest_parts, LARGE_PART)
        for steps in KEPT_STEPS:
            if self._target_is_met():
                return
            if steps == KEPT_STEPS[-1] or self._truncation_may_suffice(steps):
                await self._take_if_needed(self._truncate_history, steps)
                await self._take_if_needed(self._excerpt_largest_parts, LARGE_PART)
        await self._take_if_needed(self._excerpt_largest_parts, USUAL_PART, SHORT_EXCERPT)

    async def _take_if_needed(
        self, measure: Callable[..., Awaitable[object]], *arguments: float
    ) -> None:
        """Take a measure with these arguments, unless the target is met already."""
        if self._target_is_met():
            return
        await measure(*arguments)
        self._was_any_taken = True
        await asyncio.sleep(0)  # Each measure looks at the whole, perhaps long, context.

    def _target_is_met(self) -> bool:
        return self._conversation.current_meter().used <= self._target

    def _truncation_may_suffice(self, steps: int) -> bool:
        """Whether truncation to so many steps, with large parts as excerpts, may suffice."""
        situation = self._aid.situation()
        branch = situation.branch
        state = situation.state
        first_kept = _first_seq_of_last_steps(situation, steps)
        truncated = Span(branch.order[0], first_kept - 1)
        kept_words_tokens = branch.count_tokens_kept_beside_fold(truncated, panic=True)
        tokens = state.settings.settings_tokens + kept_words_tokens + LEAST_DOCUMENT_TOKENS
        for item in branch.items_from_fact(first_kept):
            for block in item.blocks:
                if block.tokens > LARGE_PART and _is_excerptable(block):
                    tokens += EXCERPT
                else:
                    tokens += block.tokens
        return estimate_billed_tokens(tokens, state) <= self._target

    async def _replace_old_parts_with_markers(self) -> None:
        """Show one line in place of each old output, but not in the last steps."""
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
        """Have a model write a handover, the summary that replaces older messages.

        That is not done if too many attempts have failed, no time is left, a cost limit is
        reached, or there is too little for a summary to be shorter.
        """
        situation = self._aid.situation()
        span = fold_strategy.find_foldable_span(
            situation, fold_strategy.first_seq_kept_in_panic(situation)
        )
        seconds_left = situation.policy.panic_wait - self._waited
        if span is None or seconds_left <= 0 or not self._may_ask:
            return
        if self._aid.failed.is_over(FoldKind.HANDOVER):
            return
        if self._writer.spending.find_turn_end_at_limit():
            return

        plan = fold_strategy.FoldPlan(FoldKind.HANDOVER, span, WHY, panic=True)
        material = gather_material(plan, situation)
        if reason_not_to_fold(material):
            return
        reasons = await self._write_handover_or_return_reasons(material, seconds_left)
        for reason in reasons:
            await self._aid.record_failure(FoldKind.HANDOVER, reason)

    async def _write_handover_or_return_reasons(
        self, material: DocumentMaterial, seconds: float
    ) -> list[str]:
        """Write a handover in a task of its own, which can be given up, and append it.

        Return why it was not written, one reason for each way that was tried. There is none if the
        user stopped it alone: then the turn goes on, and the request is shortened without a model.
        """
        conversation = self._conversation
        name = conversation.new_fold_name(FoldKind.HANDOVER)
        ways = self._aid.failed.ways_left(FoldKind.HANDOVER)
        # A slow model that is waited for longer is also asked for longer.
        most_seconds = seconds + self._writer.seconds_added_for_document()
        writing = self._writer.write_document(material, name, most_seconds, ways)
        writing_task = self._aid.spawn(writing, name=f"handover of {conversation.id}")
        try:
            with self._aid.show_writing(material.plan, writing_task):
                reasons = await self._writer.wait_and_return_why_given_up(
                    writing_task, material.situation.policy, seconds
                )
            if not reasons and not writing_task.cancelled():
                await self._aid.append(writing_task.result())
        except HelixError as error:
            reasons = error.what
        finally:
            writing_task.cancel()
        return [reason for reason in reasons.split("; ") if reason]

    async def _excerpt_largest_parts(
        self, above_tokens: float, excerpt_tokens: int = EXCERPT
    ) -> None:
        """Shorten parts of more than so many tokens, largest first, until the request fits."""
        blocks = self._conversation.current_view().blocks
        for _, ref in sorted(_find_large_parts(blocks, above_tokens), reverse=True):
            if self._target_is_met():
                return
            try:
                await self._shortener.shorten_to_excerpt_or_marker(ref, WHY, excerpt_tokens)
            except HelixError:
                continue  # This measure failed, but the next, stronger one may still work.

    async def _truncate_history(self, steps: int) -> None:
        """Replace all but the last `steps` steps with a list of what is known of them, which is
        made without a model. A step is a reply with the results of its calls.
        """
        situation = self._aid.situation()
        plan = truncation.plan_truncation(situation, _first_seq_of_last_steps(situation, steps))
        if plan is None:
            return
        material = gather_material(plan, situation)
        freed_tokens = material.shown - material.kept
        # Freeing less than a twentieth of what is kept free for a reply is not worth a document.
        if freed_tokens <= situation.meter.reserve // 20:
            return
        name = self._conversation.new_fold_name(FoldKind.TRUNCATION)
        written_document = await self._writer.write_truncation(material, name)
        await self._aid.append(written_document)


def _first_seq_of_last_steps(situation: fold_strategy.FoldSituation, steps: int) -> int:
    branch = situation.branch
    if len(branch.steps) < steps:
        return branch.order[0]
    return branch.steps[-steps]


def _find_large_parts(blocks: Iterable[Block], above_tokens: float) -> list[tuple[int, PartRef]]:
    """Return the parts with more than so many tokens that may be shortened, and their tokens."""
    large_parts: list[tuple[int, PartRef]] = []
    for block in blocks:
        if block.tokens <= above_tokens or not isinstance(block.source, PartRef):
            continue
        if _is_excerptable(block):
            large_parts.append((block.tokens, block.source))
    return large_parts


def _is_excerptable(block: Block) -> bool:
    if block.role is Role.SYSTEM or block.pinned:
        return False
    return not isinstance(block.content, Reasoning)
