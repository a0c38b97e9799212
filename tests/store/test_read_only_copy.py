"""A workspace on a disk that takes nothing can be read, and not a byte of it changes."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from helix_desktop import cli
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import StoreBusy, StoreFailed, StoreFull
from helix_desktop.store import read_only_copy
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace


def state(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """What each file has in it, which file it is, and who may read it.

    Not its time: the system may note the time of a write only later, for what was written
    through a mapping.
    """
    found = {}
    for path in folder.rglob("*"):
        if path.is_file() and path.name != "lock":
            status = path.stat()
            found[str(path)] = (path.read_bytes(), status.st_ino, status.st_mode)
    return found


async def filled(workspaces: AllWorkspaces, folder: Path) -> Path:
    known = workspaces.create_stored_workspace("Work", folder)
    opened = await workspaces.open_stored_workspace(known.id)
    for number in range(12):
        await opened.cache.store_content(os.urandom(500_000) + b"%d" % number, EntryOrigin("shell"))
    await opened.journal.append_to_journal("c", [UserSaid((Text("hello"),))])
    await opened.aclose()
    return known.folder


async def test_everything_is_there_and_nothing_changes(tmp_path: Path) -> None:
    folder = await filled(AllWorkspaces(tmp_path / "workspaces"), tmp_path)
    before = state(folder)
    with read_only_copy.copy_for_reading(folder) as copy:
        assert any(path.is_symlink() for path in (copy / "cache").iterdir()), (
            "tables are not copied"
        )
        opened = await StoredWorkspace.open(copy)
        assert (await opened.cache.verify_cache()).checked == 12
        assert [row.begins for row in await opened.journal.list_conversations()] == ["hello"]
        await opened.cache.store_content(b"goes with the copy", EntryOrigin("shell"))
        await opened.aclose()
    assert state(folder) == before
    assert not copy.exists()


async def test_what_fails_while_the_copy_is_read_is_not_blamed_on_the_workspace(
    tmp_path: Path,
) -> None:
    """`cost | head -3` said that the workspace cannot be read: Broken pipe."""
    folder = await filled(AllWorkspaces(tmp_path / "workspaces"), tmp_path)
    with pytest.raises(BrokenPipeError), read_only_copy.copy_for_reading(folder) as copy:
        raise BrokenPipeError
    assert not copy.exists()


def test_a_workspace_that_cannot_be_copied_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_given: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    (tmp_path / "workspace.toml").touch()
    monkeypatch.setattr(shutil, "copyfile", fail)
    with pytest.raises(StoreFailed, match=f"{tmp_path} cannot be read: Input/output error"):
        read_only_copy.copy_for_reading(tmp_path).__enter__()


async def test_an_open_one_is_read_where_it_is_open(tmp_path: Path) -> None:
    workspaces = AllWorkspaces(tmp_path / "workspaces")
    folder = await filled(workspaces, tmp_path)
    opened = await workspaces.open_stored_workspace(folder.name)
    with pytest.raises(StoreBusy), read_only_copy.copy_for_reading(folder):
        pass
    await opened.aclose()


def test_where_there_is_no_room_for_a_copy_it_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_only_copy, "_SPARE_BYTES", 1 << 60)
    (tmp_path / "cache").mkdir()
    with (
        pytest.raises(StoreFailed, match="no other folder"),
        read_only_copy.copy_for_reading(tmp_path),
    ):
        pass


def test_a_disk_with_room_takes_something(tmp_path: Path) -> None:
    assert not read_only_copy.is_disk_unwritable(tmp_path)
    assert read_only_copy.is_disk_unwritable(tmp_path / "missing")


def test_commands_that_read_work_and_those_that_write_say_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["workspace", "new", "Work", "--folder", str(tmp_path)]) == 0
    (tmp_path / "file").write_text("content")
    assert cli.main(["cache", "put", "-w", "Work", str(tmp_path / "file")]) == 0
    digest = capfd.readouterr().out.split()[-1]

    async def full(self: AllWorkspaces, name_or_id: str) -> StoredWorkspace:
        raise StoreFull("The cache cannot be opened: the disk is full.")

    monkeypatch.setattr(AllWorkspaces, "open_stored_workspace", full)
    monkeypatch.setattr(read_only_copy, "is_disk_unwritable", lambda _folder: True)
    for line in (
        ["cache", "get", digest],
        ["cache", "list"],
        ["cache", "stats"],
        ["cache", "verify"],
        ["conversation", "list"],
        ["project", "list"],
    ):
        assert cli.main([*line, "-w", "Work"]) == 0, line
        assert "The data was read from a copy" in capfd.readouterr().err
    assert cli.main(["cache", "put", "-w", "Work", str(tmp_path / "file")]) == 1
    assert "the disk is full" in capfd.readouterr().err
