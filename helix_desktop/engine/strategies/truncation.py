"""Truncation, the last measure: details, tasks and hashes replace older messages."""

from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine.facts import FoldKind
from helix_desktop.engine.strategies import handover
from helix_desktop.engine.strategies.fold_strategy import (
    FoldPlan,
    FoldSituation,
    find_foldable_span,
)


def plan_truncation(situation: FoldSituation, until: int = 0) -> FoldPlan | None:
    """Plan to cover everything before the tail, or before `until`."""
    span = find_foldable_span(situation, until)
    if span is None:
        return None
    why = "otherwise, the next request would not fit"
    return FoldPlan(FoldKind.TRUNCATION, span, why, panic=True)


def fill_truncation_sections(todo: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the sections that need no model. Details and entries are added as to any document."""
    plan_lines = []
    for text, state in todo:
        if state == "done":
            plan_lines.append(f"- [x] {text}")
        else:
            plan_lines.append(f"- [ ] {text}")
    return {
        "Project Background": "No summary could be written; what follows was collected from the conversation itself.",
        "TODO Items": "\n".join(plan_lines),
    }


STRATEGY = replace(
    handover.STRATEGY,
    kind=FoldKind.TRUNCATION,
    due=lambda _: None,
    name=lambda _: "A truncation",
    main_writes=lambda _, __: False,
)
