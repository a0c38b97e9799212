from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import CacheCorrupt, InvalidInput, NotFound, WrittenByNewerVersion
from helix_desktop.store import cache_folder, cache_records
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder, count_text_lines
from helix_desktop.store.cache_records import CHUNK, VERSION_KEY
from tests.store.putting import put_whole

SHELL = EntryOrigin("shell", "ls")


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[CacheFolder]:
    opened = CacheFolder(tmp_path / "cache")
    yield opened
    opened.close()


def chunk_of(cache: CacheFolder, digest: Digest, chunk: int = 0) -> bytes:
    return cache_records.key_of_chunk(cache.reader.record_of_content(digest).blob, chunk)


@pytest.mark.parametrize(
    "value", [b"", b"\x00wrong", b"\x01wrong", b"\x07what", b"\x01" + b"\xff" * 40]
)
@pytest.mark.parametrize("content", [b"small", bytes(3 * CHUNK)], ids=["small", "large"])
def test_wrong_bytes_are_never_handed_out(cache: CacheFolder, content: bytes, value: bytes) -> None:
    digest = put_whole(cache, content, SHELL).digest
    cache.level.write_batch([(chunk_of(cache, digest), value)])
    for _ in range(2):
        with pytest.raises(CacheCorrupt, match=digest.hex):
            cache.reader.get_content(digest)
        with pytest.raises(CacheCorrupt, match=digest.hex):
            cache.reader.read_part(digest, 0, 3)
    assert put_whole(cache, content, SHELL).digest == digest
    assert cache.reader.get_content(digest) == content


def test_an_entry_stored_lately_is_read_without_a_search_for_its_place(
    cache: CacheFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each get took two reads: one for the place of the content."""
    digest = put_whole(cache, b"content", SHELL).digest
    cache.level.write_batch([(b"h" + digest.raw, None)])
    assert cache.reader.get_content(digest) == b"content"
    monkeypatch.setattr(cache_folder, "MOST_PLACES", 2)
    many = {put_whole(cache, b"%d" % number, SHELL).digest: b"%d" % number for number in range(5)}
    assert {each: cache.reader.get_content(each) for each in many} == many
    with pytest.raises(NotFound):
        cache.reader.get_content(digest)


def test_a_place_that_is_out_of_date_hands_nothing_out(cache: CacheFolder) -> None:
    digest = put_whole(cache, b"content", SHELL).digest
    cache.discard_entry_content(digest)
    with pytest.raises(NotFound):
        cache.reader.get_content(digest)
    put_whole(cache, b"content", SHELL)
    assert cache.reader.get_content(digest) == b"content"


def test_quarantine_lasts(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path)
    digest = put_whole(cache, b"content", SHELL).digest
    key = chunk_of(cache, digest)
    cache.level.write_batch([(key, None)])
    with pytest.raises(CacheCorrupt, match="part 0 is missing"):
        cache.reader.get_content(digest)
    cache.level.write_batch([(key, b"\x00content")])
    cache.close()
    again = CacheFolder(tmp_path)
    with pytest.raises(CacheCorrupt, match="part 0 is missing"):
        again.reader.get_content(digest)
    assert put_whole(again, b"content", SHELL)
    again.close()
    last = CacheFolder(tmp_path)
    assert last.reader.get_content(digest) == b"content"
    last.close()


@pytest.mark.parametrize("what", ["description", "number", "other"])
def test_a_damaged_description_is_named(cache: CacheFolder, what: str) -> None:
    digest = put_whole(cache, b"x" * 3 * CHUNK, SHELL).digest
    other = put_whole(cache, b"other", SHELL).digest
    number = cache_records.key_of_number(b"m", cache.reader.record_of_content(digest).number)
    value = {
        "description": b"nonsense",
        "number": None,
        "other": cache_records.pack_record(cache.reader.record_of_content(other)),
    }[what]
    cache.level.write_batch([(number, value)])
    with pytest.raises(CacheCorrupt, match=digest.hex):
        cache.reader.get_content(digest)
    with pytest.raises(CacheCorrupt, match=digest.hex):
        cache.reader.record_of_content(digest)
    assert cache.reader.get_content(other) == b"other"


def test_a_put_that_mends_leaves_nothing_behind(cache: CacheFolder) -> None:
    digest = put_whole(cache, b"y" * 3 * CHUNK, SHELL).digest
    cache.level.write_batch([(chunk_of(cache, digest, 1), b"\x00wrong")])
    put_whole(cache, b"y" * 3 * CHUNK, SHELL)
    assert len(list(cache.level.keys_in_range(b"m", b"n"))) == 1
    assert len(list(cache.level.keys_in_range(b"b", b"c"))) == 3
    assert cache.reader.get_content(digest) == b"y" * 3 * CHUNK


def test_what_was_never_finished_is_swept(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path)
    incoming = cache.begin_incoming(SHELL)
    incoming.write_piece(random.Random(1).randbytes(5 * CHUNK))
    assert len(list(cache.level.keys_in_range(b"b", b"c"))) == 4
    cache.close()
    again = CacheFolder(tmp_path)
    assert list(again.level.keys_in_range(b"b", b"c")) == []
    assert list(again.level.keys_in_range(b"o", b"p")) == []
    assert again._next_number >= 2
    again.close()


def test_numbers_only_grow(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path)
    first = put_whole(cache, b"1", SHELL).digest
    number = cache.reader.record_of_content(first).number
    cache.forget_entry(first)
    cache.close()
    again = CacheFolder(tmp_path)
    assert again.reader.record_of_content(put_whole(again, b"2", SHELL).digest).number > number
    again.close()


def test_two_puts_of_the_same_staged_at_once_are_one(cache: CacheFolder) -> None:
    one = cache.stage_content(b"same", SHELL)
    two = cache.stage_content(b"same", EntryOrigin("other"))
    cache.commit_staged([one, two])
    assert one.record == two.record
    assert len(cache.reader.records_after()) == 1


def test_nothing_is_known_before_it_is_committed(cache: CacheFolder) -> None:
    staged = cache.stage_content(b"content", SHELL)
    with pytest.raises(NotFound):
        cache.reader.get_content(staged.record.digest)
    cache.commit_staged([staged])
    assert cache.reader.get_content(staged.record.digest) == b"content"


def test_a_pinned_entry_is_not_collected(cache: CacheFolder) -> None:
    digest = put_whole(cache, b"content", SHELL).digest
    cache.set_entry_pinned(digest)
    assert cache.reader.pinned_entries() == {digest}
    with pytest.raises(InvalidInput, match="pinned"):
        cache.discard_entry_content(digest)
    cache.set_entry_pinned(digest, pinned=False)
    assert cache.discard_entry_content(digest) == len(b"content") + 1
    with pytest.raises(NotFound, match="removed to free up space"):
        cache.reader.get_content(digest)
    assert cache.reader.record_of_entry(digest).size == 7


def test_a_forgotten_entry_says_so_and_can_come_again(cache: CacheFolder) -> None:
    digest = put_whole(cache, b"content", SHELL).digest
    cache.forget_entry(digest)
    for ask in (
        lambda: cache.reader.get_content(digest),
        lambda: cache.reader.resolve_hash_prefix(digest.hex),
    ):
        with pytest.raises(NotFound, match="permanently removed"):
            ask()
    assert (
        list(cache.level.keys_in_range(b"h", b"i"))
        == list(cache.level.keys_in_range(b"m", b"n"))
        == []
    )
    put_whole(cache, b"content", SHELL)
    assert not cache.reader.was_forgotten(digest)


def test_what_is_near_is_told(cache: CacheFolder) -> None:
    digest = put_whole(cache, b"content", SHELL).digest
    mistyped = digest.hex[:10] + ("0" if digest.hex[10] != "0" else "1")
    with pytest.raises(NotFound, match=f"Near it: {digest.hex[:16]}"):
        cache.reader.resolve_hash_prefix(mistyped)


def test_a_cache_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path)
    cache.level.write_batch([(VERSION_KEY, b"2")])
    cache.close()
    with pytest.raises(WrittenByNewerVersion):
        CacheFolder(tmp_path)


def test_an_entry_whose_description_is_damaged_can_be_forgotten(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    digest = put_whole(cache, b"content nobody can describe any more").digest
    cache.level.write_batch([(cache_records.key_of_number(b"m", 1), b"nonsense")])
    cache.forget_entry(digest)
    assert list(cache.level.keys_in_range(b"b", b"c")) == []
    cache.close()


def test_what_a_checkpoint_stored_becomes_an_entry_when_a_tool_stores_it(
    cache: CacheFolder,
) -> None:
    digest = put_whole(cache, b"a\nb\n", EntryOrigin(CHECKPOINT)).digest
    before = cache.reader.record_of_content(digest)
    assert put_whole(cache, b"a\nb\n", EntryOrigin(CHECKPOINT)).digest == digest
    assert cache.reader.record_of_content(digest) == before
    put_whole(cache, b"a\nb\n", SHELL)
    own = cache.reader.record_of_content(digest)
    assert (own.about, own.blob, own.lines) == (SHELL, before.blob, 2)
    assert own.number > before.number
    assert [record.digest for record in cache.reader.records_after(0)] == [
        digest
    ]  # once, behind all that is known already
    put_whole(cache, b"a\nb\n", EntryOrigin(CHECKPOINT))
    put_whole(cache, b"a\nb\n", EntryOrigin("read_file", "b.txt"))
    assert cache.reader.record_of_content(digest) == own  # the first who stored it


def test_what_is_abandoned_after_its_end_stays(cache: CacheFolder) -> None:
    """A stream that is cancelled while its last bytes are committed is abandoned by
    whoever waited for it.
    """
    content = random.Random(7).randbytes(3 * CHUNK)
    incoming = cache.begin_incoming(EntryOrigin())
    incoming.write_piece(content)
    staged = incoming.finish_entry()
    incoming.abandon_entry()
    cache.commit_staged([staged])
    incoming.abandon_entry()
    assert cache.reader.get_content(staged.record.digest) == content


def test_what_is_abandoned_is_taken_back(cache: CacheFolder) -> None:
    incoming = cache.begin_incoming(SHELL)
    incoming.write_piece(bytes(3 * CHUNK))
    incoming.abandon_entry()
    assert list(cache.level.keys_in_range(b"a", b"z")) == [VERSION_KEY]


@pytest.mark.parametrize(
    ("content", "media", "lines"),
    [
        (b"", "text/plain", 0),
        (b"a", "text/plain", 1),
        (b"a\n", "text/plain", 1),
        (b"a\nb", "application/json", 2),
        (b"\n\n", "text/html", 2),
        (b"\n\n", "image/png", 0),
    ],
)
def test_lines(cache: CacheFolder, content: bytes, media: str, lines: int) -> None:
    about = EntryOrigin(media_type=media)
    assert count_text_lines(content, about) == lines
    incoming = cache.begin_incoming(about)
    incoming.write_piece(b"x" * 2 * CHUNK + b"\n" + content)
    assert incoming.finish_entry().record.lines == (lines + 1 if media != "image/png" else 0)


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 3 * CHUNK), max_size=6),
    size=st.integers(0, 3 * CHUNK),
    seed=st.integers(0, 99),
)
def test_however_it_comes_it_is_the_same(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], size: int, seed: int
) -> None:
    cache = CacheFolder(tmp_path_factory.mktemp("cache"))
    content = random.Random(seed).randbytes(size)
    places = sorted({0, *(min(cut, size) for cut in cuts), size})
    incoming = cache.begin_incoming(SHELL)
    for start, stop in pairwise(places):
        incoming.write_piece(content[start:stop])
    staged = incoming.finish_entry()
    cache.commit_staged([staged])
    assert staged.record.digest == Digest.of_content(content)
    assert cache.reader.get_content(staged.record.digest) == content
    assert cache.reader.read_part(staged.record.digest, size // 3, size) == content[size // 3 :]
    assert staged.record.kept >= size
    cache.close()
