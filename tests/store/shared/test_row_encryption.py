from __future__ import annotations

import hashlib
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.errors import CacheCorrupt, InvalidInput
from helix_desktop.store.shared import row_encryption
from helix_desktop.store.shared.row_encryption import SMALLEST, STEP, RowCipher, padded_size
from helix_desktop.store.shared.row_store import ROW_KEY_BYTES

KEYS = st.binary(min_size=32, max_size=32)


@given(KEYS, st.binary(max_size=3000), st.binary(min_size=1, max_size=40))
def test_what_was_sealed_opens_under_its_name_only(key: bytes, content: bytes, kind: bytes) -> None:
    seal = RowCipher(key)
    name = seal.keyed_row_name("entry", kind)
    sealed = seal.encrypt_row(name, content)
    assert seal.decrypt_row(name, sealed) == content
    with pytest.raises(CacheCorrupt):
        seal.decrypt_row(seal.keyed_row_name("chunk", kind), sealed)


@given(KEYS, st.binary(max_size=1200), st.data())
def test_every_flipped_bit_is_found(key: bytes, content: bytes, data: st.DataObject) -> None:
    seal = RowCipher(key)
    name = seal.keyed_row_name("entry", content)
    sealed = bytearray(seal.encrypt_row(name, content))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CacheCorrupt):
        seal.decrypt_row(name, bytes(sealed))


@given(KEYS, KEYS, st.binary(max_size=100))
def test_two_workspaces_have_nothing_in_common(one: bytes, other: bytes, content: bytes) -> None:
    if one != other:
        assert RowCipher(one).keyed_row_name("entry", content) != RowCipher(other).keyed_row_name(
            "entry", content
        )
        assert RowCipher(one).space != RowCipher(other).space


@given(st.integers(1, 10 * STEP))
def test_sizes_are_padded_to_few(size: int) -> None:
    there = padded_size(size)
    assert there >= size
    assert there >= SMALLEST
    assert there == 1 << (there.bit_length() - 1) if there <= STEP else there % STEP == 0


def test_the_same_content_sealed_twice_differs_and_its_key_is_needed() -> None:
    seal = RowCipher(row_encryption.new_workspace_key())
    name = seal.keyed_row_name("entry", b"x")
    one = seal.encrypt_row(name, b"x" * 400)
    other = seal.encrypt_row(name, b"x" * 400)
    assert one != other
    assert len(one) == len(other) == ROW_KEY_BYTES + SMALLEST
    with pytest.raises(CacheCorrupt):
        seal.decrypt_row(name, other[:ROW_KEY_BYTES] + one[ROW_KEY_BYTES:])


@given(KEYS)
def test_a_key_is_copied_as_text(key: bytes) -> None:
    text = row_encryption.format_key_line(key)
    assert row_encryption.parse_key_line(f"  {text.upper()}\n") == key
    at = len("helix1-") + 5
    slipped = text[:at] + ("a" if text[at] != "a" else "b") + text[at + 1 :]
    for wrong in (slipped, text[:-1], text[7:], "", "helix1-", "helix1-é" + text[8:]):
        with pytest.raises(InvalidInput):
            row_encryption.parse_key_line(wrong)


def test_keys_and_names_are_derived_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever changes this makes every shared workspace unreadable: what was sealed by
    0.1 opens in every later version.
    """
    monkeypatch.setattr(secrets, "token_bytes", lambda count: bytes(range(100, 100 + count)))
    seal = RowCipher(bytes(range(32)))
    name = seal.keyed_row_name("entry", b"content")
    sealed = seal.encrypt_row(name, b"hello")
    assert seal.space.hex() == "e7c68b179e124da15f1248acae32d35b"
    assert name.hex() == "a21da773a27b6849411b3c81d392c884f12b5196b1302dce779cc68836517ded"
    digest = "b4384fd578896215d364a5a226a201cdb4474e97b44ee4240a01331807be318e"
    assert (len(sealed), hashlib.sha256(sealed).hexdigest()) == (544, digest)


def test_a_new_key_is_as_long_as_those_that_can_be_copied_and_never_the_same() -> None:
    key = row_encryption.new_workspace_key()
    assert len(key) == 32
    assert row_encryption.parse_key_line(row_encryption.format_key_line(key)) == key
    assert key != row_encryption.new_workspace_key()


@pytest.mark.parametrize(
    ("size", "padded"),
    [
        (1, SMALLEST),
        (SMALLEST, SMALLEST),
        (SMALLEST + 1, 2 * SMALLEST),
        (1024, 1024),
        (1025, 2048),
        (STEP - 1, STEP),
        (STEP, STEP),
        (STEP + 1, 2 * STEP),
        (2 * STEP, 2 * STEP),
        (2 * STEP + 1, 3 * STEP),
    ],
)
def test_sizes_grow_at_powers_of_two_and_then_by_steps(size: int, padded: int) -> None:
    assert padded_size(size) == padded


@pytest.mark.parametrize("room_left", [0, 1, -1])
def test_the_tag_and_the_length_are_within_what_is_padded(room_left: int) -> None:
    """A row whose content just fits is no larger than it must be, and one byte more is
    the next size.
    """
    seal = RowCipher(bytes(32))
    name = seal.keyed_row_name("entry", b"x")
    sealed = seal.encrypt_row(name, b"x" * (SMALLEST - 16 - 8 - room_left))
    assert len(sealed) - ROW_KEY_BYTES == (SMALLEST if room_left >= 0 else 2 * SMALLEST)
