"""What is selected in the chat: from one place to another, across items, and what is copied of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from helix_desktop.engine.facts import ModelReplied, ToolCall
from helix_desktop.gui.transcript.chunks import chunks
from helix_desktop.gui.transcript.item import Item, ItemKind, text_of
from helix_desktop.gui.transcript.item_layout import Laid
from helix_desktop.gui.transcript.markdown import blocks, plain, references
from helix_desktop.gui.transcript.projection import Items
from helix_desktop.gui.transcript.tool_lines import called
from helix_desktop.values import dataclass

MOST_COPIED = 64 << 20
MOST_PARSED = 200_000  # characters whose mark-up is taken out; of more, the source is copied as it is


class Place(NamedTuple):
    """An item and an offset into its text."""

    item: int
    offset: int


@dataclass(slots=True)
class Selection:
    """`anchor` stays, `caret` moves."""

    anchor: Place = Place(-1, 0)
    caret: Place = Place(-1, 0)

    @property
    def empty(self) -> bool:
        return self.anchor.item < 0 or self.anchor == self.caret

    @property
    def ends(self) -> tuple[Place, Place]:
        return (self.anchor, self.caret) if self.anchor <= self.caret else (self.caret, self.anchor)

    def clear(self) -> None:
        self.anchor = self.caret = Place(-1, 0)

    def within(self, index: int, length: int) -> tuple[int, int]:
        """The selected offsets of one item."""
        if self.empty:
            return 0, 0
        first, last = self.ends
        if not first.item <= index <= last.item:
            return 0, 0
        return (first.offset if index == first.item else 0, last.offset if index == last.item else length)


def copied(selection: Selection, items: Items, laid: Callable[[int], Laid], *, markdown: bool) -> str:
    """The selected text. Only the first and the last item are laid out for it; what lies between is taken whole."""
    if selection.empty:
        return ""
    first, last = selection.ends
    parts: list[str] = []
    size = 0
    for index, whole in _chosen(items, first.item, last.item):
        if index in (first.item, last.item):
            edge = laid(index)
            a, b = selection.within(index, edge.length)
            part = edge.markdown(a, b) if markdown else edge.text(a, b)
        else:
            part = source_of(whole) if markdown else plain_of(whole, parsed=size < MOST_PARSED)
        if part:
            parts.append(part)
            size += len(part)
        if size > MOST_COPIED:
            break
    return "\n\n".join(parts)


def _chosen(items: Items, first: int, last: int) -> Iterator[tuple[int, Item]]:
    for index in range(first, min(last + 1, len(items.all))):
        if not items.hidden(index):
            yield index, items.all[index]


def plain_of(item: Item, *, parsed: bool = True) -> str:
    """An item that is not laid out, as text."""
    if item.kind is ItemKind.REASONING:
        return ""
    text = text_of(item).strip()
    if not text or not parsed or len(text) > MOST_PARSED or item.kind not in (ItemKind.REPLY, ItemKind.USER):
        return text or _line_of(item)
    breaks = item.kind is ItemKind.USER
    found = [block for chunk in chunks(text) for block in blocks(text, chunk, references(text), breaks=breaks)]
    return "\n".join(plain(block) for block in found)


def source_of(item: Item) -> str:
    """An item that is not laid out, as Markdown: a call as a line of code."""
    text = "" if item.kind is ItemKind.REASONING else text_of(item).strip()
    line = _line_of(item)
    return text or (f"`{line}`" if line else "")


def _line_of(item: Item) -> str:
    if item.kind is ItemKind.CALL and isinstance(item.fact, ModelReplied):
        call = item.fact.parts[item.part]
        if isinstance(call, ToolCall):
            return called(call.name, call.arguments)
    return ""
