"""The replay lab: runs conversations with other policies in a process that can be stopped.

Each conversation is written as messages in the common format, and `helix-desktop replay` does the
rest. Nothing is sent anywhere.

A simulation is never quite what happened. So it gets the prices, the pauses and the cache that the
conversations really had, and what it says of the preset that they were held with is replaced by
what they really sent; the other presets are in proportion to it. What they would have cost without
shortening, the conversations say themselves: the meter names that sum, and a second one beside it
would be doubted.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from helix_desktop.engine.facts import ModelReplied, ModelRole, Recorded, SystemSet
from helix_desktop.engine.fold_economics import RelativePrices, relative_prices
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.token_ledger import Savings
from helix_desktop.engine.view import build_state
from helix_desktop.errors import InvalidInput, NotFound, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome
from helix_desktop.gui.sentence_translation import translate_sentences as told
from helix_desktop.gui.translation import tr
from helix_desktop.histories.openai_chat_export import (
    Line,
    digests_needed_for_export,
    export_openai_lines,
    list_messages_in_order,
)
from helix_desktop.processes import starter
from helix_desktop.workbench.open_workbench import Workbench

SHOWN_ERROR_LINES = 3
LONGEST_ERROR = 500
LARGEST = 8 << 20  # Of a larger output, in bytes, the replay uses only this much.
LEAST_PRICE = 1e-6  # Of a cached token, as a share of the input price; the command takes no 0.
UNSHORTENED = "none"  # The preset that leaves everything in the context.
LEAST_WINDOW = 2_000  # The command takes no smaller context window.


@dataclass(frozen=True, slots=True)
class HeldConversation:
    """What a conversation really was. `preset`: that with which it was last shortened.
    `savings`: what its requests took, and what they would have taken without shortening.
    `longest`: the tokens of the longest request. `factor`: the billed tokens for each that we count. `is_cached`: whether the provider's cache was read.
    """

    preset: str
    savings: Savings
    longest: int
    factor: float
    prices: RelativePrices
    is_cached: bool
    head_tokens: int


async def replay_conversations(
    bench: Workbench,
    conversations: Sequence[str],
    policies: Sequence[str],
    window: int,
    report: Callable[[int, int], None],
) -> Sequence[PolicyOutcome]:
    """Replays the conversations with each policy. Cancelling ends the process. No
    temporary files are left behind.
    """
    with tempfile.TemporaryDirectory(prefix="helix-replay-") as folder:
        files: list[Path] = []
        held: list[HeldConversation] = []
        for index, conversation in enumerate(conversations):
            facts = await bench.read_conversation_facts(conversation)
            messages = await _build_recording_lines(facts, bench)
            has_answer = any(message.get("role") == "assistant" for message in messages)
            if not has_answer:
                continue
            file = Path(folder, f"{index}.json")
            await asyncio.to_thread(file.write_text, json.dumps(messages), "utf-8")
            files.append(file)
            held.append(await asyncio.to_thread(_measure_conversation, facts))
        if not files:
            raise InvalidInput(tr("There is no conversation to replay yet."))
        options = [
            "--json",
            "--compare",
            ",".join(policies),
            "--window",
            str(_window_in_counted_tokens(window, held)),
            "--head",
            str(max(conversation.head_tokens for conversation in held)),
            # If searches were free, policies that summarize a lot would look too cheap.
            "--recalls",
            "searched",
        ]
        options += _price_options(held)
        options += map(str, files)
        replay_count = len(policies) * len(files)
        result = await _run_replay_process(options, replay_count, report)
    outcomes = _policy_outcomes_from_json(result["policies"])
    return _adjust_to_what_happened(outcomes, held, window)


async def _run_replay_process(
    options: Sequence[str], replay_count: int, report: Callable[[int, int], None]
) -> dict[str, Any]:
    """Runs the command and returns what it prints. It writes a line for each ended replay to its
    standard error.
    """
    command = starter.own_program_command("replay", *options)
    launch = starter.ProcessLaunch(starter.CommandAuthor.PROGRAM, command)
    process = await starter.start_process(launch)
    report(0, replay_count)
    lines: list[str] = []

    async def follow_progress(stream: asyncio.StreamReader) -> None:
        async for line in stream:
            text = line.decode("utf-8", "replace")
            lines.append(text.strip())
            ended_count = min(len(lines), replay_count)
            report(ended_count, replay_count)

    try:
        standard_output = cast(asyncio.StreamReader, process.stdout)
        standard_error = cast(asyncio.StreamReader, process.stderr)
        reading_output = standard_output.read()
        output, _ = await asyncio.gather(reading_output, follow_progress(standard_error))
        if await process.wait():
            last_lines = " ".join(lines[-SHOWN_ERROR_LINES:])
            reason = told(last_lines[:LONGEST_ERROR])
            raise StoreFailed(tr("The replay failed: {why}", why=reason))
        return dict(await asyncio.to_thread(json.loads, output))
    except ValueError as error:
        raise InvalidInput(tr("The replay returned no readable result. Try again.")) from error
    finally:
        await starter.end_process(process)


def _measure_conversation(recorded_facts: Sequence[Recorded]) -> HeldConversation:
    state = build_state(recorded_facts)
    preset = ""
    if state.settings.policy is not None:
        preset = state.settings.policy.preset
    longest = 0
    cached_tokens = 0
    for recorded in recorded_facts:
        if isinstance(recorded.fact, ModelReplied):
            longest = max(longest, recorded.fact.usage.input)
            cached_tokens += recorded.fact.usage.cache_read
    main_model = state.settings.model_for_role(ModelRole.MAIN)
    savings = state.savings_until_moment()
    factor = state.billed_per_counted_token()
    return HeldConversation(
        preset=preset,
        savings=savings,
        longest=longest,
        factor=factor,
        prices=relative_prices(main_model),
        is_cached=cached_tokens > 0,
        head_tokens=_count_unexported_head(recorded_facts),
    )


def _window_in_counted_tokens(window: int, held: Sequence[HeldConversation]) -> int:
    """Returns the window as the replay counts tokens, which does not know the model's tokenizer."""
    factor = sum(conversation.factor for conversation in held) / len(held)
    return max(LEAST_WINDOW, round(window / factor))


def _price_options(held: Sequence[HeldConversation]) -> list[str]:
    """Returns the options for what a cached, a newly cached and a written token cost. Where the
    provider has never cached anything, each token has the full price each time.
    """
    prices = held[0].prices
    if not any(conversation.is_cached for conversation in held):
        prices = RelativePrices(1.0, 1.0, prices.output)
    options: list[str] = []
    named_prices = {
        "--cache-read": prices.read,
        "--cache-write": prices.write,
        "--output": prices.output,
    }
    for name, price in named_prices.items():
        options += [name, f"{max(price, LEAST_PRICE):.6f}"]
    return options


def _adjust_to_what_happened(
    outcomes: Sequence[PolicyOutcome], held: Sequence[HeldConversation], window: int
) -> list[PolicyOutcome]:
    """Returns the outcomes in proportion to what the conversations really sent. Unchanged if they
    were held with different presets, or elsewhere.
    """
    really_used = _find_outcome_of_preset(outcomes, {conversation.preset for conversation in held})
    sent = sum(conversation.savings.sent for conversation in held)
    if really_used is None or not really_used.sent or not sent:
        return list(outcomes)
    peak_ratio = _ratio_of_real_peak(really_used, held, window)
    unshortened = _find_outcome_of_preset(outcomes, {UNSHORTENED})
    if unshortened is not None and unshortened.peak * peak_ratio > 1:
        unshortened = None  # Nobody could have left everything that exceeds the window.
    savings = [conversation.savings for conversation in held]
    scale_by_sent = _build_scale_of_sent(really_used, unshortened, savings)
    scale_by_billed = _build_scale_of_billed(really_used, unshortened, savings)
    adjusted: list[PolicyOutcome] = []
    for outcome in outcomes:
        peak = outcome.peak * peak_ratio
        if outcome is really_used:
            adjusted.append(
                replace(outcome, sent=sent, peak=peak, is_real=True, share_from_meter=1.0)
            )
            continue
        scaled_sent = round(scale_by_sent.scale_simulated_figure(outcome.sent))
        share = scale_by_billed.scale_simulated_figure(outcome.billed)
        adjusted.append(replace(outcome, sent=scaled_sent, peak=peak, share_from_meter=share))
    return adjusted


def _ratio_of_real_peak(
    really_used: PolicyOutcome, held: Sequence[HeldConversation], window: int
) -> float:
    real_peak = max(conversation.longest for conversation in held) / max(1, window)
    if not real_peak or not really_used.peak:
        return 1.0
    return real_peak / really_used.peak


def _build_scale_of_sent(
    really_used: PolicyOutcome, unshortened: PolicyOutcome | None, savings: Sequence[Savings]
) -> "_MeterScale":
    sent = sum(figures.sent for figures in savings)
    if unshortened is None:
        return _MeterScale(really_used.sent, sent)
    without = sum(figures.without for figures in savings)
    return _MeterScale(really_used.sent, sent, unshortened.sent, without)


def _build_scale_of_billed(
    really_used: PolicyOutcome, unshortened: PolicyOutcome | None, savings: Sequence[Savings]
) -> "_MeterScale":
    """Returns the scale of costs, as shares of what was paid."""
    paid = sum(figures.paid for figures in savings)
    if unshortened is None or not paid:
        return _MeterScale(really_used.billed, 1.0)
    share_without = sum(figures.paid_without for figures in savings) / paid
    return _MeterScale(really_used.billed, 1.0, unshortened.billed, share_without)


@dataclass(frozen=True, slots=True)
class _MeterScale:
    """Brings simulated figures to the scale of the meter, which knows two of them: what was really
    used, and what it would have been without shortening (0 if nobody could have sent it).

    With one of them alone, a setting that leaves everything, too, stood far from the other.
    """

    simulated_used: float
    used: float
    simulated_without: float = 0.0
    without: float = 0.0

    def scale_simulated_figure(self, simulated: float) -> float:
        """Returns a figure between both in proportion to its distance from them, and outside of
        them in proportion to the nearer one.
        """
        if simulated == self.simulated_without and self.without:
            return self.without
        known = (self.simulated_used, self.used)
        if self._knows_both():
            low, high = sorted([known, (self.simulated_without, self.without)])
            if low[0] < simulated < high[0]:
                share = (simulated - low[0]) / (high[0] - low[0])
                return low[1] + share * (high[1] - low[1])
            known = low
            if simulated >= high[0]:
                known = high
        simulated_known, real = known
        if not simulated_known:
            return real
        return simulated * real / simulated_known

    def _knows_both(self) -> bool:
        """Whether both are known, and the simulation has them in the same order."""
        is_known = bool(self.simulated_without and self.without)
        is_same_order = (self.without - self.used) * (
            self.simulated_without - self.simulated_used
        ) > 0
        return is_known and is_same_order


def _find_outcome_of_preset(
    outcomes: Sequence[PolicyOutcome], presets: set[str]
) -> PolicyOutcome | None:
    """Returns the outcome of the only preset of the conversations, or None if there are several."""
    for outcome in outcomes:
        if presets == {outcome.policy}:
            return outcome
    return None


def _count_unexported_head(recorded_facts: Sequence[Recorded]) -> int:
    """Counts the tokens of tools and rules, which each request has in front besides the system
    prompt. The exported lines hold the system prompt: counted here, too, it would make the peak
    of the simulation larger than the meter.
    """
    settings_tokens = build_state(recorded_facts).settings.settings_tokens
    system_tokens = 0
    for recorded in recorded_facts:
        if isinstance(recorded.fact, SystemSet):
            system_tokens = recorded.fact.tokens
    return max(settings_tokens - system_tokens, 0)


async def _build_recording_lines(facts: Sequence[Recorded], bench: Workbench) -> list[Line]:
    contents: dict[Digest, bytes] = {}
    for digest in digests_needed_for_export(facts):
        # If an output can no longer be read, the replay uses what the fact says about it.
        with suppress(NotFound, StoreFailed):
            contents[digest] = await bench.workspace.cache.read_range(digest, 0, LARGEST)
    return await asyncio.to_thread(_export_lines_with_times, facts, contents)


def _export_lines_with_times(
    facts: Sequence[Recorded], contents: Mapping[Digest, bytes]
) -> list[Line]:
    """Exports the messages with the time of each, so that the replay has the same pauses, after
    which a provider has nothing in its cache.
    """
    lines = list(export_openai_lines(facts, contents.get))
    messages = list(list_messages_in_order(facts))
    first_line = len(lines) - len(messages)  # The system prompt is in front of the messages.
    timed_lines = lines[:first_line]
    for line, message in zip(lines[first_line:], messages, strict=True):
        timed_lines.append({**line, "_ts": message.time})
    return timed_lines


def _policy_outcomes_from_json(results: Mapping[str, Mapping[str, Any]]) -> list[PolicyOutcome]:
    outcomes: list[PolicyOutcome] = []
    for name, result in results.items():
        total = result["total"]
        outcome = PolicyOutcome(
            name, total["effective"], total["peak"], total["retention_plain"], total["sent"]
        )
        outcomes.append(outcome)
    return outcomes
