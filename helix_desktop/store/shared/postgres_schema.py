"""The tables in PostgreSQL, and how older ones become these. `STEPS` is only ever added to.

Everything stands in the schema `helix` of the database. Rows are partitioned by the month they came, by the engine's clock: the
indexes that are written to stay small, and an old month can be looked at, moved and vacuumed by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from helix_desktop.errors import WrittenByNewerVersion

if TYPE_CHECKING:
    import psycopg

    Connection = psycopg.Connection[tuple[Any, ...]]

_ROWS = (
    (
        "CREATE TABLE helix.rows(name bytea NOT NULL, month date NOT NULL, space bytea NOT NULL, written timestamptz NOT NULL"
        " DEFAULT now(), key bytea NOT NULL, body bytea NOT NULL, PRIMARY KEY (name, month)) PARTITION BY RANGE (month)"
    ),
    "ALTER TABLE helix.rows ALTER COLUMN body SET STORAGE EXTERNAL",  # Encrypted bytes cannot be compressed.
    "CREATE TABLE helix.forgotten(name bytea PRIMARY KEY, space bytea NOT NULL, mark bigserial NOT NULL, word bytea NOT NULL)",
    "CREATE INDEX forgotten_mark ON helix.forgotten(space, mark)",
    "CREATE TABLE helix.machines(space bytea, machine bytea, sealed bytea NOT NULL, PRIMARY KEY (space, machine))",
    (
        "CREATE TABLE helix.usage(space bytea, slot int, rows bigint NOT NULL, bytes bigint NOT NULL, PRIMARY KEY (space, slot))"
        " WITH (fillfactor = 50)"
    ),
    "CREATE TABLE helix.quotas(space bytea PRIMARY KEY, bytes bigint NOT NULL)",
)
_HEADS = (
    (
        "CREATE TABLE helix.heads(space bytea, name bytea, version bigint NOT NULL, writer bytea NOT NULL, until timestamptz"
        " NOT NULL, changed bigint NOT NULL, sealed bytea NOT NULL, PRIMARY KEY (space, name)) WITH (fillfactor = 70)"
    ),
    "CREATE INDEX heads_changed ON helix.heads(space, changed)",
)
_TASKS = (
    (
        "CREATE TABLE helix.tasks(space bytea, id text, position bigserial, state text NOT NULL, priority int NOT NULL,"
        " added float8 NOT NULL, deadline float8 NOT NULL, worker text NOT NULL, until float8 NOT NULL, claims int NOT NULL,"
        " sealed bytea NOT NULL, result bytea NOT NULL, PRIMARY KEY (space, id)) WITH (fillfactor = 70)"
    ),
    "CREATE INDEX tasks_waiting ON helix.tasks(space, state, priority DESC, position)",
    "CREATE TABLE helix.task_needs(space bytea, task text, needs text, PRIMARY KEY (space, task, needs))",
)
_NOTES = (
    "ALTER TABLE helix.tasks ADD COLUMN charged float8 NOT NULL DEFAULT 0",
    (
        "CREATE TABLE helix.notes(space bytea, name text, until float8 NOT NULL, amount float8 NOT NULL, PRIMARY KEY (space, name))"
        " WITH (fillfactor = 70)"
    ),
)
STEPS: tuple[tuple[str, ...], ...] = (_ROWS, _HEADS, _TASKS, _NOTES)
VERSION = len(STEPS)
_THERE = (  # not to_regclass, which may remember that there was none before we waited for the lock
    "SELECT 1 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace"
    " WHERE nspname = 'helix' AND relname = 'version'"
)
_LOCK = 0x48454C4958  # "HELIX": one machine at a time changes tables


def prepare_tables(connection: Connection) -> None:
    """Make the tables, or bring them up to this version. WrittenByNewerVersion where a newer program did."""
    version = _version_of_tables(connection)
    if version > VERSION:
        raise WrittenByNewerVersion(
            f"The shared store has tables from a newer version of Helix Desktop ({version}).",
            remedy="Update Helix Desktop. Nothing was changed.",
        )
    if version < VERSION:
        _upgrade_tables(connection)
    create_month_partitions(connection)


def _version_of_tables(connection: Connection) -> int:
    if connection.execute(_THERE.encode()).fetchone() is None:
        return 0
    row = connection.execute("SELECT version FROM helix.version").fetchone()
    return int(row[0]) if row else 0


def _upgrade_tables(connection: Connection) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        version = _version_of_tables(connection)
        if version == 0:
            connection.execute("CREATE SCHEMA IF NOT EXISTS helix")
            connection.execute("CREATE TABLE helix.version(version int NOT NULL)")
            connection.execute("INSERT INTO helix.version VALUES (0)")
        for step in STEPS[version:]:
            for statement in step:
                connection.execute(statement.encode())
        connection.execute("UPDATE helix.version SET version = %s", (VERSION,))


def create_month_partitions(connection: Connection) -> None:
    """The partitions of this month and the next, by the engine's clock."""
    rows = connection.execute(
        "SELECT to_char(m, 'YYYY_MM'), m::date::text, (m + interval '1 month')::date::text"
        " FROM generate_series(date_trunc('month', now() AT TIME ZONE 'UTC'), now() AT TIME ZONE 'UTC'"
        " + interval '1 month', interval '1 month') AS m WHERE to_regclass('helix.rows_' || to_char(m, 'YYYY_MM')) IS NULL"
    ).fetchall()
    for name, first, end in rows:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            made = (
                f"CREATE TABLE IF NOT EXISTS helix.rows_{name} PARTITION OF helix.rows"
                f" FOR VALUES FROM ('{first}') TO ('{end}')"
            )
            connection.execute(made.encode())
