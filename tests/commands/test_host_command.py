"""Which workspace `host` serves: the named one, or that of a folder, which is created only where a
project can be.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from helix_desktop.commands import host_command
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.program_folders import ProgramFolders, find_program_folders
from tests.commands.conftest import Helix


@pytest.fixture
def places(tmp_path: Path) -> ProgramFolders:
    return find_program_folders(tmp_path / "helix")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def workspace_of(
    places: ProgramFolders, folder: Path | None = None, workspace: str | None = None
) -> str:
    arguments = Namespace(places=places, folder=folder, workspace=workspace)
    return host_command._find_or_create_workspace(arguments)


def test_a_folder_has_one_workspace_however_it_is_named(
    places: ProgramFolders, project: Path
) -> None:
    created = workspace_of(places, project)
    assert created
    assert workspace_of(places, project / ".." / project.name) == created
    assert workspace_of(places, Path("~") / project.name) == created
    assert workspace_of(places, None, created) == created


def test_where_no_project_can_be_nothing_is_created(places: ProgramFolders, project: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a folder there"):
        workspace_of(places, project / "missing")
    for folder in (project.parent, project.parent.parent):
        with pytest.raises(InvalidInput, match="is the home folder there, or one above it"):
            workspace_of(places, folder)
    with pytest.raises(NotFound):
        workspace_of(places, None, "Work")
    assert not places.workspaces_folder.exists() or not list(places.workspaces_folder.iterdir())


class ConsoleWithInput:
    """A console whose input arrives in these pieces. Keeps what is printed."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.output = b""
        self.lines: list[str] = []

    async def read_input(self) -> bytes:
        if self._pieces:
            return self._pieces.pop(0)
        return b""

    async def write_output(self, data: bytes) -> None:
        self.output += data

    async def print_line(self, text: str) -> None:
        self.lines.append(text)

    async def print_error(self, sentence: str) -> None:
        self.lines.append(sentence)


@pytest.mark.parametrize(
    ("pieces", "line"),
    [
        ((b'{"a":', b" 1}\n"), b'{"a": 1}\n'),
        ((b"cut off",), b"cut off"),
        ((), b""),
    ],
)
async def test_an_offer_of_a_key_is_one_line_or_what_came_of_it(
    pieces: tuple[bytes, ...], line: bytes
) -> None:
    assert await host_command._read_offer_line(ConsoleWithInput(*pieces)) == line


async def test_an_offer_that_is_none_is_said_in_one_line_and_no_key_is_held(
    places: ProgramFolders, project: Path
) -> None:
    arguments = Namespace(places=places, folder=project, workspace=None, hold_key="here")
    console = ConsoleWithInput(b"no offer\n")
    assert await host_command._hold_lent_key(arguments, console) == 0
    (said,) = console.lines
    assert "\n" not in said
    assert console.output == b""


def test_a_workspace_that_does_not_exist_is_said(helix: Helix, tmp_path: Path) -> None:
    code, out, err = helix("--home", tmp_path, "host", "-w", "Work")
    assert (code, out) == (1, "")
    assert "There is no workspace Work." in err
