"""Full-text search: the index finds places, and snippets come, checked, from the stores."""

import json
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeVar

from helix_desktop.engine.agent_additions import is_added_by_agent
from helix_desktop.engine.document_pages import PageStart, list_page_starts
from helix_desktop.engine.fact_encoding import decode_fact
from helix_desktop.engine.facts import (
    ConversationStarted,
    DocumentEdited,
    Fact,
    Folded,
    FoldKind,
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
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_sql_statements
from helix_desktop.store import search_words, sqlite_database
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_records import CacheRecord
from helix_desktop.store.index_file import MOST_SEARCHED_BYTES, IndexDamaged, searchable_texts
from helix_desktop.store.journal_file import JournalFile, StoredFact
from helix_desktop.store.search_ranking import FoundPlace, rank_places, show_line

T = TypeVar("T")
WEIGHED = 120  # At least this many matching facts and pieces of entries are ranked.
FILTERED = 10  # A filter drops results, so this many times the limit is read.
RANKED = 5_000  # Only words that occur in fewer rows than this rank rows, which keeps it fast.
BY_USER = 1.25  # The weight of the user's words, compared with the agent's.
# The weight of words by the speaker that the query names. "I" and "my" name the user.
BY_SPEAKER = 1.8
SLICE = 1 << 20  # In bytes. Content is read in slices of about this size.
OpenCache = Callable[[], CacheFolder]
ReadPlace = tuple[CacheRecord, bytes] | StoredFact  # An entry and its first bytes, or a fact.

_SELECT_PIECES = read_sql_statements("index_statements")["found pieces"]
_SELECT_NEWEST = "SELECT id FROM pieces ORDER BY id DESC LIMIT ?"
_SELECT_MATCHING = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid DESC LIMIT ?"


class FoundRow(NamedTuple):
    """A piece of an entry's text, or a fact, as the index has it."""

    id: int
    number: int  # The entry's number; 0 for a fact.
    start: int
    length: int
    conversation: str
    seq: int
    digest: bytes | None

    @property
    def place(self) -> tuple[int, str, int]:
        """The same for all pieces of an entry, or of a fact."""
        return self.number, self.conversation, self.seq


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

    The index names rows, best first; their texts are read in that order, checked and
    filtered, until there are enough places to rank. Only then are they ranked.
    """
    query_text, filters = split_query_into_words_and_filters(query)
    filter_values = {
        "tool": tool,
        "entries_only": entries_only,
        "named_tool": filters.tool,
        "named_file": filters.file,
    }
    has_filters = filters != SearchFilters()
    terms = search_words.query_terms(query_text)
    if not terms:
        if not has_filters:
            return ()
        return _find_newest(connection, source, filters, filter_values, limit)
    split_terms = search_words.split_unspaced_terms(terms)
    words = without_stop_words(split_terms)
    most_places = max(limit, WEIGHED)
    if has_filters:
        most_places = max(limit * FILTERED, WEIGHED)
    most_rows = most_places
    if any(filter_values.values()):
        # The statement's own filters drop rows before they are read, so it gets more of them.
        most_rows = RANKED
    speakers = query_words_and_user_if_first_person(query_text)
    with sqlite_database.SqliteErrors(IndexDamaged, "index"):
        matching = MatchingRows(connection, words, most_places, most_rows)
        row_ids = json.dumps(matching.best_first)
        cursor = connection.execute(_SELECT_PIECES, {"row_ids": row_ids, **filter_values})
        reader = _PlaceReader(source, matching, filters, speakers)
        places: list[FoundPlace] = []
        while len(places) < most_places:
            rows = cursor.fetchmany(most_places)
            if not rows:
                break
            found_rows = [FoundRow._make(row) for row in rows]
            places += reader.read_places(found_rows)
    word_weights = matching.compute_word_weights()
    best_hits = rank_places(places, word_weights)[:limit]
    return tuple(best_hits)


def _find_newest(
    connection: sqlite3.Connection,
    source: StoresAccess,
    filters: SearchFilters,
    filter_values: Mapping[str, object],
    limit: int,
) -> tuple[SearchHit, ...]:
    """Return the newest places that pass the filters of a query without words, among
    the newest rows.
    """
    reader = _PlaceReader(source, AnyRows(), filters, frozenset())
    # The first place of an entry or a fact is the one that is shown.
    hits: dict[tuple[Digest | None, str, int], SearchHit] = {}
    with sqlite_database.SqliteErrors(IndexDamaged, "index"):
        newest_rows = [row for (row,) in connection.execute(_SELECT_NEWEST, (RANKED,))]
        row_ids = json.dumps(newest_rows)
        pieces = connection.execute(_SELECT_PIECES, {"row_ids": row_ids, **filter_values})
        while len(hits) < limit:
            rows = pieces.fetchmany(WEIGHED)
            if not rows:
                break
            found_rows = [FoundRow._make(row) for row in rows]
            for place in reader.read_places(found_rows):
                hit = _show_line_with_file(place, filters.file)
                entry_or_fact = (hit.digest, hit.conversation, hit.seq)
                hits.setdefault(entry_or_fact, hit)
    best_hits = islice(hits.values(), limit)
    return tuple(best_hits)


def _show_line_with_file(place: FoundPlace, file: str) -> SearchHit:
    """Return the place with the line that names the file, or with its first line."""
    start = place.text.casefold().find(file)
    return show_line(place, (), max(0, start))


class AnyRows:
    """Takes the place of `MatchingRows` for a query without words."""

    def words_of_row(self, _row: int, _text: str) -> list[str]:
        return [""]


class MatchingRows:
    """The index rows with any of the words: those with more and rarer words first, then the newest.

    Each word is queried once. Of words that occur almost everywhere, only the newest
    rows are known, and they have no weight.
    """

    def __init__(
        self,
        connection: sqlite3.Connection,
        words: Sequence[str],
        most_rows_read: int,
        most_rows_filtered: int,
    ) -> None:
        """`most_rows_read`: how many of the best rows are read. `most_rows_filtered`: how many are
        needed for that, since a filter may drop some before they are read.
        """
        self._connection = connection
        (self._last_row,) = connection.execute("SELECT coalesce(max(id), 0) FROM pieces").fetchone()
        self._queries_by_word = search_words.queries_of_terms(words, self._is_in_a_tenth_of_rows)
        self._rows_by_word = self._find_rows_by_word_rarest_first(words)
        self.weights = self._compute_weights_of_rarest_words(words)
        # For `compute_word_weights`: in how many of the texts read a word seemed to be, and really was.
        self._read_counts: Counter[str] = Counter()
        self._confirmed_counts: Counter[str] = Counter()

        scores = self._score_rows()
        # The index is asked for several words at once only where the scores cannot choose: if there
        # are none, or if more rows than are read have the highest.
        self._words_needed_together = self._words_that_are_not_dense() or words
        rows_with_all_words: list[int] = []
        if not scores or self._count_rows_with_full_score(scores) > most_rows_read:
            rows_with_all_words = self._find_rows(self._words_needed_together, most_rows_filtered)
        self._rows_with_all_words = frozenset(rows_with_all_words)
        rows_with_any_word: list[int] = []
        has_weights = any(self.weights.values())
        if not has_weights and len(rows_with_all_words) < most_rows_read:
            rows_with_any_word = self._find_rows(words, most_rows_filtered, " OR ")

        rows_by_score = sorted(scores, key=lambda row: (-scores[row], -row))
        rows = rows_with_all_words + rows_with_any_word + rows_by_score
        self.best_first = list(dict.fromkeys(rows))

    def _find_rows_by_word_rarest_first(self, words: Sequence[str]) -> dict[str, frozenset[int]]:
        """Return the newest rows with each word, the word with the fewest rows first."""
        rows_by_word = {word: frozenset(self._find_rows([word], RANKED)) for word in words}
        rarest_first = sorted(rows_by_word, key=lambda word: len(rows_by_word[word]))
        return {word: rows_by_word[word] for word in rarest_first}

    def _words_that_are_not_dense(self) -> list[str]:
        return [word for word in self._rows_by_word if not self._is_dense(word)]

    def _count_rows_with_full_score(self, scores: Mapping[int, float]) -> int:
        """Count the rows that have every word with a weight."""
        full_score = sum(self.weights.values()) - 1e-6  # Sums of floats may be a little off.
        return sum(score >= full_score for score in scores.values())

    def _compute_weights_of_rarest_words(self, words: Sequence[str]) -> dict[str, float]:
        """Return a weight for each word, the rarer the more.

        Once the words so far have `RANKED` rows together, the others have the weight 0.
        """
        weights = dict.fromkeys(words, 0.0)
        rows_left = RANKED
        for word, rows in self._rows_by_word.items():
            rows_left -= len(rows)
            if rows_left > 0:
                weights[word] = math.log(1 + (self._last_row + 1) / (len(rows) + 0.5))
        return weights

    def _score_rows(self) -> Counter[int]:
        """Return for each row the sum of the weights of its words."""
        scores: Counter[int] = Counter()
        for word, rows in self._rows_by_word.items():
            weight = self.weights[word]
            if weight:
                scores.update(dict.fromkeys(rows, weight))
        return scores

    def _is_dense(self, word: str) -> bool:
        """Whether every second row has it. Then the text is checked, as asking the index would
        take long.
        """
        rows = self._rows_by_word[word]
        return len(rows) == RANKED and (self._last_row - min(rows)) / 2 < RANKED

    def _is_in_a_tenth_of_rows(self, word: str) -> bool:
        """Whether a tenth of the newest rows have the word, if there are enough rows
        for that to matter.
        """
        if self._last_row <= RANKED:
            return False
        values = (f'"{word}"', 1, RANKED // 10)
        row = self._connection.execute(f"{_SELECT_MATCHING} OFFSET ?", values).fetchone()
        return row is not None and row[0] > self._last_row - RANKED

    def _find_rows(self, words: Sequence[str], limit: int, joiner: str = " AND ") -> list[int]:
        """Ask the index for the newest rows with all of these words, or with another joiner, with any
        of them.
        """
        expressions: list[str] = []
        for word in words:
            expression = self._queries_by_word[word].expression
            if expression:
                expressions.append(f"({expression})")
        query = joiner.join(expressions)
        rows = self._connection.execute(_SELECT_MATCHING, (query, limit))
        return [row_id for (row_id,) in rows]

    def words_of_row(self, row: int, text: str) -> list[str]:
        """Return the words in a row with this text. Words of one term must be side by side.

        Counts for each word whether the text confirmed what the index said: from these
        counts, `compute_word_weights` later estimates how rare a term is.
        """
        possible_words = []
        for word, rows in self._rows_by_word.items():
            if row in rows or self._is_asked(word, row):
                possible_words.append(word)

        # The index does not know whether the words of a term are side by side.
        confirmed_words = []
        folded_text = ""
        for word in possible_words:
            side_by_side = self._queries_by_word[word].together
            if side_by_side is not None and not folded_text:
                folded_text = search_words.fold_like_index(text)
            if side_by_side is None or side_by_side.search(folded_text):
                confirmed_words.append(word)
        self._read_counts.update(possible_words)
        self._confirmed_counts.update(confirmed_words)
        return confirmed_words

    def _is_asked(self, word: str, row: int) -> bool:
        """Whether the row was found by a query for all words, this one among them."""
        return row in self._rows_with_all_words and word in self._words_needed_together

    def compute_word_weights(self) -> dict[str, float]:
        """Weigh rare words more. A term's rarity is estimated from the texts read that
        have its words together.
        """
        weights: dict[str, float] = {}
        for word, weight in self.weights.items():
            if not weight:  # It occurs almost everywhere.
                weights[word] = 0.0
                continue
            confirmed_share = (self._confirmed_counts[word] or 1) / (self._read_counts[word] or 1)
            estimated_rows = len(self._rows_by_word[word]) * confirmed_share + 0.5
            weights[word] = math.log(1 + (self._last_row + 1) / estimated_rows)
        return weights


@dataclass(frozen=True, slots=True)
class _PlaceReader:
    """Reads the places that rows of the index stand for, as far as they pass the filters."""

    source: StoresAccess
    matching: MatchingRows | AnyRows
    filters: SearchFilters
    speakers: frozenset[str]

    def read_places(self, rows: Sequence[FoundRow]) -> Iterator[FoundPlace]:
        """Yield the places of the rows, reading each entry and fact once."""
        rows_of_places: dict[tuple[int, str, int], list[FoundRow]] = {}
        for row in rows:
            rows_of_places.setdefault(row.place, []).append(row)
        places_left = list(rows_of_places.values())
        while places_left:
            # A place is read up to its last row, and so for all its rows.
            last_rows = []
            for rows_of_place in places_left:
                last_rows.append(max(rows_of_place, key=attrgetter("start")))
            contents = self.source.run_on_stores(partial(_read_places, last_rows))
            # What was not read this time comes next.
            for rows_of_place, found in zip(places_left, contents, strict=False):
                if isinstance(found, StoredFact):
                    yield from self._places_of_fact(rows_of_place, found)
                elif found is not None:
                    record, content = found
                    yield from self._places_of_entry(rows_of_place, record, content)
            places_left = places_left[len(contents) :]

    def _places_of_fact(
        self, rows: Sequence[FoundRow], stored_fact: StoredFact
    ) -> Iterator[FoundPlace]:
        """Yield the place of a fact if its speaker and its text pass the filters, and
        any of its rows has a word.
        """
        fact = decode_fact(stored_fact.fact)
        is_about_file = bool(self.filters.file)
        text = "\n".join(searchable_texts(fact, files=is_about_file))
        speaker = _speaker_of_fact(self.source, stored_fact, fact)
        if self.filters.by not in ("", speaker):
            return
        if not _fact_passes_filters(self.source, stored_fact, fact, text, self.filters):
            return
        words: list[str] = []
        for row in rows:
            words += self.matching.words_of_row(row.id, text)
        if words:
            said_by = _name_who_said_it(speaker, fact)
            hit = SearchHit(
                "",
                None,
                stored_fact.conversation,
                stored_fact.seq,
                1,
                said_by=said_by,
                time=stored_fact.time,
            )
            worth = self._worth_of_speaker(speaker, text)
            yield FoundPlace(hit, text, 0, worth, words, stored_fact.time)

    def _worth_of_speaker(self, speaker: str, text: str) -> float:
        """Return the weight of a message by who has written it: the user's words count more
        than the agent's, and most those of a speaker whom the query names.
        """
        is_by_user = speaker == "user"
        # Chats of several people begin each message with a name.
        name = text[:99].partition(":")[0].casefold()
        worth = 1.0
        if is_by_user:
            worth = BY_USER
        if name in self.speakers or (is_by_user and "user" in self.speakers):
            worth *= BY_SPEAKER
        return worth

    def _places_of_entry(
        self, rows: Sequence[FoundRow], record: CacheRecord, content: bytes
    ) -> Iterator[FoundPlace]:
        """Yield the pieces of an entry's text that have a word, each as a place of its own.

        The call that the entry is the output of is searched with each piece.
        """
        filters = self.filters
        is_by_tool = filters.by in ("", "tool") and not filters.agent
        if not is_by_tool or not filters.is_in_time(record.time):
            return
        text = search_words.searched_text_or_none(content, record.about)
        if text is None:  # An index that was written by an earlier version has it.
            return
        page_starts: Sequence[PageStart] = ()
        may_be_document = content.startswith(b"[")  # Others are not decoded a second time.
        if may_be_document:
            page_starts = list_page_starts(search_words.text_or_none(content) or "")
        call = f"{record.about.tool} {record.about.source}"
        for row in rows:
            piece = text[row.start : row.start + row.length]
            words = self.matching.words_of_row(row.id, f"{piece}\n{call}")
            if page_starts:
                words = search_words.words_in_text(words, f"{piece}\n{call}")
            if words:
                line = text.count("\n", 0, row.start) + 1
                hit = SearchHit("", record.digest, line=line, about=record.about, time=record.time)
                pages_of_piece = _pages_from(page_starts, row.start)
                yield FoundPlace(hit, piece, row.number, 1.0, words, pages=pages_of_piece)


def _pages_from(page_starts: Sequence[PageStart], position: int) -> Sequence[PageStart]:
    """Return the page at a position of the text and those after it, with their positions from there."""
    pages: list[PageStart] = []
    for page in page_starts:
        position_in_piece = page.position - position
        if position_in_piece <= 0:
            pages.clear()
        pages.append(replace(page, position=position_in_piece))
    return pages


def _name_who_said_it(speaker: str, fact: Fact) -> str:
    """Return what a hit says of its speaker: nothing for a message of the program, and the kind of
    text that stands for something else.
    """
    if isinstance(fact, Folded):
        return fact.kind.value
    if isinstance(fact, DocumentEdited):
        return FoldKind.HANDOVER.value
    if isinstance(fact, UserSaid) and fact.by:
        return ""
    return speaker


def _read_places(
    rows: Sequence[FoundRow], cache: OpenCache, journal: JournalFile
) -> list[ReadPlace | None]:
    """Read what the rows refer to, up to about a megabyte, and return a place for each row
    read. The caller asks again for the rest, so that other work on the stores can go between.
    """
    places: list[ReadPlace | None] = []
    bytes_left = SLICE
    for row in rows:
        place: ReadPlace | None = None
        with suppress(HelixError):  # Deleted or damaged content cannot be a result.
            place = _read_place(cache, journal, row)
        places.append(place)
        if isinstance(place, tuple):
            _, content = place
            bytes_left -= len(content)
        if bytes_left <= 0:
            break
    return places


def _read_place(cache: OpenCache, journal: JournalFile, row: FoundRow) -> ReadPlace | None:
    if row.number and row.digest is not None:
        reader = cache().reader
        record = reader.record_of_content(Digest(row.digest))
        end = 4 * (row.start + row.length) + 4  # A character has at most four bytes.
        return record, reader.read_part_of_entry(record, 0, min(MOST_SEARCHED_BYTES, end))
    return _find_stored_fact(row.conversation, row.seq, cache, journal)


def _find_stored_fact(
    conversation: str, seq: int, _: OpenCache, journal: JournalFile
) -> StoredFact | None:
    stored_facts = journal.read_stored_facts(conversation, seq - 1, 1)
    if stored_facts and stored_facts[0].seq == seq and stored_facts[0].is_intact:
        return stored_facts[0]
    return None


def _fact_passes_filters(
    source: StoresAccess, stored_fact: StoredFact, fact: Fact, text: str, filters: SearchFilters
) -> bool:
    """Whether a message passes the filters. A tool matches messages that call it."""
    if not text or not filters.is_in_time(stored_fact.time):
        return False
    called_tools = ""
    searched_text = text
    for call in _calls_of_fact(fact):
        called_tools += f"\n{call.name}"
        searched_text += f"\n{call.arguments}"
    if filters.tool and filters.tool not in called_tools.casefold():
        return False
    if filters.file and filters.file not in searched_text.casefold():
        return False
    if not filters.agent:
        return True
    return filters.agent in _agent_of_conversation(source, stored_fact.conversation)


def _calls_of_fact(fact: Fact) -> list[ToolCall]:
    if not isinstance(fact, ModelReplied):
        return []
    return [part for part in fact.parts if isinstance(part, ToolCall)]


def _speaker_of_fact(source: StoresAccess, stored_fact: StoredFact, fact: Fact) -> str:
    """Return who said it. What an agent added in its user's name is the agent's."""
    if isinstance(fact, UserSaid):
        if not is_added_by_agent(fact.parts):
            return "user"
        if _agent_of_conversation(source, stored_fact.conversation) == "helix":
            return "user"
        return "agent"
    if isinstance(fact, ModelReplied):
        return "agent"
    if isinstance(fact, ToolReturned):
        return "tool"
    return ""


def _agent_of_conversation(source: StoresAccess, conversation: str) -> str:
    stored_fact = source.run_on_stores(partial(_find_stored_fact, conversation, 1))
    if stored_fact is None:
        return "helix"
    fact = decode_fact(stored_fact.fact)
    if not isinstance(fact, ConversationStarted):
        return "helix"
    return (fact.agent or fact.origin.kind or "Helix").casefold()
