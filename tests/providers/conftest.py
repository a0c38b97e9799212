from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from helix_desktop.providers.http_transport import ProviderConnections
from tests.providers.asking import Instant


@pytest.fixture
async def connections() -> AsyncIterator[ProviderConnections]:
    """The connections of one test, closed behind it."""
    made = ProviderConnections()
    yield made
    await made.aclose()


@pytest.fixture
def clock() -> Instant:
    return Instant()
