"""A conversation as it was: its state at any fact, computed in slices, with places to start from on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, QTimer

from helix_desktop.engine.blocks import Block, View
from helix_desktop.engine.facts import (
    Attachment,
    Reasoning,
    Recorded,
    Span,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
)
from helix_desktop.engine.view import State
from helix_desktop.gui.meter import kind_name, short
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.words import tr

SLICE = 0.005
AT_ONCE = 64


class Past(QObject):
    """One question at a time; a later one takes the place of an earlier one that is not answered yet."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._facts: Sequence[Recorded] = ()
        self._state = State()
        self._wanted = 0
        self._then: Callable[[State], None] | None = None
        self._slices = QTimer(self, interval=0)
        self._slices.timeout.connect(self._go_on)

    def of(self, facts: Sequence[Recorded]) -> None:
        """Look at another conversation. The sequence may grow."""
        self._slices.stop()
        self._facts, self._state, self._then = facts, State(), None

    def at(self, seq: int, then: Callable[[State], None]) -> None:
        """Call `then` with the state when `seq` was the newest fact; at once where that takes a moment."""
        if seq < len(self._state.facts):
            self._state = State()
        self._wanted, self._then = seq, then
        self._go_on()

    def _go_on(self) -> None:
        until = time.perf_counter() + SLICE
        state, facts = self._state, self._facts
        end = min(self._wanted, len(facts))
        while len(state.facts) < end:
            for recorded in facts[len(state.facts) : min(end, len(state.facts) + AT_ONCE)]:
                state.advance(recorded)
            if time.perf_counter() > until:
                self._slices.start()
                return
        self._slices.stop()
        then, self._then = self._then, None
        if then is not None:
            then(state)


def readable(view: View, facts: Sequence[Recorded]) -> str:
    """A view as text, block by block, for a comparison. Short outputs in full; of long ones, which entry they are."""
    heads = {r.seq: r.fact.head for r in facts if isinstance(r.fact, ToolReturned) and r.fact.head}
    pieces = []
    for block in view.blocks:
        title = f"── {kind_name(block.kind)} · {source(block)} · {short(block.tokens)} ──"
        pieces.append(f"{title}\n{content(block, heads)}")
    return "\n\n".join(pieces)


def source(block: Block) -> str:
    """Where a block comes from: the number of its fact, or those it covers."""
    cover = block.source
    if isinstance(cover, Span):
        return tr("numbers {first} to {last}", first=cover.first, last=cover.last)
    return tr("number {n}", n=cover.seq)


def content(block: Block, heads: dict[int, str]) -> str:
    """What a block says."""
    what = block.content
    if isinstance(what, Text | Reasoning):
        return what.text
    if isinstance(what, ToolCall):
        return f"{what.name} {what.arguments}"
    stored = what.stored if isinstance(what, Attachment) else what
    head = heads.get(block.source.seq, "") if not isinstance(block.source, Span) else ""
    return head or entry_line(stored)


def entry_line(stored: Stored) -> str:
    return tr("[entry {hash}, {size}]", hash=stored.digest.short, size=size(stored.size))
