"""The journal of one workspace: facts that are only ever appended, in SQLite. Plain calls, from one thread.

WAL with synchronous=FULL: what `append` returned is on the disk. Each fact carries a digest over its place and its text, so
damage is found and named. The table of conversations is derived, and kept in the same transaction.
"""

from __future__ import annotations

import hashlib
import time as clock
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from helix_desktop.engine import encoding
from helix_desktop.engine.facts import BroughtIn, ConversationStarted, Fact, ModelReplied, Origin, Recorded
from helix_desktop.errors import JournalCorrupt, NotThere, StoreFailed, WrongUse
from helix_desktop.store import database
from helix_desktop.store.conversations import COLUMNS, Row, advance, empty
from helix_desktop.values import dataclass

VERSION = 1
STEPS: dict[int, str] = {}  # by version, the SQL that leads to the next; kept as long as old journals may turn up
APPLICATION = 0x48454C4A  # "HELJ"

_SCHEMA = f"""
CREATE TABLE facts(
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  conversation TEXT NOT NULL,
  seq INTEGER NOT NULL,
  time REAL NOT NULL,
  fact TEXT NOT NULL,
  digest BLOB NOT NULL,
  UNIQUE(conversation, seq)
);
CREATE TABLE conversations({", ".join(f"{name} {kind}" for name, kind in COLUMNS)}, PRIMARY KEY(id));
CREATE TABLE meters(conversation TEXT PRIMARY KEY, meter TEXT NOT NULL);
"""
_UPSERT = f"INSERT OR REPLACE INTO conversations VALUES({', '.join('?' * len(COLUMNS))})"
_BROUGHT = """substr(fact, 1, 19) = '{"fact":"BroughtIn"'"""
_BROUGHT_INDEX = f"CREATE INDEX IF NOT EXISTS brought_in ON facts(id) WHERE {_BROUGHT}"
_BROUGHT_FACTS = f"SELECT id, conversation, seq, time, fact, digest FROM facts WHERE {_BROUGHT} ORDER BY id"  # noqa: S608
_BROUGHT_BEHIND = f"SELECT id, conversation, seq, time, fact, digest FROM facts WHERE conversation = ? AND seq > ? AND {_BROUGHT} ORDER BY seq"  # noqa: S608
# The last fact that begins, goes on with or ends a turn ends none. A day: what runs has written something since.
_OPEN_TURNS = """
SELECT id FROM conversations WHERE updated > (SELECT max(updated) - 86400 FROM conversations) AND coalesce(
  (SELECT substr(fact, 10, 10) FROM facts WHERE conversation = conversations.id
    AND substr(fact, 10, 9) IN ('TurnEnded', 'UserSaid"', 'ModelRepl', 'ToolRetur') ORDER BY seq DESC LIMIT 1), 'TurnEnded"'
) <> 'TurnEnded"' ORDER BY updated
"""
_WITHOUT_EFFECT = '{"fact":"ToolReturned","version":1,'
_INSERT = "INSERT INTO facts(conversation, seq, time, fact, digest)"


@dataclass(frozen=True, slots=True)
class Line:
    """A fact as it is stored: `id` counts over all conversations, so it is what others catch up by."""

    id: int
    conversation: str
    seq: int
    time: float
    fact: str
    digest: bytes

    @property
    def intact(self) -> bool:
        return self.digest == seal(self.conversation, self.seq, self.time, self.fact)

    def recorded(self) -> Recorded:
        if not self.intact:
            raise _corrupt(self.conversation, self.seq, "does not match its digest")
        return Recorded(self.conversation, self.seq, self.time, encoding.decode(self.fact))


def seal(conversation: str, seq: int, time: float, fact: str) -> bytes:
    """The digest of a fact in its place."""
    return hashlib.sha256(f"{conversation}\0{seq}\0{time!r}\0{fact}".encode()).digest()


class JournalFile:
    """The open journal. One of an older version is brought up to this one, unless the caller wants to do so later. `unseen`: only to
    read from, see `database.connect_unseen`.
    """

    def __init__(
        self, path: Path, *, now: Callable[[], float] = clock.time, upgrade: bool = True, unseen: bool = False
    ) -> None:
        self.path = path
        self._now = now
        self.replacing: Callable[[Line], object] = lambda _line: None  # heard within the transaction
        self.connection = (database.connect_unseen if unseen else database.connect)(path, JournalCorrupt, "journal")
        self.connection.text_factory = _readable
        database.prepare(self.connection, _SCHEMA, application=APPLICATION, version=VERSION, what="journal")
        if upgrade:
            self.upgrade()

    @property
    def version(self) -> int:
        """Of its format, as the file stands."""
        with self._reading():
            return database.version_of(self.connection)

    @property
    def outdated(self) -> bool:
        return self.version < VERSION

    def upgrade(self) -> None:
        """To this version, all at once or not at all."""
        database.upgrade(self.connection, STEPS, VERSION, "journal")

    def close(self) -> None:
        self.connection.close()

    def scrub(self) -> None:
        """Rewrite the whole file and empty its log, so that what was deleted is in neither."""
        with self._reading():
            database.scrub(self.connection)

    def as_one_file(self) -> None:
        """Without a log beside it, until it is opened again."""
        with self._reading():
            self.connection.execute("PRAGMA journal_mode=DELETE")

    def append(self, conversation: str, facts: Sequence[Fact]) -> tuple[Recorded, ...]:
        """All of them or none, on the disk when this returns. A new conversation begins with its first fact."""
        if not facts:
            return ()
        if not conversation:
            raise WrongUse("A conversation must have an ID.")
        time = self._now()
        with self._writing():
            row = self._row(conversation) or empty(conversation, time)
            recorded = tuple(Recorded(conversation, row.last_seq + 1 + i, time, fact) for i, fact in enumerate(facts))
            self._insert(row, recorded)
        return recorded

    def append_together(self, batches: Sequence[tuple[str, Sequence[Fact]]]) -> list[tuple[Recorded, ...]]:
        """Facts of several conversations in one transaction: all of them or none."""
        with self._writing():
            return [self.append(conversation, facts) for conversation, facts in batches]

    def bring_in(self, conversation: str, facts: Sequence[tuple[float, Fact]], meter: str = "") -> tuple[Recorded, ...]:
        """Like `append`, for facts that happened at other times: each has its own, and none is before the one in front of it."""
        with self._writing():
            row = self._row(conversation) or empty(conversation, facts[0][0] if facts else self._now())
            recorded, time = [], row.updated
            for number, (when, fact) in enumerate(facts, row.last_seq + 1):
                time = max(time, when)
                recorded.append(Recorded(conversation, number, time, fact))
            self._insert(row, recorded)
            if meter:
                self.set_meter(conversation, meter)
        return tuple(recorded)

    def brought_in(self) -> tuple[Recorded, ...]:
        """Every fact that tells of an import, the oldest first; found by an index of their own."""
        with self._reading():
            self.connection.execute(_BROUGHT_INDEX)
            rows = self.connection.execute(_BROUGHT_FACTS)
            return tuple(_line(row).recorded() for row in rows)

    def _insert(self, row: Row, recorded: Sequence[Recorded]) -> None:
        rows = []
        for each in recorded:
            text = encoding.encode(each.fact)
            digest = seal(each.conversation, each.seq, each.time, text)
            rows.append((each.conversation, each.seq, each.time, text, digest))
        database.with_rows(self.connection, _INSERT, rows)
        self.connection.execute(_UPSERT, advance(row, recorded).values())

    def read(self, conversation: str, after: int = 0, limit: int = 0) -> tuple[Recorded, ...]:
        """The facts behind `after`; an unknown conversation has none. Every one is checked, and none may be missing."""
        found: list[Recorded] = []
        for line in self.lines(conversation, after, limit):
            if line.seq != after + len(found) + 1:
                raise _corrupt(conversation, after + len(found) + 1, "is missing")
            found.append(line.recorded())
        if not limit or len(found) < limit:
            with self._reading():
                row = self._row(conversation)
            last = row.last_seq if row else 0
            if after + len(found) < last:
                raise _corrupt(conversation, after + len(found) + 1, "is missing")
        return tuple(found)

    def lines(self, conversation: str, after: int = 0, limit: int = 0) -> list[Line]:
        with database.Reading(JournalCorrupt, f"journal's conversation {conversation}"):
            rows = self.connection.execute(
                "SELECT id, conversation, seq, time, fact, digest FROM facts WHERE conversation = ? AND seq > ?"
                " ORDER BY seq LIMIT ?",
                (conversation, after, limit or -1),
            )
            return [_line(row) for row in rows]

    def since(self, watermark: int, limit: int) -> list[Line]:
        """Facts of all conversations in the order they were written, behind `watermark`."""
        with self._reading():
            rows = self.connection.execute(
                "SELECT id, conversation, seq, time, fact, digest FROM facts WHERE id > ? ORDER BY id LIMIT ?",
                (watermark, limit),
            )
            return [_line(row) for row in rows]

    def fork(self, conversation: str, at: int, new: str) -> tuple[Recorded, ...]:
        """Copy the facts up to `at`, with their numbers and times, and begin the new conversation behind them."""
        copied = tuple(
            Recorded(new, each.seq, each.time, each.fact) for each in (self.read(conversation, 0, at) if at > 0 else ())
        )
        if len(copied) != at or at < 1:
            raise NotThere(f"The conversation {conversation} has no fact {at} to fork from.")
        time = self._now()
        begun = [Recorded(new, at + 1, time, ConversationStarted(forked_from=conversation, forked_at=at))]
        if (first := self._elsewhere(conversation, at)) is not None:
            paid = sum(one.fact.usage.cost for one in copied[max(0, first - 1) :] if isinstance(one.fact, ModelReplied))
            begun.append(Recorded(new, at + 2, time, BroughtIn(Origin(), "", first, cost=paid)))
        with self._writing():
            if self._row(new) is not None:
                raise WrongUse(f"The conversation {new} already exists.")
            self._insert(empty(new, copied[0].time), (*copied, *begun))
        return (*copied, *begun)

    def _elsewhere(self, conversation: str, at: int) -> int | None:
        """From which fact up to `at` all is another program's, where the fact that tells so stands behind it."""
        with self._reading():
            rows = self.connection.execute(_BROUGHT_BEHIND, (conversation, at)).fetchall()
        brought = (_line(row).recorded().fact for row in rows)
        firsts = (one.first for one in brought if isinstance(one, BroughtIn) and one.first <= at and not one.undone)
        return next(firsts, None)

    def with_open_turns(self) -> tuple[str, ...]:
        """Conversations of the last day of work that may be in the middle of a turn; their facts tell for sure."""
        with self._reading():
            return tuple(str(name) for (name,) in self.connection.execute(_OPEN_TURNS))

    def conversations(self) -> tuple[Row, ...]:
        """All of them, the one changed last first."""
        with self._reading():
            rows = self.connection.execute(
                "SELECT conversations.*, coalesce(meter, '') FROM conversations"
                " LEFT JOIN meters ON meters.conversation = conversations.id ORDER BY updated DESC, id"
            )
            return tuple(Row.of(row) for row in rows)

    def conversation(self, conversation: str) -> Row:
        with self._reading():
            row = self._row(conversation)
        if row is None:
            raise NotThere(f"There is no conversation {conversation} in this workspace.")
        return row

    def _row(self, conversation: str) -> Row | None:
        found = self.connection.execute(
            "SELECT conversations.*, coalesce(meter, '') FROM conversations"
            " LEFT JOIN meters ON meters.conversation = conversations.id WHERE id = ?",
            (conversation,),
        ).fetchone()
        return Row.of(found) if found else None

    def set_meter(self, conversation: str, meter: str) -> None:
        """Keep a derived text beside the conversation, for lists: what its context holds."""
        with self._writing():
            self.connection.execute("INSERT OR REPLACE INTO meters VALUES(?, ?)", (conversation, meter))

    def remove(self, conversation: str) -> int:
        """Delete a conversation for good. Returns how many facts it had."""
        with self._writing():
            gone = self.connection.execute("DELETE FROM facts WHERE conversation = ?", (conversation,)).rowcount
            self.connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
            self.connection.execute("DELETE FROM meters WHERE conversation = ?", (conversation,))
        return gone

    def restore(self, lines: Sequence[Line]) -> None:
        """Put stored facts back as they were (an import, a repair); the derived tables follow."""
        with self._writing():
            database.with_rows(self.connection, _INSERT, list(map(_row_of, lines)))
            for conversation in dict.fromkeys(line.conversation for line in lines):
                self._derive(conversation)

    def take(self, lines: Sequence[Line], *, sealed: bool = False) -> None:
        """Like `restore`, for many facts in order: each conversation's row goes on from where it is. `sealed`: their digests were made
        here just now.
        """
        with self._writing():
            database.with_rows(self.connection, _INSERT, list(map(_row_of, lines)))
            of: dict[str, list[Line]] = {}
            for line in lines:
                of.setdefault(line.conversation, []).append(line)
            for conversation, own in of.items():
                row = self._row(conversation) or empty(conversation, own[0].time)
                row = _advanced(row, own) if sealed else advance(row, (line.recorded() for line in own))
                self.connection.execute(_UPSERT, row.values())

    def together(self) -> database.Writing:
        """What is written within is one transaction."""
        return self._writing()

    def cut(self, conversation: str, after: int) -> None:
        """Take out the facts behind `after`: for those that another conversation has since (`shared/in_step.py`) alone."""
        with self._writing():
            self.connection.execute("DELETE FROM facts WHERE conversation = ? AND seq > ?", (conversation, after))
            self.connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
            self._derive(conversation)

    def replace(self, line: Line, fact: Fact) -> None:
        """Put another fact in a fact's place: for forgetting and for repairs alone."""
        text = encoding.encode(fact)
        digest = seal(line.conversation, line.seq, line.time, text)
        with self._writing():
            self.replacing(line)
            self.connection.execute("UPDATE facts SET fact = ?, digest = ? WHERE id = ?", (text, digest, line.id))
            self._derive(line.conversation)

    def _derive(self, conversation: str) -> None:
        """Compute the conversation's row anew from its facts."""
        if lines := self.lines(conversation):
            row = advance(empty(conversation, lines[0].time), (line.recorded() for line in lines))
            self.connection.execute(_UPSERT, row.values())

    def count(self) -> int:
        with self._reading():
            return int(self.connection.execute("SELECT count(*) FROM facts").fetchone()[0])

    def last(self) -> int:
        """The highest id given to a fact."""
        with self._reading():
            return int(self.connection.execute("SELECT coalesce(max(id), 0) FROM facts").fetchone()[0])

    def damage(self) -> Iterator[str]:
        """Check everything; each defect in a sentence."""
        yield from database.defects(self.connection, "journal")
        try:
            yield from self._defects()
        except StoreFailed as error:
            yield error.what

    def _defects(self) -> Iterator[str]:
        rows = {row.id: row for row in self.conversations()}
        with self._reading():
            names = [row[0] for row in self.connection.execute("SELECT DISTINCT conversation FROM facts")]
        for name in names:
            yield from self._damage(name, rows.pop(name, None))
        for name in rows:
            yield f"The conversation {name} has lost its facts."

    def _damage(self, conversation: str, row: Row | None) -> Iterator[str]:
        expected, derived, whole = 1, None, True
        for line in self.lines(conversation):
            if line.seq != expected:
                whole = False
                yield f"Fact {expected} of the conversation {conversation} is missing."
            expected = line.seq + 1
            try:
                derived = advance(derived or empty(conversation, line.time), [line.recorded()])
            except JournalCorrupt as error:
                whole = False
                yield error.what
        if row is None or row.last_seq >= expected:
            yield f"The end of the conversation {conversation} is missing, or its row is damaged."
        elif whole and derived is not None and row.values() != derived.values():
            yield f"The row of the conversation {conversation} is damaged."

    def _writing(self) -> database.Writing:
        return database.Writing(self.connection, JournalCorrupt, "journal")

    def _reading(self) -> database.Reading:
        return database.Reading(JournalCorrupt, "journal")


def _advanced(row: Row, lines: Sequence[Line]) -> Row:
    """The row after these intact facts. One that changes no row is not decoded: of many facts these are half."""
    some = (line for line in lines if not line.fact.startswith(_WITHOUT_EFFECT))
    row = advance(row, (Recorded(line.conversation, line.seq, line.time, encoding.decode(line.fact)) for line in some))
    return replace(row, last_seq=lines[-1].seq, updated=lines[-1].time)


def _readable(raw: bytes) -> str:
    """Damaged text is read as far as it goes: the digest then names the fact it stands in."""
    return raw.decode("utf-8", "replace")


def _row_of(line: Line) -> tuple[str, int, float, str, bytes]:
    return (line.conversation, line.seq, line.time, line.fact, line.digest)


def _line(row: tuple[int, str, int, float, str, bytes]) -> Line:
    return Line(*row)


def _corrupt(conversation: str, seq: int, what: str) -> JournalCorrupt:
    return JournalCorrupt(
        f"Fact {seq} of the conversation {conversation} {what}.",
        remedy="Open the workspace again to repair it from its backups.",
    )
