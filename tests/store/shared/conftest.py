from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from helix_desktop.store.shared import sealing
from helix_desktop.store.shared.engine import Engine
from helix_desktop.store.shared.memory import MemoryEngine, Shelf
from helix_desktop.store.shared.postgres import PostgresEngine
from tests.peers import postgres

Another = Callable[[], Engine]


@pytest.fixture(scope="session")
def server() -> Iterator[postgres.Server]:
    if why := postgres.why_not():
        pytest.skip(why)
    one = postgres.Server(postgres.FAST)
    try:
        yield one.start()
    finally:
        one.remove()


@pytest.fixture
def seal() -> sealing.Seal:
    """Of a workspace nobody has met yet."""
    return sealing.Seal(sealing.new_key())


@pytest.fixture(params=["memory", "postgres"])
def another(request: pytest.FixtureRequest, seal: sealing.Seal) -> Iterator[Another]:
    """Opens the same engine for one machine more."""
    opened: list[Engine] = []
    shelf = Shelf()

    def one() -> Engine:
        engine: Engine
        if request.param == "memory":
            engine = MemoryEngine(shelf, seal.space)
        else:
            engine = PostgresEngine(request.getfixturevalue("server").url, seal.space)
        opened.append(engine)
        return engine

    yield one
    for engine in opened:
        engine.close()


@pytest.fixture
def engine(another: Another) -> Engine:
    return another()
