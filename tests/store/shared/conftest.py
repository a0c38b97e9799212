from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from helix_desktop.store.shared import row_encryption
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_store import RowStore
from helix_desktop.store.shared.s3_rows import S3RowStore
from tests.peers import pgbouncer, postgres
from tests.store.shared.memory_rows import MemoryRowStore, MemoryServer

Another = Callable[[], RowStore]


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    if why := postgres.why_not():
        pytest.skip(why)
    one = postgres.Server(postgres.FAST)
    try:
        yield one.start()
    finally:
        one.remove()


@pytest.fixture(scope="session")
def pooler(server: postgres.Server) -> Iterator[pgbouncer.Pooler]:
    if why := pgbouncer.why_not():
        pytest.skip(why)
    one = pgbouncer.Pooler(server)
    yield one
    one.remove()


@contextmanager
def moto_bucket() -> Iterator[str]:
    """The address of a bucket in moto's server, which speaks the protocol and keeps all
    in memory.
    """
    from moto.server import ThreadedMotoServer

    one = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    one.start()
    host, port = one.get_host_and_port()
    url = f"http://{host}:{port}"
    request = urllib.request.Request(f"{url}/shared", method="PUT")  # noqa: S310 - this machine's
    urllib.request.urlopen(request).close()  # noqa: S310
    yield f"s3://shared/trial?endpoint={url}"
    one.stop()


@pytest.fixture(scope="session")
def bucket() -> Iterator[str]:
    with moto_bucket() as url:
        yield url


@pytest.fixture
def seal() -> row_encryption.RowCipher:
    """Of a workspace nobody has met yet."""
    return row_encryption.RowCipher(row_encryption.new_workspace_key())


@pytest.fixture(params=["memory", "postgres", "pgbouncer", "s3"])
def another(request: pytest.FixtureRequest, seal: row_encryption.RowCipher) -> Iterator[Another]:
    """Opens the same engine for one machine more."""
    opened: list[RowStore] = []
    shelf = MemoryServer()

    def one() -> RowStore:
        engine: RowStore
        if request.param == "memory":
            engine = MemoryRowStore(shelf, seal.space)
        elif request.param == "s3":
            engine = S3RowStore(request.getfixturevalue("bucket"), seal.space, login="key:secret")
        else:
            peer = "pooler" if request.param == "pgbouncer" else "server"
            engine = PostgresRowStore(request.getfixturevalue(peer).url, seal.space)
        opened.append(engine)
        return engine

    yield one
    for engine in opened:
        engine.close()


@pytest.fixture
def engine(another: Another) -> RowStore:
    return another()
