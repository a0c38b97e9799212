"""The entries of a real workspace, as the cache page asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop import places
from helix_desktop.engine.catalogue import Filter, Sort
from helix_desktop.engine.digest import Digest
from helix_desktop.errors import NotThere
from helix_desktop.gui.cache_port import Catalogue
from helix_desktop.secrets import Secrets
from helix_desktop.workbench import Desk, Workbench


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Workbench]:
    where = places.find(tmp_path / "home")
    (tmp_path / "folder").mkdir()
    desk = Desk(where, Secrets(where.key_file, environ={}))
    opened = await desk.create("one", tmp_path / "folder")
    for name in ("a.txt", "b.txt", "c.txt"):
        await opened.attach(name, f"the content of {name}\n".encode() * 10, "text/plain")
    await opened.workspace.index.caught_up()
    yield opened
    await desk.aclose()


def _shown(bench: Workbench) -> Catalogue:
    return bench.workspace


async def test_entries_are_counted_listed_and_sorted(bench: Workbench) -> None:
    shown = _shown(bench).index
    everything = Filter()
    assert await shown.count(everything) == 3
    rows = await shown.entries(everything, sort=Sort.SOURCE, descending=True, offset=0, limit=2)
    assert [row.about.source for row in rows] == ["c.txt", "b.txt"]
    assert (await shown.stats()).entries == 3
    assert await shown.count(Filter(text="b.txt")) == 1
    assert await shown.tools() == [("user", 3)] or tuple(await shown.tools()) == (("user", 3),)


async def test_every_column_of_the_page_is_one_of_the_store(bench: Workbench) -> None:
    for sort in Sort:
        rows = await _shown(bench).index.entries(Filter(), sort=sort, descending=False, offset=0, limit=9)
        assert len(rows) == 3


async def test_one_entry_is_found_read_checked_and_forgotten(bench: Workbench) -> None:
    shown = _shown(bench)
    digest = Digest.of(b"the content of a.txt\n" * 10)
    assert await shown.cache.resolve(digest.hex[:8]) == digest
    assert await shown.cache.read(digest, 4, 7) == b"content"
    await shown.cache.verify_entry(digest)
    assert [hit.digest for hit in await shown.index.search("a.txt", entries_only=True)][:1] == [digest]
    await shown.cache.pin(digest, pinned=True)
    row = await shown.index.row(digest)
    assert row is not None
    assert row.pinned
    assert list(await shown.index.uses(digest)) == []
    await shown.forgetting(entries=[digest])
    with pytest.raises(NotThere):
        await shown.cache.read(digest, 0, 1)
