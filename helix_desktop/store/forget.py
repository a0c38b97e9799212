"""Forgetting: the one operation that removes. A text or an entry leaves cache, journal and backups, down to the bytes of
the files; the index is made anew, and copies of damaged files are thrown away. A tombstone says that it happened.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from helix_desktop.engine import encoding
from helix_desktop.engine import facts as vocabulary
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Fact, Forgotten
from helix_desktop.engine.traces import Traces
from helix_desktop.errors import HelixError, WrongUse
from helix_desktop.store import backup
from helix_desktop.store.config import NAME
from helix_desktop.store.entries import Entries
from helix_desktop.store.journal import JournalFile, Line
from helix_desktop.store.records import Record, State

SHORTEST = 4  # characters; a shorter text would tear holes into everything
BLANK = "[forgotten]"
WHY = "forgotten at the user's request"
_PAGE = 200


class Wanted:
    """What is to be forgotten: a text in all the forms it is stored in, and entries."""

    def __init__(self, text: str, digests: Iterable[Digest]) -> None:
        if text and len(text) < SHORTEST:
            raise WrongUse(
                f"The text to forget must be at least {SHORTEST} characters long.",
                remedy="Enter a longer part of the text.",
            )
        self.digests = set(digests)
        self.named: list[int] = []  # numbers of entries that stay, whose description holds the text
        self.traces = Traces(text) if text else None

    def stands_in(self, text: str) -> bool:
        return self.traces is not None and self.traces.in_text(text)

    def blanked(self, text: str) -> str:
        return self.traces.blanked(text, BLANK) if self.traces else text


# --- the cache -------------------------------------------------------------------------------------------------------


def look(cache: Entries, wanted: Wanted) -> Iterator[int]:
    """Find every entry that holds the text; yields the bytes read, so that others get their turn. Changes nothing."""
    after = 0
    while wanted.traces and (found := cache.records(after, _PAGE)):
        after = found[-1].number
        for record in found:
            if record.state is State.LIVE and _holds(cache, record, wanted.traces):
                wanted.digests.add(record.digest)
            elif wanted.stands_in(record.about.source) or wanted.stands_in(record.about.tool):
                wanted.named.append(record.number)
            yield record.size


def purge_cache(cache: Entries, wanted: Wanted) -> Iterator[None]:
    """Forget what was found and what was named, in slices."""
    for number in wanted.named:
        _blank_record(cache, cache.numbered(number), wanted)
        yield
    for digest in wanted.digests:
        cache.forget(digest)
        yield
    cache.scrub()
    yield


def _holds(cache: Entries, record: Record, traces: Traces) -> bool:
    try:
        return _in_pieces(cache.content(record), traces)
    except HelixError:
        return True  # a damaged entry cannot be shown to be free of it


def _in_pieces(pieces: Iterable[bytes], traces: Traces) -> bool:
    """Also where it is split over two of them."""
    tail = b""
    for piece in pieces:
        held = tail + piece
        if traces.in_bytes(held):
            return True
        tail = held[-traces.overlap :]
    return False


def _blank_record(cache: Entries, record: Record, wanted: Wanted) -> None:
    about = replace(record.about, source=wanted.blanked(record.about.source), tool=wanted.blanked(record.about.tool))
    cache.redescribe(replace(record, about=about))


# --- the journal -----------------------------------------------------------------------------------------------------


def purge_journal(journal: JournalFile, wanted: Wanted) -> dict[str, int]:
    """Blank the text in every fact, and what facts quote of the entries. Returns how many facts of which conversation."""
    changed: dict[str, int] = {}
    after = 0
    while lines := journal.since(after, _PAGE):
        after = lines[-1].id
        for line in lines:
            if (fact := blanked(line, wanted)) is not None:
                journal.replace(line, fact)
                changed[line.conversation] = changed.get(line.conversation, 0) + 1
    for row in journal.conversations():
        if wanted.stands_in(row.meter):
            journal.set_meter(row.id, "")
    journal.scrub()
    return changed


def blanked(line: Line, wanted: Wanted) -> Fact | None:
    """The fact without what is to be forgotten, or None where it has nothing of it."""
    touched = any(digest.hex in line.fact for digest in wanted.digests)
    if not touched and not wanted.stands_in(line.fact):
        return None
    encoding.decode(line.fact)  # a damaged one is told of as such
    fact = encoding.decode(json.dumps(_walk(json.loads(line.fact), wanted), ensure_ascii=False))
    fact = _unquoted(fact, wanted.digests)
    return fact if encoding.encode(fact) != line.fact else None


def _walk(value: Any, wanted: Wanted) -> Any:
    match value:
        case str():
            return wanted.blanked(value)
        case list():
            return [_walk(item, wanted) for item in value]
        case dict():
            return {name: _walk(item, wanted) for name, item in value.items()}
    return value


def _unquoted(fact: Fact, digests: set[Digest]) -> Fact:
    """Facts keep short outputs and excerpts of entries beside the reference: those go with the entry."""
    match fact:
        case vocabulary.ToolReturned() if fact.output.digest in digests:
            return replace(fact, head="")
        case vocabulary.Folded(kind=vocabulary.FoldKind.EXCERPT) if digests.intersection(fact.entries):
            return replace(fact, text=BLANK)
    return fact


def leave_tombstones(journal: JournalFile, changed: dict[str, int], wanted: Wanted) -> None:
    """Say in each conversation that something is gone, and not what."""
    entries = tuple(sorted(wanted.digests))
    for conversation, count in changed.items():
        journal.append(conversation, [Forgotten(entries, count, WHY)])


# --- what lies beside ------------------------------------------------------------------------------------------------


def purge_backups(workspace: Path, wanted: Wanted) -> int:
    """Blank it in every dated copy of the journal; one that cannot be read is deleted. Returns how many had it."""
    return backup.change_each(workspace, lambda journal: purge_journal(journal, wanted))


def drop_remains(workspace: Path) -> None:
    """Copies of damaged files that were kept aside."""
    shutil.rmtree(workspace / "damaged", ignore_errors=True)


def left(workspace: Path, wanted: Wanted) -> Iterator[str]:
    """Read every byte of every file of the workspace: where it still stands, in sentences. What the user writes by hand is theirs
    to edit, the rest could not be removed.
    """
    if wanted.traces is None:
        return
    for path in sorted(each for each in workspace.rglob("*") if each.is_file() and not each.is_symlink()):
        if wanted.stands_in(path.name):
            yield f"The text is part of a file name: {path}. Rename that file."
        if path == workspace / NAME:
            yield from _lines(path, wanted)
        elif (sentence := _unclean(path, wanted.traces)) is not None:
            yield sentence


def _lines(path: Path, wanted: Wanted) -> Iterator[str]:
    for at, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
        if wanted.stands_in(line):
            yield f"The text is in {path}, line {at}. Edit that line."


def _unclean(path: Path, traces: Traces) -> str | None:
    try:
        with path.open("rb") as file:
            found = _in_pieces(iter(lambda: file.read(1 << 20), b""), traces)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"{path} could not be read and may still contain the text: {error.strerror}."
    return f"{path} still contains the text; it could not be removed." if found else None
