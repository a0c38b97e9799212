from __future__ import annotations

import gzip
import io
import itertools
import random
import time
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import pytest
import zstandard

from helix_desktop.decompression import (
    BodyDecompressor,
    DecodedTooLarge,
    UnreadableCoding,
    decompress_body,
    decompress_zstd_frame,
    open_foreign_archive,
    read_archive_member,
)
from tests.hostile_bodies import CODINGS, hostile_body

LIMIT = 1 << 20
SAID = b'{"model": "a", "messages": []}' * 20


def test_every_coding_within_every_other_is_undone() -> None:
    tried = [name for name in CODINGS if name != "ZSTD"]  # asks for a window of 128 MB: see below
    for inner, outer, step in itertools.product(tried, tried, [1, 7, 1 << 16]):
        content = CODINGS[outer](CODINGS[inner](SAID))
        body = BodyDecompressor(f"{inner}, {outer}", LIMIT)
        pieces = [content[at : at + step] for at in range(0, len(content), step)]
        assert b"".join(map(body.decode_piece, pieces)) == SAID, (inner, outer, step)


def test_what_is_past_the_limit_is_not_made() -> None:
    for name, squeeze in CODINGS.items():
        if name != "ZSTD":
            assert decompress_body(squeeze(bytes(LIMIT)), name, LIMIT) == bytes(LIMIT)
            with pytest.raises(DecodedTooLarge) as caught:
                decompress_body(squeeze(bytes(LIMIT + 1)), name, LIMIT)
            assert len(caught.value.decoded) <= LIMIT


def test_a_frame_that_asks_for_more_memory_than_the_standard_allows_is_refused() -> None:
    wide = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    content = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    with pytest.raises(UnreadableCoding):
        decompress_body(content.compress(bytes(1000)) + content.flush(), "zstd", LIMIT)


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("br", "'br' is not read"),
        ("gzip, br", "'br'"),
        ("compress", "'compress'"),
        ("gzip," * 5, "compressed 5 times"),
    ],
)
def test_a_coding_that_is_not_read_gets_a_sentence(encoding: str, words: str) -> None:
    with pytest.raises(UnreadableCoding, match=words):
        BodyDecompressor(encoding, LIMIT)


def test_damage_and_endless_empty_members_get_a_sentence() -> None:
    for content, encoding in (
        (b"no gzip at all", "gzip"),
        (gzip.compress(SAID)[:-8] + b"\xff" * 8, "gzip"),
        (gzip.compress(b"") * 2_000, "gzip"),
        (b"nothing", "zstd"),
        (b"\x78\x9c\xff\xff", "deflate"),
    ):
        with pytest.raises(UnreadableCoding):
            decompress_body(content, encoding, LIMIT)


def test_members_one_after_the_other_and_padding_are_read() -> None:
    assert (
        decompress_body(gzip.compress(b"a") + gzip.compress(b"b") + bytes(9), "gzip", LIMIT)
        == b"ab"
    )
    assert decompress_body(zlib.compress(b"a") + b"left over", "deflate", LIMIT) == b"a"
    assert decompress_body(b"", "gzip, zstd, deflate", LIMIT) == b""  # a reply without a body


def test_a_body_that_is_cut_off_anywhere_is_said_to_be() -> None:
    """What was there of a cut-off body passed for the whole of it."""
    names = [name for name in CODINGS if name not in ("ZSTD", "identity")]
    tried = 0
    for inner, outer in itertools.product([*names, "identity"], names):
        content = CODINGS[outer](CODINGS[inner](SAID))
        if outer == "gzip":
            content += gzip.compress(b"a second member")
        if outer == "zstd":
            content += zstandard.ZstdCompressor(write_checksum=True).compress(b"a second frame")
        for end in range(1, len(content)):
            body = BodyDecompressor(f"{inner}, {outer}", LIMIT)
            try:
                decoded = body.decode_piece(content[:end])
                body.require_end()
            except UnreadableCoding:
                tried += 1
            else:
                # Where one member or frame ends, nobody can know that another one should follow.
                assert decoded == SAID, (inner, outer, end)
                assert outer in ("gzip", "zstd")
    assert tried > 2_000
    assert decompress_body(zlib.compress(b"a")[:-2], "deflate", LIMIT, may_be_cut=True) == b"a"


@pytest.mark.parametrize("size", [1, 65_536, 65_537, 131_072, 131_073, 200_000, 300_000, 2_000_000])
def test_all_that_a_server_has_flushed_comes_at_once(size: int) -> None:
    """Of zstd, up to 128 KB waited for the next piece: for the last event, without end."""
    for plain in (b"a" * size, random.Random(size).randbytes(size)):
        flushed = zstandard.ZstdCompressor().compressobj()
        content = flushed.compress(plain) + flushed.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        assert BodyDecompressor("zstd", 1 << 22).decode_piece(content) == plain


def test_a_frame_that_is_cut_off_or_followed_by_something_is_no_frame() -> None:
    compressors = (
        zstandard.ZstdCompressor(),
        zstandard.ZstdCompressor(write_checksum=True),
        zstandard.ZstdCompressor(write_content_size=False),
    )
    for compressor in compressors:
        frame = compressor.compress(SAID)
        spoiled = [frame[:end] for end in range(len(frame))]
        if zstandard.frame_content_size(frame) != -1:
            spoiled += [frame + frame, frame + b"a"]
        for content in spoiled:
            with pytest.raises(zstandard.ZstdError):
                decompress_zstd_frame(content, LIMIT)


@pytest.mark.parametrize("seed", range(40))
def test_a_hostile_body_takes_no_more_memory_and_time_than_its_limits(seed: int) -> None:
    """1,000 and more of them: `packaging/dev.py faults bodies`."""
    body = hostile_body(seed)
    tracemalloc.start()
    began = time.process_time()
    try:
        decoded = decompress_body(body.content, body.encoding, LIMIT)
        assert body.plain is None or decoded == body.plain
    except DecodedTooLarge:
        assert body.plain is None or len(body.plain) > LIMIT or len(body.content) > LIMIT
    except UnreadableCoding:
        assert (
            body.plain is None
            or "ZSTD" in body.encoding
            or len(body.plain) > LIMIT
            or b"\x1f\x8b" in body.plain[:2]
        )
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 8 << 20
    assert time.process_time() - began < 2.0


def test_an_archive_with_any_byte_of_its_content_damaged_is_said_to_be_damaged() -> None:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", SAID)
        size = archive.getinfo("a").compress_size
    first = 30 + len("a")  # The length of a member's header.
    # Of the last byte, not all bits mean something.
    for position in range(first, first + size - 1):
        damaged = bytearray(whole.getvalue())
        damaged[position] ^= 0x55
        with (
            pytest.raises(zipfile.BadZipFile),
            open_foreign_archive(io.BytesIO(damaged)) as archive,
        ):
            read_archive_member(archive, "a", LIMIT)


def test_nothing_is_read_of_an_archives_member_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "bomb.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(8 << 20))
    with open_foreign_archive(path) as archive:
        tracemalloc.start()
        with pytest.raises(zipfile.BadZipFile, match="is larger than 4,194,304 bytes"):
            read_archive_member(archive, "a", 4 << 20)
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert most_bytes < 1 << 20
