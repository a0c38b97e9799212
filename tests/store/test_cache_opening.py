"""A real LevelDB with one byte flipped, a page zeroed or a file cut: what is whole stays."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Stored, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.store import cache_opening, leveldb
from helix_desktop.store.cache_folder import CHECKPOINT, CacheFolder
from helix_desktop.store.cache_reader import FORGOTTEN, PINNED
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.lost_entries import EntryWitnesses
from tests.store.putting import put_whole

SHELL = EntryOrigin("shell", "make")
LARGE = (1 << 20) + 70_000


def fill(folder: Path, count: int = 24) -> dict[Digest, bytes]:
    """A cache with entries in two tables and in its log, one of them of two chunks."""
    folder.mkdir()
    chance = random.Random(7)
    cache = CacheFolder(folder / "cache")
    contents = {}
    for number in range(count):
        size = LARGE if number == 3 else chance.choice((40, 900, 3000, 9000))
        content = chance.randbytes(size)
        contents[Digest.of_content(content)] = content
        put_whole(cache, content, EntryOrigin(CHECKPOINT) if number % 5 == 0 else SHELL)
        if number in (count // 3, 2 * count // 3):
            cache.level.flush_log()
    cache.close()
    return contents


@dataclass(frozen=True, slots=True)
class Opened:
    notes: list[str]
    intact: set[Digest]
    wrong: set[Digest]


def open_and_read(
    folder: Path, contents: dict[Digest, bytes], witnesses: EntryWitnesses | None = None
) -> Opened:
    opened = Opened([], set(), set())
    cache = cache_opening.open_or_repair_cache(
        folder, opened.notes.append, witnesses or EntryWitnesses()
    )
    for digest, content in contents.items():
        try:
            read = cache.reader.get_content(digest)
        except HelixError:
            continue
        (opened.intact if read == content else opened.wrong).add(digest)
    put_whole(cache, b"what comes next", SHELL)
    cache.close()
    return opened


def damaged_files(folder: Path) -> list[Path]:
    names = ("*.ldb", "*.log", "MANIFEST-*", "CURRENT")
    found = [path for name in names for path in (folder / "cache").glob(name)]
    return sorted(path for path in found if path.stat().st_size)


def flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def zero_a_page(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    start = chance.randrange(0, len(content), 4096)
    end = min(start + 4096, len(content))
    content[start:end] = bytes(end - start)
    path.write_bytes(content)


def contents_held_by_damage(
    whole: Path, damaged: Path, contents: dict[Digest, bytes]
) -> set[Digest]:
    """Those of which a byte, or the length just before them, was changed."""
    before = whole.read_bytes()
    after = damaged.read_bytes().ljust(len(before), b"\0")
    changed = [at for at in range(len(before)) if before[at] != after[at]]
    held = set()
    for digest, content in contents.items():
        start = before.find(content[:32])
        # A log has a header in each 32 KB.
        end = start + len(content) + 7 * (1 + len(content) // 32_000)
        if start >= 0 and any(start - 60 <= at < end for at in changed):
            held.add(digest)
    return held


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("harm", [flip, zero_a_page])
def test_only_what_the_damaged_place_held_is_lost_and_it_is_named(
    tmp_path: Path, seed: int, harm: Callable[[Path, random.Random], None]
) -> None:
    contents = fill(tmp_path / "whole")
    chance = random.Random(seed)
    for path in damaged_files(tmp_path / "whole"):
        folder = tmp_path / f"{path.name}"
        shutil.copytree(tmp_path / "whole", folder)
        harm(folder / "cache" / path.name, chance)
        held = contents_held_by_damage(path, folder / "cache" / path.name, contents)
        # Damage in the middle of a table is met when it is read, and repaired after that.
        assert not open_and_read(folder, contents).wrong
        opened = open_and_read(folder, contents)
        assert not opened.wrong
        assert opened.intact >= set(contents) - held, (path.name, opened.notes)
        shutil.rmtree(folder)


def test_a_description_that_is_lost_is_made_anew_from_the_content(tmp_path: Path) -> None:
    contents = fill(tmp_path / "w", count=6)
    cache = CacheFolder(tmp_path / "w" / "cache")
    keys = [*cache.level.keys_in_range(b"h", b"i"), *cache.level.keys_in_range(b"m", b"n")]
    chunks = dict(cache.level.scan_range(b"b", b"c"))
    cache.level.write_batch([(key, None) for key in keys])
    assert len(chunks) == len(contents) + 1
    cache.close()
    leveldb.damage_mark(tmp_path / "w" / "cache").touch()
    large = next(digest for digest, content in contents.items() if len(content) > 1 << 20)
    journal = JournalFile(tmp_path / "journal.sqlite3")
    journal.append_all_or_nothing("c", [ToolReturned("1", Stored(large, LARGE), 1)])
    opened = open_and_read(tmp_path / "w", contents, EntryWitnesses(journal))
    journal.close()
    assert opened.intact == set(contents)
    assert "Cache entries intact: 6; lost: 0." in opened.notes


def test_pins_and_tombstones_outlive_the_damage(tmp_path: Path) -> None:
    contents = fill(tmp_path / "w", count=6)
    first, second, *_ = contents
    cache = CacheFolder(tmp_path / "w" / "cache")
    cache.set_entry_pinned(first)
    cache.forget_entry(second)
    cache.close()
    (log,) = (tmp_path / "w" / "cache").glob("*.log")
    content = bytearray(log.read_bytes())
    content[0] ^= 1  # The first checksum: LevelDB drops the whole log.
    log.write_bytes(content)
    opened = open_and_read(tmp_path / "w", contents)
    assert opened.notes
    cache = CacheFolder(tmp_path / "w" / "cache")
    assert [*cache.level.keys_in_range(PINNED, b"q")] == [PINNED + first.raw]
    assert cache.reader.marked[FORGOTTEN] == {second.raw}
    cache.close()
    assert second not in opened.intact
    assert not any(str(second) in note for note in opened.notes)


def test_with_every_file_zeroed_everything_is_named_with_its_conversation(tmp_path: Path) -> None:
    contents = fill(tmp_path / "w", count=6)
    journal = JournalFile(tmp_path / "journal.sqlite3")
    journal.append_all_or_nothing("c", [UserSaid((Text("build the thing"),))])
    for number, (digest, content) in enumerate(contents.items()):
        returned = ToolReturned(str(number), Stored(digest, len(content)), 1)
        journal.append_all_or_nothing("c", [returned])
    short = b"a short output is in the journal as a whole"
    stored = Stored(Digest.of_content(short), len(short))
    journal.append_all_or_nothing("c", [ToolReturned("9", stored, 1, head=short.decode())])
    for path in (tmp_path / "w" / "cache").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    opened = open_and_read(
        tmp_path / "w", {**contents, stored.digest: short}, EntryWitnesses(journal)
    )
    journal.close()
    assert opened.intact == {stored.digest}
    assert "Cache entries intact: 1; lost: 6." in opened.notes
    assert "Cache entries restored from the journal: 1." in opened.notes
    for digest in contents:
        (named,) = [note for note in opened.notes if digest.hex in note]
        assert "build the thing" in named


def test_lost_contents_come_back_from_an_earlier_copy_and_from_the_folders(tmp_path: Path) -> None:
    contents = fill(tmp_path / "w", count=6)
    small = {digest: content for digest, content in contents.items() if len(content) < 1 << 20}
    journal = JournalFile(tmp_path / "journal.sqlite3")
    for number, (digest, content) in enumerate(small.items()):
        returned = ToolReturned(str(number), Stored(digest, len(content)), 1)
        journal.append_all_or_nothing("c", [returned])
    first, *others = small
    (tmp_path / "project" / "deep").mkdir(parents=True)
    (tmp_path / "project" / "deep" / "file").write_bytes(small[first])
    witnesses = EntryWitnesses(journal, (str(tmp_path / "project"),))
    earlier = tmp_path / "w" / "damaged" / "earlier" / "cache"
    cache = CacheFolder(tmp_path / "other")
    for digest in others:
        put_whole(cache, small[digest], SHELL)
    cache.close()
    shutil.copytree(tmp_path / "other", earlier)
    for path in (tmp_path / "w" / "cache").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    opened = open_and_read(tmp_path / "w", small, witnesses)
    journal.close()
    assert opened.intact == set(small)
    assert "Cache entries restored from the copies of earlier repairs: 4." in opened.notes
    assert "Cache entries restored from the workspace's folders: 1." in opened.notes


def test_damage_that_is_met_while_reading_is_repaired_at_the_next_opening(tmp_path: Path) -> None:
    contents = fill(tmp_path / "w")
    table = min((tmp_path / "w" / "cache").glob("*.ldb"))
    damaged = bytearray(table.read_bytes())
    damaged[100] ^= 1
    table.write_bytes(damaged)
    first = open_and_read(tmp_path / "w", contents)
    again = open_and_read(tmp_path / "w", contents)
    third = open_and_read(tmp_path / "w", contents)
    assert len(first.intact | again.intact) >= len(contents) - 1
    assert again.intact >= first.intact
    assert third.notes == []
    assert third.intact == again.intact


def test_a_torn_end_of_the_log_is_no_damage(tmp_path: Path) -> None:
    fill(tmp_path / "w", count=6)
    (log,) = (path for path in (tmp_path / "w" / "cache").glob("*.log") if path.stat().st_size)
    whole = log.read_bytes()
    for cut in (1, 5, 40):
        folder = tmp_path / f"cut-{cut}"
        shutil.copytree(tmp_path / "w", folder)
        (folder / "cache" / log.name).write_bytes(whole[:-cut])
        assert open_and_read(folder, {}).notes == []
        assert not (folder / "damaged").exists()
        assert not (folder / "cache.logs").exists()
