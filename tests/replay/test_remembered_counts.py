"""Counts remembered by text."""

from __future__ import annotations

from helix_desktop.replay.session_player import RememberingCounter


class Words:
    """Counts words, and how often it was asked."""

    asked = 0

    def count_tokens(self, text: str) -> int:
        self.asked += 1
        return len(text.split())


def test_a_text_is_counted_once() -> None:
    words = Words()
    counting = RememberingCounter(words)
    assert [
        counting.count_tokens("a b c"),
        counting.count_tokens("a b c"),
        counting.count_tokens(""),
    ] == [3, 3, 0]
    assert words.asked == 2
