"""Searches every item of a transcript, in slices."""

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from helix_desktop.engine.facts import Stored
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.transcript.code_box import cut_very_long_line
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.safe_text import terminal_output_text
from helix_desktop.gui.transcript.tool_call_lines import call_as_one_line
from helix_desktop.gui.transcript.tool_call_records import is_output_whole_in_fact
from helix_desktop.gui.transcript.transcript_item import (
    TranscriptItem,
    TranscriptItemKind,
    item_source_text,
)

SLICE = 0.004  # The seconds of searching after which the window takes its turn.
MOST_HITS_IN_ITEM = 1_000


@dataclass(frozen=True, slots=True)
class UnreadOutput:
    """The output of the call in item `index`, which must be read from the store first."""

    index: int
    stored: Stored


@dataclass(slots=True)
class OutputHits:
    """The hits in a call's output. An output shows no more than its first lines until it is asked
    for more: `last_line` is the line of the last hit, counted from 0.
    """

    count: int
    last_line: int


class TranscriptSearch:
    """One search. `places` contains an item's number once for each hit in it.

    The outputs of calls are searched, too, whether they are open or not. Those that are not
    whole in their facts are left in `unread_outputs`: `add_output_hits` takes their text.
    """

    def __init__(self, items: TranscriptItems, text: str) -> None:
        self.needle = text.lower()
        self.places = array("q")
        self.current = -1  # The place that the reader was shown last, or -1 if there is none yet.
        self.done = not self.needle
        self.output_hits: dict[int, OutputHits] = {}  # By item.
        self.unread_outputs: list[UnreadOutput] = []
        self._items = items
        self._steps = self._collect_places_in_steps()

    def search_slice(self) -> bool:
        """Searches for some milliseconds, or one item. Returns True at the end."""
        deadline = time.perf_counter() + SLICE
        while not self.done:
            try:
                next(self._steps)
            except StopIteration:
                self.done = True
            if time.perf_counter() > deadline:
                break
        return self.done

    def first_hit_from(self, index: int) -> int:
        """Returns the first hit at or after an item, or else the first of all. -1 without hits."""
        if not self.places:
            return -1
        hit = bisect_left(self.places, index)
        if hit == len(self.places):
            return 0
        return hit

    def current_hit_in_item(self, index: int, count: int) -> int:
        """Returns which of the `count` hits in an item is the current one, or -1 if
        that is in another item.
        """
        if not 0 <= self.current < len(self.places) or self.places[self.current] != index:
            return -1
        first_hit = bisect_left(self.places, index)
        hits_in_item = bisect_right(self.places, index) - first_hit
        hit = self.current - first_hit

        output_hits = self.output_hits.get(index)
        if output_hits is not None and hit >= hits_in_item - output_hits.count:
            # An open call shows its arguments above its output. They may hold the text, too.
            hits_to_the_end = hits_in_item - hit
            return max(count - hits_to_the_end, 0)
        return min(hit, count - 1)

    def add_output_hits(self, index: int, text: str) -> None:
        """Adds the hits in the output of the call in an item."""
        lines = terminal_output_text(text.rstrip("\n")).lower().split("\n")
        count = 0
        last_line = 0
        for number, line in enumerate(lines):
            hits_in_line = cut_very_long_line(line).count(self.needle)
            if hits_in_line:
                last_line = number
                count += hits_in_line
            if count >= MOST_HITS_IN_ITEM:
                break
        if not count:
            return
        self.output_hits[index] = OutputHits(count, last_line)
        end = bisect_right(self.places, index)
        self.places[end:end] = array("q", [index] * count)
        if self.current >= end:
            self.current += count

    def _collect_places_in_steps(self) -> Iterator[None]:
        for index, item in enumerate(self._items.all):
            if not self._items.is_hidden_as_replaced(index):
                count = searchable_text(item).lower().count(self.needle)
                self.places.extend([index] * min(count, MOST_HITS_IN_ITEM))
                if item.kind is TranscriptItemKind.CALL:
                    self._search_output(index)
                    yield
            # Most items are short, so the clock is not asked after each.
            if index % 64 == 63:
                yield

    def _search_output(self, index: int) -> None:
        returned = self._items.tool_call_state(index).returned
        if returned is None:
            return
        if is_output_whole_in_fact(returned):
            self.add_output_hits(index, returned.head)
        else:
            self.unread_outputs.append(UnreadOutput(index, returned.output))


def searchable_text(item: TranscriptItem) -> str:
    if item.kind in {TranscriptItemKind.REASONING, TranscriptItemKind.LIVE_REASONING}:
        return ""
    return call_as_one_line(item) or item_source_text(item)
