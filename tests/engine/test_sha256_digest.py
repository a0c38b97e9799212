"""The address of content."""

from __future__ import annotations

import hashlib

import pytest

from helix_desktop.engine.sha256_digest import Digest

CONTENT = b"some content"


def test_a_digest_is_the_sha_256_of_the_content_in_both_directions() -> None:
    digest = Digest.of_content(CONTENT)
    assert digest.hex == hashlib.sha256(CONTENT).hexdigest() == str(digest)
    assert Digest.from_hex(digest.hex) == digest
    assert Digest.from_hex(digest.hex.upper()) == digest
    assert digest.short_hex == f"{digest.hex[:4]}…{digest.hex[-4:]}"


def test_digests_are_equal_sorted_and_hashed_by_their_bytes() -> None:
    low = Digest(b"\0" * 32)
    high = Digest(b"\1" * 32)
    assert sorted([high, low]) == [low, high]
    assert len({low, Digest(b"\0" * 32), high}) == 2


@pytest.mark.parametrize("raw", [b"", b"\0" * 31, b"\0" * 33])
def test_other_sizes_are_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Digest(raw)


@pytest.mark.parametrize("text", ["", "ab", "0" * 63, "0" * 65, "g" * 64, "٠" * 64, " " + "0" * 63])
def test_what_is_no_hash_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"hexadecimal|non-hex"):
        Digest.from_hex(text)


def test_a_digest_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Digest(b"\0" * 32).raw = b""  # type: ignore[misc]
