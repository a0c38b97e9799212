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
from helix_desktop.errors import HelixError, WrongUse
from helix_desktop.store import backup
from helix_desktop.store.config import NAME
from helix_desktop.store.entries import Entries
from helix_desktop.store.journal import JournalFile, Line
from helix_desktop.store.records import Record, State

SHORTEST = 4  # characters; a shorter text would tear holes into everything
BLANK = "[forgotten]"
_PAGE = 200


class Wanted:
    """What is to be forgotten: a text in all the forms it is stored in, and entries."""

    def __init__(self, text: str, digests: Iterable[Digest]) -> None:
        if text and len(text) < SHORTEST:
            raise WrongUse(f"A text to be forgotten has at least {SHORTEST} characters.", remedy="Give more of it.")
        self.digests = set(digests)
        self.named: list[int] = []  # numbers of entries that stay, whose description holds the text
        self.forms = _forms(text) if text else ()
        codings = ("utf-8", "utf-16-le", "utf-16-be")
        self.bytes = tuple({form.encode(coding, "replace") for form in self.forms for coding in codings})

    def stands_in(self, text: str) -> bool:
        return any(form in text for form in self.forms)

    def blanked(self, text: str) -> str:
        for form in self.forms:
            text = text.replace(form, BLANK)
        return text


def _forms(text: str) -> tuple[str, ...]:
    """As it is, and as it stands in JSON and in JSON inside JSON; the longest first."""
    found = {text}
    for _ in range(2):
        found |= {json.dumps(each, ensure_ascii=ascii_)[1:-1] for each in found for ascii_ in (True, False)}
    return tuple(sorted(found, key=len, reverse=True))


# --- the cache -------------------------------------------------------------------------------------------------------


def look(cache: Entries, wanted: Wanted) -> Iterator[int]:
    """Find every entry that holds the text; yields the bytes read, so that others get their turn. Changes nothing."""
    after = 0
    while wanted.bytes and (found := cache.records(after, _PAGE)):
        after = found[-1].number
        for record in found:
            if record.state is State.LIVE and _holds(cache, record, wanted):
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


def _holds(cache: Entries, record: Record, wanted: Wanted) -> bool:
    overlap = max(map(len, wanted.bytes)) - 1
    tail = b""
    try:
        for chunk in cache.content(record):
            held = tail + chunk
            if any(form in held for form in wanted.bytes):
                return True
            tail = held[-overlap:]
    except HelixError:
        return True  # a damaged entry cannot be shown to be free of it
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
            if (fact := _blanked(line, wanted)) is not None:
                journal.replace(line, fact)
                changed[line.conversation] = changed.get(line.conversation, 0) + 1
    for row in journal.conversations():
        if wanted.stands_in(row.meter):
            journal.set_meter(row.id, "")
    journal.scrub()
    return changed


def _blanked(line: Line, wanted: Wanted) -> Fact | None:
    """The fact without what is to be forgotten, or None where it has nothing of it."""
    touched = any(digest.hex in line.fact for digest in wanted.digests)
    if not touched and not wanted.stands_in(line.fact):
        return None
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
        journal.append(conversation, [Forgotten(entries, count, "forgotten at the user's wish")])


# --- what lies beside ------------------------------------------------------------------------------------------------


def purge_backups(workspace: Path, wanted: Wanted) -> int:
    """Blank it in every dated copy of the journal; one that cannot be read is deleted. Returns how many had it."""
    return backup.change_each(workspace, lambda journal: purge_journal(journal, wanted))


def drop_remains(workspace: Path) -> None:
    """Copies of damaged files that were kept aside."""
    shutil.rmtree(workspace / "damaged", ignore_errors=True)


def elsewhere(workspace: Path, wanted: Wanted) -> tuple[str, ...]:
    """Where it stands in what the user writes by hand."""
    path = workspace / NAME
    lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
    return tuple(
        f"It stands in {path}, line {at}: edit that." for at, line in enumerate(lines, 1) if wanted.stands_in(line)
    )
