"""The index of a workspace, for listing, sorting and searching it fast. Everything in
it is derived.

It catches up in slices: first the rows of entries, then facts, then words and tokens. A
crash only loses work, and a deleted file is rebuilt. Plain calls, from one thread;
queries have a thread of their own.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from helix_desktop.engine import facts as vocabulary
from helix_desktop.engine.fact_encoding import decode_fact
from helix_desktop.engine.facts import Fact
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.view_contents import estimate_entry_tokens
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_json_resource, read_schema
from helix_desktop.store import search_words, sqlite_database
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder
from helix_desktop.store.cache_records import CacheRecord, EntryState, encode_entry_place
from helix_desktop.store.journal_file import JournalFile, StoredFact
from helix_desktop.store.store_thread import StoreThread

T = TypeVar("T")
VERSION = 5  # Older indexes are rebuilt.
APPLICATION = 0x48454C49  # "HELI" in ASCII.
# Only this many bytes of an entry are indexed. A pattern search reads all.
MOST_SEARCHED_BYTES = 8 << 20
# SQLite's cache_size; a negative value is in KiB.
_MUCH_MEMORY = -64_000
_LITTLE_MEMORY = -2_000
_SLICE_BYTES = 1 << 20  # In bytes. The writing thread reads content in slices of this size.
# One transaction indexes this many bytes, as FTS5 sorts and merges at each commit.
_BYTES_AT_ONCE = 4 << 20
# Characters to index in one statement: FTS5 also sorts and merges before each of them.
_MOST_STATEMENT_CHARACTERS = 2 << 20
# After this many rows, facts or texts, we let other work run.
ROWS = 5000
FACTS = 1000
WORDS = 200
FACTS_READS = 4  # FTS5 merges at each commit, so one commit takes the facts of several reads.

_SCHEMA = read_schema("index").replace("{search_words.TOKENIZER}", search_words.TOKENIZER)
_ADD_USES = "UPDATE entries SET uses = uses + column2, recalled = max(recalled, column3) FROM ("
_TO_THESE_ENTRIES = ") WHERE digest = column1 RETURNING digest, number"


class _Piece(NamedTuple):
    """A text with the call that it answers, and its source: an entry's number and offset, or a
    conversation and a fact's number.
    """

    text: str
    call: str
    number: int
    start: int
    conversation: str
    seq: int


class _Use(NamedTuple):
    """A fact's use of an entry. `how`: as `entries_used_by` names it."""

    digest: bytes
    conversation: str
    seq: int
    time: float
    how: str


class _KnownUse(NamedTuple):
    digest: bytes
    conversation: str
    time: float
    how: str


class _IndexedText(NamedTuple):
    record: CacheRecord
    content: bytes
    text: str


class IndexDamaged(StoreFailed):
    """The index is damaged. Whoever has it open rebuilds it."""


# The catalogue's sort indexes. Built after many rows, they take a tenth of the time.
# With `kept`, sums need only the index.
_SORT_INDEXES: Mapping[str, str] = read_json_resource("schemas/index_orders.json")
# If this many entries are missing, sort indexes are built after all rows.
MANY_MISSING_ENTRIES = 50_000


@dataclass(frozen=True, slots=True)
class IndexProgress:
    """The state of the index: rows, words and facts indexed, their totals, and sort
    indexes to build.
    """

    rows: int
    words: int
    entries: int
    facts: int
    of_facts: int
    orders: int = 0

    @property
    def count_missing(self) -> int:
        """Return how many facts, and entries' words, are not indexed yet."""
        return self.entries - self.words + self.of_facts - self.facts

    @property
    def is_complete(self) -> bool:
        """Whether rows, words and facts are all indexed, and no index for sorting is missing."""
        are_entries_indexed = self.rows >= self.entries and self.words >= self.entries
        are_facts_indexed = self.facts >= self.of_facts
        return are_entries_indexed and are_facts_indexed and not self.orders


class StoreFeed:
    """Reads the stores for the index. Called on the index's threads, runs on the stores' thread."""

    def __init__(self, cache: CacheFolder, journal: JournalFile, thread: StoreThread) -> None:
        self._cache = cache
        self._journal = journal
        self._thread = thread

    def last_entry_and_fact(self) -> tuple[int, int]:
        """Return the highest number of an entry and the highest id of a fact."""
        return self._thread.call_and_wait(
            lambda: (self._cache.reader.last_entry_number(), self._journal.last_fact_id())
        )

    def read_entry_records(self, last_number: int, limit: int) -> Sequence[CacheRecord]:
        return self._thread.call_and_wait(self._cache.reader.records_after, last_number, limit)

    def read_content_beginnings(
        self, records: Sequence[CacheRecord], limit: int
    ) -> Sequence[tuple[CacheRecord, bytes | None]]:
        """Return the first bytes of records, about `_SLICE_BYTES` in all, or None for what
        cannot be read.
        """
        return self._thread.call_and_wait(self._read_beginnings, records, limit)

    def _read_beginnings(
        self, records: Sequence[CacheRecord], limit: int
    ) -> Sequence[tuple[CacheRecord, bytes | None]]:
        """Read the beginning of each entry's content, until enough bytes were read at once. What
        cannot be read is None.
        """
        beginnings: list[tuple[CacheRecord, bytes | None]] = []
        bytes_left = _SLICE_BYTES
        for record in records:
            content: bytes | None = None
            # The entry may be damaged or deleted. Whoever opens it will see the error.
            with suppress(HelixError):
                content = self._read_beginning(record, limit)
            beginnings.append((record, content))
            bytes_left -= len(content or b"")
            if bytes_left <= 0:
                break
        return beginnings

    def _read_beginning(self, record: CacheRecord, limit: int) -> bytes:
        if record.count_chunks > 1:
            return self._cache.reader.read_part(record.digest, 0, limit)
        # A single chunk can be read without looking up the record again.
        place = encode_entry_place(record)
        return self._cache.reader.get_content(record.digest, place)[:limit]

    def read_stored_facts_after(self, last_number: int, limit: int) -> Sequence[StoredFact]:
        return self._thread.call_and_wait(self._journal.stored_facts_since, last_number, limit)

    def run_on_stores(self, work: Callable[[Callable[[], CacheFolder], JournalFile], T]) -> T:
        return self._thread.call_and_wait(lambda: work(lambda: self._cache, self._journal))

    def pinned_digests(self) -> frozenset[Digest]:
        return self._thread.call_and_wait(self._cache.reader.pinned_entries)

    def find_record(self, digest: Digest) -> CacheRecord | None:
        """Return an entry's record, collected or not, or None if unknown."""
        return self._thread.call_and_wait(self._record_if_known, digest)

    def _record_if_known(self, digest: Digest) -> CacheRecord | None:
        with suppress(HelixError):
            return self._cache.reader.record_of_entry(digest)
        return None


class IndexFile:
    """The index's file, open for writing."""

    def __init__(
        self, path: Path, feed: StoreFeed, *, count: Callable[[str], int] = lambda _: 0
    ) -> None:
        """Open the file, or make a new one. `count`: counts a text's tokens. Raises IndexDamaged for
        a file of an older version too, as both are made anew.
        """
        self._feed = feed
        self._count = count
        self._memory = 0
        self._last_rows: tuple[int, Sequence[CacheRecord]] = (0, ())  # Those after this number.
        self.connection = sqlite_database.connect_database(
            path, IndexDamaged, "index", synchronous="NORMAL"
        )
        # While much is indexed, the same pages change again and again: they are seldom
        # copied from the log.
        self.connection.execute("PRAGMA wal_autocheckpoint=16000")
        # Deleted rows need not be overwritten: to forget something, the whole file is deleted.
        self.connection.execute("PRAGMA secure_delete=OFF")
        sqlite_database.prepare_schema(
            self.connection, _SCHEMA, application=APPLICATION, version=VERSION, name="index"
        )
        if self.connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            self.close()
            raise IndexDamaged("The index was written by an older version of Helix Desktop.")

    def close(self) -> None:
        self.connection.close()

    def index_mark(self, name: str) -> int:
        row = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        if row is None:
            return 0
        (value,) = row
        return int(value)

    def _write_index_mark(self, name: str, value: int) -> None:
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (name, value))

    def current_progress(self) -> IndexProgress:
        """Return how far the index is, by the marks that it stores, and how much there is by
        now.
        """
        last_entry, last_fact = self._feed.last_entry_and_fact()
        rows = self.index_mark("rows")
        words = self.index_mark("words")
        facts = self.index_mark("facts")
        missing_orders = self._missing_sort_indexes()
        return IndexProgress(
            rows=rows,
            words=words,
            entries=last_entry,
            facts=facts,
            of_facts=last_fact,
            orders=len(missing_orders),
        )

    def _missing_sort_indexes(self) -> list[str]:
        rows = self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")
        existing_indexes = {name for (name,) in rows}
        return [name for name in _SORT_INDEXES if name not in existing_indexes]

    def index_next_slice(self) -> IndexProgress:
        """Index one slice of what is missing. Call it until done. What stores can't
        give now is left for later.
        """
        with sqlite_database.SqliteErrors(IndexDamaged, "index"):
            progress = self.current_progress()
            if progress.orders or progress.count_missing > WORDS:
                return self._index_slice(progress)
            with self._index_transaction():  # A few new items are indexed in a single commit.
                for _ in range(3):
                    progress = self._index_slice(progress)
                return progress

    def _index_slice(self, progress: IndexProgress) -> IndexProgress:
        """Do the next piece of what is missing in the index, and return how far it is then.

        The order: entries come first, as lists need them, then facts, then the words of entries.
        Indexes for sorting are made once few entries are missing.
        """
        self._adjust_page_memory(progress)
        missing_rows = progress.entries - progress.rows
        if progress.orders and missing_rows < MANY_MISSING_ENTRIES:
            name = self._missing_sort_indexes()[0]
            with self._index_transaction():
                self.connection.execute(f"CREATE INDEX {name} ON entries({_SORT_INDEXES[name]})")
        elif progress.rows < progress.entries:
            self._index_rows(progress)
        elif progress.facts < progress.of_facts:
            self._index_facts(progress)
        elif progress.words < progress.entries:
            self._index_words(progress)
        return self.current_progress()

    def _adjust_page_memory(self, progress: IndexProgress) -> None:
        """Use more memory for pages while much is missing, as after a deletion, and
        free it afterwards. If less is missing, the pages that are often needed fit
        anyway: 40,000 entries are indexed as fast with 2 MB as with 64.
        """
        pages = _LITTLE_MEMORY
        if progress.count_missing > 200_000:
            pages = _MUCH_MEMORY
        if pages != self._memory:
            self.connection.execute(f"PRAGMA cache_size={pages}")
            self.connection.execute("PRAGMA shrink_memory")
            self._memory = pages

    def _index_transaction(self) -> sqlite_database.SqliteTransaction:
        return sqlite_database.SqliteTransaction(self.connection, IndexDamaged, "index")

    def add_missing_rows(self) -> None:
        """Add only a slice of missing rows, which suffices unless the index is being built."""
        with sqlite_database.SqliteErrors(IndexDamaged, "index"):
            progress = self.current_progress()
            if progress.rows < progress.entries:
                self._index_rows(progress)

    def _index_rows(self, progress: IndexProgress) -> None:
        """Add a row for each of the next entries, and note how far the rows go now.

        All of it is one transaction, so after a crash the rows and this mark still agree.
        """
        records = self._feed.read_entry_records(progress.rows, ROWS)
        pinned = self._feed.pinned_digests()
        with self._index_transaction():
            listed = [record for record in records if record.about.tool != CHECKPOINT]
            if len(listed) < len(records):
                # Checkpoints' contents are neither searched nor listed, but their size is counted.
                sums = _sum_checkpoint_contents(records)
                sums.count += self.index_mark("checkpoints")
                sums.bytes += self.index_mark("checkpoint bytes")
                self._write_checkpoint_sums(sums)
            self._insert_cache_records(listed, pinned)
            self._last_rows = (progress.rows, records)
            last_indexed = 0
            if records:
                last_indexed = records[-1].number
            if len(records) < ROWS:
                # More entries may have been added since the count.
                last_indexed = max(last_indexed, progress.entries)
            self._write_index_mark("rows", last_indexed)

    def _write_checkpoint_sums(self, sums: "_CheckpointSums") -> None:
        self._write_index_mark("checkpoints", sums.count)
        self._write_index_mark("checkpoint bytes", sums.bytes)

    def recount_checkpoint_contents(self) -> Iterator[int]:
        """Count checkpoints' contents again, in slices, after some were removed,
        forgotten or became normal entries.
        """
        sums = _CheckpointSums()
        last_counted = 0
        last_number = self.current_progress().rows
        while last_counted < last_number:
            records = self._feed.read_entry_records(last_counted, ROWS)
            records_to_count = [record for record in records if record.number <= last_number]
            if not records_to_count:
                break
            last_counted = records_to_count[-1].number
            sums_of_page = _sum_checkpoint_contents(records_to_count)
            sums.count += sums_of_page.count
            sums.bytes += sums_of_page.bytes
            if last_counted < last_number:
                yield sums.count
            last_number = self.current_progress().rows
        with self._index_transaction():
            self._write_checkpoint_sums(sums)

    def _insert_cache_records(
        self, records: Sequence[CacheRecord], pinned: frozenset[Digest]
    ) -> None:
        """Insert the rows of these entries: where each came from, the entry itself, and
        which conversations it belongs to.

        Facts may have been indexed before their entries, so the uses that they made are
        counted here. `_index_uses` counts those of facts indexed later.
        """
        uses = self._known_uses_of(records)
        entry_rows = []
        member_rows = []
        for record in records:
            known_uses = uses.get(record.digest.raw, ())
            entry_rows.append(_row_of_entry(record, known_uses, is_pinned=record.digest in pinned))
            member_rows += [(use.conversation, record.number) for use in known_uses]
        sources = {(record.about.source,) for record in records}
        self._execute_rows("INSERT OR IGNORE INTO sources", list(sources))
        self._execute_rows("INSERT OR REPLACE INTO entries", entry_rows)
        self._add_members(member_rows)

    def _execute_rows(
        self, before: str, rows: Sequence[Sequence[object]], behind: str = ""
    ) -> list[tuple[Any, ...]]:
        return sqlite_database.execute_with_rows(self.connection, before, rows, behind)

    def _known_uses_of(self, records: Sequence[CacheRecord]) -> Mapping[bytes, Sequence[_KnownUse]]:
        """Return known facts that use these entries, by entry."""
        digests = [(record.digest.raw,) for record in records]
        statement = "SELECT digest, conversation, time, how FROM uses WHERE digest IN ("
        uses: dict[bytes, list[_KnownUse]] = {}
        for use in map(_KnownUse._make, self._execute_rows(statement, digests, ")")):
            uses.setdefault(use.digest, []).append(use)
        return uses

    def _add_members(self, members: Sequence[tuple[str, int]]) -> None:
        self._execute_rows("INSERT OR IGNORE INTO members", list(dict.fromkeys(members)))

    def refresh_entries(self, digests: Sequence[Digest]) -> None:
        """Bring the rows of entries up to date that were pinned, unpinned or emptied, and
        delete the rows of those that are gone.
        """
        pinned = self._feed.pinned_digests()
        known = [(digest, self._feed.find_record(digest)) for digest in digests]
        with self._index_transaction():
            for digest, record in known:
                if record is None:
                    self.connection.execute("DELETE FROM entries WHERE digest = ?", (digest.raw,))
                    continue
                self.connection.execute(
                    "UPDATE entries SET pinned = ?, state = ?, kept = ? WHERE digest = ?",
                    (digest in pinned, record.state, record.kept, digest.raw),
                )

    def _index_words(self, progress: IndexProgress) -> None:
        """Index the words of the next entries, page by page until there are enough bytes
        for one transaction, and note how far the words go now.
        """
        with self._index_transaction():
            last_indexed = progress.words
            content_bytes = 0
            contents: list[tuple[CacheRecord, bytes | None]] = []
            while last_indexed < progress.entries and content_bytes < _BYTES_AT_ONCE:
                records = self._next_records_for_words(last_indexed, progress.entries)
                page = self._feed.read_content_beginnings(records, MOST_SEARCHED_BYTES)
                contents += page
                content_bytes += sum(len(content or b"") for _, content in page)
                # Of large contents, fewer are read at once than there are records.
                were_all_read = len(page) == len(records)
                are_last_records = len(records) < WORDS
                if were_all_read and are_last_records:
                    last_indexed = progress.entries
                else:
                    last_record, _ = page[-1]
                    last_indexed = last_record.number
                self._remove_remembered_records(last_indexed)
            self._index_contents(contents)
            self._write_index_mark("words", last_indexed)

    def _remove_remembered_records(self, last_indexed: int) -> None:
        """Keep of the records of which rows were just made only those without words yet."""
        last_rows_after, last_rows = self._last_rows
        still_ahead = [record for record in last_rows if record.number > last_indexed]
        self._last_rows = (max(last_rows_after, last_indexed), still_ahead)

    def _next_records_for_words(self, last_indexed: int, last_number: int) -> list[CacheRecord]:
        """Return the next records, which may be those of which rows were just made."""
        rows_after, remembered_records = self._last_rows
        if remembered_records and last_indexed >= rows_after:
            records = remembered_records
        else:
            records = self._feed.read_entry_records(last_indexed, WORDS)
        return [record for record in records[:WORDS] if record.number <= last_number]

    def _index_contents(self, contents: Sequence[tuple[CacheRecord, bytes | None]]) -> None:
        """Index the pieces of all contents that are text, each together with the call it is the
        output of, and count their tokens. Checkpoints' contents are not searched.
        """
        texts = []
        for record, content in contents:
            if content is None or record.about.tool == CHECKPOINT:
                continue
            text = search_words.searched_text_or_none(content, record.about)
            if text is not None:
                texts.append(_IndexedText(record, content, text))
        pieces = []
        for record, _, text in texts:
            call = f"{record.about.tool} {record.about.source}"
            for start, piece in search_words.split_for_index(text):
                pieces.append(_Piece(piece, call, record.number, start, "", 0))
        self._index_pieces(pieces)
        self._count_tokens(texts)

    def _count_tokens(self, texts: Sequence[_IndexedText]) -> None:
        """Count the tokens of texts, but not where facts that use them state the number."""
        numbers = [(text.record.number,) for text in texts]
        counted = self._execute_rows(
            "SELECT number FROM entries WHERE tokens > 0 AND number IN (", numbers, ")"
        )
        known = {number for (number,) in counted}
        tokens = []
        for record, content, _ in texts:
            if record.number not in known:
                count = estimate_entry_tokens(record.size, content, self._count)
                tokens.append((record.number, count))
        self._execute_rows(
            "UPDATE entries SET tokens = column2 FROM (", tokens, ") WHERE number = column1"
        )

    def _index_pieces(self, pieces: Sequence[_Piece]) -> None:
        """Add pieces of text to the full-text index: a row that says where each is from, and
        its words, those within names included.
        """
        (last_id,) = self.connection.execute("SELECT coalesce(max(id), 0) FROM pieces").fetchone()
        piece_rows = []
        word_rows = []
        for row_id, piece in enumerate(pieces, last_id + 1):
            length = len(piece.text)
            piece_rows.append(
                (row_id, length, piece.number, piece.start, piece.conversation, piece.seq)
            )
            searched_text = f"{piece.text}\n{piece.call}"
            extra_words = search_words.extra_words_for_index(searched_text)
            word_rows.append((row_id, f"{searched_text}\n{extra_words}"))
        self._execute_rows(
            "INSERT INTO pieces(id, length, number, start, conversation, seq)", piece_rows
        )
        for batch in _split_by_text_size(word_rows):
            self._execute_rows("INSERT INTO words(rowid, text)", batch)

    # --- Indexing facts

    def _index_facts(self, progress: IndexProgress) -> None:
        """Index the next facts in one transaction, and note how far they go now."""
        last_indexed = progress.facts
        with self._index_transaction():
            for _ in range(FACTS_READS):
                if last_indexed < progress.of_facts:
                    last_indexed = self._index_facts_after(last_indexed, progress.of_facts)
            self._write_index_mark("facts", last_indexed)

    def _index_facts_after(self, last_indexed: int, last_id: int) -> int:
        """Index some facts. Return the id up to which all are indexed."""
        stored_facts = self._feed.read_stored_facts_after(last_indexed, FACTS)
        pieces: list[_Piece] = []
        token_counts: list[tuple[bytes, int]] = []
        uses: list[_Use] = []
        for stored_fact in stored_facts:
            fact = _decode_or_none(stored_fact)
            if fact is None:
                continue
            pieces += _pieces_of_fact(fact, stored_fact)
            for stored, count in token_counts_of_entries(fact):
                token_counts.append((stored.digest.raw, count))
            for how, digest in entries_used_by(fact):
                uses.append(
                    _Use(
                        digest.raw, stored_fact.conversation, stored_fact.seq, stored_fact.time, how
                    )
                )
        self._index_pieces(pieces)
        self._execute_rows(
            "UPDATE entries SET tokens = column2 FROM (",
            token_counts,
            ") WHERE digest = column1 AND tokens = 0",
        )
        self._index_uses(uses)
        if not stored_facts:
            return last_id
        last_read = stored_facts[-1].id
        if len(stored_facts) == FACTS:
            return last_read
        # The ids between may be of facts that were deleted.
        return max(last_id, last_read)

    def _index_uses(self, uses: Sequence[_Use]) -> None:
        """Insert the uses that are new, count them in their entries' rows, and note that
        these entries belong to the conversations of the facts.
        """
        rows = self._execute_rows(
            "INSERT OR IGNORE INTO uses", uses, "RETURNING digest, conversation, time, how"
        )
        added_uses = list(map(_KnownUse._make, rows))
        counts: Counter[bytes] = Counter()
        last_recalls: dict[bytes, float] = {}
        for use in added_uses:
            # A fold only repeats cached content, so it does not count as a use.
            counts[use.digest] += use.how != "fold"
            if use.how == "recall":
                last_recalls[use.digest] = max(use.time, last_recalls.get(use.digest, 0.0))
        entry_changes = [
            (digest, count, last_recalls.get(digest, 0.0)) for digest, count in counts.items()
        ]
        numbers_by_digest = dict(self._execute_rows(_ADD_USES, entry_changes, _TO_THESE_ENTRIES))
        members = []
        for use in added_uses:
            if use.digest in numbers_by_digest:
                members.append((use.conversation, numbers_by_digest[use.digest]))
        self._add_members(members)


def _row_of_entry(
    record: CacheRecord, known_uses: Sequence[_KnownUse], *, is_pinned: bool
) -> tuple[object, ...]:
    """Return an entry's values in the order of the columns of the table `entries`."""
    recall_times = [use.time for use in known_uses if use.how == "recall"]
    last_recall_time = max(recall_times, default=0.0)
    # A fold only repeats cached content, so it does not count as a use.
    use_count = sum(use.how != "fold" for use in known_uses)
    token_count = 0  # Counted later, when the entry's words are indexed.
    about = record.about
    description = (record.number, record.digest.raw, about.tool, about.source, about.media_type)
    figures = (record.size, record.kept, record.lines, token_count, record.time)
    state = (use_count, last_recall_time, is_pinned, record.state)
    return description + figures + state


def _decode_or_none(stored_fact: StoredFact) -> Fact | None:
    with suppress(HelixError):
        return decode_fact(stored_fact.fact)
    return None


def searchable_texts(fact: Fact, *, files: bool = False) -> list[str]:
    """Return what was said, with `files` also the names of changed files, for which
    only the filter `file:` asks.
    """
    if isinstance(fact, (vocabulary.UserSaid, vocabulary.ModelReplied)):
        return [part.text for part in fact.parts if isinstance(part, vocabulary.Text) and part.text]
    if isinstance(fact, vocabulary.DocumentEdited):
        return [fact.text]
    # A marker is one line about an output, and nobody looks for that.
    if isinstance(fact, vocabulary.Folded) and fact.kind is not vocabulary.FoldKind.MARKER:
        return [fact.text]
    if files:
        names = _names_of_changed_files(fact)
        if names:
            return ["\n".join(names)]
    return []


def _names_of_changed_files(fact: Fact) -> Sequence[str]:
    if isinstance(fact, vocabulary.FilesChanged):
        return fact.names
    if isinstance(fact, vocabulary.ToolReturned):
        return [change.path for change in fact.changes]
    return ()


def entries_used_by(fact: Fact) -> list[tuple[str, Digest]]:
    """Return the cache's entries that a fact uses, and how: as the output of a tool, for example, or
    as what a model reads again (recall).
    """
    if isinstance(fact, vocabulary.ToolReturned):
        return _entries_used_by_tool(fact)
    how = ""
    digests: Iterable[Digest] = ()
    match fact:
        case vocabulary.UserSaid(parts=parts):
            how = "attachment"
            digests = _entries_attached_by(parts)
        case vocabulary.Folded(entries=entries):
            how = "fold"
            digests = entries
        case vocabulary.BroughtIn(unread=unread, lines=lines):
            how = "import"
            digests = [stored.digest for stored in (unread, lines) if stored is not None]
        case vocabulary.ModelReplied(parts=parts):
            how = "recall"
            digests = _entries_recalled_by(parts)
    return [(how, digest) for digest in digests]


def _entries_used_by_tool(fact: vocabulary.ToolReturned) -> list[tuple[str, Digest]]:
    uses = [("output", fact.output.digest)]
    for image in fact.images:
        uses.append(("image", image.digest))
    for change in fact.changes:
        for digest in (change.before, change.after):
            if digest:
                uses.append(("change", digest))
    return uses


def _entries_attached_by(parts: Iterable[object]) -> Iterator[Digest]:
    for part in parts:
        if isinstance(part, vocabulary.Attachment):
            yield part.stored.digest
            if part.document is not None:
                yield part.document.original.digest


def token_counts_of_entries(fact: Fact) -> list[tuple[vocabulary.Stored, int]]:
    """Return the texts that the fact uses, with the token counts that it states."""
    stated_counts: list[tuple[vocabulary.Stored, int]] = []
    if isinstance(fact, vocabulary.UserSaid):
        for part in fact.parts:
            if isinstance(part, vocabulary.Attachment):
                stated_counts.append((part.stored, part.tokens))
    elif isinstance(fact, vocabulary.ToolReturned):
        stated_counts.append((fact.output, fact.tokens))

    counts_of_texts: list[tuple[vocabulary.Stored, int]] = []
    for stored, tokens in stated_counts:
        if tokens and stored.media_type.startswith("text/"):
            counts_of_texts.append((stored, tokens))
    return counts_of_texts


def _entries_recalled_by(parts: Iterable[object]) -> list[Digest]:
    digests = []
    for part in parts:
        if isinstance(part, vocabulary.ToolCall) and part.name.endswith(ToolName.RECALL):
            try:
                digests.append(Digest.from_hex(json.loads(part.arguments)["sha256"]))
            except (ValueError, RecursionError, TypeError, KeyError):
                continue  # The recall itself answers malformed hashes.
    return digests


def connect_for_queries(path: Path) -> sqlite3.Connection:
    """Open a second connection, for the thread that answers queries."""
    connection = sqlite_database.connect_database(path, IndexDamaged, "index", synchronous="NORMAL")
    connection.execute("PRAGMA query_only=ON")
    return connection


@dataclass(slots=True)
class _CheckpointSums:
    """How many contents checkpoints have, and their bytes, including remains of removed ones."""

    count: int = 0
    bytes: int = 0


def _sum_checkpoint_contents(records: Sequence[CacheRecord]) -> _CheckpointSums:
    sums = _CheckpointSums()
    for record in records:
        if record.about.tool == CHECKPOINT:
            sums.count += record.state is EntryState.LIVE
            sums.bytes += record.bytes_with_keys
    return sums


def _split_by_text_size(words: Sequence[tuple[int, str]]) -> Iterator[Sequence[tuple[int, str]]]:
    """Split rows, because FTS5 holds the words of each part in memory."""
    start = 0
    size = 0
    for end, (_, text) in enumerate(words, 1):
        size += len(text)
        if size >= _MOST_STATEMENT_CHARACTERS or end == len(words):
            yield words[start:end]
            start = end
            size = 0


def _pieces_of_fact(fact: Fact, stored_fact: StoredFact) -> list[_Piece]:
    pieces: list[_Piece] = []
    for text in searchable_texts(fact, files=True):
        for start, piece in search_words.split_for_index(text):
            pieces.append(_Piece(piece, "", 0, start, stored_fact.conversation, stored_fact.seq))
    return pieces
