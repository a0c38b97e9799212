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
from helix_desktop.gui.transcript.layout_context import LayoutContext
from helix_desktop.gui.transcript.transcript_item import (
    ItemChanges,
    TranscriptItem,
    TranscriptItemKind,
)

KEPT = 160
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
_CONSTANT = {
    TranscriptItemKind.CALL: 38, TranscriptItemKind.LIVE_CALL: 38, TranscriptItemKind.FOLD: 18,
    TranscriptItemKind.CHANGES: 18, TranscriptItemKind.NOTE: 20, TranscriptItemKind.REASONING: 20,
    TranscriptItemKind.REWOUND: 20, TranscriptItemKind.PLAN: 120, TranscriptItemKind.WAITING: 64,
    TranscriptItemKind.ERROR: 72, TranscriptItemKind.ADDITION: 20, TranscriptItemKind.LIVE_REASONING: 80, TranscriptItemKind.LIVE_REPLY: 44,
}  # fmt: skip


# For each drawn piece, the top of its item in the view, its own offset from that top,
# and its height.
DrawnPlaces = dict[object, tuple[int, float, float]]


def compute_scroll_and_redraw(
    before: DrawnPlaces, now: DrawnPlaces
) -> tuple[int, list[tuple[float, float]]] | None:
    """Returns how far most drawn pieces moved and what to redraw, or None if everything
    must be redrawn.
    """
    shifts = Counter(now[what][0] - top for what, (top, _, _) in before.items() if what in now)
    if not shifts:
        return None
    by = max(shifts, key=shifts.__getitem__)
    there = {what: (top + by, below, high) for what, (top, below, high) in before.items()}
    return by, [
        (top + below, top + below + high) for _, (top, below, high) in now.items() ^ there.items()
    ]


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
        self.page.ink, self.page.width = ink, width
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
        for index in [index for index, laid in self._laid.items() if is_outdated(laid)]:
            del self._laid[index]

    def reveal_found_item(self, index: int) -> None:
        """Shows an item in which something was found, and opens it if it is what an agent added."""
        change = self.page.items.reveal_hidden_item(index)
        if (
            group := self.page.items.groups.group_headed_by(index)
        ) is not None and not group.opened:
            change = self.page.items.toggle_call_group(
                index
            )  # The group's line stands for its first item, too.
        if change is not None:
            self.apply_item_changes(change)
        if self.page.items.all[index].kind is TranscriptItemKind.ADDITION:
            self.page.section_amounts[self.page.section_key("added", index)] = 1
            self._laid.pop(index, None)

    def toggle_section(self, act: ToggleSection) -> None:
        items, opened = self.page.items, self.page.section_amounts
        if act.key[-2:-1] in (("rewound",), ("group",)):
            change = (
                items.toggle_rewound_items if act.key[-2] == "rewound" else items.toggle_call_group
            )
            self.apply_item_changes(change(int(str(act.key[-1]))))
            return
        seq = act.key[1] if len(act.key) > 1 else 0
        index = items.item_of_fact(seq) if isinstance(seq, int) else -1
        default = act.key[0] == "live" or (
            index >= 0 and items.all[index].kind is TranscriptItemKind.PLAN
        )
        more = opened.get(act.key, 0) + act.extra_lines
        opened[act.key] = more if act.extra_lines else int(not opened.get(act.key, default))
        self.discard_layouts(lambda _laid: True)

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
        return self.heights.total_height_before(index) + below if seq and index >= 0 else None

    def existing_layout(self, index: int) -> ItemLayout | None:
        return self._laid.get(index)

    def gap_above(self, index: int) -> int:
        """Returns the space above an item. Lines of tools are close together."""
        before = self._visible_item_above(index)
        if before < 0:
            return self.page.ink.scaled_pixels(TOP)
        all_items = self.page.items.all
        tight = all_items[index].kind in _TIGHT and all_items[before].kind in _TIGHT
        return self.page.ink.scaled_pixels(CLOSE if tight else BETWEEN)

    def _visible_item_above(self, index: int) -> int:
        """Returns the nearest visible item above this one, or -1."""
        if index > 0 and self.heights[index - 1]:
            return index - 1
        top = self.heights.total_height_before(index)
        return self.heights.item_covering(top - 1) if top > 0 else -1

    def visible_items(self, y: int, height: int) -> Iterator[int]:
        return self.heights.visible_items(y, y + height)

    def drawn_places(self, y: int, height: int) -> DrawnPlaces:
        found: DrawnPlaces = {}
        for index in self.visible_items(y, height):
            laid, top = self.existing_layout(index), self.content_top(index) - y
            for what, below, high in (
                laid.pieces_with_top_and_height(-top, height - top) if laid is not None else ()
            ):
                found[what] = (top, below, high)
        return found

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
        anchor = anchor if anchor >= 0 else self._find_anchor_item(y, height)
        above = y - self.heights.total_height_before(anchor) if anchor >= 0 else 0
        complete = True
        index = self.heights.item_covering(y)
        bottom = y + height
        while 0 <= index < len(self.heights) and self.heights.total_height_before(index) < bottom:
            if self.heights[index]:
                laid = self._ensure_item_layout(index)
                if not laid.done:
                    laid.lay_out_slice(deadline, y - self.content_top(index))
                    self._record_item_height(index, laid)
                    complete = complete and laid.done
                    if anchor >= 0:
                        y = self.heights.total_height_before(anchor) + above
                        bottom = y + height
            index += 1
            if time.perf_counter() > deadline:
                complete = complete and all(
                    self.is_laid_out(each) for each in self.visible_items(y, height)
                )
                break
        return y, complete

    def lay_out_end(self, height: int, deadline: float) -> tuple[int, bool]:
        """Lays out from the last item upwards, so that the end is right at once. See
        `lay_out_visible`.
        """
        for _ in range(8):
            before = self.total_height
            _, complete = self.lay_out_visible(max(0, before - height), height, deadline)
            if self.total_height == before or time.perf_counter() > deadline:
                break
        return max(0, self.total_height - height), complete

    def lay_out_nearby(self, y: int, height: int, deadline: float) -> tuple[int, bool]:
        """Lays out one more screen below and above. Returns the scroll position, and
        whether all is done.
        """
        anchor = self._find_anchor_item(y, height)
        above = y - self.heights.total_height_before(anchor) if anchor >= 0 else 0
        for index in (
            *self.visible_items(y + height, height),
            *reversed(list(self.visible_items(max(0, y - height), min(height, y)))),
        ):
            if self.is_laid_out(index):
                continue
            laid = self._ensure_item_layout(index)
            laid.lay_out_slice(deadline)
            self._record_item_height(index, laid)
            if time.perf_counter() > deadline:
                return self.heights.total_height_before(anchor) + above, False
        return (self.heights.total_height_before(anchor) + above if anchor >= 0 else y), True

    def is_laid_out(self, index: int) -> bool:
        laid = self._laid.get(index)
        return laid is not None and laid.done

    def _find_anchor_item(self, y: int, height: int) -> int:
        """Returns the first visible item with a known height, or else the first visible one."""
        first = -1
        for index in self.visible_items(y, height):
            first = index if first < 0 else first
            if self.is_laid_out(index) and (
                self.heights.total_height_before(index) >= y or index == first
            ):
                return index
        return first

    def _ensure_item_layout(self, index: int) -> ItemLayout:
        laid = self._laid.get(index)
        if laid is None:
            guess = self._estimate_item_height(self.page.items.all[index])
            laid = self._laid[index] = ItemLayout(self.page, index, guess)
            if len(self._laid) > KEPT:
                self._laid.popitem(last=False)
        else:
            self._laid.move_to_end(index)
        return laid

    def _record_item_height(self, index: int, laid: ItemLayout) -> None:
        if self.heights[index]:
            self.heights.set_item_height(index, self.gap_above(index) + max(laid.current_height, 1))

    def _update_changed_item(self, index: int) -> None:
        if index >= len(self.heights):
            return
        hidden = self.page.items.is_item_hidden(index)
        if hidden is not (self.heights[index] == 0):
            self._laid.pop(index, None)
            self.heights.set_item_height(
                index, 0 if hidden else self._estimate_item_height(self.page.items.all[index])
            )
            return
        laid = self._laid.get(index)
        if laid is not None and laid.item.kind is TranscriptItemKind.LIVE_REPLY:
            laid.extend_answer_layout(index)
        elif laid is not None:
            self._laid[index] = ItemLayout(self.page, index, laid.current_height)

    def _replace_last_items(self, first_replaced: int) -> None:
        """Replaces live items by those of their facts. An answer with the same words
        keeps its layout.
        """
        old = [self._laid.pop(index) for index in sorted(self._laid) if index >= first_replaced]
        self.heights.truncate_items(first_replaced)
        for height in self._estimate_heights(first_replaced):
            self.heights.append_item_height(height)
        for index in range(first_replaced, len(self.page.items.all)):
            same = next((laid for laid in old if laid.take_over_continued_answer(index)), None)
            if same is not None:
                old.remove(same)
                self._laid[index] = same
                self._record_item_height(index, same)

    def _estimate_heights(self, start: int) -> list[int]:
        """Estimates heights by the length of the text, before anything is laid out."""
        items = self.page.items.all
        between = self.page.ink.scaled_pixels(BETWEEN)
        zoom = self.page.ink.theme.text_zoom
        constant = {kind: int(height * zoom) + between for kind, height in _CONSTANT.items()}
        guesses = [
            constant.get(item[0]) or self._estimate_item_height(item) + between
            for item in (items[start:] if start else items)
        ]
        for first, last in self.page.items.hidden_item_ranges():
            for index in range(max(first, start), last + 1):
                guesses[index - start] = 0
        for index in self.page.items.groups.collapsed_items_from(start):
            guesses[index - start] = 0
        return guesses

    def _estimate_item_height(self, item: TranscriptItem) -> int:
        kind, recorded, number, _, _ = item
        zoom = self.page.ink.theme.text_zoom
        if kind in _CONSTANT:
            return int(_CONSTANT[kind] * zoom)
        fact = recorded.fact if recorded else None
        size = 0
        if type(fact) is ModelReplied:
            part = fact.parts[number]
            size = len(part.text) if type(part) is Text else 0
        elif type(fact) is UserSaid:
            size = min(sum(len(part.text) for part in fact.parts if type(part) is Text), 4_000)
        lines = 1 + int(min(size, 48_000) * 7 * zoom / self.page.width)
        return int((24 + 22 * lines) * zoom)
