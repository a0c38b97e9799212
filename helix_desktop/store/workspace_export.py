"""Exports a workspace to a file, and imports it. The file is a ZIP that anybody can
read; see FORMATS.md.

It contains `manifest.json`, `workspace.toml` (without anything like a key),
`facts.jsonl`, and `entries.bin`: for each entry a line of JSON and its bytes. An import
checks every fact and entry. Folders, permissions, MCP servers, limits, and what copies
and undo do are only proposed for the user to accept.
"""

import io
import json
import re
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import tomlkit

from helix_desktop import atomic_files, errors
from helix_desktop.decompression import open_foreign_archive, read_archive_member
from helix_desktop.engine import fact_encoding
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.json_values import has_more_values, list_at, parse_json
from helix_desktop.store import workspace_settings
from helix_desktop.store.cache_folder import CacheFolder, StagedEntry
from helix_desktop.store.cache_reader import FORGOTTEN
from helix_desktop.store.cache_records import CHUNK, CacheRecord, EntryState
from helix_desktop.store.imported_proposals import PROPOSED_KEYS
from helix_desktop.store.journal_file import JournalFile, StoredFact, checksum_of_fact

VERSION = 1
_PAGE = 200
_LINE_LIMIT = 64 << 20  # In bytes. No fact is longer than this.
_FACTS_AT_ONCE = 8 << 20  # In bytes. The facts in memory at a time, or one longer line.
# In bytes. Neither an entry's header nor workspace.toml is larger than this.
_DESCRIPTION_LIMIT = 1 << 20
_MANIFEST_LIMIT = 16 << 20
_MOST_VALUES = 500_000  # In a line.
KEPT_FREE_BYTES = 200 << 20  # In bytes. An import stops if less disk space than this is free.
_MOST_SETTINGS = 2_000  # tomlkit would take minutes to read more settings than this.
_BATCH = 64
_ERRORS_OF_BROKEN_FILES = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    ArithmeticError,
    KeyError,
    ValueError,
    RuntimeError,
)
Report = Callable[[int, int], None]  # Called with the number of bytes done and the total.
_NAME_OF_SECRET = re.compile(r"token|key|secret|passw|auth|credential|bearer|cookie", re.IGNORECASE)
_NAMED_KEY = re.compile(
    rf"([\w.-]*(?:{_NAME_OF_SECRET.pattern})[\w.-]*(?:=|: ))[^\s&#]+", re.IGNORECASE
)
# A password may have an @ itself, so it goes up to the last one before a slash.
_URL_PASSWORD = re.compile(r"(\w+://[^/@:\s]*:)[^/\s]+@")
# Where a web address has only one word before its host, that is a token: over HTTP, nobody is
# called only by a name.
_URL_TOKEN = re.compile(r"(https?://)[^/@:\s]+@", re.IGNORECASE)
# The character behind the first letters belongs to keys: ordinary words such as skeleton or
# ghost begin with the same letters.
_LOOKS_LIKE_KEY = re.compile(
    r"\b(sk[-_]|pk[-_]|gh[opsur]_|github_pat_|glpat-|xox[abprs]-|AKIA[A-Z0-9]|AIza|eyJ)"
    r"[-_A-Za-z0-9.]{11,}|Bearer\s+\S+"
)


class _Pipe(io.RawIOBase):
    """A buffer to write a ZIP into and to take it out of in pieces."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(self._pieces[-1])

    def pop_bytes(self) -> bytes:
        content = b"".join(self._pieces)
        self._pieces.clear()
        return content


def export_workspace(
    settings: Path, journal: JournalFile, cache: CacheFolder, left_out: list[str]
) -> Iterator[bytes]:
    """Yield the export in pieces. In between, others may use the stores.

    Facts come first, since the entries that they refer to existed before. A damaged
    entry is left out: its hash is added to `left_out` and to the final manifest.
    """
    workspace_settings.read_workspace_settings(settings)  # Reports an error with its line number.
    pipe = _Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        settings_text = settings.read_text("utf-8")
        archive.writestr("workspace.toml", settings_without_keys(settings_text))
        facts = 0
        with archive.open("facts.jsonl", "w", force_zip64=True) as member:
            for lines in _pages_of_facts(journal):
                facts += len(lines)
                page = b"".join(_format_fact_line(line) for line in lines)
                member.write(page)
                yield pipe.pop_bytes()
        entries = 0
        with archive.open("entries.bin", "w", force_zip64=True) as member:
            for record in _records_to_export(cache):
                entries += 1
                for _ in _export_entry(member, cache, record, left_out):
                    yield pipe.pop_bytes()
        forgotten_hashes = [raw.hex() for raw in cache.reader.marked[FORGOTTEN]]
        manifest: dict[str, Any] = {
            "format": "helix-desktop workspace",
            "version": VERSION,
            "facts": facts,
            "entries": entries,
            "damaged": left_out,
            "forgotten": sorted(forgotten_hashes),
        }
        manifest_text = json.dumps(manifest, indent=1)
        archive.writestr("manifest.json", manifest_text)
    yield pipe.pop_bytes()


def _pages_of_facts(journal: JournalFile) -> Iterator[list[StoredFact]]:
    """Yield the facts that are there now, page by page. Those that are added meanwhile are left
    out.
    """
    after = 0
    last = journal.last_fact_id()
    while after < last:
        page = journal.stored_facts_since(after, _PAGE)
        lines = [line for line in page if line.id <= last]
        if not lines:
            return
        after = lines[-1].id
        yield lines


def _format_fact_line(line: StoredFact) -> bytes:
    line.decode_recorded()  # Raises for a damaged fact, so that none is exported as intact.
    _require_importable_fact(
        line.conversation, line.seq, line.fact, "Delete the conversation, and export again."
    )
    row = [line.conversation, line.seq, line.time, line.fact]
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


def _records_to_export(cache: CacheFolder) -> Iterator[CacheRecord]:
    """Yield the entries that are there now. Those that are added meanwhile are left out."""
    after = 0
    last = cache.reader.last_entry_number()
    while after < last:
        page = cache.reader.records_after(after, _PAGE)
        records = [record for record in page if record.number <= last]
        if not records:
            return
        after = records[-1].number
        yield from records


def _export_entry(
    member: IO[bytes], cache: CacheFolder, record: CacheRecord, left_out: list[str]
) -> Iterator[None]:
    """Write one entry: a line that describes it, then its content. Its first chunk is read
    before the line is written, to find most damage in time.

    Of a collected entry, whose content was removed to free space, there is only the line.
    """
    chunks: Iterator[bytes] = iter(())
    if record.state is not EntryState.COLLECTED:
        chunks = cache.reader.iterate_chunks(record)
    try:
        first_chunk = next(chunks, b"")
    except errors.CacheCorrupt:
        left_out.append(record.digest.hex)
        return
    description = _describe_entry(record, is_pinned=record.digest in cache.reader.pinned_entries())
    member.write(json.dumps(description, ensure_ascii=False).encode() + b"\n" + first_chunk)
    yield
    bytes_left = record.size - len(first_chunk)
    try:
        for chunk in chunks:
            member.write(chunk)
            bytes_left -= len(chunk)
            yield
    except errors.CacheCorrupt:
        left_out.append(record.digest.hex)
        # Fill up the announced length. The hash is then wrong, so an import leaves the entry out.
        while bytes_left > 0:
            member.write(bytes(min(bytes_left, CHUNK)))
            bytes_left -= CHUNK
            yield


def _describe_entry(record: CacheRecord, *, is_pinned: bool) -> dict[str, object]:
    """Return an entry's line. `size`: how many bytes of content follow it in the export."""
    is_collected = record.state is EntryState.COLLECTED
    content_bytes = record.size
    if is_collected:
        content_bytes = 0
    description: dict[str, object] = {
        "sha256": record.digest.hex,
        "size": content_bytes,
        "time": record.time,
        "tool": record.about.tool,
        "source": record.about.source,
        "media_type": record.about.media_type,
        "pinned": is_pinned,
    }
    if is_collected:
        description["collected"] = record.size
        description["lines"] = record.lines
    return description


def settings_without_keys(text: str) -> str:
    """Return a workspace.toml for others: only values, and none that is or names a key."""
    settings = tomlkit.parse(text).unwrap()
    return tomlkit.dumps(_remove_secrets(settings))


def _remove_secrets(value: Any, name: str = "", *, inside: bool = False) -> Any:
    """Return a value of the settings without what is, or may be, a key: everything within `env`
    and `headers` (`inside`), what the setting's name marks as secret, and what looks like a key
    in any text.
    """
    match value:
        case dict():
            is_secret = inside or name in ("env", "headers")
            cleaned: dict[str, Any] = {}
            for key, item in value.items():
                cleaned[key] = _remove_secrets(item, key, inside=is_secret)
            return cleaned
        case list():
            return _remove_secrets_from_list(value, name, inside=inside)
        case str():
            is_named_secret = _NAME_OF_SECRET.search(name) and not value.startswith("-")
            if inside or is_named_secret:
                return ""
            without_keys = _LOOKS_LIKE_KEY.sub("", value)
            without_passwords = _URL_PASSWORD.sub(r"\1@", without_keys)
            without_tokens = _URL_TOKEN.sub(r"\1@", without_passwords)
            return _NAMED_KEY.sub(r"\1", without_tokens)
    return value


def _remove_secrets_from_list(values: list[Any], name: str, *, inside: bool) -> list[Any]:
    """Return a list without secrets. In `["--api-key", "X"]`, the first value names the second."""
    cleaned: list[Any] = []
    option_before = ""
    for value in values:
        name_of_value = option_before or name
        cleaned.append(_remove_secrets(value, name_of_value, inside=inside))
        option_before = ""
        if isinstance(value, str) and value.startswith("-"):
            option_before = value
    return cleaned


def read_export_manifest(path: Path) -> dict[str, Any]:
    """Return the manifest. Raises InvalidInput for other files, WrittenByNewerVersion
    for newer ones.
    """
    if not path.exists():
        raise errors.NotFound(f"{path} does not exist.")
    if not path.is_file():
        raise errors.NotFound(f"{path} is not a file.")
    try:
        with open_foreign_archive(path) as archive:
            manifest = _parse_export_line(
                read_archive_member(archive, "manifest.json", _MANIFEST_LIMIT)
            )
            names = set(archive.namelist())
    except (*_ERRORS_OF_BROKEN_FILES, OSError) as error:
        raise errors.InvalidInput(
            f"{path} is not a complete workspace export.", remedy="Export the workspace again."
        ) from error
    has_all_members = {"workspace.toml", "facts.jsonl", "entries.bin"} <= names
    if not isinstance(manifest, dict) or not has_all_members:
        raise errors.InvalidInput(
            f"{path} is not a workspace export.",
            remedy="Choose a file that was created with Export.",
        )
    if manifest.get("version") != VERSION:
        raise errors.WrittenByNewerVersion(
            f"{path} was exported by a newer version of Helix Desktop."
        )
    return manifest


def ignore_progress(*_progress: object) -> None:
    """Do nothing, for callers without progress reports."""


def unpack_export(
    path: Path, folder: Path, *, name: str = "", report: Report = ignore_progress
) -> tuple[str, ...]:
    """Unpack an export into `folder`: the settings, then the facts, then the entries. Return
    sentences on what was left out. Errors of `report` stop it.
    """
    manifest = read_export_manifest(path)
    try:
        with open_foreign_archive(path) as archive:
            fact_bytes = archive.getinfo("facts.jsonl").file_size
            entry_bytes = archive.getinfo("entries.bin").file_size

            def report_facts(done: int) -> None:
                _stop_if_disk_is_full(path, folder)
                report(done, fact_bytes + entry_bytes)

            def report_entries(done: int) -> None:
                report_facts(fact_bytes + done)  # All facts are done before the first entry.

            _import_settings(archive, folder / workspace_settings.NAME, name)
            with archive.open("facts.jsonl") as member:
                _import_facts(member, folder / "journal.sqlite3", report_facts)
            forgotten = [Digest.from_hex(digest) for digest in list_at(manifest, "forgotten")]
            with archive.open("entries.bin") as member:
                sentences = _import_entries(member, folder / "cache", forgotten, report_entries)
    except (*_ERRORS_OF_BROKEN_FILES, TypeError, EOFError) as error:
        raise errors.InvalidInput(
            f"{path} is damaged: {error}.",
            remedy="Nothing was imported. Export the workspace again.",
        ) from error
    except OSError as error:
        raise errors.StoreFailed(
            f"{path} cannot be read: {error.strerror}.", remedy="Nothing was imported."
        ) from error
    notes: list[str] = []
    for damaged_hash in list_at(manifest, "damaged"):
        shown_hash = str(damaged_hash)[:64]
        notes.append(
            f"The entry {shown_hash} was already damaged when this file was exported, so the file does not contain it."
        )
    notes += sentences
    return tuple(notes)


def _stop_if_disk_is_full(export: Path, folder: Path) -> None:
    if shutil.disk_usage(folder).free < KEPT_FREE_BYTES:
        raise errors.StoreFailed(
            f"{export} needs more space than is free on the disk.",
            remedy="Nothing was imported. Free up disk space.",
        )


def _import_settings(archive: zipfile.ZipFile, settings: Path, name: str) -> None:
    """Write the export's settings, and read them once, which raises an error if they are wrong."""
    text = read_archive_member(archive, "workspace.toml", _DESCRIPTION_LIMIT)
    if text.count(b"=") + text.count(b"[") > _MOST_SETTINGS:
        raise ValueError("workspace.toml has too many settings")
    settings_with_proposals = _move_settings_to_proposals(text.decode("utf-8"), name)
    atomic_files.write_file_atomically(settings, settings_with_proposals, private=True)
    workspace_settings.read_workspace_settings(settings)


def _move_settings_to_proposals(text: str, name: str) -> str:
    """Return the settings of an export for the new workspace. What gives rights, such as folders
    and permissions, becomes a proposal, which has no effect until the user agrees.
    """
    document = tomlkit.parse(text).unwrap()
    earlier_proposals = document.pop("proposed", {})
    proposals = {}
    for key in PROPOSED_KEYS:
        # Only these: a file could otherwise propose the address of a shared store.
        if isinstance(earlier_proposals, dict) and earlier_proposals.get(key):
            proposals[key] = earlier_proposals[key]
        if document.get(key):
            proposals[key] = document[key]
        document.pop(key, None)
    # Without the store's key, the copy is not connected to the shared store.
    document.pop("shared", None)
    if name:
        document["name"] = name
    if proposals:
        document["proposed"] = proposals
    return tomlkit.dumps(document)


def _import_facts(member: IO[bytes], path: Path, report: Callable[[int], None]) -> None:
    """Insert all facts into a new journal, in batches that are limited in number and size."""
    with closing(JournalFile(path)) as journal:
        last_seqs: dict[str, int] = {}
        batch: list[StoredFact] = []
        bytes_at_last_insert = member.tell()
        for raw in iter(lambda: member.readline(_LINE_LIMIT), b""):
            batch.append(_parse_fact_line(raw, last_seqs))
            if len(batch) == 1000 or member.tell() - bytes_at_last_insert > _FACTS_AT_ONCE:
                journal.insert_stored_facts(batch)
                batch = []
                bytes_at_last_insert = member.tell()
                report(bytes_at_last_insert)
        journal.insert_stored_facts(batch)
        report(member.tell())


def _parse_export_line(raw: bytes) -> Any:
    """Parse a line. Raises ValueError for more values than our lines ever have."""
    if has_more_values(raw, _MOST_VALUES):
        raise ValueError("a line has too many values")
    return parse_json(raw)


def _parse_fact_line(raw: bytes, last_seqs: dict[str, int]) -> StoredFact:
    """Parse a line of facts. Raises ValueError for what no export has: a fact whose number does
    not follow the last one of its conversation (`last_seqs`), for example.
    """
    conversation, seq, time, fact = _parse_export_line(raw)
    if not (fact_encoding.CONVERSATION_ID.fullmatch(conversation) and isinstance(fact, str)):
        raise ValueError("a fact has no conversation")
    expected_seq = last_seqs.get(conversation, 0) + 1
    if seq != expected_seq:
        raise ValueError(
            f"record {expected_seq} of the conversation {conversation[:40]} is missing"
        )
    _require_importable_fact(conversation, seq, fact, "Nothing was imported.")
    last_seqs[conversation] = seq
    valid_time = fact_encoding.require_valid_time(time)
    checksum = checksum_of_fact(conversation, seq, valid_time, fact)
    return StoredFact(0, conversation, seq, valid_time, fact, checksum)


def _require_importable_fact(conversation: str, seq: int, fact: str, remedy: str) -> None:
    try:
        fact_encoding.decode_fact(fact, is_foreign=True)
    except errors.JournalCorrupt as error:
        raise errors.JournalCorrupt(
            f"Record {seq} of conversation {conversation} cannot be read.", remedy=remedy
        ) from error


def _import_entries(
    member: IO[bytes], folder: Path, forgotten: list[Digest], report: Callable[[int], None]
) -> tuple[str, ...]:
    """Import all entries into a new cache, in batches. Return sentences on those left out.

    What was forgotten where the export was made is forgotten here last, whatever is in the file.
    """
    with closing(CacheFolder(folder)) as cache:
        sentences: list[str] = []
        staged: list[StagedEntry] = []
        line = member.readline(_DESCRIPTION_LIMIT)
        while line:
            try:
                staged += _import_entry(member, cache, _parse_export_line(line), report)
            except errors.HelixError as error:
                sentences.append(error.what)
            report(member.tell())
            if len(staged) >= _BATCH:
                cache.commit_staged(staged)
                staged = []
            # Importing an entry has also read its content, which follows its line.
            line = member.readline(_DESCRIPTION_LIMIT)
        cache.commit_staged(staged)
        for digest in forgotten:
            cache.forget_entry(digest)
        return tuple(sentences)


def _import_entry(
    member: IO[bytes],
    cache: CacheFolder,
    description: dict[str, Any],
    report: Callable[[int], None],
) -> list[StagedEntry]:
    """Read an entry's content, which follows its line, and return it to be committed with
    others. Nothing is returned if it has no content, or was committed at once to be pinned.
    """
    digest = Digest.from_hex(description["sha256"])
    tool = str(description["tool"])
    source = str(description["source"])
    media_type = str(description["media_type"])
    about = EntryOrigin(tool, source, media_type)
    time = fact_encoding.require_valid_time(description["time"])
    if "collected" in description:
        size = fact_encoding.require_storable_amount(description["collected"])
        lines = fact_encoding.require_storable_amount(description["lines"])
        record = CacheRecord(0, 0, digest, size, 0, lines, time, about)
        cache.store_record_without_content(record)
        return []
    incoming = cache.begin_incoming(about, time=time)
    bytes_left = int(description["size"])
    while bytes_left > 0:
        piece = member.read(min(bytes_left, CHUNK))
        if not piece:
            raise EOFError("the content ends too early")
        incoming.write_piece(piece)
        bytes_left -= len(piece)
        report(member.tell())
    staged = incoming.finish_entry()
    if staged.record.digest != digest:
        cache.discard_staged(staged)
        raise errors.CacheCorrupt(f"The entry {digest} was damaged in the export and was left out.")
    if description.get("pinned"):
        cache.commit_staged([staged])
        cache.set_entry_pinned(digest)
        return []
    return [staged]
