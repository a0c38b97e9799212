from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from helix_desktop.providers.transport import Connections
from tests.providers.asking import Instant


@pytest.fixture
async def connections() -> AsyncIterator[Connections]:
    """The connections of one test, closed behind it."""
    made = Connections()
    yield made
    await made.aclose()


@pytest.fixture
def clock() -> Instant:
    return Instant()
