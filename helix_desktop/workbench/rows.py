"""A conversation as a list shows it: what the journal knows of it, and what stands in its window."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from helix_desktop.engine.blocks import Kind
from helix_desktop.engine.budget import Meter
from helix_desktop.engine.facts import ConversationChanged, Recorded
from helix_desktop.store.conversations import Row

DEFAULT_WINDOW = 128_000


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """`parts`: the tokens of its window by kind; `cost` in dollars, as far as prices are known."""

    id: str
    title: str
    updated: float
    pinned: bool = False
    archived: bool = False
    trashed: bool = False
    parent: str = ""
    cost: float = 0.0
    parts: Mapping[Kind, int] = field(default_factory=dict)
    window: int = DEFAULT_WINDOW


def shown(row: Row) -> ConversationRow:
    """From the journal's row; the meter is what was kept at the end of its last turn."""
    parts, window = _read(row.meter)
    return ConversationRow(
        row.id,
        row.title or row.begins,
        row.updated,
        row.pinned,
        row.archived,
        row.trashed,
        row.parent,
        row.cost,
        parts,
        window,
    )


def after(row: ConversationRow, recorded: Recorded) -> ConversationRow:
    """The row with one more fact."""
    row = replace(row, updated=recorded.time)
    if isinstance(recorded.fact, ConversationChanged):
        changed = recorded.fact
        given = {"title": changed.title, "pinned": changed.pinned, "archived": changed.archived}
        given |= {"trashed": changed.trashed}
        row = replace(row, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    usage = getattr(recorded.fact, "usage", None)
    return replace(row, cost=row.cost + usage.cost) if usage is not None else row


def with_meter(row: ConversationRow, meter: Meter) -> ConversationRow:
    return replace(row, parts=dict(meter.parts), window=meter.window)


def written(meter: Meter) -> str:
    """The meter as the journal keeps it beside the conversation; derived, so its form needs no version."""
    return json.dumps({"window": meter.window, "parts": {kind.name: tokens for kind, tokens in meter.parts.items()}})


def _read(text: str) -> tuple[Mapping[Kind, int], int]:
    try:
        kept = json.loads(text)
        parts = {Kind[name]: int(tokens) for name, tokens in kept["parts"].items()}
        return parts, int(kept["window"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}, DEFAULT_WINDOW
