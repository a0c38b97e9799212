"""The text of a request with its long lines wrapped, in which words can be found."""

import re
from collections.abc import Sequence

from PySide6.QtCore import QTimer
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.text_selection import TextPosition
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.views.large_text_view import PAD, TextLineView

LEAST_LETTERS_PER_ROW = 20
WRAP_DELAY_MS = 60  # While the window is being resized, the text is not wrapped for each pixel.


@dataclass(frozen=True, slots=True)
class TextRow:
    """A row on the screen: a line of the text, or a part of a line that is too long for one."""

    text: str
    line: int
    is_continuation: bool


@dataclass(frozen=True, slots=True)
class FoundPlace:
    line: int
    start: int


class RequestTextView(TextLineView):
    """Copies lines as they are in the text, without the breaks that were added to show them."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, parent)
        self._text_lines: Sequence[str] = ()
        self._text_rows: list[TextRow] = []
        self._letters_per_row = 0
        self.found_places: list[FoundPlace] = []
        self._found_length = 0
        self._wrapping = QTimer(self, interval=WRAP_DELAY_MS, singleShot=True)
        self._wrapping.timeout.connect(self._wrap_again_if_width_changed)

    def show_request_text(self, lines: Sequence[str]) -> None:
        self._text_lines = lines
        self._wrap_text()

    def find_in_text(self, words: str) -> None:
        """Marks the words and collects the places where they are."""
        self.found_places = []
        self._found_length = len(words)
        self.highlight_matches([words] if words else [])
        if not words:
            return
        pattern = re.compile(re.escape(words), re.IGNORECASE)
        for number, line in enumerate(self._text_lines):
            for match in pattern.finditer(line):
                self.found_places.append(FoundPlace(number, match.start()))

    def show_found_place(self, number: int) -> None:
        """Selects the words at a place and scrolls there."""
        place = self.found_places[number]
        row, offset = self._row_and_offset_of(place)
        end = min(offset + self._found_length, len(self._text_rows[row].text))
        self._by_line = False
        self.selection.set_both_ends(TextPosition(row, offset), TextPosition(row, end))
        self.scroll_to_line(row)
        self.show_selection()

    def _row_and_offset_of(self, place: FoundPlace) -> tuple[int, int]:
        offset = place.start
        for row, text_row in enumerate(self._text_rows):
            if text_row.line != place.line:
                continue
            if offset < len(text_row.text):
                return row, offset
            offset -= len(text_row.text)
        return 0, 0

    def selected_text(self) -> str:
        selected_range = self.selected_line_range()
        if selected_range is None:
            return ""
        first, last = selected_range
        pieces: list[str] = []
        for number in range(first, last + 1):
            row = self._text_rows[number]
            if number > first and not row.is_continuation:
                pieces.append("\n")
            start, end = self._selected_columns(number, len(row.text))
            pieces.append(row.text[start:end])
        return "".join(pieces)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._wrapping.start()

    def _wrap_again_if_width_changed(self) -> None:
        if self._count_letters_per_row() != self._letters_per_row:
            self._wrap_text()

    def _count_letters_per_row(self) -> int:
        room = self.viewport().width() - self._gutter_width - 8
        return max(LEAST_LETTERS_PER_ROW, int(room / self._ink.code_letter_width))

    @property
    def _gutter_width(self) -> float:
        last_number = str(len(self._text_lines))
        digits = max(3, len(last_number))
        numbers_width = self._ink.code_letter_width * digits
        return numbers_width + self._ink.scaled_pixels(PAD) * 1.5

    def _wrap_text(self) -> None:
        first_row_in_sight = int(self.verticalScrollBar().value() / self._line_height)
        first_line_in_sight = 0
        if first_row_in_sight < len(self._text_rows):
            first_line_in_sight = self._text_rows[first_row_in_sight].line

        self._letters_per_row = self._count_letters_per_row()
        self._text_rows = wrap_lines(self._text_lines, self._letters_per_row)
        self.show_text_lines([row.text for row in self._text_rows], labels=self._label_of_row)
        for row, text_row in enumerate(self._text_rows):
            if text_row.line == first_line_in_sight:
                self.verticalScrollBar().setValue(round(row * self._line_height))
                break

    def _label_of_row(self, number: int) -> str:
        row = self._text_rows[number]
        if row.is_continuation:
            return ""
        return str(row.line + 1)


def wrap_lines(lines: Sequence[str], letters_per_row: int) -> list[TextRow]:
    """Breaks long lines behind a space, or anywhere in a word that is longer than a row."""
    rows: list[TextRow] = []
    for number, line in enumerate(lines):
        start = 0
        while len(line) - start > letters_per_row:
            last_space = line.rfind(" ", start, start + letters_per_row)
            end = start + letters_per_row
            if last_space > start:
                end = last_space + 1
            rows.append(TextRow(line[start:end], number, is_continuation=start > 0))
            start = end
        rows.append(TextRow(line[start:], number, is_continuation=start > 0))
    return rows
