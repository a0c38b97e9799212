"""All strategies, in the order in which they are asked before a step."""

from collections.abc import Mapping

from helix_desktop.engine.facts import FoldKind
from helix_desktop.engine.strategies import handover, observation, reflection, truncation
from helix_desktop.engine.strategies.fold_strategy import FoldStrategy

STRATEGIES: Mapping[FoldKind, FoldStrategy] = {
    strategy.kind: strategy
    for strategy in (
        reflection.STRATEGY,
        observation.STRATEGY,
        handover.STRATEGY,
        truncation.STRATEGY,
    )
}
