"""Questions to the catalogue of entries: a page of it in any order, through any filter, however many there are."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import About
from helix_desktop.store.records import State


class Sort(StrEnum):
    """The columns a catalogue is sorted by."""

    TIME = "time"
    TOOL = "tool"
    SOURCE = "source"
    MEDIA = "media"
    SIZE = "size"
    TOKENS = "tokens"
    USES = "uses"
    RECALLED = "recalled"
    HASH = "digest"


@dataclass(frozen=True, slots=True)
class Filter:
    """What is to be shown; everything by default. `text` stands in the tool's name or the source."""

    tool: str = ""
    conversation: str = ""
    since: float = 0.0
    until: float = 0.0
    least: int = 0  # bytes
    most: int = 0
    pinned: bool = False
    unused: bool = False
    text: str = ""
    gone: bool = False  # show what was collected, and nothing else


EVERYTHING = Filter()


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the catalogue. `kept`: its bytes on the disk; `recalled`: when it was last recalled, or 0."""

    number: int
    stored: Stored
    about: About
    kept: int
    tokens: int
    time: float
    uses: int
    recalled: float
    pinned: bool
    gone: bool


@dataclass(frozen=True, slots=True)
class Use:
    """Where an entry is used. `how`: output, attachment, image, change, fold or recall."""

    conversation: str
    seq: int
    time: float
    how: str


@dataclass(frozen=True, slots=True)
class Stats:
    entries: int
    size: int
    kept: int
    tokens: int
    pinned: int
    gone: int
    repeated: int  # uses of an output beyond its first: what was stored once and would have been stored again
    repeated_size: int


_ROW = "number, digest, size, lines, media, tool, source, kept, tokens, time, uses, recalled, pinned, state"


class Catalogue:
    """The reading side, over its own connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def entries(
        self,
        chosen: Filter = EVERYTHING,
        *,
        sort: Sort = Sort.TIME,
        descending: bool = True,
        offset: int = 0,
        limit: int = 200,
    ) -> tuple[Row, ...]:
        """A page. Equal values stand in the order they were stored."""
        where, values = _where(chosen)
        way = "DESC" if descending else "ASC"
        order = f"{sort.value} {way}, number {way}" if sort is not Sort.HASH else f"digest {way}"
        rows = self.connection.execute(
            f"SELECT {_ROW} FROM entries {where} ORDER BY {order} LIMIT ? OFFSET ?",  # noqa: S608 - made of constants
            (*values, limit, offset),
        )
        return tuple(_row(row) for row in rows)

    def count(self, chosen: Filter = EVERYTHING) -> int:
        where, values = _where(chosen)
        return int(self.connection.execute(f"SELECT count(*) FROM entries {where}", values).fetchone()[0])  # noqa: S608

    def row(self, digest: Digest) -> Row | None:
        found = self.connection.execute(f"SELECT {_ROW} FROM entries WHERE digest = ?", (digest.raw,)).fetchone()  # noqa: S608
        return _row(found) if found else None

    def tools(self) -> tuple[tuple[str, int], ...]:
        """Each tool with the number of its entries, for a filter's choices."""
        return tuple(self.connection.execute("SELECT tool, count(*) FROM entries GROUP BY tool ORDER BY tool"))

    def uses(self, digest: Digest) -> tuple[Use, ...]:
        rows = self.connection.execute(
            "SELECT conversation, seq, time, how FROM uses WHERE digest = ? ORDER BY time, seq", (digest.raw,)
        )
        return tuple(Use(*row) for row in rows)

    def stats(self) -> Stats:
        figures = self.connection.execute(
            "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(kept), 0), coalesce(sum(tokens), 0),"
            " coalesce(sum(pinned), 0), coalesce(sum(state), 0) FROM entries"
        ).fetchone()
        repeated = self.connection.execute(
            "SELECT coalesce(sum(n - 1), 0), coalesce(sum((n - 1) * size), 0) FROM (SELECT digest, count(*) AS n FROM uses"
            " WHERE how = 'output' GROUP BY digest HAVING n > 1) JOIN entries USING(digest)"
        ).fetchone()
        return Stats(*figures, *repeated)

    def unused(self) -> tuple[Digest, ...]:
        """Entries of tools that no fact uses and nobody pinned, the oldest first: what collection takes first."""
        rows = self.connection.execute(
            "SELECT digest FROM entries WHERE uses = 0 AND tool != '' AND NOT pinned AND state = ? ORDER BY time",
            (State.LIVE,),
        )
        return tuple(Digest(row[0]) for row in rows)

    def expected(self, after: bytes, limit: int) -> tuple[Digest, ...]:
        """Entries that are known here or used by a fact, and were not collected; in the order of their hashes."""
        rows = self.connection.execute(
            "SELECT digest FROM entries WHERE digest > ? AND state = ?"
            " UNION SELECT digest FROM uses WHERE digest > ? AND digest NOT IN (SELECT digest FROM entries WHERE state != ?)"
            " ORDER BY digest LIMIT ?",
            (after, State.LIVE, after, State.LIVE, limit),
        )
        return tuple(Digest(row[0]) for row in rows)


def _where(chosen: Filter) -> tuple[str, list[str | float]]:
    conditions: list[tuple[bool, str, tuple[str | float, ...]]] = [
        (bool(chosen.tool), "tool = ?", (chosen.tool,)),
        (bool(chosen.since), "time >= ?", (chosen.since,)),
        (bool(chosen.until), "time < ?", (chosen.until,)),
        (bool(chosen.least), "size >= ?", (chosen.least,)),
        (bool(chosen.most), "size <= ?", (chosen.most,)),
        (chosen.pinned, "pinned", ()),
        (chosen.unused, "uses = 0", ()),
        (chosen.gone, "state", ()),
        (bool(chosen.text), "(instr(lower(source), ?) OR instr(lower(tool), ?))", (chosen.text.lower(),) * 2),
        (
            bool(chosen.conversation),
            "digest IN (SELECT digest FROM uses WHERE conversation = ?)",
            (chosen.conversation,),
        ),
    ]
    wanted = [(text, values) for active, text, values in conditions if active]
    where = " AND ".join(text for text, _ in wanted)
    return (f"WHERE {where}" if where else ""), [value for _, values in wanted for value in values]


def _row(row: tuple[int, bytes, int, int, str, str, str, int, int, float, int, float, int, int]) -> Row:
    number, digest, size, lines, media, tool, source, kept, tokens, time, uses, recalled, pinned, state = row
    stored = Stored(Digest(digest), size, lines, media)
    return Row(
        number,
        stored,
        About(tool, source, media),
        kept,
        tokens,
        time,
        uses,
        recalled,
        bool(pinned),
        state != State.LIVE,
    )
