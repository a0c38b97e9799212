"""Marks the words of a search where they occur in a text."""

import itertools
import re
from collections.abc import Sequence
from contextlib import suppress

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter

from helix_desktop.engine.search_query import (
    split_query_into_words_and_filters,
    stem_of_word,
    without_stop_words,
)
from helix_desktop.errors import InvalidInput


def list_needles_of_query(query: str) -> tuple[str, ...]:
    """Returns the words that a search looks for, and their stems, to be marked in what it found."""
    words: list[str] = []
    with suppress(InvalidInput):  # The search itself says what is wrong with a filter.
        words = re.findall(r"[^\s\"]+", split_query_into_words_and_filters(query.lower())[0])
    if '"' not in query:
        words = without_stop_words(words)
    needles: dict[str, None] = {}  # A dict, because each needle is wanted once and in order.
    for word in words:
        for form in (word, stem_of_word(word)):
            # A single Latin letter would be marked nearly everywhere.
            if len(form) > 1 or not form.isascii():
                needles[form] = None
    return tuple(needles)


def find_needle_spans(needles: Sequence[str], text: str) -> tuple[tuple[int, int], ...]:
    """Returns all places of these words, ignoring case. Longer words take precedence."""
    if not needles:
        return ()
    longest_first = sorted(needles, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    matches = re.finditer(pattern, text, re.IGNORECASE)
    return tuple((match.start(), len(match[0])) for match in itertools.islice(matches, 100))


def draw_text_with_found_words(
    painter: QPainter, rect: QRect, text: str, needles: Sequence[str], marked: QColor
) -> None:
    """Draws a line of text, shortened at its end, with a background behind each of these words."""
    metrics = QFontMetrics(painter.font())
    shown = metrics.elidedText(text, Qt.TextElideMode.ElideRight, rect.width())
    for start, length in find_needle_spans(needles, shown):
        left = rect.left() + metrics.horizontalAdvance(shown[:start])
        width = metrics.horizontalAdvance(shown[start : start + length])
        painter.fillRect(QRect(left, rect.center().y() - 9, width, 18), marked)
    painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter, shown)
