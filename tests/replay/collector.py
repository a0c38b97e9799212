"""Another collector of details than the engine's and than the replay's own: what must
be found again, by other means.

It cuts texts at white space instead of matching patterns, looks at the facts instead of
the recording, and finds again in what the view says, in the entries it names, and in
the entries behind its folds.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

from helix_desktop.engine.facts import (
    Attachment,
    ModelReplied,
    Reasoning,
    Recorded,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.messages import Block
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.errors import HelixError

ORDERS = {"must", "never", "always", "only", "prefer"}
NUL = "\N{SYMBOL FOR NULL}"  # what a request has in its place
HEX = frozenset("0123456789abcdef")
TRIMMED = ".,;:!?()[]{}<>\"'`=*·…"


async def lost(facts: Sequence[Recorded], cache: ContentCache) -> set[str]:
    """Details of this conversation that can no longer be reached from its view."""
    shown = build_state(facts)
    texts: list[str] = []
    reachable: set[Digest] = set()
    for block in shown.get_view().blocks:
        text = await _text(block, cache)
        texts.append(text)
        reachable.update(_hashes(text))
        reachable.update(stored.digest for stored in block.cached)
    for digest in sorted(reachable):
        texts.append(await _content(digest, cache))
    flat = " ".join(" ".join(_unescaped(text).split()) for text in texts).replace("\0", NUL)
    words = flat.replace("(", " ").replace('"', " ").replace("'", " ").split()
    stripped = {word.strip(TRIMMED) for word in words}
    wanted: set[str] = set()
    for recorded in shown.facts_on_path():
        if shown.branch.has_message(recorded.seq):
            async for text, by in _said(recorded, cache):
                wanted |= set(details(text.replace("\0", NUL), by))
    return {detail for detail in wanted if detail not in stripped and detail not in flat}


def details(text: str, by: str) -> Iterator[str]:
    """Paths, addresses and names with a joint in them; the user's orders; lines that
    say what failed.
    """
    for word in text.split():
        plain = word.strip(TRIMMED)
        if 10 <= len(plain) <= 80 and plain.isascii() and _has_a_joint(plain):
            yield plain
    for line in text.splitlines():
        flat = " ".join(line.split())
        names_failure = flat.partition(":")[0].endswith(("Error", "Exception"))
        if by == "tool" and names_failure and len(flat) < 200:
            yield flat
        is_order = not ORDERS.isdisjoint(flat.lower().rstrip(".!").split())
        if by == "user" and is_order and len(flat) < 250:
            yield flat


def _has_a_joint(word: str) -> bool:
    inner = word.replace("://", "/").replace("-", "_").replace(".", "_").replace("/", "_")
    parts = [part for part in inner.split("_") if part]
    return len(parts) > 1 and inner.replace("_", "").isalnum() and word[0].isalpha()


async def _said(recorded: Recorded, cache: ContentCache) -> AsyncIterator[tuple[str, str]]:
    fact = recorded.fact
    if isinstance(fact, ToolReturned):
        yield await _content(fact.output.digest, cache), "tool"
    for part in fact.parts if isinstance(fact, UserSaid | ModelReplied) else ():
        if isinstance(part, Text):
            yield part.text, "user" if isinstance(fact, UserSaid) else "model"
        elif isinstance(part, Attachment):
            yield await _content(part.stored.digest, cache), "user"
        elif isinstance(part, ToolCall):
            yield _unescaped(part.arguments), "model"


async def _text(block: Block, cache: ContentCache) -> str:
    match block.content:
        case Text(text=text) | Reasoning(text=text):
            return text
        case ToolCall(name=name, arguments=arguments):
            return f"{name} {_unescaped(arguments)}"
        case Attachment(stored=stored):
            return await _content(stored.digest, cache)
        case Stored(digest=digest):
            return await _content(digest, cache)


async def _content(digest: Digest, cache: ContentCache) -> str:
    try:
        return (await cache.read_content(digest)).decode("utf-8", "replace")
    except HelixError:
        return ""


def _hashes(text: str) -> Iterator[Digest]:
    """Every run of exactly 64 hexadecimal digits."""
    word = ""
    for character in [*text, " "]:
        if character in HEX:
            word += character
            continue
        if len(word) == 64:
            yield Digest.from_hex(word)
        word = ""


def _unescaped(text: str) -> str:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return "\n".join(_strings(value)) if isinstance(value, dict | list) else text


def _strings(value: object) -> Iterable[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (str(key), *_strings(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    else:
        yield str(value)
