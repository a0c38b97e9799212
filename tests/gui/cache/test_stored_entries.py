"""The entries of a real workspace, as the cache page asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import NotFound
from helix_desktop.gui.workbench_types import StoredWorkspace
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Workbench]:
    where = program_folders.find_program_folders(tmp_path / "home")
    (tmp_path / "folder").mkdir()
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
    opened = await desk.create_workspace("one", tmp_path / "folder")
    for name in ("a.txt", "b.txt", "c.txt"):
        await opened.attach_content(name, f"the content of {name}\n".encode() * 10, "text/plain")
    await opened.workspace.index.wait_until_indexed()
    yield opened
    await desk.aclose()


def _shown(bench: Workbench) -> StoredWorkspace:
    return bench.workspace


async def test_entries_are_counted_listed_and_sorted(bench: Workbench) -> None:
    shown = _shown(bench).index
    everything = EntryFilter()
    assert await shown.count_entries(everything) == 3
    rows = await shown.entries_page(
        everything, sort=EntrySort.SOURCE, descending=True, offset=0, limit=2
    )
    assert [row.about.source for row in rows] == ["c.txt", "b.txt"]
    assert (await shown.compute_figures()).entries == 3
    assert await shown.count_entries(EntryFilter(text="b.txt")) == 1
    assert await shown.count_tools() == [("user", 3)] or tuple(await shown.count_tools()) == (
        ("user", 3),
    )


async def test_every_column_of_the_page_is_one_of_the_store(bench: Workbench) -> None:
    for sort in EntrySort:
        rows = await _shown(bench).index.entries_page(
            EntryFilter(), sort=sort, descending=False, offset=0, limit=9
        )
        assert len(rows) == 3


async def test_one_entry_is_found_read_checked_and_forgotten(bench: Workbench) -> None:
    shown = _shown(bench)
    digest = Digest.of_content(b"the content of a.txt\n" * 10)
    assert await shown.cache.resolve_prefix(digest.hex[:8]) == digest
    assert await shown.cache.read_range(digest, 4, 7) == b"content"
    await shown.cache.verify_entry(digest)
    assert [hit.digest for hit in await shown.index.search_index("a.txt", entries_only=True)][
        :1
    ] == [digest]
    await shown.cache.pin_entry(digest, pinned=True)
    row = await shown.index.find_entry_row(digest)
    assert row is not None
    assert row.pinned
    assert list(await shown.index.find_entry_uses(digest)) == []
    await shown.content_forgetter(entries=[digest])
    with pytest.raises(NotFound):
        await shown.cache.read_range(digest, 0, 1)
