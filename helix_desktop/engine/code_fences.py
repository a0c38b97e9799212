"""Puts text into Markdown as code, whatever the text contains."""

import re


def wrap_in_code_fence(text: str, language: str = "", *, is_exact: bool = False) -> str:
    """Wrap a text in a fence longer than any in it, so that nothing in it counts as mark-up.

    `is_exact`: blank lines at its end stay, because the user agrees to this very text.
    """
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    content = text if is_exact else text.rstrip()
    return f"{fence}{language}\n{content}\n{fence}"
