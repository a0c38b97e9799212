"""What the inspector says agrees with the view, token for token."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import context_policy, context_usage
from helix_desktop.engine.facts import ModelReplied, ModelRole, Recorded, Stop, Text, Usage
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.state.token_ledger import Savings
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.gui.inspector import inspector_figures
from helix_desktop.gui.inspector.inspector_figures import SavingsRow
from tests.gui import story


def state() -> ConversationState:
    return build_state(story.recorded())


def test_the_cost_so_far_includes_that_of_sub_agents_and_says_how_much_it_is() -> None:
    figures = Savings(1, 100, 100, 0, 0.012, 0.012)
    rows = {row.words: row.figure for row in inspector_figures.build_savings_rows(figures, 0.03)}
    assert (rows["Cost so far"], rows["Of this, sub-agents"]) == ("$0.042", "$0.030")
    assert "Of this, sub-agents" not in [
        row.words for row in inspector_figures.build_savings_rows(figures)
    ]


def test_parts_are_the_blocks_of_the_view() -> None:
    now = state()
    meter = context_usage.measure_window(now, context_policy.policy_from_fact(now.settings.policy))
    parts = inspector_figures.list_view_blocks(now)
    assert [part.block for part in parts] == list(now.get_view().blocks)
    by_kind = {kind: sum(p.tokens for p in parts if p.block.kind is kind) for kind in ContextKind}
    folded = (ContextKind.HANDOVER, ContextKind.OUTPUT)
    assert all(
        abs(by_kind[kind] * meter.factor - meter.parts[kind]) <= len(parts) for kind in folded
    )
    assert [part.cost for part in parts] == pytest.approx(
        [part.tokens * meter.factor * 0.3e-6 for part in parts]
    )


def test_the_cost_of_a_part_is_that_of_reading_it_from_the_providers_cache() -> None:
    """A request pays the input price only for what is new in it. An unknown price
    counts as that of input.
    """
    now = state()
    (part, *_) = inspector_figures.list_view_blocks(now)
    chosen = now.settings.model_for_role(ModelRole.MAIN)
    assert chosen is not None
    unknown = replace(chosen, price_cache_read=0.0)
    now.advance_state(Recorded(story.CONVERSATION, now.seq + 1, 0.0, unknown))
    (same, *_) = inspector_figures.list_view_blocks(now)
    assert same.tokens == part.tokens
    assert same.cost == pytest.approx(part.cost * 10)


def test_a_piece_has_the_tokens_it_was_stored_with_for_ever() -> None:
    """Also when the provider reports that it bills more for them: that is a figure of
    the request.
    """
    now = state()
    before = {
        part.shown_name.words: part.tokens for part in inspector_figures.list_view_blocks(now)
    }
    for _ in range(12):
        used = round(now.record.ledger.shown[-1] * 1.5)
        reply = ModelReplied((Text("so", 1),), story.MODEL, Stop.END, Usage(used, output=1))
        now.advance_state(Recorded(story.CONVERSATION, now.seq + 1, 0.0, reply))
    assert now.billed_per_counted_token() == pytest.approx(1.5, abs=0.01)
    after = {part.shown_name.words: part.tokens for part in inspector_figures.list_view_blocks(now)}
    assert before.items() <= after.items()


def test_blocks_have_names_a_person_knows() -> None:
    now = state()
    names = [part.shown_name.words for part in inspector_figures.list_view_blocks(now)]
    assert "Summary 3" in names
    assert "Edit src/lock/manager.rs" in names
    assert any(name.startswith("The guard must never") for name in names)


def test_the_largest_come_first() -> None:
    now = state()
    parts = inspector_figures.list_view_blocks(now)
    largest = inspector_figures.largest_blocks(parts)
    assert [part.tokens for part in largest] == sorted(
        (part.tokens for part in largest), reverse=True
    )
    assert largest[0].shown_name.words == "Edit src/lock/manager.rs"


def test_the_largest_are_of_the_whole_context_and_each_is_named_once() -> None:
    parts = inspector_figures.list_view_blocks(state())
    largest = inspector_figures.largest_blocks(parts)
    names = [part.shown_name.words for part in largest]
    assert len(set(names)) == len(names) == inspector_figures.MOST_LARGEST
    unlisted = [part for part in parts if part.shown_name.words not in names]
    assert max(part.tokens for part in unlisted) <= min(part.tokens for part in largest)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 9_000), st.integers(0, 9_000))
def test_a_gain_and_a_loss_by_shortening_are_both_said(
    sent: int, without: int, cents: int, cents_without: int
) -> None:
    """Exactly one of the two rows stands there, unless nothing was gained or lost."""
    figures = Savings(3, sent, without, 0, cents / 100, cents_without / 100)
    words = [row.words for row in inspector_figures.build_savings_rows(figures)]
    gained = without - sent
    if cents:
        gained = cents_without - cents
    elif not sent:
        gained = 0
    assert ("Saved" in words) == (gained > 0)
    assert ("Cost more by shortening" in words) == (gained < 0)


def test_the_loss_by_shortening_has_its_unit() -> None:
    in_tokens = inspector_figures.build_savings_rows(Savings(13, 40_800, 35_100, 0, 0.0, 0.0))[-1]
    assert (in_tokens.words, in_tokens.figure) == ("Cost more by shortening", "5.7K tokens")
    partly_free = inspector_figures.build_savings_rows(
        Savings(13, 35_100, 40_800, 0, 0.5, 0.25, free=12)
    )[-1]
    assert (partly_free.words, partly_free.figure) == ("Saved", "14% of the tokens")
    in_dollars = inspector_figures.build_savings_rows(Savings(13, 9, 9, 0, 0.5, 0.25))[-1]
    assert in_dollars.figure == "$0.250"
    assert not in_dollars.is_highlighted


def test_what_can_be_recalled() -> None:
    assert state().count_recallable_tokens() in (0, 4_812 + 18_240)
    assert inspector_figures.newest_handover_name(state()) == "Summary 3"


def test_savings() -> None:
    told = Savings(
        9,
        sent=480_000,
        without=2_910_000,
        cache_read=436_800,
        paid=1.2,
        paid_without=7.34,
        unpriced=2,
    )
    rows = inspector_figures.build_savings_rows(told)
    assert [(row.words, row.figure) for row in rows] == [
        ("If shortened only when full", "≈ 2.91M"),
        ("Sent", "480K"),
        ("Resent at a reduced price", "91%"),
        ("Cost so far", "$1.20"),
        ("Not included: requests of unknown cost", "2"),
        ("Saved", "84% · $6.14"),
    ]
    assert rows[-1].is_highlighted
    assert (
        inspector_figures.build_savings_rows(Savings(1, 1_000, 2_000, 0, 0.0, 0.0))[-1].figure
        == "50% of the tokens"
    )
    assert (
        inspector_figures.build_savings_rows(Savings(1, 1, 2_000, 0, 0.0, 0.0))[-1].figure
        == "99% of the tokens"
    )
    assert len(inspector_figures.build_savings_rows(Savings(1, 0, 2_000, 0, 0.0, 0.0))) == 2
    assert inspector_figures.build_savings_rows(Savings(1, 0, 2_000, 0, 0.0, 0.0, unpriced=1))[
        2:
    ] == [
        SavingsRow("Cost so far", "$0"),
        SavingsRow("Not included: requests of unknown cost", "1"),
    ]
    assert len(inspector_figures.build_savings_rows(Savings(0, 0, 0, 0, 0.0, 0.0))) == 1


def test_where_nothing_was_folded_nothing_is_said_to_be_saved() -> None:
    told = Savings(
        4, sent=13_100, without=13_100, cache_read=10_480, paid=0.1 + 0.2, paid_without=0.3 + 1e-12
    )
    rows = inspector_figures.build_savings_rows(told)
    assert [row.words for row in rows] == [
        "Sent",
        "Resent at a reduced price",
        "Cost so far",
    ]
