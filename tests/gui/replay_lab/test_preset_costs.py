"""What each preset would have cost, beside what was really done."""

from __future__ import annotations

from helix_desktop.gui.replay_lab.preset_costs import (
    ComparedBy,
    compute_preset_costs,
    describe_preset_cost,
)
from helix_desktop.gui.replay_lab.replay_lab_port import PolicyOutcome


def test_what_was_really_sent_is_not_said_to_have_been_too_large() -> None:
    """The window had been set to a smaller size since: the setting in use was “too long”."""
    outcomes = [
        PolicyOutcome("layered", 50_000, 2.59, 0.9, sent=90_000, is_real=True),
        PolicyOutcome("none", 60_000, 2.59, 0.9, sent=120_000),
    ]
    costs = compute_preset_costs(outcomes, "layered", 0.42, ComparedBy.COST)
    assert describe_preset_cost(costs["layered"]) == "$0.420"
    assert describe_preset_cost(costs["none"]) == "too long: 259% of the context window"


def test_what_is_a_little_too_long_is_not_said_to_fill_the_window_exactly() -> None:
    """It said "too long: 100% of the context window", which is not too long."""
    outcomes = [
        PolicyOutcome("layered", 50_000, 0.9, 0.9, sent=90_000, is_real=True),
        PolicyOutcome("prune", 60_000, 1.002, 0.9, sent=120_000),
    ]
    costs = compute_preset_costs(outcomes, "layered", 0.42, ComparedBy.COST)
    assert describe_preset_cost(costs["prune"]) == "too long: 101% of the context window"
