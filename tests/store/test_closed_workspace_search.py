"""A workspace nobody has open is searched as if it were, and not a byte of it changes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.engine.facts import ConversationChanged, Text, UserSaid
from helix_desktop.engine.ports import ClosedSearchResult, EntryOrigin
from helix_desktop.errors import StoreFailed
from helix_desktop.store import closed_workspace_search, read_only_copy
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.store_opening import INDEX
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_lock import WorkspaceLock

SHELL = EntryOrigin("shell", "cat log")
KILLED = """
import asyncio, os, sys
from pathlib import Path
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.store.test_closed_workspace_search import fill

async def main():
    await fill(await StoredWorkspace.open(Path(sys.argv[1])))
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


async def fill(opened: StoredWorkspace) -> None:
    await opened.cache.store_content(b"first line\na needle in an entry\n", SHELL)
    await opened.journal.append_to_journal(
        "c", [ConversationChanged(title="Hay"), UserSaid((Text("a needle in a message"),))]
    )
    await opened.index.wait_until_indexed()


@pytest.fixture
async def folder(workspace: StoredWorkspace) -> Path:
    await fill(workspace)
    await workspace.aclose()
    return workspace.folder


async def test_what_is_found_is_what_is_found_when_it_is_open_and_nothing_is_written(
    folder: Path,
) -> None:
    before = state(folder)
    found = closed_workspace_search.search_closed_stores(folder, "needle")
    assert state(folder) == before
    opened = await StoredWorkspace.open(folder)
    assert found.hits == await opened.index.search_index("needle")
    assert {(hit.conversation, hit.line) for hit in found.hits} == {("c", 1), ("", 2)}
    assert found.titles == {"c": "Hay"}
    assert closed_workspace_search.search_closed_stores(folder, "nowhere") == ClosedSearchResult()
    await opened.aclose()


def test_one_that_was_killed_is_searched_with_what_it_wrote_last(
    workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    folder = workspaces.create_stored_workspace("Killed", tmp_path).folder
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder)], cwd=Path(__file__).parents[2], check=False
    )
    assert ended.returncode == -9
    assert (folder / f"{INDEX}-wal").stat().st_size > 0
    before = state(folder)
    found = closed_workspace_search.search_closed_stores(folder, "needle")
    assert (len(found.hits), found.titles) == (2, {"c": "Hay"})
    assert state(folder) == before


async def test_it_asks_for_no_lock(folder: Path) -> None:
    lock = WorkspaceLock(folder / "lock")
    assert len(closed_workspace_search.search_closed_stores(folder, "needle").hits) == 2
    lock.release_lock()


async def test_one_that_cannot_be_read_is_an_error_and_no_empty_answer(folder: Path) -> None:
    index = folder / INDEX
    whole = index.read_bytes()
    index.write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreFailed):
        closed_workspace_search.search_closed_stores(folder, "needle")
    index.write_bytes(whole)
    (folder / "cache" / "CURRENT").unlink()
    with pytest.raises(StoreFailed, match="cache"):
        closed_workspace_search.search_closed_stores(folder, "needle")


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE meta SET value = value - 1 WHERE name = 'facts'",
        "UPDATE meta SET value = 0 WHERE name = 'words'",
        "PRAGMA user_version = 1",
        "",
    ],
)
async def test_it_says_when_the_index_is_behind(folder: Path, change: str) -> None:
    """The program was closed or killed before the index had caught up, or the index is
    older than the program, or gone.
    """
    assert not closed_workspace_search.search_closed_stores(folder, "needle").behind
    with closing(sqlite3.connect(folder / INDEX)) as connection, connection:
        connection.execute(change)
    if not change:
        (folder / INDEX).unlink()
    assert closed_workspace_search.search_closed_stores(folder, "needle").behind
    opened = await StoredWorkspace.open(folder)
    await opened.index.wait_until_indexed()
    await opened.aclose()
    assert closed_workspace_search.search_closed_stores(folder, "needle") == ClosedSearchResult(
        closed_workspace_search.search_closed_stores(folder, "needle").hits, {"c": "Hay"}
    )


async def test_the_cache_is_copied_only_for_an_entry_that_was_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_only_copy, "_SPARE_BYTES", 1 << 60)
    assert closed_workspace_search.search_closed_stores(folder, "message").titles == {"c": "Hay"}
    with pytest.raises(StoreFailed, match="no other folder"):
        closed_workspace_search.search_closed_stores(folder, "entry")


def test_one_that_was_never_opened_has_nothing(workspaces: AllWorkspaces, tmp_path: Path) -> None:
    assert (
        closed_workspace_search.search_closed_stores(
            workspaces.create_stored_workspace("New", tmp_path).folder, "needle"
        )
        == ClosedSearchResult()
    )
