"""Which workspace an editor gets, and that it gets every byte."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import acp_command, workspace_access
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.program_folders import ProgramFolders


@pytest.fixture
def places(tmp_path: Path) -> ProgramFolders:
    return program_folders.find_program_folders(tmp_path / "home")


def find(places: ProgramFolders, folder: Path, workspace: str = "") -> str:
    arguments = Namespace(places=places, workspace=workspace)
    return acp_command._find_editor_workspace(arguments, folder)


def test_a_project_gets_a_workspace_once_and_is_found_by_its_folder_afterwards(
    places: ProgramFolders, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    made = find(places, project)
    assert find(places, project) == made
    (tmp_path / "link").symlink_to(project)
    assert find(places, tmp_path / "link") == made
    (known,) = workspace_access.open_all_workspaces(places).list_workspaces()
    assert known.id == made
    assert known.name == "project"


def test_a_workspace_that_is_named_is_taken_whatever_folder_is_open(
    places: ProgramFolders, tmp_path: Path
) -> None:
    workspaces = workspace_access.open_all_workspaces(places)
    named = workspaces.create_stored_workspace("Thesis", tmp_path)
    assert find(places, tmp_path / "elsewhere", "Thesis") == named.id
    with pytest.raises(NotFound):
        find(places, tmp_path, "Nobody's")


def test_what_is_no_project_gets_none(
    places: ProgramFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "a.txt"
    file.write_text("text")
    for folder in (tmp_path / "nowhere", file, Path("/"), tmp_path):
        with pytest.raises(InvalidInput, match="is not a project folder") as refused:
            find(places, folder)
        assert "open a project's folder" in str(refused.value.remedy)
    assert list(workspace_access.open_all_workspaces(places).list_workspaces()) == []


def test_all_bytes_are_written_however_few_the_pipe_takes_at_once(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    write = os.write

    def write_little(file: int, data: bytes) -> int:
        return write(file, bytes(data)[:3])

    monkeypatch.setattr(os, "write", write_little)
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    acp_command._write_to_editor(b"ten bytes.")
    monkeypatch.undo()
    assert capfdbinary.readouterr().out == b"ten bytes."
