"""Histories made by chance, as the program shows them and as the reckoner does. Many
more: `dev.py faults reckoner`.
"""

from __future__ import annotations

import pytest

from tests.reckoner.compare import differences
from tests.reckoner.histories import history

EACH = 25


@pytest.mark.parametrize("first", range(0, 200, EACH))
def test_the_program_and_the_reckoner_agree(first: int) -> None:
    for seed in range(first, first + EACH):
        found = [str(each) for each in differences(history(seed, most=35))][:1]
        assert found == [], f"history {seed}"


def test_a_history_is_the_same_for_the_same_seed() -> None:
    assert history(7).recorded() == history(7).recorded() != history(8).recorded()
