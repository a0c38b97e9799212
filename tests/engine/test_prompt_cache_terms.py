"""What caching costs and how long it lasts, as the provider charges it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.context_policy import preset_policy
from helix_desktop.engine.context_usage import compute_cost, estimate_next_message_cost
from helix_desktop.engine.facts import (
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    Stop,
    Text,
    ToolCall,
    Usage,
)
from helix_desktop.engine.prompt_cache_terms import (
    CACHE_TERMS,
    cache_lifetime_seconds,
    cache_terms_of_model,
    is_cached_for_an_hour,
    prices_of_main_model,
)
from helix_desktop.providers.model_prices import shipped_models
from tests.engine.talk import Talk

CLAUDE = ModelSet(ModelRole.MAIN, "anthropic/claude-opus-4-5", 200_000, 0, 5.0, 25.0, 0.5, 6.25)
CODEX = ModelSet(ModelRole.MAIN, "openai/gpt-5.1-codex", 200_000, 0, 1.25, 10.0, 0.125)


def asked(talk: Talk, model: str, usage: Usage, *, after: float) -> int:
    call = ToolCall(f"c{talk.state.seq}", "read", "{}", 5)
    reply = ModelReplied((Text("see", 1), call), model, Stop.CALLS, usage)
    seq = talk.add(reply, after=after)
    talk.output(call.id)
    return seq


def hourly(written: int, read: int = 0) -> Usage:
    return Usage(read + written + 2, read, written, 10, cache_write_hour=written)


@pytest.mark.parametrize(
    ("model", "write", "seconds", "least"),
    [
        ("anthropic/claude-opus-4-5-20251101", 1.25, 300, 4_096),
        ("claude-sonnet-4-5", 1.25, 300, 1_024),
        ("us.anthropic.claude-sonnet-4-6-v1", 1.25, 300, 2_048),
        ("eu.anthropic.claude-sonnet-4-6-v1", 1.25, 300, 2_048),
        ("anthropic.claude-sonnet-4-6-v1", 1.25, 300, 2_048),
        ("bedrock/global.anthropic.claude-sonnet-4-6-v1", 1.25, 300, 2_048),
        ("openrouter/anthropic/claude-haiku-4-5", 1.25, 300, 4_096),
        ("claude-3-5-haiku-latest", 1.25, 300, 2_048),
        ("gpt-5.1-codex", 1.0, 300, 1_024),
        ("openai/gpt-5.6", 1.0, 86_400, 1_024),
        ("models/gemini-3-pro", 1.0, 300, 2_048),
        ("somebody/qwen-9", 1.0, 300, 4_096),
    ],
)
def test_the_terms_of_a_model(model: str, write: float, seconds: float, least: int) -> None:
    terms = cache_terms_of_model(model)
    assert (terms.write, terms.seconds, terms.least_tokens) == (write, seconds, least)


def test_every_row_says_where_it_is_from_and_matches_a_model_that_is_shipped() -> None:
    names = list(shipped_models().models)
    for row in CACHE_TERMS:
        assert row.source
        assert row.as_of
        assert any(row.models.match(name) for name in names), row.models.pattern


def test_an_hour_costs_twice_the_input_price() -> None:
    terms = cache_terms_of_model("claude-opus-4-5", for_an_hour=True)
    assert (terms.write, terms.seconds) == (2.0, 3_600)
    usage = hourly(1_000)
    assert compute_cost(usage, CLAUDE) == pytest.approx((2 + 2_000 + 50) * 5 / 1_000_000)


def test_what_an_agent_asked_for_is_seen_in_its_usage() -> None:
    talk = Talk()
    talk.add(CLAUDE)
    talk.user("go")
    assert not is_cached_for_an_hour(talk.state)
    asked(talk, CLAUDE.model, hourly(20_000), after=5)
    assert is_cached_for_an_hour(talk.state)
    assert prices_of_main_model(talk.state).write == pytest.approx(2.0)
    # A request that wrote nothing says nothing of how long its cache lasts.
    asked(talk, CLAUDE.model, Usage(20_002, 20_000, 0, 10), after=5)
    assert cache_lifetime_seconds(talk.state) == 3_600
    # The agent may ask for less at any time.
    asked(talk, CLAUDE.model, Usage(21_000, 20_000, 1_000, 10), after=5)
    assert cache_lifetime_seconds(talk.state) == 300
    assert prices_of_main_model(talk.state).write == pytest.approx(1.25)


def test_before_the_first_reply_an_hour_is_priced_as_the_request_asks_for_it() -> None:
    talk = Talk()
    talk.add(replace(CLAUDE, cache_seconds=3_600))
    talk.user("hello")
    assert is_cached_for_an_hour(talk.state)
    assert cache_lifetime_seconds(talk.state) == 3_600
    assert prices_of_main_model(talk.state).write == 2.0
    # What the provider then charges is surer than what was asked for.
    asked(talk, CLAUDE.model, Usage(10_000, 0, 9_998, 10), after=1.0)
    assert not is_cached_for_an_hour(talk.state)
    # OpenAI keeps a prompt for as long as it likes, and charges nothing for it.
    talk = Talk()
    talk.add(replace(CODEX, cache_seconds=43_200))
    talk.user("hello")
    assert prices_of_main_model(talk.state).write == 1.0
    assert cache_lifetime_seconds(talk.state) == 43_200


def test_the_next_message_is_priced_and_timed_by_the_hour_too() -> None:
    talk = Talk()
    talk.add(CLAUDE)
    talk.user("go")
    seq = asked(talk, CLAUDE.model, hourly(20_000), after=5)
    price = estimate_next_message_cost(talk.state, preset_policy("layered"))
    assert price is not None
    assert price.warm_until == talk.state.record.facts[seq - 1].time + 3_600
    assert price.per_token == pytest.approx(2.0 * 5 / 1_000_000)


def test_where_nothing_is_documented_pauses_tell_how_long_a_cache_lasts() -> None:
    talk = Talk()
    talk.add(CODEX)
    talk.user("go")
    asked(talk, CODEX.model, Usage(10_000, 0, 0, 10), after=5)
    assert cache_lifetime_seconds(talk.state) == 300
    asked(talk, CODEX.model, Usage(10_500, 10_000, 0, 10), after=1_500)
    assert cache_lifetime_seconds(talk.state) == pytest.approx(1_500, abs=10)
    asked(talk, CODEX.model, Usage(11_000, 0, 0, 10), after=2_500)
    asked(talk, CODEX.model, Usage(11_500, 11_000, 0, 10), after=1_800)
    assert cache_lifetime_seconds(talk.state) == pytest.approx(1_800, abs=10)


def test_a_cache_that_is_gone_sooner_than_assumed_lasts_so_long() -> None:
    talk = Talk()
    talk.add(CODEX)
    talk.user("go")
    asked(talk, CODEX.model, Usage(10_000, 0, 0, 10), after=5)
    asked(talk, CODEX.model, Usage(10_500, 0, 0, 10), after=120)
    assert cache_lifetime_seconds(talk.state) == pytest.approx(120, abs=10)


def test_a_miss_after_a_fold_says_nothing_of_the_cache() -> None:
    talk = Talk()
    talk.add(CODEX)
    talk.user("go")
    seq = asked(talk, CODEX.model, Usage(10_000, 0, 0, 10), after=5)
    talk.add(Folded("m", FoldKind.MARKER, PartRef(seq + 1), "gone", 5, 500))
    asked(talk, CODEX.model, Usage(9_000, 0, 0, 10), after=60)
    assert cache_lifetime_seconds(talk.state) == 300


def test_anthropics_lifetime_is_documented_and_not_learned() -> None:
    talk = Talk()
    talk.add(CLAUDE)
    talk.user("go")
    asked(talk, CLAUDE.model, Usage(10_000, 0, 9_000, 10), after=5)
    asked(talk, CLAUDE.model, Usage(10_500, 9_000, 1_000, 10), after=900)
    assert cache_lifetime_seconds(talk.state) == 300


@pytest.mark.parametrize("jump", [31_557_600.0, -31_557_600.0])
def test_a_clock_that_is_set_between_two_requests_teaches_no_lifetime(jump: float) -> None:
    talk = Talk()
    talk.add(CODEX, after=2e9)
    talk.user("go")
    asked(talk, CODEX.model, Usage(10_000, 0, 0, 10), after=5)
    asked(talk, CODEX.model, Usage(10_500, 10_000, 0, 10), after=jump)
    assert cache_lifetime_seconds(talk.state) == 300
