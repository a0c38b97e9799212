"""Full-text search: the index says where, and the snippet comes from the stores themselves, checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.encoding import decode
from helix_desktop.engine.ports import About, Hit
from helix_desktop.errors import HelixError
from helix_desktop.store import database, search_words
from helix_desktop.store.index import SEARCHED, IndexDamaged, said
from helix_desktop.store.journal import Line
from helix_desktop.store.records import Record

_FOUND = """
SELECT pieces.number, pieces.start, pieces.length, pieces.conversation, pieces.seq, entries.digest
FROM words JOIN pieces ON pieces.id = words.rowid LEFT JOIN entries ON entries.number = pieces.number
WHERE words MATCH ? AND (? = '' OR entries.tool = ?) AND (? = 0 OR pieces.number > 0)
ORDER BY words.rank LIMIT ?
"""


class Source(Protocol):
    """Where snippets are taken from; answered by the thread that owns the stores."""

    def described(self, digest: Digest) -> Record: ...

    def beginning(self, record: Record, limit: int) -> bytes: ...

    def line(self, conversation: str, seq: int) -> Line | None: ...


def search(
    connection: sqlite3.Connection,
    source: Source,
    query: str,
    *,
    tool: str = "",
    limit: int = 20,
    entries_only: bool = False,
) -> tuple[Hit, ...]:
    """Places that hold every word of the query; where there is none, places that hold any of them."""
    terms = search_words.asked(query)
    if not terms:
        return ()
    for every in (True, False):
        rows = _rows(connection, search_words.expression(terms, every=every), tool, limit, entries_only=entries_only)
        hits = [hit for row in rows if (hit := _hit(source, row, terms)) is not None]
        if hits or len(terms) == 1:
            break
    return tuple(_once(hits))


def _rows(
    connection: sqlite3.Connection, expression: str, tool: str, limit: int, *, entries_only: bool
) -> Sequence[tuple[int, int, int, str, int, bytes | None]]:
    with database.Reading(IndexDamaged, "index"):
        return connection.execute(_FOUND, (expression, tool, tool, entries_only, limit)).fetchall()


def _hit(source: Source, row: tuple[int, int, int, str, int, bytes | None], terms: list[str]) -> Hit | None:
    number, start, length, conversation, seq, digest = row
    try:
        if number and digest is not None:
            return _entry_hit(source, Digest(digest), start, length, terms)
        return _fact_hit(source, conversation, seq, terms)
    except HelixError:
        return None  # what is gone or damaged is no place to send anybody


def _entry_hit(source: Source, digest: Digest, start: int, length: int, terms: list[str]) -> Hit | None:
    record = source.described(digest)
    text = search_words.readable(source.beginning(record, min(SEARCHED, 4 * (start + length) + 4)))
    if text is None:
        return None
    at = search_words.where(text[start : start + length], terms)
    line = text.count("\n", 0, start + at) + 1
    return Hit(search_words.snippet(text, start + at), digest, line=line, about=record.about)


def _fact_hit(source: Source, conversation: str, seq: int, terms: list[str]) -> Hit | None:
    line = source.line(conversation, seq)
    if line is None or not line.intact:
        return None
    text = "\n".join(said(decode(line.fact)))
    at = search_words.where(text, terms)
    return Hit(search_words.snippet(text, at), None, conversation, seq, text.count("\n", 0, at) + 1, About())


def _once(hits: Sequence[Hit]) -> list[Hit]:
    """The best place of each entry and fact."""
    seen: dict[tuple[Digest | None, str, int], Hit] = {}
    for hit in hits:
        seen.setdefault((hit.digest, hit.conversation, hit.seq), hit)
    return list(seen.values())
