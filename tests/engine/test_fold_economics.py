"""When clearing and handing over pay."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import fold_economics
from helix_desktop.engine.facts import ModelRole, ModelSet
from helix_desktop.engine.fold_economics import (
    ClearablePart,
    FoldExperience,
    HandoverPlan,
    RelativePrices,
)

USUAL = RelativePrices(0.1, 1.25, 5.0)
staying = st.integers(1, 5_000).map(ClearablePart)
clearable = st.integers(1, 5_000).map(lambda frees: ClearablePart(frees + 60, frees))
parts = st.lists(staying | clearable, max_size=60)
prices = st.builds(RelativePrices, st.floats(0.01, 1), st.floats(0.5, 2), st.floats(1, 10))


def priced(plain: float, output: float, read: float, write: float) -> ModelSet:
    return ModelSet(ModelRole.MAIN, "m", 0, 0, plain, output, read, write)


def test_unknown_prices_count_as_usual() -> None:
    assert fold_economics.relative_prices(priced(0, 0, 0, 0)) == RelativePrices(0.1, 1.0, 5.0)
    assert fold_economics.relative_prices(priced(3.0, 0, 0, 0)) == RelativePrices(1.0, 1.0, 5.0)


def test_prices_are_shares_of_the_input_price() -> None:
    assert fold_economics.relative_prices(priced(3.0, 15.0, 0.3, 3.75)) == RelativePrices(
        0.3 / 3.0, 1.25, 5.0
    )


def test_the_threshold_is_the_square_root_rule() -> None:
    expected = math.sqrt(2 * 1.15 * 20_000 * 500 / 0.1)
    assert fold_economics.clearing_threshold(20_000, 500, USUAL) == pytest.approx(expected)


def test_the_rule_also_holds_where_writing_to_the_cache_costs_what_input_costs() -> None:
    prices = RelativePrices(0.5, 1.0, 4.0)
    expected = math.sqrt(2 * 0.5 * 20_000 * 500 / 0.5)
    assert fold_economics.clearing_threshold(20_000, 500, prices) == pytest.approx(expected)


def test_a_cache_that_is_likely_cold_lowers_the_threshold() -> None:
    warm = fold_economics.clearing_threshold(20_000, 500, USUAL)
    assert fold_economics.clearing_threshold(20_000, 500, USUAL, cold=0.5) < warm


def test_without_caching_a_fixed_saving_is_enough() -> None:
    assert fold_economics.clearing_threshold(1e6, 500, RelativePrices(1.0, 1.0, 5.0)) == 4_000


def test_nothing_to_clear_is_never_cleared() -> None:
    assert fold_economics.find_clearing_start([ClearablePart(9_000)] * 20, 500, USUAL) is None


def test_what_stands_behind_nothing_but_cleared_parts_is_cleared_at_once() -> None:
    """What is cleared is not written anew: with nothing else behind it, only the least
    saving counts.
    """
    assert (
        fold_economics.find_clearing_start(
            [ClearablePart(2_000), ClearablePart(5_000, 4_940)], 500, USUAL
        )
        == 1
    )


def test_a_small_saving_waits() -> None:
    assert fold_economics.find_clearing_start([ClearablePart(3_000, 2_940)], 500, USUAL) is None


def test_much_behind_a_small_saving_waits() -> None:
    assert (
        fold_economics.find_clearing_start(
            [ClearablePart(5_000, 4_940), ClearablePart(90_000)], 500, USUAL
        )
        is None
    )


def test_the_start_with_the_largest_surplus_is_chosen() -> None:
    view = [
        ClearablePart(200, 140),
        ClearablePart(40_000),
        ClearablePart(9_000, 8_940),
        ClearablePart(9_000, 8_940),
        ClearablePart(2_000),
    ]
    assert fold_economics.find_clearing_start(view, 300, USUAL) == 2


@given(parts, st.floats(0, 5_000), prices)
def test_a_clearing_always_frees_what_its_threshold_asks(
    view: list[ClearablePart], growth: float, price: RelativePrices
) -> None:
    start = fold_economics.find_clearing_start(view, growth, price)
    if start is not None:
        freed = sum(part.frees for part in view[start:])
        rest = sum(part.tokens - part.frees for part in view[start + 1 :])
        assert view[start].frees > 0
        assert freed >= fold_economics.LEAST_SAVING
        assert freed >= fold_economics.clearing_threshold(rest, growth, price)


@given(parts, st.floats(0, 5_000), prices)
def test_none_means_that_no_start_pays(
    view: list[ClearablePart], growth: float, price: RelativePrices
) -> None:
    if fold_economics.find_clearing_start(view, growth, price) is None:
        for start, part in enumerate(view):
            rest = sum(other.tokens - other.frees for other in view[start + 1 :])
            threshold = max(
                fold_economics.clearing_threshold(rest, growth, price), fold_economics.LEAST_SAVING
            )
            assert not part.frees or sum(other.frees for other in view[start:]) < threshold


def test_a_cold_cache_clears_a_third() -> None:
    assert fold_economics.pays_to_clear_when_cold(10_000, 30_000)
    assert not fold_economics.pays_to_clear_when_cold(9_999, 30_000)
    assert not fold_economics.pays_to_clear_when_cold(0, 0)


def test_the_main_model_writes_over_its_own_cache() -> None:
    plan = HandoverPlan(context=50_000, stays=8_000, summary=3_000)
    assert fold_economics.handover_cost(plan, USUAL) == pytest.approx(
        5_000 + 375 + 15_000 + 1.25 * 11_000
    )


def test_another_writer_reads_uncached_at_its_own_prices() -> None:
    plan = HandoverPlan(context=50_000, stays=8_000, summary=3_000)
    cost = fold_economics.handover_cost(plan, USUAL, RelativePrices(0.1, 1.0, 4.0), scale=0.2)
    assert cost == pytest.approx(0.2 * (50_300 + 12_000) + 1.25 * 11_000)


def test_rent_or_buy() -> None:
    assert fold_economics.carrying_cost(30_000, USUAL) == pytest.approx(3_000)
    assert not fold_economics.handover_pays(29_999, 3_000, 30_000)
    assert fold_economics.handover_pays(30_000, 3_000, 30_000)
    assert not fold_economics.handover_pays(30_000, 3_000, 30_000, FoldExperience(0.1, 100)), (
        "recalls take their share"
    )


def test_a_handover_waits_in_a_conversation_that_may_end_before_it_has_paid() -> None:
    assert not fold_economics.handover_pays(90_000, 3_000, 30_000, FoldExperience(0.0, 28))
    assert fold_economics.handover_pays(90_000, 3_000, 30_000, FoldExperience(0.0, 29))
    assert not fold_economics.handover_pays(90_000, -1_000, 30_000), (
        "what it saves is less than its document takes"
    )


def test_a_larger_window_never_lowers_or_raises_the_floor() -> None:
    floors = {
        fold_economics.least_context_for_handover(window, 36_000, 0.3)
        for window in (128_000, 200_000, 1_000_000)
    }
    assert floors == {36_000}
    assert fold_economics.least_context_for_handover(32_000, 36_000, 0.3) == pytest.approx(9_600)


def test_in_small_windows_less_is_large_and_less_stays() -> None:
    assert fold_economics.large_output_limit_tokens(128_000) == 4_000
    assert fold_economics.large_output_limit_tokens(32_000) == 1_333
    assert fold_economics.large_output_limit_tokens(32_000, 2_000) == 666
    assert fold_economics.large_output_limit_tokens(2_000) == 500
    assert fold_economics.large_output_limit_tokens(128_000, 60_000) == 60_000
    assert fold_economics.most_tail_tokens_in_panic(32_000) == 8_000


def test_the_larger_the_context_the_longer_an_entry_that_comes_back_whole() -> None:
    def whole(context: int, steps: int = 20, read: float = 0.1) -> int:
        return fold_economics.most_tokens_of_whole_entry(
            context, steps, RelativePrices(read, 1.25, 5.0), 1_400, 6_000
        )

    assert 1_400 < whole(5_000) < whole(40_000) < whole(100_000) <= 6_000
    assert whole(40_000, steps=2) > whole(40_000, steps=20), (
        "what is carried for fewer steps costs less"
    )
    assert whole(1_000_000) == 6_000
    assert whole(0, steps=1_000) == whole(0, steps=20) > 1_400


def test_what_recalls_take_of_a_saving_makes_clearing_wait() -> None:
    def threshold(recalled: float, steps: float = 1_000) -> float:
        return fold_economics.clearing_threshold(
            20_000, 500, USUAL, experience=FoldExperience(recalled, steps)
        )

    assert threshold(0) == fold_economics.clearing_threshold(20_000, 500, USUAL)
    assert threshold(0) < threshold(0.5) < threshold(0.9) < threshold(1) == math.inf
    assert threshold(0, steps=10) > threshold(0), (
        "a short session must have it back within a few steps"
    )
    experience = FoldExperience(0, 10, recall=1_000)
    with_recall = fold_economics.clearing_threshold(20_000, 500, USUAL, experience=experience)
    assert with_recall > threshold(0, steps=10)
    assert fold_economics.recall_cost_share(0, 0) == fold_economics.RECALLS_EXPECTED
    assert (
        fold_economics.recall_cost_share(1e6, 2e6) > 1 > fold_economics.recall_cost_share(1e6, 1e5)
    )
    assert fold_economics.recall_cost(40_000, 1, USUAL) < fold_economics.recall_cost(
        80_000, 1, USUAL
    )
