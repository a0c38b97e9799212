"""What is selected in the chat, across items, and the text that is copied."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from helix_desktop.engine.facts import ModelReplied, ToolCall
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.item_layout import ItemLayout
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.markdown_blocks import (
    block_as_plain_text,
    link_reference_lines,
    parse_markdown_blocks,
)
from helix_desktop.gui.transcript.markdown_chunks import split_markdown_chunks
from helix_desktop.gui.transcript.tool_call_lines import format_call
from helix_desktop.gui.transcript.transcript_item import TranscriptItem, TranscriptItemKind, item_source_text

MOST_COPIED = 64 << 20
MOST_PARSED = 200_000  # In characters. Of a longer selection, the source is copied with its mark-up.


class TranscriptPosition(NamedTuple):
    """An item and an offset into its text."""

    item: int
    offset: int


@dataclass(slots=True)
class TranscriptSelection:
    """`anchor` stays, `caret` moves."""

    anchor: TranscriptPosition = TranscriptPosition(-1, 0)
    caret: TranscriptPosition = TranscriptPosition(-1, 0)

    @property
    def is_empty_selection(self) -> bool:
        return self.anchor.item < 0 or self.anchor == self.caret

    @property
    def ordered_ends(self) -> tuple[TranscriptPosition, TranscriptPosition]:
        return (self.anchor, self.caret) if self.anchor <= self.caret else (self.caret, self.anchor)

    def clear_selection(self) -> None:
        self.anchor = self.caret = TranscriptPosition(-1, 0)

    def selected_offsets_of(self, index: int, length: int) -> tuple[int, int]:
        if self.is_empty_selection:
            return 0, 0
        first, last = self.ordered_ends
        if not first.item <= index <= last.item:
            return 0, 0
        return (first.offset if index == first.item else 0, last.offset if index == last.item else length)


def copy_selection_text(
    selection: TranscriptSelection, items: TranscriptItems, laid: Callable[[int], ItemLayout], *, markdown: bool
) -> str:
    """The selected text. Only the first and the last item are laid out for it; what lies between is taken whole."""
    if selection.is_empty_selection:
        return ""
    first, last = selection.ordered_ends
    parts: list[str] = []
    size = 0
    for index, whole in _fully_selected_items(items, first.item, last.item):
        if index in (first.item, last.item):
            edge = laid(index)
            a, b = selection.selected_offsets_of(index, edge.text_length)
            part = edge.copyable_markdown(a, b) if markdown else edge.text_between_offsets(a, b)
        else:
            part = item_as_markdown(whole) if markdown else item_as_plain_text(whole, parsed=size < MOST_PARSED)
        if part:
            parts.append(part)
            size += len(part)
        if size > MOST_COPIED:
            break
    return "\n\n".join(parts)


def _fully_selected_items(items: TranscriptItems, first: int, last: int) -> Iterator[tuple[int, TranscriptItem]]:
    for index in range(first, min(last + 1, len(items.all))):
        if not items.is_item_hidden(index):
            yield index, items.all[index]


def item_as_plain_text(item: TranscriptItem, *, parsed: bool = True) -> str:
    if item.kind is TranscriptItemKind.REASONING:
        return ""
    text = item_source_text(item).strip()
    if (
        not text
        or not parsed
        or len(text) > MOST_PARSED
        or item.kind not in (TranscriptItemKind.REPLY, TranscriptItemKind.USER)
    ):
        return text or _item_as_one_line(item)
    breaks = item.kind is TranscriptItemKind.USER
    found = [
        block
        for chunk in split_markdown_chunks(text)
        for block in parse_markdown_blocks(text, chunk, link_reference_lines(text), breaks=breaks)
    ]
    return "\n".join(block_as_plain_text(block) for block in found)


def item_as_markdown(item: TranscriptItem) -> str:
    """An item that is not laid out, as Markdown: a call as a line of code."""
    text = "" if item.kind is TranscriptItemKind.REASONING else item_source_text(item).strip()
    line = _item_as_one_line(item)
    return text or (f"`{line}`" if line else "")


def _item_as_one_line(item: TranscriptItem) -> str:
    if item.kind is TranscriptItemKind.CALL and isinstance(item.source_fact, ModelReplied):
        call = item.source_fact.parts[item.part]
        if isinstance(call, ToolCall):
            return format_call(call.name, call.arguments)
    return ""
