"""Conversations of a real workspace through other policies, in a process of their own."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop.desktop import replay_process
from helix_desktop.engine.facts import ModelReplied, PolicySet, Stop, SystemSet, Text, Usage
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.engine.state.token_ledger import Savings
from helix_desktop.errors import InvalidInput, StoreFailed
from helix_desktop.gui.replay_lab.preset_costs import ComparedBy, compute_preset_costs
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome
from helix_desktop.workbench.tour_folder import MODEL, create_tour_folder
from tests.engine.talk import Talk
from tests.scripted_tour import run_tour_session
from tests.workbench.conftest import desks, folder

__all__ = ["desks", "folder"]


async def test_a_conversation_is_played_through_each_policy(
    desks: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own := tmp_path / "temporary").mkdir()  # Other tests replay at the same time.
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    create_tour_folder(tmp_path / "sample")
    desk = desks()  # type: ignore[operator]
    bench = await desk.create_workspace("Sample", tmp_path / "sample")
    tour = await run_tour_session(bench)
    heard: list[tuple[int, int]] = []
    outcomes = await replay_process.replay_conversations(
        bench, [tour.id], ["helix", "none"], 32_000, lambda done, total: heard.append((done, total))
    )
    helix, none = outcomes
    assert (helix.policy, none.policy) == ("helix", "none")
    assert helix.billed < none.billed
    assert helix.peak <= 1 < none.peak
    assert heard[-1] == (2, 2)
    assert not list(own.glob("helix-replay-*"))
    with pytest.raises(StoreFailed, match="The replay failed"):
        await replay_process.replay_conversations(
            bench, [tour.id], ["unknown"], 32_000, lambda _d, _t: None
        )


async def test_the_peak_of_what_was_never_shortened_is_what_the_meter_says(
    desks: object, tmp_path: Path
) -> None:
    """The peak of 8 % stood beside a meter of 6 %: the system prompt was counted twice."""
    create_tour_folder(tmp_path / "sample")
    bench = await desks().create_workspace("Sample", tmp_path / "sample")  # type: ignore[operator]
    await bench.choose_model_for_role(MODEL)
    session = await bench.start_conversation("Short")
    session.send_message((Text("Hello"),))
    await session.wait_until_idle()
    meter = session.context.next_request_meter()
    play = replay_process.replay_conversations
    (outcome,) = await play(bench, [session.id], ["none"], meter.window, lambda _d, _t: None)
    last_reply = session.conversation.state.spent[-1].usage.output
    used = meter.used - last_reply * meter.factor
    assert outcome.peak == pytest.approx(used / meter.window, rel=0.1)


async def test_the_last_conversations_are_played_together(desks: object, tmp_path: Path) -> None:
    create_tour_folder(tmp_path / "sample")
    bench = await desks().create_workspace("Sample", tmp_path / "sample")  # type: ignore[operator]
    tour = await run_tour_session(bench)
    empty = (await bench.start_conversation()).id
    heard: list[tuple[int, int]] = []
    play = replay_process.replay_conversations
    note = lambda done, total: heard.append((done, total))  # noqa: E731
    (alone,) = await play(bench, [tour.id], ["helix"], 32_000, lambda _d, _t: None)
    (both,) = await play(bench, [tour.id, tour.id, empty], ["helix"], 32_000, note)
    assert (both.billed, both.peak, both.in_view) == (2 * alone.billed, alone.peak, alone.in_view)
    assert 0 < both.in_view <= 1
    assert heard[-1] == (2, 2)
    with pytest.raises(InvalidInput, match="no conversation to replay"):
        await play(bench, [empty], ["helix"], 32_000, note)


async def test_what_really_happened_is_what_the_simulation_says_of_the_preset_in_use(
    desks: object, tmp_path: Path
) -> None:
    """The meter said that 379,500 tokens were sent, and the comparison 410,400."""
    create_tour_folder(tmp_path / "sample")
    bench = await desks().create_workspace("Sample", tmp_path / "sample")  # type: ignore[operator]
    tour = await run_tour_session(bench)
    state = tour.conversation.state
    assert state.settings.policy is not None
    used = state.settings.policy.preset
    other = "none"
    play = replay_process.replay_conversations
    outcomes = await play(bench, [tour.id], [other, used], 32_000, lambda _d, _t: None)
    real = next(outcome for outcome in outcomes if outcome.policy == used)
    assert [outcome.is_real for outcome in outcomes] == [False, True]
    assert real.sent == state.savings_until_moment().sent
    replies = [one.fact for one in state.facts if isinstance(one.fact, ModelReplied)]
    longest = max(reply.usage.input for reply in replies)
    assert real.peak == pytest.approx(longest / 32_000)


async def test_leaving_everything_is_what_the_meter_compares_with(
    desks: object, tmp_path: Path
) -> None:
    """The meter named one sum for a conversation without shortening, and the comparison another."""
    create_tour_folder(tmp_path / "sample")
    bench = await desks().create_workspace("Sample", tmp_path / "sample")  # type: ignore[operator]
    tour = await run_tour_session(bench)
    state = tour.conversation.state
    assert state.settings.policy is not None
    presets = ["none", state.settings.policy.preset]
    play = replay_process.replay_conversations
    outcomes = await play(bench, [tour.id], presets, 500_000, lambda _d, _t: None)
    none = outcomes[0]
    savings = state.savings_until_moment()
    assert none.peak <= 1
    assert none.sent == savings.without
    assert not none.is_real


def test_leaving_everything_costs_what_the_meter_says_in_dollars() -> None:
    """Instead of about $0.136, said the meter, and the comparison named other sums."""
    prices = RelativePrices(0.1, 1.25, 5.0)
    savings = Savings(9, 900, 4_000, 0, paid=0.0333, paid_without=0.136)
    held = replay_process.HeldConversation("layered", savings, 100, 1.0, prices, True, 0)
    real = PolicyOutcome("layered", billed=10, peak=0.1, in_view=1.0, sent=10)
    none = PolicyOutcome("none", billed=30, peak=0.4, in_view=1.0, sent=30)
    late = PolicyOutcome("helix", billed=34, peak=0.4, in_view=1.0, sent=34)
    outcomes = replay_process._adjust_to_what_happened([none, late, real], [held], 1_000)
    costs = compute_preset_costs(outcomes, "layered", savings.paid, ComparedBy.COST)
    assert costs["none"].dollars == pytest.approx(savings.paid_without)
    assert costs["helix"].dollars == pytest.approx(savings.paid_without * 34 / 30), "simulated"
    assert costs["layered"].dollars == savings.paid


def test_what_was_really_sent_is_said_also_where_the_simulation_shortens_nothing() -> None:
    prices = RelativePrices(0.1, 1.25, 5.0)
    savings = Savings(14, 44_600, 112_100, 0, paid=0.0446, paid_without=0.1)
    held = replay_process.HeldConversation("layered", savings, 100, 1.0, prices, True, 0)
    outcomes = [
        PolicyOutcome(policy, billed=760, peak=0.1, in_view=1.0, sent=760)
        for policy in ("none", "layered")
    ]
    none, layered = replay_process._adjust_to_what_happened(outcomes, [held], 1_000)
    assert (none.sent, layered.sent) == (112_100, 44_600)
    costs = compute_preset_costs([none, layered], "layered", savings.paid, ComparedBy.COST)
    assert costs["layered"].dollars == savings.paid


def test_a_setting_that_leaves_everything_too_stands_beside_leaving_everything() -> None:
    """Of the same simulated sum, one row said 169.3K tokens, and the other 112.1K, as the meter."""
    prices = RelativePrices(0.1, 1.25, 5.0)
    savings = Savings(14, 44_600, 112_100, 0, paid=0.0446, paid_without=0.1)
    held = replay_process.HeldConversation("layered", savings, 100, 1.0, prices, True, 0)
    simulated = {"none": 760, "helix": 760, "notes": 480, "layered": 200, "less": 100}
    outcomes = [
        PolicyOutcome(policy, billed=tokens, peak=0.1, in_view=1.0, sent=tokens)
        for policy, tokens in simulated.items()
    ]
    adjusted = replay_process._adjust_to_what_happened(outcomes, [held], 1_000)
    assert {outcome.policy: outcome.sent for outcome in adjusted} == {
        "none": 112_100,
        "helix": 112_100,
        "notes": (112_100 + 44_600) // 2,
        "layered": 44_600,
        "less": 22_300,
    }
    costs = compute_preset_costs(adjusted, "layered", savings.paid, ComparedBy.COST)
    assert costs["helix"].dollars == pytest.approx(0.1)
    assert costs["notes"].dollars == pytest.approx((0.1 + 0.0446) / 2)
    assert costs["less"].dollars == pytest.approx(0.0223)
    assert costs["layered"].is_baseline
    assert costs["layered"].dollars == pytest.approx(savings.paid)


def test_a_provider_that_caches_nothing_is_not_given_a_cache() -> None:
    def held(*, is_cached: bool) -> replay_process.HeldConversation:
        prices = RelativePrices(0.1, 1.25, 5.0)
        return replay_process.HeldConversation(
            "layered", Savings(1, 9, 9, 0, 0.0, 0.0), 9, 1.5, prices, is_cached, 0
        )

    options = replay_process._price_options([held(is_cached=False)])
    assert options[:4] == ["--cache-read", "1.000000", "--cache-write", "1.000000"]
    options = replay_process._price_options([held(is_cached=False), held(is_cached=True)])
    assert options[:4] == ["--cache-read", "0.100000", "--cache-write", "1.250000"]
    window = replay_process._window_in_counted_tokens
    assert window(30_000, [held(is_cached=True)]) == 20_000


async def test_a_replay_that_is_stopped_leaves_no_process(
    desks: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own := tmp_path / "stopped").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    create_tour_folder(tmp_path / "sample")
    desk = desks()  # type: ignore[operator]
    bench = await desk.create_workspace("Sample", tmp_path / "sample")
    tour = await run_tour_session(bench)
    work = asyncio.ensure_future(  # noqa: TID251 - a test's own task
        replay_process.replay_conversations(
            bench, [tour.id], ["layered"], 31_999, lambda _d, _t: None
        )
    )
    while not running(str(own)):
        await asyncio.sleep(0.02)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not running(str(own))


def running(mark: str) -> bool:
    found = subprocess.run(["pgrep", "-f", f"replay.*{mark}"], capture_output=True, check=False)
    return bool(found.stdout.strip())


PRICES = RelativePrices(0.1, 1.25, 5.0)


def held_with(
    preset: str = "layered", *, sent: int = 100, longest: int = 50, factor: float = 1.0
) -> replay_process.HeldConversation:
    savings = Savings(1, sent, 2 * sent, 0, 0.5, 1.0)
    return replay_process.HeldConversation(preset, savings, longest, factor, PRICES, True, 0)


def outcome(policy: str, tokens: int, peak: float = 0.1) -> PolicyOutcome:
    return PolicyOutcome(policy, billed=tokens, peak=peak, in_view=1.0, sent=tokens)


@pytest.mark.parametrize(
    ("simulated", "real"),
    [
        (100, 1_000),  # What was used.
        (300, 2_000),  # Without shortening.
        (200, 1_500),
        (150, 1_250),
        (50, 500),  # Below both: in proportion to the nearer one.
        (600, 4_000),
        (0, 0),
    ],
)
def test_a_simulated_figure_stands_between_the_two_that_the_meter_knows(
    simulated: float, real: float
) -> None:
    scale = replay_process._MeterScale(100, 1_000, 300, 2_000)
    assert scale.scale_simulated_figure(simulated) == real


def test_with_one_known_figure_all_are_in_proportion_to_it() -> None:
    scale = replay_process._MeterScale(100, 1_000)
    assert [scale.scale_simulated_figure(n) for n in (0, 50, 200)] == [0, 500, 2_000]
    assert replay_process._MeterScale(0, 1_000).scale_simulated_figure(7) == 1_000
    wrong_order = replay_process._MeterScale(100, 1_000, 300, 900)
    assert not wrong_order._knows_both()
    assert wrong_order.scale_simulated_figure(200) == 2_000
    assert wrong_order.scale_simulated_figure(300) == 900
    assert not replay_process._MeterScale(100, 1_000, 0, 900)._knows_both()
    assert not replay_process._MeterScale(100, 1_000, 100, 2_000)._knows_both()


def test_outcomes_stay_as_simulated_where_nothing_real_is_known() -> None:
    outcomes = [outcome("none", 300), outcome("layered", 100)]
    adjust = replay_process._adjust_to_what_happened
    assert adjust(outcomes, [held_with("helix")], 1_000) == outcomes
    assert adjust(outcomes, [held_with(), held_with("none")], 1_000) == outcomes
    assert adjust(outcomes, [held_with(sent=0)], 1_000) == outcomes
    nothing = [outcome("none", 300), outcome("layered", 0)]
    assert adjust(nothing, [held_with()], 1_000) == nothing


def test_the_peak_is_that_of_the_longest_real_request() -> None:
    used = outcome("layered", 100, peak=0.2)
    ratio = replay_process._ratio_of_real_peak
    assert ratio(used, [held_with(longest=50), held_with(longest=400)], 1_000) == 2.0
    assert ratio(used, [held_with(longest=0)], 1_000) == 1.0
    assert ratio(outcome("layered", 100, peak=0.0), [held_with()], 1_000) == 1.0
    # What exceeds the window could not have been left in it, so the meter knows one figure alone.
    outcomes = [outcome("none", 400, peak=0.6), outcome("layered", 100, peak=0.2)]
    none, layered = replay_process._adjust_to_what_happened(
        outcomes, [held_with(longest=400)], 1_000
    )
    assert (none.sent, layered.sent) == (400, 100)
    assert none.peak == pytest.approx(1.2)
    assert layered.peak == pytest.approx(0.4)
    none, _ = replay_process._adjust_to_what_happened(outcomes, [held_with(longest=300)], 1_000)
    assert none.sent == 200, "the meter's figure without shortening"


def test_the_command_takes_no_window_and_no_price_below_its_least() -> None:
    window = replay_process._window_in_counted_tokens
    assert window(30_000, [held_with(factor=1.0), held_with(factor=2.0)]) == 20_000
    assert window(3_000, [held_with(factor=2.0)]) == replay_process.LEAST_WINDOW
    free = replace(held_with(), prices=RelativePrices(0.0, 0.0, 0.0))
    assert replay_process._price_options([free]) == [
        "--cache-read",
        "0.000001",
        "--cache-write",
        "0.000001",
        "--output",
        "0.000001",
    ]


def test_what_the_command_prints_becomes_outcomes_in_its_order() -> None:
    total = {"effective": 5, "peak": 0.25, "retention_plain": 0.75, "sent": 9}
    outcomes = replay_process._policy_outcomes_from_json(
        {"none": {"total": total}, "helix": {"total": {**total, "sent": 7}}}
    )
    assert outcomes == [
        PolicyOutcome("none", 5, 0.25, 0.75, 9),
        PolicyOutcome("helix", 5, 0.25, 0.75, 7),
    ]


def test_what_a_conversation_was_is_measured_by_its_facts() -> None:
    talk = Talk()
    empty = replay_process._measure_conversation(talk.facts)
    assert (empty.preset, empty.longest, empty.is_cached, empty.head_tokens) == ("", 0, False, 0)
    talk.add(PolicySet("layered"))
    talk.add(SystemSet("You are Helix.", 500))
    talk.user("one")
    for tokens, cached in ((1_000, 0), (3_000, 1), (2_000, 0)):
        usage = Usage(input=tokens, cache_read=cached)
        talk.add(ModelReplied((Text("x"),), "m", Stop.END, usage))
    held = replay_process._measure_conversation(talk.facts)
    assert (held.preset, held.longest, held.is_cached) == ("layered", 3_000, True)
    assert held.head_tokens == 0, "the system prompt is in the exported lines"
