"""Puts text into Markdown as code, whatever the text contains."""

import re

SHORTEST_FENCE = 3  # Markdown takes fewer backticks for code within a line.


def wrap_in_code_fence(text: str, language: str = "", *, is_exact: bool = False) -> str:
    """Wrap a text in a fence longer than any in it, so that nothing in it counts as mark-up.

    `is_exact`: blank lines at its end stay, because the user agrees to this very text.
    """
    fence_length = SHORTEST_FENCE
    for backticks in re.findall("`+", text):
        fence_length = max(fence_length, len(backticks) + 1)
    fence = "`" * fence_length
    content = text
    if not is_exact:
        content = text.rstrip()
    return f"{fence}{language}\n{content}\n{fence}"
