"""How long a request asks to be cached: what its last mark says."""

from __future__ import annotations

from typing import Any

import pytest

from helix_desktop.protocols.asked_cache_lifetime import cache_seconds_asked_for

Json = Any


def message(*marks: Json) -> Json:
    blocks = []
    for mark in marks:
        block: dict[str, Json] = {"type": "text", "text": "x"}
        if mark is not None:
            block["cache_control"] = mark
        blocks.append(block)
    return {"role": "user", "content": blocks}


USUAL = {"type": "ephemeral"}
FIVE = {"type": "ephemeral", "ttl": "5m"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize(
    ("body", "messages", "seconds"),
    [
        ({}, [], 0),
        ({}, [message(None)], 0),
        ({}, [{"role": "user", "content": "no blocks"}], 0),
        ({}, [message(USUAL)], 300),
        ({}, [message(HOUR)], 3_600),
        ({}, [message(HOUR), message(FIVE)], 300),
        ({}, [message(FIVE), message(HOUR), message(None)], 3_600),
        ({}, [message(HOUR, None, FIVE)], 300),
        ({"cache_control": HOUR}, [message(FIVE)], 3_600),
        ({"cache_control": USUAL}, [], 300),
        ({"prompt_cache_options": {"ttl": "12h"}}, [], 43_200),
        ({"prompt_cache_options": {"ttl": "30m"}}, [], 1_800),
        ({"prompt_cache_options": {"ttl": "of tomorrow"}}, [], 0),
        ({"prompt_cache_options": {"mode": "explicit"}}, [], 0),
    ],
)
def test_the_last_mark_says_how_long(body: Json, messages: list[Json], seconds: int) -> None:
    assert cache_seconds_asked_for(body, messages) == seconds
