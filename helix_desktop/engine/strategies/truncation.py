"""Truncation: the last rung. No model: the details, the plan, and hashes that make every dropped part recallable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from helix_desktop.engine.details import Detail
from helix_desktop.engine.facts import FoldKind
from helix_desktop.engine.strategies import handover
from helix_desktop.engine.strategies.plan import Plan, Situation, foldable

SHOWN_HASHES = 12


def plan(situation: Situation, until: int = 0) -> Plan | None:
    """Everything before the tail, or before `until`."""
    span = foldable(situation, until)
    if span is None:
        return None
    return Plan(FoldKind.TRUNCATION, span, "the next request would not fit otherwise", panic=True)


def body(found: Sequence[Detail], todo: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The sections a truncation can fill by itself; the details are added to them like to any document."""
    plan_lines = [f"- [{'x' if state == 'done' else ' '}] {text}" for text, state in todo]
    outputs = [detail.text for detail in found if detail.kind == "stored"][-SHOWN_HASHES:]
    kept = "\n".join(f"- {line}" for line in outputs)
    return {
        "Project Background": "No summary could be written; what follows was collected from the conversation itself.",
        "TODO Items": "\n".join(plan_lines),
        "Technical Details": f"The newest outputs that were dropped:\n{kept}" if kept else "",
    }


STRATEGY = replace(
    handover.STRATEGY, kind=FoldKind.TRUNCATION, due=lambda _: None, name=lambda _: "A truncation",
    main_writes=lambda _, __: False,
)  # fmt: skip
