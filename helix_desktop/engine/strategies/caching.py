"""Caching: old outputs, and long arguments of old calls, are shown as markers.

A marker's first line is `[CACHED] recall_cached_content("<sha256>")`, the second lets the model decide whether it
needs the original. The text is kept in the fold's fact, so it never changes.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_left
from collections.abc import Iterator

from helix_desktop.engine import budget, economics
from helix_desktop.engine.blocks import Block, Kind, Role
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.economics import Standing
from helix_desktop.engine.facts import ModelRole, PartRef, Stored, ToolCall
from helix_desktop.engine.history.branch import Branch
from helix_desktop.engine.history.shown import MARKER_TOKENS, Item, worth_a_marker
from helix_desktop.engine.parts import is_long
from helix_desktop.engine.strategies.plan import Situation, is_barred, tail_start
from helix_desktop.values import dataclass

COLD_AFTER = 300.0  # seconds after which the providers' caches have forgotten
EXACT = 512  # items of the view that are looked at one by one
LATELY = 20  # steps from which growth and pauses are learned
ASK = " · ask with find or lines"
ARGUMENT = 100  # characters of an argument in a marker's second line


@dataclass(frozen=True, slots=True)
class Clearing:
    """Everything from the message `first` to before the message `end` that may become a marker, and the rule.

    `least`: parts shorter than so many tokens stay. Which parts these are is found when it is carried out: a clearing
    that is only asked for costs nothing.
    """

    first: int
    end: int
    why: str
    least: int = 0

    def parts(self, situation: Situation) -> list[PartRef]:
        """The parts, in order."""
        return [
            ref
            for item in old_items(situation.branch, self.first, self.end)
            for ref, tokens in frees(situation, item)
            if tokens + MARKER_TOKENS >= self.least
        ]


def due(situation: Situation) -> Clearing | None:
    """What is to be cleared now by the workspace's policy, or None."""
    if situation.policy.caching == "steps":
        return after_steps(situation)
    if situation.policy.caching == "pays":
        return when_it_pays(situation)
    return None


def after_steps(situation: Situation) -> Clearing | None:
    """Outputs of some length from before the last N steps."""
    branch, policy = situation.branch, situation.policy
    steps = policy.caching_steps
    if len(branch.steps) <= steps:
        return None
    end = min(branch.steps[-steps], tail_start(situation))
    why = f"older than {steps} steps, at least {policy.caching_tokens} tokens"
    clearing = Clearing(branch.order[0], end, why, policy.caching_tokens)
    return clearing if _any(situation, clearing) else None


def when_it_pays(situation: Situation) -> Clearing | None:
    """All from one place on, where what is freed is worth writing the provider's cache again from there."""
    branch, meter = situation.branch, situation.meter
    end = tail_start(situation)
    standing, firsts = _standing(situation, end)
    total = sum(part.frees for part in standing)
    if total <= 0:
        return None
    if is_cold(situation):
        if not economics.clear_when_cold(total, meter.used, situation.policy.caching_cold_share):
            return None
        return Clearing(branch.order[0], end, f"the provider's cache has expired, and {total:,} tokens are freed")
    index = economics.clear_from(
        standing,
        growth(branch) * meter.factor,
        budget.prices(situation.state.settings.model(ModelRole.MAIN)),
        cold_chance(branch),
        least=min(situation.policy.caching_least, meter.window // 8),
        crowded=economics.is_crowded(meter.used, meter.window),
    )
    if index is None:
        return None
    freed = sum(part.frees for part in standing[index:])
    return Clearing(
        firsts[index], end, f"replacing outputs from #{firsts[index]} onward frees {freed:,} tokens and saves money"
    )


def everything_old(situation: Situation, end: int) -> Clearing | None:
    """All that can be cleared before the message `end`: another fold rewrites the prefix anyway."""
    if not situation.branch.order:
        return None
    clearing = Clearing(situation.branch.order[0], end, "replaced along with a fold that changes the context anyway")
    return clearing if _any(situation, clearing) else None


def freed(situation: Situation, clearing: Clearing) -> int:
    """The counted tokens it would free."""
    items = old_items(situation.branch, clearing.first, clearing.end)
    return sum(tokens for item in items for _, tokens in frees(situation, item))


def _any(situation: Situation, clearing: Clearing) -> bool:
    """Whether there is a part to clear at all; the newest are looked at first."""
    for item in reversed(old_items(situation.branch, clearing.first, clearing.end)):
        if any(tokens + MARKER_TOKENS >= clearing.least for _, tokens in frees(situation, item)):
            return True
    return False


def _standing(situation: Situation, end: int) -> tuple[list[Standing], list[int]]:
    """The view part by part as the rule wants it, and the message each part begins with.

    The newest items stand for themselves; older ones, where there are very many, in groups that grow with their age.
    """
    branch, factor = situation.branch, situation.meter.factor
    items = branch.items[-EXACT:]
    exact = items[0].first if items else 0
    firsts, standing = [0], [Standing(situation.meter.parts[Kind.SYSTEM])]
    for first, tokens, freed in _groups(branch, exact):
        firsts.append(first)
        standing.append(Standing(round(tokens * factor), round(freed * factor)))
    plain = branch.plain_outputs
    old = frozenset(plain[bisect_left(plain, exact) : bisect_left(plain, end)])
    for item in items:
        freed = sum(tokens for _, tokens in frees(situation, item)) if item.first in old else 0
        firsts.append(item.first)
        standing.append(Standing(round(item.tokens * factor), round(freed * factor)))
    return standing, firsts


def _groups(branch: Branch, before: int) -> list[tuple[int, int, int]]:
    """First message, tokens and clearable tokens of the groups of all that stands before the message `before`."""
    groups = []
    stop, width = branch.position(before), EXACT
    while stop > 0:
        start = max(0, stop - width)
        tokens, freed = branch.token_sums.between(start, stop), branch.freed_sums.between(start, stop)
        groups.append((branch.order[start], tokens, freed))
        stop, width = start, width * 2
    return groups[::-1]


# --- what there is to clear ------------------------------------------------------------------------------------------


def old_items(branch: Branch, first: int, end: int) -> list[Item]:
    """The messages from `first` to before `end` with a part worth a marker."""
    chosen = branch.plain_outputs[bisect_left(branch.plain_outputs, first) : bisect_left(branch.plain_outputs, end)]
    return [branch.item_at(seq) for seq in chosen]


def frees(situation: Situation, item: Item) -> Iterator[tuple[PartRef, int]]:
    """Each part of the message that may be cleared, with the tokens this frees."""
    for block in item.blocks:
        ref = block.source
        if worth_a_marker(block) and isinstance(ref, PartRef) and not _must_stay(situation, block, ref):
            yield ref, block.tokens - MARKER_TOKENS


def _must_stay(situation: Situation, block: Block, ref: PartRef) -> bool:
    branch = situation.branch
    if block.role is Role.ASSISTANT and not (situation.policy.arguments and _argument_goes(situation, block, ref)):
        return True
    return branch.is_pinned(ref) or branch.is_excluded(ref) or is_barred(branch, ref)


def _argument_goes(situation: Situation, block: Block, ref: PartRef) -> bool:
    """By length, by age, and by whether a later call gave a newer text of the same file."""
    branch, policy = situation.branch, situation.policy
    tokens = block.tokens * economics.LONG_ARGUMENT // policy.argument_tokens
    key = branch.text_keys.get(ref)
    newest = None if key is None else branch.newest_text[key] == ref
    age = len(branch.steps) - branch.born[ref.seq]
    price = budget.prices(situation.state.settings.model(ModelRole.MAIN))
    return economics.argument_goes(tokens, age, price, newest=newest, tail=policy.tail_steps)


def growth(branch: Branch) -> float:
    """Clearable tokens that a step adds: the mean of the last steps."""
    recent = branch.clearable[-LATELY:]
    return sum(recent) / len(recent) if recent else 0.0


def cold_chance(branch: Branch) -> float:
    """The learned chance that the provider's cache is cold at the next request."""
    times = branch.step_times[-LATELY - 1 :]
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    return sum(pause > COLD_AFTER for pause in pauses) / len(pauses) if pauses else 0.0


def is_cold(situation: Situation) -> bool:
    """Whether so much time has passed since the last step that the provider's cache is cold now."""
    times = situation.branch.step_times
    return bool(times) and situation.now - times[-1] > COLD_AFTER


# --- markers ---------------------------------------------------------------------------------------------------------


def marker(digest: Digest, about: str, *, part: bool = False) -> str:
    """The text of a marker: the exact first line, then one line about the original. `part`: it is long, and says that a
    part can be asked for.
    """
    line = " ".join(about.split())
    return f'[CACHED] recall_cached_content("{digest.hex}")\n{line}{ASK if part else ""}'


def about_output(branch: Branch, seq: int) -> str:
    """Tool, arguments in short, exit code, lines, size."""
    fact, call = branch.output(seq), call_of(branch, seq)
    said = f"{call.name} {short_arguments(call.arguments)}" if call else "output"
    code = f"exit {fact.exit_code}" if fact.exit_code is not None else "" if fact.ok else "failed"
    lines = f"{fact.output.lines:,} lines" if fact.output.lines else ""
    return " · ".join(piece for piece in (said.strip(), code, lines, size(fact.output)) if piece)


def call_of(branch: Branch, seq: int) -> ToolCall | None:
    """The call an output answers."""
    answered = branch.answered.get(seq)
    return answered.call if answered else None


def long_value(arguments: str) -> str:
    """What of the arguments goes to the cache: the one long value as it is, else all of them."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    long = [value for value in values.values() if is_long(value)] if isinstance(values, dict) else []
    return long[0] if len(long) == 1 and isinstance(long[0], str) else arguments


def short_arguments(arguments: str) -> str:
    """The arguments in a few words, the telling ones first."""
    try:
        values = json.loads(arguments)
    except (ValueError, RecursionError):
        values = arguments
    if isinstance(values, dict):
        shown = [str(value) for value in values.values() if isinstance(value, str | int | float)]
        values = " ".join(text for text in shown if len(text) <= ARGUMENT) or " ".join(shown)
    text = " ".join(str(values).split())
    return text if len(text) <= ARGUMENT else text[: ARGUMENT - 1] + "…"


def size(stored: Stored) -> str:
    """A size for people."""
    amount = float(stored.size)
    for unit in ("B", "KB", "MB"):
        if amount < 1_000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1_000
    return f"{amount:.1f} GB"
