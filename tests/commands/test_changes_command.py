"""`changes_command` from the command line: list, show as a patch, restore."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import workspace_access
from helix_desktop.engine.facts import ConversationStarted, Text, UserSaid
from helix_desktop.errors import StoreFull
from helix_desktop.store import read_only_copy
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.tools.changes.checkpoints import Checkpoints
from tests.commands.conftest import Helix


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in which one turn changed, made and deleted a file."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("one\ntwo\n")
    (folder / "gone").write_text("gone\n")
    (folder / "old name").write_text("the same\n")
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    known = workspaces.create_stored_workspace("Work", folder)

    async def turn() -> None:
        opened = await workspaces.open_stored_workspace(known.id)
        checkpoints = Checkpoints([folder], opened.cache)
        window = await checkpoints.begin_step("1", "c1", "command")
        assert window is not None
        (folder / "a.txt").write_text("one\nTWO\n")
        (folder / "new").mkdir()
        (folder / "new" / "b").write_text("b\n")
        (folder / "gone").unlink()
        (folder / "old name").rename(folder / "name")
        fact = await checkpoints.end_step(window)
        assert fact is not None
        await opened.journal.append_to_journal("c1", [UserSaid((Text("Change it", 3),)), fact])
        await checkpoints.aclose()
        await opened.aclose()

    asyncio.run(turn())
    return folder


def test_list_says_which_turn_changed_what(helix: Helix, project: Path) -> None:
    code, out, _ = helix("changes", "list", "-w", "Work", "--json")
    said = json.loads(out)
    assert code == 0
    assert [(turn["turn"], turn["message"]) for turn in said["turns"]] == [(1, "Change it")]
    files = {
        file["path"]: (file["change"], file["added"], file["removed"])
        for file in said["turns"][0]["files"]
    }
    renamed = {"name": ("added", 0, 0), "old name": ("deleted", 0, 0)}
    assert files == {
        "a.txt": ("changed", 1, 1),
        "gone": ("deleted", 0, 1),
        "new/b": ("added", 1, 0),
        **renamed,
    }
    lines = helix("changes", "list", "-w", "Work")[1].splitlines()
    assert [line.split(None, 3)[3] for line in lines if "name" in line] == [
        "name (was old name)",
        "old name (now name)",
    ]


def test_list_and_show_work_on_a_full_disk(
    helix: Helix, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = helix("changes", "list", "-w", "Work")[1]
    shown = helix("changes", "show", "-w", "Work")[1]

    async def full(self: AllWorkspaces, name_or_id: str) -> StoredWorkspace:
        raise StoreFull("The cache cannot be opened: the disk is full.")

    monkeypatch.setattr(AllWorkspaces, "open_stored_workspace", full)
    monkeypatch.setattr(read_only_copy, "is_disk_unwritable", lambda _folder: True)
    code, printed, warned = helix("changes", "list", "-w", "Work")
    assert (code, printed) == (0, listed)
    assert "The data was read from a copy" in warned
    assert helix("changes", "show", "-w", "Work")[:2] == (0, shown)
    code, printed, _ = helix("changes", "list", "-w", "Work", "--json")
    assert code == 0
    assert len(json.loads(printed)["turns"][0]["files"]) == 5


def test_list_says_that_a_turn_was_undone(helix: Helix, project: Path) -> None:
    assert helix("changes", "restore", "-w", "Work", "-c", "c1", "--turn", "last", "--yes")[0] == 0
    assert helix("changes", "list", "-w", "Work", "-c", "c1")[1] == "Turn 1: Change it (undone)\n"


def test_show_is_a_patch_that_git_takes_back(helix: Helix, project: Path) -> None:
    code, out, _ = helix("changes", "show", "-w", "Work", "--turn", "last")
    assert code == 0
    subprocess.run(["git", "apply", "-R", "-"], cwd=project, input=out.encode(), check=True)
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    assert (project / "gone").read_text() == "gone\n"
    assert not (project / "new" / "b").exists()


def test_restore_asks_for_yes_and_leaves_what_was_changed_since(
    helix: Helix, project: Path
) -> None:
    (project / "a.txt").write_text("mine\n")
    code, out, err = helix("changes", "restore", "-w", "Work")
    assert code != 0
    assert "gone would be restored" in out
    assert "--yes" in err
    assert not (project / "gone").exists()
    code, out, err = helix("changes", "restore", "-w", "Work", "--yes")
    assert (code, "a.txt was not changed" in err) == (1, True)
    assert (project / "a.txt").read_text() == "mine\n"
    assert (project / "gone").read_text() == "gone\n"
    assert not (project / "new").exists()


def test_restore_asks_on_a_terminal(
    helix: Helix, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _: "n")
    assert helix("changes", "restore", "-w", "Work", "gone") == (
        1,
        "gone would be restored\n",
        "Nothing was changed.\n",
    )
    monkeypatch.setattr("builtins.input", lambda _: "y")
    code, out, _ = helix("changes", "restore", "-w", "Work", "gone")
    assert code == 0
    assert out.splitlines() == ["gone would be restored", "1 file or folder was restored."]
    assert (project / "gone").read_text() == "gone\n"


def test_nothing_to_do_is_said_for_what_it_is(helix: Helix, project: Path) -> None:
    for verb in ("show", "restore"):
        code, out, err = helix("changes", verb, "-w", "Work", "a.text", "--turn", "last")
        assert (code, out) == (1, "")
        assert "No change of a.text can be shown or undone here." in err
        code, _, err = helix("changes", verb, "-w", "Work", "--turn", "abc")
        assert (code, "There is no turn abc. Enter the number of a turn, or `last`." in err) == (
            2,
            True,
        )
    asyncio.run(talk_without_changes())
    code, out, err = helix("changes", "restore", "-w", "Work")
    assert (code, out, err) == (0, "There is nothing to restore.\n", "")
    assert helix("changes", "show", "-w", "Work") == (0, "", "")
    assert (
        helix("changes", "list", "-w", "Work")[1]
        == "No changes to files were recorded in Only ⟨001B⟩[2Jwords.\n"
    )


async def talk_without_changes() -> None:
    workspaces = workspace_access.open_all_workspaces(program_folders.find_program_folders())
    opened = await workspaces.open_stored_workspace("Work")
    await opened.journal.append_to_journal(
        "c2", [ConversationStarted("Only \x1b[2Jwords"), UserSaid((Text("Hello", 1),))]
    )
    await opened.aclose()


def test_restore_of_one_path_alone(helix: Helix, project: Path) -> None:
    assert helix("changes", "restore", "-w", "Work", "--yes", "a.txt")[0] == 0
    assert (project / "a.txt").read_text() == "one\ntwo\n"
    assert not (project / "gone").exists()
