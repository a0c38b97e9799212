"""Heads in PostgreSQL, beside the rows. Compare-and-set is an UPDATE; the server's
clock measures leases.
"""

# ruff: noqa: S608 -- what is put together here are columns

from collections.abc import Collection, Mapping, Sequence

from helix_desktop.resources import read_sql_statements
from helix_desktop.store.shared.conversation_heads import (
    ConversationHead,
    ConversationHeads,
    HeadMark,
    HeadUpdate,
)
from helix_desktop.store.shared.postgres_pool import TIMELINE, Statement
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_store import RowStore
from helix_desktop.store.shared.shared_store_link import SharedStoreConnection

_HEAD_COLUMNS = "name, version, writer, greatest(0, extract(epoch FROM until - clock_timestamp()))::float8, sealed"
_BEGIN = (
    "INSERT INTO helix.heads(space, name, version, writer, until, changed, sealed) VALUES (%b, %b, 1, %b,"
    " clock_timestamp() + make_interval(secs => %s), pg_current_xact_id()::text::bigint, %b)"
    f" ON CONFLICT DO NOTHING RETURNING {_HEAD_COLUMNS}"
)
_MOVE = (
    "UPDATE helix.heads SET version = version + 1, writer = %b, until = clock_timestamp() + make_interval(secs => %s),"
    " changed = pg_current_xact_id()::text::bigint, sealed = coalesce(%b, sealed) WHERE space = %b AND name = %b"
    f" AND version = %s AND (writer = %b OR until <= clock_timestamp() OR %s) RETURNING {_HEAD_COLUMNS}"
)
_GET = f"SELECT {_HEAD_COLUMNS} FROM helix.heads WHERE space = %b AND name = ANY(%b)"
_CHANGED = (
    f"SELECT {TIMELINE}, (SELECT system_identifier FROM pg_control_system()),"
    f" pg_snapshot_xmin(pg_current_snapshot())::text::bigint, {_HEAD_COLUMNS} FROM (VALUES (1)) AS one"
    " LEFT JOIN helix.heads ON space = %b AND changed >= %s ORDER BY changed"
)
_REMOVE_REPLACED = read_sql_statements("shared_row_statements")["drop_replaced"]


class PostgresHeads:
    """Heads in a row store's database. A mark is the oldest transaction still running."""

    def __init__(self, engine: PostgresRowStore, space: bytes) -> None:
        self._engine = engine
        self._space = space

    def update_heads(
        self, updates: Sequence[HeadUpdate]
    ) -> list[tuple[bool, ConversationHead | None]]:
        """Change each head if it still is as expected, in one transaction. Return for each
        whether it was changed, and the head as it is now.
        """
        return self._run_updates((), updates)

    def update_heads_with_rows(
        self, engine: RowStore, rows: Mapping[bytes, bytes], updates: Sequence[HeadUpdate]
    ) -> list[tuple[bool, ConversationHead | None]]:
        """All of it is one transaction. Locks are taken in the same order everywhere: rows, heads
        in the order given, replaced rows.
        """
        assert engine is self._engine  # noqa: S101 - other rows would be in another transaction
        return self._run_updates([self._engine.build_statement_to_store(rows)], updates)

    def _run_updates(
        self, before: Sequence[Statement], updates: Sequence[HeadUpdate]
    ) -> list[tuple[bool, ConversationHead | None]]:
        statements = list(before)
        for update in updates:
            statements.append(self._update_statement(update))
            statements.append((_GET, (self._space, [update.name])))
        for update in updates:
            if update.replaced_rows:
                statements.append(self._statement_to_remove_replaced_rows(update))
        rows_of_statements = self._engine.run_transaction(*statements)
        rows_of_updates = iter(rows_of_statements[len(before) :])
        answers: list[tuple[bool, ConversationHead | None]] = []
        for _ in updates:
            updated_rows = next(rows_of_updates)
            rows_read_afterwards = next(rows_of_updates)
            head_rows = updated_rows or rows_read_afterwards
            head: ConversationHead | None = None
            if head_rows:
                head = ConversationHead(*head_rows[0])
            was_changed = bool(updated_rows)
            answers.append((was_changed, head))
        return answers

    def _statement_to_remove_replaced_rows(self, update: HeadUpdate) -> Statement:
        """Return a statement that removes them if this transaction has updated the head: otherwise
        the head that another machine wrote may name them.
        """
        names = list(update.replaced_rows)
        return _REMOVE_REPLACED, (names, self._space, self._space, update.name, self._space)

    def _update_statement(self, update: HeadUpdate) -> Statement:
        """Return the statement that changes a head and its values. A head of version 0 is new."""
        if update.version == 0:
            return _BEGIN, (
                self._space,
                update.name,
                update.writer,
                update.lease_seconds,
                update.sealed,
            )
        values = update.writer, update.lease_seconds, update.sealed, self._space, update.name
        return _MOVE, (*values, update.version, update.writer, update.force)

    def fetch_changed_heads(self, since: int) -> tuple[Sequence[ConversationHead], HeadMark]:
        """Return the heads that have changed since a mark, and the next mark."""
        (rows,) = self._engine.run_transaction((_CHANGED, (self._space, since)))
        # Each row begins with the same three values. There is one row even if no head has changed.
        timeline, system, reached = rows[0][:3]
        mark = (f"{system} {timeline} {self._space.hex()}", reached)
        heads: list[ConversationHead] = []
        for row in rows:
            head_columns = row[3:]
            name = head_columns[0]
            if name is not None:
                heads.append(ConversationHead(*head_columns))
        return heads, mark

    def fetch_heads(self, names: Collection[bytes]) -> Sequence[ConversationHead]:
        (rows,) = self._engine.run_transaction((_GET, (self._space, list(names))))
        return [ConversationHead(*row) for row in rows]


def heads_of_connection(connected: SharedStoreConnection) -> ConversationHeads | None:
    """Return the heads of a store, or None if it can't have any."""
    engine = connected.remote.engine
    if not isinstance(engine, PostgresRowStore):
        return None
    return PostgresHeads(engine, connected.seal.space)
