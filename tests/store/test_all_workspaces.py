from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from helix_desktop.engine.facts import ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import (
    ActionRefused,
    AmbiguousName,
    ConfigFileMistake,
    InvalidInput,
    NotFound,
    StoreBusy,
)
from helix_desktop.store.all_workspaces import COLOURS, AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_lock import WorkspaceLock

of_posix = pytest.mark.skipif(sys.platform == "win32", reason="rights and pipes of POSIX")


def test_a_new_workspace_is_listed_and_found(workspaces: AllWorkspaces, tmp_path: Path) -> None:
    thesis = workspaces.create_stored_workspace("My  Thesis", tmp_path)
    other = workspaces.create_stored_workspace("Other", tmp_path)
    assert [each.name for each in workspaces.list_workspaces()] == ["My Thesis", "Other"]
    assert thesis.id.startswith("my-thesis-")
    assert (
        workspaces.find_known_workspace(thesis.id)
        == workspaces.find_known_workspace("my thesis")
        == thesis
    )
    assert other.settings.colour != thesis.settings.colour
    assert thesis.settings.roots == (str(tmp_path),)
    with pytest.raises(NotFound, match=r"no workspace Novel.*My Thesis, Other"):
        workspaces.find_known_workspace("Novel")
    workspaces.create_stored_workspace("other", tmp_path)
    with pytest.raises(AmbiguousName, match=other.id):
        workspaces.find_known_workspace("OTHER")


def test_nothing_is_listed_where_nothing_is(tmp_path: Path) -> None:
    assert AllWorkspaces(tmp_path / "none").list_workspaces() == ()
    assert AllWorkspaces(tmp_path / "none").list_workspaces(trashed=True) == ()


@pytest.mark.parametrize("name", ["", "  ", "x" * 81])
def test_a_name_has_one_to_eighty_characters(
    workspaces: AllWorkspaces, tmp_path: Path, name: str
) -> None:
    with pytest.raises(InvalidInput):
        workspaces.create_stored_workspace(name, tmp_path)


def test_a_name_of_any_script_has_a_folder(workspaces: AllWorkspaces, tmp_path: Path) -> None:
    assert workspaces.create_stored_workspace("日本語", tmp_path).folder.is_dir()
    with pytest.raises(InvalidInput, match="Only UTF-8"):
        workspaces.create_stored_workspace("a\udcff", tmp_path)
    assert len(list(workspaces.folder.iterdir())) == 1


async def test_one_whose_settings_are_gone_is_listed_and_says_so(
    workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    known = workspaces.create_stored_workspace("A", tmp_path)
    await (await workspaces.open_stored_workspace(known.id)).aclose()
    (known.folder / "workspace.toml").unlink()
    (found,) = workspaces.list_workspaces()
    assert found.id == known.id
    assert "workspace.toml is missing" in found.mistake
    with pytest.raises(NotFound, match="toml is missing"):
        await workspaces.open_stored_workspace(known.id)
    with pytest.raises(NotFound):
        workspaces.create_stored_workspace("x", tmp_path / "missing")


def test_name_and_colour_change_in_the_file(workspaces: AllWorkspaces, tmp_path: Path) -> None:
    known = workspaces.create_stored_workspace("A", tmp_path)
    assert workspaces.rename_workspace("A", "B").name == "B"
    assert workspaces.recolour_workspace("B", "#000000").settings.colour == "#000000"
    assert workspaces.find_known_workspace(known.id).name == "B"


def test_the_trash_takes_and_gives_back_whole(workspaces: AllWorkspaces, tmp_path: Path) -> None:
    known = workspaces.create_stored_workspace("A", tmp_path)
    trashed = workspaces.trash_workspace("A")
    assert trashed.trashed
    assert (
        workspaces.list_workspaces(),
        [each.id for each in workspaces.list_workspaces(trashed=True)],
    ) == (
        (),
        [known.id],
    )
    assert workspaces.restore_workspace("A").folder == known.folder
    workspaces.trash_workspace("A")
    workspaces.delete_workspace("A")
    assert workspaces.list_workspaces(trashed=True) == ()
    with pytest.raises(NotFound, match="in the trash"):
        workspaces.restore_workspace("A")


async def test_an_open_one_has_one_owner(
    workspaces: AllWorkspaces, workspace: StoredWorkspace
) -> None:
    with pytest.raises(StoreBusy, match="already open in this program"):
        await workspaces.open_stored_workspace(workspace.id)
    elsewhere = AllWorkspaces(workspaces.folder)
    with pytest.raises(StoreBusy, match="open in another program"):
        await elsewhere.open_stored_workspace(workspace.id)
    with pytest.raises(StoreBusy):
        workspaces.trash_workspace(workspace.id)
    assert await workspace.cache.store_content(b"still here", EntryOrigin())
    assert list(workspaces.workspaces_open_here()) == [workspace.id]


async def test_several_are_open_at_once_and_nothing_crosses(
    workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    one, two = [
        await workspaces.open_stored_workspace(
            workspaces.create_stored_workspace(name, tmp_path).id
        )
        for name in ("One", "Two")
    ]
    stored = await one.cache.store_content(b"only here", EntryOrigin("shell"))
    await one.journal.append_to_journal("c", [ToolReturned("1", stored, 1)])
    with pytest.raises(NotFound):
        await two.cache.read_content(stored.digest)
    assert await two.journal.list_conversations() == ()
    await asyncio.gather(one.aclose(), two.aclose())


async def test_a_mistake_in_the_file_is_listed_and_refuses_to_open(
    workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    known = workspaces.create_stored_workspace("A", tmp_path)
    (known.folder / "workspace.toml").write_text("name = 3")
    (listed,) = workspaces.list_workspaces()
    assert "line 1: name = 3" in listed.mistake
    with pytest.raises(ConfigFileMistake):
        await workspaces.open_stored_workspace(known.id)
    (known.folder / "workspace.toml").write_text('name = "A"')
    await (await workspaces.open_stored_workspace("A")).aclose()


async def test_what_a_killed_import_left_is_removed_and_what_goes_on_is_not(
    workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    known = workspaces.create_stored_workspace("Work", tmp_path)
    dead, alive = (workspaces.folder / f".importing-{name}" for name in ("dead-1", "alive-2"))
    for folder in (dead, alive):
        (folder / "cache").mkdir(parents=True)
        (folder / "cache" / "1.log").write_text("a secret")
    held = WorkspaceLock(alive / "lock")
    told = workspaces.remove_interrupted_imports_and_writes()
    held.release_lock()
    assert told == ("An import was interrupted. What it left in .importing-dead-1 was removed.",)
    assert (dead.exists(), alive.exists(), known.folder.exists()) == (False, True, True)


@of_posix
def test_a_settings_file_that_is_no_file_is_listed_with_what_is_wrong(
    workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    for name, make in (("Pipe", os.mkfifo), ("Zeros", lambda path: path.symlink_to("/dev/zero"))):
        folder = workspaces.create_stored_workspace(name, tmp_path).folder
        (folder / "journal.sqlite3").touch()
        (folder / "workspace.toml").unlink()
        make(folder / "workspace.toml")
    assert ["not a regular file" in known.mistake for known in workspaces.list_workspaces()] == [
        True,
        True,
    ]


def test_an_id_is_found_before_a_name_and_who_is_there_is_said_as_it_can_be_named(
    workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    with pytest.raises(NotFound) as nothing:
        workspaces.find_known_workspace("Any")
    assert "workspace new NAME" in str(nothing.value.remedy)
    first = workspaces.create_stored_workspace("Same", tmp_path)
    second = workspaces.create_stored_workspace("Same", tmp_path)
    named_like_an_id = workspaces.create_stored_workspace(first.id, tmp_path)
    assert workspaces.find_known_workspace(first.id) == first
    with pytest.raises(NotFound) as unknown:
        workspaces.find_known_workspace("Any")
    ids = sorted((first.id, second.id))
    assert unknown.value.remedy == f"Available: {ids[0]}, {ids[1]}, {named_like_an_id.name}."
    with pytest.raises(NotFound, match="no workspace Any in the trash") as in_trash:
        workspaces.find_known_workspace("Any", trashed=True)
    assert in_trash.value.remedy == "Available: none."
    with pytest.raises(NotFound):
        workspaces.find_known_workspace(f"../workspaces/{first.id}")


def test_tools_may_work_anywhere_but_in_the_programs_own_data(
    workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    data = workspaces.folder.parent
    for folder in (data / "workspaces" / "one", data, data / "tour" / "inside"):
        folder.mkdir(parents=True, exist_ok=True)
        with pytest.raises(ActionRefused, match="belongs to Helix Desktop"):
            workspaces.check_usable_by_tools(folder)
    link = tmp_path / "link"
    link.symlink_to(data)
    with pytest.raises(ActionRefused):
        workspaces.check_usable_by_tools(link)
    workspaces.check_usable_by_tools(data / "tour")
    workspaces.check_usable_by_tools(data.parent / "elsewhere")


def test_workspaces_take_turns_with_the_colours(workspaces: AllWorkspaces, tmp_path: Path) -> None:
    count = len(COLOURS)
    made = [workspaces.create_stored_workspace(f"{n:02}", tmp_path) for n in range(count + 1)]
    colours = [one.settings.colour for one in made]
    assert colours[:count] == list(COLOURS)
    assert colours[count] == COLOURS[0]


async def test_an_open_workspace_knows_its_new_name_at_once(
    workspaces: AllWorkspaces, tmp_path: Path
) -> None:
    known = workspaces.create_stored_workspace("Old", tmp_path)
    opened = await workspaces.open_stored_workspace(known.id)
    assert workspaces.workspaces_open_here() == {known.id: opened}
    assert workspaces.rename_workspace("Old", " New  name ").name == "New name"
    assert opened.settings.name == "New name"
    more = tmp_path / "more"
    more.mkdir()
    assert workspaces.change_roots(known.id, (str(more),)).settings.roots == (str(more),)
    with pytest.raises(StoreBusy):
        workspaces.trash_workspace(known.id)
    await opened.aclose()
    assert workspaces.workspaces_open_here() == {}


def test_what_is_deleted_must_be_in_the_trash(workspaces: AllWorkspaces, tmp_path: Path) -> None:
    known = workspaces.create_stored_workspace("Old", tmp_path)
    with pytest.raises(NotFound):
        workspaces.delete_workspace(known.id)
    trashed = workspaces.trash_workspace(known.id)
    assert trashed.trashed
    assert workspaces.list_workspaces() == ()
    assert [one.id for one in workspaces.list_workspaces(trashed=True)] == [known.id]
    workspaces.delete_workspace(known.id)
    assert not trashed.folder.exists()
    assert workspaces.list_workspaces(trashed=True) == ()


def test_a_workspace_is_not_moved_onto_another(workspaces: AllWorkspaces, tmp_path: Path) -> None:
    known = workspaces.create_stored_workspace("Old", tmp_path)
    (workspaces.folder / ".trash" / known.id).mkdir(parents=True)
    with pytest.raises(InvalidInput, match="already exists"):
        workspaces.trash_workspace(known.id)
    assert workspaces.find_known_workspace("Old") == known
