"""Which workspace an editor gets, and that it gets every byte."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.commands import acp_command, workspace_access
from helix_desktop.concurrency import OwnedTasks
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


class Ended(Exception):
    """Stands for the end of the process."""


async def test_an_editor_is_answered_until_its_input_ends_and_then_the_process_ends(
    places: ProgramFolders,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": 1, "clientCapabilities": {}},
    }
    from_editor, to_agent = os.pipe()
    os.write(to_agent, json.dumps(message).encode() + b"\n")
    said: list[str] = []

    async def end_input_once_answered() -> bytes:
        printed = b""
        async with asyncio.timeout(60):
            while not printed.endswith(b"\n"):
                await asyncio.sleep(0.01)
                printed += capfdbinary.readouterr().out
        os.close(to_agent)
        return printed

    def end(code: int) -> None:
        said.append(f"ended with {code}")
        raise Ended

    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    monkeypatch.setattr(logging, "shutdown", lambda: said.append("logged"))
    monkeypatch.setattr(os, "_exit", end)
    monkeypatch.chdir(tmp_path)
    arguments = Namespace(places=places, workspace="")
    with os.fdopen(from_editor) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        answering = OwnedTasks("test").spawn_task(end_input_once_answered(), name="answer")
        with pytest.raises(Ended):
            await acp_command.run_acp_command(arguments)
    assert said == ["logged", "ended with 0"]
    answer = json.loads(await answering)
    assert answer["id"] == 1
    assert answer["result"]["protocolVersion"] == 1


def test_the_command_names_a_workspace_or_leaves_it_to_the_editors_folder() -> None:
    parser = argparse.ArgumentParser()
    acp_command.add_acp_commands(parser.add_subparsers())
    usual = parser.parse_args(["acp"])
    assert (usual.workspace, usual.lasting) == ("", True)
    assert usual.run is acp_command.run_acp_command
    assert usual.work is acp_command.serve_editor_in_workspace
    assert parser.parse_args(["acp", "-w", "Thesis"]).workspace == "Thesis"
