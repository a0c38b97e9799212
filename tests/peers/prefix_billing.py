"""What a provider bills that caches without marks (OpenAI, Gemini): the longest
beginning that some request had before, in units.
"""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from typing import Any

# In tokens.
UNIT = 128
LEAST = 1_024


@dataclass(slots=True)
class PrefixCache:
    """One organisation's cache of one model. A token is four characters here."""

    life: float = math.inf  # seconds since it was used last
    sent: dict[str, float] = field(
        default_factory=dict
    )  # requests as text, and when they were used last

    def bill(self, body: dict[str, Any], at: float = 0.0) -> dict[str, int]:
        """`input` and `read`, in tokens."""
        text = _as_text(body)
        self.sent = {sent: used for sent, used in self.sent.items() if at - used <= self.life}
        same = {sent: len(os.path.commonprefix((sent, text))) // 4 for sent in self.sent}  # noqa: RUF071 -- it is of texts
        best = max(same, key=lambda sent: same[sent], default="")
        read = same.get(best, 0) // UNIT * UNIT
        read = read if read >= LEAST else 0
        if read:
            self.sent[best] = at
        self.sent[text] = at
        return {"input": len(text) // 4, "read": read}


def _as_text(body: dict[str, Any]) -> str:
    """The parts in the order of the cache: tools, instructions, how long to think, messages."""
    effort = (body.get("reasoning") or {}).get("effort")
    head = (body.get("tools"), body.get("instructions"), body.get("systemInstruction"), effort)
    parts = (*head, *(body.get("input") or ()), *(body.get("contents") or ()))
    return "\n".join(json.dumps(part) for part in parts)
