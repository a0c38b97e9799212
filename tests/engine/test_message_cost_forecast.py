"""The forecast of the next message's cost is the middle of what the last ones cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine import context_policy, context_usage
from helix_desktop.engine.facts import (
    BroughtIn,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    Purpose,
    Span,
    Spent,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Usage,
)
from helix_desktop.engine.message_cost_forecast import (
    MOST_MESSAGES,
    estimate_context_after_undo,
    estimate_next_message,
    forecast_message_cost,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from tests.engine.talk import Talk

PRICED = ModelSet(ModelRole.MAIN, "m", 128_000, price_input=1.0, price_output=5.0)


def answer(talk: Talk, *costs: float, ends: bool = True) -> None:
    """A message, one request for each cost, and the end of the turn."""
    talk.user("go")
    for cost in costs:
        usage = Usage(input=100, cost=cost)
        talk.add(ModelReplied((Text("yes", 1),), "m", Stop.END, usage))
    if ends:
        talk.add(TurnEnded(TurnEnd.DONE))


def forecast_dollars(talk: Talk) -> float:
    forecast = forecast_message_cost(talk.state)
    if forecast is None:
        return 0.0
    return forecast.dollars


def test_all_requests_of_a_message_count() -> None:
    """The request that sends it was a third of what a message cost, or less."""
    talk = Talk()
    talk.add(PRICED)
    for _ in range(3):
        answer(talk, 0.001, 0.001, 0.001)
        talk.add(Spent(Purpose.HANDOVER, "m", Usage(cost=0.001)))
    assert forecast_dollars(talk) == pytest.approx(0.004)
    request = context_usage.estimate_next_message_cost(
        talk.state, context_policy.preset_policy("layered")
    )
    assert request is not None
    assert request.warm < 0.004


def test_without_two_answered_messages_there_is_no_forecast() -> None:
    talk = Talk()
    talk.add(PRICED)
    answer(talk, 0.001)
    assert forecast_message_cost(talk.state) is None
    answer(talk, 0.9, ends=False)
    assert forecast_message_cost(talk.state) is None, "its last requests are still to come"
    talk.add(TurnEnded(TurnEnd.DONE))
    assert forecast_dollars(talk) == pytest.approx(0.4505)


def test_the_forecast_follows_the_last_messages_and_says_how_they_vary() -> None:
    talk = Talk()
    talk.add(PRICED)
    for _ in range(MOST_MESSAGES):
        answer(talk, 9.0)
    for cost in range(1, MOST_MESSAGES + 1):
        answer(talk, float(cost))
    forecast = forecast_message_cost(talk.state)
    assert forecast is not None
    assert (forecast.low, forecast.dollars, forecast.high) == (3.0, 5.0, 7.0)
    assert forecast.messages == MOST_MESSAGES
    earlier = forecast_message_cost(talk.state.past_moment(1 + 3 * MOST_MESSAGES))
    assert earlier is not None
    assert earlier.dollars == 9.0


def test_commands_and_free_answers_say_nothing() -> None:
    talk = Talk()
    talk.add(PRICED)
    answer(talk, 0.002)
    answer(talk)
    answer(talk, 0.0)
    assert forecast_message_cost(talk.state) is None


def test_another_model_has_no_forecast_yet() -> None:
    talk = Talk()
    talk.add(PRICED)
    answer(talk, 0.002)
    answer(talk, 0.002)
    talk.add(PRICED)
    assert forecast_dollars(talk) == pytest.approx(0.002), "the same model was chosen again"
    talk.add(ModelSet(ModelRole.MAIN, "other", 128_000, price_input=10.0))
    assert forecast_message_cost(talk.state) is None


def test_what_another_program_paid_is_no_basis() -> None:
    talk = Talk()
    talk.add(PRICED)
    answer(talk, 2.0)
    answer(talk, 2.0)
    talk.add(BroughtIn(Origin("claude-code", "session", "file"), "run", first=2))
    assert forecast_message_cost(talk.state) is None
    answer(talk, 0.002)
    answer(talk, 0.004)
    assert forecast_dollars(talk) == pytest.approx(0.003)


def test_a_message_that_steers_belongs_to_the_message_before() -> None:
    talk = Talk()
    talk.add(PRICED)
    answer(talk, 0.002)
    talk.user("go")
    talk.add(ModelReplied((Text("yes", 1),), "m", Stop.END, Usage(input=100, cost=0.001)))
    talk.user("and this", steering=True)
    talk.add(ModelReplied((Text("yes", 1),), "m", Stop.END, Usage(input=100, cost=0.001)))
    talk.add(TurnEnded(TurnEnd.DONE))
    assert forecast_dollars(talk) == pytest.approx(0.002)


def test_a_model_that_is_recorded_behind_its_first_message_has_answered_it() -> None:
    """A conversation records its model when the first message is sent."""
    talk = Talk()
    talk.user("go")
    talk.add(PRICED)
    talk.add(ModelReplied((Text("yes", 1),), "m", Stop.END, Usage(input=100, cost=0.002)))
    talk.add(TurnEnded(TurnEnd.DONE))
    answer(talk, 0.004)
    assert forecast_dollars(talk) == pytest.approx(0.003)
    talk.add(ModelSet(ModelRole.MAIN, "other", 128_000, price_input=10.0))
    answer(talk, 0.9)
    assert forecast_message_cost(talk.state) is None, "only one message went to this model"


@pytest.mark.parametrize("cache_read", [0.0, 0.1])
def test_only_a_context_that_costs_less_is_said_to_cost_less(cache_read: float) -> None:
    """Without a price of what is cached, all of it was said to be "at the reduced price"."""
    talk = Talk()
    talk.add(replace(PRICED, price_cache_read=cache_read))
    answer(talk, 0.001)
    policy = context_policy.preset_policy("layered")
    estimate = estimate_next_message(talk.state, policy, 10, now=0.0)
    assert estimate.dollars > 0
    assert (estimate.cached > 0) is (cache_read > 0)


def test_what_an_undo_leads_to_is_what_the_meter_says_after_it() -> None:
    """An Undo put in more than fits with the next message, without a word."""
    policy = context_policy.preset_policy("layered")
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 32_000, price_input=3.0, price_output=15.0))
    talk.add(SystemSet("You are an agent.", 1_000))
    talk.user("go")
    read = ModelReplied((ToolCall("c", "read_file", "{}", 5),), "m", Stop.CALLS, Usage(input=1_000))
    talk.add(read)
    output = Stored(Digest.of_content(b"long"), 90_000)
    talk.add(ToolReturned("c", output, 24_500, head="long"))
    talk.add(Folded("e", FoldKind.EXCERPT, PartRef(talk.state.seq), "short", 300, 24_500))
    talk.add(ModelReplied((Text("So.", 5),), "m", Stop.END, Usage(input=1_400, output=5)))
    talk.add(TurnEnded(TurnEnd.DONE))
    before = estimate_context_after_undo(talk.state, policy, [], 1e12)
    assert not before.is_shortened_again
    promised = estimate_context_after_undo(talk.state, policy, ["e"], 1e12)
    assert promised.is_shortened_again
    assert promised.used > before.used + 20_000
    assert promised.fits is (promised.used <= promised.window - promised.reserve)
    assert promised.dollars > 10 * before.dollars
    talk.add(Unfolded("e"))
    meter = context_usage.measure_window(talk.state, policy)
    assert (promised.used, promised.window) == (meter.used, meter.window)
    cost = context_usage.estimate_next_message_cost(talk.state, policy)
    assert cost is not None
    assert promised.dollars == pytest.approx(cost.cold)


def test_an_undo_of_what_a_summary_covers_is_known_to_add_nothing() -> None:
    """The text that was 5.1K more was 0 more after a summary, and nothing said why."""
    policy = context_policy.preset_policy("layered")
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 32_000))
    first = talk.user("Read both.", tokens=10)
    output = talk.step("c1", tokens=5_266)
    talk.fold("e", PartRef(output), kind=FoldKind.EXCERPT, tokens=185)
    last = talk.reply("So.")
    later = talk.step("c2", tokens=900)
    talk.fold("later", PartRef(later), kind=FoldKind.EXCERPT, tokens=100)
    alone = estimate_context_after_undo(talk.state, policy, ["e", "later"], 0.0)
    assert (alone.folds, alone.behind_summary) == (2, 0)
    assert not alone.adds_nothing
    talk.fold("h", Span(first, last), tokens=50)
    both = estimate_context_after_undo(talk.state, policy, ["e", "later"], 0.0)
    assert (both.folds, both.behind_summary) == (2, 1)
    assert estimate_context_after_undo(talk.state, policy, ["e"], 0.0).adds_nothing
    # What is undone together with the summary comes back with it.
    with_summary = estimate_context_after_undo(talk.state, policy, ["h", "e"], 0.0)
    assert with_summary.behind_summary == 0
    assert not estimate_context_after_undo(talk.state, policy, [], 0.0).adds_nothing


def test_what_an_undo_adds_is_the_same_after_a_restart() -> None:
    """9.4K of 8.2K tokens were 10.2K before: what a tokenizer counts is not recorded."""
    policy = context_policy.preset_policy("layered")
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 32_000))
    talk.user("Read it.", tokens=10)
    output = talk.step("c1", tokens=5_266)
    talk.fold("e", PartRef(output), kind=FoldKind.EXCERPT, tokens=185)
    ledger = talk.state.record.ledger
    ledger.set_estimated_factor("m", talk.state.seq, 1.7)
    talk.reply("So.", billed=900)
    ledger.set_measured_factor("m", talk.state.seq, 1.9)
    assert talk.state.billed_per_counted_token() == 1.9
    running = estimate_context_after_undo(talk.state, policy, ["e"], 0.0)
    read_again = estimate_context_after_undo(build_state(talk.facts), policy, ["e"], 0.0)
    assert running == read_again
    assert running.used > 5_000


@pytest.mark.parametrize("is_stopped", [False, True])
def test_between_turns_meter_and_undo_say_the_same_and_a_restart_changes_neither(
    is_stopped: bool,
) -> None:
    """An Undo that was to fill 54% of the window filled 52%, and the meter went from 88% to 81% by
    a restart alone: it went by an estimate that is not recorded, after the turn it was made for.
    """
    policy = context_policy.preset_policy("layered")
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 32_000))
    ledger = talk.state.record.ledger
    talk.user("Read it.", tokens=10)
    ledger.set_estimated_factor("m", talk.state.seq, 1.2)
    output = talk.step("c1", tokens=5_266)
    talk.fold("e", PartRef(output), kind=FoldKind.EXCERPT, tokens=185)
    ledger.set_estimated_factor("m", talk.state.seq, 1.4)
    talk.reply("So.", billed=330)
    talk.add(TurnEnded(TurnEnd.DONE))
    if is_stopped:
        talk.user("Tell me more.", tokens=700)
        ledger.set_estimated_factor("m", talk.state.seq, 1.7)
        estimated = context_usage.measure_window(talk.state, policy).used
        assert estimated == round(talk.state.counted_tokens * talk.state.billed_per_counted_token())
        talk.add(ModelReplied((Text("Once", 3),), "m", Stop.STOPPED))
        talk.add(TurnEnded(TurnEnd.STOPPED))
    running = context_usage.measure_window(talk.state, policy)
    read_again = context_usage.measure_window(build_state(talk.facts), policy)
    assert running == read_again
    announced = estimate_context_after_undo(talk.state, policy, ["e"], 0.0)
    talk.add(Unfolded("e"))
    assert context_usage.measure_window(talk.state, policy).used == announced.used
