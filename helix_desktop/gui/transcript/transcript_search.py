"""Searches every item of a transcript, in slices."""

import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator

from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.tool_call_lines import call_as_one_line
from helix_desktop.gui.transcript.transcript_item import (
    TranscriptItem,
    TranscriptItemKind,
    item_source_text,
)

SLICE = 0.004


class TranscriptSearch:
    """One search. `places` contains an item's number once for each hit in it."""

    def __init__(self, items: TranscriptItems, text: str) -> None:
        self.needle = text.lower()
        self.places = array("q")
        self.current = -1  # The place that the reader was shown last, or -1 if there is none yet.
        self.done = not self.needle
        self._items = items
        self._next = self._collect_places_in_steps()

    def search_slice(self) -> bool:
        """Searches for some milliseconds, or one item. Returns True at the end."""
        until = time.perf_counter() + SLICE
        while not self.done:
            self.done = next(self._next, True) is True
            if time.perf_counter() > until:
                break
        return self.done

    def first_hit_from(self, index: int) -> int:
        """Returns the first hit at or after an item, or else the first of all. -1 without hits."""
        if not self.places:
            return -1
        return next((number for number, item in enumerate(self.places) if item >= index), 0)

    def current_hit_in_item(self, index: int, count: int) -> int:
        """Returns which of the `count` hits in an item is the current one, or -1 if
        that is in another item.
        """
        is_here = 0 <= self.current < len(self.places) and self.places[self.current] == index
        if not is_here:
            return -1
        return min(self.current - bisect_left(self.places, index), count - 1)

    def _collect_places_in_steps(self) -> Iterator[bool]:
        for index, item in enumerate(self._items.all):
            if not self._items.is_hidden_as_replaced(index):
                count = searchable_text(item).lower().count(self.needle)
                self.places.extend([index] * min(count, 1_000))
            if index % 64 == 63:
                yield False


def searchable_text(item: TranscriptItem) -> str:
    if item.kind in {TranscriptItemKind.REASONING, TranscriptItemKind.LIVE_REASONING}:
        return ""
    return call_as_one_line(item) or item_source_text(item)
