from __future__ import annotations

from PySide6.QtGui import QColor, QPainter, QPixmap
from PySide6.QtWidgets import QApplication

from helix_desktop.gui.common.found_words import (
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
