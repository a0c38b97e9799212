"""What a repair keeps where entries of a cache contradict each other."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store import cache_records
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.cache_reader import FORGOTTEN, PINNED
from helix_desktop.store.cache_repair import KnownEntry, repair_cache_files
from tests.store.putting import put_whole

SHELL = EntryOrigin("shell", "make")


def repaired(folder: Path, known: dict[Digest, KnownEntry] | None = None) -> CacheFolder:
    aside = folder.with_name("aside")
    shutil.copytree(folder, aside)
    level = repair_cache_files(folder, aside, folder.with_name("no copies"), known or {})
    return CacheFolder(folder, level)


def damage_log(folder: Path) -> None:
    """The first checksum: LevelDB would drop all of its first block."""
    (log,) = (path for path in folder.glob("*.log") if path.stat().st_size)
    content = bytearray(log.read_bytes())
    content[0] ^= 1
    log.write_bytes(content)


def test_a_whole_cache_stays_as_it_is(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    stored = [put_whole(cache, b"%d" % number * 500, SHELL) for number in range(5)]
    cache.set_entry_pinned(stored[0].digest)
    before = {**dict(cache.level.scan_range(b"", b"\xff"))}
    cache.close()
    cache = repaired(tmp_path / "cache")
    assert dict(cache.level.scan_range(b"", b"\xff")) == before
    cache.close()


def test_what_a_log_says_last_counts(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    stored = put_whole(cache, b"content" * 500, SHELL)
    cache.discard_entry_content(stored.digest)
    cache.close()
    damage_log(tmp_path / "cache")
    cache = repaired(tmp_path / "cache")
    record = cache.reader.record_of_entry(stored.digest)
    assert record.state is cache_records.EntryState.COLLECTED
    cache.close()


def test_of_two_records_of_a_content_the_newer_one_counts(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    stored = put_whole(cache, b"content" * 500, EntryOrigin("checkpoint"))
    older = cache.reader.record_of_content(stored.digest)
    put_whole(cache, b"content" * 500, SHELL)
    cache.rewrite_record(older)  # As if the block with its deletion were lost.
    cache.close()
    cache = repaired(tmp_path / "cache")
    assert [record.about for record in cache.reader.records_after()] == [SHELL]
    assert cache.reader.get_content(stored.digest) == b"content" * 500
    cache.close()


def test_content_without_a_record_gets_one_with_what_others_know_of_it(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    known = put_whole(cache, b"known" * 500, SHELL)
    unknown = put_whole(cache, b"unknown" * 500, SHELL)
    records = cache.reader.records_after()
    keys = [cache_records.key_of_number(b"m", record.number) for record in records]
    keys += [b"h" + record.digest.raw for record in records]
    cache.level.write_batch([(key, None) for key in keys])
    cache.close()
    witness = KnownEntry(SHELL, lines=3, time=7.0)
    cache = repaired(tmp_path / "cache", {known.digest: witness})
    record = cache.reader.record_of_content(known.digest)
    assert (record.about, record.lines, record.time) == (SHELL, 3, 7.0)
    source = cache.reader.record_of_content(unknown.digest).about.source
    assert source == "recovered after damage"
    cache.close()


def test_the_chunks_of_an_unfinished_entry_do_not_become_one(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    incoming = cache.begin_incoming(SHELL)
    incoming.write_piece(bytes((1 << 20) + 10))
    cache.close()
    cache = repaired(tmp_path / "cache")
    assert cache.reader.records_after() == []
    assert list(cache.level.keys_in_range(b"b", b"c")) == []
    cache.close()


def test_what_was_forgotten_stays_so_though_the_log_is_damaged(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    forgotten = put_whole(cache, b"forget me" * 500, SHELL)
    cache.level.flush_log()
    cache.forget_entry(forgotten.digest)
    cache.close()
    damage_log(tmp_path / "cache")
    cache = repaired(tmp_path / "cache")
    assert cache.reader.was_forgotten(forgotten.digest)
    assert cache.reader.records_after() == []
    cache.close()


def test_a_pin_that_became_a_tombstone_by_one_bit_forgets_nothing(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    stored = put_whole(cache, b"content" * 500, SHELL)
    cache.level.flush_log()
    cache.set_entry_pinned(stored.digest)
    cache.close()
    (log,) = (path for path in (tmp_path / "cache").glob("*.log") if path.stat().st_size)
    content = log.read_bytes()
    flipped = content.replace(PINNED + stored.digest.raw, FORGOTTEN + stored.digest.raw)
    assert flipped != content
    log.write_bytes(flipped)
    cache = repaired(tmp_path / "cache")
    assert cache.reader.get_content(stored.digest) == b"content" * 500
    assert not cache.reader.was_forgotten(stored.digest)
    cache.close()


def test_a_record_that_is_not_what_was_written_is_made_anew(tmp_path: Path) -> None:
    cache = CacheFolder(tmp_path / "cache")
    stored = put_whole(cache, b"content" * 500, SHELL)
    record = cache.reader.record_of_content(stored.digest)
    key = cache_records.key_of_number(b"m", record.number)
    wrong = cache_records.pack_record(replace(record, size=1))[:-1]
    cache.level.write_batch([(key, wrong)])
    cache.close()
    cache = repaired(tmp_path / "cache")
    assert cache.reader.get_content(stored.digest) == b"content" * 500
    assert cache.reader.record_of_content(stored.digest).size == 3500
    cache.close()
