from __future__ import annotations

import datetime as dt

import pytest

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.engine.facts import ModelRole, Usage
from helix_desktop.json_values import Object, number_at, object_at, value_at
from helix_desktop.providers.model_prices import (
    ASSUMED_LOCAL_WINDOW,
    DEFAULT_WINDOW,
    ModelInfo,
    TokenPrices,
    merge_model_knowledge,
    shipped_models,
    usage_cost,
    window_shown_by_reply,
)


def test_an_unknown_model_gets_a_safe_window_and_says_so() -> None:
    info = merge_model_knowledge("work", "never-heard-of")
    assert (info.name, info.window) == ("work/never-heard-of", DEFAULT_WINDOW)
    assert "assumed" in info.note


def test_that_a_model_reads_images_is_known_only_if_something_says_so() -> None:
    window: Object = {"window": 32_768}
    found = [
        merge_model_knowledge("local", "scripted", reported=window),
        merge_model_knowledge("local", "scripted", reported={**window, "images": True}),
        merge_model_knowledge("local", "scripted", reported=window, corrected={"images": True}),
        merge_model_knowledge("anthropic", "claude-opus-5-5"),
    ]
    assert [info.are_images_known for info in found] == [False, True, True, True]


def test_a_known_model_says_as_of_when() -> None:
    info = merge_model_knowledge("anthropic", "claude-opus-5-5")
    assert (info.window, info.prices.input > 0, info.abilities.reasoning) == (
        1_000_000,
        True,
        "adaptive",
    )
    assert shipped_models().as_of in info.note
    dt.date.fromisoformat(shipped_models().as_of)


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("anthropic/claude-haiku-4.5", "claude-haiku-4-5"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("openai/gpt-5-mini:free", "gpt-5-mini"),
        ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("llama3.3:latest", "llama3.3"),
        ("llama3.3:70b-instruct-q4", "llama3.3"),
        ("gpt-5.1-codex", "gpt-5.1"),
        ("openai/gpt-5.1-codex-max-2025-11-19", "gpt-5.1"),
        ("gpt-5.1-codex-mini", "gpt-5.1-codex-mini"),
    ],
)
def test_names_as_providers_write_them(name: str, known: str) -> None:
    assert shipped_models().entry_for_model(name) == object_at(shipped_models().models, known) != {}


@pytest.mark.parametrize("name", ["gpt-5-minimal", "gpt-50", "my-gpt-5-mini-tuned", "", "/"])
def test_other_names_are_not_taken_for_known_ones(name: str) -> None:
    assert shipped_models().entry_for_model(name) == {}


def test_the_users_word_comes_before_the_providers_before_ours() -> None:
    reported: Object = {"window": 50_000, "input": 7.0}
    info = merge_model_knowledge(
        "p", "gpt-5-mini", reported=reported, corrected={"input": 9.0, "tools": False}
    )
    assert (info.window, info.prices.input, info.abilities.tools) == (50_000, 9.0, False)
    assert (
        info.prices.output
        == number_at(shipped_models().entry_for_model("gpt-5-mini"), "output")
        > 0
    )
    assert "provider reports" in info.note
    assert "you set it" in merge_model_knowledge("p", "m", corrected={"window": 7}).note


def test_the_fact_of_a_choice_carries_window_and_prices() -> None:
    fact = merge_model_knowledge("anthropic", "claude-opus-5-5").as_model_set(ModelRole.MAIN)
    assert (fact.role, fact.model, fact.window, fact.price_cache_read) == (
        "main",
        "anthropic/claude-opus-5-5",
        1_000_000,
        0.2,
    )


def test_the_shipped_data_is_sound() -> None:
    known = {
        "window",
        "max_output",
        "input",
        "output",
        "cache_read",
        "cache_write",
        "images",
        "tools",
        "reasoning",
        "temperature",
        "note",
    }
    for name, entry in shipped_models().models.items():
        assert isinstance(entry, dict)
        assert set(entry) <= known, name
        assert number_at(entry, "window") >= 4096, name
        assert number_at(entry, "max_output") < number_at(entry, "window"), name
        assert value_at(entry, "reasoning") in {None, "effort", "budget", "adaptive", "level"}, name
        assert shipped_models().entry_for_model(name) == entry


def test_cost_without_cache_prices_takes_the_price_of_input() -> None:
    used = Usage(input=1000, cache_read=400, cache_write=100, output=10)
    assert usage_cost(used, TokenPrices(input=10.0, output=20.0)) == pytest.approx(
        (1000 * 10 + 10 * 20) / 1e6
    )
    assert usage_cost(used, TokenPrices()) == 0.0


def test_odd_figures_of_a_provider_never_make_a_negative_cost() -> None:
    assert usage_cost(
        Usage(input=10, cache_read=400), TokenPrices(input=1.0, cache_read=0.1)
    ) == pytest.approx(400 * 0.1 / 1e6)


@pytest.mark.parametrize(
    "name", ["claude-sonnet-4-20250514", "claude-opus-4-1-20250805", "claude-3-5-haiku-20241022"]
)
def test_models_of_old_histories_have_prices(name: str) -> None:
    assert merge_model_knowledge("", name).prices.cache_write > 0


def test_what_a_provider_reports_counts_more_than_what_was_assumed_before() -> None:
    """A model with a window of 8K had 16K, as a reply had filled the first assumed 8K before the
    provider's list was read.
    """
    reported: Object = {"window": 8_192}
    assumed: Object = {"window": 16_384, "is_assumed": True}
    info = merge_model_knowledge("p", "m", reported=reported, learned=assumed, is_local=True)
    assert (info.window, info.window_from) == (8_192, WindowSizeSource.REPORTED)
    learned: Object = {"window": 4_096}
    info = merge_model_knowledge("p", "m", reported=reported, learned=learned, is_local=True)
    assert (info.window, info.window_from) == (4_096, WindowSizeSource.LEARNED)


@pytest.mark.parametrize(
    ("counted", "usage", "expected"),
    [
        (7_000, Usage(2_040, 10), {"window": 2_040}),  # Its beginning was cut.
        (7_000, Usage(12, 10), {}),  # Only what it had not read before is reported.
        (1_000, Usage(12, 10), {}),  # Too short to be cut.
        (7_000, Usage(6_800, 10), {"window": 16_384, "is_assumed": True}),
        # It took more than twice what was assumed: 16,384 was too small at once.
        (7_000, Usage(41_000, 10), {"window": 65_536, "is_assumed": True}),
        (3_000, Usage(2_900, 10), {}),
        (3_000, Usage(0, 0), {}),
    ],
)
def test_what_a_reply_shows_of_a_window_that_is_assumed(
    counted: int, usage: Usage, expected: Object
) -> None:
    """A server that reported 11 tokens was taken for one with a window of 1,024."""
    local = ModelInfo("peer", "small", window=ASSUMED_LOCAL_WINDOW, is_free=True)
    assert window_shown_by_reply(local, counted, usage) == expected
    cloud = ModelInfo("peer", "large", window=ASSUMED_LOCAL_WINDOW)
    assert window_shown_by_reply(cloud, counted, usage) == {}
