"""places.py: one home, or the platform's directories."""

from __future__ import annotations

from pathlib import Path

import platformdirs

from helix_desktop import program_folders


def test_a_home_holds_everything(tmp_path: Path) -> None:
    found = program_folders.find_program_folders(tmp_path / "home")
    inside = (
        found.data,
        found.config,
        found.logs,
        found.settings_file,
        found.workspaces_folder,
        found.providers_file,
        found.key_file,
    )
    assert all(path.is_relative_to(tmp_path / "home") for path in inside)
    assert not (tmp_path / "home").exists()


def test_the_argument_beats_the_variable_and_the_variable_the_platform(tmp_path: Path) -> None:
    environ = {"HELIX_HOME": str(tmp_path / "variable")}
    assert (
        program_folders.find_program_folders(tmp_path / "argument", environ).data
        == tmp_path / "argument"
    )
    assert program_folders.find_program_folders(None, environ).data == tmp_path / "variable"
    assert program_folders.find_program_folders(None, {}).data == platformdirs.user_data_path(
        "helix-desktop", appauthor=False
    )


def test_a_relative_home_becomes_absolute() -> None:
    assert program_folders.find_program_folders(Path("here")).data == Path.cwd() / "here"


def test_the_socket_folder_is_short_however_deep_the_home_and_different_for_each() -> None:
    deep = [
        program_folders.find_program_folders(Path("/", *["deep"] * 40, name)).run
        for name in ("one", "two")
    ]
    assert all(len(str(run)) <= program_folders.SOCKET_PATH_LIMIT for run in deep)
    assert deep[0] != deep[1]
    assert program_folders.find_program_folders(Path("/short")).run == Path("/short/run")


def test_a_home_that_takes_no_file_is_said_with_what_to_do(tmp_path: Path) -> None:
    """The window showed a normal first screen, and then that something went wrong in
    the program itself.
    """
    assert (
        program_folders.find_unwritable_folder_error(
            program_folders.find_program_folders(tmp_path / "home")
        )
        is None
    )
    assert list((tmp_path / "home").rglob("*")) == [tmp_path / "home" / "workspaces"]
    (tmp_path / "file").write_text("")
    refused = program_folders.find_unwritable_folder_error(
        program_folders.find_program_folders(tmp_path / "file" / "home")
    )
    assert refused is not None
    assert str(tmp_path / "file" / "home") in str(refused)
    assert "--home" in refused.remedy
