"""The column of items: where each stands, which are laid out, and how the view stays still while heights are corrected.

Heights are guessed until an item is seen. `settle` lays out what is in sight, as far as the time allows, and returns
where the view has to stand so that what the reader looks at does not move.
"""

from __future__ import annotations

import time
from collections import Counter, OrderedDict
from collections.abc import Iterator

from helix_desktop.engine.facts import ModelReplied, Text, UserSaid
from helix_desktop.gui.transcript.drawing import Ink
from helix_desktop.gui.transcript.heights import Heights
from helix_desktop.gui.transcript.item import Change, Item, ItemKind
from helix_desktop.gui.transcript.item_layout import Laid
from helix_desktop.gui.transcript.page import Page

KEPT = 160
TOP = 18
BETWEEN = 18
CLOSE = 6

_TIGHT = frozenset({ItemKind.CALL, ItemKind.LIVE_CALL, ItemKind.REASONING, ItemKind.LIVE_REASONING})
_CONSTANT = {
    ItemKind.CALL: 38,
    ItemKind.LIVE_CALL: 38,
    ItemKind.FOLD: 18,
    ItemKind.CHANGES: 18,
    ItemKind.NOTE: 20,
    ItemKind.REASONING: 20,
    ItemKind.REWOUND: 20,
    ItemKind.PLAN: 120,
    ItemKind.WAITING: 64,
    ItemKind.ERROR: 72,
    ItemKind.LIVE_REASONING: 80,
    ItemKind.LIVE_REPLY: 44,
}


Drawn = dict[object, tuple[int, float, float]]  # top of its item in the view, how far below that it begins, its height


def moved(before: Drawn, now: Drawn) -> tuple[int, list[tuple[float, float]]] | None:
    """By how much most of what was drawn before has moved, and from where to where it is to be drawn then; None where all of it is new."""
    shifts = Counter(now[what][0] - top for what, (top, _, _) in before.items() if what in now)
    if not shifts:
        return None
    by = max(shifts, key=shifts.__getitem__)
    there = {what: (top + by, below, high) for what, (top, below, high) in before.items()}
    return by, [(top + below, top + below + high) for _, (top, below, high) in now.items() ^ there.items()]


class Column:
    """Pixels throughout. Item i reaches from `heights.top(i)`; the first part of that is the gap above it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.heights = Heights()
        self._laid: OrderedDict[int, Laid] = OrderedDict()
        self.load()

    def load(self) -> None:
        """All items anew, as after opening a conversation or when the text size has changed."""
        self._laid.clear()
        self.heights = Heights(self._guesses(0))

    def restyle(self, ink: Ink, width: float) -> None:
        """Another theme or another width: heights known so far are good guesses."""
        self.page.ink, self.page.width = ink, width
        self._laid.clear()

    def apply(self, change: Change) -> None:
        """The items have changed so."""
        if change.hidden:
            self._laid.clear()
            self.heights = Heights(self._guesses(0))
            return
        for index in change.changed:
            self._changed(index)
        if change.tail < len(self.heights) or len(self.page.items.all) > len(self.heights):
            self._replace_tail(change.tail)

    def drop_all(self, kinds: frozenset[ItemKind]) -> None:
        for index in [index for index, laid in self._laid.items() if laid.item.kind in kinds]:
            del self._laid[index]

    def drop_waiting(self) -> None:
        """Lay out again what waits for something that is drawn elsewhere."""
        for index in [index for index, laid in self._laid.items() if any(box.waits for box in laid.boxes)]:
            del self._laid[index]

    # --- asking

    @property
    def total(self) -> int:
        return self.heights.total + self.page.ink.px(TOP)

    def at(self, y: int) -> int:
        return self.heights.at(y)

    def top(self, index: int) -> int:
        """Where the content of an item begins, below its gap."""
        return self.heights.top(index) + self.gap(index)

    def known(self, index: int) -> Laid | None:
        """An item as far as it is laid out."""
        return self._laid.get(index)

    def gap(self, index: int) -> int:
        """The space above an item; lines of tools stand close together."""
        before = self._above(index)
        if before < 0:
            return self.page.ink.px(TOP)
        all_items = self.page.items.all
        tight = all_items[index].kind in _TIGHT and all_items[before].kind in _TIGHT
        return self.page.ink.px(CLOSE if tight else BETWEEN)

    def _above(self, index: int) -> int:
        """The item in sight above this one; -1 where it is the first."""
        if index > 0 and self.heights[index - 1]:
            return index - 1
        top = self.heights.top(index)
        return self.heights.at(top - 1) if top > 0 else -1

    def shown(self, y: int, height: int) -> Iterator[int]:
        """The items in sight."""
        index = self.heights.at(y)
        bottom = y + height
        while 0 <= index < len(self.heights) and self.heights.top(index) < bottom:
            if self.heights[index]:
                yield index
            index += 1

    def drawn(self, y: int, height: int) -> Drawn:
        """What is drawn in sight."""
        found: Drawn = {}
        for index in self.shown(y, height):
            laid, top = self.known(index), self.top(index) - y
            for what, below, high in laid.drawn(-top, height - top) if laid is not None else ():
                found[what] = (top, below, high)
        return found

    # --- laying out

    def whole(self, index: int) -> Laid:
        """An item laid out to its end, however long that takes: for selecting and finding."""
        laid = self._of(index)
        if not laid.advance(time.perf_counter() + 60):
            raise RuntimeError("laying out one item took more than a minute")
        self._measure(index, laid)
        return laid

    def settle(self, y: int, height: int, until: float, *, anchor: int = -1) -> tuple[int, bool]:
        """Lay out what is in sight. Returns the new place of the view, and whether all of it is laid out.

        `anchor` is the item that must not move; by default one the reader looks at already. What stands at `y` comes first.
        """
        anchor = anchor if anchor >= 0 else self._anchor(y, height)
        above = y - self.heights.top(anchor) if anchor >= 0 else 0
        complete = True
        index = self.heights.at(y)
        bottom = y + height
        while 0 <= index < len(self.heights) and self.heights.top(index) < bottom:
            if self.heights[index]:
                laid = self._of(index)
                if not laid.done:
                    laid.advance(until, y - self.top(index))
                    self._measure(index, laid)
                    complete = complete and laid.done
            if anchor >= 0:
                y = self.heights.top(anchor) + above
                bottom = y + height
            index += 1
            if time.perf_counter() > until:
                complete = complete and all(self._is_done(each) for each in self.shown(y, height))
                break
        return y, complete

    def prepare(self, y: int, height: int, until: float) -> tuple[int, bool]:
        """Lay out a screen more below and above. Returns the new place of the view, and whether there is nothing to do."""
        anchor = self._anchor(y, height)
        above = y - self.heights.top(anchor) if anchor >= 0 else 0
        for index in (*self.shown(y + height, height), *reversed(list(self.shown(max(0, y - height), min(height, y))))):
            if self._is_done(index):
                continue
            laid = self._of(index)
            laid.advance(until)
            self._measure(index, laid)
            if time.perf_counter() > until:
                return self.heights.top(anchor) + above, False
        return (self.heights.top(anchor) + above if anchor >= 0 else y), True

    def _is_done(self, index: int) -> bool:
        laid = self._laid.get(index)
        return laid is not None and laid.done

    def _anchor(self, y: int, height: int) -> int:
        """The first item in sight whose height is known; else the first in sight."""
        first = -1
        for index in self.shown(y, height):
            first = index if first < 0 else first
            if self._is_done(index) and (self.heights.top(index) >= y or index == first):
                return index
        return first

    def _of(self, index: int) -> Laid:
        laid = self._laid.get(index)
        if laid is None:
            laid = self._laid[index] = Laid(self.page, index, self._guess(self.page.items.all[index]))
            if len(self._laid) > KEPT:
                self._laid.popitem(last=False)
        else:
            self._laid.move_to_end(index)
        return laid

    def _measure(self, index: int, laid: Laid) -> None:
        if self.heights[index]:
            self.heights.set(index, self.gap(index) + max(laid.height, 1))

    def _changed(self, index: int) -> None:
        if index >= len(self.heights):
            return
        hidden = self.page.items.hidden(index)
        if hidden is not (self.heights[index] == 0):
            self._laid.pop(index, None)
            self.heights.set(index, 0 if hidden else self._guess(self.page.items.all[index]))
            return
        laid = self._laid.get(index)
        if laid is None:
            return
        if laid.item.kind is ItemKind.LIVE_REPLY:
            laid.grow(index)
            return
        height = laid.height
        del self._laid[index]
        self._laid[index] = Laid(self.page, index, height)

    def _replace_tail(self, tail: int) -> None:
        """What was written live becomes its fact: an answer keeps its layout when the words are the same."""
        old = [self._laid.pop(index) for index in sorted(self._laid) if index >= tail]
        self.heights.cut(tail)
        for height in self._guesses(tail):
            self.heights.append(height)
        for index in range(tail, len(self.page.items.all)):
            same = next((laid for laid in old if laid.becomes(index)), None)
            if same is not None:
                old.remove(same)
                self._laid[index] = same
                self._measure(index, same)

    # --- guessing

    def _guesses(self, start: int) -> list[int]:
        """Heights before anything is laid out: by the length of the text."""
        items = self.page.items.all
        between = self.page.ink.px(BETWEEN)
        zoom = self.page.ink.theme.zoom
        constant = {kind: int(height * zoom) + between for kind, height in _CONSTANT.items()}
        guesses = [constant.get(item[0]) or self._guess(item) + between for item in (items[start:] if start else items)]
        for first, last in self.page.items.away_ranges():
            for index in range(max(first, start), last + 1):
                guesses[index - start] = 0
        for index in self.page.items.grouped(start):
            guesses[index - start] = 0
        return guesses

    def _guess(self, item: Item) -> int:
        kind, recorded, number, _, _ = item
        zoom = self.page.ink.theme.zoom
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
