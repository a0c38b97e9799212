"""The selection in a text of many lines, or in a chat of many items."""

from collections.abc import Callable
from typing import NamedTuple

from helix_desktop.fast_dataclass import dataclass


class TextPosition(NamedTuple):
    """The number of a line or an item, and an offset into its text."""

    number: int
    offset: int


class FactPosition(NamedTuple):
    """A place in a chat that is the same in each list of its facts: a fact, which of its items, and
    an offset into that item's text.
    """

    seq: int
    item_in_fact: int
    offset: int


NO_POSITION = TextPosition(-1, 0)


def word_range(text: str, offset: int) -> tuple[int, int]:
    """Returns where the word around an offset begins and ends."""
    first = min(offset, len(text))
    last = first
    while first > 0 and _is_part_of_word(text[first - 1]):
        first -= 1
    while last < len(text) and _is_part_of_word(text[last]):
        last += 1
    return first, last


def _is_part_of_word(letter: str) -> bool:
    return letter.isalnum() or letter == "_"


@dataclass(slots=True)
class TextSelection:
    """`anchor` stays in place while `caret` moves."""

    anchor: TextPosition = NO_POSITION
    caret: TextPosition = NO_POSITION

    @property
    def is_empty_selection(self) -> bool:
        return self.anchor.number < 0 or self.anchor == self.caret

    @property
    def ordered_ends(self) -> tuple[TextPosition, TextPosition]:
        if self.anchor <= self.caret:
            return self.anchor, self.caret
        return self.caret, self.anchor

    def set_both_ends(self, anchor: TextPosition, caret: TextPosition | None = None) -> None:
        self.anchor = anchor
        self.caret = caret or anchor

    def clear_selection(self) -> None:
        self.set_both_ends(NO_POSITION)

    def selected_offsets_of(self, number: int, length: int) -> tuple[int, int]:
        """Returns the first and the last selected offset in a line or an item."""
        first, last = self.ordered_ends
        if self.is_empty_selection or not first.number <= number <= last.number:
            return 0, 0
        start = 0
        if number == first.number:
            start = first.offset
        end = length
        if number == last.number:
            end = last.offset
        return start, end

    def join_selected_lines(self, line: Callable[[int], str | None]) -> str:
        """Joins the selected lines. `line` returns None for a row that is not copied."""
        if self.is_empty_selection:
            return ""
        first, last = self.ordered_ends
        pieces: list[str] = []
        for number in range(first.number, last.number + 1):
            text = line(number)
            if text is not None:
                start, end = self.selected_offsets_of(number, len(text))
                pieces.append(text[start:end])
        return "\n".join(pieces)
