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
