"""Questions to the catalogue of entries: a page of it in any order, through any filter, however many there are."""

from __future__ import annotations

import sqlite3

from helix_desktop.engine.catalogue import EVERYTHING, Filter, Row, Sort, Stats, Use
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import About
from helix_desktop.store.records import State
from helix_desktop.values import dataclass

# From one name to the next by the index: a walk over all rows would cost a tenth of a second for a million.
_TOOLS = """
WITH RECURSIVE names(name) AS (
  SELECT min(tool) FROM entries UNION ALL SELECT (SELECT min(tool) FROM entries WHERE tool > name) FROM names WHERE name IS NOT NULL
) SELECT name FROM names WHERE name IS NOT NULL
"""
_IN_PINNED = "IN (SELECT number FROM entries INDEXED BY by_pinned WHERE pinned)"
_IN_GONE = "IN (SELECT number FROM entries INDEXED BY by_state WHERE state)"
_IN_CONVERSATION = "IN (SELECT number FROM members WHERE conversation = ?)"
_LIKE_SOURCE = "IN (SELECT source FROM sources WHERE source LIKE ? ESCAPE '~')"
_LIKE_TOOL = f"IN (SELECT name FROM ({_TOOLS}) WHERE name LIKE ? ESCAPE '~')"  # noqa: S608 - a constant
_ROW = "number, digest, size, lines, media, tool, source, kept, tokens, time, uses, recalled, pinned, state"


@dataclass(frozen=True, slots=True)
class _Anchors:
    """Every `STRIDE`-th row of one order, so that a page far down is found without walking there."""

    version: int
    rows: tuple[tuple[str | int | float | bytes, int], ...]  # the sorted value and the number


Order = tuple[Filter, Sort, bool]
STRIDE = 500
NEAR = 5_000  # an offset up to here is walked to
FEW = 20_000  # so many rows are sorted after they are found; more are found in the order of the column's index


class Catalogue:
    """The reading side, over its own connection. `anchors` is shared by those that answer for the same index."""

    def __init__(self, connection: sqlite3.Connection, anchors: dict[Order, _Anchors] | None = None) -> None:
        self.connection = connection
        self.anchors: dict[Order, _Anchors] = {} if anchors is None else anchors
        self._counts: dict[Filter, tuple[int, int]] = {}
        self._stats: tuple[int, Stats] | None = None

    def entries(
        self,
        chosen: Filter = EVERYTHING,
        *,
        sort: Sort = Sort.TIME,
        descending: bool = True,
        offset: int = 0,
        limit: int = 200,
    ) -> tuple[Row, ...]:
        """A page. Equal values stand in the order they were stored.

        Far down, new entries of the last moments may shift what stands where by as many rows as there are of them.
        """
        start, walked = self._start((chosen, sort, descending), offset)
        few = self._few(chosen)
        where, values = _where(chosen, None if few else sort)
        way = "DESC" if descending else "ASC"
        if start is not None:
            where = (
                f"{where} {'AND' if where else 'WHERE'} ({sort.value}, number) {'<=' if descending else '>='} (?, ?)"
            )
        order = f"{'+' if few else ''}{sort.value} {way}, {'+' if few else ''}number {way}"
        rows = self.connection.execute(
            f"SELECT {_ROW} FROM entries {where} ORDER BY {order} LIMIT ? OFFSET ?",  # noqa: S608 - made of constants
            (*values, *(start or ()), limit, walked),
        )
        return tuple(_row(row) for row in rows)

    def _start(self, order: Order, offset: int) -> tuple[tuple[str | int | float | bytes, int] | None, int]:
        """Where to begin walking, and how far to go from there."""
        if offset <= NEAR:
            return None, offset
        anchors = self.anchors.get(order) or self.prepare(order)
        at = min(offset // STRIDE, len(anchors.rows) - 1)
        return (anchors.rows[at], offset - at * STRIDE) if at >= 0 else (None, offset)

    def prepare(self, order: Order) -> _Anchors:
        """Find the anchors of an order, once for each state of the index. A third of a second for a million rows."""
        version = self._version()
        known = self.anchors.get(order)
        if known is not None and known.version == version:
            return known
        chosen, sort, descending = order
        where, values = _where(chosen, None if self._few(chosen) else sort)
        way = "DESC" if descending else "ASC"
        rows = self.connection.execute(
            f"SELECT value, number FROM (SELECT {sort.value} AS value, number, row_number() OVER"  # noqa: S608 - made of constants
            f" (ORDER BY {sort.value} {way}, number {way}) AS place FROM entries {where}) WHERE (place - 1) % ? = 0",
            (*values, STRIDE),
        ).fetchall()
        found = _Anchors(version, tuple(rows))
        while len(self.anchors) >= 20:
            self.anchors.pop(next(iter(self.anchors)), None)
        self.anchors[order] = found
        return found

    def _few(self, chosen: Filter) -> bool:
        """Whether what is chosen is better sorted after it is found."""
        return chosen != EVERYTHING and self.count(chosen) < FEW

    def _version(self) -> int:
        """Changes when somebody else has written to the index."""
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])

    def count(self, chosen: Filter = EVERYTHING) -> int:
        version = self._version()
        known = self._counts.get(chosen)
        if known is not None and known[0] == version:
            return known[1]
        where, values = _where(chosen, None)
        count = int(self.connection.execute(f"SELECT count(*) FROM entries {where}", values).fetchone()[0])  # noqa: S608
        if len(self._counts) >= 50:
            self._counts.clear()
        self._counts[chosen] = (version, count)
        return count

    def row(self, digest: Digest) -> Row | None:
        found = self.connection.execute(f"SELECT {_ROW} FROM entries WHERE digest = ?", (digest.raw,)).fetchone()  # noqa: S608
        return _row(found) if found else None

    def tools(self) -> tuple[tuple[str, int], ...]:
        """Each tool with the number of its entries, for a filter's choices."""
        names = [row[0] for row in self.connection.execute(_TOOLS)]
        return tuple((name, self.count(Filter(tool=name))) for name in names if name)

    def uses(self, digest: Digest) -> tuple[Use, ...]:
        rows = self.connection.execute(
            "SELECT conversation, seq, time, how FROM uses WHERE digest = ? ORDER BY time, seq", (digest.raw,)
        )
        return tuple(Use(*row) for row in rows)

    def stats(self) -> Stats:
        """Half a second for a million entries, once for each state of the index."""
        version = self._version()
        if self._stats is None or self._stats[0] != version:
            self._stats = (version, self._figures())
        return self._stats[1]

    def _figures(self) -> Stats:
        figures = self.connection.execute(
            "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(kept), 0), coalesce(sum(tokens), 0),"
            " coalesce(sum(pinned), 0), coalesce(sum(state), 0) FROM entries"
        ).fetchone()
        repeated = self.connection.execute(
            "SELECT coalesce(sum(n - 1), 0), coalesce(sum((n - 1) * size), 0) FROM (SELECT digest, count(*) AS n FROM uses"
            " WHERE how = 'output' GROUP BY digest HAVING n > 1) JOIN entries USING(digest)"
        ).fetchone()
        return Stats(*figures, *repeated)

    def kept(self) -> int:
        """The bytes all entries take on the disk, those of checkpoints among them."""
        listed = int(self.connection.execute("SELECT coalesce(sum(kept), 0) FROM entries").fetchone()[0])
        return listed + self.checkpoints()[1]

    def checkpoints(self) -> tuple[int, int]:
        """How many contents checkpoints hold, and the bytes they take."""
        rows = dict(self.connection.execute("SELECT name, value FROM meta WHERE name LIKE 'checkpoint%'").fetchall())
        return int(rows.get("checkpoints", 0)), int(rows.get("checkpoint bytes", 0))

    def unused(self) -> tuple[Digest, ...]:
        """Entries of tools that no fact uses and nobody pinned, the oldest first: what collection takes first."""
        rows = self.connection.execute(
            "SELECT digest FROM entries WHERE uses = 0 AND tool != '' AND NOT pinned AND state = ? ORDER BY time",
            (State.LIVE,),
        )
        return tuple(Digest(row[0]) for row in rows)

    def led_to(self, low: bytes, high: bytes, limit: int) -> tuple[Digest, ...]:
        """Entries between these that a fact leads to, known here or not."""
        asked = "SELECT DISTINCT digest FROM uses WHERE digest BETWEEN ? AND ? ORDER BY digest LIMIT ?"
        return tuple(Digest(row[0]) for row in self.connection.execute(asked, (low, high, limit)))

    def expected(self, after: bytes, limit: int) -> tuple[Digest, ...]:
        """Entries that are known here or used by a fact, and were not collected; in the order of their hashes."""
        rows = self.connection.execute(
            "SELECT digest FROM entries WHERE digest > ? AND state = ?"
            " UNION SELECT digest FROM uses WHERE digest > ? AND digest NOT IN (SELECT digest FROM entries WHERE state != ?)"
            " ORDER BY digest LIMIT ?",
            (after, State.LIVE, after, State.LIVE, limit),
        )
        return tuple(Digest(row[0]) for row in rows)


def _where(chosen: Filter, sort: Sort | None) -> tuple[str, list[str | float]]:
    """The condition in SQL. With a `sort`, rows are taken in its column's order, so no other column's index is to be used."""

    def column(name: str, *fits: Sort) -> str:
        return name if sort is None or sort in fits else f"+{name}"

    like = f"%{_escaped(chosen.text)}%"
    conditions: list[tuple[bool, str, tuple[str | float, ...]]] = [
        (bool(chosen.tool), f"{column('tool', Sort.TOOL, Sort.TIME)} = ?", (chosen.tool,)),
        (bool(chosen.since), f"{column('time', Sort.TIME)} >= ?", (chosen.since,)),
        (bool(chosen.until), f"{column('time', Sort.TIME)} < ?", (chosen.until,)),
        (bool(chosen.least), f"{column('size', Sort.SIZE)} >= ?", (chosen.least,)),
        (bool(chosen.most), f"{column('size', Sort.SIZE)} <= ?", (chosen.most,)),
        (chosen.unused, f"{column('uses', Sort.USES)} = 0", ()),
        (chosen.pinned, f"{column('number')} {_IN_PINNED}", ()),
        (chosen.gone, f"{column('number')} {_IN_GONE}", ()),
        (bool(chosen.conversation), f"{column('number')} {_IN_CONVERSATION}", (chosen.conversation,)),
        (bool(chosen.text), f"({column('source', Sort.SOURCE)} {_LIKE_SOURCE} OR {column('tool', Sort.TOOL)} {_LIKE_TOOL})", (like, like)),
    ]  # fmt: skip
    wanted = [(text, values) for active, text, values in conditions if active]
    where = " AND ".join(text for text, _ in wanted)
    return (f"WHERE {where}" if where else ""), [value for _, values in wanted for value in values]


def _escaped(text: str) -> str:
    return text.replace("~", "~~").replace("%", "~%").replace("_", "~_")


def _row(row: tuple[int, bytes, int, int, str, str, str, int, int, float, int, float, int, int]) -> Row:
    number, digest, size, lines, media, tool, source, kept, tokens, time, uses, recalled, pinned, state = row
    stored = Stored(Digest(digest), size, lines, media)
    return Row(
        stored,
        About(tool, source, media),
        kept,
        tokens,
        time,
        uses,
        recalled,
        bool(pinned),
        state != State.LIVE,
        number,
    )
