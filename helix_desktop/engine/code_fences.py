"""Puts text into Markdown as code, whatever the text contains."""

import re


def wrap_in_code_fence(text: str, language: str = "") -> str:
    """Wrap a text in a fence longer than any in it, so that nothing in it counts as mark-up."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
