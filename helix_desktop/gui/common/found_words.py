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
    words = list[str]()
    with suppress(InvalidInput):  # The search itself says what is wrong with a filter.
        words = re.findall(r"[^\s\"]+", split_query_into_words_and_filters(query.lower())[0])
    words = words if '"' in query else without_stop_words(words)
    forms = (form for word in words for form in (word, stem_of_word(word)))
    return tuple(dict.fromkeys(form for form in forms if len(form) > 1 or not form.isascii()))


def find_needle_spans(needles: Sequence[str], text: str) -> tuple[tuple[int, int], ...]:
    """Returns all places of these words, ignoring case. Longer words take precedence."""
    pattern = "|".join(map(re.escape, sorted(needles, key=len, reverse=True)))
    found = re.finditer(pattern, text, re.IGNORECASE) if pattern else ()
    return tuple((match.start(), len(match[0])) for match in itertools.islice(found, 100))


def draw_text_with_found_words(
    painter: QPainter, rect: QRect, text: str, needles: Sequence[str], marked: QColor
) -> None:
    """Draws a line of text, shortened at its end, with a background behind each of these words."""
    metrics = QFontMetrics(painter.font())
    text = metrics.elidedText(text, Qt.TextElideMode.ElideRight, rect.width())
    for at, length in find_needle_spans(needles, text):
        left = rect.left() + metrics.horizontalAdvance(text[:at])
        width = metrics.horizontalAdvance(text[at : at + length])
        painter.fillRect(QRect(left, rect.center().y() - 9, width, 18), marked)
    painter.drawText(rect, Qt.AlignmentFlag.AlignVCenter, text)
