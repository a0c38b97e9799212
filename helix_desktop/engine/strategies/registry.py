"""All strategies, in the order in which they are asked before a step."""

from __future__ import annotations

from collections.abc import Mapping

from helix_desktop.engine.facts import FoldKind
from helix_desktop.engine.strategies import handover, observation, reflection, truncation
from helix_desktop.engine.strategies.plan import Strategy

STRATEGIES: Mapping[FoldKind, Strategy] = {
    strategy.kind: strategy
    for strategy in (
        reflection.STRATEGY,
        observation.STRATEGY,
        handover.STRATEGY,
        truncation.STRATEGY,
    )
}
