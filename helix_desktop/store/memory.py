"""The stores in memory: the same ports, for tests and for what need not last. They pass the same conformance suite."""

from __future__ import annotations

import functools
import time as clock
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Fact, Recorded, Stored
from helix_desktop.engine.ports import About, Entry, Hit
from helix_desktop.errors import Ambiguous, NotThere, WrongUse
from helix_desktop.store import search_words
from helix_desktop.store.cache import prefix_bounds
from helix_desktop.store.incoming_content import line_count
from helix_desktop.store.index import said


class MemoryJournal:
    """ports.Journal in a dictionary."""

    def __init__(self, *, now: Callable[[], float] = clock.time) -> None:
        self._now = now
        self._facts: dict[str, list[Recorded]] = {}

    async def append(self, conversation: str, facts: Sequence[Fact]) -> Sequence[Recorded]:
        if not facts:
            return ()
        if not conversation:
            raise WrongUse("A conversation must have an ID.")
        held = self._facts.setdefault(conversation, [])
        time = self._now()
        recorded = tuple(Recorded(conversation, len(held) + 1 + i, time, fact) for i, fact in enumerate(facts))
        held += recorded
        return recorded

    async def read(self, conversation: str, after: int = 0, limit: int = 0) -> Sequence[Recorded]:
        held = self._facts.get(conversation, [])
        return tuple(held[after : after + limit if limit else None])

    def texts(self) -> Iterable[tuple[Recorded, str]]:
        """What a search goes through."""
        return ((each, "\n".join(said(each.fact))) for held in self._facts.values() for each in held)


class MemoryCache:
    """ports.Cache in a dictionary."""

    def __init__(self, *, now: Callable[[], float] = clock.time) -> None:
        self._now = now
        self._entries: dict[Digest, tuple[bytes, Entry]] = {}

    async def put(self, content: bytes | AsyncIterable[bytes], about: About) -> Stored:
        whole = content if isinstance(content, bytes) else b"".join([piece async for piece in content])
        digest = Digest.of(whole)
        if digest not in self._entries:
            stored = Stored(digest, len(whole), line_count(whole, about), about.media_type)
            self._entries[digest] = (whole, Entry(stored, about, self._now()))
        return replace(self._entries[digest][1].stored, media_type=about.media_type)

    def _held(self, digest: Digest) -> tuple[bytes, Entry]:
        if digest not in self._entries:
            raise NotThere(f"There is no entry {digest} in this workspace's cache.")
        return self._entries[digest]

    async def get(self, digest: Digest) -> bytes:
        return self._held(digest)[0]

    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise WrongUse("The start and the length of the part must both be 0 or greater.")
        return self._held(digest)[0][start : start + length]

    async def lacking(self, digests: Collection[Digest]) -> frozenset[Digest]:
        return frozenset(digests) - self._entries.keys()

    async def contents(self, digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        return {digest: self._entries[digest][0] for digest in digests if digest in self._entries}

    async def about(self, digest: Digest) -> Entry:
        return self._held(digest)[1]

    async def resolve(self, prefix: str) -> Digest:
        prefix_bounds(prefix)
        found = [digest for digest in self._entries if digest.hex.startswith(prefix.lower())]
        if len(found) == 1:
            return found[0]
        if found:
            raise Ambiguous(f"{len(found)} entries begin with {prefix}.", remedy="Enter more digits.")
        raise NotThere(f"No entry in this workspace has a hash that begins with {prefix}.")

    def entries(self) -> Iterable[tuple[bytes, Entry]]:
        """What a search goes through."""
        return self._entries.values()


class MemoryIndex:
    """ports.Index by looking at everything."""

    def __init__(self, journal: MemoryJournal, cache: MemoryCache) -> None:
        self._journal = journal
        self._cache = cache

    async def search(self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False) -> Sequence[Hit]:
        terms = search_words.asked(query)
        hits = [*self._entries(terms, tool), *([] if entries_only or tool else self._messages(terms))]
        return tuple(hits[:limit]) if terms else ()

    def _entries(self, terms: list[str], tool: str) -> Iterable[Hit]:
        for content, entry in self._cache.entries():
            text = search_words.readable(content)
            if text is not None and (not tool or entry.about.tool == tool) and _holds(text, terms):
                at = search_words.where(text, terms)
                line = text.count("\n", 0, at) + 1
                yield Hit(search_words.snippet(text, at), entry.stored.digest, line=line, about=entry.about)

    def _messages(self, terms: list[str]) -> Iterable[Hit]:
        for recorded, text in self._journal.texts():
            if _holds(text, terms):
                at = search_words.where(text, terms)
                yield Hit(
                    search_words.snippet(text, at),
                    None,
                    recorded.conversation,
                    recorded.seq,
                    text.count("\n", 0, at) + 1,
                )


def _holds(text: str, terms: list[str]) -> bool:
    """Whether the text has each term, as whole words, as the real index cuts them."""
    held, hidden = _forms(text)
    return all(
        _stands(term, held) or _stands(term, hidden) or _stands(search_words.parts(term), hidden) for term in terms
    )


@functools.lru_cache(maxsize=4_096)  # a replay searches the same texts again and again
def _forms(text: str) -> tuple[str, str]:
    """Its words, and the words hidden in them, each between blanks."""
    hidden = search_words.parts(text)
    return f" {' '.join(search_words.plain(text))} ", f" {' '.join(search_words.plain(hidden))} "


def _stands(term: str, held: str) -> bool:
    asked = " ".join(search_words.plain(term))
    return bool(asked) and f" {asked}{'' if term.endswith('*') else ' '}" in held
