"""Bytes are shown as what they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gui.cache.shapes import HexLines, Shape, as_json, as_rows, is_text, shapes_of, text_lines

T, J, C, P, H = Shape.TEXT, Shape.JSON, Shape.TABLE, Shape.IMAGE, Shape.HEX


@pytest.mark.parametrize(
    ("media", "source", "content", "shapes"),
    [
        ("text/plain", "a.rs", b"fn main() {}", (T, H)),
        ("application/json", "x", b'{"a": 1}', (J, T, H)),
        ("text/plain", "out", b"[1, 2]", (T, J, H)),
        ("application/json", "x", b"{broken", (T, H)),
        ("text/csv", "x.csv", b"a,b\n1,2\n", (C, T, H)),
        ("image/png", "x.png", b"\x89PNG", (P, H)),
        ("image/svg+xml", "x.svg", b"<svg onload=evil()>", (T, H)),
        ("application/octet-stream", "x", b"\0\1\2", (H,)),
    ],
)
def test_how_an_entry_can_be_shown(media: str, source: str, content: bytes, shapes: tuple[Shape, ...]) -> None:
    assert shapes_of(media, source, content, len(content)) == shapes


def test_a_few_bad_bytes_do_not_make_a_text_binary() -> None:
    assert is_text(b"caf\xe9 " + b"word " * 200)
    assert not is_text(b"\xff\xfe\xfd" * 100)


@given(st.binary(max_size=400))
def test_hex_shows_every_byte(content: bytes) -> None:
    lines = HexLines(content, 4096)
    shown = "".join(lines[i][:48].replace(" ", "") for i in range(len(lines)))
    assert bytes.fromhex(shown) == content
    assert not content or lines.label(0) == "00001000"


def test_pages_of_a_text_lose_only_the_sign_that_was_cut() -> None:
    content = ("€" * 10 + "\n").encode() * 4
    first, ends = text_lines(content[:40], first=True, last=False)
    second, _ = text_lines(content[40:], first=False, last=True)
    assert ends == 1
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(first + second)


def test_json_and_tables_from_hostile_text() -> None:
    assert as_json("[" * 100_000) is None
    assert as_json('"text"') is None
    assert as_rows('a,b\n"open', "x.csv")[0] == ["a", "b"]
    assert len(as_rows("x\n" * 20_000, "x.csv")) == 5_000
