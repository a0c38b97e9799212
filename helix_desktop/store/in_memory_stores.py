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
from helix_desktop.store import left_entries, search_words
from helix_desktop.store.cache_folder import count_text_lines
from helix_desktop.store.cache_reader import prefix_bounds
from helix_desktop.store.index_file import entries_used_by, searchable_texts


class MemoryJournal:
    def __init__(self, *, now: Callable[[], float] = clock.time) -> None:
        self._now = now
        self._facts: dict[str, list[Recorded]] = {}

    async def append_to_journal(
        self, conversation: str, facts: Sequence[Fact]
    ) -> Sequence[Recorded]:
        """Append facts to a conversation, which begins with its first fact. All of them get the
        same time, and consecutive numbers.
        """
        if not facts:
            return ()
        if not conversation:
            raise InvalidInput("A conversation must have an ID.")
        stored = self._facts.setdefault(conversation, [])
        time = self._now()
        recorded = []
        for seq, fact in enumerate(facts, len(stored) + 1):
            recorded.append(Recorded(conversation, seq, time, fact))
        stored += recorded
        return tuple(recorded)

    async def read_facts(
        self, conversation: str, after: int = 0, limit: int = 0
    ) -> Sequence[Recorded]:
        facts = self._facts.get(conversation, [])[after:]
        if limit:
            facts = facts[:limit]
        return tuple(facts)

    def facts_by_conversation(self) -> Mapping[str, Sequence[Recorded]]:
        return self._facts

    def texts_of_facts(self) -> Iterable[tuple[Recorded, str]]:
        for facts in self._facts.values():
            for recorded in facts:
                yield recorded, "\n".join(searchable_texts(recorded.fact))


class MemoryCache:
    """Implements ports.ContentCache by a dictionary."""

    def __init__(self, *, now: Callable[[], float] = clock.time) -> None:
        self._now = now
        self._entries: dict[Digest, tuple[bytes, CacheEntry]] = {}

    async def store_content(
        self, content: bytes | AsyncIterable[bytes], about: EntryOrigin
    ) -> Stored:
        """Store a content once, whoever stores it. The answer says the media type that this
        caller knows of it.
        """
        if isinstance(content, bytes):
            whole_content = content
        else:
            whole_content = b"".join([piece async for piece in content])
        digest = Digest.of_content(whole_content)
        if digest not in self._entries:
            stored = Stored(
                digest, len(whole_content), count_text_lines(whole_content, about), about.media_type
            )
            self._entries[digest] = (whole_content, CacheEntry(stored, about, self._now()))
        _, entry = self._entries[digest]
        return replace(entry.stored, media_type=about.media_type)

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
        contents = {}
        for digest in digests:
            if digest in self._entries:
                contents[digest] = await self.read_content(digest)
        return contents

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
        """Return the entries, and then the messages, that have all words of the query. A search
        for a tool's outputs, or for entries only, leaves messages out.
        """
        terms = search_words.query_terms(query)
        if not terms:
            return ()
        hits = list(self._hits_in_entries(terms, tool))
        if not entries_only and not tool:
            hits += self._hits_in_messages(terms)
        return tuple(hits[:limit])

    async def find_left_entries(
        self, digests: Collection[Digest]
    ) -> Mapping[Digest, frozenset[str]]:
        """Return those of these entries that are only in parts of conversations that users left
        by a rewind, each with these conversations.
        """
        kept: set[Digest] = set()
        left: dict[Digest, set[str]] = {}
        for conversation, recorded_facts in self._journal.facts_by_conversation().items():
            runs = left_entries.kept_runs(recorded_facts, len(recorded_facts))
            for recorded in recorded_facts:
                for how, digest in entries_used_by(recorded.fact):
                    if how == "recall":
                        continue
                    if left_entries.is_in_runs(recorded.seq, runs):
                        kept.add(digest)
                    else:
                        left.setdefault(digest, set()).add(conversation)
        return {
            digest: frozenset(left[digest])
            for digest in digests
            if digest in left and digest not in kept
        }

    def _hits_in_entries(self, terms: list[str], tool: str) -> Iterable[SearchHit]:
        """Yield each entry of text that has all terms, with the passage around the first of
        them.
        """
        for content, entry in self._cache.all_contents():
            if tool and entry.about.tool != tool:
                continue
            text = search_words.searched_text_or_none(content, entry.about)
            if text is None or not _has_all_terms(text, terms):
                continue
            start = search_words.find_first_term(text, terms)
            snippet = search_words.cut_snippet(text, start)
            line = text.count("\n", 0, start) + 1
            yield SearchHit(snippet, entry.stored.digest, line=line, about=entry.about)

    def _hits_in_messages(self, terms: list[str]) -> Iterable[SearchHit]:
        """Yield each fact whose text has all terms, with the passage around the first of them."""
        for recorded, text in self._journal.texts_of_facts():
            if not _has_all_terms(text, terms):
                continue
            start = search_words.find_first_term(text, terms)
            yield SearchHit(
                search_words.cut_snippet(text, start),
                None,
                recorded.conversation,
                recorded.seq,
                line=text.count("\n", 0, start) + 1,
                time=recorded.time,
            )


def _has_all_terms(text: str, terms: list[str]) -> bool:
    """Whether the text has each term as whole words, as the real index splits them."""
    plain, hidden = _plain_and_hidden_words(text)
    for term in terms:
        is_plain = _term_occurs(term, plain) or _term_occurs(term, hidden)
        if not is_plain and not _term_occurs(search_words.words_inside(term), hidden):
            return False
    return True


@functools.lru_cache(maxsize=4_096)  # A replay searches the same texts repeatedly.
def _plain_and_hidden_words(text: str) -> tuple[str, str]:
    """Return the text's words, and the words inside them, each between blanks."""
    hidden_text = search_words.words_inside(text)
    return _words_between_blanks(text), _words_between_blanks(hidden_text)


def _words_between_blanks(text: str) -> str:
    words = " ".join(search_words.plain_words(text))
    return f" {words} "


def _term_occurs(term: str, words: str) -> bool:
    plain_term = " ".join(search_words.plain_words(term))
    if not plain_term:
        return False
    if term.endswith("*"):
        return f" {plain_term}" in words
    return f" {plain_term} " in words
