"""The column of items: their places, their layouts, and a view that stays still while heights are
corrected.

Heights are estimated until an item is seen. `lay_out_visible` lays out the visible items within the
time limit, and returns the scroll position at which what the reader looks at does not move.
"""

import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator

from helix_desktop.engine.facts import ModelReplied, Text, UserSaid
from helix_desktop.gui.transcript.basic_boxes import ToggleSection
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.item_heights import ItemHeights
from helix_desktop.gui.transcript.item_layout import ItemLayout
from helix_desktop.gui.transcript.layout_context import OUTPUT_LINES, LayoutContext
from helix_desktop.gui.transcript.transcript_item import (
    ItemChanges,
    TranscriptItem,
    TranscriptItemKind,
)

KEPT = 160  # So many items keep their layouts.
# The spaces above the first item, between two items, and between two lines of tools, in pixels.
TOP = 18
BETWEEN = 18
CLOSE = 6

_TIGHT = frozenset(
    {
        TranscriptItemKind.CALL,
        TranscriptItemKind.LIVE_CALL,
        TranscriptItemKind.REASONING,
        TranscriptItemKind.LIVE_REASONING,
    }
)
# The estimated heights of items that do not depend on their text, in pixels.
_CONSTANT = {
    TranscriptItemKind.CALL: 38, TranscriptItemKind.LIVE_CALL: 38, TranscriptItemKind.FOLD: 18,
    TranscriptItemKind.CHANGES: 18, TranscriptItemKind.NOTE: 20, TranscriptItemKind.LIVE_NOTE: 20,
    TranscriptItemKind.REASONING: 20,
    TranscriptItemKind.REWOUND: 44, TranscriptItemKind.PLAN: 120, TranscriptItemKind.WAITING: 64,
    TranscriptItemKind.ERROR: 72, TranscriptItemKind.ADDITION: 20, TranscriptItemKind.LIVE_REASONING: 80, TranscriptItemKind.LIVE_REPLY: 44,
}  # fmt: skip


# For each drawn piece, the top of its item in the view, its own offset from that top,
# and its height.
DrawnPlaces = dict[object, tuple[int, float, float]]


def compute_scroll_and_redraw(
    places_before: DrawnPlaces, places_now: DrawnPlaces
) -> tuple[int, list[tuple[float, float]]] | None:
    """Returns how far most drawn pieces moved and what to redraw, or None if everything
    must be redrawn.
    """
    shift_counts: Counter[int] = Counter()
    for piece, (top_before, _, _) in places_before.items():
        if piece in places_now:
            top_now, _, _ = places_now[piece]
            shift_counts[top_now - top_before] += 1
    if not shift_counts:
        return None
    shift = max(shift_counts, key=shift_counts.__getitem__)

    places_after_scroll: DrawnPlaces = {}
    for piece, (top, offset, height) in places_before.items():
        places_after_scroll[piece] = (top + shift, offset, height)
    # What stands elsewhere than scrolling alone would put it: both places are drawn again.
    to_redraw: list[tuple[float, float]] = []
    for _, (top, offset, height) in places_now.items() ^ places_after_scroll.items():
        to_redraw.append((top + offset, top + offset + height))
    return shift, to_redraw


class ItemColumn:
    """Lays out a transcript's items, in pixels. An item starts with the gap above it."""

    def __init__(self, page: LayoutContext) -> None:
        self.page = page
        self._laid: OrderedDict[int, ItemLayout] = OrderedDict()
        self.reset_layouts()

    def reset_layouts(self) -> None:
        """Estimates all heights again, after opening a conversation or changing the text size."""
        self._laid.clear()
        self.heights = ItemHeights(self._estimate_heights(0))

    def set_style_and_width(self, ink: DrawingStyle, width: float) -> None:
        """Sets another theme or width. The old heights become estimates."""
        self.page.ink = ink
        self.page.width = width
        self._laid.clear()

    def apply_item_changes(self, change: ItemChanges) -> None:
        if change.is_visibility_changed:
            self.reset_layouts()
            return
        for index in change.changed_items:
            self._update_changed_item(index)
        if change.first_new < len(self.heights) or len(self.page.items.all) > len(self.heights):
            self._replace_last_items(change.first_new)

    def discard_layouts(self, is_outdated: Callable[[ItemLayout], bool]) -> None:
        outdated = [index for index, layout in self._laid.items() if is_outdated(layout)]
        for index in outdated:
            del self._laid[index]

    def reveal_found_item(self, index: int) -> None:
        """Shows an item in which something was found, and opens it if it is what an agent added."""
        change = self.page.items.reveal_hidden_item(index)
        # The group's line stands for its first item, too.
        group = self.page.items.groups.group_headed_by(index)
        if group is not None and not group.opened:
            change = self.page.items.toggle_call_group(index)
        if change is not None:
            self.apply_item_changes(change)
        item = self.page.items.all[index]
        if item.kind is TranscriptItemKind.ADDITION:
            key = self.page.section_key("added", item.fact_seq, item.part)
            self.page.section_amounts[key] = 1
            self._laid.pop(index, None)

    def open_output_with_hits(self, index: int, last_line: int) -> None:
        """Opens a call's output down to a line in which something was found."""
        item = self.page.items.all[index]
        amounts = self.page.section_amounts
        key_of_call = self.page.section_key("open", item.fact_seq, item.part)
        amounts[key_of_call] = 1
        key_of_lines = self.page.section_key("lines", item.fact_seq, item.part)
        # These are shown beyond the first lines of an output.
        needed_lines = last_line + 1 - OUTPUT_LINES
        shown_lines = amounts.get(key_of_lines, 0)
        amounts[key_of_lines] = max(shown_lines, needed_lines)
        self._laid.pop(index, None)

    def close_output(self, index: int) -> None:
        item = self.page.items.all[index]
        self.page.section_amounts[self.page.section_key("open", item.fact_seq, item.part)] = 0
        self._laid.pop(index, None)

    def is_output_open(self, index: int) -> bool:
        item = self.page.items.all[index]
        is_open, _ = self.page.section_state("open", item.fact_seq, item.part)
        return is_open

    def toggle_section(self, act: ToggleSection) -> None:
        """Opens or closes a part of the conversation: steps that were rewound, a group
        of calls, or a longer text within an item. What is open is remembered by the
        section's key.
        """
        # Inside a sub-agent's conversation, a key has that conversation's id in front.
        section_kind = act.key[-2:-1]
        if section_kind == ("rewound",):
            index = int(str(act.key[-1]))
            self.apply_item_changes(self.page.items.toggle_rewound_items(index))
            return
        if section_kind == ("group",):
            index = int(str(act.key[-1]))
            self.apply_item_changes(self.page.items.toggle_call_group(index))
            return
        amounts = self.page.section_amounts
        if act.extra_lines:
            amounts[act.key] = amounts.get(act.key, 0) + act.extra_lines
        else:
            is_open = amounts.get(act.key, self._is_section_open_by_default(act))
            amounts[act.key] = int(not is_open)
        self.discard_layouts(lambda _layout: True)

    def _is_section_open_by_default(self, act: ToggleSection) -> bool:
        """Whether a section is open until somebody closes it: live reasoning and plans are."""
        if act.key[0] == "live":
            return True
        seq: object = 0
        if len(act.key) > 1:
            seq = act.key[1]
        if not isinstance(seq, int):
            return False
        index = self.page.items.item_of_fact(seq)
        if index < 0:
            return False
        return self.page.items.all[index].kind is TranscriptItemKind.PLAN

    @property
    def total_height(self) -> int:
        return self.heights.sum_of_heights + self.page.ink.scaled_pixels(TOP)

    def content_top(self, index: int) -> int:
        return self.heights.total_height_before(index) + self.gap_above(index)

    def scroll_value_of_fact(self, seq: int, below: int) -> int | None:
        """Returns the scroll value `below` pixels under the top of a fact, or None if
        the chat does not show it.
        """
        index = self.page.items.item_of_fact(seq)
        if seq == 0 or index < 0:
            return None
        return self.heights.total_height_before(index) + below

    def existing_layout(self, index: int) -> ItemLayout | None:
        return self._laid.get(index)

    def gap_above(self, index: int) -> int:
        """Returns the space above an item. Lines of tools are close together."""
        before = self._visible_item_above(index)
        if before < 0:
            return self.page.ink.scaled_pixels(TOP)
        all_items = self.page.items.all
        gap = BETWEEN
        if all_items[index].kind in _TIGHT and all_items[before].kind in _TIGHT:
            gap = CLOSE
        return self.page.ink.scaled_pixels(gap)

    def _visible_item_above(self, index: int) -> int:
        """Returns the nearest visible item above this one, or -1."""
        if index > 0 and self.heights[index - 1]:
            return index - 1
        top = self.heights.total_height_before(index)
        if top <= 0:
            return -1
        return self.heights.item_covering(top - 1)

    def visible_items(self, y: int, height: int) -> Iterator[int]:
        return self.heights.visible_items(y, y + height)

    def drawn_places(self, y: int, height: int) -> DrawnPlaces:
        places: DrawnPlaces = {}
        for index in self.visible_items(y, height):
            layout = self.existing_layout(index)
            if layout is None:
                continue
            top = self.content_top(index) - y
            pieces = layout.pieces_with_top_and_height(-top, height - top)
            for piece, offset, piece_height in pieces:
                places[piece] = (top, offset, piece_height)
        return places

    def lay_out_fully(self, index: int) -> ItemLayout:
        """Lays out an item completely, however long that takes, for selecting and finding."""
        laid = self._ensure_item_layout(index)
        if not laid.lay_out_slice(time.perf_counter() + 60):
            raise RuntimeError("laying out one item took more than a minute")
        self._record_item_height(index, laid)
        return laid

    def lay_out_visible(
        self, y: int, height: int, deadline: float, *, anchor: int = -1
    ) -> tuple[int, bool]:
        """Lays out the visible items. Returns the new scroll position, and whether everything
        visible is laid out.

        `anchor` is the item that must not move, by default one that was visible already. What is at
        `y` is laid out first.
        """
        if anchor < 0:
            anchor = self._find_anchor_item(y, height)
        anchor_offset = 0  # How much of the anchor is above the visible part.
        if anchor >= 0:
            anchor_offset = y - self.heights.total_height_before(anchor)

        is_complete = True
        index = self.heights.item_covering(y)
        while 0 <= index < len(self.heights):
            is_below_view = self.heights.total_height_before(index) >= y + height
            if is_below_view:
                break
            is_hidden = self.heights[index] == 0
            if not is_hidden and not self._ensure_item_layout(index).done:
                is_done = self._lay_out_slice_of(index, deadline, y)
                is_complete = is_complete and is_done
                # The height was an estimate until now: the view follows its anchor.
                if anchor >= 0:
                    y = self.heights.total_height_before(anchor) + anchor_offset
            index += 1
            if time.perf_counter() > deadline:
                is_complete = is_complete and self._are_all_laid_out(y, height)
                break
        return y, is_complete

    def _lay_out_slice_of(self, index: int, deadline: float, y: int) -> bool:
        """Lays out an item, at least down to `y`. Returns whether it is done."""
        layout = self._ensure_item_layout(index)
        layout.lay_out_slice(deadline, y - self.content_top(index))
        self._record_item_height(index, layout)
        return layout.done

    def _are_all_laid_out(self, y: int, height: int) -> bool:
        for index in self.visible_items(y, height):
            if not self.is_laid_out(index):
                return False
        return True

    def lay_out_end(self, height: int, deadline: float) -> tuple[int, bool]:
        """Lays out from the last item upwards, so that the end is right at once. See
        `lay_out_visible`.
        """
        # Each layout replaces estimates by heights, which brings other items into view.
        for _ in range(8):
            height_before = self.total_height
            end = max(0, height_before - height)
            _, complete = self.lay_out_visible(end, height, deadline)
            if self.total_height == height_before or time.perf_counter() > deadline:
                break
        return max(0, self.total_height - height), complete

    def lay_out_nearby(self, y: int, height: int, deadline: float) -> tuple[int, bool]:
        """Lays out one more screen below and above. Returns the scroll position, and
        whether all is done.
        """
        anchor = self._find_anchor_item(y, height)
        if anchor < 0:
            return y, True
        anchor_offset = y - self.heights.total_height_before(anchor)
        items_below = list(self.visible_items(y + height, height))
        items_above = list(self.visible_items(max(0, y - height), min(height, y)))
        items_above.reverse()  # The nearest first.
        is_done = True
        for index in items_below + items_above:
            if self.is_laid_out(index):
                continue
            layout = self._ensure_item_layout(index)
            layout.lay_out_slice(deadline)
            self._record_item_height(index, layout)
            if time.perf_counter() > deadline:
                is_done = False
                break
        return self.heights.total_height_before(anchor) + anchor_offset, is_done

    def is_laid_out(self, index: int) -> bool:
        laid = self._laid.get(index)
        return laid is not None and laid.done

    def _find_anchor_item(self, y: int, height: int) -> int:
        """Returns the first visible item with a known height, or else the first visible one."""
        first = -1
        for index in self.visible_items(y, height):
            if first < 0:
                first = index
            if not self.is_laid_out(index):
                continue
            if index == first or self.heights.total_height_before(index) >= y:
                return index
        return first

    def _ensure_item_layout(self, index: int) -> ItemLayout:
        layout = self._laid.get(index)
        if layout is not None:
            self._laid.move_to_end(index)
            return layout
        guess = self._estimate_item_height(self.page.items.all[index])
        layout = ItemLayout(self.page, index, guess)
        self._laid[index] = layout
        # The layout that was not used for the longest time goes.
        if len(self._laid) > KEPT:
            self._laid.popitem(last=False)
        return layout

    def _record_item_height(self, index: int, layout: ItemLayout) -> None:
        is_hidden = self.heights[index] == 0
        if is_hidden:
            return
        height = self.gap_above(index) + max(layout.current_height, 1)
        self.heights.set_item_height(index, height)

    def _update_changed_item(self, index: int) -> None:
        """Brings one item up to date. One that appears or disappears gets a new height,
        one that is laid out already is laid out again, and an answer that is still
        arriving is extended at its end.
        """
        if index >= len(self.heights):
            return
        is_hidden = self.page.items.is_item_hidden(index)
        was_hidden = self.heights[index] == 0
        if is_hidden is not was_hidden:
            self._laid.pop(index, None)
            height = 0
            if not is_hidden:
                height = self._estimate_item_height(self.page.items.all[index])
            self.heights.set_item_height(index, height)
            return
        layout = self._laid.get(index)
        if layout is None:
            return
        if layout.item.kind is TranscriptItemKind.LIVE_REPLY:
            layout.extend_answer_layout(index)
        else:
            self._laid[index] = ItemLayout(self.page, index, layout.current_height)

    def _replace_last_items(self, first_replaced: int) -> None:
        """Replaces live items by those of their facts. An answer with the same words
        keeps its layout.
        """
        old_layouts: list[ItemLayout] = []
        for index in sorted(self._laid):
            if index >= first_replaced:
                old_layouts.append(self._laid.pop(index))
        self.heights.truncate_items(first_replaced)
        for height in self._estimate_heights(first_replaced):
            self.heights.append_item_height(height)
        for index in range(first_replaced, len(self.page.items.all)):
            layout = _take_layout_of_continued_answer(old_layouts, index)
            if layout is not None:
                self._laid[index] = layout
                self._record_item_height(index, layout)

    def _estimate_heights(self, start: int) -> list[int]:
        """Estimates heights by the length of the text, before anything is laid out."""
        items = self.page.items.all
        gap = self.page.ink.scaled_pixels(BETWEEN)
        # A conversation may have 100,000 items, and most are of a kind with a constant height.
        zoom = self.page.ink.theme.text_zoom
        constant_heights = {kind: int(height * zoom) + gap for kind, height in _CONSTANT.items()}
        if start > 0:
            items = items[start:]

        estimates: list[int] = []
        for item in items:
            constant_height = constant_heights.get(item.kind)
            if constant_height is not None:
                estimates.append(constant_height)
            else:
                estimates.append(self._estimate_item_height(item) + gap)

        # Hidden items have no height.
        for first, last in self.page.items.hidden_item_ranges():
            for index in range(max(first, start), last + 1):
                estimates[index - start] = 0
        for index in self.page.items.groups.collapsed_items_from(start):
            estimates[index - start] = 0
        return estimates

    def _estimate_item_height(self, item: TranscriptItem) -> int:
        zoom = self.page.ink.theme.text_zoom
        if item.kind in _CONSTANT:
            return int(_CONSTANT[item.kind] * zoom)
        # A letter is about 7 pixels wide, a line about 22 high.
        text_width = _count_shown_characters(item) * 7 * zoom
        lines = 1 + int(text_width / self.page.width)
        return int((24 + 22 * lines) * zoom)


def _count_shown_characters(item: TranscriptItem) -> int:
    fact = item.source_fact
    if isinstance(fact, ModelReplied):
        reply_part = fact.parts[item.part]
        if isinstance(reply_part, Text):
            return min(len(reply_part.text), 48_000)
        return 0
    if isinstance(fact, UserSaid):
        characters = 0
        for part in fact.parts:
            if isinstance(part, Text):
                characters += len(part.text)
        return min(characters, 4_000)
    return 0


def _take_layout_of_continued_answer(layouts: list[ItemLayout], index: int) -> ItemLayout | None:
    """Takes from `layouts` the one that shows the item at `index`, if there is one."""
    for layout in layouts:
        if layout.take_over_continued_answer(index):
            layouts.remove(layout)
            return layout
    return None
