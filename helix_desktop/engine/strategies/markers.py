"""Shows old outputs, and long arguments of old calls, as markers.

A marker's first line is `[CACHED] recall_cached_content("<sha256>")`. The second lets the model
decide whether it needs the original. The text is kept in the fold's fact, so it never changes.
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import replace

from helix_desktop.engine import context_usage, fold_economics
from helix_desktop.engine.facts import PartRef, Span, Stored, ToolCall, ToolReturned
from helix_desktop.engine.fold_economics import ClearablePart, FoldExperience
from helix_desktop.engine.message_blocks import is_long_value
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.prompt_cache_terms import cache_lifetime_seconds, prices_of_main_model
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.state.view_items import MARKER_TOKENS, ViewItem, is_worth_a_marker
from helix_desktop.engine.strategies.fold_strategy import (
    FoldSituation,
    first_seq_of_tail,
    was_restored_by_user,
)
from helix_desktop.engine.tool_names import RECALLS
from helix_desktop.engine.tool_result_reading import parse_call_arguments, read_refusal
from helix_desktop.errors import format_things, shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import parse_json_or_none

EXAMINED_ITEMS = 512  # This many of the newest items are examined one by one, older ones in groups.
# The share of parts that are recalled is learned from this many of the last steps.
RECALL_STEPS = 200
LEAST_SHARE = 0.015  # A part with a smaller share of the context is not replaced by a marker.
# The growth of the context and the pauses are learned from this many of the last steps.
RECENT_STEPS = 20
ASK = " · ask with find or lines"
LONGEST_ARGUMENT = 100  # A marker's second line quotes up to this many characters of the arguments.


@dataclass(frozen=True, slots=True)
class PlannedClearing:
    """Says that parts of the messages from `first` to before `end` become markers, and
    by which rule.

    `least`: smaller parts stay. The parts are found when it is carried out, so a plan
    costs nothing.
    """

    first: int
    end: int
    why: str
    least: int = 0

    def parts_to_clear(self, situation: FoldSituation) -> list[PartRef]:
        freed = tokens_freed_between(situation, self.first, self.end)
        return [ref for ref, tokens in freed if tokens + MARKER_TOKENS >= self.least]


def find_due_clearing(situation: FoldSituation) -> PlannedClearing | None:
    """Plan what the policy wants replaced by markers now, or return None."""
    if situation.policy.caching == "steps":
        return clearing_after_steps(situation)
    if situation.policy.caching == "pays":
        return clearing_that_pays(situation)
    return None


def clearing_after_steps(situation: FoldSituation) -> PlannedClearing | None:
    """Plan to clear long outputs from before the last N steps, once some are twice as old.

    To clear is to show a marker, one line, in place of an output. One marker at each step would
    have the provider cache the rest anew at each step. If its cache has expired anyway, there is
    nothing to wait for.
    """
    branch = situation.branch
    policy = situation.policy
    kept_steps = policy.caching_steps
    if len(branch.steps) <= kept_steps:
        return None
    end = min(branch.steps[-kept_steps], first_seq_of_tail(situation))
    why = f"older than {kept_steps} steps and at least {policy.caching_tokens} tokens long"
    clearing = PlannedClearing(branch.order[0], end, why, policy.caching_tokens)
    if not context_usage.is_cache_cold(situation.state, situation.now):
        end_of_overdue = branch.order[0]
        if len(branch.steps) > 2 * kept_steps:
            end_of_overdue = branch.steps[-2 * kept_steps]
        clearing_of_overdue = replace(clearing, end=min(end_of_overdue, end))
        if not _clears_anything(situation, clearing_of_overdue):
            return None
    if not _clears_anything(situation, clearing):
        return None
    return clearing


def clearing_that_pays(situation: FoldSituation) -> PlannedClearing | None:
    """Plan to clear old outputs from a place on, if caching what follows again costs less than
    sending fewer tokens saves. To clear is to show one line in place of an output.
    """
    branch = situation.branch
    meter = situation.meter
    end = first_seq_of_tail(situation)
    context_parts = _measure_context_parts(situation, end)
    clearable_tokens = sum(part.frees for part in context_parts)
    if clearable_tokens <= 0:
        return None
    if context_usage.is_cache_cold(situation.state, situation.now):
        least_share = situation.policy.caching_cold_share
        if not fold_economics.pays_to_clear_when_cold(clearable_tokens, meter.used, least_share):
            return None
        why = "the provider's cache has expired, so sending less costs nothing extra"
        return PlannedClearing(branch.order[0], end, why)

    index = fold_economics.find_clearing_start(
        context_parts,
        clearable_tokens_per_step(branch) * meter.factor,
        prices_of_main_model(situation.state),
        chance_of_cold_cache(situation),
        least=min(situation.policy.caching_least, meter.window // 8),
        experience=measure_fold_experience(situation),
    )
    if index is None:
        return None
    first_cleared = context_parts[index].first
    why = "sending less from here on saves more than it costs"
    return PlannedClearing(first_cleared, end, why)


def plan_clearing_of_all_before(situation: FoldSituation, end: int) -> PlannedClearing | None:
    """Plan to clear everything before `end`, as another fold changes the prefix anyway."""
    if not situation.branch.order:
        return None
    why = "replaced now, because the context is shortened anyway"
    clearing = PlannedClearing(situation.branch.order[0], end, why)
    if not _clears_anything(situation, clearing):
        return None
    return clearing


def count_freed_tokens(situation: FoldSituation, clearing: PlannedClearing) -> int:
    freed = tokens_freed_between(situation, clearing.first, clearing.end)
    return sum(tokens for _, tokens in freed)


def _clears_anything(situation: FoldSituation, clearing: PlannedClearing) -> bool:
    freed = tokens_freed_between(situation, clearing.first, clearing.end)
    return any(tokens + MARKER_TOKENS >= clearing.least for _, tokens in freed)


def _measure_context_parts(situation: FoldSituation, end: int) -> list[ClearablePart]:
    """Return all that the next request would have, in order and in billed tokens: the system
    prompt, older messages in groups, and each of the newest messages, with what clearing it frees.
    """
    branch = situation.branch
    newest_items = branch.items[-EXAMINED_ITEMS:]
    first_examined = 0
    if newest_items:
        first_examined = newest_items[0].first

    counted_parts = _group_older_items(branch, first_examined)
    outputs_to_clear = _plain_outputs_between(branch, first_examined, end)
    least_to_clear = _least_tokens_to_clear(situation)
    for item in newest_items:
        freed_tokens = 0
        if item.first in outputs_to_clear:
            freed_by_part = tokens_freed_by_part(situation, item, least_to_clear)
            freed_tokens = sum(tokens for _ref, tokens in freed_by_part)
        counted_parts.append(ClearablePart(item.tokens, freed_tokens, item.first))

    billed_for_counted = situation.meter.factor
    system_tokens = situation.meter.parts[ContextKind.SYSTEM]
    context_parts = [ClearablePart(system_tokens)]
    for part in counted_parts:
        billed_tokens = round(part.tokens * billed_for_counted)
        billed_freed = round(part.frees * billed_for_counted)
        context_parts.append(ClearablePart(billed_tokens, billed_freed, part.first))
    return context_parts


def _plain_outputs_between(branch: ConversationBranch, first: int, end: int) -> frozenset[int]:
    """Return the messages with a part worth a marker, from `first` to before `end`."""
    outputs = branch.plain_outputs
    return frozenset(outputs[bisect_left(outputs, first) : bisect_left(outputs, end)])


def _group_older_items(branch: ConversationBranch, before_seq: int) -> list[ClearablePart]:
    """Return the messages before another one in groups, in counted tokens. Each group has twice
    as many as the next newer one, so that there are few even in a very long conversation.
    """
    groups = []
    group_end = branch.message_position(before_seq)
    group_size = EXAMINED_ITEMS
    while group_end > 0:
        group_start = max(0, group_end - group_size)
        tokens = branch.token_sums.sum_between(group_start, group_end)
        freed_tokens = branch.freed_sums.sum_between(group_start, group_end)
        groups.append(ClearablePart(tokens, freed_tokens, branch.order[group_start]))
        group_end = group_start
        group_size *= 2
    groups.reverse()
    return groups


def _least_tokens_to_clear(situation: FoldSituation) -> float:
    """Return how long a part must be to be worth clearing. A recall rereads everything."""
    return min(LEAST_SHARE * situation.state.counted_tokens, situation.policy.caching_tokens)


def tokens_freed_between(
    situation: FoldSituation, first: int, end: int
) -> Iterator[tuple[PartRef, int]]:
    """Yield the clearable parts from `first` to before `end`, with the tokens each frees."""
    branch = situation.branch
    least = _least_tokens_to_clear(situation)
    items = branch.items_in_span(Span(first, end - 1))
    long_items = [item for item in items if item.tokens >= least]
    if not long_items:  # Few are long, and finding them is fast.
        return
    outputs_to_clear = _plain_outputs_between(branch, first, end)
    for item in long_items:
        if item.first in outputs_to_clear:
            yield from tokens_freed_by_part(situation, item, least)


def tokens_freed_by_part(
    situation: FoldSituation, item: ViewItem, least: float
) -> Iterator[tuple[PartRef, int]]:
    """Yield a message's clearable parts of at least so many tokens, with the tokens each frees."""
    for block in item.blocks:
        ref = block.source
        if not isinstance(ref, PartRef):
            continue
        if block.tokens < least or not is_worth_a_marker(block):
            continue
        if not _must_stay_whole(situation, block, ref):
            yield ref, block.tokens - MARKER_TOKENS


def _must_stay_whole(situation: FoldSituation, block: Block, ref: PartRef) -> bool:
    branch = situation.branch
    policy = situation.policy
    if block.role is Role.ASSISTANT:
        is_long = block.tokens > policy.argument_tokens
        if not policy.arguments or not is_long:
            return True
    return branch.is_pinned(ref) or branch.is_excluded(ref) or was_restored_by_user(situation, ref)


def measure_fold_experience(situation: FoldSituation) -> FoldExperience:
    """Return how much of what folds saved in the last steps was spent on recalls.

    A step that only recalls originals would not have been needed without folds. Each other step
    has saved the tokens by which it was shorter.
    """
    branch = situation.branch
    ledger = situation.state.record.ledger
    prices = prices_of_main_model(situation.state)
    saved = 0.0
    cost_of_recalls = 0.0
    for seq in branch.steps[-RECALL_STEPS:]:
        view_tokens = ledger.shown[seq - 1]
        view_tokens_without_folds = ledger.whole[seq - 1]
        calls = branch.calls_of_reply(seq)
        only_recalls = bool(calls) and all(pending.call.name in RECALLS for pending in calls)
        if only_recalls:
            cost_of_recalls += fold_economics.recall_cost(view_tokens, len(calls), prices)
        else:
            saved += prices.read * max(0, view_tokens_without_folds - view_tokens)
    cost_of_next_recall = fold_economics.recall_cost(situation.meter.used, 1, prices)
    return FoldExperience(
        recalled=fold_economics.recall_cost_share(saved, cost_of_recalls),
        steps=len(branch.steps),
        recall=fold_economics.RECALLS_EXPECTED * cost_of_next_recall,
    )


def clearable_tokens_per_step(branch: ConversationBranch) -> float:
    """Return the clearable tokens that a step adds: the mean of the last steps."""
    tokens_of_recent_steps = branch.clearable[-RECENT_STEPS:]
    if not tokens_of_recent_steps:
        return 0.0
    return sum(tokens_of_recent_steps) / len(tokens_of_recent_steps)


def chance_of_cold_cache(situation: FoldSituation) -> float:
    """Return the chance, learned from pauses, that the provider's cache has expired at
    the next request.
    """
    # There is one pause fewer than there are steps.
    step_times = situation.branch.step_times[-(RECENT_STEPS + 1) :]
    pauses = [later - earlier for earlier, later in itertools.pairwise(step_times)]
    if not pauses:
        return 0.0
    lifetime_seconds = cache_lifetime_seconds(situation.state)
    longer_pauses = [pause for pause in pauses if pause > lifetime_seconds]
    return len(longer_pauses) / len(pauses)


# --- The text of markers ---


def format_marker(digest: Digest, description: str, *, part: bool = False) -> str:
    """Return a marker's two lines. `part`: the second says that a part can be requested."""
    second_line = " ".join(description.split())
    if part:
        second_line += ASK
    return f'[CACHED] recall_cached_content("{digest.hex}")\n{second_line}'


def describe_output(branch: ConversationBranch, seq: int) -> str:
    """Describe an output: tool, short arguments, exit code, lines and size."""
    result = branch.tool_output_at(seq)
    call = call_answered_by(branch, seq)
    source = "output"
    if call is not None:
        source = f"{call.name} {summarise_arguments(call.arguments)}".strip()
    pieces = [source, _describe_outcome(result)]
    if result.output.lines:
        pieces.append(format_things(result.output.lines, "line", "lines"))
    pieces.append(format_size(result.output))
    return " · ".join(filter(None, pieces))


def _describe_outcome(result: ToolReturned) -> str:
    if result.exit_code is not None:
        return f"exit {result.exit_code}"
    if result.ok:
        return ""
    if read_refusal(result.head) is None:
        return "failed"
    return "not run"


def call_answered_by(branch: ConversationBranch, seq: int) -> ToolCall | None:
    """Return the call whose result is the message `seq`, or None."""
    pending_call = branch.answered.get(seq)
    if pending_call is None:
        return None
    return pending_call.call


def content_to_store(arguments: str) -> str:
    """Return what to store of arguments: the only long value as it is, or all of them."""
    values = parse_call_arguments(arguments).values()
    long_values = [value for value in values if is_long_value(value)]
    if len(long_values) == 1 and isinstance(long_values[0], str):
        return long_values[0]
    return arguments


def summarise_arguments(arguments: str) -> str:
    """Return the arguments' short values on one line, or the long ones if there are no others."""
    values = parse_json_or_none(arguments)
    if values is None:
        return shorten_to_line(arguments, LONGEST_ARGUMENT)
    if not isinstance(values, dict):
        return shorten_to_line(str(values), LONGEST_ARGUMENT)
    texts = [str(value) for value in values.values() if isinstance(value, str | int | float)]
    short_texts = " ".join(text for text in texts if len(text) <= LONGEST_ARGUMENT)
    if short_texts:
        return shorten_to_line(short_texts, LONGEST_ARGUMENT)
    return shorten_to_line(" ".join(texts), LONGEST_ARGUMENT)


def format_size(stored: Stored) -> str:
    if stored.size < 1_000:
        return f"{stored.size} B"
    amount = stored.size / 1_000
    for unit in ("KB", "MB"):
        if amount < 1_000:
            return f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} GB"
