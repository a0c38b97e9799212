"""What this machine knows of the others: for each conversation how far they have it, and the head as it was seen last.

A table in the journal, so that it changes with the facts in one transaction. It is derived: without it, what is here is
compared with what is shared from the first fact on.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helix_desktop.engine import encoding
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import ConversationStarted, Fact, Forgotten
from helix_desktop.errors import JournalCorrupt
from helix_desktop.store import database, forget
from helix_desktop.store.journal import JournalFile, Line, seal
from helix_desktop.store.shared import segments
from helix_desktop.store.shared.segments import Contents
from helix_desktop.values import dataclass

if TYPE_CHECKING:
    from helix_desktop.store.shared.sealing import Seal

_IN_STEP = (
    "CREATE TABLE IF NOT EXISTS in_step(conversation TEXT PRIMARY KEY, seq INTEGER NOT NULL, chain BLOB NOT NULL,"
    " version INTEGER NOT NULL, writer BLOB NOT NULL, head BLOB NOT NULL)"
)
_SHARING = "CREATE TABLE IF NOT EXISTS sharing(name TEXT PRIMARY KEY, value TEXT NOT NULL)"
_BLANKED = "CREATE TABLE IF NOT EXISTS blanked(name BLOB PRIMARY KEY, conversation TEXT NOT NULL, seq INTEGER NOT NULL)"
_HEX = re.compile("[0-9a-f]{64}")
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
    def generation(self) -> int:
        return self.contents.generation if self.contents else 0

    @property
    def stale(self) -> bool:
        """Whether what is there of it was changed here in place: it is sent anew."""
        return self.contents is not None and bool(self.contents.segments) and self.contents.last == 0


class InStep:
    """The table of an open journal; used from the thread that owns it."""

    def __init__(
        self, journal: JournalFile, seal_: Seal | None = None, forgotten: Callable[[Digest], bool] | None = None
    ) -> None:
        self._journal, self._seal, self._forgotten = journal, seal_, forgotten
        with self._reading():
            for table in (_IN_STEP, _SHARING, _BLANKED):
                journal.connection.execute(table)
        if seal_ is not None:
            journal.replacing = self._remember
        self.machine = bytes.fromhex(self._value("machine") or self._set("machine", secrets.token_hex(16)))

    @property
    def mark(self) -> int:
        """Up to which of the engine's changes everything was looked at."""
        return int(self._value("mark") or 0)

    @mark.setter
    def mark(self, mark: int) -> None:
        self._set("mark", str(mark))

    @property
    def unread(self) -> frozenset[bytes]:
        """Heads before the mark that could not be taken in: damaged ones, and those of conversations somebody worked in."""
        return frozenset(map(bytes.fromhex, self._value("unread").split()))

    @unread.setter
    def unread(self, names: frozenset[bytes]) -> None:
        self._set("unread", " ".join(sorted(name.hex() for name in names)))

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
        ahead = known.generation > seen.generation
        mine, theirs = here[agreed:], lines[agreed:]
        common = segments.common(mine, theirs)
        marks = [line.recorded().fact for line in mine[common:]]
        apart = common < min(len(mine), len(theirs))
        with self._journal.together():
            for ours, other in zip(here[:agreed], lines[:agreed], strict=True):
                if not ahead and ours.fact != other.fact:
                    self._journal.replace(ours, self._both(ours, other) if known.stale else other.recorded().fact)
            if apart and not all(isinstance(fact, Forgotten) for fact in marks):
                return agreed + common
            if apart:
                self._journal.cut(known.conversation, agreed + common)
            self._journal.take(theirs[common:] if apart else theirs[len(mine) :], sealed=True)
            self.put(seen)
            self._compare(seen, marks)
        return None

    def put(self, known: Known) -> None:
        head = segments.write(known.contents) if known.contents else b""
        with self._journal.together():
            self._journal.connection.execute(
                "INSERT OR REPLACE INTO in_step VALUES(?, ?, ?, ?, ?, ?)",
                (known.conversation, known.seq, known.chain, known.version, known.writer, head),
            )

    def put_all(self, known: Iterable[Known]) -> None:
        """Several in one transaction, and one sync."""
        with self._journal.together():
            for one in known:
                self.put(one)

    def waiting(self) -> dict[str, int]:
        """How many facts of each conversation the others do not have yet, the one that waits longest first."""
        with self._reading():
            return {str(name): int(count) for name, count in self._journal.connection.execute(_WAITING)}

    def removed(self) -> tuple[str, ...]:
        """Conversations that were shared and are not here any more."""
        with self._reading():
            return tuple(str(name) for (name,) in self._journal.connection.execute(_REMOVED))

    # --- steps that change facts and what is known of the others together

    def take(self, lines: Sequence[Line], known: Known, *, anew: bool = False) -> None:
        """Facts of another machine behind those that are here. `anew`: they were not taken as they came."""
        with self._journal.together():
            self._journal.take(lines, sealed=True)
            self.put(known)
            if anew:
                self._compare(known)

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
            moved = "UPDATE blanked SET conversation = ? WHERE conversation = ? AND seq > ?"
            self._journal.connection.execute(moved, (branch, conversation, at))
            self._journal.take(lines, sealed=True)
            self.put(known)
            self._compare(known)

    # --- what was forgotten

    def obeyed(self, lines: Sequence[Line]) -> list[Line]:
        """These facts of another machine as they are taken in: what was forgotten here comes back in none of them."""
        with self._reading():
            known = dict(self._journal.connection.execute("SELECT name, rowid FROM blanked"))
        return [self._obeyed(line, known) for line in lines] if known or self._forgotten else list(lines)

    def _obeyed(self, line: Line, blanked: dict[bytes, int]) -> Line:
        if blanked and (row := blanked.get(self._name(line))):
            return _with(line, self._blanked(line, row))
        found = {Digest.parse(one) for one in _HEX.findall(line.fact)} if self._forgotten else ()
        gone = [one for one in found if self._forgotten and self._forgotten(one)]
        fact = forget.blanked(line, forget.Wanted("", gone)) if gone else None
        return line if fact is None else _with(line, encoding.encode(fact))

    def _blanked(self, line: Line, row: int) -> str:
        """What stands here in this fact's place; only a mark where it is gone altogether."""
        asked = "SELECT conversation, seq FROM blanked WHERE rowid = ?"
        conversation, seq = self._journal.connection.execute(asked, (row,)).fetchone()
        there = next(iter(self._journal.lines(conversation, seq - 1, 1)), None)
        if there is None or there.time != line.time:
            return encoding.encode(Forgotten((), 1, forget.WHY))
        return there.fact

    def _remember(self, line: Line) -> None:
        """Which fact is being changed in place: by a keyed digest, from which nobody without the key finds what it was."""
        self._journal.connection.execute(
            "INSERT OR IGNORE INTO blanked VALUES(?, ?, ?)", (self._name(line), line.conversation, line.seq)
        )

    def _name(self, line: Line) -> bytes:
        assert self._seal is not None  # noqa: S101 - nothing is remembered without it
        return self._seal.name("fact", segments.link(b"", line))

    def _both(self, ours: Line, other: Line) -> Fact:
        """Where both machines changed a fact in place, what is different was forgotten by one of them."""
        asked = "SELECT 1 FROM blanked WHERE conversation = ? AND seq = ?"
        if self._journal.connection.execute(asked, (ours.conversation, ours.seq)).fetchone() is None:
            return other.recorded().fact
        return encoding.decode(json.dumps(_common(json.loads(ours.fact), json.loads(other.fact))))

    def _compare(self, known: Known, marks: Sequence[Fact] = ()) -> None:
        """Where what the others have is not what is here, since it was forgotten here, it is sent anew."""
        lines = self._journal.lines(known.conversation)
        if segments.chain(segments.NOTHING, lines[: known.seq]) == known.chain:
            return
        if len(lines) == known.seq:
            self._journal.append(known.conversation, marks or [Forgotten((), 1, forget.WHY)])
        self.rewritten([known.conversation])

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


def _with(line: Line, fact: str) -> Line:
    return replace(line, fact=fact, digest=seal(line.conversation, line.seq, line.time, fact))


def _common(one: Any, other: Any) -> Any:
    """What both say; a blank for a text in which they differ."""
    match one, other:
        case dict(), dict():
            return {name: _common(one[name], other[name]) for name in one.keys() & other.keys()}
        case list(), list() if len(one) == len(other):
            return [_common(*each) for each in zip(one, other, strict=True)]
        case str(), str() if one != other:
            return forget.BLANK
    return other


def _known(row: tuple[str, int, bytes, int, bytes, bytes]) -> Known:
    conversation, seq, chain, version, writer, head = row
    return Known(conversation, seq, chain, version, writer, segments.read(head) if head else None)
