"""Full-text search: the index says where, and the snippet comes from the stores themselves, checked."""

import sqlite3
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.fact_encoding import decode_fact
from helix_desktop.engine.facts import ConversationStarted, Fact, ModelReplied, ToolCall, ToolReturned, UserSaid
from helix_desktop.engine.ports import SearchHit
from helix_desktop.engine.search_query import SearchFilters, split_filters, without_stop_words
from helix_desktop.errors import HelixError
from helix_desktop.store import search_words, sqlite_database
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_records import CacheRecord
from helix_desktop.store.index_file import SEARCHED, IndexDamaged, searchable_texts
from helix_desktop.store.journal_file import JournalFile, StoredFact
from helix_desktop.store.search_ranking import FoundPlace, rank_places

T = TypeVar("T")
WEIGHED = 120  # At least this many matching facts and pieces of entries are read to be ranked.
FILTERED = 10  # A filter discards results, so this many times the limit is read.
RANKED = 5_000  # Rows are ranked by words that occur in fewer rows than this in all, to be fast.
BY_USER = 2.0  # What the user said is worth so much more than what the agent said.
SLICE = 1 << 20  # In bytes. About this much is read at once.
FoundRow = tuple[int, int, int, str, int, bytes | None, float]
KnownRows = Container[tuple[object, ...]]  # Without their rank.
OpenCache = Callable[[], CacheFolder]
ReadPlace = tuple[CacheRecord, bytes] | StoredFact  # An entry with its first bytes, or a fact.

_FOUND = """
SELECT pieces.number, pieces.start, pieces.length, pieces.conversation, pieces.seq, entries.digest, {rank}
FROM words JOIN pieces ON pieces.id = words.rowid LEFT JOIN entries ON entries.number = pieces.number
WHERE words MATCH ? {within} AND (? = '' OR entries.tool = ?) AND (? = 0 OR pieces.number > 0)
AND (? = '' OR pieces.number = 0 OR instr(lower(entries.tool), ?)) AND (? = '' OR pieces.number = 0 OR instr(lower(entries.source), ?))
ORDER BY {order} LIMIT ?
"""
_WITHIN = "AND +words.rowid IN (SELECT rowid FROM words WHERE words MATCH ?)"
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM words WHERE words MATCH ? LIMIT ?)"


class StoresAccess(Protocol):
    """Where snippets are taken from."""

    def run_on_stores(self, work: Callable[[OpenCache, JournalFile], T]) -> T:
        """Work done where the stores are, at one go."""


def search_full_text(
    connection: sqlite3.Connection,
    source: StoresAccess,
    query: str,
    *,
    tool: str = "",
    limit: int = 20,
    entries_only: bool = False,
) -> tuple[SearchHit, ...]:
    """The places that have every word of the query, and those that have the most of them."""
    query, filters = split_filters(query)
    terms = search_words.query_terms(query)
    if not terms:
        return ()
    words = without_stop_words(search_words.split_unspaced_terms(terms))
    most = max(limit if filters == SearchFilters() else limit * FILTERED, WEIGHED)
    chosen = (tool, tool, entries_only, filters.tool, filters.tool, filters.file, filters.file, most)
    counts: dict[str, int] = {}
    found = _matching_rows(connection, without_stop_words(terms), chosen, counts, every=True)
    every = {row[:-1] for row in found}
    if len(found) < most and len(words) > 1:
        some = _matching_rows(connection, words, chosen, counts, every=False)
        found += [row for row in some if row[:-1] not in every]
    return tuple(rank_places([*_read_found_places(source, found, every, filters)], words)[:limit])


def _matching_rows(
    connection: sqlite3.Connection, words: list[str], chosen: tuple[object, ...], counts: dict[str, int], *, every: bool
) -> list[FoundRow]:
    """The best rows by the index. Ranking what stands almost everywhere takes long: the rank goes
    by the rarer words, and where there are none the newest rows are taken.
    """
    with sqlite_database.SqliteErrors(IndexDamaged, "index"):
        rare = _words_to_rank_by(connection, words, counts)
        asked = [search_words.fts_expression(rare or words, every=every)]
        if within := _WITHIN if every and 0 < len(rare) < len(words) else "":
            asked.append(search_words.fts_expression(words))
        rank, order = ("words.rank", "words.rank") if rare else ("-1.0", "words.rowid DESC")
        statement = _FOUND.format(rank=rank, order=order, within=within)
        return connection.execute(statement, (*asked, *chosen)).fetchall()


def _words_to_rank_by(connection: sqlite3.Connection, words: list[str], counts: dict[str, int]) -> list[str]:
    """The rarest words, as many as stand in few enough places to rank them all."""
    room, rare = RANKED, list[str]()
    for word in words:
        if word not in counts:
            asked = (search_words.fts_expression([word]), RANKED)
            counts[word] = connection.execute(_COUNT, asked).fetchone()[0]
    for word in sorted(words, key=counts.__getitem__):
        if (room := room - counts[word]) > 0:
            rare.append(word)
    return rare


def _read_found_places(
    source: StoresAccess, rows: Sequence[FoundRow], every: KnownRows, filters: SearchFilters
) -> Iterator[FoundPlace]:
    """The places of the rows, each entry and each fact read once. `every`: rows that have every word."""
    pieces: dict[FoundRow, list[FoundRow]] = {}
    for row in rows:
        pieces.setdefault((row[0], 0, 0, *row[3:6], 0.0), []).append(row)
    left = [*pieces.values()]
    while left:
        read = source.run_on_stores(partial(_read_places, [max(each, key=lambda row: row[1]) for each in left]))
        for each, found in zip(left, read, strict=False):
            if isinstance(found, StoredFact):
                yield from _places_in_fact(source, each[:1], found, every, filters)
            elif found is not None:
                yield from _places_in_entry(each, *found, every, filters)
        left = left[len(read) :]


def _places_in_fact(
    source: StoresAccess, rows: Sequence[FoundRow], line: StoredFact, every: KnownRows, filters: SearchFilters
) -> Iterator[FoundPlace]:
    fact = decode_fact(line.fact)
    text = "\n".join(searchable_texts(fact))
    if _fact_passes_filters(source, line, fact, text, filters):
        hit = SearchHit("", None, line.conversation, line.seq, 1)
        worth = BY_USER if isinstance(fact, UserSaid) else 1.0
        for row in rows:
            yield FoundPlace(hit, text, 0, -row[-1] * worth, row[:-1] in every)


def _places_in_entry(
    rows: Sequence[FoundRow], record: CacheRecord, content: bytes, every: KnownRows, filters: SearchFilters
) -> Iterator[FoundPlace]:
    if filters.by in ("", "tool") and not filters.agent and filters.is_in_time(record.time):
        text = search_words.text_or_none(content) or ""
        for row in rows:
            start, length = row[1:3]
            hit = SearchHit("", record.digest, line=text.count("\n", 0, start) + 1, about=record.about)
            yield FoundPlace(hit, text[start : start + length], row[0], -row[-1], row[:-1] in every)


def _read_places(rows: Sequence[FoundRow], cache: OpenCache, journal: JournalFile) -> list[ReadPlace | None]:
    """What the rows are about, as many of them as come to about a megabyte."""
    found: list[ReadPlace | None] = []
    room = SLICE
    for row in rows:
        try:
            found.append(_read_place(cache, journal, row))
        except HelixError:
            found.append(None)  # Content that is deleted or damaged can't be a result.
        room -= len(found[-1][1]) if isinstance(found[-1], tuple) else 0
        if room <= 0:
            break
    return found


def _read_place(cache: OpenCache, journal: JournalFile, row: FoundRow) -> ReadPlace | None:
    number, start, length, conversation, seq, digest, _ = row
    if number and digest is not None:
        record = cache().record_of_content(Digest(digest))
        return record, cache().read_part_of_entry(record, 0, min(SEARCHED, 4 * (start + length) + 4))
    return _find_fact_line(conversation, seq, cache, journal)


def _find_fact_line(conversation: str, seq: int, _: OpenCache, journal: JournalFile) -> StoredFact | None:
    found = journal.read_stored_facts(conversation, seq - 1, 1)
    return found[0] if found and found[0].seq == seq and found[0].is_intact else None


def _fact_passes_filters(source: StoresAccess, line: StoredFact, fact: Fact, text: str, filters: SearchFilters) -> bool:
    """Whether a message is one the filters ask for; a tool is one that it calls."""
    speaker = {UserSaid: "user", ModelReplied: "agent", ToolReturned: "tool"}.get(type(fact), "")
    calls = [part for part in fact.parts if isinstance(part, ToolCall)] if isinstance(fact, ModelReplied) else []
    if (filters.by and filters.by != speaker) or not filters.is_in_time(line.time):
        return False
    if filters.tool and not any(filters.tool in call.name.casefold() for call in calls):
        return False
    if filters.file and not any(filters.file in one.casefold() for one in (text, *(call.arguments for call in calls))):
        return False
    return not filters.agent or filters.agent in _agent_of_conversation(source, line.conversation)


def _agent_of_conversation(source: StoresAccess, conversation: str) -> str:
    line = source.run_on_stores(partial(_find_fact_line, conversation, 1))
    fact = decode_fact(line.fact) if line is not None else None
    return (fact.agent or fact.origin.kind or "Helix").casefold() if isinstance(fact, ConversationStarted) else "helix"
