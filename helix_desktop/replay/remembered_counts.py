"""Remembers token counts by text, because a replay counts the same texts at every step."""

from __future__ import annotations

from helix_desktop.engine.ports import TokenCounter


class RememberingCounter:
    """The engine's `TokenCounter` in front of a slower one."""

    def __init__(self, tokens: TokenCounter) -> None:
        self._tokens = tokens
        self._known: dict[str, int] = {}

    def count_tokens(self, text: str) -> int:
        known = self._known.get(text)
        if known is None:
            known = self._known[text] = self._tokens.count_tokens(text)
        return known
