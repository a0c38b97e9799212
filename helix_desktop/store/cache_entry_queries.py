"""Queries the catalogue of entries: one page at a time, in any order and by any filter."""

import sqlite3
from collections.abc import Iterable

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
_IN_REMOVED = "IN (SELECT number FROM entries INDEXED BY by_state WHERE state)"
_IN_CONVERSATION = "IN (SELECT number FROM members WHERE conversation = ?)"
_LIKE_SOURCE = "IN (SELECT source FROM sources WHERE source LIKE ? ESCAPE '~')"
_LIKE_TOOL = f"IN (SELECT name FROM ({_TOOLS}) WHERE name LIKE ? ESCAPE '~')"  # noqa: S608 - a constant
_ROW = "number, digest, size, lines, media, tool, source, kept, tokens, time, uses, recalled, pinned, state"


_Anchor = tuple[str | int | float | bytes, int]  # A sort value, and the row's number.


@dataclass(frozen=True, slots=True)
class _PageAnchors:
    """Every `STRIDE`-th row of one order, so that a distant page is found without
    stepping there.
    """

    version: int
    rows: tuple[_Anchor, ...]


@dataclass(frozen=True, slots=True)
class _PageStart:
    """The row from which a page is reached, or None for the first, and how many rows to step."""

    anchor: _Anchor | None
    steps: int


@dataclass(frozen=True, slots=True)
class _FilterCondition:
    """Conditions in SQL that all hold, and their values."""

    texts: tuple[str, ...]
    values: tuple[str | float, ...]


@dataclass(frozen=True, slots=True)
class _CatalogueRow:
    """A row of the table, with the columns in the order of `_ROW`."""

    number: int
    digest: bytes
    size: int
    lines: int
    media: str
    tool: str
    source: str
    kept: int
    tokens: int
    time: float
    uses: int
    recalled: float
    pinned: int
    state: int


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
        if anchors is None:
            anchors = {}
        self.anchors = anchors
        self._counts: dict[EntryFilter, tuple[int, int]] = {}
        self._stats: tuple[int, CacheEntryFigures] | None = None

    def entries_page(self, order: Order, offset: int, limit: int) -> tuple[EntryRow, ...]:
        """Return a page. Far down, it may be shifted by as many rows as were added just now.

        Far down, the rows are counted from an anchor, the nearest of some rows whose places in
        this order are known, as skipping all rows before the page would take long.
        """
        chosen, sort, descending = order
        page_start = self._start_of_page(order, offset)
        direction = "ASC"
        comparison = ">="
        if descending:
            direction = "DESC"
            comparison = "<="
        condition = _filter_condition(chosen, sort)
        columns = f"{sort.value} {direction}, number {direction}"
        if self._is_small_selection(chosen):
            condition = _filter_condition(chosen, None)
            # With a plus, SQLite uses no index for the order, and sorts the few rows found.
            columns = f"+{sort.value} {direction}, +number {direction}"
        conditions = list(condition.texts)
        values: list[str | float | bytes] = list(condition.values)
        if page_start.anchor is not None:
            conditions.append(f"({sort.value}, number) {comparison} (?, ?)")
            values += page_start.anchor
        rows = self.connection.execute(
            f"SELECT {_ROW} FROM entries {_where(conditions)} ORDER BY {columns} LIMIT ? OFFSET ?",  # noqa: S608 - made of constants
            (*values, limit, page_start.steps),
        )
        catalogue_rows = [_CatalogueRow(*row) for row in rows]
        return tuple(_entry_row_of(row) for row in catalogue_rows)

    def _start_of_page(self, order: Order, offset: int) -> _PageStart:
        """Return the anchor before a page that is far down, and how many rows are skipped from there.
        A page near the beginning is reached by skipping rows alone.
        """
        if offset <= NEAR:
            return _PageStart(None, offset)
        anchors = self.anchors.get(order) or self.get_page_anchors(order)
        if not anchors.rows:
            return _PageStart(None, offset)
        nearest = min(offset // STRIDE, len(anchors.rows) - 1)
        return _PageStart(anchors.rows[nearest], offset - nearest * STRIDE)

    def prepare_distant_pages(self, order: Order) -> None:
        if self.count_entries(order[0]) > NEAR:
            self.get_page_anchors(order)

    def get_page_anchors(self, order: Order) -> _PageAnchors:
        """Return an order's anchors, which are some of its rows at equal distances, so that a page
        far down is reached from the nearest of them.

        They are found once for each state of the index: 0.3 s for a million rows.
        """
        version = self._data_version()
        known_anchors = self.anchors.get(order)
        if known_anchors is not None and known_anchors.version == version:
            return known_anchors
        chosen, sort, descending = order
        if self._is_small_selection(chosen):
            condition = _filter_condition(chosen, None)
        else:
            condition = _filter_condition(chosen, sort)
        direction = "ASC"
        if descending:
            direction = "DESC"
        rows = self.connection.execute(
            f"SELECT value, number FROM (SELECT {sort.value} AS value, number, row_number() OVER"  # noqa: S608 - made of constants
            f" (ORDER BY {sort.value} {direction}, number {direction}) AS place FROM entries {_where(condition.texts)}) WHERE (place - 1) % ? = 0",
            (*condition.values, STRIDE),
        ).fetchall()
        anchors = _PageAnchors(version, tuple(rows))
        # Those of the orders that were asked for first are dropped, so that memory stays bounded.
        while len(self.anchors) >= 20:
            oldest_order = next(iter(self.anchors))
            self.anchors.pop(oldest_order, None)
        self.anchors[order] = anchors
        return anchors

    def _is_small_selection(self, chosen: EntryFilter) -> bool:
        """Whether so few rows are chosen that sorting them afterwards is faster."""
        return chosen != cache_entry_rows.EVERYTHING and self.count_entries(chosen) < FEW

    def _data_version(self) -> int:
        """Return a number that changes when another connection writes to the index."""
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])

    def count_entries(self, chosen: EntryFilter = cache_entry_rows.EVERYTHING) -> int:
        """Return how many entries the filter chooses, counted once for each state of the index."""
        version = self._data_version()
        known_count = self._counts.get(chosen)
        if known_count is not None and known_count[0] == version:
            return known_count[1]
        condition = _filter_condition(chosen, None)
        statement = f"SELECT count(*) FROM entries {_where(condition.texts)}"  # noqa: S608
        (count,) = self.connection.execute(statement, condition.values).fetchone()
        if len(self._counts) >= 50:
            self._counts.clear()
        self._counts[chosen] = (version, int(count))
        return int(count)

    def find_entry_row(self, digest: Digest) -> EntryRow | None:
        statement = f"SELECT {_ROW} FROM entries WHERE digest = ?"  # noqa: S608
        columns = self.connection.execute(statement, (digest.raw,)).fetchone()
        if columns is None:
            return None
        return _entry_row_of(_CatalogueRow(*columns))

    def count_entries_by_tool(self) -> tuple[tuple[str, int], ...]:
        """Return each tool and the number of its entries, for the choices of a filter."""
        tools = [tool for (tool,) in self.connection.execute(_TOOLS)]
        counts: list[tuple[str, int]] = []
        for tool in tools:
            if tool:
                count = self.count_entries(EntryFilter(tool=tool))
                counts.append((tool, count))
        return tuple(counts)

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
        """Return the sums over all entries, and how many outputs were stored again, and what
        storing each only once has saved.
        """
        sums = self.connection.execute(
            "SELECT count(*), coalesce(sum(size), 0), coalesce(sum(kept), 0), coalesce(sum(tokens), 0),"
            " coalesce(sum(pinned), 0), coalesce(sum(state), 0) FROM entries"
        ).fetchone()
        repeated = self.connection.execute(
            "SELECT coalesce(sum(n - 1), 0), coalesce(sum((n - 1) * size), 0) FROM (SELECT digest, count(*) AS n FROM uses"
            " WHERE how = 'output' GROUP BY digest HAVING n > 1) JOIN entries USING(digest)"
        ).fetchone()
        return CacheEntryFigures(*sums, *repeated)

    def bytes_on_disk(self) -> int:
        """Return the bytes on disk of all entries, including those of checkpoints."""
        statement = "SELECT coalesce(sum(kept), 0) FROM entries"
        (listed,) = self.connection.execute(statement).fetchone()
        _, bytes_of_checkpoints = self.checkpoint_figures()
        return int(listed) + bytes_of_checkpoints

    def checkpoint_figures(self) -> tuple[int, int]:
        """Return how many contents checkpoints hold, and their bytes."""
        statement = "SELECT name, value FROM meta WHERE name LIKE 'checkpoint%'"
        values = dict(self.connection.execute(statement).fetchall())
        return int(values.get("checkpoints", 0)), int(values.get("checkpoint bytes", 0))

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


def _where(conditions: Iterable[str]) -> str:
    joined = " AND ".join(conditions)
    if not joined:
        return ""
    return f"WHERE {joined}"


def _filter_condition(chosen: EntryFilter, sort: EntrySort | None) -> _FilterCondition:
    """Return the SQL condition for a filter. With a `sort`, only that column's index may be used, so
    that rows are read in order from it.
    """

    def column(name: str, *sorts_by_it: EntrySort) -> str:
        """Return how a column is written: with a plus, SQLite uses no index of it."""
        if sort is None or sort in sorts_by_it:
            return name
        return f"+{name}"

    comparisons: list[tuple[str, str | float]] = [
        (f"{column('tool', EntrySort.TOOL, EntrySort.TIME)} = ?", chosen.tool),
        (f"{column('time', EntrySort.TIME)} >= ?", chosen.since),
        (f"{column('size', EntrySort.SIZE)} >= ?", chosen.least),
        (f"{column('size', EntrySort.SIZE)} <= ?", chosen.most),
        (f"{column('number')} {_IN_CONVERSATION}", chosen.conversation),
    ]
    texts: list[str] = []
    values: list[str | float] = []
    for text, value in comparisons:
        # An empty text or 0 stands for a part of the filter that is not used.
        if value:
            texts.append(text)
            values.append(value)
    if chosen.unused:
        unused = "digest NOT IN (SELECT digest FROM uses)"
        texts.append(f"{column('uses', EntrySort.USES)} = 0 AND {unused}")
    if chosen.pinned:
        texts.append(f"{column('number')} {_IN_PINNED}")
    if chosen.gone:
        texts.append(f"{column('number')} {_IN_REMOVED}")
    if chosen.text:
        escaped = chosen.text.replace("~", "~~").replace("%", "~%").replace("_", "~_")
        source = f"{column('source', EntrySort.SOURCE)} {_LIKE_SOURCE}"
        tool = f"{column('tool', EntrySort.TOOL)} {_LIKE_TOOL}"
        texts.append(f"({source} OR {tool})")
        values += [f"%{escaped}%"] * 2
    return _FilterCondition(tuple(texts), tuple(values))


def _entry_row_of(row: _CatalogueRow) -> EntryRow:
    """Return a row of the table as the rest of the program uses it."""
    stored = Stored(Digest(row.digest), row.size, row.lines, row.media)
    origin = EntryOrigin(row.tool, row.source, row.media)
    is_unusable = row.state != EntryState.LIVE
    return EntryRow(
        stored,
        origin,
        row.kept,
        row.tokens,
        row.time,
        row.uses,
        row.recalled,
        bool(row.pinned),
        is_unusable,
        row.number,
    )
