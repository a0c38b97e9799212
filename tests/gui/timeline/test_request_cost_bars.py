"""Each request's bar belongs to the first point of the chart that is not before it."""

from __future__ import annotations

from helix_desktop.engine.request_costs import RequestCost
from helix_desktop.gui.timeline.request_cost_bars import RequestCostBars


def test_a_request_belongs_to_the_next_point_and_after_the_last_to_none() -> None:
    between = RequestCost(3, 0.0, "m", 10, 0.5, ())
    after = RequestCost(9, 0.0, "m", 10, 0.25, ())
    bars = RequestCostBars([between, after], seqs=[2, 5])
    assert bars.describe_costs(0) == ""
    assert bars.describe_costs(1) == "$0.500 for this request"
    assert bars.describe_costs(2) == ""
