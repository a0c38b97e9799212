"""Caching: old outputs, and long arguments of old calls, are shown as markers.

A marker's first line is `[CACHED] recall_cached_content("<sha256>")`, the second lets the model decide whether it
needs the original. The text is kept in the fold's fact, so it never changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from helix_desktop.engine import budget, economics
from helix_desktop.engine.blocks import Block, Kind, Role
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.economics import Standing
from helix_desktop.engine.facts import PartRef, Stored, ToolCall, ToolReturned
from helix_desktop.engine.line import MARKER_TOKENS, Item, Line, worth_a_marker
from helix_desktop.engine.parts import is_long
from helix_desktop.engine.strategies.names import names
from helix_desktop.engine.strategies.plan import Situation, is_barred, tail_start

COLD_AFTER = 300.0  # seconds after which the providers' caches have forgotten
LATELY = 20  # steps from which growth and pauses are learned
MARKER_NAMES = 90  # characters of names in a marker's second line
ARGUMENT = 100  # characters of an argument in a marker's second line


@dataclass(frozen=True, slots=True)
class Clearing:
    """Parts that become markers together, and the rule with its figures."""

    refs: tuple[PartRef, ...]
    why: str
    frees: int


def due(situation: Situation) -> Clearing | None:
    """What is to be cleared now by the workspace's policy, or None."""
    if situation.policy.caching == "steps":
        return after_steps(situation)
    if situation.policy.caching == "pays":
        return when_it_pays(situation)
    return None


def after_steps(situation: Situation) -> Clearing | None:
    """Outputs of some length from before the last N steps."""
    line, policy = situation.line, situation.policy
    steps = policy.caching_steps
    if len(line.steps) <= steps:
        return None
    before = min(line.steps[-steps], tail_start(situation))
    chosen = [
        (ref, tokens)
        for item in old_items(line, before)
        for ref, tokens in frees(situation, item)
        if tokens + MARKER_TOKENS >= policy.caching_tokens
    ]
    return _clearing(chosen, f"outputs older than {steps} steps, of {policy.caching_tokens} tokens and more")


def when_it_pays(situation: Situation) -> Clearing | None:
    """All from one place on, where what is freed is worth writing the provider's cache again from there."""
    policy = situation.policy
    old = old_items(situation.line, tail_start(situation))
    freed = {item.first: list(frees(situation, item)) for item in old}
    total = sum(tokens for parts in freed.values() for _, tokens in parts)
    if total <= 0:
        return None
    if is_cold(situation):
        start = old[0].first if economics.clear_when_cold(total, situation.state.tokens, policy.caching_cold_share) else None
        why = "the provider's cache is cold"
    else:
        start = _start(situation, {first: sum(tokens for _, tokens in parts) for first, parts in freed.items()})
        why = f"clearing from number {start} on pays"
    if start is None:
        return None
    return _clearing([part for first, parts in freed.items() if first >= start for part in parts], why)


def everything_old(situation: Situation, before: int) -> Clearing | None:
    """All that can be cleared before the message `before`: another fold rewrites the prefix anyway."""
    parts = [part for item in old_items(situation.line, before) for part in frees(situation, item)]
    return _clearing(parts, "taken along with a fold that rewrites the context anyway")


def _start(situation: Situation, freed: Mapping[int, int]) -> int | None:
    """The message from which on clearing pays by the model's prices."""
    meter, line = situation.meter, situation.line
    standing = [Standing(meter.parts[Kind.SYSTEM])]
    standing += [
        Standing(round(item.tokens * meter.factor), round(freed.get(item.first, 0) * meter.factor)) for item in line.items
    ]
    index = economics.clear_from(
        standing,
        growth(line) * meter.factor,
        budget.prices(situation.state.settings.model("main")),
        cold_chance(line),
        least=min(situation.policy.caching_least, meter.window // 8),
        crowded=economics.is_crowded(meter.used, meter.window),
    )
    return line.items[index - 1].first if index else None


def _clearing(parts: list[tuple[PartRef, int]], why: str) -> Clearing | None:
    if not parts:
        return None
    total = sum(tokens for _, tokens in parts)
    return Clearing(tuple(ref for ref, _ in parts), f"{why}: {len(parts)} parts, {total:,} tokens", total)


# --- what there is to clear ------------------------------------------------------------------------------------------


def old_items(line: Line, before: int) -> list[Item]:
    """The messages before `before` with a part worth a marker."""
    return [line.item_at(seq) for seq in line.plain_outputs if seq < before]


def frees(situation: Situation, item: Item) -> Iterator[tuple[PartRef, int]]:
    """Each part of the message that may be cleared, with the tokens this frees."""
    for block in item.blocks:
        ref = block.source
        if worth_a_marker(block) and isinstance(ref, PartRef) and not _must_stay(situation, block, ref):
            yield ref, block.tokens - MARKER_TOKENS


def _must_stay(situation: Situation, block: Block, ref: PartRef) -> bool:
    line = situation.line
    if block.role is Role.ASSISTANT and not (situation.policy.arguments and _argument_goes(situation, block, ref)):
        return True
    return line.is_pinned(ref) or line.is_excluded(ref) or is_barred(line, ref)


def _argument_goes(situation: Situation, block: Block, ref: PartRef) -> bool:
    """By length, by age, and by whether a later call gave a newer text of the same file."""
    line, policy = situation.line, situation.policy
    tokens = block.tokens * economics.LONG_ARGUMENT // policy.argument_tokens
    key = line.text_keys.get(ref)
    newest = None if key is None else line.newest_text[key] == ref
    age = len(line.steps) - line.born[ref.seq]
    price = budget.prices(situation.state.settings.model("main"))
    return economics.argument_goes(tokens, age, price, newest=newest, tail=policy.tail_steps)


def growth(line: Line) -> float:
    """Clearable tokens that a step adds: the mean of the last steps."""
    recent = line.clearable[-LATELY:]
    return sum(recent) / len(recent) if recent else 0.0


def cold_chance(line: Line) -> float:
    """The learned chance that the provider's cache is cold at the next request."""
    times = line.step_times[-LATELY - 1 :]
    pauses = [later - earlier for earlier, later in zip(times, times[1:], strict=False)]
    return sum(pause > COLD_AFTER for pause in pauses) / len(pauses) if pauses else 0.0


def is_cold(situation: Situation) -> bool:
    """Whether so much time has passed since the last step that the provider's cache is cold now."""
    times = situation.line.step_times
    return bool(times) and situation.now - times[-1] > COLD_AFTER


# --- markers ---------------------------------------------------------------------------------------------------------


def marker(digest: Digest, about: str, content: str = "") -> str:
    """The text of a marker: the exact first line, then one line about the original, with names that stand in it."""
    named = names(content, MARKER_NAMES)
    line = " ".join(about.split()) + (f" · names: {named}" if named else "")
    return f'[CACHED] recall_cached_content("{digest.hex}")\n{line}'


def about_output(line: Line, seq: int) -> str:
    """Tool, arguments in short, exit code, lines, size."""
    fact = line.messages[seq].fact
    assert isinstance(fact, ToolReturned)
    call = call_of(line, seq)
    said = f"{call.name} {short_arguments(call.arguments)}" if call else "output"
    code = f"exit {fact.exit_code}" if fact.exit_code is not None else "" if fact.ok else "failed"
    lines = f"{fact.output.lines:,} lines" if fact.output.lines else ""
    return " · ".join(piece for piece in (said.strip(), code, lines, size(fact.output)) if piece)


def call_of(line: Line, seq: int) -> ToolCall | None:
    """The call an output answers."""
    fact = line.messages[seq].fact
    assert isinstance(fact, ToolReturned)
    shown = line.ids.get(PartRef(seq), fact.call)
    return line.calls[shown].call if shown in line.calls else None


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
