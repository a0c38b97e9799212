"""The names a text speaks of most: what an agent needs to know whether the original is worth bringing back."""

from __future__ import annotations

import re
from collections import Counter

READ = 400_000  # Only this many characters of the text are searched.
STRETCH = 1 << 15  # Searched in pieces of this many characters, because a search blocks the interpreter.
_NAME = re.compile(r"[A-Za-z_][\w./-]{9,80}")


def find_frequent_names(text: str, room: int) -> str:
    """The most frequent long identifiers and paths, in at most `room` characters; of equal ones the first met."""
    parts = (_NAME.finditer(text, at, min(at + STRETCH, READ)) for at in range(0, min(len(text), READ), STRETCH))
    counts = Counter(found.group().rstrip("./-") for part in parts for found in part)
    taken: list[str] = []
    for name, _ in counts.most_common(200):
        if len(name) + 2 <= room:
            taken.append(name)
            room -= len(name) + 2
    return ", ".join(taken)
