"""What only PostgreSQL can get wrong: passwords, certificates, versions of the tables,
months, a dump in strange hands.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import (
    HelixError,
    InvalidInput,
    NotFound,
    SharedStoreUnreachable,
    StoreFailed,
    StoreFull,
    WrittenByNewerVersion,
)
from helix_desktop.store.shared import postgres_pool, row_encryption
from helix_desktop.store.shared.async_rows import THREADS, AsyncRowStore
from helix_desktop.store.shared.postgres_rows import PostgresRowStore, convert_postgres_error
from helix_desktop.store.shared.row_encryption import RowCipher, new_workspace_key
from helix_desktop.store.shared.row_store import ROW_KEY_BYTES, RowUsage, Tombstone
from tests.peers import pgbouncer, ports, postgres
from tests.store.shared.homes import machine

ROW = {b"n" * 32: b"k" * 32 + b"b" * 512}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[postgres.Server]:
    """A server with a password and a certificate of its own making."""
    if why := postgres.why_not():
        pytest.skip(why)
    one = postgres.Server({**postgres.FAST, "ssl": "on"}, password="right")
    made = [
        "openssl",
        "req",
        "-new",
        "-x509",
        "-days",
        "2",
        "-nodes",
        "-subj",
        "/CN=another.example",
    ]
    files = ["-out", str(one.data / "server.crt"), "-keyout", str(one.data / "server.key")]
    subprocess.run([*made, *files], check=True, capture_output=True)
    for name in ("server.crt", "server.key"):
        (one.data / name).chmod(0o600)
        postgres.hand_over(one.data / name)
    try:
        yield one.start()
    finally:
        one.remove()


def fails(url: str, seal: RowCipher) -> HelixError:
    engine = PostgresRowStore(url, seal.space)
    try:
        with pytest.raises(HelixError) as caught:
            engine.store_rows(ROW)
    finally:
        engine.close()
    return caught.value


def test_a_wrong_password_is_a_sentence_that_does_not_repeat_it(
    guarded: postgres.Server, seal: RowCipher
) -> None:
    error = fails(guarded.url.replace("right", "wr0ngpass"), seal)
    assert isinstance(error, StoreFailed)
    assert not isinstance(error, SharedStoreUnreachable)
    assert "rejected the user name or the password" in error.what
    assert "wr0ngpass" not in str(error)
    engine = PostgresRowStore(guarded.url.replace(":right", ""), seal.space, password="right")
    engine.store_rows(ROW)
    assert engine.fetch_rows(list(ROW)) == ROW
    engine.close()


def test_a_wrong_certificate_is_a_sentence_and_nothing_is_sent(
    guarded: postgres.Server, seal: RowCipher
) -> None:
    error = fails(f"{guarded.url}?sslmode=verify-full&sslrootcert=system", seal)
    assert "certificate" in error.what
    assert "Nothing was sent" in error.remedy
    error = fails(
        f"{guarded.url}?sslmode=verify-full&sslrootcert={guarded.data / 'server.crt'}", seal
    )
    assert "certificate" in error.what  # it is trusted, and is another host's


def test_a_server_without_tls_is_a_sentence_without_the_librarys_words(
    server: postgres.Server, seal: RowCipher
) -> None:
    error = fails(f"{server.url}?sslmode=require", seal)
    assert error.what == "The shared store's server does not encrypt its connections."
    assert "sslmode=disable" in error.remedy


def test_a_cut_while_keys_are_exchanged_is_no_wrong_certificate() -> None:
    error = convert_postgres_error(
        psycopg.OperationalError("connection failed: SSL SYSCALL error: Connection reset by peer")
    )
    assert isinstance(error, SharedStoreUnreachable)


def test_a_server_elsewhere_must_prove_who_it_is(
    seal: RowCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    far = PostgresRowStore("postgresql://me@db.example.org/helix", seal.space)
    assert far._pool._arguments["sslmode"] == "verify-full"
    assert Path(
        far._pool._arguments["sslrootcert"]
    ).is_file()  # "system" is a place that only its builder had
    for near in ("127.0.0.1", "localhost", "10.1.2.3", "[::1]"):
        assert (
            "sslmode"
            not in PostgresRowStore(f"postgresql://me@{near}/helix", seal.space)._pool._arguments
        )
    chosen = PostgresRowStore("postgresql://me@db.example.org/helix?sslmode=require", seal.space)
    assert chosen._pool._arguments["sslmode"] == "require"


def test_no_database_no_server_and_no_address_are_sentences(
    server: postgres.Server, seal: RowCipher
) -> None:
    assert "rejected the user" in fails(server.url.replace("helix@", "nobody@"), seal).what
    missing = fails(server.url.replace("/postgres", "/nothing"), seal)
    assert isinstance(missing, NotFound)
    assert "database of the shared store does not exist" in missing.what
    nobody = fails(f"postgresql://helix@127.0.0.1:{ports.free_port()}/postgres", seal)
    assert isinstance(nobody, SharedStoreUnreachable)
    assert nobody.what == "No server is running at the address of the shared store."
    with pytest.raises(InvalidInput):
        PostgresRowStore("postgresql://%zz", seal.space)


def test_a_server_that_says_nothing_does_not_hold_us_for_ever(seal: RowCipher) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        error = fails(f"postgresql://helix@127.0.0.1:{port}/postgres?connect_timeout=2", seal)
    assert isinstance(error, SharedStoreUnreachable)


def test_a_database_without_an_encoding_is_as_good_as_another(
    server: postgres.Server, seal: RowCipher
) -> None:
    """As a server has them that was set up without a locale. There psycopg reads text
    as bytes unless an encoding is asked for.
    """
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "CREATE DATABASE unsaid ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        )
    engine = PostgresRowStore(server.url.replace("/postgres", "/unsaid"), seal.space)
    try:
        engine.store_rows(ROW)
        assert engine.fetch_rows(list(ROW)) == ROW
    finally:
        engine.close()
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("DROP DATABASE unsaid WITH (FORCE)")


def test_newer_tables_are_left_alone_and_older_ones_brought_up(
    server: postgres.Server, seal: RowCipher
) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE versions")
    url = server.url.replace("/postgres", "/versions")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA helix")
        connection.execute("CREATE TABLE helix.version(version int NOT NULL)")
        connection.execute("INSERT INTO helix.version VALUES (1)")
        connection.execute(postgres_pool.STEPS[0].encode())
        engine = PostgresRowStore(url, seal.space)
        engine.store_rows(ROW)
        assert connection.execute("SELECT version FROM helix.version").fetchone() == (
            postgres_pool.VERSION,
        )
        engine.close()
        connection.execute("UPDATE helix.version SET version = 999")
        error = fails(url, seal)
        assert isinstance(error, WrittenByNewerVersion)
        assert "Update Helix Desktop" in error.remedy


def test_machines_that_come_at_once_make_the_tables_once(
    server: postgres.Server, seal: RowCipher
) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE together")
    url = server.url.replace("/postgres", "/together")
    errors: list[BaseException] = []

    def come() -> None:
        engine = PostgresRowStore(url, seal.space)
        try:
            engine.store_rows({secrets.token_bytes(32): bytes(600)})
        except HelixError as error:
            errors.append(error)
        finally:
            engine.close()

    threads = [threading.Thread(target=come) for _ in range(8)]  # noqa: TID251 - a trial's own
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert errors == []


def test_when_a_month_begins_its_partition_is_made(
    server: postgres.Server, seal: RowCipher
) -> None:
    engine = PostgresRowStore(server.url, seal.space)
    engine.store_rows(ROW)
    with psycopg.connect(server.url, autocommit=True) as connection:
        row = connection.execute("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY_MM')").fetchone()
        assert row is not None
        connection.execute(f"DROP TABLE helix.rows_{row[0]}".encode())
    name = secrets.token_bytes(32)
    engine.store_rows({name: ROW[b"n" * 32]})
    assert engine.fetch_rows([name])
    engine.close()


async def test_many_workspaces_share_a_few_connections_through_a_pooler(
    server: postgres.Server, pooler: pgbouncer.Pooler
) -> None:
    """6,000 workspaces with two connections each would be more than a server has."""
    before = clients(pooler)
    seals = [RowCipher(new_workspace_key()) for _ in range(60)]
    remotes = [AsyncRowStore(PostgresRowStore(pooler.url, seal.space)) for seal in seals]
    name = secrets.token_bytes(32)
    rows = [{seal.keyed_row_name("row", name): secrets.token_bytes(600)} for seal in seals]
    for _ in range(3):
        await asyncio.gather(
            *(remote.store_in_batches(row) for remote, row in zip(remotes, rows, strict=True))
        )
        found = await asyncio.gather(
            *(remote.fetch_in_batches(list(row)) for remote, row in zip(remotes, rows, strict=True))
        )
        assert list(found) == rows
    assert clients(pooler) - before <= THREADS
    for remote in remotes:
        await remote.aclose()
    assert clients(pooler) == before
    with pytest.raises(SharedStoreUnreachable, match="disconnected"):
        await remotes[0].fetch_usage()


def clients(pooler: pgbouncer.Pooler) -> int:
    """How many connections this program has to it."""
    own = {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        line[2].endswith(f":{pooler.port:04X}") and f"socket:[{line[9]}]" in own for line in lines
    )


def test_settings_hold_for_a_transaction_and_not_for_the_connection(
    pooler: pgbouncer.Pooler, seal: RowCipher
) -> None:
    """The next transaction of somebody else has the same connection of the server."""
    engine = PostgresRowStore(pooler.url, seal.space)
    assert engine.run_transaction(("SHOW enable_seqscan", ()), ("SHOW synchronous_commit", ())) == [
        [("off",)],
        [("on",)],
    ]
    for _ in range(6):
        with psycopg.connect(pooler.url, autocommit=True, prepare_threshold=None) as other:
            assert other.execute("SHOW enable_seqscan").fetchone() == ("on",)
            assert other.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    engine.close()


def test_a_refused_statement_leaves_the_pool_usable(
    server: postgres.Server, seal: RowCipher
) -> None:
    engine = PostgresRowStore(server.url, seal.space)
    for _ in range(3):
        with pytest.raises(StoreFailed, match="refused the request"):
            engine.run_transaction(("SELECT 1", ()), ("SELECT 1 / 0", ()))
        assert engine.run_transaction(("SELECT 2", ())) == [[(2,)]]
    engine.close()


def test_a_connection_that_died_is_made_again(server: postgres.Server, seal: RowCipher) -> None:
    engine = PostgresRowStore(server.url, seal.space)
    engine.store_rows(ROW)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'helix-desktop'"
        )
        assert connection.execute("SELECT 1").fetchone()
    assert engine.fetch_rows(list(ROW)) == ROW
    engine.close()


async def test_a_dump_without_the_key_tells_no_text_no_names_no_sizes_and_no_equality(
    server: postgres.Server, tmp_path: Path
) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE dumped")
    url = server.url.replace("/postgres", "/dumped")
    texts = [b"the plan of the merger " * number for number in range(1, 40)]
    keys = [row_encryption.new_workspace_key(), row_encryption.new_workspace_key()]
    for number, key in enumerate(keys):
        seal = RowCipher(key)
        async with machine(
            tmp_path / str(number),
            lambda: PostgresRowStore(url, seal.space),  # noqa: B023
            seal,
        ) as one:
            for text in texts:
                await one.cache.store_content(text, EntryOrigin("shell", "/home/me/merger.txt"))
            await one.link.sync_content_now()
            await one.link.announce_and_send_missing()
    with psycopg.connect(url, autocommit=True) as connection:
        rows = connection.execute("SELECT space, name, key, body FROM helix.rows").fetchall()
    assert len(rows) == 2 * len(texts)
    assert {len(body) for *_, body in rows} <= {512, 1024}
    for column in (1, 2, 3):
        assert len({row[column] for row in rows}) == len(
            rows
        )  # nothing is equal, within and across workspaces
    dump = server.run(
        "pg_dump", "-h", "127.0.0.1", "-p", str(server.port), "-U", "helix", "--inserts", "dumped"
    )
    raw = bytes.fromhex(
        "".join(
            part for line in dump.splitlines() for part in line.split("'") if part.startswith("\\x")
        ).replace("\\x", "")
    )
    for told in (
        b"merger",
        b"shell",
        b"/home/me",
        b"text/plain",
        *(Digest.of_content(text).raw for text in texts),
        *keys,
    ):
        assert told not in raw
        assert told not in dump.encode()
        assert told.hex() not in dump


async def test_after_forgetting_nothing_decrypts_not_even_with_the_workspaces_key(
    server: postgres.Server, seal: RowCipher, tmp_path: Path
) -> None:
    async with machine(
        tmp_path / "here", lambda: PostgresRowStore(server.url, seal.space), seal
    ) as here:
        stored = await here.cache.store_content(b"to be forgotten", EntryOrigin("shell"))
        await here.link.sync_content_now()
        with psycopg.connect(server.url, autocommit=True) as connection:
            asked = b"SELECT name, key, body FROM helix.rows WHERE space = %b"
            name, key, body = connection.execute(asked, (seal.space,)).fetchall()[0]
            purged = await here.workspace.forget_content(entries=[stored.digest])
            assert connection.execute(asked, (seal.space,)).fetchall() == []
            kept = connection.execute(
                b"SELECT name, word FROM helix.forgotten WHERE space = %b", (seal.space,)
            ).fetchall()
        assert [name for name, _ in kept] == [name]
        assert any("VACUUM" in sentence for sentence in purged.ciphertext)
        assert any("standby" in sentence for sentence in purged.ciphertext)
        assert b"to be forgotten" in seal.decrypt_row(
            name, key + body
        )  # a copy made before, as a backup has it
        with pytest.raises(HelixError):
            seal.decrypt_row(
                name, bytes(ROW_KEY_BYTES) + body
            )  # the ciphertext alone, as a table's free space has it


def test_a_put_that_began_before_a_tombstone_leaves_nothing(
    server: postgres.Server, seal: RowCipher
) -> None:
    engine = PostgresRowStore(server.url, seal.space)
    engine.store_rows({secrets.token_bytes(32): bytes(600)})
    name = secrets.token_bytes(32)
    with psycopg.connect(server.url) as slow:  # a machine in the middle of its transaction
        slow.execute(
            "INSERT INTO helix.rows(name, month, space, key, body) VALUES (%b, date_trunc('month', now()), %b, %b, %b)",
            (name, seal.space, bytes(32), bytes(512)),
        )
        done = threading.Event()

        def bury() -> None:
            engine.forget_rows([Tombstone(name, b"word")])
            done.set()

        burying = threading.Thread(target=bury)  # noqa: TID251 - a trial's own
        burying.start()
        assert not done.wait(0.3)
        slow.commit()
    burying.join()
    with psycopg.connect(server.url) as connection:
        assert connection.execute(
            b"SELECT count(*) FROM helix.rows WHERE name = %b", (name,)
        ).fetchone() == (0,)
    engine.close()


REFUSED = "The shared store rejected the user name or the password."
AWAY = "The shared store is not responding:"


def server_error(code: str, text: str) -> psycopg.Error:
    return psycopg.errors.lookup(code)(text)


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (server_error("28P01", "no"), StoreFailed, REFUSED),
        (psycopg.OperationalError("FATAL: password authentication failed for x"), StoreFailed, REFUSED),
        (psycopg.OperationalError("fe_sendauth: no password supplied"), StoreFailed, REFUSED),
        (psycopg.OperationalError('role "me" does not exist'), StoreFailed, REFUSED),
        (psycopg.OperationalError("server does not support SSL"), StoreFailed, "The shared store's server does not encrypt its connections."),
        (psycopg.OperationalError("Certificate is bad"), StoreFailed, "The shared store's certificate was rejected: Certificate is bad."),
        (psycopg.OperationalError("SSL error: bad"), StoreFailed, "The shared store's certificate was rejected: SSL error: bad."),
        (psycopg.OperationalError("SSL connection has been closed"), SharedStoreUnreachable, f"{AWAY} SSL connection has been closed."),
        (psycopg.OperationalError("SSL: unexpected EOF"), SharedStoreUnreachable, f"{AWAY} SSL: unexpected EOF."),
        (server_error("57P01", "ssl is off"), SharedStoreUnreachable, f"{AWAY} ssl is off."),
        (server_error("53100", "no space"), StoreFull, "The shared store is full."),
        (server_error("53200", "no memory"), StoreFull, "The shared store is full."),
        (server_error("53300", "too many"), SharedStoreUnreachable, f"{AWAY} too many."),
        (server_error("3D000", "x"), NotFound, "The database of the shared store does not exist."),
        (psycopg.OperationalError('database "x" does not exist'), NotFound, "The database of the shared store does not exist."),
        (psycopg.OperationalError('database "x" is gone'), SharedStoreUnreachable, f'{AWAY} database "x" is gone.'),
        (psycopg.OperationalError("a table does not exist"), SharedStoreUnreachable, f"{AWAY} a table does not exist."),
        (server_error("42501", "x"), StoreFailed, "The database user for the shared store does not have permission to use or create its tables."),
        (server_error("42P01", "no table"), StoreFailed, "The shared store refused the request: no table."),
        (server_error("40001", "again"), SharedStoreUnreachable, f"{AWAY} again."),
        (
            psycopg.OperationalError('connection failed: connection to server at "1.2.3.4", port 5 failed: FATAL:  busy.\nmore'),
            SharedStoreUnreachable,
            f"{AWAY} busy.",
        ),
        (psycopg.OperationalError(" "), SharedStoreUnreachable, f"{AWAY} OperationalError."),
        (psycopg.OperationalError("x" * 400), SharedStoreUnreachable, f"{AWAY} {'x' * 300}."),
        (psycopg.OperationalError("Connection refused"), SharedStoreUnreachable, "No server is running at the address of the shared store."),
    ],
)  # fmt: skip
def test_what_the_server_says_becomes_a_sentence(
    error: psycopg.Error, kind: type[HelixError], sentence: str
) -> None:
    found = convert_postgres_error(error)
    assert (type(found), found.what) == (kind, sentence)


@pytest.mark.parametrize(
    ("address", "private"),
    [
        ("host=127.0.0.1", True), ("host=192.168.1.2", True), ("host=8.8.8.8", False), ("host=/run/postgres", True),
        ("host=@socket", True), ("dbname=x", True), ("host=localhost,10.0.0.1", True), ("host=localhost,8.8.8.8", False),
        ("host=db.example.org hostaddr=10.0.0.1", True), ("host=db.example.org", False), ("service=work", False),
        ("host=10.0.0.1,db.example.org hostaddr=10.0.0.1,", False),
    ],
)  # fmt: skip
def test_what_is_near_need_not_prove_who_it_is(
    address: str, private: bool, seal: RowCipher
) -> None:
    assert ("sslmode" not in PostgresRowStore(address, seal.space)._pool._arguments) == private


def test_a_host_that_only_the_environment_names_must_prove_who_it_is(
    seal: RowCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGHOST", "db.example.org")
    assert PostgresRowStore("dbname=x", seal.space)._pool._arguments["sslmode"] == "verify-full"
    assert "sslmode" not in PostgresRowStore("dbname=x host=localhost", seal.space)._pool._arguments


def test_a_certificate_or_a_password_in_the_address_is_taken(
    seal: RowCipher, monkeypatch: pytest.MonkeyPatch
) -> None:
    def arguments(address: str, password: str = "") -> dict[str, object]:
        return PostgresRowStore(address, seal.space, password=password)._pool._arguments

    own = arguments("host=db.example.org sslrootcert=/own.pem")
    assert (own.get("sslmode"), own["sslrootcert"]) == (None, "/own.pem")
    assert arguments("host=localhost password=there", "here")["password"] == "there"
    assert arguments("host=localhost", "here")["password"] == "here"
    assert "password" not in arguments("host=localhost")
    assert (own["target_session_attrs"], own["connect_timeout"], own["tcp_user_timeout"]) == (
        "read-write",
        5,
        20_000,
    )
    assert arguments("host=localhost connect_timeout=9")["connect_timeout"] == "9"
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "/there")
            assert arguments("host=db.example.org")["sslrootcert"] == "system"


def test_a_quota_is_read_again_when_it_is_near_and_else_now_and_then(
    server: postgres.Server, seal: RowCipher
) -> None:
    def rows(size: int) -> dict[bytes, bytes]:
        return {secrets.token_bytes(32): secrets.token_bytes(ROW_KEY_BYTES + size)}

    here = PostgresRowStore(server.url, seal.space)
    there = PostgresRowStore(server.url, seal.space)
    assert here.fetch_row_usage() == RowUsage(0, 0, 0)
    here.store_rows(rows(100))
    assert here.fetch_row_usage() == RowUsage(1, 100 + ROW_KEY_BYTES, 0)
    there.set_quota(400 + ROW_KEY_BYTES)
    for _ in range(20):
        here.store_rows(rows(10))  # Nothing says yet that there is one.
    with pytest.raises(StoreFull):
        here.store_rows(rows(10))
    there.set_quota(there.fetch_row_usage().bytes + 50)
    there.store_rows(rows(50))
    with pytest.raises(StoreFull):
        there.store_rows(rows(50))
    there.set_quota(1 << 40)
    there.store_rows(rows(50))
    assert there._writes_until_quota_check == 20, "far from its limit it is not read again soon"
    here.close()
    there.close()
    there.close()


def test_marks_of_what_was_forgotten_go_on_from_the_last(
    server: postgres.Server, seal: RowCipher
) -> None:
    here = PostgresRowStore(server.url, seal.space)
    assert here.fetch_tombstones(0) == ([], 0)
    assert here.fetch_tombstones(7) == ([], 0), (
        "the store was restored from a time before these marks"
    )
    here.forget_rows([Tombstone(b"a" * 32, b"sealed"), Tombstone(b"b" * 32, b"")])
    found, mark = here.fetch_tombstones(0)
    assert sorted(one.sealed_digest for one in found) == [b"", b"sealed"]
    assert here.fetch_tombstones(mark)[1] == mark
    assert here.fetch_tombstones(mark + 1_001) == ([], 0)
    assert len(here.fetch_tombstones(mark + 998)[0]) >= 1, "marks that were seen late come again"
    here.close()


def test_it_says_which_server_it_is_and_what_may_remain(
    server: postgres.Server, seal: RowCipher
) -> None:
    here = PostgresRowStore(server.url, seal.space)
    assert re.fullmatch(r"PostgreSQL \d+[.\w]*(, .* standby servers?)?", here.describe_server())
    assert [word for word in ("VACUUM", "WAL", "Backups") if any(word in one for one in here.describe_remaining_copies())] == ["VACUUM", "WAL", "Backups"]  # fmt: skip
    assert PostgresRowStore(f"{server.url}?application_name=x", seal.space).server != here.server
    here.close()


def test_old_rows_are_listed_from_a_name_on(server: postgres.Server, seal: RowCipher) -> None:
    here = PostgresRowStore(server.url, seal.space)
    rows = {secrets.token_bytes(32): secrets.token_bytes(ROW_KEY_BYTES + 9) for _ in range(3)}
    here.store_rows(rows)
    names = sorted(rows)
    assert here.list_old_rows(3600) == []
    assert here.list_old_rows(-3600) == names
    assert here.list_old_rows(-3600, names[0], 1) == names[1:2]
    here.close()
