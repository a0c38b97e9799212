from __future__ import annotations

import ctypes
import errno
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import plyvel
import pytest

from helix_desktop.errors import CacheCorrupt, StoreFailed, StoreFull
from helix_desktop.store import leveldb as level_module
from helix_desktop.store.leveldb import (
    LevelDatabase,
    convert_leveldb_error,
    is_repairable_error,
    repair_leveldb,
)


@pytest.fixture
def level(tmp_path: Path) -> Iterator[LevelDatabase]:
    opened = LevelDatabase(tmp_path / "cache")
    yield opened
    opened.close()


def test_a_batch_is_whole(level: LevelDatabase) -> None:
    level.write_batch([(b"a", b"1"), (b"b", b"2"), (b"c", b"3"), (b"b", None)])
    assert list(level.scan_range(b"a", b"z")) == [(b"a", b"1"), (b"c", b"3")]
    assert list(level.keys_in_range(b"a", b"z", reverse=True)) == [b"c", b"a"]
    assert (level.get_value(b"a"), level.get_value(b"b"), level.get_value_once(b"c")) == (
        b"1",
        None,
        b"3",
    )


def in_files(folder: Path, text: bytes) -> bool:
    return any(text in path.read_bytes() for path in folder.iterdir())


@pytest.mark.parametrize("flushed", [False, True])
def test_what_was_deleted_is_in_no_file_after_a_scrub(level: LevelDatabase, flushed: bool) -> None:
    level.write_batch([(b"a", b"SECRET"), (b"z", b"other")])
    if flushed:
        level.flush_log()
    level.write_batch([(b"a", None)])
    level.compact_database()
    level.scrub_database_files()
    assert not in_files(level.folder, b"SECRET")
    assert level.get_value(b"z") == b"other"


def test_a_compaction_alone_would_leave_it(level: LevelDatabase) -> None:
    """Why scrub is more than that; when this fails, LevelDB has changed, and scrub can
    be simpler.
    """
    level.write_batch([(b"a", b"SECRET")])
    level.write_batch([(b"a", None)])
    level.compact_database()
    assert in_files(level.folder, b"SECRET")


class Refusing:
    """A database whose writes fail as a disk makes them fail."""

    def __init__(self, real: plyvel.DB, error: Exception) -> None:
        self._real = real
        self._error = error
        self.closed = False

    def write_batch(self, *, sync: bool) -> Refusing:
        return self

    def put(self, key: bytes, value: bytes) -> None: ...

    def write(self) -> None:
        raise self._error

    def get(self, key: bytes, **options: object) -> bytes | None:
        value: bytes | None = self._real.get(key)
        return value

    def close(self) -> None:
        self._real.close()


def test_after_a_failed_write_the_handle_is_opened_anew(level: LevelDatabase) -> None:
    level.write_batch([(b"a", b"1")])
    level._db = Refusing(level._db, plyvel.IOError("IO error: No space left on device"))
    with pytest.raises(StoreFull, match="what was stored before is safe"):
        level.write_batch([(b"b", b"2")])
    assert level.get_value(b"a") == b"1"
    level.write_batch([(b"b", b"2")])
    assert isinstance(level._db, plyvel.DB)
    assert list(level.keys_in_range(b"a", b"z")) == [b"a", b"b"]
    assert not level.folder.with_name("cache.probe").exists()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (plyvel.CorruptionError("Corruption: bad block"), CacheCorrupt),
        (plyvel.IOError("IO error: x: No space left on device"), StoreFull),
        (plyvel.IOError("IO error: x: Disk quota exceeded"), StoreFull),
        (OSError(errno.ENOSPC, "full"), StoreFull),
        (plyvel.IOError("IO error: Input/output error"), StoreFailed),
    ],
)
def test_errors_are_said_in_our_words(error: Exception, kind: type[StoreFailed]) -> None:
    said = convert_leveldb_error(error, "The cache could not be written")
    assert type(said) is kind
    assert str(said).startswith("The cache could not be written: ")
    assert said.remedy


def test_a_database_without_its_list_of_files_is_repaired(tmp_path: Path) -> None:
    level = LevelDatabase(tmp_path / "cache")
    level.write_batch([(b"a", b"1")])
    level.close()
    (tmp_path / "cache" / "CURRENT").unlink()
    for manifest in (tmp_path / "cache").glob("MANIFEST*"):
        manifest.unlink()
    repair_leveldb(tmp_path / "cache")
    again = LevelDatabase(tmp_path / "cache")
    assert again.get_value(b"a") == b"1"
    again.close()


@pytest.mark.parametrize(
    ("said", "fits"),
    [
        ("Corruption: 3 missing files", True),
        ("CURRENT: No such file or directory", True),
        ("Input/output error", False),
    ],
)
def test_what_a_repair_may_mend(said: str, fits: bool) -> None:
    assert is_repairable_error(said) is fits


def test_what_the_log_lost_is_counted(tmp_path: Path) -> None:
    level = LevelDatabase(tmp_path)
    for number in range(50):
        level.write_batch([(b"%d" % number, b"x" * 200)])
    level.close()
    log = max(tmp_path.glob("*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 4
    log.write_bytes(content)
    again = LevelDatabase(tmp_path)
    assert again.dropped_log_bytes > 0
    again.close()
    clean = LevelDatabase(tmp_path)
    assert clean.dropped_log_bytes == 0
    clean.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_reading_much_holds_little(level: LevelDatabase) -> None:
    chance = random.Random(1)
    for number in range(64):
        level.write_batch([(b"%02d" % number, chance.randbytes(1 << 20))])
    before = mapped()
    for number in range(64):
        assert len(level.get_value(b"%02d" % number) or b"") == 1 << 20
    assert mapped() - before < 32 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_are_let_go_only_where_no_compaction_can_take_the_mapping_away(
    level: LevelDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was unmapped is given to whoever asks next, and would be cleared under them."""
    for number in range(16):
        level.write_batch([(b"%02d" % number, random.Random(number).randbytes(1 << 20))])
    level.flush_log()
    for number in range(16):
        level.get_value(b"%02d" % number)
    taken: list[bool] = []

    def compacted_meanwhile(start: ctypes.c_void_p, *_: object) -> None:
        if not taken:
            level._db.put(b"00", b"another")
            level._db.compact_range(start=b"\x00", stop=b"\xff")
        taken.append(f"{start.value or 0:x}-" in Path("/proc/self/maps").read_text())

    monkeypatch.setattr(level_module, "_MADVISE", compacted_meanwhile)
    level._release_read_pages()
    assert taken
    assert all(taken)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(("sure", "advice"), [(150, 4), (0, 21)])
def test_a_table_that_may_be_closed_meanwhile_is_let_go_in_the_way_that_loses_nothing(
    level: LevelDatabase, monkeypatch: pytest.MonkeyPatch, sure: int, advice: int
) -> None:
    level.write_batch([(b"one", b"1" * 1000)])
    level.flush_log()
    assert level.get_value(b"one")
    given: list[int] = []
    monkeypatch.setattr(level_module, "_SURELY_OPEN", sure)
    monkeypatch.setattr(level_module, "_MADVISE", lambda *told: given.append(told[2]))
    level._release_read_pages()
    assert given == [advice]


def hash_of_table(number: int) -> int:
    """LevelDB's hash of a key of its cache of open tables."""
    data = number.to_bytes(8, "little")
    found = len(data) * 0xC6A4A793 & 0xFFFFFFFF
    for at in (0, 4):
        found = (found + int.from_bytes(data[at : at + 4], "little")) * 0xC6A4A793 & 0xFFFFFFFF
        found ^= found >> 16
    return found


def test_as_many_tables_as_it_relies_on_stay_open() -> None:
    """LevelDB divides its cache of tables into 16 parts by the hash of a table's
    number, and keeps 10 files for itself.
    """
    most = level_module._OPTIONS["max_open_files"]
    assert isinstance(most, int)
    chance = random.Random(7)
    room = (most - 10 + 15) // 16
    for _ in range(300):
        first = chance.randrange(10**6)
        parts = [0] * 16
        for number in chance.sample(
            range(first, first + 4 * level_module._SURELY_OPEN), level_module._SURELY_OPEN
        ):
            parts[hash_of_table(number) >> 28] += 1
        assert max(parts) < room


def mapped() -> int:
    """Bytes of files this process has in memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("RssFile:")[2].split()[0]) * 1024


@pytest.mark.skipif(sys.platform == "win32", reason="which moves no folder a file of which is open")
def test_a_scrub_that_failed_is_said_and_can_be_done_again(tmp_path: Path) -> None:
    level = LevelDatabase(tmp_path / "level")
    level.write_batch([(b"one", b"1" * 1000)])
    level.flush_log()
    (tmp_path / "level").rename(tmp_path / "away")  # no file can be made now
    with pytest.raises(StoreFailed):
        level.scrub_database_files()
    (tmp_path / "away").rename(tmp_path / "level")
    level.scrub_database_files()
    level.write_batch([(b"two", b"2")])
    assert (level.get_value(b"one"), level.get_value(b"two")) == (b"1" * 1000, b"2")
    level.close()


@pytest.mark.parametrize(
    ("writes", "keys", "size"), [(400, 1, 30_000), (400, 20, 1_020), (400, 500, 0)]
)
def test_the_name_of_a_new_log_is_on_the_disk_before_a_write_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int, keys: int, size: int
) -> None:
    """A power cut may lose a file whose folder was not synced, with all that was synced into it.

    Values of 1,020 bytes waste the most of LevelDB's blocks, and empty ones have the
    most beside them.
    """
    known: set[str] = set()

    def synced(folder: Path) -> None:
        if folder.name == "cache":
            known.update(path.name for path in folder.iterdir())

    monkeypatch.setattr(level_module, "sync_folder_to_disk", synced)
    level = LevelDatabase(tmp_path / "cache")
    logs = set()
    for number in range(writes):
        level.write_batch([(b"%d,%d" % (number, key), os.urandom(size)) for key in range(keys)])
        now = {path.name for path in level.folder.glob("*.log")}
        assert now <= known
        logs |= now
    os.utime(
        level.folder, ns=(1, 1)
    )  # As if nothing had happened for long, so that a write need not look.
    level._sync_file_names()
    level.flush_log()
    level.write_batch([(b"after a log that was begun on purpose", b"")])
    assert {path.name for path in level.folder.glob("*.log")} <= known
    level.close()
    assert len(logs) > 3, "the trial needs logs that were begun meanwhile"


@pytest.mark.skipif(sys.platform == "win32", reason="rights of POSIX")
def test_its_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        level = LevelDatabase(tmp_path / "cache")
        for number in range(200):
            level.write_batch([(b"%d" % number, os.urandom(30_000))])
        level.close()
    finally:
        os.umask(before)
    level = LevelDatabase(tmp_path / "cache")
    assert {path.stat().st_mode & 0o077 for path in level.folder.iterdir()} == {0}
    level.close()
