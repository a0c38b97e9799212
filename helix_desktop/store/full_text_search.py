"""Full-text search: the index says where, and the snippet comes from the stores themselves, checked."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Protocol

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.fact_encoding import decode_fact
from helix_desktop.engine.ports import EntryOrigin, SearchHit
from helix_desktop.errors import HelixError
from helix_desktop.store import search_words, sqlite_database
from helix_desktop.store.cache_records import CacheRecord
from helix_desktop.store.index_file import SEARCHED, IndexDamaged, searchable_texts
from helix_desktop.store.journal_file import StoredFact

_FOUND = """
SELECT pieces.number, pieces.start, pieces.length, pieces.conversation, pieces.seq, entries.digest
FROM words JOIN pieces ON pieces.id = words.rowid LEFT JOIN entries ON entries.number = pieces.number
WHERE words MATCH ? AND (? = '' OR entries.tool = ?) AND (? = 0 OR pieces.number > 0)
ORDER BY words.rank LIMIT ?
"""


class SnippetSource(Protocol):
    """Where snippets are taken from; answered by the thread that owns the stores."""

    def described_record(self, digest: Digest) -> CacheRecord: ...

    def read_content_beginning(self, record: CacheRecord, limit: int) -> bytes: ...

    def find_fact_line(self, conversation: str, seq: int) -> StoredFact | None: ...


def search_full_text(
    connection: sqlite3.Connection,
    source: SnippetSource,
    query: str,
    *,
    tool: str = "",
    limit: int = 20,
    entries_only: bool = False,
) -> tuple[SearchHit, ...]:
    """Places that hold every word of the query; where there is none, places that hold any of them."""
    terms = search_words.query_terms(query)
    if not terms:
        return ()
    for every in (True, False):
        rows = _matching_rows(
            connection, search_words.fts_expression(terms, every=every), tool, limit, entries_only=entries_only
        )
        hits = [hit for row in rows if (hit := _build_hit(source, row, terms)) is not None]
        if hits or len(terms) == 1:
            break
    return tuple(_first_hit_of_each(hits))


def _matching_rows(
    connection: sqlite3.Connection, expression: str, tool: str, limit: int, *, entries_only: bool
) -> Sequence[tuple[int, int, int, str, int, bytes | None]]:
    with sqlite_database.SqliteErrors(IndexDamaged, "index"):
        return connection.execute(_FOUND, (expression, tool, tool, entries_only, limit)).fetchall()


def _build_hit(
    source: SnippetSource, row: tuple[int, int, int, str, int, bytes | None], terms: list[str]
) -> SearchHit | None:
    number, start, length, conversation, seq, digest = row
    try:
        if number and digest is not None:
            return _hit_in_entry(source, Digest(digest), start, length, terms)
        return _hit_in_fact(source, conversation, seq, terms)
    except HelixError:
        return None  # A result that is gone or damaged would lead nowhere.


def _hit_in_entry(source: SnippetSource, digest: Digest, start: int, length: int, terms: list[str]) -> SearchHit | None:
    record = source.described_record(digest)
    text = search_words.text_or_none(source.read_content_beginning(record, min(SEARCHED, 4 * (start + length) + 4)))
    if text is None:
        return None
    at = search_words.find_first_term(text[start : start + length], terms)
    line = text.count("\n", 0, start + at) + 1
    return SearchHit(search_words.cut_snippet(text, start + at), digest, line=line, about=record.about)


def _hit_in_fact(source: SnippetSource, conversation: str, seq: int, terms: list[str]) -> SearchHit | None:
    line = source.find_fact_line(conversation, seq)
    if line is None or not line.is_intact:
        return None
    text = "\n".join(searchable_texts(decode_fact(line.fact)))
    at = search_words.find_first_term(text, terms)
    return SearchHit(
        search_words.cut_snippet(text, at), None, conversation, seq, text.count("\n", 0, at) + 1, EntryOrigin()
    )


def _first_hit_of_each(hits: Sequence[SearchHit]) -> list[SearchHit]:
    """The best place of each entry and fact."""
    seen: dict[tuple[Digest | None, str, int], SearchHit] = {}
    for hit in hits:
        seen.setdefault((hit.digest, hit.conversation, hit.seq), hit)
    return list(seen.values())
