"""PostgreSQL as a row store. Put-if-absent is `ON CONFLICT DO NOTHING`, durability is
`synchronous_commit`.

Failures become a few sentences: unreachable (a retry may help), or what a person must
do. If a connection has died meanwhile, the call is made once more on a new one, as all
calls can be repeated.
"""

import hashlib
import os
import re
import ssl
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import certifi

from helix_desktop.errors import (
    HelixError,
    InvalidInput,
    NotFound,
    SharedStoreUnreachable,
    StoreFailed,
    StoreFull,
)
from helix_desktop.resources import read_sql_statements, read_table
from helix_desktop.store.shared import postgres_pool, row_store
from helix_desktop.store.shared.row_encryption import INSTALL
from helix_desktop.store.shared.row_store import ROW_KEY_BYTES, RowUsage, Tombstone, is_private_host

if TYPE_CHECKING:
    import psycopg

    from helix_desktop.store.shared.postgres_pool import PoolTransaction, Rows, Statement

T = TypeVar("T")
_SQL = read_sql_statements("shared_row_statements")
_TIMES: Mapping[str, int] = read_table("shared_store_times")
_WRITES_BETWEEN_QUOTA_CHECKS = 20  # We read the quota again after this many puts.
_NOTHING_LOST = "Nothing was lost."
_SIGNS_OF_REJECTED_LOGIN = ("password authentication failed", "no password supplied", 'role "')
_SIGNS_OF_CUT_CONNECTION = ("closed", "eof", "syscall")
_REPEATED_ADDRESS = re.compile(
    r"(connection failed: )?(connection to server .*? port \d+ failed: )?(FATAL:\s+)?"
)  # Removed from error messages, as it only repeats the address.
_CODES_OF_FULL_STORE = ("53100", "53200")
# SQLSTATE classes of temporary errors: connection, operator, resources, rollback, state, lock.
_CLASSES_OF_TEMPORARY_ERRORS = "08", "57", "53", "40", "25", "55"


class PostgresRowStore:
    """row_store.RowStore in a database. `password`: used if the address has none."""

    def __init__(self, url: str, space: bytes, *, password: str = "") -> None:
        """Prepare to use a workspace's rows, those of `space`. Nothing is sent yet. Workspaces on one
        server share its connections.
        """
        try:
            import psycopg
        except ImportError as error:
            raise NotFound(
                "Sharing over PostgreSQL requires the Python package psycopg, which is not installed.",
                remedy=INSTALL,
            ) from error
        self._psycopg = psycopg
        self._space = space
        arguments = _connection_arguments(psycopg, url, password)
        sorted_arguments = sorted(arguments.items())
        arguments_as_bytes = repr(sorted_arguments).encode()
        self.server = hashlib.sha256(arguments_as_bytes).hexdigest()
        self._pool = postgres_pool.acquire_pool(
            self.server, lambda: postgres_pool.PostgresPool(psycopg, arguments)
        )
        self._is_closed = False
        # How many more writes there are before the quota is read again.
        self._writes_until_quota_check = 0

    def store_rows(self, rows: Mapping[bytes, bytes]) -> None:
        self.run_transaction(self.build_statement_to_store(rows))

    def build_statement_to_store(self, rows: Mapping[bytes, bytes]) -> "Statement":
        """Return a statement that stores rows that are not there yet, unless the quota is reached.
        A row begins with random bytes from which its key is made. They are a column of their own.
        """
        names: list[bytes] = []
        keys: list[bytes] = []
        bodies: list[bytes] = []
        for name, row in rows.items():
            names.append(name)
            keys.append(bytes(row[:ROW_KEY_BYTES]))
            bodies.append(bytes(row[ROW_KEY_BYTES:]))
        self._check_quota_now_and_then(sum(map(len, bodies)))
        return _SQL["put"], (self._space, names, keys, bodies, self._space)

    def _check_quota_now_and_then(self, added_bytes: int) -> None:
        """Refuse a write that would exceed the quota, as far as that is known: the quota is read
        before every so many writes, and close to the limit before each of them.
        """
        self._writes_until_quota_check -= 1
        if self._writes_until_quota_check >= 0:
            return
        used = self.fetch_row_usage()
        if used.quota and used.bytes + added_bytes > used.quota:
            raise row_store.quota_reached_error(used.quota)
        bytes_until_next_check = _WRITES_BETWEEN_QUOTA_CHECKS * max(added_bytes, 1 << 20)
        is_near_limit = used.quota and used.bytes + bytes_until_next_check > used.quota
        if is_near_limit:
            self._writes_until_quota_check = 0
        else:
            self._writes_until_quota_check = _WRITES_BETWEEN_QUOTA_CHECKS

    def fetch_rows(self, names: Collection[bytes]) -> Mapping[bytes, bytes]:
        return {name: key + body for name, key, body in self._query_rows(_SQL["get"], list(names))}

    def find_missing_rows(self, names: Collection[bytes]) -> frozenset[bytes]:
        return frozenset(name for (name,) in self._query_rows(_SQL["lacking"], list(names)))

    def remove_rows(self, names: Collection[bytes]) -> None:
        self.run_transaction(self.build_statement_to_remove(names))

    def build_statement_to_remove(self, names: Collection[bytes]) -> "Statement":
        return _SQL["drop"], (list(names), self._space, self._space)

    def forget_rows(self, tombs: Sequence[Tombstone]) -> None:
        """Destroy rows for good, and leave a tombstone for each, so that other machines forget
        them, too.

        A put that began earlier may not see the tombstones and write a row again. So those puts
        are awaited, and the rows are removed once more.
        """
        names = [tomb.name for tomb in tombs]
        sealed_digests = [tomb.sealed_digest for tomb in tombs]

        *_, transaction_rows = self.run_transaction(
            (_SQL["bury"], (self._space, names, sealed_digests)),
            self.build_statement_to_remove(names),
            ("SELECT pg_current_xact_id()::text::bigint", ()),
        )
        self._wait_for_earlier_puts(int(transaction_rows[0][0]))
        self.remove_rows(names)  # Earlier puts may have written some again.

    def _wait_for_earlier_puts(self, transaction: int) -> None:
        """Wait until all puts have ended that began before the tombstones were visible."""
        statement = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint > %s"
        for _ in range(600):
            if self._query_rows(statement, transaction) == [(True,)]:
                return
            time.sleep(0.1)
        raise StoreFailed(
            "A long-running transaction in the shared store prevents rows from being removed completely.",
            remedy="The removed rows can no longer be read. To remove these rows from disk, use Forget again after the long-running transaction has ended.",
        )

    def fetch_tombstones(self, after: int) -> tuple[Sequence[Tombstone], int]:
        """Return the tombstones since a mark, and the newest mark. Some may be returned again."""
        # Marks may appear late and out of order, so the last 1,000 are always read again.
        statement = "SELECT name, word, mark FROM helix.forgotten WHERE space = %b AND mark > %s ORDER BY mark"
        rows = self._query_rows(statement, self._space, max(0, after - 1_000))
        tombstones = []
        newest_mark = 0
        for name, sealed_digest, mark in rows:
            tombstones.append(Tombstone(name, sealed_digest))
            newest_mark = max(newest_mark, mark)
        return tombstones, newest_mark

    def publish_used_rows(self, machine: bytes, encrypted: bytes) -> None:
        """Store what this machine says it uses, or delete it if there is nothing."""
        if encrypted:
            self._query_rows(
                "INSERT INTO helix.machines VALUES (%b, %b, %b) ON CONFLICT (space, machine) DO UPDATE"
                " SET sealed = excluded.sealed RETURNING 1",
                self._space,
                machine,
                encrypted,
            )
        else:
            self._query_rows(
                "DELETE FROM helix.machines WHERE space = %b AND machine = %b RETURNING 1",
                self._space,
                machine,
            )

    def fetch_published_uses(self) -> Mapping[bytes, bytes]:
        return dict(
            self._query_rows(
                "SELECT machine, sealed FROM helix.machines WHERE space = %b", self._space
            )
        )

    def list_old_rows(
        self, older: float, after: bytes = b"", limit: int = 10_000
    ) -> Sequence[bytes]:
        return [name for (name,) in self._query_rows(_SQL["old"], self._space, after, older, limit)]

    def fetch_row_usage(self) -> RowUsage:
        statement = (
            "SELECT coalesce(sum(rows), 0)::bigint, coalesce(sum(bytes), 0)::bigint, coalesce((SELECT bytes FROM helix.quotas"
            " WHERE space = %b), 0)::bigint FROM helix.usage WHERE space = %b"
        )
        rows, size, quota = self._query_rows(statement, self._space, self._space)[0]
        return RowUsage(rows, size + ROW_KEY_BYTES * rows, quota)

    def set_quota(self, quota: int) -> None:
        self._query_rows(
            "INSERT INTO helix.quotas VALUES (%b, %s) ON CONFLICT (space) DO UPDATE SET bytes = excluded.bytes RETURNING 1",
            self._space,
            quota,
        )
        self._writes_until_quota_check = 0

    def describe_server(self) -> str:
        """Return a sentence's worth on the server, for the user: its version and its standby
        servers.
        """
        version, standbys = self._query_rows(
            "SELECT current_setting('server_version'), count(*) FROM pg_stat_replication"
        )[0]
        description = f"PostgreSQL {version.split()[0]}"
        if standbys == 1:
            return f"{description}, 1 standby server"
        if standbys > 1:
            return f"{description}, {standbys} standby servers"
        return description

    def describe_remaining_copies(self) -> Sequence[str]:
        return (
            "The server's tables contain the encrypted text until VACUUM has run and the pages are overwritten.",
            "The server's log (WAL), its archive and its standby servers contain it until those files are recycled.",
            "Backups of the server contain it, and anyone who also has the workspace's key can read it there.",
        )

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            postgres_pool.release_pool(self.server, self._pool)

    def run_transaction(self, *statements: "Statement") -> "list[Rows]":
        return self._convert_errors(lambda: self._pool.run_in_transaction(statements))

    def run_work_in_store(self, work: "Callable[[PoolTransaction], T]") -> T:
        """Run a function in a transaction, which commits when it returns."""
        return self._convert_errors(lambda: self._pool.run_work_in_transaction(work))

    def _convert_errors(self, run: "Callable[[], T]") -> T:
        """Return what `run` returns, with the database's errors turned into sentences."""
        try:
            return run()
        except self._psycopg.Error as error:
            raise convert_postgres_error(error) from error
        except postgres_pool.UnconfirmedCommit as error:
            raise SharedStoreUnreachable(
                "The shared store's standby server did not confirm that it received the content.",
                remedy=_NOTHING_LOST,
            ) from error

    def _query_rows(self, statement: str, *values: Any) -> "Rows":
        return self.run_transaction((statement, values))[0]


def _connection_arguments(psycopg: Any, url: str, password: str) -> dict[str, Any]:
    """Return what to connect with, by the address. What it says itself always counts; without
    a word on it, a server outside one's own network must prove who it is.
    """
    try:
        arguments: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(url, client_encoding="utf8")
    except psycopg.Error as error:
        raise InvalidInput(
            # libpq's own message may contain the password.
            "This is not the address of a PostgreSQL database.",
            remedy="For example: postgresql://user@host/database.",
        ) from error
    if password and not arguments.get("password"):
        arguments["password"] = password
    says_nothing_on_ssl = "sslmode" not in arguments and "sslrootcert" not in arguments
    if says_nothing_on_ssl and not _are_all_hosts_private(arguments):
        arguments["sslmode"] = "verify-full"
        arguments["sslrootcert"] = "system"
    if arguments.get("sslrootcert") == "system":
        arguments["sslrootcert"] = _sslrootcert_option()

    all_arguments: dict[str, Any] = {
        "target_session_attrs": "read-write",
        "application_name": "helix-desktop",
    }
    all_arguments.update(_TIMES)
    all_arguments.update(arguments)
    return all_arguments


def _sslrootcert_option() -> str:
    """Return the system's certificates, for which the libpq of a wheel or installer
    looks in the wrong place.
    """
    if os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR"):
        return "system"  # libpq understands this value.
    return ssl.get_default_verify_paths().cafile or certifi.where()


def _are_all_hosts_private(arguments: Mapping[str, Any]) -> bool:
    """Whether all hosts are local or private, also those that libpq takes from elsewhere."""
    if arguments.get("service") or os.environ.get("PGSERVICE"):
        return False  # A service file, which is not read here, may name any host.
    host_list = arguments.get("host") or os.environ.get("PGHOST") or ""
    address_list = arguments.get("hostaddr") or os.environ.get("PGHOSTADDR") or ""
    hosts = str(host_list).split(",")
    addresses = str(address_list).split(",")
    for host, address in zip_longest(hosts, addresses, fillvalue=""):
        # libpq connects to the address, where there is one, whatever the host is called.
        connected_host = address or host
        if not is_private_host(connected_host):
            return False
    return True


def convert_postgres_error(error: "psycopg.Error") -> HelixError:
    """Return a sentence for an error: SharedStoreUnreachable if a retry may help."""
    code = error.sqlstate or ""
    text = _first_line_of_error(error)
    message = text.lower()
    if code.startswith("28") or any(words in message for words in _SIGNS_OF_REJECTED_LOGIN):
        return StoreFailed(
            "The shared store rejected the user name or the password.",
            remedy="Nothing was lost. Check the user name and password in the address, then share or join the workspace again.",
        )
    if "server does not support ssl" in message:
        return StoreFailed(
            "The shared store's server does not encrypt its connections.",
            remedy="Nothing was sent. Turn on TLS on the server or, on a network you trust, add sslmode=disable to the address.",
        )
    if _is_about_certificate(code, message):
        return StoreFailed(
            f"The shared store's certificate was rejected: {text}",
            remedy="Nothing was sent, and nothing was lost. Use the correct host name, or specify the certificate with sslrootcert=FILE.",
        )
    if code in _CODES_OF_FULL_STORE:
        return StoreFull(
            "The shared store is full.",
            remedy=f"{_NOTHING_LOST} Free up space on the database server's disk.",
        )
    if code == "3D000" or ('database "' in message and "does not exist" in message):
        return NotFound(
            "The database of the shared store does not exist.",
            remedy="Create the database on the server first.",
        )
    return _convert_state_code(code, text)


def _is_about_certificate(code: str, message: str) -> bool:
    if "certificate" in message:
        return True
    # Without a code, the error is of the client. A cut connection is no matter of trust.
    is_cut = any(words in message for words in _SIGNS_OF_CUT_CONNECTION)
    return "ssl" in message and not code and not is_cut


def _convert_state_code(code: str, text: str) -> HelixError:
    """Say what an error with this SQLSTATE code means: what may pass is asked again later, and
    anything else is a refusal.
    """
    if code == "42501":
        return StoreFailed(
            "The database user for the shared store does not have permission to use or create its tables.",
            remedy=f"{_NOTHING_LOST} Give the database user permission to create a schema.",
        )
    if not code or code[:2] in _CLASSES_OF_TEMPORARY_ERRORS:
        what = f"The shared store is not responding: {text}"
        if "Connection refused" in text:
            what = "No server is running at the address of the shared store."
        return SharedStoreUnreachable(
            what,
            remedy="You can keep working. Your changes are stored on this computer until the shared store responds.",
        )
    return StoreFailed(f"The shared store refused the request: {text}", remedy=_NOTHING_LOST)


def _first_line_of_error(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = type(error).__name__
    if lines:
        text = _REPEATED_ADDRESS.sub("", lines[0])
    return f"{text.rstrip('.')[:300]}."
