"""Counts remembered by text."""

from __future__ import annotations

from helix_desktop.replay.counting import Counting


class Words:
    """Counts words, and how often it was asked."""

    asked = 0

    def count(self, text: str) -> int:
        self.asked += 1
        return len(text.split())


def test_a_text_is_counted_once() -> None:
    words = Words()
    counting = Counting(words)
    assert [counting.count("a b c"), counting.count("a b c"), counting.count("")] == [3, 3, 0]
    assert words.asked == 2
