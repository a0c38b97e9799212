"""What facts say of themselves: how a usage is priced, and for how long it is cached."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import Usage


@pytest.mark.parametrize(
    ("for_an_hour", "priced", "is_for_an_hour"),
    [
        (0, 1_000.0, False),
        (400, 1_240.0, False),
        (500, 1_300.0, False),
        (501, 1_300.6, True),
        (1_000, 1_600.0, True),
    ],
)
def test_tokens_cached_for_an_hour_count_for_more_and_the_greater_part_says_how_long(
    for_an_hour: int, priced: float, is_for_an_hour: bool
) -> None:
    usage = Usage(1_000, cache_write=1_000, cache_write_hour=for_an_hour)
    assert usage.priced_cache_write == pytest.approx(priced)
    assert usage.is_cached_for_an_hour == is_for_an_hour
