"""What the inspector says, worked out of a view and a story. Plain Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property

from helix_desktop.engine.blocks import Block, Kind
from helix_desktop.engine.facts import (
    Attachment,
    FoldKind,
    ModelRole,
    PartRef,
    Reasoning,
    Span,
    Text,
    ToolCall,
)
from helix_desktop.engine.history.ledger import Savings
from helix_desktop.engine.history.moment import Moment
from helix_desktop.gui.meter import kind_name, short
from helix_desktop.gui.shared.figures import money
from helix_desktop.gui.shared.folds import title
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.transcript.tool_lines import called
from helix_desktop.gui.words import percent, tr
from helix_desktop.values import dataclass

PER_MILLION = 1_000_000
_MARKS = re.compile(r"^#+ |`|\*\*|\$\$", re.MULTILINE)  # of Markdown


@dataclass(frozen=True)
class Part:
    """A block of the view as the inspector lists it. `cost`: of sending it once, in dollars, 0 where unknown."""

    number: int
    block: Block
    tokens: int
    cost: float
    naming: Callable[[Block], tuple[str, bool]]

    @cached_property
    def named(self) -> tuple[str, bool]:
        """What it is called; found when it is shown, since most are not."""
        return self.naming(self.block)

    @property
    def name(self) -> str:
        return self.named[0]

    @property
    def code(self) -> bool:
        """Whether the name is code."""
        return self.named[1]


def parts(state: Moment) -> list[Part]:
    """Every block of the view in order, with the tokens it was counted with: the same ones on every page."""
    chosen = state.settings.model(ModelRole.MAIN)
    price = chosen.price_input / PER_MILLION * state.factor() if chosen else 0.0

    def naming(block: Block) -> tuple[str, bool]:
        return named(block, state)

    found = []
    for number, block in enumerate(state.view().blocks):
        found.append(Part(number, block, block.tokens, block.tokens * price, naming))
    return found


def named(block: Block, state: Moment) -> tuple[str, bool]:
    """What a block is, in a few words, and whether they are code."""
    fold = state.fold(block.fold) if block.fold else None
    if fold is not None and isinstance(fold.cover, Span):
        return title(fold), False
    seq = block.source.seq if isinstance(block.source, PartRef) else block.source.last
    if block.kind is Kind.OUTPUT:
        answered = state.record.answered.get(seq)
        return called(answered.call.name, answered.call.arguments) if answered else tr("output {n}", n=seq), True
    what = block.content
    if isinstance(what, ToolCall):
        return called(what.name, what.arguments), True
    if isinstance(what, Attachment):
        return harmless(what.name), True
    if isinstance(what, Text | Reasoning):
        words = " ".join(harmless(_MARKS.sub("", what.text[:200])).split())
        return words or kind_name(block.kind), False
    return kind_name(block.kind), False


def largest(all_parts: Sequence[Part]) -> list[Part]:
    """The largest messages and outputs in the context."""
    loose = [part for part in all_parts if part.block.kind in (Kind.CONVERSATION, Kind.OUTPUT)]
    return sorted(loose, key=lambda part: -part.tokens)[:3]


def handover_name(state: Moment) -> str:
    """The newest live handover by name; the kind's name without any."""
    branch = state.branch
    spans = (branch.folds[name] for names in branch.by_span.values() for name in names)
    handovers = [fold for fold in spans if fold.kind is FoldKind.HANDOVER]
    if not handovers:
        return kind_name(Kind.HANDOVER)
    return title(max(handovers, key=lambda fold: branch.ages[fold.fold]))


def savings(figures: Savings) -> list[tuple[str, str, bool]]:
    """The session in rows: words, figure, and whether it is the good news."""
    rows = [
        (tr("Without folding"), short(figures.without), False),
        (tr("Sent"), short(figures.sent), False),
    ]
    if figures.cache_read:
        rows.append((tr("Read from the provider's cache"), _percent(figures.cache_share), False))
    if figures.paid:
        rows.append((tr("Cost so far"), money(figures.paid), False))
    if figures.sent and figures.share > 0:  # of a stopped reply nothing is reported
        saved = _percent(figures.share)
        if figures.paid_without > figures.paid > 0:
            saved += f" · {money(figures.paid_without - figures.paid)}"
        rows.append((tr("Saved"), saved, True))
    return rows


def _percent(share: float) -> str:
    """Never all of it where some is left."""
    return percent(min(share, 1 if share >= 1 else 0.99))
