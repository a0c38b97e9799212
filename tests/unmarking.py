"""The value behind a text that is shown with marks: nothing of it may be lost."""

from __future__ import annotations

from helix_desktop.engine import hidden_characters


def unmark_text(text: str) -> str:
    whole = text.replace(f"{hidden_characters.GOES_ON}\n", "")
    return hidden_characters._MARK.sub(
        lambda found: chr(int(found[1], 16)) if found[1] else "", whole
    )
