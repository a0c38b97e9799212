"""Savings: the same steps with and without folds."""

from __future__ import annotations

import pytest

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.economics import Prices
from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    Recorded,
    Rewound,
    RulesSet,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.history.ledger import Tally

OUTPUT = Stored(Digest.of(b"x"), 1)


def tally(*facts: Fact) -> Tally:
    made = Tally()
    made.take([Recorded("c", i, 0.0, fact) for i, fact in enumerate(facts, 1)])
    return made


def reply(tokens: int, sent: int, cached: int = 0, cost: float = 0.0) -> ModelReplied:
    return ModelReplied(
        (ToolCall("1", "look", "{}", tokens),), "m", Stop.CALLS, Usage(sent, cached, 0, tokens, 0, cost)
    )


STEPS: list[Fact] = [
    SystemSet("s", 100),
    UserSaid((Text("u", 6),)),  # 10 with what a message costs
    reply(16, 110),  # sees 110, adds 20
    ToolReturned("1", OUTPUT, 996),  # adds 1,000
    reply(6, 300, 100),  # would have seen 1,130
]


def test_what_would_have_been_sent_is_the_whole_of_every_step() -> None:
    figures = tally(*STEPS).figures(1.0)
    assert (figures.steps, figures.sent, figures.without, figures.cache_read) == (2, 410, 110 + 1_130, 100)
    assert figures.share == pytest.approx(1 - 410 / 1_240)
    assert figures.cache_share == pytest.approx(100 / 410)


def test_money_counts_what_the_provider_would_have_had_in_its_cache() -> None:
    figures = tally(*STEPS).figures(1.0, Prices(0.1, 1.25, 5), per_million=1e6)
    assert figures.paid_without == pytest.approx(110 * 0.1 + (110 + 1_020) * 1.25 + 22 * 5)


def test_a_factor_scales_what_was_only_counted() -> None:
    assert tally(*STEPS).figures(2.0).without == 2 * 1_240


def test_a_rewind_leaves_the_line_and_a_changed_head_takes_the_old_ones_place() -> None:
    again = tally(*STEPS, Rewound(2), SystemSet("t", 50), RulesSet("A", "r", 7), reply(1, 60))
    assert again.figures(1.0).without == 1_240 + 50 + 7 + 10


def test_taking_facts_in_pieces_comes_to_the_same() -> None:
    recorded = [Recorded("c", i, 0.0, fact) for i, fact in enumerate(STEPS, 1)]
    made = Tally()
    for i in range(len(recorded) + 1):
        made.take(recorded[:i])
    assert made.figures(1.0) == tally(*STEPS).figures(1.0)


def test_before_the_first_step_there_is_nothing() -> None:
    assert tally().figures(1.0).share == 0
