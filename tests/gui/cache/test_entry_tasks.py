"""What takes time on the cache page comes to the right end, also when it goes wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort, EntryUse
from helix_desktop.engine.ports import SearchHit
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import InvalidInput, StoreFailed
from helix_desktop.gui.cache import entry_tasks
from tests.gui.cache.catalogue import MemoryCatalogue


async def test_hashes_of_many_ranges(catalogue: MemoryCatalogue) -> None:
    order = (EntryFilter(), EntrySort.TIME, False)
    reports: list[tuple[int, int]] = []
    text = await entry_tasks.fetch_hashes_of_rows(
        catalogue, [(0, 2), (10, 10)], order, lambda done, all_of: reports.append((done, all_of))
    )
    wanted = [*catalogue.lines[:3], catalogue.lines[10]]
    assert text.decode().split("\n") == [line.stored.digest.hex for line in wanted]
    assert reports[-1] == (4, 4)


async def test_entries_with_all_words_come_first_and_what_is_gone_is_left_out(
    catalogue: MemoryCatalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    some, every, other = (
        catalogue.put(text).stored.digest for text in (b"one", b"one two", b"two")
    )
    gone = Digest.of_content(b"gone")
    found = [
        SearchHit("", some, has_all_words=False),
        SearchHit("", gone),
        SearchHit("", every),
        SearchHit("", other),
    ]

    async def search_index(*_: object, **__: object) -> list[SearchHit]:
        return found

    monkeypatch.setattr(catalogue, "search_index", search_index)
    hits = await entry_tasks.search_entries_with_rows(catalogue, "one two")
    assert [hit.row.stored.digest for hit in hits] == [every, other, some]


async def test_an_entry_is_saved_whole(catalogue: MemoryCatalogue, tmp_path: Path) -> None:
    line = catalogue.put(b"0123456789" * 300_000)
    await entry_tasks.save_entry_to_file(
        catalogue, line.stored, tmp_path / "out.txt", lambda *_: None
    )
    assert (tmp_path / "out.txt").read_bytes() == catalogue.contents[line.stored.digest]
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


async def test_a_place_that_cannot_be_written_is_said(
    catalogue: MemoryCatalogue, tmp_path: Path
) -> None:
    line = catalogue.put(b"x")
    with pytest.raises(StoreFailed, match="still in the cache"):
        await entry_tasks.save_entry_to_file(
            catalogue, line.stored, tmp_path / "no" / "such" / "place", lambda *_: None
        )


async def test_damage_leaves_no_half_file(catalogue: MemoryCatalogue, tmp_path: Path) -> None:
    line = catalogue.put(b"x")
    catalogue.damaged.add(line.stored.digest)
    with pytest.raises(Exception, match="hash"):
        await entry_tasks.save_entry_to_file(
            catalogue, line.stored, tmp_path / "out.txt", lambda *_: None
        )
    assert list(tmp_path.iterdir()) == []
    await asyncio.sleep(0)


async def test_only_texts_of_a_sensible_size_are_compared(catalogue: MemoryCatalogue) -> None:
    text = catalogue.put(b"a\n")
    binary = catalogue.put(b"\0\1")
    with pytest.raises(InvalidInput, match="Only text"):
        await entry_tasks.read_two_entry_texts(catalogue, text.stored, binary.stored)
    large = catalogue.put(b"x" * (5 << 20))
    with pytest.raises(InvalidInput, match="4 MB"):
        await entry_tasks.read_two_entry_texts(catalogue, text.stored, large.stored)


def test_names_to_save_under(catalogue: MemoryCatalogue) -> None:
    assert entry_tasks.suggest_entry_file_name(catalogue.lines[0]) == "table.rs"
    odd = catalogue.put(b"y", "run_command", "rm -rf / ; echo $HOME")
    assert "/" not in entry_tasks.suggest_entry_file_name(odd)
    assert entry_tasks.suggest_entry_file_name(odd).endswith(".txt")


def test_consequences_are_said(catalogue: MemoryCatalogue) -> None:
    said = entry_tasks.describe_forgetting(
        catalogue.lines[0],
        [EntryUse("c", n, 1.0, how) for n, how in enumerate(("output", "fold", "recall"))],
    )
    assert "2 messages refer to this output" in said
    assert "cannot be undone" in said
