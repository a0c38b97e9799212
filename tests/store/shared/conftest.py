from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from helix_desktop.store.shared import row_encryption
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_store import RowStore
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


@pytest.fixture
def seal() -> row_encryption.RowCipher:
    """Of a workspace nobody has met yet."""
    return row_encryption.RowCipher(row_encryption.new_workspace_key())


@pytest.fixture(params=["memory", "postgres", "pgbouncer"])
def another(request: pytest.FixtureRequest, seal: row_encryption.RowCipher) -> Iterator[Another]:
    """Opens the same engine for one machine more."""
    opened: list[RowStore] = []
    shelf = MemoryServer()

    def one() -> RowStore:
        engine: RowStore
        if request.param == "memory":
            engine = MemoryRowStore(shelf, seal.space)
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
