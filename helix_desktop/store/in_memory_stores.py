"""Stores in memory, with the same ports, for tests and for what need not last. They
pass the same tests.
"""

import functools
import time as clock
from collections.abc import AsyncIterable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine.facts import Fact, Recorded, Stored
from helix_desktop.engine.ports import CacheEntry, EntryOrigin, SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import AmbiguousName, InvalidInput, NotFound
from helix_desktop.store import search_words
from helix_desktop.store.cache_folder import count_text_lines
from helix_desktop.store.cache_reader import prefix_bounds
from helix_desktop.store.index_file import searchable_texts


class MemoryJournal:
    def __init__(self, *, now: Callable[[], float] = clock.time) -> None:
        self._now = now
        self._facts: dict[str, list[Recorded]] = {}

    async def append_to_journal(
        self, conversation: str, facts: Sequence[Fact]
    ) -> Sequence[Recorded]:
        if not facts:
            return ()
        if not conversation:
            raise InvalidInput("A conversation must have an ID.")
        held = self._facts.setdefault(conversation, [])
        time = self._now()
        recorded = tuple(
            Recorded(conversation, len(held) + 1 + i, time, fact) for i, fact in enumerate(facts)
        )
        held += recorded
        return recorded

    async def read_facts(
        self, conversation: str, after: int = 0, limit: int = 0
    ) -> Sequence[Recorded]:
        held = self._facts.get(conversation, [])
        return tuple(held[after : after + limit if limit else None])

    def texts_of_facts(self) -> Iterable[tuple[Recorded, str]]:
        return (
            (each, "\n".join(searchable_texts(each.fact)))
            for held in self._facts.values()
            for each in held
        )


class MemoryCache:
    """Implements ports.ContentCache by a dictionary."""

    def __init__(self, *, now: Callable[[], float] = clock.time) -> None:
        self._now = now
        self._entries: dict[Digest, tuple[bytes, CacheEntry]] = {}

    async def store_content(
        self, content: bytes | AsyncIterable[bytes], about: EntryOrigin
    ) -> Stored:
        whole = (
            content if isinstance(content, bytes) else b"".join([piece async for piece in content])
        )
        digest = Digest.of_content(whole)
        if digest not in self._entries:
            stored = Stored(digest, len(whole), count_text_lines(whole, about), about.media_type)
            self._entries[digest] = (whole, CacheEntry(stored, about, self._now()))
        return replace(self._entries[digest][1].stored, media_type=about.media_type)

    def _get_entry_or_raise(self, digest: Digest) -> tuple[bytes, CacheEntry]:
        if digest not in self._entries:
            raise NotFound(f"There is no entry {digest} in this workspace's cache.")
        return self._entries[digest]

    async def read_content(self, digest: Digest) -> bytes:
        return self._get_entry_or_raise(digest)[0]

    async def read_range(self, digest: Digest, start: int, length: int) -> bytes:
        if start < 0 or length < 0:
            raise InvalidInput("The start and the length of the part must both be 0 or greater.")
        return self._get_entry_or_raise(digest)[0][start : start + length]

    async def find_missing_content(self, digests: Collection[Digest]) -> frozenset[Digest]:
        return frozenset(digests) - self._entries.keys()

    async def read_contents(self, digests: Collection[Digest]) -> Mapping[Digest, bytes]:
        return {digest: self._entries[digest][0] for digest in digests if digest in self._entries}

    async def describe_entry(self, digest: Digest, beginning: int = 0) -> CacheEntry:
        content, entry = self._get_entry_or_raise(digest)
        return replace(entry, beginning=content[:beginning])

    async def resolve_prefix(self, prefix: str) -> Digest:
        prefix_bounds(prefix)
        found = [digest for digest in self._entries if digest.hex.startswith(prefix.lower())]
        if len(found) == 1:
            return found[0]
        if found:
            raise AmbiguousName(f"{len(found)} entries begin with {prefix}.", remedy="Enter more characters of the hash.")  # fmt: skip
        raise NotFound(f"No entry in this workspace has a hash that begins with {prefix}.")

    def all_contents(self) -> Iterable[tuple[bytes, CacheEntry]]:
        return self._entries.values()


class MemoryIndex:
    """Implements ports.Index by searching everything."""

    def __init__(self, journal: MemoryJournal, cache: MemoryCache) -> None:
        self._journal = journal
        self._cache = cache

    async def search_index(
        self, query: str, *, tool: str = "", limit: int = 20, entries_only: bool = False
    ) -> Sequence[SearchHit]:
        terms = search_words.query_terms(query)
        hits = [
            *self._hits_in_entries(terms, tool),
            *([] if entries_only or tool else self._hits_in_messages(terms)),
        ]
        return tuple(hits[:limit]) if terms else ()

    def _hits_in_entries(self, terms: list[str], tool: str) -> Iterable[SearchHit]:
        for content, entry in self._cache.all_contents():
            text = search_words.text_or_none(content)
            if (
                text is not None
                and (not tool or entry.about.tool == tool)
                and _has_all_terms(text, terms)
            ):
                at = search_words.find_first_term(text, terms)
                line = text.count("\n", 0, at) + 1
                yield SearchHit(
                    search_words.cut_snippet(text, at),
                    entry.stored.digest,
                    line=line,
                    about=entry.about,
                )

    def _hits_in_messages(self, terms: list[str]) -> Iterable[SearchHit]:
        for recorded, text in self._journal.texts_of_facts():
            if _has_all_terms(text, terms):
                at = search_words.find_first_term(text, terms)
                line = text.count("\n", 0, at) + 1
                yield SearchHit(
                    search_words.cut_snippet(text, at),
                    None,
                    recorded.conversation,
                    recorded.seq,
                    line,
                )


def _has_all_terms(text: str, terms: list[str]) -> bool:
    """Whether the text has each term as whole words, as the real index splits them."""
    held, hidden = _plain_and_hidden_words(text)
    return all(
        _term_occurs(term, held)
        or _term_occurs(term, hidden)
        or _term_occurs(search_words.words_inside(term), hidden)
        for term in terms
    )


@functools.lru_cache(maxsize=4_096)  # A replay searches the same texts repeatedly.
def _plain_and_hidden_words(text: str) -> tuple[str, str]:
    """Return the text's words, and the words inside them, each between blanks."""
    hidden = search_words.words_inside(text)
    return (
        f" {' '.join(search_words.plain_words(text))} ",
        f" {' '.join(search_words.plain_words(hidden))} ",
    )


def _term_occurs(term: str, held: str) -> bool:
    asked = " ".join(search_words.plain_words(term))
    return bool(asked) and f" {asked}{'' if term.endswith('*') else ' '}" in held
