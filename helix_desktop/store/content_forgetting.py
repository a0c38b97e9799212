"""Forgets a text or an entry for good: removes it from cache, journal and backups, down
to the bytes of the files. The index is rebuilt, and copies of damaged files are
deleted. A tombstone records that it happened.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from pathlib import Path
from stat import S_ISREG
from typing import Any

from helix_desktop.engine import facts as vocabulary
from helix_desktop.engine.document_pages import parse_document_text
from helix_desktop.engine.fact_encoding import decode_fact, encode_fact
from helix_desktop.engine.facts import Fact, Forgotten
from helix_desktop.engine.forgotten_text_forms import TextForms
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.folder_trees import delete_folder_tree, list_tree_files
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_records import CacheRecord, EntryState
from helix_desktop.store.journal_file import JournalFile, StoredFact
from helix_desktop.store.workspace_settings import NAME

GIT_BUNDLE = "application/x-git-bundle"
SHORTEST_TEXT = 4  # In characters. A shorter text would occur almost everywhere.
FORGOTTEN_MARK = "[forgotten]"
REASON = "forgotten at the user's request"
_FIELDS_THAT_GO = {"head"}
_PAGE = 200
_DOCUMENT_HEAD = 2_000  # Bytes; the first line of a document's text names the document.


class ForgetRequest:
    """What to forget: a text in all the forms in which it is stored, and entries."""

    def __init__(self, text: str, digests: Iterable[Digest]) -> None:
        """`digests`: the entries that the user named. Those with the text are added when they are
        found.
        """
        if text and len(text) < SHORTEST_TEXT:
            raise InvalidInput(
                f"The text to remove must be at least {SHORTEST_TEXT} characters long.",
                remedy="Enter a longer part of the text.",
            )
        self.digests = set(digests)
        # Live bundles of git's, whose compressed content cannot be searched.
        self.bundles: set[Digest] = set()
        # Numbers of entries that stay, but whose description loses the text.
        self.named: list[int] = []
        # Finds the text in the spellings and encodings in which it may be stored.
        self.traces: TextForms | None = None
        if text:
            self.traces = TextForms(text)

    def occurs_in(self, text: str) -> bool:
        return self.traces is not None and self.traces.occurs_in_text(text)

    def blank_text(self, text: str) -> str:
        if self.traces is None:
            return text
        return self.traces.blank_out(text, FORGOTTEN_MARK)


# --- Forgetting in the cache


def find_entries_to_forget(cache: CacheFolder, wanted: ForgetRequest) -> Iterator[int]:
    """Find every entry with the text, without changes. Yields the bytes read, to let
    others work.
    """
    if wanted.traces is None:
        return
    records = cache.reader.records_after(0, _PAGE)
    while records:
        for record in records:
            _note_if_wanted(cache, record, wanted, wanted.traces)
            yield record.size
        records = cache.reader.records_after(records[-1].number, _PAGE)


def _note_if_wanted(
    cache: CacheFolder, record: CacheRecord, wanted: ForgetRequest, traces: TextForms
) -> None:
    """Add an entry with the text to what is forgotten, together with the document that the text
    was read from. An entry that only has the text in its description keeps its content.
    """
    is_live = record.state is EntryState.LIVE
    if is_live and record.about.media_type == GIT_BUNDLE:
        wanted.bundles.add(record.digest)
    if is_live and _entry_holds_text(cache, record, traces):
        wanted.digests.add(record.digest)
        wanted.digests.update(_find_document_of_text(cache, record))
    elif wanted.occurs_in(record.about.source) or wanted.occurs_in(record.about.tool):
        wanted.named.append(record.number)


def purge_cache(cache: CacheFolder, wanted: ForgetRequest) -> Iterator[None]:
    """Forget what was found and what was named, in slices."""
    for number in wanted.named:
        record = cache.reader.record_numbered(number)
        about = replace(
            record.about,
            source=wanted.blank_text(record.about.source),
            tool=wanted.blank_text(record.about.tool),
        )
        cache.rewrite_record(replace(record, about=about))
        yield
    for digest in wanted.digests:
        cache.forget_entry(digest)
        yield
    cache.level.scrub_database_files()
    yield


def _entry_holds_text(cache: CacheFolder, record: CacheRecord, traces: TextForms) -> bool:
    try:
        return _occurs_in_joined_pieces(cache.reader.iterate_chunks(record), traces)
    except HelixError:
        return True  # A damaged entry may contain the text, so it is forgotten.


def _find_document_of_text(cache: CacheFolder, record: CacheRecord) -> Iterator[Digest]:
    """Yield the document that an entry's text was read from. Its own bytes are compressed, so the
    text is not found in them.
    """
    try:
        chunks = iter(cache.reader.iterate_chunks(record))
        first_chunk = next(chunks, b"")
    except HelixError:
        return
    beginning = first_chunk[:_DOCUMENT_HEAD]
    document = parse_document_text(beginning.decode("utf-8", "replace"))
    if document is not None:
        yield document.original


def _occurs_in_joined_pieces(pieces: Iterable[bytes], traces: TextForms) -> bool:
    """Whether the text occurs, even if split over two pieces."""
    end_of_last_piece = b""
    for piece in pieces:
        joined = end_of_last_piece + piece
        if traces.occurs_in_bytes(joined):
            return True
        end_of_last_piece = joined[-traces.overlap :]
    return False


# --- Forgetting in the journal


def find_facts_to_change(
    journal: JournalFile, wanted: ForgetRequest
) -> Iterator[list[tuple[StoredFact, Fact]]]:
    """Yield pages of facts, each with what it will be, without changes."""
    stored_facts = journal.stored_facts_since(0, _PAGE)
    while stored_facts:
        changes: list[tuple[StoredFact, Fact]] = []
        for stored_fact in stored_facts:
            blanked = blank_fact(stored_fact, wanted)
            if blanked is not None:
                changes.append((stored_fact, blanked))
        yield changes
        stored_facts = journal.stored_facts_since(stored_facts[-1].id, _PAGE)


def purge_journal(journal: JournalFile, wanted: ForgetRequest) -> dict[str, int]:
    """Blank the text in every fact, and what facts quote of the entries. Return the
    changes by conversation.
    """
    changed = Counter[str]()
    for page in find_facts_to_change(journal, wanted):
        for stored_fact, fact in page:
            journal.replace_fact(stored_fact, fact)
            changed[stored_fact.conversation] += 1
    for row in journal.conversation_rows():
        if wanted.occurs_in(row.meter):
            journal.write_meter(row.id, "")
    journal.scrub_journal()
    return changed


def blank_fact(stored_fact: StoredFact, wanted: ForgetRequest) -> Fact | None:
    """Return the fact without what is to be forgotten, or None if it contains nothing of it."""
    names_entry = any(digest.hex in stored_fact.fact for digest in wanted.digests)
    if not names_entry and not wanted.occurs_in(stored_fact.fact):
        return None
    # A damaged fact raises an error here, so that it is reported.
    fact = decode_fact(stored_fact.fact)
    fact_without_text: Fact = _blank_texts_within(fact, wanted)
    blanked_fact = _remove_quotes(fact_without_text, wanted.digests)
    if encode_fact(blanked_fact) == stored_fact.fact:
        return None
    return blanked_fact


def _blank_texts_within(value: Any, wanted: ForgetRequest) -> Any:
    """Return a fact, or a value in one, with the text taken out of all its texts.

    A word that says what a fact is, such as why a reply stopped, is no text of anybody's and
    stays: without it, the fact could not be read any more.
    """
    if isinstance(value, str) and not isinstance(value, Enum):
        return wanted.blank_text(value)
    if isinstance(value, tuple | list):
        return type(value)(_blank_texts_within(item, wanted) for item in value)
    if isinstance(value, Mapping):
        return {name: _blank_texts_within(item, wanted) for name, item in value.items()}
    if is_dataclass(value):
        return _blank_texts_of_fields(value, wanted)
    return value


def _blank_texts_of_fields(value: Any, wanted: ForgetRequest) -> Any:
    blanked_fields: dict[str, Any] = {}
    for value_field in fields(value):
        content = getattr(value, value_field.name)
        blanked = _blank_texts_within(content, wanted)
        if blanked != content:
            blanked_fields[value_field.name] = blanked
    if not blanked_fields:
        return value
    return replace(value, **blanked_fields)


def _remove_quotes(fact: Fact, digests: set[Digest]) -> Fact:
    """Remove short outputs and excerpts that facts quote from entries."""
    match fact:
        case vocabulary.ToolReturned() if fact.output.digest in digests:
            return replace(fact, head="")
        case vocabulary.Folded(kind=vocabulary.FoldKind.EXCERPT):
            if digests.intersection(fact.entries):
                return replace(fact, text=FORGOTTEN_MARK)
    return fact


def differ_only_by_forgetting(one: str, other: str) -> bool:
    """Whether two versions of a fact are the same but for what was forgotten in either."""
    first = decode_fact(one)
    second = decode_fact(other)
    if isinstance(first, Forgotten) or isinstance(second, Forgotten):
        return True
    first_values = json.loads(encode_fact(first))
    second_values = json.loads(encode_fact(second))
    return _are_same_but_for_blanks(first_values, second_values)


def _are_same_but_for_blanks(one: Any, other: Any) -> bool:
    """Whether two facts, as decoded JSON, differ only where forgetting has taken something out
    of one of them.
    """
    if isinstance(one, dict) and isinstance(other, dict):
        # A short output goes as a whole, and a field that is empty is not written.
        only_in_one = one.keys() ^ other.keys()
        if only_in_one - _FIELDS_THAT_GO:
            return False
        in_both = one.keys() & other.keys()
        return all(_are_same_but_for_blanks(one[name], other[name]) for name in in_both)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_are_same_but_for_blanks, one, other))
    if isinstance(one, str) and isinstance(other, str):
        return one == other or _is_blanked(one, other) or _is_blanked(other, one)
    return bool(one == other)


def _is_blanked(whole_text: str, blanked_text: str) -> bool:
    """Whether the second text is the first with parts of it taken out: the whole text must have what
    is left, in the same order, from its beginning to its end. If both texts lack something, each may
    have lost what the other kept.
    """
    if FORGOTTEN_MARK not in blanked_text:
        return False
    if FORGOTTEN_MARK in whole_text:
        return True
    parts_left = blanked_text.split(FORGOTTEN_MARK)
    first = parts_left[0]
    last = parts_left[-1]
    if not whole_text.startswith(first):
        return False
    position = len(first)
    for part in parts_left[1:-1]:
        part_start = whole_text.find(part, position)
        if part_start < 0:
            return False
        position = part_start + len(part)
    has_room_for_last = len(whole_text) - len(last) >= position
    return has_room_for_last and whole_text.endswith(last)


def append_forgotten_facts(
    journal: JournalFile, changed: dict[str, int], wanted: ForgetRequest
) -> None:
    """Record in each conversation that something was forgotten, but not what."""
    entries = tuple(sorted(wanted.digests))
    for conversation, count in changed.items():
        journal.append_all_or_nothing(conversation, [Forgotten(entries, count, REASON)])


# --- What is left


def delete_damaged_copies(workspace: Path, wanted: ForgetRequest | None = None) -> int:
    """Delete the copies of damaged files that were kept aside. Return how many had the text."""
    damaged = workspace / "damaged"
    copies_with_text = 0
    if wanted is not None and wanted.traces is not None:
        for path, status in list_tree_files(damaged):
            is_file = S_ISREG(status.st_mode)
            if is_file and _remaining_trace_in_file(path, wanted.traces) is not None:
                copies_with_text += 1
    delete_folder_tree(damaged, ignore_errors=True)
    return copies_with_text


def find_remaining_traces(workspace: Path, wanted: ForgetRequest) -> Iterator[str]:
    """Say in sentences where it still occurs in any byte of the workspace's files."""
    if wanted.traces is None:
        return
    yield from _name_what_cannot_be_searched(workspace, wanted)
    errors: list[OSError] = []
    files = []
    for path, status in list_tree_files(workspace, on_error=errors.append):
        if S_ISREG(status.st_mode):
            files.append(path)
    for error in errors:
        name = str(error.filename)[:200]
        yield f"{name} could not be read and may still contain the text: {error.strerror}."
    for path in sorted(files):
        if wanted.occurs_in(path.name):
            yield f"The text is part of a file name: {path}. Rename that file."
        if path == workspace / NAME:
            yield from _remaining_traces_in_settings(path, wanted)
            continue
        sentence = _remaining_trace_in_file(path, wanted.traces)
        if sentence is not None:
            yield sentence


def _name_what_cannot_be_searched(workspace: Path, wanted: ForgetRequest) -> Iterator[str]:
    for digest in sorted(wanted.bundles - wanted.digests):
        yield f"The entry {digest.hex} contains the compressed changes of a discarded copy, so it was not searched and may contain the text. If the text may be in it, permanently remove this entry, too."
    objects = workspace.glob("copies/*/*/.git/objects/[0-9a-fp]*/*")
    for folder in sorted({path.parents[1] for path in objects}):
        yield f"Git has compressed versions of files in {folder}, which were not searched and may contain the text. If the text may be in them, discard this copy, and then remove the text again."


def _remaining_traces_in_settings(path: Path, wanted: ForgetRequest) -> Iterator[str]:
    """Name the lines: the user's own file is not changed."""
    for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        if wanted.occurs_in(line):
            yield f"The text is in {path}, line {number}. Edit that line."


def _remaining_trace_in_file(path: Path, traces: TextForms) -> str | None:
    """Return a sentence if the text is in a file, or if the file cannot be read."""
    try:
        with path.open("rb") as file:
            has_text = _occurs_in_joined_pieces(iter(lambda: file.read(1 << 20), b""), traces)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path} could not be read and may still contain the text: {error.strerror}."
    if not has_text:
        return None
    return f"{path} still contains the text; it could not be removed."
