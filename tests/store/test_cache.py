from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import About
from helix_desktop.errors import CacheCorrupt, NewerVersion, NotThere, WrongUse
from helix_desktop.store import records
from helix_desktop.store.cache import CHECKPOINT, CacheFolder
from helix_desktop.store.records import CHUNK, VERSION_KEY

SHELL = About("shell", "ls")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CacheFolder]:
    opened = CacheFolder(tmp_path / "cache")
    yield opened
    opened.close()


def chunk_of(cache: CacheFolder, digest: Digest, chunk: int = 0) -> bytes:
    return records.chunk_key(cache.record(digest).blob, chunk)


@pytest.mark.parametrize("value", [b"", b"\x00wrong", b"\x01wrong", b"\x07what", b"\x01" + b"\xff" * 40])
@pytest.mark.parametrize("content", [b"small", bytes(3 * CHUNK)], ids=["small", "large"])
def test_wrong_bytes_are_never_handed_out(cache: CacheFolder, content: bytes, value: bytes) -> None:
    digest = cache.put(content, SHELL).digest
    cache.level.write([(chunk_of(cache, digest), value)])
    for _ in range(2):
        with pytest.raises(CacheCorrupt, match=digest.hex):
            cache.get(digest)
        with pytest.raises(CacheCorrupt, match=digest.hex):
            cache.read(digest, 0, 3)
    assert cache.put(content, SHELL).digest == digest
    assert cache.get(digest) == content


def test_quarantine_lasts(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path)
    digest = cache.put(b"content", SHELL).digest
    key = chunk_of(cache, digest)
    cache.level.write([(key, None)])
    with pytest.raises(CacheCorrupt, match="chunk 0 is missing"):
        cache.get(digest)
    cache.level.write([(key, b"\x00content")])
    cache.close()
    again = CacheFolder(tmp_path)
    with pytest.raises(CacheCorrupt, match="chunk 0 is missing"):
        again.get(digest)
    assert again.put(b"content", SHELL)
    again.close()
    last = CacheFolder(tmp_path)
    assert last.get(digest) == b"content"
    last.close()


@pytest.mark.parametrize("what", ["description", "number", "other"])
def test_a_damaged_description_is_named(cache: CacheFolder, what: str) -> None:
    digest, other = cache.put(b"x" * 3 * CHUNK, SHELL).digest, cache.put(b"other", SHELL).digest
    number = records.number_key(b"m", cache.record(digest).number)
    value = {"description": b"nonsense", "number": None, "other": records.pack(cache.record(other))}[what]
    cache.level.write([(number, value)])
    with pytest.raises(CacheCorrupt, match=digest.hex):
        cache.get(digest)
    with pytest.raises(CacheCorrupt, match=digest.hex):
        cache.record(digest)
    assert cache.get(other) == b"other"


def test_a_put_that_mends_leaves_nothing_behind(cache: CacheFolder) -> None:
    digest = cache.put(b"y" * 3 * CHUNK, SHELL).digest
    cache.level.write([(chunk_of(cache, digest, 1), b"\x00wrong")])
    cache.put(b"y" * 3 * CHUNK, SHELL)
    assert len(list(cache.level.keys(b"m", b"n"))) == 1
    assert len(list(cache.level.keys(b"b", b"c"))) == 3
    assert cache.get(digest) == b"y" * 3 * CHUNK


def test_what_was_never_finished_is_swept(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path)
    incoming = cache.begin(SHELL)
    incoming.write(random.Random(1).randbytes(5 * CHUNK))
    assert len(list(cache.level.keys(b"b", b"c"))) == 4
    cache.close()
    again = CacheFolder(tmp_path)
    assert list(again.level.keys(b"b", b"c")) == []
    assert list(again.level.keys(b"o", b"p")) == []
    assert again._next >= 2
    again.close()


def test_numbers_only_grow(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path)
    first = cache.put(b"1", SHELL).digest
    number = cache.record(first).number
    cache.forget(first)
    cache.close()
    again = CacheFolder(tmp_path)
    assert again.record(again.put(b"2", SHELL).digest).number >= number
    again.close()


def test_two_puts_of_the_same_staged_at_once_are_one(cache: CacheFolder) -> None:
    one, two = cache.stage(b"same", SHELL), cache.stage(b"same", About("other"))
    cache.commit([one, two])
    assert one.record == two.record
    assert len(cache.records()) == 1


def test_nothing_is_known_before_it_is_committed(cache: CacheFolder) -> None:
    staged = cache.stage(b"content", SHELL)
    with pytest.raises(NotThere):
        cache.get(staged.record.digest)
    cache.commit([staged])
    assert cache.get(staged.record.digest) == b"content"


def test_a_pinned_entry_is_not_collected(cache: CacheFolder) -> None:
    digest = cache.put(b"content", SHELL).digest
    cache.pin(digest)
    assert cache.pinned() == {digest}
    with pytest.raises(WrongUse, match="pinned"):
        cache.collect(digest)
    cache.pin(digest, pinned=False)
    assert cache.collect(digest) == len(b"content") + 1
    with pytest.raises(NotThere, match="removed to free up space"):
        cache.get(digest)
    assert cache.described(digest).size == 7


def test_a_forgotten_entry_says_so_and_can_come_again(cache: CacheFolder) -> None:
    digest = cache.put(b"content", SHELL).digest
    cache.forget(digest)
    for ask in (lambda: cache.get(digest), lambda: cache.resolve(digest.hex)):
        with pytest.raises(NotThere, match="forgotten"):
            ask()
    assert list(cache.level.keys(b"h", b"i")) == list(cache.level.keys(b"m", b"n")) == []
    cache.put(b"content", SHELL)
    assert not cache.forgotten(digest)


def test_what_is_near_is_told(cache: CacheFolder) -> None:
    digest = cache.put(b"content", SHELL).digest
    mistyped = digest.hex[:10] + ("0" if digest.hex[10] != "0" else "1")
    with pytest.raises(NotThere, match=f"Near it: {digest.hex[:16]}"):
        cache.resolve(mistyped)


def test_a_cache_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path)
    cache.level.write([(VERSION_KEY, b"2")])
    cache.close()
    with pytest.raises(NewerVersion):
        CacheFolder(tmp_path)


def test_an_entry_whose_description_is_damaged_can_be_forgotten(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    digest = cache.put(b"content nobody can describe any more").digest
    cache.level.write([(records.number_key(b"m", 1), b"nonsense")])
    cache.forget(digest)
    assert list(cache.level.keys(b"b", b"c")) == []
    cache.close()


def test_what_a_checkpoint_stored_becomes_an_entry_when_a_tool_stores_it(cache: CacheFolder) -> None:
    digest = cache.put(b"a\nb\n", About(CHECKPOINT)).digest
    before = cache.record(digest)
    assert cache.put(b"a\nb\n", About(CHECKPOINT)).digest == digest
    assert cache.record(digest) == before
    cache.put(b"a\nb\n", SHELL)
    own = cache.record(digest)
    assert (own.about, own.blob, own.lines) == (SHELL, before.blob, 2)
    assert own.number > before.number
    assert [record.digest for record in cache.records(0)] == [digest]  # once, behind all that is known already
    cache.put(b"a\nb\n", About(CHECKPOINT))
    cache.put(b"a\nb\n", About("read_file", "b.txt"))
    assert cache.record(digest) == own  # the first who stored it
