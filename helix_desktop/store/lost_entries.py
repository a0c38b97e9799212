"""Says which entries a damaged cache lost and who used them, and finds them where else they are.

The journal and the index tell what was there. A content may still be in the journal itself (a
short output stands there as a whole), in the copies that earlier repairs kept, or unchanged in
a file of the workspace's folders.
"""

import hashlib
import json
import os
import sqlite3
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path

import zstandard

from helix_desktop.engine import fact_encoding, facts
from helix_desktop.engine.facts import Fact, ModelReplied, ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store import cache_records, leveldb_salvage
from helix_desktop.store.cache_check_and_cleanup import CacheCheck
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder
from helix_desktop.store.cache_reader import QUARANTINED
from helix_desktop.store.cache_records import CHUNK, EntryState
from helix_desktop.store.cache_repair import KnownEntry
from helix_desktop.store.index_file import entries_used_by
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.unused_content import UsedContents

_PAGE = 500
_LONGEST_LINE = 64 << 20  # Bytes. A longer line is read in pieces, which are no JSON.
# What a model recalls or a fold names may be a hash that never was in this cache.
_NAMED_ONLY = ("recall", "fold")


@dataclass(frozen=True, slots=True)
class EntryWitnesses:
    """What else knows of entries. `roots`: the workspace's folders.

    `is_shared`: a fact may use content that this computer never had. `histories`: JSON files in
    which other programs recorded their conversations.
    """

    journal: JournalFile | None = None
    roots: tuple[str, ...] = ()
    is_shared: bool = False
    histories: tuple[Path, ...] = ()


NOBODY = EntryWitnesses()


# --- What was there


def read_known_entries(index: Path, witnesses: EntryWitnesses) -> dict[Digest, KnownEntry]:
    """Return the entries that should be there, by the journal and the index beside it.

    The index describes entries best. One that only a fact of the journal names is described by that
    fact: by its time, and for an output by the tool that was called. In a shared workspace, such an
    entry may never have been on this computer, so it is left out.
    """
    known = dict(_iterate_index_entries(index))
    tool_of_call: dict[tuple[str, str], str] = {}
    for conversation, time, fact in _iterate_facts(witnesses.journal):
        tool = ""
        if isinstance(fact, ModelReplied):
            for call in _list_calls(fact):
                tool_of_call[conversation, call.id] = call.name
        elif isinstance(fact, ToolReturned):
            tool = tool_of_call.get((conversation, fact.call), "")
        for how, digest in entries_used_by(fact):
            if how in _NAMED_ONLY:
                continue
            if digest not in known:
                if witnesses.is_shared:
                    continue
                known[digest] = KnownEntry(EntryOrigin(tool), time=time)
            described = _describe_by_fact(known[digest], digest, fact)
            known[digest] = described.used_by(conversation)
    return known


def _list_calls(reply: ModelReplied) -> list[facts.ToolCall]:
    return [part for part in reply.parts if isinstance(part, facts.ToolCall)]


def _iterate_index_entries(index: Path) -> Iterator[tuple[Digest, KnownEntry]]:
    """Yield the entries that the index knows, as far as it can be read."""
    if not index.is_file():
        return
    columns = "digest, tool, source, media, size, lines, time"
    statement = f"SELECT {columns} FROM entries WHERE state = {int(EntryState.LIVE)}"  # noqa: S608 - made of constants
    # The index may be damaged as well. What was read of it until then counts.
    with (
        suppress(sqlite3.Error, ValueError, TypeError),
        closing(sqlite3.connect(index)) as connection,
    ):
        for digest, tool, source, media, size, lines, time in connection.execute(statement):
            about = EntryOrigin(tool, source, media)
            yield Digest(digest), KnownEntry(about, lines, time, size)


def _iterate_facts(journal: JournalFile | None) -> Iterator[tuple[str, float, Fact]]:
    if journal is None:
        return
    lines = journal.stored_facts_since(0, _PAGE)
    while lines:
        for line in lines:
            with suppress(HelixError):
                yield line.conversation, line.time, fact_encoding.decode_fact(line.fact)
        lines = journal.stored_facts_since(lines[-1].id, _PAGE)


def _describe_by_fact(entry: KnownEntry, digest: Digest, fact: Fact) -> KnownEntry:
    """Add what the fact knows of the entry's size and type."""
    for stored in _references_in(fact):
        if stored.digest == digest and not entry.size:
            return entry.described_by(stored)
    return entry


def _references_in(fact: Fact) -> Iterator[facts.Stored]:
    """Yield what a fact refers to with its size and type: a tool's output and images, attached
    files, and lines of another program's history that are no messages.
    """
    match fact:
        case ToolReturned():
            yield fact.output
            yield from fact.images
        case facts.UserSaid(parts=parts):
            for part in parts:
                if isinstance(part, facts.Attachment):
                    yield part.stored
        case facts.BroughtIn(unread=unread, lines=lines):
            for stored in (unread, lines):
                if stored is not None:
                    yield stored


def find_entries_of_checkpoints(
    cache: CacheFolder, witnesses: EntryWitnesses
) -> dict[Digest, KnownEntry]:
    """Return what the facts' checkpoints are made of: lists of files, and the files' contents."""
    if witnesses.journal is None or witnesses.is_shared:
        return {}
    used = UsedContents(cache)
    for _, _, fact in _iterate_facts(witnesses.journal):
        if isinstance(fact, facts.FilesChanged):
            for _ in used.mark_changed_files(fact):
                pass
    return dict.fromkeys(used.digests, KnownEntry(EntryOrigin(CHECKPOINT)))


def find_lost_entries(
    cache: CacheFolder, known: Mapping[Digest, KnownEntry]
) -> dict[Digest, KnownEntry]:
    """Read every entry. Return those that are damaged, and those of `known` that are missing."""
    _free_intact_from_quarantine(cache)
    lost: dict[Digest, KnownEntry] = {}
    for digest, _ in CacheCheck(cache).check_everything().damaged:
        lost[digest] = known.get(digest) or _describe_by_record(cache, digest)
    for digest, entry in known.items():
        if _is_missing(cache, digest):
            lost.setdefault(digest, entry)
    return lost


def _free_intact_from_quarantine(cache: CacheFolder) -> None:
    """Let entries be read again that are intact after the repair. Those in a damaged block were
    marked as damaged (quarantined) when they were read before it.
    """
    for raw in list(cache.reader.marked[QUARANTINED]):
        if _is_content_intact(cache, Digest(raw)):
            cache.level.write_batch([(QUARANTINED + raw, None)])
            cache.reader.marked[QUARANTINED].discard(raw)


def _is_content_intact(cache: CacheFolder, digest: Digest) -> bool:
    """Whether an entry's content can be read as a whole, which checks it against its hash."""
    try:
        record = cache.reader.record_of_entry(digest)
        if record.digest != digest or record.state is not EntryState.LIVE:
            return False
        for _ in cache.reader.iterate_chunks(record):
            pass
    except (HelixError, ValueError):
        return False
    return True


def _is_missing(cache: CacheFolder, digest: Digest) -> bool:
    """Whether it is not even described. The user may have removed it, which is no loss."""
    if cache.reader.was_forgotten(digest):
        return False
    try:
        cache.reader.record_of_entry(digest)
    except (HelixError, ValueError):
        return True
    return False


def _describe_by_record(cache: CacheFolder, digest: Digest) -> KnownEntry:
    try:
        record = cache.reader.record_of_entry(digest)
    except (HelixError, ValueError):
        return KnownEntry(EntryOrigin())
    return KnownEntry(record.about, record.lines, record.time, record.size)


# --- Where it still is


@dataclass(frozen=True, slots=True)
class FoundContent:
    """`where`: the kind of place, as the note names it."""

    content: bytes
    where: str


def find_lost_contents(
    lost: Mapping[Digest, KnownEntry], workspace: Path, witnesses: EntryWitnesses
) -> Iterator[FoundContent]:
    """Yield lost contents from each place that has them. Each is right by its hash.

    The places are searched one after the other until nothing is missing.
    """
    missing_hashes = {digest.raw for digest in lost}
    sizes = {entry.size for entry in lost.values()}
    contents_by_place = (
        ("the journal", _texts_in_journal(witnesses.journal)),
        ("the copies of earlier repairs", _contents_in_damaged_copies(workspace / "damaged")),
        ("the histories of other programs", _texts_in_histories(witnesses.histories)),
        ("the workspace's folders", _contents_of_files(witnesses.roots, sizes)),
    )
    for place_name, contents in contents_by_place:
        for content in contents:
            if not missing_hashes:
                return
            content_hash = hashlib.sha256(content).digest()
            if content_hash in missing_hashes:
                missing_hashes.discard(content_hash)
                yield FoundContent(content, place_name)


def _texts_in_journal(journal: JournalFile | None) -> Iterator[bytes]:
    for _, _, fact in _iterate_facts(journal):
        for text in _texts_within(fact):
            yield text.encode("utf-8", "surrogatepass")


def _texts_in_histories(files: Iterable[Path]) -> Iterator[bytes]:
    """Yield every text of the files, each line of which is JSON."""
    for path in files:
        with suppress(OSError), path.open("rb") as file:
            line = file.readline(_LONGEST_LINE)
            while line:
                yield from _texts_of_json_line(line)
                line = file.readline(_LONGEST_LINE)


def _texts_of_json_line(line: bytes) -> Iterator[bytes]:
    with suppress(ValueError, RecursionError):
        for text in _texts_within(json.loads(line)):
            yield text.encode("utf-8", "surrogatepass")


def _texts_within(value: object) -> Iterator[str]:
    """Yield every text in a fact, however deep it is."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _texts_within(item)
    elif isinstance(value, Mapping):
        yield from _texts_within(tuple(value.values()))
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from _texts_within(getattr(value, name))


def _contents_in_damaged_copies(damaged: Path) -> Iterator[bytes]:
    """Yield contents of one chunk from every copy of a cache that a repair kept."""
    decompress = zstandard.ZstdDecompressor().decompress
    for path in sorted(damaged.glob("*/cache/*")):
        for stored_chunk in _chunks_in_database_file(path):
            with suppress(zstandard.ZstdError, MemoryError, IndexError):
                chunk = stored_chunk[1:]
                # The first byte says how a chunk is stored.
                if stored_chunk[0] == cache_records.RAW:
                    yield chunk
                else:
                    yield decompress(chunk, CHUNK)


def _chunks_in_database_file(path: Path) -> Iterator[bytes]:
    """Yield the chunks, as they are stored, in a table or a log of LevelDB that may be damaged."""
    content = b""
    with suppress(OSError):
        content = path.read_bytes()
    if path.suffix in (".ldb", ".sst"):
        for entry in leveldb_salvage.read_table_entries(content):
            if entry.key.startswith(b"b"):
                yield entry.value
    elif path.suffix == ".log":
        yield from _chunks_in_log(content)


def _chunks_in_log(log: bytes) -> Iterator[bytes]:
    for batch in leveldb_salvage.read_log_batches(log):
        for key, value in batch.writes:
            if value is not None and key.startswith(b"b"):
                yield value


def _contents_of_files(roots: Iterable[str], sizes: Collection[int]) -> Iterator[bytes]:
    """Yield the contents of the folders' files that have one of these sizes."""
    for root in roots:
        for folder, _, names in os.walk(root):
            for name in names:
                path = Path(folder, name)
                with suppress(OSError):
                    status = path.lstat()
                    is_file = stat.S_ISREG(status.st_mode)  # Reading a pipe would wait for ever.
                    if is_file and status.st_size in sizes:
                        yield path.read_bytes()


# --- What is said


def describe_lost_entry(digest: Digest, entry: KnownEntry, titles: Mapping[str, str]) -> str:
    """Return a sentence that names an entry and the conversations that used it."""
    tool_and_source = filter(None, (entry.about.tool, entry.about.source))
    origin = " ".join(tool_and_source) or "stored by hand"
    size = f"{entry.size:,}"
    if not entry.conversations:
        return f"Lost: the entry {digest} ({origin}, {size} bytes), which no conversation used."
    using = ", ".join(titles.get(name, name) for name in entry.conversations[:5])
    return f"Lost: the entry {digest} ({origin}, {size} bytes), used in: {using}."


def read_conversation_titles(witnesses: EntryWitnesses) -> dict[str, str]:
    if witnesses.journal is None:
        return {}
    rows = witnesses.journal.conversation_rows()
    titles: dict[str, str] = {}
    for row in rows:
        titles[row.id] = row.title or row.begins or row.id
    return titles
