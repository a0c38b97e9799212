"""A conversation as it was: what held at any of its facts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject

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
from helix_desktop.engine.history.moment import Moment
from helix_desktop.gui.background import Doing
from helix_desktop.gui.meter import kind_name, short
from helix_desktop.gui.ports import ConversationLike
from helix_desktop.gui.shared.figures import size
from helix_desktop.gui.words import tr


class Past:
    """One question at a time; a later one takes the place of an earlier one that is not answered yet."""

    def __init__(self, doing: Doing, owner: QObject) -> None:
        self._doing = doing
        self._owner = owner
        self._asked = 0

    def forget(self) -> None:
        """Answer nothing that was asked before."""
        self._asked += 1

    def at(self, conversation: ConversationLike, seq: int, then: Callable[[Moment], None]) -> None:
        """Call `then` with what held when `seq` was the newest fact; it is worked out beside the painting thread."""
        self.forget()
        number = self._asked

        def answer(moment: Moment) -> None:
            if number == self._asked:
                then(moment)

        self._doing.do(conversation.moment(seq), name="a moment of the past", then=answer, owner=self._owner)


def readable(view: View, facts: Sequence[Recorded]) -> str:
    """A view as text, block by block, for a comparison. Short outputs in full; of long ones, which entry they are."""
    pieces = []
    for block in view.blocks:
        title = f"── {kind_name(block.kind)} · {source(block)} · {short(block.tokens)} ──"
        pieces.append(f"{title}\n{content(block, facts)}")
    return "\n\n".join(pieces)


def source(block: Block) -> str:
    """Where a block comes from: the number of its fact, or those it covers."""
    cover = block.source
    if isinstance(cover, Span):
        return tr("#{first} to #{last}", first=cover.first, last=cover.last)
    return tr("#{n}", n=cover.seq)


def content(block: Block, facts: Sequence[Recorded]) -> str:
    """What a block says."""
    what = block.content
    if isinstance(what, Text | Reasoning):
        return what.text
    if isinstance(what, ToolCall):
        return f"{what.name} {what.arguments}"
    stored = what.stored if isinstance(what, Attachment) else what
    fact = facts[block.source.seq - 1].fact if not isinstance(block.source, Span) else None
    return (fact.head if isinstance(fact, ToolReturned) else "") or entry_line(stored)


def entry_line(stored: Stored) -> str:
    return tr("[entry {hash}, {size}]", hash=stored.digest.short, size=size(stored.size))
