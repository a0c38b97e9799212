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
    Ambiguous,
    ConfigMistake,
    JournalCorrupt,
    NotThere,
    StoreBusy,
    StoreFailed,
    WrongUse,
)
from helix_desktop.store import config
from helix_desktop.store.lock import Lock
from helix_desktop.store.workspace import Workspace, Workspaces

of_posix = pytest.mark.skipif(sys.platform == "win32", reason="rights and pipes of POSIX")


def test_a_new_workspace_is_listed_and_found(workspaces: Workspaces, tmp_path: Path) -> None:
    thesis = workspaces.create("My  Thesis", tmp_path)
    other = workspaces.create("Other", tmp_path, colour="#123456")
    assert [each.name for each in workspaces.list()] == ["My Thesis", "Other"]
    assert thesis.id.startswith("my-thesis-")
    assert workspaces.find(thesis.id) == workspaces.find("my thesis") == thesis
    assert (other.settings.colour, thesis.settings.roots) == ("#123456", (str(tmp_path),))
    with pytest.raises(NotThere, match=r"no workspace Novel.*My Thesis, Other"):
        workspaces.find("Novel")
    workspaces.create("other", tmp_path)
    with pytest.raises(Ambiguous, match=other.id):
        workspaces.find("OTHER")


def test_nothing_is_listed_where_nothing_is(tmp_path: Path) -> None:
    assert Workspaces(tmp_path / "none").list() == ()
    assert Workspaces(tmp_path / "none").list(trashed=True) == ()


@pytest.mark.parametrize("name", ["", "  ", "x" * 81])
def test_a_name_has_one_to_eighty_characters(workspaces: Workspaces, tmp_path: Path, name: str) -> None:
    with pytest.raises(WrongUse):
        workspaces.create(name, tmp_path)


def test_a_name_of_any_script_has_a_folder(workspaces: Workspaces, tmp_path: Path) -> None:
    assert workspaces.create("日本語", tmp_path).folder.is_dir()
    with pytest.raises(WrongUse, match="Only UTF-8"):
        workspaces.create("a\udcff", tmp_path)
    assert len(list(workspaces.folder.iterdir())) == 1


async def test_one_whose_settings_are_gone_is_listed_and_says_so(workspaces: Workspaces, tmp_path: Path) -> None:
    known = workspaces.create("A", tmp_path)
    await (await workspaces.open(known.id)).aclose()
    (known.folder / "workspace.toml").unlink()
    (found,) = workspaces.list()
    assert found.id == known.id
    assert "workspace.toml is missing" in found.mistake
    with pytest.raises(NotThere, match="toml is missing"):
        await workspaces.open(known.id)
    with pytest.raises(NotThere):
        workspaces.create("x", tmp_path / "missing")


def test_name_and_colour_change_in_the_file(workspaces: Workspaces, tmp_path: Path) -> None:
    known = workspaces.create("A", tmp_path)
    assert workspaces.rename("A", "B").name == "B"
    assert workspaces.recolour("B", "#000000").settings.colour == "#000000"
    assert workspaces.find(known.id).name == "B"


async def test_an_open_one_hears_of_its_new_name(workspaces: Workspaces, workspace: Workspace) -> None:
    workspaces.rename(workspace.id, "New")
    assert workspace.name == "New"
    (workspace.folder / "workspace.toml").write_text('name = "By hand"')
    assert workspace.change({}).name == "By hand"


def test_the_trash_takes_and_gives_back_whole(workspaces: Workspaces, tmp_path: Path) -> None:
    known = workspaces.create("A", tmp_path)
    trashed = workspaces.trash("A")
    assert trashed.trashed
    assert (workspaces.list(), [each.id for each in workspaces.list(trashed=True)]) == ((), [known.id])
    assert workspaces.restore("A").folder == known.folder
    workspaces.trash("A")
    workspaces.delete("A")
    assert workspaces.list(trashed=True) == ()
    with pytest.raises(NotThere, match="in the trash"):
        workspaces.restore("A")


async def test_an_open_one_has_one_owner(workspaces: Workspaces, workspace: Workspace) -> None:
    with pytest.raises(StoreBusy, match="already open in this program"):
        await workspaces.open(workspace.id)
    elsewhere = Workspaces(workspaces.folder)
    with pytest.raises(StoreBusy, match="open in another program"):
        await elsewhere.open(workspace.id)
    with pytest.raises(StoreBusy):
        workspaces.trash(workspace.id)
    assert await workspace.cache.put(b"still here", About())
    assert list(workspaces.opened()) == [workspace.id]


async def test_several_are_open_at_once_and_nothing_crosses(workspaces: Workspaces, tmp_path: Path) -> None:
    one, two = [await workspaces.open(workspaces.create(name, tmp_path).id) for name in ("One", "Two")]
    stored = await one.cache.put(b"only here", About("shell"))
    await one.journal.append("c", [ToolReturned("1", stored, 1)])
    with pytest.raises(NotThere):
        await two.cache.get(stored.digest)
    assert await two.journal.conversations() == ()
    await asyncio.gather(one.aclose(), two.aclose())


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


async def test_a_mistake_in_the_file_is_listed_and_refuses_to_open(workspaces: Workspaces, tmp_path: Path) -> None:
    known = workspaces.create("A", tmp_path)
    (known.folder / "workspace.toml").write_text("name = 3")
    (listed,) = workspaces.list()
    assert "line 1: name = 3" in listed.mistake
    with pytest.raises(ConfigMistake):
        await workspaces.open(known.id)
    (known.folder / "workspace.toml").write_text('name = "A"')
    await (await workspaces.open("A")).aclose()


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
    assert (await workspace.cache.collect(0, chosen=[used.digest, pinned.digest])).entries == 1
    assert await workspace.cache.get(pinned.digest)
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
    assert (await workspace.cache.verify_entry(damaged.digest)).damaged
    assert (await workspace.cache.verify_entry(stored[0].digest)).checked == 1
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


async def test_what_a_killed_import_left_is_removed_and_what_goes_on_is_not(
    workspaces: Workspaces, tmp_path: Path
) -> None:
    known = workspaces.create("Work", tmp_path)
    dead, alive = (workspaces.folder / f".importing-{name}" for name in ("dead-1", "alive-2"))
    for folder in (dead, alive):
        (folder / "cache").mkdir(parents=True)
        (folder / "cache" / "1.log").write_text("a secret")
    held = Lock(alive / "lock")
    told = workspaces.tidy()
    held.release()
    assert told == ("An import was interrupted. What it left in .importing-dead-1 was removed.",)
    assert (dead.exists(), alive.exists(), known.folder.exists()) == (False, True, True)


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


@of_posix
def test_a_settings_file_that_is_no_file_is_listed_with_what_is_wrong(workspaces: Workspaces, tmp_path: Path) -> None:
    for name, make in (("Pipe", os.mkfifo), ("Zeros", lambda path: path.symlink_to("/dev/zero"))):
        folder = workspaces.create(name, tmp_path).folder
        (folder / "journal.sqlite3").touch()
        (folder / "workspace.toml").unlink()
        make(folder / "workspace.toml")
    assert ["not a regular file" in known.mistake for known in workspaces.list()] == [True, True]
