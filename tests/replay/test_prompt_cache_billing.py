"""What requests would be billed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.facts import Reasoning, Text, ToolCall, Usage
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.engine.messages import Image, Message, Request, Role, ToolResult
from helix_desktop.histories.recorded_session import RecordedMessage
from helix_desktop.replay import prompt_cache_billing
from helix_desktop.replay.prompt_cache_billing import (
    BillingLedger,
    CacheOfSession,
    Piece,
    RecallReason,
    cache_of_recording,
)
from tests.replay.sessions import says, step, user

PRICES = RelativePrices(0.1, 1.25, 5.0)


def words(text: str) -> int:
    return len(text.split())


def pieces(*tokens: int) -> list[Piece]:
    return [(index, count) for index, count in enumerate(tokens)]


def test_what_was_sent_before_is_read_and_the_rest_is_written() -> None:
    ledger = BillingLedger(PRICES, 1_000, least=0)
    ledger.bill_step(pieces(100, 50), 10)
    usage = ledger.bill_step(pieces(100, 50, 30), 20)
    assert (usage.cache_read, usage.cache_write, usage.output) == (150, 30, 20)
    assert ledger.billed == pytest.approx(150 * 1.25 + 50 + 150 * 0.1 + 30 * 1.25 + 100)
    assert (ledger.sent, ledger.cache_read, ledger.peak, ledger.steps) == (
        330,
        150,
        180,
        [150, 180],
    )


def test_a_change_ends_the_prefix() -> None:
    ledger = BillingLedger(PRICES, 1_000, least=0)
    ledger.bill_step([("a", 100), ("b", 50), ("c", 70)], 0)
    usage = ledger.bill_step([("a", 100), ("B", 5), ("c", 70)], 0)
    assert usage.cache_read == 100


def test_a_summary_reads_the_prefix_and_counts_for_the_peak_but_is_no_step() -> None:
    ledger = BillingLedger(PRICES, 160, least=0)
    ledger.bill_step(pieces(100, 50), 0)
    ledger.bill_cached_request([*pieces(100, 50), ("question", 30)], 40)
    assert ledger.cache_read == 150
    assert ledger.steps == [150]
    assert (ledger.peak, ledger.overflowed) == (180, 1)


def test_another_model_reads_uncached() -> None:
    ledger = BillingLedger(PRICES, 1_000, least=0)
    ledger.bill_step(pieces(100), 0)
    before = ledger.billed
    ledger.bill_uncached_request(pieces(100, 20), 4)
    assert ledger.billed - before == pytest.approx(120 + 20)
    assert ledger.bill_step(pieces(100), 0).cache_read == 100


def test_each_message_costs_four_tokens_more() -> None:
    request = Request(
        "", "be brief",
        (
            Message(Role.USER, (Text("one two"), Image("image/png", b""))),
            Message(Role.ASSISTANT, (Reasoning("hm"), ToolCall("a", "read", "x y"), ToolCall("b", "read", "z"))),
            Message(Role.USER, (ToolResult("a", "out"), ToolResult("b", "out", images=(Image("image/png", b""),)))),
            Message(Role.ASSISTANT, (ToolCall("c", "read", ""),)),
        ),
    )  # fmt: skip
    counted = [tokens for _, tokens in prompt_cache_billing.billing_pieces(request, 6_000, words)]
    assert counted == [6_000, 2 + 4, 1_604, 1, 3, 2, 1 + 4, 1 + 4 + 1_600, 1 + 4]


def test_without_management_each_request_is_all_that_came_before() -> None:
    session = [user("a b"), says("c"), user("d"), says("e")]
    ledger = prompt_cache_billing.bill_without_folds(session, BillingLedger(PRICES, 10), words)
    assert ledger.steps == [1_906, 1_916]
    assert ledger.output == 10
    assert ledger.overflowed == 2


def test_a_beginning_that_is_too_short_is_not_cached_and_costs_what_input_costs() -> None:
    ledger = BillingLedger(PRICES, 10_000)
    ledger.bill_step(pieces(500, 500), 0)
    assert (ledger.billed, ledger.cache_read) == (1_000, 0)
    assert ledger.bill_step(pieces(500, 500, 100), 0).cache_write == 1_100


def test_after_five_minutes_the_cache_is_cold() -> None:
    ledger = BillingLedger(PRICES, 10_000, least=0)
    ledger.bill_step(pieces(100, 50), 0, seconds=0.0)
    assert ledger.bill_step(pieces(100, 50), 0, seconds=300.0).cache_read == 150
    assert ledger.bill_step(pieces(100, 50), 0, seconds=600.0).cache_read == 150
    assert ledger.bill_step(pieces(100, 50), 0, seconds=901.0).cache_read == 0


def many(count: int) -> list[Piece]:
    return [(index, 100) for index in range(count)]


def test_after_a_change_far_from_the_end_a_mark_before_it_finds_the_cache() -> None:
    ledger = BillingLedger(PRICES, 100_000, least=0)
    for count in range(2, 60, 2):
        ledger.bill_step(many(count), 0)
    changed = [*many(30), ("a marker", 60), *many(60)[31:]]
    assert ledger.bill_step(changed, 0).cache_read == 3_000


def test_a_summary_asked_for_beside_the_steps_moves_no_mark() -> None:
    ledger = BillingLedger(PRICES, 100_000, least=0)
    for count in range(2, 60, 2):
        ledger.bill_step(many(count), 0)
    ledger.bill_cached_request([*many(58), ("a question", 300)], 0)
    assert ledger.bill_step(many(60), 0).cache_read == 5_800
    changed = [*many(30), ("a marker", 60), *many(60)[31:]]
    assert ledger.bill_step(changed, 0).cache_read == 3_000


def test_a_recall_reads_the_context_at_the_price_of_the_cache() -> None:
    ledger = BillingLedger(PRICES, 100_000, least=0)
    ledger.bill_step(pieces(10_000, 500), 0)
    before = ledger.billed
    usage = ledger.bill_recall(pieces(10_000, 500), 20)
    assert (usage.cache_read, usage.cache_write) == (10_500, 0)
    assert ledger.billed - before == pytest.approx(10_500 * PRICES.read + 20 * PRICES.output)


def test_what_a_recall_brought_is_billed_apart() -> None:
    ledger = BillingLedger(PRICES, 10_000, least=0)
    ledger.bill_step(pieces(1_000), 0)
    ledger.bill_recall(pieces(1_000), 20)
    assert ledger.recalls == pytest.approx(100 + 100)
    page, found = pieces(1_000, 250, 50)[1:]
    why = {page[0]: RecallReason.RECALLED, found[0]: RecallReason.SEARCHED}
    billed = ledger.billed
    ledger.bill_step(
        pieces(1_000, 250, 50), 0, reason_of=lambda part: why.get(part, RecallReason.NO)
    )
    assert ledger.recalls == pytest.approx(200 + 300 * 1.25)  # what it brought is written once
    assert ledger.searches == pytest.approx(50 * 1.25)
    assert ledger.billed - billed == pytest.approx(100 + 300 * 1.25)
    ledger.bill_recall(
        pieces(1_000, 250, 50),
        20,
        reason=RecallReason.SEARCHED,
        reason_of=lambda part: why.get(part, RecallReason.NO),
    )
    assert ledger.searches == pytest.approx(50 * 1.25 + 5 + 100 + 100)
    assert ledger.recalls == pytest.approx(200 + 300 * 1.35 + 100 + 100)


def test_times_are_the_sessions_own_where_it_has_them() -> None:
    said = [replace(says("a"), time=1_000.0), replace(says("b"), time=1_400.0), says("c")]
    assert list(prompt_cache_billing.request_times(said)) == [10.0, 410.0, 420.0]


def reply_with(usage: Usage, model: str = "claude-opus-4-5", time: float = 0.0) -> RecordedMessage:
    return RecordedMessage("assistant", "done", model=model, usage=usage, time=time)


def test_a_recording_says_what_its_cache_cost_and_how_long_it_lasted() -> None:
    hourly = reply_with(Usage(5_002, 0, 5_000, 9, cache_write_hour=5_000))
    assert cache_of_recording([user("go"), hourly], PRICES) == CacheOfSession(
        RelativePrices(0.1, 2.0, 5.0), 3_600.0, for_an_hour=True, plain_tokens=2
    )
    short = reply_with(Usage(5_002, 0, 5_000, 9))
    assert cache_of_recording([short], PRICES) == CacheOfSession(PRICES, 300.0, plain_tokens=2)
    assert cache_of_recording([user("go"), says("done")], PRICES) == CacheOfSession(PRICES, 300.0)


def test_where_a_provider_does_not_say_how_long_it_caches_the_recording_shows_it() -> None:
    first = reply_with(Usage(5_000, 0, 0, 9), "gpt-5.1-codex", 1_000.0)
    later = reply_with(Usage(5_500, 5_000, 0, 9), "gpt-5.1-codex", 2_500.0)
    missed = reply_with(Usage(6_000, 0, 0, 9), "gpt-5.1-codex", 9_000.0)
    cache = cache_of_recording([first, later, missed], PRICES)
    assert cache == CacheOfSession(RelativePrices(0.1, 1.0, 5.0), 1_500.0)


def test_what_is_kept_for_an_hour_is_read_after_a_pause_and_reported_so() -> None:
    ledger = BillingLedger(PRICES, 9_000, least=0, lifetime=3_600.0, for_an_hour=True)
    usage = ledger.bill_step(pieces(100), 0, 0.0)
    assert (usage.cache_write, usage.cache_write_hour) == (100, 100)
    assert ledger.bill_step(pieces(100, 5), 0, 3_000.0).cache_read == 100
    assert ledger.bill_step(pieces(100, 5, 5), 0, 7_000.0).cache_read == 0


def test_tokens_that_a_recording_neither_read_nor_wrote_are_billed_as_plain_input() -> None:
    """Claude reports two such tokens with each request, which no cache has."""
    replies = [reply_with(Usage(1_002, 0, 1_000, 5)), reply_with(Usage(1_502, 1_000, 500, 5))]
    assert cache_of_recording(replies, PRICES).plain_tokens == 2
    unwritten = reply_with(Usage(5_000, 4_000, 0, 5), "gpt-5.1-codex")
    assert cache_of_recording([unwritten], PRICES).plain_tokens == 0
    ledger = BillingLedger(PRICES, 9_000, least=0, plain_tokens=2)
    usage = ledger.bill_step(pieces(100), 0, 0.0)
    assert (usage.input, usage.cache_write) == (100, 98)
    assert ledger.billed == pytest.approx(98 * PRICES.write + 2)
    # What is cached of it is read as before.
    assert ledger.bill_step(pieces(100, 5), 0, 1.0).cache_read == 100


def test_what_does_not_fit_is_summarised_and_never_sent() -> None:
    messages = [each for number in range(40) for each in step(number, "a word " * 300)]
    ledger = prompt_cache_billing.bill_with_compaction_at_limit(
        messages, BillingLedger(PRICES, 6_000), words, 1_000
    )
    everything = prompt_cache_billing.bill_without_folds(
        messages, BillingLedger(PRICES, 6_000), words, 1_000
    )
    assert everything.peak > 6_000
    assert max(ledger.steps) <= 6_000
    assert ledger.output > everything.output
    fitting = prompt_cache_billing.bill_with_compaction_at_limit(
        messages[:6], BillingLedger(PRICES, 6_000), words, 1_000
    )
    whole = prompt_cache_billing.bill_without_folds(
        messages[:6], BillingLedger(PRICES, 6_000), words, 1_000
    )
    assert fitting.billed == whole.billed
