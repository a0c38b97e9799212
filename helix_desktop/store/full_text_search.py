"""Full-text search: the index says where, and the snippet comes from the stores themselves, checked."""

import math
import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.fact_encoding import decode_fact
from helix_desktop.engine.facts import ConversationStarted, Fact, ModelReplied, ToolCall, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin, SearchHit
from helix_desktop.engine.search_query import SearchFilters, split_filters, stem_of_word, without_stop_words
from helix_desktop.errors import HelixError
from helix_desktop.store import search_words, sqlite_database
from helix_desktop.store.cache_records import CacheRecord
from helix_desktop.store.index_file import SEARCHED, IndexDamaged, searchable_texts
from helix_desktop.store.journal_file import StoredFact

WEIGHED = 120  # How many places are ranked if none contains every word.
FILTERED = 10  # With a filter, this many times as many places are read.
NEAR = {-2: 0.1, -1: 0.3, 1: 0.3, 2: 0.1}  # The weight of a neighbouring fact that also matches, by its distance.
TOGETHER, MOST_TOGETHER = 0.1, 8  # The weight of what else of its conversation matches, and how many facts of it count.
FoundRow = tuple[int, int, int, str, int, bytes | None, float]
FoundPlace = tuple[SearchHit, str, float]  # A hit, its text, and its rank by the index.

_FOUND = """
SELECT pieces.number, pieces.start, pieces.length, pieces.conversation, pieces.seq, entries.digest, words.rank
FROM words JOIN pieces ON pieces.id = words.rowid LEFT JOIN entries ON entries.number = pieces.number
WHERE words MATCH ? AND (? = '' OR entries.tool = ?) AND (? = 0 OR pieces.number > 0)
AND (? = '' OR pieces.number = 0 OR instr(lower(entries.tool), ?)) AND (? = '' OR pieces.number = 0 OR instr(lower(entries.source), ?))
ORDER BY words.rank LIMIT ?
"""


class SnippetSource(Protocol):
    """Where snippets are taken from; answered by the thread that owns the stores."""

    def described_record(self, digest: Digest) -> CacheRecord: ...

    def read_content_beginning(self, record: CacheRecord, limit: int) -> bytes: ...

    def find_fact_line(self, conversation: str, seq: int) -> StoredFact | None: ...


def search_full_text(
    connection: sqlite3.Connection,
    source: SnippetSource,
    query: str,
    *,
    tool: str = "",
    limit: int = 20,
    entries_only: bool = False,
) -> tuple[SearchHit, ...]:
    """Places that hold every word of the query; where there is none, places that hold any."""
    query, filters = split_filters(query)
    terms = search_words.query_terms(query)
    if not terms:
        return ()
    pairs = search_words.split_unspaced_terms(terms)
    asked = limit if filters == SearchFilters() or limit < 0 else limit * FILTERED
    for every in (True, False):
        words = without_stop_words(terms if every else pairs)
        expression = search_words.fts_expression(words, every=every)
        most = asked if every or asked < 0 else max(asked, WEIGHED)
        rows = _matching_rows(connection, expression, tool, most, filters, entries_only=entries_only)
        places = [place for row in rows if (place := _build_hit(source, row, words, filters)) is not None]
        if places or len(pairs) == 1:
            break
    hits = [hit for hit, _, _ in (places if every else _weigh_places(places, words))]
    return tuple(_first_hit_of_each(hits)[: limit if limit >= 0 else None])


def _weigh_places(places: Sequence[FoundPlace], words: list[str]) -> list[FoundPlace]:
    """Places that hold some of the words: those with more and rarer ones of them come first, and those with others near them, or
    elsewhere in their conversation.
    """
    stems = list(dict.fromkeys(map(stem_of_word, words)))
    folded = (text.casefold() for _, text, _ in places)
    held = [[stem for stem in stems if stem in text] for text in folded]
    counts = Counter(stem for each in held for stem in each)
    rarity = {stem: math.log(1 + len(places) / (counts[stem] + 0.5)) for stem in stems}
    whole = sum(rarity.values())
    alone = [rank * sum(map(rarity.__getitem__, each)) / whole for (_, _, rank), each in zip(places, held, strict=True)]
    facts = [(hit.conversation, hit.seq) for hit, _, _ in places]
    weights = dict(zip(facts, alone, strict=True))
    near, others = list[float](), dict[str, list[float]]()
    for (conversation, seq), weight in zip(facts, alone, strict=True):
        beside = (share * weights.get((conversation, seq + step), 0.0) for step, share in NEAR.items() if seq)
        near.append(weight + sum(beside))
        others.setdefault(conversation, []).append(near[-1])
    beyond = {name: TOGETHER * sum(sorted(each)[-MOST_TOGETHER:-1]) for name, each in others.items() if name}
    order = sorted(range(len(places)), key=lambda at: -near[at] - beyond.get(facts[at][0], 0.0))
    return [places[at] for at in order]


def _matching_rows(
    connection: sqlite3.Connection,
    expression: str,
    tool: str,
    limit: int,
    filters: SearchFilters,
    *,
    entries_only: bool,
) -> Sequence[FoundRow]:
    named = (filters.tool, filters.tool, filters.file, filters.file)
    with sqlite_database.SqliteErrors(IndexDamaged, "index"):
        return connection.execute(_FOUND, (expression, tool, tool, entries_only, *named, limit)).fetchall()


def _build_hit(source: SnippetSource, row: FoundRow, terms: list[str], filters: SearchFilters) -> FoundPlace | None:
    number, start, length, conversation, seq, digest, rank = row
    try:
        found = (
            _hit_in_entry(source, Digest(digest), start, length, terms, filters)
            if number and digest is not None
            else _hit_in_fact(source, conversation, seq, terms, filters)
        )
    except HelixError:
        return None  # what is gone or damaged is no place to send anybody
    return (*found, -rank) if found else None


def _hit_in_entry(
    source: SnippetSource, digest: Digest, start: int, length: int, terms: list[str], filters: SearchFilters
) -> tuple[SearchHit, str] | None:
    record = source.described_record(digest)
    if filters.by not in ("", "tool") or filters.agent or not filters.is_in_time(record.time):
        return None
    text = search_words.text_or_none(source.read_content_beginning(record, min(SEARCHED, 4 * (start + length) + 4)))
    if text is None:
        return None
    piece = text[start : start + length]
    at = search_words.find_first_term(piece, terms)
    line = text.count("\n", 0, start + at) + 1
    return SearchHit(search_words.cut_snippet(text, start + at), digest, line=line, about=record.about), piece


def _hit_in_fact(
    source: SnippetSource, conversation: str, seq: int, terms: list[str], filters: SearchFilters
) -> tuple[SearchHit, str] | None:
    line = source.find_fact_line(conversation, seq)
    if line is None or not line.is_intact:
        return None
    fact = decode_fact(line.fact)
    text = "\n".join(searchable_texts(fact))
    if not _fact_passes(source, line, fact, text, filters):
        return None
    at = search_words.find_first_term(text, terms)
    hit = SearchHit(
        search_words.cut_snippet(text, at), None, conversation, seq, text.count("\n", 0, at) + 1, EntryOrigin()
    )
    return hit, text


def _fact_passes(source: SnippetSource, line: StoredFact, fact: Fact, text: str, filters: SearchFilters) -> bool:
    """Whether a message is one the filters ask for; a tool is one that it calls."""
    speaker = {UserSaid: "user", ModelReplied: "agent", ToolReturned: "tool"}.get(type(fact), "")
    calls = [part for part in fact.parts if isinstance(part, ToolCall)] if isinstance(fact, ModelReplied) else []
    if (filters.by and filters.by != speaker) or not filters.is_in_time(line.time):
        return False
    if filters.tool and not any(filters.tool in call.name.casefold() for call in calls):
        return False
    if filters.file and not any(filters.file in one.casefold() for one in (text, *(call.arguments for call in calls))):
        return False
    return not filters.agent or filters.agent in _agent_of(source, line.conversation)


def _agent_of(source: SnippetSource, conversation: str) -> str:
    line = source.find_fact_line(conversation, 1)
    fact = decode_fact(line.fact) if line is not None and line.is_intact else None
    return (fact.agent or fact.origin.kind or "Helix").casefold() if isinstance(fact, ConversationStarted) else "helix"


def _first_hit_of_each(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """The best place of each entry and fact."""
    seen: dict[tuple[Digest | None, str, int], SearchHit] = {}
    for hit in hits:
        seen.setdefault((hit.digest, hit.conversation, hit.seq), hit)
    return list(seen.values())
