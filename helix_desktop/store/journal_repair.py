"""Repairs a damaged journal from what is readable of it, from the end of its log, and
from its backups.

Every fact has a digest, so facts are taken wherever they are intact, and only there. A `Forgotten`
replaces what is intact nowhere, so that later numbers stay right. What was lost is named.
"""

import shutil
import sqlite3
import struct
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.facts import Forgotten
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store import sqlite_salvage
from helix_desktop.store.journal_file import JournalFile, StoredFact, checksum_of_fact

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGICS = (0x377F0682, 0x377F0683)
_MOST_PAGES = 1 << 26
_COMMON_PAGE_SIZE = 512  # That of journals, as `sqlite_database` makes them.
_COLUMNS_OF_FACTS = 6
_LEAST_BYTES_OF_FACT = 64  # Its digest alone has 32.
_MOST_FACTS_OF_CUT_FILE = 100_000
_LOST_REASON = "This record was damaged on disk and could not be recovered."


# --- Reading SQLite's write-ahead log


@dataclass(frozen=True, slots=True)
class WriteAheadLog:
    """A write-ahead log as it was before SQLite opened it. `committed`: the frames up
    to the last commit.
    """

    content: bytes
    page: int
    salts: tuple[int, int]
    committed: int


def read_write_ahead_log(path: Path) -> WriteAheadLog | None:
    """Return the log of a journal, or None if it is empty."""
    try:
        content = path.with_name(f"{path.name}-wal").read_bytes()
    except OSError:
        return None
    if len(content) < _HEADER.size + _FRAME.size:
        return None
    page_size = _log_page_size(path, content)
    frames = list(_iterate_frames(content, page_size))
    if not frames:
        return None
    salts = _salts_of_log(content, frames)
    committed = 0
    for number, frame in enumerate(frames, 1):
        if frame.is_commit and frame.salts == salts:
            committed = number
    return WriteAheadLog(content, page_size, salts, committed)


def _salts_of_log(content: bytes, frames: "Sequence[_LogFrame]") -> tuple[int, int]:
    """Return the numbers that frames of this log have in common, which older frames, left over
    in the file, do not have. They are in the log's header, unless it is damaged.
    """
    header = _HEADER.unpack_from(content)
    salts_of_header: tuple[int, int] = (header[4], header[5])
    if frames[0].salts == salts_of_header:
        return salts_of_header
    frame_counts = Counter(frame.salts for frame in frames)
    return max(frame_counts, key=frame_counts.__getitem__)


def _log_page_size(path: Path, content: bytes) -> int:
    for size in (_HEADER.unpack_from(content)[2], _database_page_size(path)):
        if _is_page_size(size):
            return int(size)
    return _COMMON_PAGE_SIZE


def _is_page_size(size: int) -> bool:
    return 512 <= size <= 65536 and size & (size - 1) == 0


def _database_page_size(path: Path) -> int:
    with path.open("rb") as file:
        head = file.read(18)
    size = int.from_bytes(head[16:18], "big")
    if size == 1:  # The largest size does not fit into two bytes.
        return 65536
    return size


@dataclass(frozen=True, slots=True)
class _LogFrame:
    is_commit: bool
    salts: tuple[int, int]


def _iterate_frames(content: bytes, page: int) -> Iterator[_LogFrame]:
    frame_size = _FRAME.size + page
    for start in range(_HEADER.size, len(content) - frame_size + 1, frame_size):
        # A frame that commits has the database's new size.
        _, database_size, first_salt, second_salt, _, _ = _FRAME.unpack_from(content, start)
        yield _LogFrame(database_size > 0, (first_salt, second_salt))


def with_valid_checksums(log: WriteAheadLog) -> bytes:
    """Return the log with corrected checksums, so that SQLite reads frames at which it
    would stop.
    """
    header = bytearray(_HEADER.size)
    _HEADER.pack_into(header, 0, _MAGICS[1], 3007000, log.page, 0, *log.salts, 0, 0)
    sums = _log_checksums(header[:24], 0, 0)
    struct.pack_into(">2I", header, 24, *sums)
    parts = [bytes(header)]
    for frame in _committed_frames(log):
        part = bytearray(frame)
        struct.pack_into(">2I", part, 8, *log.salts)
        sums = _log_checksums(part[:8], *sums)
        sums = _log_checksums(part[_FRAME.size :], *sums)
        struct.pack_into(">2I", part, 16, *sums)
        parts.append(bytes(part))
    return b"".join(parts)


def _committed_frames(log: WriteAheadLog) -> Iterator[bytes]:
    """Yield the frames that have a page. Where zeros took a frame's place, SQLite would stop."""
    size = _FRAME.size + log.page
    for number in range(log.committed):
        start = _HEADER.size + number * size
        if any(log.content[start : start + 4]):
            yield log.content[start : start + size]


def _pages_in_log(log: WriteAheadLog) -> dict[int, bytes]:
    """Return the last version of each page."""
    pages = {}
    for frame in _committed_frames(log):
        number = int.from_bytes(frame[:4], "big")
        # A damaged number would make a file of any size.
        if number <= _MOST_PAGES:
            pages[number] = frame[_FRAME.size :]
    return pages


def _log_checksums(content: bytes | bytearray, first: int, second: int) -> tuple[int, int]:
    for left, right in struct.iter_unpack(">2I", content):
        first = (first + left + second) & 0xFFFFFFFF
        second = (second + right + first) & 0xFFFFFFFF
    return first, second


@dataclass(frozen=True, slots=True)
class SalvagedFacts:
    """What SQLite would not read from a log: intact facts, and the lengths of conversations."""

    stored_facts: tuple[StoredFact, ...]
    lengths: Mapping[str, int]


def salvage_facts(path: Path, log: WriteAheadLog) -> SalvagedFacts:
    """Read the log with corrected checksums. Each fact's own digest tells whether it is intact."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        copy = Path(folder) / "journal.sqlite3"
        shutil.copyfile(path, copy)
        copy.with_name("journal.sqlite3-wal").write_bytes(with_valid_checksums(log))
        return SalvagedFacts(tuple(read_intact_facts(copy)), _conversation_lengths(copy))


def read_intact_facts(path: Path) -> Iterator[StoredFact]:
    """Yield every intact fact of a journal, damaged or not, also those SQLite cannot reach."""
    newer_pages: Mapping[int, bytes] = {}
    if path.exists():
        log = read_write_ahead_log(path)
        if log is not None:
            newer_pages = _pages_in_log(log)
    seen: set[tuple[str, int]] = set()
    for facts in (_facts_read_by_sqlite(path), _carve_facts(path, newer_pages)):
        for stored_fact in facts:
            place = (stored_fact.conversation, stored_fact.seq)
            if stored_fact.is_intact and place not in seen:
                seen.add(place)
                yield stored_fact


def _facts_read_by_sqlite(path: Path) -> Iterator[StoredFact]:
    """Yield rows until reading breaks off, by position, as column names may be damaged."""
    try:
        connection = sqlite3.connect(path, isolation_level=None)
    except sqlite3.Error:
        return
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    # SQLite's sentence on a damaged table has the damaged text in it.
    with closing(connection), suppress(sqlite3.Error, UnicodeDecodeError):
        for row in connection.execute("SELECT * FROM facts ORDER BY 1"):
            stored_fact = _fact_of_row(row)
            if stored_fact is not None:
                yield stored_fact


def _carve_facts(path: Path, newer_pages: Mapping[int, bytes]) -> Iterator[StoredFact]:
    if not path.exists():
        return
    page_size = _database_page_size(path)
    if not _is_page_size(page_size):
        page_size = _COMMON_PAGE_SIZE
    if newer_pages:
        any_page = next(iter(newer_pages.values()))
        page_size = len(any_page)
    for row in sqlite_salvage.carve_rows(path, page_size, newer_pages, columns=_COLUMNS_OF_FACTS):
        stored_fact = _fact_of_row((row.id, *row.values[1:]))
        if stored_fact is not None:
            yield stored_fact


def _fact_of_row(row: tuple[object, ...]) -> StoredFact | None:
    """Return the row's fact, if each value has the right type. Its digest is not checked."""
    if len(row) != _COLUMNS_OF_FACTS:
        return None
    number, conversation, seq, time, fact, digest = row
    # SQLite stores a time without a fraction as an integer.
    if isinstance(time, int):
        time = float(time)
    if not (isinstance(number, int) and isinstance(conversation, str) and isinstance(seq, int)):
        return None
    if not (isinstance(time, float) and isinstance(fact, str) and isinstance(digest, bytes)):
        return None
    return StoredFact(number, conversation, seq, time, fact, digest)


@dataclass(frozen=True, slots=True)
class RepairResult:
    """The repair's result. `kept`: facts unchanged. `lost`: sentences about facts that
    were intact nowhere.
    """

    kept: int
    lost: tuple[str, ...]


def rebuild_journal(
    damaged: Path, backups: Iterable[Path], salvaged: SalvagedFacts | None, into: Path
) -> RepairResult:
    """Create a new journal from all intact facts in the damaged file, its log, and its backups.

    They are looked for in this order, and the first intact one of each number counts. In place
    of a fact that is nowhere intact comes a mark that says so, so that the numbers have no gap.
    """
    sources: list[Iterable[StoredFact]] = [read_intact_facts(damaged)]
    if salvaged is not None:
        sources.append(salvaged.stored_facts)
    for backup in backups:
        sources.append(read_intact_facts(backup))
    intact_facts = _first_intact_facts(sources)
    expected_lengths = _conversation_lengths(damaged)
    all_conversations = dict.fromkeys(intact_facts) | dict.fromkeys(expected_lengths)
    lost_sentences: list[str] = []
    stored_facts: list[StoredFact] = []
    for conversation in all_conversations:
        facts_by_seq = intact_facts.get(conversation, {})
        last_intact_seq = max(facts_by_seq, default=0)
        length = max(expected_lengths.get(conversation, 0), last_intact_seq)
        for seq in range(1, length + 1):
            if seq in facts_by_seq:
                stored_facts.append(facts_by_seq[seq])
                continue
            lost_sentences.append(f"Record {seq} of conversation {conversation} was lost.")
            stored_facts.append(_placeholder_for_lost(conversation, seq, facts_by_seq))
    stored_facts.sort(
        key=lambda stored_fact: (stored_fact.time, stored_fact.conversation, stored_fact.seq)
    )
    journal = JournalFile(into)
    journal.restore_facts(stored_facts)
    journal.close()
    intact_count = len(stored_facts) - len(lost_sentences)
    return RepairResult(intact_count, tuple(lost_sentences))


def _conversation_lengths(path: Path) -> dict[str, int]:
    """Return the numbers of conversations' last facts, as far as they can be true."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            rows = connection.execute("SELECT id, last_seq FROM conversations").fetchall()
    except (sqlite3.Error, UnicodeDecodeError):
        return {}
    # A flipped bit can make a number of millions. Each fact takes some bytes of the file, which
    # may have been cut.
    most_facts = max(_MOST_FACTS_OF_CUT_FILE, path.stat().st_size // _LEAST_BYTES_OF_FACT)
    lengths = {}
    for conversation, last_seq in rows:
        is_number = isinstance(conversation, str) and isinstance(last_seq, int)
        if is_number and 0 < last_seq <= most_facts:
            lengths[conversation] = last_seq
    return lengths


def _placeholder_for_lost(
    conversation: str, seq: int, facts_by_seq: Mapping[int, StoredFact]
) -> StoredFact:
    """Return a mark in place of a fact, with the time of the intact fact before it."""
    earlier_seqs = [earlier_seq for earlier_seq in facts_by_seq if earlier_seq < seq]
    time = 0.0
    if earlier_seqs:
        time = facts_by_seq[max(earlier_seqs)].time
    text = fact_encoding.encode_fact(Forgotten(facts=1, why=_LOST_REASON))
    checksum = checksum_of_fact(conversation, seq, time, text)
    return StoredFact(0, conversation, seq, time, text, checksum)


def append_salvaged_facts(
    journal: JournalFile, salvage: SalvagedFacts
) -> tuple[int, tuple[str, ...], bool]:
    """Append facts of a log after those that SQLite read from it.

    Return their number, the final facts that are missing, named, and whether a
    fact is missing before an intact one, so that the whole journal needs a repair.
    """
    lengths = {row.id: row.last_seq for row in journal.conversation_rows()}
    added_count = 0
    has_gap = False
    for stored_fact in sorted(
        salvage.stored_facts, key=lambda stored_fact: (stored_fact.conversation, stored_fact.seq)
    ):
        next_seq = lengths.get(stored_fact.conversation, 0) + 1
        if stored_fact.seq == next_seq:
            journal.insert_stored_facts([stored_fact])
            lengths[stored_fact.conversation] = stored_fact.seq
            added_count += 1
        elif stored_fact.seq > next_seq:
            has_gap = True
    missing = []
    for conversation, length in salvage.lengths.items():
        for seq in range(lengths.get(conversation, 0) + 1, length + 1):
            missing.append(f"Record {seq} of conversation {conversation}")
    return added_count, tuple(missing), has_gap


def _first_intact_facts(
    sources: Iterable[Iterable[StoredFact]],
) -> dict[str, dict[int, StoredFact]]:
    """Return by conversation and number the fact of the first source that has it intact."""
    intact_facts: dict[str, dict[int, StoredFact]] = {}
    for source in sources:
        for stored_fact in source:
            facts_by_seq = intact_facts.setdefault(stored_fact.conversation, {})
            facts_by_seq.setdefault(stored_fact.seq, stored_fact)
    return intact_facts
