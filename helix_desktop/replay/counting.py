"""Token counts remembered by the text itself: a replay counts the same texts at every step."""

from __future__ import annotations

from helix_desktop.engine.ports import Tokens


class Counting:
    """The engine's `Tokens` in front of a slower one."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._known: dict[str, int] = {}

    def count(self, text: str) -> int:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._tokens.count(text)
        return known
