"""What the inspector says agrees with the view, token for token."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from helix_desktop.engine import context_policy, context_usage
from helix_desktop.engine.facts import (
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    PartRef,
    Recorded,
    Stop,
    Text,
    ToolReturned,
    Usage,
)
from helix_desktop.engine.message_cost_forecast import MessageCostForecast, NextMessageEstimate
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.state.token_ledger import Savings
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.gui.inspector import inspector_boxes, inspector_figures
from helix_desktop.gui.inspector.inspector_figures import CostRow
from tests.engine.talk import Talk, stored
from tests.gui import story


def state() -> ConversationState:
    return build_state(story.recorded())


def test_the_cost_so_far_includes_that_of_sub_agents_and_says_how_much_it_is() -> None:
    figures = Savings(1, 100, 100, 0, 0.012, 0.012)
    rows = {row.words: row.figure for row in inspector_figures.build_cost_rows(figures, 0.03)}
    assert (rows["Cost so far"], rows["Of this, sub-agents"]) == ("$0.042", "$0.030")
    assert "Of this, sub-agents" not in [
        row.words for row in inspector_figures.build_cost_rows(figures)
    ]


def test_parts_are_the_blocks_of_the_view() -> None:
    now = state()
    meter = context_usage.measure_window(now, context_policy.policy_from_fact(now.settings.policy))
    parts = inspector_figures.list_view_blocks(now)
    assert [part.block for part in parts] == list(now.get_view().blocks)
    tokens: Counter[ContextKind] = Counter()
    for part in parts:
        tokens[part.block.kind] += part.tokens
        assert part.cost == pytest.approx(part.tokens * meter.factor * 0.3e-6)
    for kind in (ContextKind.HANDOVER, ContextKind.OUTPUT):
        difference = tokens[kind] * meter.factor - meter.parts[kind]
        assert abs(difference) <= len(parts)


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


def test_what_can_be_recalled() -> None:
    assert state().count_recallable_tokens() in (0, 4_812 + 18_240)
    assert inspector_figures.name_shown_handovers(state()) == "Summary 3"


def test_one_text_that_was_read_five_times_can_be_recalled_once() -> None:
    """A log of 45,000 tokens in five outputs was counted as 243,400 that can be recalled."""
    talk = Talk()
    content = stored("a long log")
    for number in range(5):
        talk.reply("", f"c{number}:read_file")
        seq = talk.add(ToolReturned(f"c{number}", content, 45_000, head="a long log"))
        excerpt = Folded(f"e{number}", FoldKind.EXCERPT, PartRef(seq), "short", 300, 45_000)
        talk.add(replace(excerpt, entries=(content.digest,)))
    assert talk.state.count_recallable_tokens() == 45_000


def test_equal_outputs_that_count_once_are_named_as_such() -> None:
    """The meter said 17K, and five lines of the chat said 17K each."""
    talk = Talk()
    content = stored("a long log")
    for number in range(2):
        talk.reply("", f"c{number}:read_file")
        seq = talk.add(ToolReturned(f"c{number}", content, 17_000, head="a long log"))
        marker = Folded(f"e{number}", FoldKind.MARKER, PartRef(seq), "short", 31, 17_000)
        talk.add(replace(marker, entries=(content.digest,)))
        if number == 0:
            assert inspector_boxes.name_recallable_outputs(talk.state) == (
                "Originals of shortened outputs"
            )
    assert inspector_boxes.name_recallable_outputs(talk.state) == (
        "Originals of outputs, equal ones once"
    )


def test_what_was_sent_and_paid_has_a_row_each() -> None:
    told = Savings(
        9,
        sent=480_000,
        without=2_910_000,
        cache_read=436_800,
        paid=1.2,
        paid_without=7.34,
        unpriced=2,
    )
    rows = inspector_figures.build_sent_rows(told) + inspector_figures.build_cost_rows(told)
    assert [(row.words, row.figure) for row in rows] == [
        ("Sent", "480K"),
        ("Resent at a reduced price", "91%"),
        ("Cost so far", "$1.20"),
        ("Not included: requests whose cost is unknown", "2"),
    ]
    assert inspector_figures.build_cost_rows(Savings(1, 0, 2_000, 0, 0.0, 0.0, unpriced=1)) == [
        CostRow("Cost so far", "$0"),
        CostRow("Not included: requests whose cost is unknown", "1"),
    ]
    assert inspector_figures.build_cost_rows(Savings(0, 0, 0, 0, 0.0, 0.0)) == []


def test_what_the_next_message_costs_is_one_figure() -> None:
    """Six more stood below it, of which the context was also above."""
    request = NextMessageEstimate(
        context=12_400, message=310, cached=12_000, reply=240, dollars_of_request=0.0042
    )
    row = inspector_figures.build_next_message_row(request)
    assert row == CostRow("Next message", "about $0.0042")
    assert inspector_figures.describe_next_message(replace(request, message=0)) == []
    assert inspector_figures.describe_next_message(request) == ["310 tokens of your message"]

    # Messages of this conversation usually cost more than the request that sends them.
    usual = replace(request, forecast=MessageCostForecast(0.05, 0.03, 0.08, 9))
    assert inspector_figures.build_next_message_row(usual).figure == "about $0.050"
    assert inspector_figures.describe_next_message(usual) == [
        "with all requests, as usual in this conversation",
        "310 tokens of your message",
    ]
