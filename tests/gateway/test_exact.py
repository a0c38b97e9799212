"""Short forms of the trials of tests/faults: what goes through unchanged, and which
conversation it is.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.faults import gateway_exact, gateway_histories
from tests.gateway.running import PROTOCOLS


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_with_folds_off_odd_requests_arrive_as_they_were_sent(protocol: str) -> None:
    rng = random.Random(protocol)
    found = Counter[str]()
    gateway_exact.trial(protocol, gateway_exact.bodies(protocol, 25, rng), rng, found)
    assert found == {f"{protocol} requests": 25}


async def test_agents_that_rewind_edit_and_work_side_by_side_stay_in_their_own_conversations(
    tmp_path: Path,
) -> None:
    found = Counter[str]()
    await gateway_histories.trial(tmp_path, 11, 3, found)
    assert found.pop("requests") > 50
    assert found == {"histories": 11}
