"""Full-text search: the index finds places, and snippets come, checked, from the stores."""

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Protocol, TypeVar

from helix_desktop.engine.agent_additions import is_added_by_agent
from helix_desktop.engine.fact_encoding import decode_fact
from helix_desktop.engine.facts import (
    ConversationStarted,
    Fact,
    ModelReplied,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import SearchHit
from helix_desktop.engine.search_query import (
    SearchFilters,
    query_words_and_user_if_first_person,
    split_query_into_words_and_filters,
    without_stop_words,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.resources import read_sql_statements
from helix_desktop.store import search_words, sqlite_database
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_records import CacheRecord
from helix_desktop.store.index_file import SEARCHED, IndexDamaged, searchable_texts
from helix_desktop.store.journal_file import JournalFile, StoredFact
from helix_desktop.store.search_ranking import FoundPlace, rank_places, show_line

T = TypeVar("T")
WEIGHED = 120  # At least this many matching facts and pieces of entries are ranked.
FILTERED = 10  # A filter drops results, so this many times the limit is read.
RANKED = 5_000  # Only words that occur in fewer rows than this rank rows, which keeps it fast.
BY_USER = 1.25  # The weight of the user's words, compared with the agent's.
BY_SPEAKER = (
    1.8  # The weight of words by the speaker that the query names. "I" and "my" name the user.
)
SLICE = 1 << 20  # In bytes. Content is read in slices of about this size.
FoundRow = tuple[int, int, int, int, str, int, bytes | None]
OpenCache = Callable[[], CacheFolder]
ReadPlace = tuple[CacheRecord, bytes] | StoredFact  # An entry and its first bytes, or a fact.

_FOUND = read_sql_statements("index_statements")["found pieces"]
_NEWEST = "SELECT id FROM pieces ORDER BY id DESC LIMIT ?"
_MATCHING = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"


class StoresAccess(Protocol):
    """Access to the stores from which snippets are taken."""

    def run_on_stores(self, work: Callable[[OpenCache, JournalFile], T]) -> T:
        """Run this on the stores' thread, without interruption."""


def search_full_text(
    connection: sqlite3.Connection,
    source: StoresAccess,
    query: str,
    *,
    tool: str = "",
    limit: int = 20,
    entries_only: bool = False,
) -> tuple[SearchHit, ...]:
    """Return the places with every word of the query, and those with the most of them;
    the newest without words.
    """
    query, filters = split_query_into_words_and_filters(query)
    chosen = (tool, tool, entries_only, filters.tool, filters.tool, filters.file, filters.file)
    if not (terms := search_words.query_terms(query)):
        return (
            ()
            if filters == SearchFilters()
            else _find_newest(connection, source, filters, chosen, limit)
        )
    words = without_stop_words(search_words.split_unspaced_terms(terms))
    most = max(limit if filters == SearchFilters() else limit * FILTERED, WEIGHED)
    with sqlite_database.SqliteErrors(IndexDamaged, "index"):
        matching = MatchingRows(connection, words, most, RANKED if any(chosen) else most)
        found = connection.execute(_FOUND, (json.dumps(matching.best_first), *chosen))
        places: list[FoundPlace] = []
        while len(places) < most and (rows := found.fetchmany(most)):
            places += _read_found_places(
                source, rows, matching, filters, query_words_and_user_if_first_person(query)
            )
    return tuple(rank_places(places, matching.weigh_words())[:limit])


def _find_newest(
    connection: sqlite3.Connection,
    source: StoresAccess,
    filters: SearchFilters,
    chosen: tuple[object, ...],
    limit: int,
) -> tuple[SearchHit, ...]:
    """Return the newest places that pass the filters of a query without words, among
    the newest rows.
    """
    hits: dict[tuple[Digest | None, str, int], SearchHit] = {}
    with sqlite_database.SqliteErrors(IndexDamaged, "index"):
        newest = [row for (row,) in connection.execute(_NEWEST, (RANKED,))]
        found = connection.execute(_FOUND, (json.dumps(newest), *chosen))
        while len(hits) < limit and (rows := found.fetchmany(WEIGHED)):
            for place in _read_found_places(source, rows, AnyRows(), filters, frozenset()):
                hit = show_line(place, (), max(0, place.text.casefold().find(filters.file)))
                hits.setdefault((hit.digest, hit.conversation, hit.seq), hit)
    return tuple(islice(hits.values(), limit))


class AnyRows:
    """Takes the place of `MatchingRows` for a query without words."""

    def words_of_row(self, _row: int, _text: str) -> list[str]:
        return [""]


class MatchingRows:
    """The index rows with any of the words: those with more and rarer words first, then the newest.

    Each word is queried once. Of words that occur almost everywhere, only the newest
    rows are known, and they have no weight. `most`: how many to read. `deep`: how many
    of the best are needed if a filter drops some.
    """

    def __init__(
        self, connection: sqlite3.Connection, words: Sequence[str], most: int, deep: int
    ) -> None:
        self._connection = connection
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM pieces").fetchone()
        self._asked = search_words.queries_of_terms(
            words, partial(self._is_in_a_tenth_of_rows, last)
        )
        rows_of_words = ((word, frozenset(self._find_rows([word], RANKED))) for word in words)
        self._rows = dict(sorted(rows_of_words, key=lambda item: len(item[1])))  # Rarest first.
        self._last, self._looked_for, self._held = last, Counter[str](), Counter[str]()
        room, scores = RANKED, Counter[int]()
        self.weights = dict.fromkeys(words, 0.0)
        for word, rows in self._rows.items():
            if (room := room - len(rows)) > 0:
                self.weights[word] = math.log(1 + (last + 1) / (len(rows) + 0.5))
                scores.update(dict.fromkeys(rows, self.weights[word]))
        full, first = sum(self.weights.values()) - 1e-6, list[int]()
        # Words in every second row are checked in the text, as asking the index would take long.
        dense = {
            word
            for word, rows in self._rows.items()
            if len(rows) == RANKED > (last - min(rows)) / 2
        }
        self._of_all = [word for word in self._rows if word not in dense] or words
        if not scores or sum(score >= full for score in scores.values()) > most:
            first = self._find_rows(self._of_all, deep)
        self._with_all = frozenset(first)
        if not any(self.weights.values()) and len(first) < most:
            first += self._find_rows(words, deep, " OR ")
        self.best_first = [
            *dict.fromkeys([*first, *sorted(scores, key=lambda row: (-scores[row], -row))])
        ]

    def _is_in_a_tenth_of_rows(self, last: int, word: str) -> bool:
        """Whether a tenth of the newest rows have the word, if there are enough rows
        for that to matter.
        """
        asked = (f'"{word}"', 1, RANKED // 10)
        found = (
            self._connection.execute(f"{_MATCHING} OFFSET ?", asked).fetchone()
            if last > RANKED
            else None
        )
        return found is not None and found[0] > last - RANKED

    def _find_rows(self, words: Sequence[str], limit: int, joined: str = " AND ") -> list[int]:
        asked = joined.join(
            f"({self._asked[word].expression})" for word in words if self._asked[word].expression
        )
        return [row for (row,) in self._connection.execute(_MATCHING, (asked, limit))]

    def words_of_row(self, row: int, text: str) -> list[str]:
        """Return the words in a row with this text. Words of one term must be side by side."""
        more = self._of_all if row in self._with_all else ()
        known = [
            (word, self._asked[word].together)
            for word, rows in self._rows.items()
            if row in rows or word in more
        ]
        folded = (
            search_words.fold_like_index(text) if any(together for _, together in known) else ""
        )
        held = [word for word, together in known if together is None or together.search(folded)]
        self._looked_for.update(word for word, _ in known)
        self._held.update(held)
        return held

    def weigh_words(self) -> dict[str, float]:
        """Weigh rare words more. A term's rarity is estimated from the texts read that
        have its words together.
        """
        shares = {
            word: (self._held[word] or 1) / (self._looked_for[word] or 1) for word in self._rows
        }
        counts = {word: len(rows) * shares[word] + 0.5 for word, rows in self._rows.items()}
        return {
            word: weight and math.log(1 + (self._last + 1) / counts[word])
            for word, weight in self.weights.items()
        }


def _read_found_places(
    source: StoresAccess,
    rows: Sequence[FoundRow],
    matching: MatchingRows | AnyRows,
    filters: SearchFilters,
    speakers: frozenset[str],
) -> Iterator[FoundPlace]:
    """Yield the places of the rows, reading each entry and fact once."""
    pieces: dict[tuple[int, str, int], list[FoundRow]] = {}
    for row in rows:
        pieces.setdefault((row[1], row[4], row[5]), []).append(row)
    left = [*pieces.values()]
    while left:
        read = source.run_on_stores(
            partial(_read_places, [max(each, key=lambda row: row[2]) for each in left])
        )
        for each, found in zip(left, read, strict=False):
            if isinstance(found, StoredFact):
                fact = decode_fact(found.fact)
                text = "\n".join(searchable_texts(fact, files=bool(filters.file)))
                speaker = _speaker_of_fact(source, found, fact)
                if filters.by in ("", speaker) and _fact_passes_filters(
                    source, found, fact, text, filters
                ):
                    hit = SearchHit("", None, found.conversation, found.seq, 1)
                    if known := [
                        word for row in each for word in matching.words_of_row(row[0], text)
                    ]:
                        worth = BY_USER if speaker == "user" else 1.0
                        said_by = text[:99].partition(":")[0].casefold()
                        is_named = said_by in speakers or (worth > 1 and "user" in speakers)
                        worth *= BY_SPEAKER if is_named else 1.0
                        yield FoundPlace(hit, text, 0, worth, known, found.time)
            elif found is not None:
                for row, hit, piece in _pieces_of_entry(each, *found, filters):
                    call = f"{hit.about.tool} {hit.about.source}"
                    if known := matching.words_of_row(row[0], f"{piece}\n{call}"):
                        yield FoundPlace(hit, piece, row[1], 1.0, known)
        left = left[len(read) :]


def _pieces_of_entry(
    rows: Sequence[FoundRow], record: CacheRecord, content: bytes, filters: SearchFilters
) -> Iterator[tuple[FoundRow, SearchHit, str]]:
    if filters.by in ("", "tool") and not filters.agent and filters.is_in_time(record.time):
        text = search_words.text_or_none(content) or ""
        for row in rows:
            start, length = row[2:4]
            hit = SearchHit(
                "", record.digest, line=text.count("\n", 0, start) + 1, about=record.about
            )
            yield row, hit, text[start : start + length]


def _read_places(
    rows: Sequence[FoundRow], cache: OpenCache, journal: JournalFile
) -> list[ReadPlace | None]:
    """Read what the rows refer to, up to about a megabyte."""
    found: list[ReadPlace | None] = []
    room = SLICE
    for row in rows:
        try:
            found.append(_read_place(cache, journal, row))
        except HelixError:
            found.append(None)  # Deleted or damaged content cannot be a result.
        room -= len(found[-1][1]) if isinstance(found[-1], tuple) else 0
        if room <= 0:
            break
    return found


def _read_place(cache: OpenCache, journal: JournalFile, row: FoundRow) -> ReadPlace | None:
    _, number, start, length, conversation, seq, digest = row
    if number and digest is not None:
        reader = cache().reader
        record = reader.record_of_content(Digest(digest))
        return record, reader.read_part_of_entry(record, 0, min(SEARCHED, 4 * (start + length) + 4))
    return _find_fact_line(conversation, seq, cache, journal)


def _find_fact_line(
    conversation: str, seq: int, _: OpenCache, journal: JournalFile
) -> StoredFact | None:
    found = journal.read_stored_facts(conversation, seq - 1, 1)
    return found[0] if found and found[0].seq == seq and found[0].is_intact else None


def _fact_passes_filters(
    source: StoresAccess, line: StoredFact, fact: Fact, text: str, filters: SearchFilters
) -> bool:
    """Whether a message passes the filters. A tool matches messages that call it."""
    calls = (
        [part for part in fact.parts if isinstance(part, ToolCall)]
        if isinstance(fact, ModelReplied)
        else []
    )
    if not text or not filters.is_in_time(line.time):
        return False
    if filters.tool and not any(filters.tool in call.name.casefold() for call in calls):
        return False
    if filters.file and not any(
        filters.file in one.casefold() for one in (text, *(call.arguments for call in calls))
    ):
        return False
    return not filters.agent or filters.agent in _agent_of_conversation(source, line.conversation)


def _speaker_of_fact(source: StoresAccess, line: StoredFact, fact: Fact) -> str:
    """Return who said it. What an agent added in its user's name is the agent's."""
    if isinstance(fact, UserSaid) and is_added_by_agent(fact.parts):
        return "user" if _agent_of_conversation(source, line.conversation) == "helix" else "agent"
    return {UserSaid: "user", ModelReplied: "agent", ToolReturned: "tool"}.get(type(fact), "")


def _agent_of_conversation(source: StoresAccess, conversation: str) -> str:
    line = source.run_on_stores(partial(_find_fact_line, conversation, 1))
    fact = decode_fact(line.fact) if line is not None else None
    return (
        (fact.agent or fact.origin.kind or "Helix").casefold()
        if isinstance(fact, ConversationStarted)
        else "helix"
    )
