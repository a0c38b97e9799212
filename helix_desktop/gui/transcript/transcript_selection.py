"""The selection in the chat, across items, and the text that is copied."""

from collections.abc import Callable

from helix_desktop.gui.common.text_selection import TextSelection
from helix_desktop.gui.transcript import markdown_blocks
from helix_desktop.gui.transcript.item_layout import ItemLayout
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.markdown_chunks import split_markdown_chunks
from helix_desktop.gui.transcript.tool_call_lines import call_as_one_line
from helix_desktop.gui.transcript.transcript_item import (
    TranscriptItem,
    TranscriptItemKind,
    item_source_text,
)

MOST_COPIED = 64 << 20
# Text of more characters is copied as its source, because parsing it would take too
# long.
MOST_PARSED = 200_000


def build_selected_text(
    selection: TextSelection,
    items: TranscriptItems,
    lay_out: Callable[[int], ItemLayout],
    *,
    markdown: bool,
) -> str:
    """Returns the selected text. Only the first and the last item are laid out for it."""
    if selection.is_empty_selection:
        return ""
    first, last = selection.ordered_ends
    parts: list[str] = []
    size = 0
    for index in range(first.number, min(last.number + 1, len(items.all))):
        if items.is_item_hidden(index):
            continue
        if index in (first.number, last.number):
            part = _selected_part_of_item(selection, lay_out(index), index, markdown=markdown)
        elif markdown:
            part = item_as_markdown(items.all[index])
        else:
            part = item_as_plain_text(items.all[index], parsed=size < MOST_PARSED)
        if part:
            parts.append(part)
            size += len(part)
        if size > MOST_COPIED:
            break
    return "\n\n".join(parts)


def _selected_part_of_item(
    selection: TextSelection, layout: ItemLayout, index: int, *, markdown: bool
) -> str:
    start, end = selection.selected_offsets_of(index, layout.text_length)
    if markdown:
        return layout.copyable_markdown(start, end)
    return layout.text_between_offsets(start, end)


def item_as_plain_text(item: TranscriptItem, *, parsed: bool = True) -> str:
    """Returns an item as it is copied. Markdown loses its marks if `parsed`, unless the
    text is so long that parsing it would take noticeable time. Reasoning is not copied.
    """
    if item.kind is TranscriptItemKind.REASONING:
        return ""
    text = item_source_text(item).strip()
    if not text:
        return call_as_one_line(item)
    is_markdown = item.kind in (TranscriptItemKind.REPLY, TranscriptItemKind.USER)
    if not parsed or not is_markdown or len(text) > MOST_PARSED:
        return text

    breaks = item.kind is TranscriptItemKind.USER
    link_references = markdown_blocks.find_link_reference_lines(text)
    block_texts: list[str] = []
    for chunk in split_markdown_chunks(text):
        blocks = markdown_blocks.parse_markdown_blocks(text, chunk, link_references, breaks=breaks)
        for block in blocks:
            block_texts.append(markdown_blocks.block_as_plain_text(block))
    return "\n".join(block_texts)


def item_as_markdown(item: TranscriptItem) -> str:
    if item.kind is TranscriptItemKind.REASONING:
        return ""
    text = item_source_text(item).strip()
    if text:
        return text
    call_line = call_as_one_line(item)
    if call_line:
        return f"`{call_line}`"
    return ""
