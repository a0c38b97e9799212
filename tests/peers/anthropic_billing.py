"""What Anthropic's prompt cache bills for a request, as its documentation describes it,
read from the body alone.

Up to four marks. Content is written at a mark; a later request finds it at one of its
own marks or in the 20 blocks before it, where the tools, the system prompt and all
messages up to there are the same. Nothing shorter than `least` tokens is cached.
Another `thinking` loses the messages, and keeps the tools and the system prompt.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

LOOK_BACK = 20
MOST_MARKS = 4


@dataclass(slots=True)
class Cache:
    """One organisation's cache of one model."""

    least: int = 1_024
    life: float = math.inf  # seconds since it was used last
    sorts_keys: bool = True  # False: the same values in another order are other text
    written: dict[bytes, float] = field(
        default_factory=dict
    )  # hashes of prefixes, and when they were used last

    def bill(self, body: dict[str, Any], at: float = 0.0) -> dict[str, int]:
        """`input_tokens`, `cache_read_input_tokens` and `cache_creation_input_tokens`;
        a token is four characters here.
        """
        for prefix, used in list(self.written.items()):
            if at - used > self.life:
                del self.written[prefix]
        prefixes, sizes, marked = _prefixes(body, sort_keys=self.sorts_keys)
        if len(marked) > MOST_MARKS:
            raise ValueError("A maximum of 4 blocks with cache_control may be provided.")
        near = {place - back for place in marked for back in range(LOOK_BACK)}
        found = [place for place in near if place >= 0 and prefixes[place] in self.written]
        read = sizes[max(found)] if found else 0
        long_enough = [place for place in marked if sizes[place] >= self.least]
        end = max((sizes[place] for place in long_enough), default=read)
        for prefix, size in zip(prefixes, sizes, strict=True):
            if size <= read and prefix in self.written:
                self.written[prefix] = at
        for place in long_enough:
            self.written[prefixes[place]] = at
        return {
            "input_tokens": sizes[-1] - max(read, end),
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": max(0, end - read),
        }

    def known(self, body: dict[str, Any]) -> int:
        """The tokens of the longest beginning that is written: what a request could read."""
        prefixes, sizes, _ = _prefixes(body, sort_keys=self.sorts_keys)
        return max(
            (size for prefix, size in zip(prefixes, sizes, strict=True) if prefix in self.written),
            default=0,
        )


def _prefixes(body: dict[str, Any], *, sort_keys: bool) -> tuple[list[bytes], list[int], list[int]]:
    """Of each block the hash and the tokens of all up to it; and which are marked."""
    blocks = list(_blocks(body, sort_keys=sort_keys))
    head = len(body.get("tools", [])) + len(body.get("system", []))
    prefix = hashlib.sha256()
    length = 0
    prefixes = list[bytes]()
    sizes = list[int]()
    for at, (text, _) in enumerate(blocks):
        if at == head:
            prefix.update(json.dumps(body.get("thinking")).encode())
        prefix.update(text.encode())
        length += len(text)
        prefixes.append(prefix.digest())
        sizes.append(length // 4)
    return prefixes, sizes, [at for at, (_, mark) in enumerate(blocks) if mark]


def _blocks(body: dict[str, Any], *, sort_keys: bool) -> Iterator[tuple[str, bool]]:
    """Every block in the order of the cache: tools, system, messages; without its mark,
    and whether it had one.
    """
    for message in (
        {"content": body.get("tools", [])},
        {"content": body.get("system", [])},
        *body["messages"],
    ):
        for block in message["content"]:
            bare = {name: value for name, value in block.items() if name != "cache_control"}
            yield (
                f"{message.get('role', '')} {json.dumps(bare, sort_keys=sort_keys)}\n",
                "cache_control" in block,
            )
