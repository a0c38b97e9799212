from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store import cache_check_and_cleanup, cache_records
from helix_desktop.store.cache_check_and_cleanup import CacheCheck, VerifyResult, free_cache_bytes
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder

SHELL = EntryOrigin("shell", "ls")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CacheFolder]:
    opened = CacheFolder(tmp_path)
    opened.commit_staged(
        [opened.stage_content(b"entry %d" % number, SHELL) for number in range(1300)]
    )
    yield opened
    opened.close()


def checked(cache: CacheFolder, *expected: Digest) -> VerifyResult:
    check = CacheCheck(cache)
    for going_on in (check.repair_hash_keys, lambda: check.add_missing_to_result(expected)):
        while check.check_next_slice_if_any():
            pass
        going_on()
    return check.check_result()


def test_everything_is_read(cache: CacheFolder) -> None:
    result = checked(cache)
    assert (result.checked, result.damaged, result.notes) == (1300, (), ())
    assert result.bytes == sum(len(b"entry %d" % number) for number in range(1300))


def test_contents_of_checkpoints_are_read_and_counted_apart_from_entries(
    cache: CacheFolder,
) -> None:
    """`cache stats` counts entries alone, so that both said "bytes" and meant different things."""
    before = checked(cache)
    cache.commit_staged([cache.stage_content(b"a file as it was", EntryOrigin(CHECKPOINT))])
    result = checked(cache)
    assert (result.checked, result.bytes, result.checkpoint_bytes) == (
        before.checked,
        before.bytes,
        16,
    )


def test_a_large_cache_is_checked_in_slices(cache: CacheFolder) -> None:
    check = CacheCheck(cache)
    steps = 1
    while check.check_next_slice_if_any():
        steps += 1
    assert steps > 1


def test_an_entry_whose_hash_leads_nowhere_is_linked_again(cache: CacheFolder) -> None:
    digest = Digest.of_content(b"entry 7")
    cache.level.write_batch([(b"h" + digest.raw, None)])
    assert checked(cache).checked == 1300
    assert cache.reader.get_content(digest) == b"entry 7"


def test_what_ought_to_be_there_is_named(cache: CacheFolder) -> None:
    missing = Digest.of_content(b"missing")
    forgotten = Digest.of_content(b"entry 3")
    there = Digest.of_content(b"entry 4")
    cache.forget_entry(forgotten)
    result = checked(cache, missing, forgotten, there)
    assert [digest for digest, _ in result.damaged] == [missing]


def test_collection_stops_when_there_is_room(cache: CacheFolder) -> None:
    digests = [Digest.of_content(b"entry %d" % number) for number in range(10)]
    cache.set_entry_pinned(digests[0])
    broken = cache.reader.record_of_content(digests[1])
    cache.level.write_batch([(cache_records.key_of_number(b"m", broken.number), b"nonsense")])
    gone, freed = free_cache_bytes(cache, digests, 24)
    assert gone == digests[2:5]
    assert freed == 24
    assert free_cache_bytes(cache, digests[2:5], 25) == ([], 0)


@pytest.mark.parametrize(
    ("first_byte", "next_byte"), [(None, 1), (0, 1), (0x7F, 0x80), (0xFE, 0xFF), (0xFF, None)]
)
def test_behind_damage_the_check_goes_on_at_the_next_256th_of_all_hashes(
    first_byte: int | None, next_byte: int | None
) -> None:
    before = None if first_byte is None else Digest(bytes([first_byte]) + b"\x55" * 31)
    ahead = cache_check_and_cleanup._skip_ahead_in_hashes(before)
    if next_byte is None:
        assert ahead is None
    else:
        assert ahead == Digest(bytes([next_byte]) + b"\0" * 31)
