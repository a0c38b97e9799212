from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from helix_desktop.engine.catalogue import Filter
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import ConversationStarted, Text, ToolReturned, UserSaid
from helix_desktop.engine.ports import About
from helix_desktop.errors import (
    CacheCorrupt,
    JournalCorrupt,
    NotThere,
    StoreFailed,
)
from helix_desktop.store import config
from helix_desktop.store.workspace import Workspace
from helix_desktop.store.workspaces import Workspaces

of_posix = pytest.mark.skipif(sys.platform == "win32", reason="rights and pipes of POSIX")


async def test_an_open_one_hears_of_its_new_name(workspaces: Workspaces, workspace: Workspace) -> None:
    workspaces.rename(workspace.id, "New")
    assert workspace.name == "New"
    (workspace.folder / "workspace.toml").write_text('name = "By hand"')
    assert workspace.change({}).name == "By hand"


async def test_all_is_there_when_it_opens_again(workspaces: Workspaces, workspace: Workspace) -> None:
    stored = await workspace.cache.put(b"kept", About("shell", "ls"))
    await workspace.journal.append("c", [ConversationStarted("T"), ToolReturned("1", stored, 1)])
    await workspace.aclose()
    with pytest.raises(StoreFailed, match="closed"):
        await workspace.cache.get(stored.digest)
    again = await workspaces.open(workspace.id)
    assert await again.cache.get(stored.digest) == b"kept"
    assert len(await again.journal.read("c")) == 2
    assert again.notes == ()
    await again.aclose()
    await workspace.aclose()


async def test_what_is_derived_comes_back(workspaces: Workspaces, workspace: Workspace) -> None:
    stored = await workspace.cache.put(b"a zebra", About("shell", "cat"))
    await workspace.cache.pin(stored.digest)
    await workspace.journal.append("c", [UserSaid((Text("about zebras"),)), ToolReturned("1", stored, 1)])
    await workspace._stores.aclose()
    for path in workspace.folder.glob("index.sqlite3*"):
        path.write_bytes(b"nonsense")
    workspace._lock.release()
    workspace.closed()
    again = await workspaces.open(workspace.id)
    done = await again.index.caught_up()
    assert done.done
    (row,) = await again.index.entries()
    assert (row.stored, row.uses, row.pinned) == (stored, 1, True)
    assert len(await again.index.search("zebra")) == 1
    workspace._stores, workspace._lock = again._stores, again._lock


async def test_damage_met_while_open_is_mended_at_the_next_opening(
    workspaces: Workspaces, workspace: Workspace
) -> None:
    await workspace.journal.append(
        "c", [ConversationStarted("T"), UserSaid((Text("original"),)), UserSaid((Text("last"),))]
    )
    await workspace.back_up()
    connection = workspace._stores.journal.connection
    await workspace._stores.thread.run(
        connection.execute, "UPDATE facts SET fact = replace(fact, 'original', 'changed!') WHERE seq = 2"
    )
    with pytest.raises(JournalCorrupt, match="Fact 2 of the conversation c"):
        await workspace.journal.read("c")
    await workspace.aclose()
    again = await workspaces.open(workspace.id)
    assert [each.fact for each in await again.journal.read("c")][1] == UserSaid((Text("original"),))
    assert "3 facts are intact, 0 are lost" in again.notes[0]
    await again.aclose()


async def test_collection_takes_what_nobody_uses(workspace: Workspace) -> None:
    used, unused, by_hand, pinned = [
        await workspace.cache.put(name.encode() * 1000, About(tool, name))
        for name, tool in [("used", "shell"), ("unused", "shell"), ("hand", ""), ("pinned", "shell")]
    ]
    await workspace.journal.append("c", [ToolReturned("1", used, 1)])
    await workspace.cache.pin(pinned.digest)
    collected = await workspace.cache.collect(0)
    assert collected.entries == 1
    assert [row.stored.digest for row in await workspace.index.entries(Filter(gone=True))] == [unused.digest]
    with pytest.raises(NotThere, match=r"shell unused, 6,000 bytes.*removed to free up space"):
        await workspace.cache.get(unused.digest)
    for kept in (used, by_hand, pinned):
        assert await workspace.cache.get(kept.digest)
    assert (await workspace.cache.collect(0)).entries == 0
    again = await workspace.cache.put(b"unused" * 1000, About("shell"))
    assert await workspace.cache.get(again.digest) == b"unused" * 1000


async def test_a_check_names_what_is_damaged_and_what_is_missing(workspace: Workspace) -> None:
    stored = [await workspace.cache.put(bytes([n]) * 9000, About("shell")) for n in range(5)]
    await workspace.journal.append("c", [ToolReturned("1", stored[2], 1)])
    await workspace.index.caught_up()
    cache, thread = workspace._stores.cache, workspace._stores.thread
    damaged, missing = cache.record(stored[1].digest), cache.record(stored[2].digest)
    await thread.run(cache.level.write, [(b"b" + damaged.blob.to_bytes(8, "big") + bytes(4), b"\x00wrong")])
    await thread.run(
        cache.level.write, [(b"h" + missing.digest.raw, None), (b"m" + missing.number.to_bytes(8, "big"), None)]
    )
    result = await workspace.cache.verify()
    assert {digest for digest, _ in result.damaged} == {damaged.digest, missing.digest}
    assert (result.checked, result.bytes) == (3, 27_000)
    with pytest.raises(CacheCorrupt):
        await workspace.cache.verify_entry(damaged.digest)
    await workspace.cache.verify_entry(stored[0].digest)
    await workspace.cache.put(bytes([1]) * 9000, About("shell"))
    assert await workspace.cache.get(damaged.digest) == bytes([1]) * 9000
    assert Digest.of(b"") not in {digest for digest, _ in (await workspace.cache.verify()).damaged}


async def test_whoever_watches_the_settings_hears_of_a_change_made_in_a_thread(workspace: Workspace) -> None:
    heard: list[str] = []
    leave = workspace.watch(lambda: heard.append(workspace.settings.models.get("main", "")))
    await asyncio.to_thread(workspace.change, {"models.main": "demo/demo"})
    await asyncio.sleep(0)
    leave()
    workspace.change({"models.main": "other/one"})
    await asyncio.sleep(0)
    assert heard == ["demo/demo"]


async def test_changes_made_side_by_side_are_all_there(workspace: Workspace) -> None:
    wanted = {f"mcp.server{number}.command": f"run {number}" for number in range(24)}
    await asyncio.gather(*(asyncio.to_thread(workspace.change, {key: value}) for key, value in wanted.items()))
    assert {name: table["command"] for name, table in config.read(workspace.folder / config.NAME).mcp.items()} == {
        f"server{number}": f"run {number}" for number in range(24)
    }


@of_posix
async def test_a_workspace_is_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        workspaces = Workspaces(tmp_path / "home" / "workspaces")
        opened = await workspaces.open(workspaces.create("Work", tmp_path).id)
        await opened.cache.put(b"content", About("shell"))
        await opened.journal.append("c", [UserSaid((Text("hello"),))])
        await opened.index.caught_up()
        await opened.back_up()
        rights = {path: path.stat().st_mode & 0o077 for path in (workspaces.folder, *opened.folder.rglob("*"))}
        await opened.aclose()
    finally:
        os.umask(before)
    assert {path.name: mode for path, mode in rights.items() if mode} == {}
