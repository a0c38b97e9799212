"""What requests would be billed."""

from __future__ import annotations

import pytest

from helix_desktop.engine.blocks import Image, Message, Request, Role, ToolResult
from helix_desktop.engine.economics import Prices
from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.replay import billing
from helix_desktop.replay.billing import Ledger, Piece
from tests.replay.sessions import says, user

PRICES = Prices(0.1, 1.25, 5.0)


def words(text: str) -> int:
    return len(text.split())


def pieces(*tokens: int) -> list[Piece]:
    return [(index, count) for index, count in enumerate(tokens)]


def test_what_was_sent_before_is_read_and_the_rest_is_written() -> None:
    ledger = Ledger(PRICES, 1_000)
    ledger.step(pieces(100, 50), 10)
    usage = ledger.step(pieces(100, 50, 30), 20)
    assert (usage.cache_read, usage.cache_write, usage.output) == (150, 30, 20)
    assert ledger.billed == pytest.approx(150 * 1.25 + 50 + 150 * 0.1 + 30 * 1.25 + 100)
    assert (ledger.sent, ledger.cache_read, ledger.peak, ledger.steps) == (330, 150, 180, [150, 180])


def test_a_change_ends_the_prefix() -> None:
    ledger = Ledger(PRICES, 1_000)
    ledger.step([("a", 100), ("b", 50), ("c", 70)], 0)
    usage = ledger.step([("a", 100), ("B", 5), ("c", 70)], 0)
    assert usage.cache_read == 100


def test_a_summary_reads_the_prefix_and_counts_for_the_peak_but_is_no_step() -> None:
    ledger = Ledger(PRICES, 160)
    ledger.step(pieces(100, 50), 0)
    ledger.cached([*pieces(100, 50), ("question", 30)], 40)
    assert ledger.cache_read == 150
    assert ledger.steps == [150]
    assert (ledger.peak, ledger.overflowed) == (180, 1)


def test_another_model_reads_uncached() -> None:
    ledger = Ledger(PRICES, 1_000)
    ledger.step(pieces(100), 0)
    before = ledger.billed
    ledger.aside(pieces(100, 20), 4)
    assert ledger.billed - before == pytest.approx(120 + 20)
    assert ledger.step(pieces(100), 0).cache_read == 100


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
    counted = [tokens for _, tokens in billing.pieces_of(request, 6_000, words)]
    assert counted == [6_000, 2 + 4, 1_604, 1, 3, 2, 1 + 4, 1 + 4 + 1_600, 1 + 4]


def test_without_management_each_request_is_all_that_came_before() -> None:
    ledger = billing.unmanaged([user("a b"), says("c"), user("d"), says("e")], PRICES, 10, words)
    assert ledger.steps == [6_006, 6_016]
    assert ledger.output == 10
    assert ledger.overflowed == 2
