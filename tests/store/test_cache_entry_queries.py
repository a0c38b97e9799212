from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helix_desktop.engine.cache_entry_rows import (
    EVERYTHING,
    EntryFilter,
    EntryRow,
    EntrySort,
    EntryUse,
)
from helix_desktop.engine.facts import Folded, FoldKind, PartRef, Stored, ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store import cache_entry_queries
from helix_desktop.store.cache_entry_queries import CacheEntryQueries
from helix_desktop.store.cache_records import CacheRecord, EntryState
from helix_desktop.store.index_file import IndexFile, connect_for_queries
from tests.store.test_index_file import ListFeed, finish

COUNT = 300


def filled() -> ListFeed:
    """Three hundred entries with many equal values, some used, some pinned, some gone."""
    chance = random.Random(5)
    feed = ListFeed()
    for number in range(1, COUNT + 1):
        content = chance.randbytes(chance.choice((5, 10, 20))) + number.to_bytes(4, "big")
        about = EntryOrigin(
            chance.choice(("shell", "read_file", "")),
            f"src/{chance.randrange(9)}_%/file{number % 50}.py",
        )
        state = EntryState.COLLECTED if number % 40 == 0 else EntryState.LIVE
        record = CacheRecord(
            number,
            number,
            Digest.of_content(content),
            len(content),
            9,
            1,
            1000.0 + number // 3,
            about,
            (),
            state,
        )
        feed.entries.append((record, b"word " * (number % 4)))
        if number % 25 == 0:
            feed.pins.add(record.digest)
    for record, _ in feed.entries[::3]:
        for _ in range(record.number % 4 + 1):
            feed.say(
                ToolReturned("1", Stored(record.digest, record.size), 1), f"c{record.number % 2}"
            )
    return feed


@pytest.fixture
def index(tmp_path: Path) -> Iterator[IndexFile]:
    opened = IndexFile(tmp_path / "index.sqlite3", filled(), count=lambda text: len(text.split()))
    finish(opened)
    yield opened
    opened.close()


@pytest.fixture
def asked(index: IndexFile, tmp_path: Path) -> Iterator[CacheEntryQueries]:
    connection = connect_for_queries(tmp_path / "index.sqlite3")
    yield CacheEntryQueries(connection)
    connection.close()


NEWEST = (EntryFilter(), EntrySort.TIME, True)
FILTERS: dict[str, tuple[EntryFilter, Callable[[EntryRow], bool]]] = {
    "everything": (EVERYTHING, lambda row: row is not None),
    "tool": (EntryFilter(tool="shell"), lambda row: row.about.tool == "shell"),
    "since": (EntryFilter(since=1050), lambda row: row.time >= 1050),
    "size": (EntryFilter(least=10, most=20), lambda row: 10 <= row.stored.size <= 20),
    "pinned": (EntryFilter(pinned=True), lambda row: row.pinned),
    "unused": (EntryFilter(unused=True), lambda row: row.uses == 0),
    "gone": (EntryFilter(gone=True), lambda row: row.gone),
    "text": (EntryFilter(text="FILE7.py"), lambda row: "file7.py" in row.about.source),
    "tool's name": (EntryFilter(text="read_f"), lambda row: row.about.tool == "read_file"),
    "special text": (EntryFilter(text="3_%/"), lambda row: "3_%/" in row.about.source),
    "several": (
        EntryFilter(tool="shell", unused=True, most=20),
        lambda row: (row.about.tool, row.uses) == ("shell", 0) and row.stored.size <= 20,
    ),
}


def value(row: EntryRow, sort: EntrySort) -> object:
    match sort:
        case EntrySort.TOOL:
            return row.about.tool
        case EntrySort.SOURCE:
            return row.about.source
        case EntrySort.SIZE:
            return row.stored.size
        case EntrySort.HASH:
            return row.stored.digest
    return getattr(row, sort.value)


@pytest.mark.parametrize("few", [0, 10_000], ids=["in order", "then sorted"])
@pytest.mark.parametrize("name", FILTERS)
def test_each_filter_in_each_order_is_what_it_says(
    asked: CacheEntryQueries, name: str, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_entry_queries, "FEW", few)
    chosen, holds = FILTERS[name]
    everything = asked.entries_page(NEWEST, 0, COUNT)
    assert len(everything) == COUNT
    wanted = [row for row in everything if holds(row)]
    assert len(wanted) > 0
    assert asked.count_entries(chosen) == len(wanted)
    for sort, descending in itertools.product(EntrySort, (False, True)):
        expected = sorted(wanted, key=lambda row: (value(row, sort), row.number))
        if descending:
            expected.reverse()
        rows = asked.entries_page((chosen, sort, descending), 0, COUNT)
        assert [row.number for row in rows] == [row.number for row in expected]


@pytest.mark.parametrize("name", ["everything", "unused", "tool"])
@pytest.mark.parametrize("sort", list(EntrySort))
def test_a_page_far_down_is_the_page(
    asked: CacheEntryQueries, sort: EntrySort, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_entry_queries, "NEAR", 5)
    monkeypatch.setattr(cache_entry_queries, "STRIDE", 7)
    chosen, _ = FILTERS[name]
    for descending in (False, True):
        whole = asked.entries_page((chosen, sort, descending), 0, COUNT)
        for offset in (0, 5, 6, 7, 20, 49, 50, len(whole) - 1, len(whole), len(whole) + 30):
            page = asked.entries_page((chosen, sort, descending), offset, 12)
            assert page == whole[offset : offset + 12], (sort, descending, offset)


def test_a_conversation_is_a_filter_too(asked: CacheEntryQueries) -> None:
    rows = asked.entries_page((EntryFilter(conversation="c1"), EntrySort.TIME, True), 0, COUNT)
    assert rows
    assert all(
        any(use.conversation == "c1" for use in asked.uses_of_entry(row.stored.digest))
        for row in rows
    )
    assert (
        asked.count_entries(EntryFilter(conversation="c1"))
        + asked.count_entries(EntryFilter(conversation="c0"))
        == 100
    )
    assert (
        asked.entries_page((EntryFilter(conversation="nobody"), EntrySort.TIME, True), 0, COUNT)
        == ()
    )


def test_counts_follow_what_is_written(asked: CacheEntryQueries, index: IndexFile) -> None:
    assert asked.count_entries() == COUNT
    feed = index._feed
    assert isinstance(feed, ListFeed)
    feed.add(b"one more")
    finish(index)
    assert asked.count_entries() == COUNT + 1
    assert (
        asked.entries_page((EntryFilter(), EntrySort.TIME, False), 0, 1)[0].about.source
        == "source 301"
    )


def test_one_entry_and_where_it_is_used(asked: CacheEntryQueries) -> None:
    row = asked.entries_page((EntryFilter(), EntrySort.USES, True), 0, 1)[0]
    assert asked.find_entry_row(row.stored.digest) == row
    uses = asked.uses_of_entry(row.stored.digest)
    assert len(uses) == row.uses == 4
    assert uses[0] == EntryUse(f"c{row.number % 2}", uses[0].seq, uses[0].time, "output")
    assert asked.find_entry_row(Digest.of_content(b"none")) is None


def test_tools_with_their_counts(asked: CacheEntryQueries) -> None:
    tools = dict(asked.count_entries_by_tool())
    assert set(tools) == {"shell", "read_file"}
    assert tools["shell"] == asked.count_entries(EntryFilter(tool="shell"))


def test_figures_of_the_whole(asked: CacheEntryQueries) -> None:
    rows = asked.entries_page(NEWEST, 0, COUNT)
    stats = asked.entry_figures()
    assert (stats.entries, stats.size, stats.tokens) == (
        COUNT,
        sum(row.stored.size for row in rows),
        sum(row.tokens for row in rows),
    )
    assert (stats.pinned, stats.gone) == (12, 7)
    assert asked.bytes_on_disk() == stats.kept == sum(row.kept for row in rows)
    assert stats.repeated == sum(row.uses - 1 for row in rows if row.uses > 1)


def test_what_collection_takes_first(asked: CacheEntryQueries) -> None:
    rows = {row.stored.digest: row for row in asked.entries_page(NEWEST, 0, COUNT)}
    first = [rows[digest] for digest in asked.unused_entries()]
    assert [row.time for row in first] == sorted(row.time for row in first)
    for row in first:
        assert row.uses == 0
        assert row.about.tool
        assert not row.pinned
        assert not row.gone


def test_what_only_a_fold_refers_to_is_not_collected(
    asked: CacheEntryQueries, index: IndexFile
) -> None:
    first = asked.unused_entries()[0]
    unused = asked.count_entries(EntryFilter(unused=True))
    feed = index._feed
    assert isinstance(feed, ListFeed)
    feed.say(Folded("f", FoldKind.MARKER, PartRef(1), "", 1, 2, entries=(first,)))
    finish(index)
    assert first not in asked.unused_entries()
    assert asked.count_entries(EntryFilter(unused=True)) == unused - 1
    found = asked.find_entry_row(first)
    assert found is not None
    assert found.uses == 0


def test_what_ought_to_be_there_comes_in_pages(asked: CacheEntryQueries) -> None:
    found: list[Digest] = []
    while page := asked.digests_expected_here(found[-1].raw if found else b"", 17):
        found += page
    assert found == sorted(
        row.stored.digest for row in asked.entries_page(NEWEST, 0, COUNT) if not row.gone
    )
