"""Reading a cache: parts, names that are shortened, and what an entry that is gone says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import AmbiguousName, CacheCorrupt, InvalidInput, NotFound
from helix_desktop.store import cache_records
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_reader import CacheReader, key_range_end, prefix_bounds
from helix_desktop.store.cache_records import CHUNK
from tests.store.putting import put_whole

SHELL = EntryOrigin("shell", "make")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CacheFolder]:
    opened = CacheFolder(tmp_path / "cache")
    yield opened
    opened.close()


@pytest.fixture
def reader(cache: CacheFolder) -> CacheReader:
    return cache.reader


def test_a_part_is_what_the_content_has_there_also_across_chunks(
    cache: CacheFolder, reader: CacheReader
) -> None:
    content = random.Random(1).randbytes(2 * CHUNK + 7)
    digest = put_whole(cache, content, SHELL).digest
    assert reader.get_content(digest) == content
    places = [(0, 1), (CHUNK - 1, 2), (CHUNK, CHUNK), (2 * CHUNK, 100), (5, 2 * CHUNK), (0, 0)]
    for start, length in places:
        assert reader.read_part(digest, start, length) == content[start : start + length]
    assert reader.read_part(digest, 3 * CHUNK, 10) == b""
    for start, length in ((-1, 5), (0, -1)):
        with pytest.raises(InvalidInput, match="must both be 0 or greater"):
            reader.read_part(digest, start, length)
    chunks = list(reader.iterate_chunks(reader.record_of_content(digest)))
    assert [len(chunk) for chunk in chunks] == [CHUNK, CHUNK, 7]
    assert b"".join(chunks) == content


def test_a_description_comes_with_the_beginning_of_the_content(
    cache: CacheFolder, reader: CacheReader
) -> None:
    digest = put_whole(cache, b"first line\nsecond line", SHELL).digest
    entry = reader.read_described_entry(digest, 10)
    assert (entry.about, entry.beginning) == (SHELL, b"first line")


def test_the_beginning_of_a_hash_names_one_entry(cache: CacheFolder, reader: CacheReader) -> None:
    digests = [put_whole(cache, f"entry {number}".encode()).digest for number in range(3_000)]
    by_beginning: dict[str, list[Digest]] = {}
    for digest in digests:
        by_beginning.setdefault(digest.hex[:4], []).append(digest)
    for beginning, named in by_beginning.items():
        if len(named) == 1:
            assert reader.resolve_hash_prefix(beginning.upper()) == named[0]
            break
    several = next(beginning for beginning, named in by_beginning.items() if len(named) > 1)
    with pytest.raises(AmbiguousName, match=f"hashes of .* entries begin with {several}"):
        reader.resolve_hash_prefix(several)
    # With an odd number of digits, too.
    assert reader.resolve_hash_prefix(digests[0].hex[:17]) == digests[0]


def test_a_mistyped_hash_names_those_near_it(cache: CacheFolder, reader: CacheReader) -> None:
    name = put_whole(cache, b"one").digest.hex
    last_digit = "0" if name[11] != "0" else "1"
    mistyped = name[:11] + last_digit
    with pytest.raises(NotFound, match="No entry in this workspace") as failure:
        reader.resolve_hash_prefix(mistyped)
    assert failure.value.remedy == f"Near it: {name[:16]}."
    far_away = ("0" if name[0] != "0" else "1") + name[1:12]
    with pytest.raises(NotFound) as failure:
        reader.resolve_hash_prefix(far_away)
    assert failure.value.remedy == ""


@pytest.mark.parametrize("wrong", ["abc", "", "xyzw", "g" * 8, "a" * 65])
def test_what_cannot_be_a_hash_is_refused(reader: CacheReader, wrong: str) -> None:
    with pytest.raises(InvalidInput, match="is not the start of a SHA-256 hash"):
        reader.resolve_hash_prefix(wrong)


def test_a_beginning_stands_for_all_hashes_with_it() -> None:
    low, high = prefix_bounds("ABCDE")
    assert low.hex() == "abcde" + "0" * 59
    assert high.hex() == "abcde" + "f" * 59
    assert prefix_bounds("a" * 64) == (bytes.fromhex("a" * 64), bytes.fromhex("a" * 64))
    assert key_range_end(b"h") == b"i"


def test_a_damaged_entry_says_so_at_once_and_keeps_the_reason(
    cache: CacheFolder, reader: CacheReader
) -> None:
    digest = put_whole(cache, b"important", SHELL).digest
    blob = reader.record_of_content(digest).blob
    cache.level.write_batch([(cache_records.key_of_chunk(blob, 0), None)])
    with pytest.raises(CacheCorrupt, match="part 0 is missing"):
        reader.get_content(digest)
    with pytest.raises(CacheCorrupt, match="part 0 is missing"):
        reader.record_of_content(digest)
    reopened = CacheReader(cache.level)
    with pytest.raises(CacheCorrupt, match="part 0 is missing"):
        reopened.get_content(digest)
    assert reopened.digests_without_content([digest]) == {digest}
    assert reader.record_of_entry(digest).size == len(b"important")
    # Storing the same content again repairs it.
    put_whole(cache, b"important", SHELL)
    assert cache.reader.get_content(digest) == b"important"


def test_what_never_was_and_what_has_no_number_is_not_found(
    cache: CacheFolder, reader: CacheReader
) -> None:
    unknown = Digest.of_content(b"never stored")
    with pytest.raises(NotFound, match=f"There is no entry {unknown} in this workspace's cache"):
        reader.record_of_content(unknown)
    with pytest.raises(NotFound, match="There is no entry number 5"):
        reader.record_numbered(5)
    assert not reader.was_forgotten(unknown)
    there = put_whole(cache, b"there").digest
    assert reader.digests_without_content([unknown, there]) == {unknown}


def test_records_and_hashes_are_read_in_order_and_in_pages(
    cache: CacheFolder, reader: CacheReader
) -> None:
    assert (reader.last_entry_number(), reader.records_after()) == (0, [])
    digests = [put_whole(cache, f"entry {number}".encode()).digest for number in range(5)]
    assert reader.last_entry_number() == 5
    assert [record.number for record in reader.records_after(0, limit=2)] == [1, 2]
    assert [record.number for record in reader.records_after(2, limit=100)] == [3, 4, 5]
    assert [record.digest for record in reader.records_after()] == digests
    in_order = sorted(digests)
    assert reader.digests_after(None, 3) == in_order[:3]
    assert reader.digests_after(in_order[2], 3) == in_order[3:]
    assert reader.digests_after(in_order[-1], 3) == []
