"""One number for the meter and for every trigger: counted once, corrected by what the
provider reports.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine import context_policy, context_usage
from helix_desktop.engine.facts import (
    FoldKind,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    RulesSet,
    Span,
    SystemSet,
    ToolsOffered,
    Unfolded,
    Usage,
)
from helix_desktop.engine.fold_economics import RelativePrices, relative_prices
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.state.request_settings import RULES_HEADER_TOKENS
from tests.engine.talk import Talk

LAYERED = context_policy.preset_policy("layered")


def test_the_parts_of_the_meter_sum_up_to_what_is_used() -> None:
    talk = Talk()
    talk.add(SystemSet("system", 1_000))
    talk.add(RulesSet("AGENTS.md", "tabs", 50))
    talk.add(ToolsOffered((), 500))
    talk.user("go", tokens=100)
    talk.steps(3, tokens=700)
    meter = context_usage.measure_window(talk.state, LAYERED)
    assert meter.parts[ContextKind.SYSTEM] == 1_000 + 50 + RULES_HEADER_TOKENS + 500
    assert meter.parts[ContextKind.OUTPUT] == 2_100
    assert meter.used == sum(meter.parts.values())
    assert meter.used_share == meter.used / 128_000
    assert meter.request_fits


def test_a_fold_shows_in_the_meter_at_once_and_undo_takes_it_back() -> None:
    talk = Talk()
    talk.user("go", tokens=100)
    talk.steps(4, tokens=700)
    before = context_usage.measure_window(talk.state, LAYERED)
    talk.fold("h", Span(1, 5), tokens=60)
    folded = context_usage.measure_window(talk.state, LAYERED)
    assert folded.parts[ContextKind.HANDOVER] == 60
    assert folded.used < before.used - 1_000
    assert (
        talk.state.branch.view_tokens_without_fold("h")
        == talk.state.branch.total_tokens + before.used - folded.used
    )
    assert talk.state.find_fold("h") is not None
    assert talk.state.live_folds[0].kind is FoldKind.HANDOVER


def test_the_factor_is_learned_from_what_is_billed_and_one_wrong_report_changes_little() -> None:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "some-model", 100_000))
    talk.user("go", tokens=1_000)
    assert talk.state.billed_per_counted_token() == 1.0
    for index in range(6):
        counted = talk.state.counted_tokens
        talk.reply("yes", f"c{index}", model="some-model", billed=round(counted * 1.2))
        talk.output(f"c{index}")
    assert talk.state.billed_per_counted_token() == pytest.approx(1.2, abs=0.01)
    talk.reply("no", model="some-model", billed=talk.state.counted_tokens * 2)
    assert talk.state.billed_per_counted_token() == pytest.approx(1.2, abs=0.01)
    talk.reply("nonsense", model="some-model", billed=talk.state.counted_tokens * 50)
    assert talk.state.billed_per_counted_token() == pytest.approx(1.2, abs=0.01)


def test_claude_models_begin_with_what_was_measured() -> None:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "claude-sonnet-5", 200_000))
    talk.user("go", tokens=1_000)
    assert talk.state.billed_per_counted_token() == 1.32
    assert context_usage.measure_window(talk.state, LAYERED).used == round(1_004 * 1.32)
    assert context_usage.estimate_billed_tokens(100, talk.state) == 132


def test_each_model_has_its_own_factor() -> None:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "one", 100_000))
    talk.user("go", tokens=1_000)
    for _ in range(5):
        talk.reply("yes", model="one", billed=talk.state.counted_tokens * 2)
    talk.add(ModelSet(ModelRole.MAIN, "other", 100_000))
    assert talk.state.billed_per_counted_token() == 1.0


def test_a_window_that_is_not_known_is_the_policys() -> None:
    unknown = ModelSet(ModelRole.MAIN, "m", 0)
    assert context_usage.window_tokens(unknown, LAYERED) == LAYERED.window > 0


def test_window_and_reserve() -> None:
    assert context_usage.window_tokens(None, LAYERED) == 128_000
    assert context_usage.reserved_tokens(None, LAYERED) == 8_000 + 3_000
    talk = Talk()
    chosen = ModelSet(ModelRole.MAIN, "m", 32_000, max_output=1_000)
    talk.add(chosen)
    assert context_usage.window_tokens(chosen, LAYERED) == 32_000
    assert context_usage.reserved_tokens(chosen, LAYERED) == 1_000 + 1_600
    talk.user("long", tokens=30_000)
    meter = context_usage.measure_window(talk.state, LAYERED)
    assert not meter.request_fits
    assert meter.free_tokens < 0
    assert "30,004 of 32,000" in meter.format_meter()


def test_prices_are_shares_and_unknown_ones_the_usual() -> None:
    assert relative_prices(None) == RelativePrices()
    assert relative_prices(ModelSet(ModelRole.MAIN, "m", 0)) == RelativePrices(0.1, 1.0, 5.0)
    known = ModelSet(
        ModelRole.MAIN,
        "m",
        0,
        price_input=2.0,
        price_output=8.0,
        price_cache_read=0.2,
        price_cache_write=2.5,
    )
    assert relative_prices(known) == RelativePrices(0.1, 1.25, 4.0)


def test_the_cost_of_a_usage() -> None:
    known = ModelSet(
        ModelRole.MAIN,
        "m",
        0,
        price_input=2.0,
        price_output=8.0,
        price_cache_read=0.2,
        price_cache_write=2.5,
    )
    usage = Usage(input=1_000_000, cache_read=400_000, cache_write=100_000, output=100_000)
    assert context_usage.compute_cost(usage, known) == pytest.approx(
        0.5 * 2 + 0.4 * 0.2 + 0.1 * 2.5 + 0.1 * 8
    )
    assert context_usage.compute_cost(Usage(input=5, cost=0.7), known) == 0.7
    assert context_usage.compute_cost(usage, None) == 0.0


PRICED = ModelSet(
    ModelRole.MAIN,
    "m",
    128_000,
    price_input=1.0,
    price_output=5.0,
    price_cache_read=0.1,
    price_cache_write=1.25,
)


def test_the_next_message_has_no_price_where_none_is_known() -> None:
    talk = Talk()
    talk.user("go", tokens=1_000)
    assert context_usage.estimate_next_message_cost(talk.state, LAYERED) is None
    talk.add(ModelSet(ModelRole.MAIN, "m", 128_000))
    assert context_usage.estimate_next_message_cost(talk.state, LAYERED) is None


def test_before_the_first_reply_nothing_is_in_the_cache_and_no_reply_is_counted() -> None:
    talk = Talk()
    talk.add(PRICED)
    talk.user("go", tokens=1_000)
    price = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    used = context_usage.measure_window(talk.state, LAYERED).used
    assert price is not None
    assert price.reply == 0
    assert price.warm == price.cold == pytest.approx(used * 1.25 / 1e6)


def test_what_the_last_request_sent_is_read_from_a_warm_cache_and_written_to_a_cold_one() -> None:
    talk = Talk()
    talk.add(PRICED)
    talk.user("go", tokens=1_000)
    sent = talk.state.counted_tokens
    talk.reply("yes", model="m", billed=sent)
    talk.user("more", tokens=500)
    price = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    used = context_usage.measure_window(talk.state, LAYERED).used
    assert price is not None
    assert price.reply > 0
    reply = price.reply * 5.0
    assert price.warm == pytest.approx((sent * 0.1 + (used - sent) * 1.25 + reply) / 1e6)
    assert price.cold == pytest.approx((used * 1.25 + reply) / 1e6)


def test_another_model_has_nothing_in_its_cache() -> None:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "other", 128_000))
    talk.user("go", tokens=1_000)
    talk.reply("yes", model="other", billed=talk.state.counted_tokens)
    talk.add(PRICED)
    price = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    assert price is not None
    assert price.warm == price.cold


def test_after_a_fold_only_what_stands_before_it_is_still_in_the_cache() -> None:
    """The warm price was that of the whole last request, and so too low."""
    talk = Talk()
    talk.add(replace(PRICED, cache_seconds=300))
    talk.user("go", tokens=1_000)
    front = talk.state.counted_tokens
    out = talk.step("c1", tokens=20_000)
    sent = talk.state.counted_tokens
    talk.reply("done", model="m", billed=sent)
    before = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    talk.fold("marker-1", PartRef(out), kind=FoldKind.MARKER, tokens=50)
    after = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    assert before is not None
    assert after is not None
    used = context_usage.measure_window(talk.state, LAYERED).used
    cached = front + talk.state.branch.item_at(out - 1).tokens
    rest = after.reply * 5.0
    assert after.warm == pytest.approx(
        (cached * 0.1 + (used - cached) * 1.25 + rest) / 1e6, rel=0.02
    )
    assert after.cold < before.cold
    talk.add(Unfolded("marker-1"))
    assert context_usage.count_cached_tokens(talk.state, "m") == pytest.approx(cached, rel=0.02)


def test_a_changed_system_prompt_leaves_nothing_in_the_cache() -> None:
    talk = Talk()
    talk.add(PRICED)
    talk.user("go", tokens=1_000)
    talk.reply("yes", model="m", billed=talk.state.counted_tokens)
    assert context_usage.count_cached_tokens(talk.state, "m") > 0
    talk.add(SystemSet("Another.", 5))
    assert context_usage.count_cached_tokens(talk.state, "m") == 0


def test_the_cache_lives_from_the_last_request_on_where_its_provider_says_for_how_long() -> None:
    talk = Talk()
    talk.add(replace(PRICED, cache_seconds=300))
    talk.user("go", tokens=1_000)
    talk.reply("yes", model="m", billed=talk.state.counted_tokens)
    price = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    assert price is not None
    assert price.warm_until == talk.state.time_of_moment + 300
    assert (
        price.cost_when_sent(talk.state.time_of_moment + 299)
        == price.warm
        < price.cold
        == price.cost_when_sent(talk.state.time_of_moment + 301)
    )
    talk.add(PRICED)
    price = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    assert price is not None
    assert (price.warm_until, price.cost_when_sent(talk.state.time_of_moment + 1e6)) == (
        0.0,
        price.warm,
    )


def test_the_meter_names_the_main_model() -> None:
    talk = Talk()
    chosen = ModelSet(ModelRole.MAIN, "m", 9_005, 5_000)
    talk.add(chosen)
    meter = context_usage.measure_window(talk.state, LAYERED)
    assert (meter.model, meter.window) == ("m", 9_005)
    assert str(context_usage.reserved_tokens(chosen, LAYERED)) == str(900 + 450)


def test_what_is_never_folded_counts_with_the_settings() -> None:
    talk = Talk()
    talk.add(SystemSet("system", 1_000))
    seq = talk.user("go", tokens=100)
    alone = context_usage.count_unfoldable_tokens(talk.state)
    talk.add(Pinned(PartRef(seq)))
    assert alone == 1_000
    assert context_usage.count_unfoldable_tokens(talk.state) >= 1_100


def test_a_token_that_is_written_costs_its_share_of_the_models_price() -> None:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 9_000, price_input=4.0, price_cache_write=5.0))
    talk.user("go")
    found = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    assert found is not None
    assert found.per_token == pytest.approx(5 / 1_000_000)


def test_after_an_answer_the_meter_is_what_the_model_counted_and_the_reply() -> None:
    """Every request has tokens that we do not count, such as how tools are written. Until enough
    requests were billed, the meter said less than the last of them.
    """
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "counts-otherwise", 16_000))
    talk.user("hello there", tokens=1_500)
    assert context_usage.measure_window(talk.state, LAYERED).is_estimate
    for reply_tokens in (17, 17, 5_000, 17):
        counted = talk.state.counted_tokens
        billed = counted + 480
        talk.reply("yes", tokens=reply_tokens, model="counts-otherwise", billed=billed)
        counted_of_reply = talk.state.counted_tokens - counted
        meter = context_usage.measure_window(talk.state, LAYERED)
        assert not meter.is_estimate
        assert meter.used == sum(meter.parts.values())
        # The reply itself has not been billed yet.
        assert meter.used == billed + round(counted_of_reply * meter.factor)
        talk.user("next", tokens=5)


def test_what_is_removed_after_an_answer_is_never_more_than_the_model_counted() -> None:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "claude-sonnet-5", 100_000))
    talk.user("go", tokens=100)
    talk.steps(4, tokens=9_000)
    talk.reply("read", model="claude-sonnet-5", billed=talk.state.counted_tokens)
    talk.fold("h", Span(1, 5), tokens=60)
    meter = context_usage.measure_window(talk.state, LAYERED)
    assert meter.factor > 1
    assert meter.used == pytest.approx(sum(meter.counted.values()), abs=2)


def test_a_report_that_makes_no_sense_leaves_the_meter_an_estimate() -> None:
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 100_000))
    talk.user("go", tokens=1_000)
    talk.reply("yes", model="m", billed=50_000)
    meter = context_usage.measure_window(talk.state, LAYERED)
    assert meter.is_estimate
    assert meter.used == talk.state.counted_tokens


@pytest.mark.parametrize("seconds_back", [86_400.0, 31_557_600.0, 1.7e9])
def test_a_clock_that_is_set_back_keeps_no_cache_warm_for_ever(seconds_back: float) -> None:
    """The window said "price rises in 525,960 min", and nothing was shortened for a year."""
    talk = Talk()
    talk.add(replace(PRICED, cache_seconds=300), after=2e9)
    talk.user("go", tokens=1_000)
    talk.reply("yes", model="m", billed=talk.state.counted_tokens)
    price = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    assert price is not None
    now = talk.state.time_of_moment - seconds_back
    assert price.cost_when_sent(now) == price.cold
    assert context_usage.is_cache_cold(talk.state, now)


def test_a_clock_that_is_set_back_by_seconds_ends_no_cache() -> None:
    talk = Talk()
    talk.add(replace(PRICED, cache_seconds=300), after=2e9)
    talk.user("go", tokens=1_000)
    talk.reply("yes", model="m", billed=talk.state.counted_tokens)
    price = context_usage.estimate_next_message_cost(talk.state, LAYERED)
    assert price is not None
    now = talk.state.time_of_moment - 20
    assert price.cost_when_sent(now) == price.warm
    assert price.warm_seconds_left(now) == 300
    assert not context_usage.is_cache_cold(talk.state, now)
