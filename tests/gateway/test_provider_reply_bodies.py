"""Replies that came whole: their JSON, also where they were compressed or are large."""

from __future__ import annotations

import gzip
import json

import pytest

from helix_desktop.gateway import provider_reply_bodies
from helix_desktop.gateway.provider_reply_bodies import parse_whole_reply

VALUE = {"id": "m", "content": [{"type": "text", "text": "word " * 200}]}
PLAIN = json.dumps(VALUE).encode()


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_a_reply_is_read_whatever_its_coding_and_size(
    monkeypatch: pytest.MonkeyPatch, coding: str, *, large: bool
) -> None:
    monkeypatch.setattr(provider_reply_bodies, "LARGE_REPLY_BYTES", 100 if large else 1 << 20)
    content = gzip.compress(PLAIN) if coding else PLAIN
    assert await parse_whole_reply(bytearray(content), coding) == VALUE


@pytest.mark.parametrize(
    ("content", "coding"), [(b"{", ""), (b"not gzip", "gzip"), (gzip.compress(PLAIN, mtime=0)[:-20], "gzip")]
)
async def test_a_damaged_reply_is_a_value_error(content: bytes, coding: str) -> None:
    with pytest.raises(ValueError):
        await parse_whole_reply(bytearray(content), coding)


async def test_a_reply_that_stands_for_more_than_is_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_reply_bodies, "MOST_REPLY_BYTES", 500)
    with pytest.raises(ValueError):
        await parse_whole_reply(bytearray(gzip.compress(PLAIN)), "gzip")
