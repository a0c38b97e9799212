"""Queries the catalogue of entries: one page at a time, in any order and by any filter."""

import sqlite3

from helix_desktop.engine import cache_entry_rows
from helix_desktop.engine.cache_entry_rows import (
    CacheEntryFigures,
    EntryFilter,
    EntryRow,
    EntrySort,
)
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_sql_statements
from helix_desktop.store.cache_records import EntryState

_TOOLS = read_sql_statements("index_statements")["names of tools"]
_IN_PINNED = "IN (SELECT number FROM entries INDEXED BY by_pinned WHERE pinned)"
_IN_GONE = "IN (SELECT number FROM entries INDEXED BY by_state WHERE state)"
_IN_CONVERSATION = "IN (SELECT number FROM members WHERE conversation = ?)"
_LIKE_SOURCE = "IN (SELECT source FROM sources WHERE source LIKE ? ESCAPE '~')"
_LIKE_TOOL = f"IN (SELECT name FROM ({_TOOLS}) WHERE name LIKE ? ESCAPE '~')"  # noqa: S608 - a constant
_ROW = "number, digest, size, lines, media, tool, source, kept, tokens, time, uses, recalled, pinned, state"


@dataclass(frozen=True, slots=True)
class _PageAnchors:
    """Every `STRIDE`-th row of one order, so that a distant page is found without
    stepping there.
    """

    version: int
    rows: tuple[tuple[str | int | float | bytes, int], ...]  # Sort values, and the row's number.


Order = tuple[EntryFilter, EntrySort, bool]
STRIDE = 500
NEAR = 5_000  # Rows up to this offset are reached step by step.
FEW = 20_000  # Up to this many matches are sorted. More are read in order from the column's index.


class CacheEntryQueries:
    """Reads by a connection of its own. All readers of one index share `anchors`."""

    def __init__(
        self, connection: sqlite3.Connection, anchors: dict[Order, _PageAnchors] | None = None
    ) -> None:
        self.connection = connection
        self.anchors: dict[Order, _PageAnchors] = {} if anchors is None else anchors
        self._counts: dict[EntryFilter, tuple[int, int]] = {}
        self._stats: tuple[int, CacheEntryFigures] | None = None

    def entries_page(self, order: Order, offset: int, limit: int) -> tuple[EntryRow, ...]:
        """Return a page. Far down, it may be shifted by as many rows as were added just now."""
        chosen, sort, descending = order
        start, walked = self._start_of_page(order, offset)
        few = self._is_small_selection(chosen)
        where, values = _filter_condition(chosen, None if few else sort)
        way = "DESC" if descending else "ASC"
        if start is not None:
            where = f"{where} {'AND' if where else 'WHERE'} ({sort.value}, number) {'<=' if descending else '>='} (?, ?)"
        columns = f"{'+' if few else ''}{sort.value} {way}, {'+' if few else ''}number {way}"
        rows = self.connection.execute(
            f"SELECT {_ROW} FROM entries {where} ORDER BY {columns} LIMIT ? OFFSET ?",  # noqa: S608 - made of constants
            (*values, *(start or ()), limit, walked),
        )
        return tuple(_entry_row_of(row) for row in rows)

    def _start_of_page(
        self, order: Order, offset: int
    ) -> tuple[tuple[str | int | float | bytes, int] | None, int]:
        """Return where to start stepping, and how many rows to step."""
        if offset <= NEAR:
            return None, offset
        anchors = self.anchors.get(order) or self.get_page_anchors(order)
        at = min(offset // STRIDE, len(anchors.rows) - 1)
        return (anchors.rows[at], offset - at * STRIDE) if at >= 0 else (None, offset)

    def prepare_distant_pages(self, order: Order) -> None:
        if self.count_entries(order[0]) > NEAR:
            self.get_page_anchors(order)

    def get_page_anchors(self, order: Order) -> _PageAnchors:
        """Return an order's anchors, found once for each state of the index: 0.3 s for
        a million rows.
        """
        version = self._data_version()
        known = self.anchors.get(order)
        if known is not None and known.version == version:
            return known
        chosen, sort, descending = order
        where, values = _filter_condition(
            chosen, None if self._is_small_selection(chosen) else sort
        )
        way = "DESC" if descending else "ASC"
        rows = self.connection.execute(
            f"SELECT value, number FROM (SELECT {sort.value} AS value, number, row_number() OVER"  # noqa: S608 - made of constants
            f" (ORDER BY {sort.value} {way}, number {way}) AS place FROM entries {where}) WHERE (place - 1) % ? = 0",
            (*values, STRIDE),
        ).fetchall()
        found = _PageAnchors(version, tuple(rows))
        while len(self.anchors) >= 20:
            self.anchors.pop(next(iter(self.anchors)), None)
        self.anchors[order] = found
        return found

    def _is_small_selection(self, chosen: EntryFilter) -> bool:
        """Whether so few rows are chosen that sorting them afterwards is faster."""
        return chosen != cache_entry_rows.EVERYTHING and self.count_entries(chosen) < FEW

    def _data_version(self) -> int:
        """Return a number that changes when another connection writes to the index."""
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])

    def count_entries(self, chosen: EntryFilter = cache_entry_rows.EVERYTHING) -> int:
        version = self._data_version()
        known = self._counts.get(chosen)
        if known is not None and known[0] == version:
            return known[1]
        where, values = _filter_condition(chosen, None)
        count = int(
            self.connection.execute(f"SELECT count(*) FROM entries {where}", values).fetchone()[0]  # noqa: S608
        )
        if len(self._counts) >= 50:
            self._counts.clear()
        self._counts[chosen] = (version, count)
        return count

    def find_entry_row(self, digest: Digest) -> EntryRow | None:
        found = self.connection.execute(
            f"SELECT {_ROW} FROM entries WHERE digest = ?",  # noqa: S608
            (digest.raw,),
        ).fetchone()
        return _entry_row_of(found) if found else None

    def count_entries_by_tool(self) -> tuple[tuple[str, int], ...]:
        """Return each tool and the number of its entries, for the choices of a filter."""
        names = [row[0] for row in self.connection.execute(_TOOLS)]
        return tuple((name, self.count_entries(EntryFilter(tool=name))) for name in names if name)

    def uses_of_entry(self, digest: Digest) -> tuple[cache_entry_rows.EntryUse, ...]:
        rows = self.connection.execute(
            "SELECT conversation, seq, time, how FROM uses WHERE digest = ? ORDER BY time, seq",
            (digest.raw,),
        )
        return tuple(cache_entry_rows.EntryUse(*row) for row in rows)

    def entry_figures(self) -> CacheEntryFigures:
        """Return the figures, computed once for each state of the index: 0.5 s for a
        million entries.
        """
        version = self._data_version()
        if self._stats is None or self._stats[0] != version:
            self._stats = (version, self._compute_figures())
        return self._stats[1]

    def _compute_figures(self) -> CacheEntryFigures:
        figures = self.connection.execute(
            "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(kept), 0), coalesce(sum(tokens), 0),"
            " coalesce(sum(pinned), 0), coalesce(sum(state), 0) FROM entries"
        ).fetchone()
        repeated = self.connection.execute(
            "SELECT coalesce(sum(n - 1), 0), coalesce(sum((n - 1) * size), 0) FROM (SELECT digest, count(*) AS n FROM uses"
            " WHERE how = 'output' GROUP BY digest HAVING n > 1) JOIN entries USING(digest)"
        ).fetchone()
        return CacheEntryFigures(*figures, *repeated)

    def bytes_on_disk(self) -> int:
        """Return the bytes on disk of all entries, including those of checkpoints."""
        listed = int(
            self.connection.execute("SELECT coalesce(sum(kept), 0) FROM entries").fetchone()[0]
        )
        return listed + self.checkpoint_figures()[1]

    def checkpoint_figures(self) -> tuple[int, int]:
        """Return how many contents checkpoints hold, and their bytes."""
        rows = dict(
            self.connection.execute(
                "SELECT name, value FROM meta WHERE name LIKE 'checkpoint%'"
            ).fetchall()
        )
        return int(rows.get("checkpoints", 0)), int(rows.get("checkpoint bytes", 0))

    def unused_entries(self) -> tuple[Digest, ...]:
        """Return tools' entries without uses or pins, oldest first: these are collected first."""
        rows = self.connection.execute(
            # A fold does not count as a use.
            "SELECT digest FROM entries WHERE uses = 0 AND digest NOT IN (SELECT digest FROM uses)"
            " AND tool != '' AND NOT pinned AND state = ? ORDER BY time",
            (EntryState.LIVE,),
        )
        return tuple(Digest(row[0]) for row in rows)

    def digests_named_by_facts(self, low: bytes, high: bytes, limit: int) -> tuple[Digest, ...]:
        """Return the entries within these bounds that a fact refers to, known here or not."""
        asked = (
            "SELECT DISTINCT digest FROM uses WHERE digest BETWEEN ? AND ? ORDER BY digest LIMIT ?"
        )
        return tuple(Digest(row[0]) for row in self.connection.execute(asked, (low, high, limit)))

    def digests_expected_here(self, after: bytes, limit: int) -> tuple[Digest, ...]:
        """Return entries known here or used by a fact that were not collected, in the
        order of their hashes.
        """
        rows = self.connection.execute(
            "SELECT digest FROM entries WHERE digest > ? AND state = ?"
            " UNION SELECT digest FROM uses WHERE digest > ? AND digest NOT IN (SELECT digest FROM entries WHERE state != ?)"
            " ORDER BY digest LIMIT ?",
            (after, EntryState.LIVE, after, EntryState.LIVE, limit),
        )
        return tuple(Digest(row[0]) for row in rows)


def _filter_condition(chosen: EntryFilter, sort: EntrySort | None) -> tuple[str, list[str | float]]:
    """Return the SQL condition. With a `sort`, only that column's index may be used."""

    def column(name: str, *fits: EntrySort) -> str:
        return name if sort is None or sort in fits else f"+{name}"

    escaped = chosen.text.replace("~", "~~").replace("%", "~%").replace("_", "~_")
    like = f"%{escaped}%"
    conditions: list[tuple[bool, str, tuple[str | float, ...]]] = [
        (bool(chosen.tool), f"{column('tool', EntrySort.TOOL, EntrySort.TIME)} = ?", (chosen.tool,)),
        (bool(chosen.since), f"{column('time', EntrySort.TIME)} >= ?", (chosen.since,)),
        (bool(chosen.least), f"{column('size', EntrySort.SIZE)} >= ?", (chosen.least,)),
        (bool(chosen.most), f"{column('size', EntrySort.SIZE)} <= ?", (chosen.most,)),
        (chosen.unused, f"{column('uses', EntrySort.USES)} = 0 AND digest NOT IN (SELECT digest FROM uses)", ()),  # noqa: S608 - made of constants
        (chosen.pinned, f"{column('number')} {_IN_PINNED}", ()),
        (chosen.gone, f"{column('number')} {_IN_GONE}", ()),
        (bool(chosen.conversation), f"{column('number')} {_IN_CONVERSATION}", (chosen.conversation,)),
        (bool(chosen.text), f"({column('source', EntrySort.SOURCE)} {_LIKE_SOURCE} OR {column('tool', EntrySort.TOOL)} {_LIKE_TOOL})", (like, like)),
    ]  # fmt: skip
    wanted = [(text, values) for active, text, values in conditions if active]
    where = " AND ".join(text for text, _ in wanted)
    return (f"WHERE {where}" if where else ""), [value for _, values in wanted for value in values]


def _entry_row_of(
    row: tuple[int, bytes, int, int, str, str, str, int, int, float, int, float, int, int],
) -> EntryRow:
    (
        number,
        digest,
        size,
        lines,
        media,
        tool,
        source,
        kept,
        tokens,
        time,
        uses,
        recalled,
        pinned,
        state,
    ) = row
    stored, about = Stored(Digest(digest), size, lines, media), EntryOrigin(tool, source, media)
    marks = bool(pinned), state != EntryState.LIVE
    return EntryRow(stored, about, kept, tokens, time, uses, recalled, *marks, number)
