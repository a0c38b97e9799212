from __future__ import annotations

from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.common.found_words import (
    cut_before_found_word,
    draw_text_with_found_words,
    find_needle_spans,
    list_needles_of_query,
)


def test_words_are_found_in_any_case_and_the_longer_one_first() -> None:
    assert find_needle_spans(("needle",), "a Needle and a needle") == ((2, 6), (15, 6))
    spans = find_needle_spans(
        ("lock", "manager", "lock_manager"), "The manager of a Lock, lock_manager"
    )
    assert spans == ((4, 7), (17, 4), (23, 12))
    assert find_needle_spans((), "nothing is looked for") == ()


def test_words_without_meaning_and_filters_are_not_marked() -> None:
    assert list_needles_of_query("My own lines tool:read_file") == ("own", "lines", "line")
    assert list_needles_of_query('"it is"') == ("it", "is"), "a phrase is looked for as a whole"


def test_a_found_word_has_a_background(application: QApplication) -> None:
    def count_marked_pixels(text: str) -> int:
        image = QPixmap(200, 30)
        image.fill(QColor("white"))
        painter = QPainter(image)
        draw_text_with_found_words(painter, image.rect(), text, ("line",), QColor("red"))
        painter.end()
        shown = image.toImage()
        return sum(shown.pixelColor(x, y) == QColor("red") for x in range(200) for y in range(30))

    assert count_marked_pixels("a line") > 50
    assert count_marked_pixels("a word") == 0


def test_the_first_found_word_is_in_sight() -> None:
    """A row showed the beginning of a line, and the word for which it was found was cut off."""

    def fits(words: str) -> bool:
        return len(words) <= 40

    text = "2026-11-27 12:14:59 worker 3 processed order 33263; the PURPLE-OTTER was here"
    shown = cut_before_found_word(text, ("purple",), fits)
    assert shown == "…order 33263; the PURPLE-OTTER was here"
    assert cut_before_found_word(text, ("worker",), fits) == text
    assert cut_before_found_word(text, ("absent",), fits) == text
    assert cut_before_found_word("x" * 90 + "otter", ("otter",), fits) == "…otter"
