"""What this machine knows of the others: for each conversation how far they have it, and the head as it was seen last.

A table in the journal, so that it changes with the facts in one transaction. It is derived: without it, what is here is
compared with what is shared from the first fact on.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from helix_desktop.engine.facts import ConversationStarted, Forgotten
from helix_desktop.errors import JournalCorrupt
from helix_desktop.store import database
from helix_desktop.store.journal import JournalFile, Line, seal
from helix_desktop.store.shared import segments
from helix_desktop.store.shared.segments import Contents

_IN_STEP = (
    "CREATE TABLE IF NOT EXISTS in_step(conversation TEXT PRIMARY KEY, seq INTEGER NOT NULL, chain BLOB NOT NULL,"
    " version INTEGER NOT NULL, writer BLOB NOT NULL, head BLOB NOT NULL)"
)
_SHARING = "CREATE TABLE IF NOT EXISTS sharing(name TEXT PRIMARY KEY, value TEXT NOT NULL)"
_WAITING = (
    "SELECT conversations.id, conversations.last_seq - coalesce(in_step.seq, 0) FROM conversations"
    " LEFT JOIN in_step ON in_step.conversation = conversations.id"
    " WHERE conversations.last_seq > coalesce(in_step.seq, 0) ORDER BY conversations.updated"
)
_REMOVED = (
    "SELECT in_step.conversation FROM in_step LEFT JOIN conversations ON conversations.id = in_step.conversation"
    " WHERE conversations.id IS NULL"
)


@dataclass(frozen=True, slots=True)
class Known:
    """The others have the facts up to `seq`, where the chain's link is `chain`. `version`, `writer` and `contents`: of the head."""

    conversation: str
    seq: int = 0
    chain: bytes = segments.NOTHING
    version: int = 0
    writer: bytes = b""
    contents: Contents | None = None

    @property
    def stale(self) -> bool:
        """Whether what is there of it was changed here in place: it is sent anew."""
        return self.contents is not None and bool(self.contents.segments) and self.contents.last == 0


class InStep:
    """The table of an open journal; used from the thread that owns it."""

    def __init__(self, journal: JournalFile) -> None:
        self._journal = journal
        with self._reading():
            for table in (_IN_STEP, _SHARING):
                journal.connection.execute(table)
        self.machine = bytes.fromhex(self._value("machine") or self._set("machine", secrets.token_hex(16)))

    @property
    def mark(self) -> int:
        """Up to which of the engine's changes everything was looked at."""
        return int(self._value("mark") or 0)

    @mark.setter
    def mark(self, mark: int) -> None:
        self._set("mark", str(mark))

    def of(self, conversation: str) -> Known:
        with self._reading():
            row = self._journal.connection.execute(
                "SELECT conversation, seq, chain, version, writer, head FROM in_step WHERE conversation = ?",
                (conversation,),
            ).fetchone()
        return _known(row) if row else Known(conversation)

    def as_here(self, conversation: str) -> Known:
        """The same; of a conversation that was removed here nothing is left to go on from."""
        with self._reading():
            there = self._journal.connection.execute(
                "SELECT 1 FROM conversations WHERE id = ?", (conversation,)
            ).fetchone()
        known = self.of(conversation)
        return known if there else replace(known, seq=0, chain=segments.NOTHING)

    def doubt(self) -> None:
        """What the others have is not known any more, and is compared from the first fact on."""
        with self._journal.together():
            self._journal.connection.execute("DELETE FROM in_step")

    def all(self) -> tuple[Known, ...]:
        with self._reading():
            rows = self._journal.connection.execute(
                "SELECT conversation, seq, chain, version, writer, head FROM in_step"
            )
            return tuple(_known(row) for row in rows)

    def segment_names(self) -> tuple[bytes, ...]:
        """What this machine needs of the engine's rows for its conversations."""
        return tuple(one.name for known in self.all() if known.contents for one in known.contents.segments)

    def rewritten(self, conversations: Iterable[str]) -> None:
        """Facts of these were changed in place, which only forgetting does: they are to be sent anew, as the next generation."""
        for conversation in conversations:
            known = self.of(conversation)
            if known.contents is None or not known.seq:
                continue
            chain = segments.chain(segments.NOTHING, self._journal.lines(conversation, 0, known.seq))
            contents = replace(known.contents, generation=known.contents.generation + 1, last=0)
            self.put(replace(known, chain=chain, contents=contents))

    def settle(self, known: Known, lines: Sequence[Line], seen: Known) -> int | None:
        """Another machine has the facts changed in place, or this one: the changed text holds. Gives the number behind which both wrote."""
        here = self._journal.lines(known.conversation)
        agreed = min(known.seq, len(lines))
        ahead = (
            known.contents is not None
            and seen.contents is not None
            and known.contents.generation > seen.contents.generation
        )
        mine, theirs = here[agreed:], list(lines[agreed:])
        common = segments.common(mine, theirs)
        marks = [line.recorded().fact for line in mine[common:]]
        apart = common < min(len(mine), len(theirs))
        with self._journal.together():
            for ours, other in zip(here[:agreed], lines[:agreed], strict=True):
                if not ahead and ours.fact != other.fact:
                    self._journal.replace(ours, other.recorded().fact)
            if apart and not all(isinstance(fact, Forgotten) for fact in marks):
                return agreed + common
            if apart:
                self._journal.cut(known.conversation, agreed + common)
            self._journal.take(theirs[common:] if apart else theirs[len(mine) :], sealed=True)
            if ahead and apart:
                self._journal.append(known.conversation, marks)
            if ahead and known.contents is not None and seen.contents is not None:
                chain = segments.chain(segments.NOTHING, self._journal.lines(known.conversation, 0, seen.seq))
                contents = replace(seen.contents, generation=known.contents.generation, last=0)
                seen = replace(seen, chain=chain, contents=contents)
            self.put(seen)
        return None

    def put(self, known: Known) -> None:
        head = segments.write(known.contents) if known.contents else b""
        with self._journal.together():
            self._journal.connection.execute(
                "INSERT OR REPLACE INTO in_step VALUES(?, ?, ?, ?, ?, ?)",
                (known.conversation, known.seq, known.chain, known.version, known.writer, head),
            )

    def waiting(self) -> dict[str, int]:
        """How many facts of each conversation the others do not have yet, the one that waits longest first."""
        with self._reading():
            return {str(name): int(count) for name, count in self._journal.connection.execute(_WAITING)}

    def removed(self) -> tuple[str, ...]:
        """Conversations that were shared and are not here any more."""
        with self._reading():
            return tuple(str(name) for (name,) in self._journal.connection.execute(_REMOVED))

    # --- steps that change facts and what is known of the others together

    def take(self, lines: Sequence[Line], known: Known) -> None:
        """Facts of another machine behind those that are here."""
        with self._journal.together():
            self._journal.take(lines, sealed=True)
            self.put(known)

    def part(
        self, conversation: str, at: int, branch: str, started: ConversationStarted, lines: Sequence[Line], known: Known
    ) -> None:
        """Two machines wrote behind `at`. What was written here becomes the conversation `branch`, whole and with its numbers, and
        what the other wrote takes its place: all in one transaction, so that no fact is ever missing.
        """
        here = self._journal.lines(conversation)
        with self._journal.together():
            self._journal.restore([_moved(line, branch) for line in here])
            self._journal.append(branch, [started])
            self._journal.cut(conversation, at)
            self._journal.take(lines, sealed=True)
            self.put(known)

    def _value(self, name: str) -> str:
        with self._reading():
            row = self._journal.connection.execute("SELECT value FROM sharing WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def _set(self, name: str, value: str) -> str:
        with self._journal.together():
            self._journal.connection.execute("INSERT OR REPLACE INTO sharing VALUES(?, ?)", (name, value))
        return value

    def _reading(self) -> database.Reading:
        return database.Reading(JournalCorrupt, "journal")


def _moved(line: Line, conversation: str) -> Line:
    line.recorded()  # a fact that is damaged is not sealed anew
    return Line(0, conversation, line.seq, line.time, line.fact, seal(conversation, line.seq, line.time, line.fact))


def _known(row: tuple[str, int, bytes, int, bytes, bytes]) -> Known:
    conversation, seq, chain, version, writer, head = row
    return Known(conversation, seq, chain, version, writer, segments.read(head) if head else None)
