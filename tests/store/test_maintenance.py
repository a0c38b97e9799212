from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import About
from helix_desktop.store import records
from helix_desktop.store.cache import CacheFolder
from helix_desktop.store.maintenance import Check, Verified, collect

SHELL = About("shell", "ls")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CacheFolder]:
    opened = CacheFolder(tmp_path)
    opened.commit([opened.stage(b"entry %d" % number, SHELL) for number in range(1300)])
    yield opened
    opened.close()


def checked(cache: CacheFolder, *expected: Digest) -> Verified:
    check = Check(cache)
    for going_on in (check.relink, lambda: check.expect(expected)):
        while check.step():
            pass
        going_on()
    return check.result()


def test_everything_is_read(cache: CacheFolder) -> None:
    result = checked(cache)
    assert (result.checked, result.damaged, result.notes) == (1300, (), ())
    assert result.bytes == sum(len(b"entry %d" % number) for number in range(1300))


def test_a_large_cache_is_checked_in_slices(cache: CacheFolder) -> None:
    check, steps = Check(cache), 1
    while check.step():
        steps += 1
    assert steps > 1


def test_an_entry_whose_hash_leads_nowhere_is_linked_again(cache: CacheFolder) -> None:
    digest = Digest.of(b"entry 7")
    cache.level.write([(b"h" + digest.raw, None)])
    assert checked(cache).checked == 1300
    assert cache.get(digest) == b"entry 7"


def test_what_ought_to_be_there_is_named(cache: CacheFolder) -> None:
    missing, forgotten, there = Digest.of(b"missing"), Digest.of(b"entry 3"), Digest.of(b"entry 4")
    cache.forget(forgotten)
    result = checked(cache, missing, forgotten, there)
    assert [digest for digest, _ in result.damaged] == [missing]


def test_collection_stops_when_there_is_room(cache: CacheFolder) -> None:
    digests = [Digest.of(b"entry %d" % number) for number in range(10)]
    cache.pin(digests[0])
    broken = cache.record(digests[1])
    cache.level.write([(records.number_key(b"m", broken.number), b"nonsense")])
    gone, freed = collect(cache, digests, 24)
    assert gone == digests[2:5]
    assert freed == 24
    assert collect(cache, digests[2:5], 25) == ([], 0)
