from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from helix_desktop.engine.facts import ToolReturned
from helix_desktop.engine.ports import About
from helix_desktop.errors import (
    Ambiguous,
    ConfigMistake,
    NotThere,
    StoreBusy,
    WrongUse,
)
from helix_desktop.store.lock import Lock
from helix_desktop.store.workspace import Workspace
from helix_desktop.store.workspaces import Workspaces

of_posix = pytest.mark.skipif(sys.platform == "win32", reason="rights and pipes of POSIX")


def test_a_new_workspace_is_listed_and_found(workspaces: Workspaces, tmp_path: Path) -> None:
    thesis = workspaces.create("My  Thesis", tmp_path)
    other = workspaces.create("Other", tmp_path)
    assert [each.name for each in workspaces.list()] == ["My Thesis", "Other"]
    assert thesis.id.startswith("my-thesis-")
    assert workspaces.find(thesis.id) == workspaces.find("my thesis") == thesis
    assert other.settings.colour != thesis.settings.colour
    assert thesis.settings.roots == (str(tmp_path),)
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


async def test_a_mistake_in_the_file_is_listed_and_refuses_to_open(workspaces: Workspaces, tmp_path: Path) -> None:
    known = workspaces.create("A", tmp_path)
    (known.folder / "workspace.toml").write_text("name = 3")
    (listed,) = workspaces.list()
    assert "line 1: name = 3" in listed.mistake
    with pytest.raises(ConfigMistake):
        await workspaces.open(known.id)
    (known.folder / "workspace.toml").write_text('name = "A"')
    await (await workspaces.open("A")).aclose()


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
def test_a_settings_file_that_is_no_file_is_listed_with_what_is_wrong(workspaces: Workspaces, tmp_path: Path) -> None:
    for name, make in (("Pipe", os.mkfifo), ("Zeros", lambda path: path.symlink_to("/dev/zero"))):
        folder = workspaces.create(name, tmp_path).folder
        (folder / "journal.sqlite3").touch()
        (folder / "workspace.toml").unlink()
        make(folder / "workspace.toml")
    assert ["not a regular file" in known.mistake for known in workspaces.list()] == [True, True]
