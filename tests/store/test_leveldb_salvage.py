"""LevelDB's files read without LevelDB, on files that LevelDB wrote."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from helix_desktop.store.leveldb import LevelDatabase
from helix_desktop.store.leveldb_salvage import (
    has_silent_damage,
    read_log_batches,
    read_table_entries,
)

COUNT = 60


def key_of(number: int) -> bytes:
    """In the shape of a chunk's key."""
    return b"b" + number.to_bytes(8, "big") + bytes(4)


def write_entries(folder: Path, *, to_table: bool) -> dict[bytes, bytes]:
    chance = random.Random(5)
    level = LevelDatabase(folder)
    entries = {}
    for number in range(COUNT):
        entries[key_of(number)] = chance.randbytes(chance.choice((3, 200, 3000)))
        level.write_batch([(key_of(number), entries[key_of(number)])])
    if to_table:
        level.flush_log()
    level.close()
    return entries


def the_file(folder: Path, ending: str) -> Path:
    (path,) = (path for path in folder.glob(f"*{ending}") if path.stat().st_size)
    return path


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    entries = write_entries(tmp_path, to_table=True)
    read = list(read_table_entries(the_file(tmp_path, ".ldb").read_bytes()))
    assert {entry.key: entry.value for entry in read} == entries
    assert sorted(entry.sequence for entry in read) == list(range(1, COUNT + 1))


def test_a_table_without_its_list_of_blocks_is_read_all_the_same(tmp_path: Path) -> None:
    entries = write_entries(tmp_path, to_table=True)
    content = the_file(tmp_path, ".ldb").read_bytes()
    read = read_table_entries(content[:-200])
    assert {entry.key: entry.value for entry in read} == entries


@pytest.mark.parametrize("seed", range(20))
def test_one_flipped_byte_costs_few_entries_of_a_table(tmp_path: Path, seed: int) -> None:
    entries = write_entries(tmp_path, to_table=True)
    content = bytearray(the_file(tmp_path, ".ldb").read_bytes())
    chance = random.Random(seed)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    read = {(entry.key, entry.value) for entry in read_table_entries(bytes(content))}
    assert len(set(entries.items()) - read) <= 16  # At most those up to the next whole key.


def test_a_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    entries = write_entries(tmp_path, to_table=False)
    batches = list(read_log_batches(the_file(tmp_path, ".log").read_bytes()))
    assert all(batch.is_intact for batch in batches)
    assert dict(write for batch in batches for write in batch.writes) == entries


def test_deletions_in_a_log_are_read(tmp_path: Path) -> None:
    level = LevelDatabase(tmp_path)
    level.write_batch([(key_of(1), b"one"), (key_of(2), None)])
    level.close()
    (batch,) = read_log_batches(the_file(tmp_path, ".log").read_bytes())
    assert batch.writes == ((key_of(1), b"one"), (key_of(2), None))


@pytest.mark.parametrize("seed", range(20))
def test_one_flipped_byte_costs_one_batch_of_a_log(tmp_path: Path, seed: int) -> None:
    entries = write_entries(tmp_path, to_table=False)
    content = bytearray(the_file(tmp_path, ".log").read_bytes())
    chance = random.Random(seed)
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    batches = list(read_log_batches(bytes(content)))
    assert sum(not batch.is_intact for batch in batches) == 1
    read = {write for batch in batches for write in batch.writes}
    assert len(set(entries.items()) - read) <= 1


@pytest.mark.parametrize("name", ["MANIFEST-*", "*.log"])
def test_zeros_in_a_log_are_found_though_leveldb_passes_over_them(
    tmp_path: Path, name: str
) -> None:
    write_entries(tmp_path, to_table=True)
    write_entries(tmp_path, to_table=False)
    assert not has_silent_damage(tmp_path)
    (path,) = (path for path in tmp_path.glob(name) if path.stat().st_size)
    content = path.read_bytes()
    path.write_bytes(bytes(40) + content[40:])
    assert has_silent_damage(tmp_path)


def test_a_part_that_is_longer_than_its_file_is_damage_where_its_batch_is_whole(
    tmp_path: Path,
) -> None:
    level = LevelDatabase(tmp_path)
    level.write_batch([(key_of(1), b"one")])
    level.close()
    log = the_file(tmp_path, ".log")
    content = bytearray(log.read_bytes())
    content[4] ^= 64  # The length of the only part.
    log.write_bytes(content)
    assert has_silent_damage(tmp_path)
    log.write_bytes(content[:-1])
    assert not has_silent_damage(tmp_path), "nobody was told that a torn batch is stored"


def test_a_batch_of_several_parts_is_damage_where_only_its_last_part_is_too_long(
    tmp_path: Path,
) -> None:
    """The last part alone is no batch: it is one only behind the parts before it."""
    level = LevelDatabase(tmp_path)
    level.write_batch([(key_of(1), b"x" * 40_000)])
    level.close()
    log = the_file(tmp_path, ".log")
    content = bytearray(log.read_bytes())
    start_of_last_part = 32_768  # A part never crosses the border of a block.
    content[start_of_last_part + 5] ^= 64  # The higher byte of its length.
    log.write_bytes(content)
    assert has_silent_damage(tmp_path)
    log.write_bytes(content[:-1])
    assert not has_silent_damage(tmp_path), "nobody was told that a torn batch is stored"
