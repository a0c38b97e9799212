"""A span of the conversation as text: for a model that writes about it, for the collector of details, for recall.

Writers read what the view shows, so a summary costs no more than the context did; the collector reads originals.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from helix_desktop.engine.blocks import Block, Role
from helix_desktop.engine.contents import shown
from helix_desktop.engine.details import Detail, Source
from helix_desktop.engine.facts import (
    Attachment,
    ModelReplied,
    PartRef,
    Reasoning,
    Span,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.history.branch import Branch
from helix_desktop.engine.history.shown import Item
from helix_desktop.engine.ports import Cache
from helix_desktop.engine.strategies.caching import about_output, call_of
from helix_desktop.errors import CacheCorrupt, NotThere
from helix_desktop.values import dataclass

MOST_BYTES = 2 << 20  # of one output that is read for details: its beginning and its end
GONE = "[not available any more]"


@dataclass(frozen=True, slots=True)
class Passage:
    """One message or document as text."""

    text: str
    tokens: int


async def stored_text(cache: Cache, stored: Stored) -> str:
    """The text of an entry, at most its beginning and its end; a sentence where it is gone."""
    try:
        if stored.size <= MOST_BYTES:
            content = shown(stored, await cache.get(stored.digest))
            return content if isinstance(content, str) else f"[a picture, {stored.media_type}]"
        head = await cache.read(stored.digest, 0, MOST_BYTES * 3 // 4)
        tail = await cache.read(stored.digest, stored.size - MOST_BYTES // 4, MOST_BYTES // 4)
    except (NotThere, CacheCorrupt):
        return GONE
    return head.decode("utf-8", "replace") + "\n[…]\n" + tail.decode("utf-8", "replace")


# --- for writers -----------------------------------------------------------------------------------------------------


async def passages(branch: Branch, span: Span, cache: Cache, *, dated: bool = False) -> list[Passage]:
    """What the view shows of the span, message by message; `dated`: with the minute each was said."""
    return [await _passage(branch, item, cache, dated=dated) for item in branch.visible(span)]


async def _passage(branch: Branch, item: Item, cache: Cache, *, dated: bool) -> Passage:
    said = [await _said(branch, block, cache) for block in item.blocks]
    where = f"[{item.first}]" if item.first == item.last else f"[{item.first}–{item.last}]"
    if dated and branch.has(item.first):
        where += f" {datetime.fromtimestamp(branch.message(item.first).time, UTC):%Y-%m-%d %H:%M}"
    return Passage("\n".join(f"{where} {text}" for text in said if text), item.tokens)


async def _said(branch: Branch, block: Block, cache: Cache) -> str:
    match block.content:
        case Text(text=text) if block.role is Role.TOOL:
            return f"output{_of_call(branch, block)}:\n{text}"
        case Text(text=text):
            return text if block.fold else f"{block.role}: {text}"
        case ToolCall(name=name, arguments=arguments):
            return f"call of {name}: {arguments}"
        case Stored() as stored:
            return f"output{_of_call(branch, block)}:\n{await stored_text(cache, stored)}"
        case Attachment(name=name, stored=stored):
            return f"user attached {name}:\n{await stored_text(cache, stored)}"
        case _:
            return ""  # reasoning is not passed on


def _of_call(branch: Branch, block: Block) -> str:
    call = branch.calls.get(block.call)
    return f" of {call.call.name}" if call else ""


# --- for the collector -----------------------------------------------------------------------------------------------


async def sources(branch: Branch, seqs: list[int], cache: Cache) -> list[Source]:
    """The messages as they were said, the outputs whole; what the user took out stays out."""
    found: list[Source] = []
    for seq in seqs:
        fact = branch.message(seq).fact
        if isinstance(fact, ToolReturned):
            if not branch.is_excluded(PartRef(seq)):
                found.append(await _output(branch, seq, fact, cache))
        elif isinstance(fact, UserSaid) and not fact.by:  # notes are pinned: nothing of them can be lost
            found.append(await _user(branch, seq, fact, cache))
        elif isinstance(fact, ModelReplied):
            found.extend(replied(branch, seq, fact))
    return found


async def _output(branch: Branch, seq: int, fact: ToolReturned, cache: Cache) -> Source:
    call = call_of(branch, seq)
    text = await stored_text(cache, fact.output)
    ok = fact.ok and not fact.exit_code
    return Source(seq, "output", text, call.name if call else "", ok, changes=fact.changes)


async def _user(branch: Branch, seq: int, fact: UserSaid, cache: Cache) -> Source:
    texts, names = [], []
    for index, part in enumerate(fact.parts):
        if branch.is_excluded(PartRef(seq, index)):
            continue
        if isinstance(part, Text):
            texts.append(part.text)
        else:
            names.append(f"{part.name} {part.stored.digest.hex}")
            if part.stored.media_type.startswith("text/"):
                texts.append(await stored_text(cache, part.stored))
    return Source(seq, "user", "\n".join(texts), names=tuple(names))


def replied(branch: Branch, seq: int, fact: ModelReplied) -> Iterator[Source]:
    """The calls and the texts of a reply."""
    for index, part in enumerate(fact.parts):
        if branch.is_excluded(PartRef(seq, index)) or isinstance(part, Reasoning):
            continue
        if isinstance(part, ToolCall):
            yield Source(seq, "call", part.arguments, part.name)
        else:
            yield Source(seq, "assistant", part.text)


def hashes(branch: Branch, seqs: list[int]) -> Iterator[Detail]:
    """Every entry the span's messages refer to, so that each can be recalled by its hash."""
    for seq in seqs:
        fact = branch.message(seq).fact
        if isinstance(fact, ToolReturned):
            yield Detail("stored", f"{fact.output.digest.hex} {about_output(branch, seq)}", seq)
            for picture in fact.images:
                yield Detail("stored", f"{picture.digest.hex} picture", seq)
        elif isinstance(fact, UserSaid):
            for part in fact.parts:
                if isinstance(part, Attachment):
                    yield Detail("stored", f"{part.stored.digest.hex} attachment {part.name}", seq)
