"""The index of one workspace: what can be listed, sorted and searched fast. All of it is derived.

It catches up behind watermarks, in slices: first the rows of entries, then the facts, then words and tokens. A crash
loses nothing but work; the file can be deleted and comes back. Plain calls, from one thread; reading has a thread of its own.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from helix_desktop.engine import facts as vocabulary
from helix_desktop.engine.contents import tokens_in
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.encoding import decode
from helix_desktop.engine.facts import Fact
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError, StoreFailed
from helix_desktop.store import database, search_words
from helix_desktop.store.cache import CHECKPOINT
from helix_desktop.store.journal import Line
from helix_desktop.store.records import Record, State
from helix_desktop.values import dataclass

VERSION = 2  # an older one is made anew
APPLICATION = 0x48454C49  # "HELI"
SEARCHED = 8 << 20  # bytes of an entry whose words are indexed; a pattern search inside an entry goes over all of it
_MUCH_MEMORY, _LITTLE_MEMORY = -64_000, -2_000  # in SQLite's own way: KiB, negative
ROWS, FACTS, WORDS = 5000, 1000, 200  # entries and facts of a slice

_SCHEMA = """
CREATE TABLE entries(
  number INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, tool TEXT NOT NULL, source TEXT NOT NULL, media TEXT NOT NULL,
  size INTEGER NOT NULL, kept INTEGER NOT NULL, lines INTEGER NOT NULL, tokens INTEGER NOT NULL, time REAL NOT NULL,
  uses INTEGER NOT NULL, recalled REAL NOT NULL, pinned INTEGER NOT NULL, state INTEGER NOT NULL);
CREATE INDEX by_pinned ON entries(number) WHERE pinned;
CREATE INDEX by_state ON entries(state, number) WHERE state;
CREATE TABLE sources(source TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE uses(
  digest BLOB NOT NULL, conversation TEXT NOT NULL, seq INTEGER NOT NULL, time REAL NOT NULL, how TEXT NOT NULL,
  PRIMARY KEY(digest, conversation, seq, how)) WITHOUT ROWID;
CREATE TABLE members(conversation TEXT NOT NULL, number INTEGER NOT NULL, PRIMARY KEY(conversation, number)) WITHOUT ROWID;
CREATE TABLE pieces(
  id INTEGER PRIMARY KEY, number INTEGER NOT NULL, start INTEGER NOT NULL, length INTEGER NOT NULL,
  conversation TEXT NOT NULL, seq INTEGER NOT NULL);
CREATE INDEX pieces_of ON pieces(number) WHERE number;
CREATE INDEX pieces_in ON pieces(conversation, seq) WHERE seq;
CREATE VIRTUAL TABLE words USING fts5(text, parts, content='', tokenize='unicode61 remove_diacritics 2');
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
"""
Piece = tuple[str, int, int, str, int]  # text, the entry's number, where it begins; conversation and fact
_USED = "UPDATE entries SET uses = uses + column2, recalled = max(recalled, column3) FROM ("
_OF_THESE = ") WHERE digest = column1 RETURNING digest, number"


class IndexDamaged(StoreFailed):
    """The index makes no sense any more; whoever has it open makes it anew."""


# Orders of the catalogue. For many entries at once they are made afterwards: that takes a tenth of the time.
_ORDERS = {
    "by_tool": "tool, number",
    "by_tool_time": "tool, time, number",
    "by_source": "source, number",
    "by_size": "size, number, kept",  # with what the entries take, so that this is summed up without the rows
    "by_tokens": "tokens, number",
    "by_time": "time, number",
    "by_uses": "uses, number",
    "by_recalled": "recalled, number",
}
MANY = 50_000  # entries


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the index is: entries known, entries whose words are in, facts; of how many; and orders still to be made."""

    rows: int
    words: int
    entries: int
    facts: int
    of_facts: int
    orders: int = 0

    @property
    def missing(self) -> int:
        """Entries whose words, and facts, that are not in yet."""
        return self.entries - self.words + self.of_facts - self.facts

    @property
    def done(self) -> bool:
        known = self.rows >= self.entries and self.words >= self.entries and self.facts >= self.of_facts
        return known and not self.orders


class Feed(Protocol):
    """Where the index takes its content from; each call is answered by the thread that owns the stores."""

    def ends(self) -> tuple[int, int]:
        """The highest number of an entry, and the highest id of a fact."""
        ...

    def records(self, after: int, limit: int) -> Sequence[Record]: ...

    def beginnings(self, records: Sequence[Record], limit: int) -> Sequence[tuple[Record, bytes | None]]:
        """The first bytes of as many of the records as come to some megabytes; None for what cannot be read."""
        ...

    def lines(self, after: int, limit: int) -> Sequence[Line]: ...

    def pinned(self) -> frozenset[Digest]: ...

    def numbered(self, digest: Digest) -> Record | None:
        """What is known of an entry, collected or not."""
        ...


class IndexFile:
    """The writing side."""

    def __init__(self, path: Path, feed: Feed, *, count: Callable[[str], int] = lambda _: 0) -> None:
        self._feed = feed
        self._count = count
        self._memory = 0
        self.connection = database.connect(path, IndexDamaged, "index", synchronous="NORMAL")
        self.connection.execute("PRAGMA secure_delete=OFF")  # whatever is to be forgotten, the whole file goes
        self.connection.execute("PRAGMA wal_autocheckpoint=4000")
        database.prepare(self.connection, _SCHEMA, application=APPLICATION, version=VERSION, what="index")
        if self.connection.execute("PRAGMA user_version").fetchone()[0] != VERSION:
            self.close()
            raise IndexDamaged("The index was written by an older version of Helix Desktop.")

    def close(self) -> None:
        self.connection.close()

    def mark(self, name: str) -> int:
        found = self.connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return int(found[0]) if found else 0

    def _set(self, name: str, value: int) -> None:
        self.connection.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (name, value))

    def progress(self) -> Progress:
        entries, facts = self._feed.ends()
        marks = (self.mark("rows"), self.mark("words"), entries, self.mark("facts"), facts)
        return Progress(*marks, len(self._missing_orders()))

    def _missing_orders(self) -> list[str]:
        there = {row[0] for row in self.connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
        return [name for name in _ORDERS if name not in there]

    def _make_order(self, name: str) -> None:
        with self._writing():
            self.connection.execute(f"CREATE INDEX {name} ON entries({_ORDERS[name]})")

    def step(self) -> Progress:
        """One slice of what is missing; call it until it is done. What the stores cannot give now is left for later."""
        with database.Reading(IndexDamaged, "index"):
            return self._step()

    def _step(self) -> Progress:
        progress = self.progress()
        self._make_room(progress)
        if progress.orders and (progress.rows >= progress.entries or progress.entries - progress.rows < MANY):
            self._make_order(self._missing_orders()[0])
        elif progress.rows < progress.entries:
            self._add_rows(progress)
        elif progress.facts < progress.of_facts:
            self._add_facts(progress)
        elif progress.words < progress.entries:
            self._add_words(progress)
        return self.progress()

    def _make_room(self, progress: Progress) -> None:
        """More memory for pages while much is missing, as after a deletion; it is given back when that is done."""
        pages = _MUCH_MEMORY if progress.missing > 10_000 else _LITTLE_MEMORY
        if pages != self._memory:
            self.connection.execute(f"PRAGMA cache_size={pages}")
            self.connection.execute("PRAGMA shrink_memory")
            self._memory = pages

    def _writing(self) -> database.Writing:
        return database.Writing(self.connection, IndexDamaged, "index")

    # --- entries ----------------------------------------------------------------------------------------------------

    def know_rows(self) -> None:
        """Take in a slice of the rows that are missing, and nothing else: enough for all but an index being made."""
        with database.Reading(IndexDamaged, "index"):
            progress = self.progress()
            if progress.rows < progress.entries:
                self._add_rows(progress)

    def _add_rows(self, progress: Progress) -> None:
        found = self._feed.records(progress.rows, ROWS)
        pinned = self._feed.pinned()
        with self._writing():
            listed = [record for record in found if record.about.tool != CHECKPOINT]
            if len(listed) < len(found):
                self._count_checkpoints(found)
            self._insert_rows(listed, pinned)
            last = found[-1].number if found else 0  # some may have come since the entries were counted
            self._set("rows", last if len(found) == ROWS else max(last, progress.entries))

    def _count_checkpoints(self, found: Sequence[Record]) -> None:
        """Contents of checkpoints are nothing to look through or to list; what they take is counted."""
        entries, room = _of_checkpoints(found)
        self._set("checkpoints", self.mark("checkpoints") + entries)
        self._set("checkpoint bytes", self.mark("checkpoint bytes") + room)

    def recount_checkpoints(self) -> Iterator[int]:
        """Contents were removed or forgotten, or are entries like any other by now. In slices: others get their turn between them."""
        entries = room = after = 0
        while after < (last := self.progress().rows):
            found = [record for record in self._feed.records(after, ROWS) if record.number <= last]
            if not found:
                break
            after = found[-1].number
            more = _of_checkpoints(found)
            entries, room = entries + more[0], room + more[1]
            if after < last:
                yield entries
        with self._writing():
            self._set("checkpoints", entries)
            self._set("checkpoint bytes", room)

    def _insert_rows(self, found: Sequence[Record], pinned: frozenset[Digest]) -> None:
        uses = self._used_before(found)
        rows = []
        for record in found:
            before = uses.get(record.digest.raw, ())
            recalled = max((time for _, time, how in before if how == "recall"), default=0.0)
            about = record.about
            row = (
                record.number,
                record.digest.raw,
                about.tool,
                about.source,
                about.media_type,
                record.size,
                record.kept,
            )
            rows.append(
                (*row, record.lines, 0, record.time, len(before), recalled, record.digest in pinned, record.state)
            )
        self._with_rows("INSERT OR IGNORE INTO sources", list({(record.about.source,) for record in found}))
        self._with_rows("INSERT OR REPLACE INTO entries", rows)
        numbers = {record.digest.raw: record.number for record in found}
        self._join(
            [(conversation, numbers[digest]) for digest, before in uses.items() for conversation, _, _ in before]
        )

    def _with_rows(self, before: str, rows: Sequence[Sequence[object]], behind: str = "") -> list[tuple[Any, ...]]:
        return database.with_rows(self.connection, before, rows, behind)

    def _used_before(self, found: Sequence[Record]) -> Mapping[bytes, Sequence[tuple[str, float, str]]]:
        """By entry, the facts that name it and are known already: conversation, time and how."""
        uses: dict[bytes, list[tuple[str, float, str]]] = {}
        digests = [(record.digest.raw,) for record in found]
        for digest, *use in self._with_rows(
            "SELECT digest, conversation, time, how FROM uses WHERE digest IN (", digests, ")"
        ):
            uses.setdefault(digest, []).append(tuple(use))
        return uses

    def _join(self, members: Sequence[tuple[str, int]]) -> None:
        self._with_rows("INSERT OR IGNORE INTO members", list(dict.fromkeys(members)))

    def reread(self, digests: Sequence[Digest]) -> None:
        """Take over what changed of entries that are known already."""
        pinned = self._feed.pinned()
        known = [(digest, self._feed.numbered(digest)) for digest in digests]
        with self._writing():
            for digest, record in known:
                if record is None:
                    self.connection.execute("DELETE FROM entries WHERE digest = ?", (digest.raw,))
                    continue
                self.connection.execute(
                    "UPDATE entries SET pinned = ?, state = ?, kept = ? WHERE digest = ?",
                    (digest in pinned, record.state, record.kept, digest.raw),
                )

    def _add_words(self, progress: Progress) -> None:
        found = self._feed.records(progress.words, WORDS)
        contents = self._feed.beginnings(found, SEARCHED)
        with self._writing():
            texts = [
                (record, content, text)
                for record, content in contents
                if content is not None
                and record.about.tool != CHECKPOINT
                and (text := search_words.readable(content)) is not None
            ]
            self._add_pieces(
                (piece, record.number, start, "", 0)
                for record, _, text in texts
                for start, piece in search_words.pieces(text)
            )
            tokens = [(record.number, tokens_in(record.size, content, self._count)) for record, content, _ in texts]
            self._with_rows("UPDATE entries SET tokens = column2 FROM (", tokens, ") WHERE number = column1")
            complete = len(contents) == len(found) < WORDS
            self._set("words", progress.entries if complete else contents[-1][0].number)

    def _add_pieces(self, pieces: Iterable[Piece]) -> None:
        found = list(pieces)
        (last,) = self.connection.execute("SELECT coalesce(max(id), 0) FROM pieces").fetchone()
        rows = [
            (at, number, start, len(text), *where) for at, (text, number, start, *where) in enumerate(found, last + 1)
        ]
        self._with_rows("INSERT INTO pieces(id, number, start, length, conversation, seq)", rows)
        words = [(at, text, search_words.parts(text)) for at, (text, *_) in enumerate(found, last + 1)]
        for some in _stretches(words):
            self._with_rows("INSERT INTO words(rowid, text, parts)", some)

    # --- facts ------------------------------------------------------------------------------------------------------

    def _add_facts(self, progress: Progress) -> None:
        lines = self._feed.lines(progress.facts, FACTS)
        with self._writing():
            facts = [(line, fact) for line in lines if (fact := _decoded(line)) is not None]
            self._add_pieces(
                (piece, 0, start, line.conversation, line.seq)
                for line, fact in facts
                for text in said(fact)
                for start, piece in search_words.pieces(text)
            )
            self._add_uses(
                [
                    (digest.raw, line.conversation, line.seq, line.time, how)
                    for line, fact in facts
                    for how, digest in used(fact)
                ]
            )
            self._set("facts", lines[-1].id if len(lines) == FACTS else progress.of_facts)

    def _add_uses(self, uses: Sequence[tuple[bytes, str, int, float, str]]) -> None:
        added = self._with_rows("INSERT OR IGNORE INTO uses", uses, "RETURNING digest, conversation, time, how")
        counts = Counter(digest for digest, *_ in added)
        recalled: dict[bytes, float] = {}
        for digest, _, time, how in added:
            if how == "recall":
                recalled[digest] = max(time, recalled.get(digest, 0.0))
        known = dict(
            self._with_rows(
                _USED, [(digest, count, recalled.get(digest, 0.0)) for digest, count in counts.items()], _OF_THESE
            )
        )
        self._join([(conversation, known[digest]) for digest, conversation, *_ in added if digest in known])


def _decoded(line: Line) -> Fact | None:
    try:
        return decode(line.fact)
    except HelixError:
        return None


def said(fact: Fact) -> list[str]:
    """The texts of a fact that a search over messages finds."""
    match fact:
        case vocabulary.UserSaid(parts=parts) | vocabulary.ModelReplied(parts=parts):
            return [part.text for part in parts if isinstance(part, vocabulary.Text) and part.text]
        case vocabulary.Folded(kind=kind, text=text) if kind is not vocabulary.FoldKind.MARKER:
            return [text]
        case vocabulary.DocumentEdited(text=text):
            return [text]
    return []


def used(fact: Fact) -> list[tuple[str, Digest]]:
    """The entries a fact refers to, and how."""
    match fact:
        case vocabulary.UserSaid(parts=parts):
            return [("attachment", part.stored.digest) for part in parts if isinstance(part, vocabulary.Attachment)]
        case vocabulary.ToolReturned():
            changes = [digest for each in fact.changes for digest in (each.before, each.after) if digest]
            return [
                ("output", fact.output.digest),
                *(("image", image.digest) for image in fact.images),
                *(("change", digest) for digest in changes),
            ]
        case vocabulary.Folded(entries=entries):
            return [("fold", digest) for digest in entries]
        case vocabulary.ModelReplied(parts=parts):
            return [("recall", digest) for digest in _recalled(parts)]
    return []


def _recalled(parts: Iterable[object]) -> list[Digest]:
    found = []
    for part in parts:
        if isinstance(part, vocabulary.ToolCall) and part.name.endswith(ToolName.RECALL):
            try:
                found.append(Digest.parse(json.loads(part.arguments)["sha256"]))
            except (ValueError, TypeError, KeyError):
                continue  # a shortened or malformed hash: the recall itself answers that
    return found


def reading(path: Path) -> sqlite3.Connection:
    """A second connection, for the thread that answers questions."""
    connection = database.connect(path, IndexDamaged, "index", synchronous="NORMAL")
    connection.execute("PRAGMA query_only=ON")
    return connection


def _of_checkpoints(found: Sequence[Record]) -> tuple[int, int]:
    """How many contents of checkpoints are among these, and what they take, with what is left of those that were removed."""
    held = [record for record in found if record.about.tool == CHECKPOINT]
    return sum(record.state is State.LIVE for record in held), sum(record.room for record in held)


def _stretches(words: Sequence[tuple[int, str, str]]) -> Iterator[Sequence[tuple[int, str, str]]]:
    """Rows with so much text together that taking them over does not hold the interpreter for long."""
    begin = size = 0
    for end, (_, text, _) in enumerate(words, 1):
        size += len(text)
        if size >= search_words.SLICE or end == len(words):
            yield words[begin:end]
            begin, size = end, 0
