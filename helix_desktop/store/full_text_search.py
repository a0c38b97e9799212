"""Full-text search: the index says where, and the snippet comes from the stores themselves, checked."""

import math
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.fact_encoding import decode_fact
from helix_desktop.engine.facts import ConversationStarted, Fact, ModelReplied, ToolCall, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin, SearchHit
from helix_desktop.engine.search_query import SearchFilters, split_filters, stem_of_word, without_stop_words
from helix_desktop.errors import HelixError
from helix_desktop.store import search_words, sqlite_database
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_records import CacheRecord
from helix_desktop.store.index_file import SEARCHED, IndexDamaged, searchable_texts
from helix_desktop.store.journal_file import JournalFile, StoredFact

WEIGHED = 120  # At least this many matching facts and pieces of entries are read to be ranked.
FILTERED = 10  # A filter discards results, so this many times the limit is read.
NEAR = {-2: 0.1, -1: 0.3, 1: 0.3, 2: 0.1}  # The weight of a neighbouring fact that also matches, by its distance.
T = TypeVar("T")
RANKED = 5_000  # Rows are ranked by words that occur in fewer rows than this in all, to be fast.
LINE, LINES = 500, 30  # Characters on each side of a word in a line, and lines of a text, that are read.
SLICE = 1 << 20  # In bytes. About this much is read at once.
TOGETHER, MOST_TOGETHER = 0.1, 8  # The weight of other matches in the conversation, and how many of its matches count.
FoundRow = tuple[int, int, int, str, int, bytes | None, float]
OpenCache = Callable[[], CacheFolder]
ReadPlace = tuple[CacheRecord, bytes] | StoredFact  # An entry with its first bytes, or a fact.
FoundPlace = tuple[SearchHit, str, float]  # A hit, its text, and its rank by the index.

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
    """Places that hold every word of the query; where there is none, places that hold any."""
    query, filters = split_filters(query)
    terms = search_words.query_terms(query)
    if not terms:
        return ()
    pairs = search_words.split_unspaced_terms(terms)
    counts: dict[str, int] = {}
    asked = limit if filters == SearchFilters() or limit < 0 else limit * FILTERED
    for every in (True, False):
        words = without_stop_words(terms if every else pairs)
        most = asked if asked < 0 else max(asked, WEIGHED)
        rows = _matching_rows(connection, words, tool, most, filters, counts, every=every, entries_only=entries_only)
        places = [*_build_hits(source, rows, words, filters)]
        if places or len(pairs) == 1:
            break
    hits = [hit for hit, _, _ in (_order_by_line(places, words) if every else _weigh_places(places, words))]
    return tuple(_remove_repeated_hits(hits)[: limit if limit >= 0 else None])


def _order_by_line(places: Sequence[FoundPlace], words: list[str]) -> list[FoundPlace]:
    """Places that hold every word: those with more of them in one line come first."""
    stems = list(dict.fromkeys(map(stem_of_word, words)))

    def count_in_line(place: FoundPlace) -> int:
        text = place[1].casefold()
        rarest = re.escape(min(stems, key=text.count))
        lines = islice(re.finditer(rf"[^\n]{{0,{LINE}}}{rarest}[^\n]{{0,{LINE}}}", text), LINES)
        return max((sum(stem in line.group() for stem in stems) for line in lines), default=0)

    return sorted(places, key=count_in_line, reverse=True) if len(stems) > 1 else list(places)


def _weigh_places(places: Sequence[FoundPlace], words: list[str]) -> list[FoundPlace]:
    """Places that hold some of the words: those with more and rarer ones of them come first, and
    those with others near them, or elsewhere in their conversation.
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


def _matching_rows(  # noqa: PLR0913  # what may be asked for
    connection: sqlite3.Connection,
    words: list[str],
    tool: str,
    limit: int,
    filters: SearchFilters,
    counts: dict[str, int],
    *,
    every: bool,
    entries_only: bool,
) -> Sequence[FoundRow]:
    """The best rows by the index. Ranking what stands almost everywhere takes long: the rank goes
    by the rarer words, and where there are none the newest rows are taken.
    """
    named = (filters.tool, filters.tool, filters.file, filters.file)
    with sqlite_database.SqliteErrors(IndexDamaged, "index"):
        rare = words if limit < 0 else _words_to_rank_by(connection, words, counts)
        asked = [search_words.fts_expression(rare or words, every=every)]
        if within := _WITHIN if every and 0 < len(rare) < len(words) else "":
            asked.append(search_words.fts_expression(words))
        rank, order = ("words.rank", "words.rank") if rare else ("-1.0", "words.rowid DESC")
        statement = _FOUND.format(rank=rank, order=order, within=within)
        return connection.execute(statement, (*asked, tool, tool, entries_only, *named, limit)).fetchall()


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


def _build_hits(
    source: StoresAccess, rows: Sequence[FoundRow], terms: list[str], filters: SearchFilters
) -> Iterator[FoundPlace]:
    while rows:
        read = source.run_on_stores(partial(_read_places, rows))
        for row, found in zip(rows, read, strict=False):
            if found is not None and (hit := _build_hit(source, row, found, terms, filters)):
                yield (*hit, -row[-1])
        rows = rows[len(read) :]


def _build_hit(
    source: StoresAccess, row: FoundRow, found: ReadPlace, terms: list[str], filters: SearchFilters
) -> tuple[SearchHit, str] | None:
    if isinstance(found, StoredFact):
        return _hit_in_fact(source, found, terms, filters)
    record, content = found
    if filters.by not in ("", "tool") or filters.agent or not filters.is_in_time(record.time):
        return None
    text = search_words.text_or_none(content)
    if text is None:
        return None
    start, length = row[1:3]
    piece = text[start : start + length]
    at = search_words.find_first_term(piece, terms)
    line = text.count("\n", 0, start + at) + 1
    return SearchHit(search_words.cut_snippet(text, start + at), record.digest, line=line, about=record.about), piece


def _hit_in_fact(
    source: StoresAccess, line: StoredFact, terms: list[str], filters: SearchFilters
) -> tuple[SearchHit, str] | None:
    fact = decode_fact(line.fact)
    text = "\n".join(searchable_texts(fact))
    if not _fact_passes_filters(source, line, fact, text, filters):
        return None
    at = search_words.find_first_term(text, terms)
    hit = SearchHit(
        search_words.cut_snippet(text, at),
        None,
        line.conversation,
        line.seq,
        text.count("\n", 0, at) + 1,
        EntryOrigin(),
    )
    return hit, text


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


def _remove_repeated_hits(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """The best place of each entry and fact."""
    seen: dict[tuple[Digest | None, str, int], SearchHit] = {}
    for hit in hits:
        seen.setdefault((hit.digest, hit.conversation, hit.seq), hit)
    return list(seen.values())
