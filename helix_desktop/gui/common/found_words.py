"""Marks the words of a search where they occur in a text."""

import re
from collections.abc import Callable, Sequence

from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter

from helix_desktop.engine.search_query import (
    split_query_into_words_and_filters,
    stem_of_word,
    without_stop_words,
)
from helix_desktop.errors import InvalidInput

MOST_SPANS = 100  # At most so many words of a line are marked.
LEAD = 20  # So many characters are shown before a found word that would be out of sight.


def list_needles_of_query(query: str) -> tuple[str, ...]:
    """Returns the words that a search looks for, and their stems, to be marked in what it found."""
    try:
        words_of_query, _filters = split_query_into_words_and_filters(query.lower())
    except InvalidInput:  # The search itself says what is wrong with a filter.
        return ()
    words = re.findall(r"[^\s\"]+", words_of_query)
    if '"' not in query:
        words = without_stop_words(words)
    needles: list[str] = []
    for word in words:
        for form in (word, stem_of_word(word)):
            # A single Latin letter would be marked nearly everywhere.
            is_single_letter = len(form) <= 1 and form.isascii()
            if not is_single_letter and form not in needles:
                needles.append(form)
    return tuple(needles)


def find_needle_spans(needles: Sequence[str], text: str) -> tuple[tuple[int, int], ...]:
    """Returns all places of these words, ignoring case. Longer words take precedence."""
    if not needles:
        return ()
    longest_first = sorted(needles, key=len, reverse=True)
    pattern = "|".join(re.escape(needle) for needle in longest_first)
    spans: list[tuple[int, int]] = []
    for match in re.finditer(pattern, text, re.IGNORECASE):
        spans.append((match.start(), len(match[0])))
        if len(spans) == MOST_SPANS:
            break
    return tuple(spans)


def cut_before_found_word(text: str, needles: Sequence[str], fits: Callable[[str], bool]) -> str:
    """Returns a text whose first found word is in sight: what stands long before it is left out,
    if all until its end does not fit.
    """
    for start, length in find_needle_spans(needles, text):
        if fits(text[: start + length]) or start <= LEAD:
            return text
        # The text may be cut within a word. It begins with the next whole one.
        _cut_word, _space, before = text[start - LEAD : start].partition(" ")
        return f"…{before}{text[start:]}"
    return text


def draw_text_with_found_words(
    painter: QPainter, rect: QRect, text: str, needles: Sequence[str], background: QColor
) -> None:
    """Draws a line of text, shortened at its end, with a background behind each of these words."""
    metrics = QFontMetrics(painter.font())

    def fits(words: str) -> bool:
        return metrics.horizontalAdvance(words) <= rect.width()

    text_from_word = cut_before_found_word(text, needles, fits)
    shown_text = metrics.elidedText(text_from_word, Qt.TextElideMode.ElideRight, rect.width())
    for start, length in find_needle_spans(needles, shown_text):
        text_before = shown_text[:start]
        found_word = shown_text[start : start + length]
        left = rect.left() + metrics.horizontalAdvance(text_before)
        top = rect.center().y() - 9
        width = metrics.horizontalAdvance(found_word)
        word_rect = QRect(left, top, width, 18)
        painter.fillRect(word_rect, background)
    painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter, shown_text)
