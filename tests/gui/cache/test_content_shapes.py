"""Bytes are shown as what they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gui.cache.content_shapes import (
    ContentShape,
    HexDumpLines,
    list_possible_content_shapes,
    parse_json_container,
    split_page_lines,
)

T, J, P, H = ContentShape.TEXT, ContentShape.JSON, ContentShape.IMAGE, ContentShape.HEX


@pytest.mark.parametrize(
    ("media", "source", "content", "shapes"),
    [
        ("text/plain", "a.rs", b"fn main() {}", (T, H)),
        ("application/json", "x", b'{"a": 1}', (J, T, H)),
        ("text/plain", "out", b"[1, 2]", (T, J, H)),
        ("application/json", "x", b"{broken", (T, H)),
        ("text/csv", "x.csv", b"a,b\n1,2\n", (T, H)),
        ("image/png", "x.png", b"\x89PNG", (P, H)),
        ("image/svg+xml", "x.svg", b"<svg onload=evil()>", (T, H)),
        ("application/octet-stream", "x", b"\0\1\2", (H,)),
        ("text/plain", "lines of a.jsonl", b'\0the lines\n{"type": "user"}\n', (T, H)),
    ],
)
def test_how_an_entry_can_be_shown(
    media: str, source: str, content: bytes, shapes: tuple[ContentShape, ...]
) -> None:
    assert list_possible_content_shapes(media, source, content, len(content)) == shapes


@given(st.binary(max_size=400))
def test_hex_shows_every_byte(content: bytes) -> None:
    lines = HexDumpLines(content, 4096)
    shown = "".join(lines[i][:48].replace(" ", "") for i in range(len(lines)))
    assert bytes.fromhex(shown) == content
    assert not content or lines.format_offset_of_hex_row(0) == "00001000"


def test_pages_of_a_text_lose_only_the_sign_that_was_cut() -> None:
    content = ("€" * 10 + "\n").encode() * 4
    first, ends = split_page_lines(content[:40], first=True, last=False)
    second, _ = split_page_lines(content[40:], first=False, last=True)
    assert ends == 1
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(first + second)


def test_json_from_hostile_text() -> None:
    assert parse_json_container("[" * 100_000) is None
    assert parse_json_container('"text"') is None
