from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

import pytest

from helix_desktop import cli, program_folders
from helix_desktop.commands import build_command_line_parser, workspace_access
from tests.commands.conftest import NOT_CONFIRMED, Helix


def test_a_folder_of_the_programs_own_is_refused_before_every_tool_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HELIX_HOME", str(tmp_path / "home"))
    (tmp_path / "home/work").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    new = ["workspace", "new", "Thesis", "--folder"]
    assert cli.main([*new, str(tmp_path / "work/../home/work")]) == 1
    assert "belongs to Helix Desktop, so tools cannot use it" in capsys.readouterr().err
    assert cli.main([*new, str(tmp_path / "work")]) == 0


def test_a_workspace_is_found_by_its_folder_however_that_was_named(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "other")
    monkeypatch.chdir(tmp_path / "x" / "y")
    assert helix("workspace", "new", "Up", "--folder", "..")[0] == 0
    made = helix("workspace", "new", "Link", "--folder", tmp_path / "link")[1].strip()
    monkeypatch.chdir(tmp_path / "x")
    assert helix("conversation", "list")[0] == 0
    roots = {
        one["name"]: one["roots"] for one in json.loads(helix("workspace", "list", "--json")[1])
    }
    assert roots == {"Up": [str(tmp_path / "x")], "Link": [str(tmp_path / "other")]}
    settings = program_folders.find_program_folders().workspaces_folder / made / "workspace.toml"
    settings.write_text(
        settings.read_text().replace(str(tmp_path / "other"), f"{tmp_path}/x/../other")
    )
    monkeypatch.chdir(tmp_path / "other")
    assert helix("conversation", "list")[0] == 0  # as earlier versions stored it


def test_a_second_workspace_of_a_name_is_said_with_its_id(tmp_path: Path, helix: Helix) -> None:
    first = helix("workspace", "new", "Thesis", "--folder", tmp_path)
    assert first[2] == ""
    _, second, err = helix("workspace", "new", "Thesis", "--folder", tmp_path)
    assert err == f"2 workspaces are called Thesis. Use the ID {second.strip()}.\n"
    err = helix("conversation", "list", "-w", "Theses")[2]
    assert f"Available: {', '.join(sorted([first[1].strip(), second.strip()]))}." in err
    assert helix("workspace", "rename", second.strip(), "Other")[2] == ""
    assert "2 workspaces" in helix("workspace", "rename", second.strip(), "Thesis")[2]


def test_an_export_says_where_it_is_or_goes_to_standard_output(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["workspace", "new", "Work", "--folder", "."]) == 0
    capfdbinary.readouterr()
    assert cli.main(["workspace", "export", "Work", "work.helix"]) == 0
    size = (tmp_path / "work.helix").stat().st_size
    assert (
        capfdbinary.readouterr().out.decode()
        == f"Work was written to work.helix ({size:,} bytes).\n"
    )
    for more in ([], ["--json"]):
        assert cli.main(["workspace", "export", "Work", "-", *more]) == 0
        (tmp_path / "piped.helix").write_bytes(capfdbinary.readouterr().out)
        assert cli.main(["workspace", "import", "piped.helix", "--name", f"Again {len(more)}"]) == 0
        capfdbinary.readouterr()
    assert not (tmp_path / "-").exists()


def test_what_an_imported_file_asks_for_is_shown_and_a_folder_can_be_given(
    tmp_path: Path, helix: Helix
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    made = helix("workspace", "new", "Work", "--folder", tmp_path / "one")[1].strip()
    assert helix("workspace", "export", made, tmp_path / "work.helix")[0] == 0
    code, _, err = helix(
        "workspace",
        "import",
        tmp_path / "work.helix",
        "--name",
        "Again",
        "--folder",
        tmp_path / "no",
    )
    assert (code, err.startswith(f"{tmp_path}/no is not a folder.")) == (1, True)
    code, _, err = helix(
        "workspace",
        "import",
        tmp_path / "work.helix",
        "--name",
        "Again",
        "--folder",
        tmp_path / "two",
    )
    assert code == 0
    assert "To agree, open the workspace in the window:" in err
    assert f'roots = ["{tmp_path}/one"]' in err
    roots = {
        one["name"]: one["roots"] for one in json.loads(helix("workspace", "list", "--json")[1])
    }
    assert roots == {"Work": [f"{tmp_path}/one"], "Again": [f"{tmp_path}/two"]}


def test_a_folder_with_a_line_end_takes_one_line_and_a_colour_is_one(
    tmp_path: Path, helix: Helix
) -> None:
    (tmp_path / "a\nb").mkdir()
    made = helix("workspace", "new", "Work", "--folder", tmp_path / "a\nb")[1].strip()
    assert helix("workspace", "list")[1].count("\n") == 1
    code, _, err = helix("workspace", "colour", made, "notacolour")
    assert (code, "notacolour is not a color such as #7aa2f7" in err) == (2, True)
    assert "helix-desktop workspace colour --help" in err
    assert helix("workspace", "colour", made, "#7aa2f7")[0] == 0


def test_what_a_verb_does_not_know_leads_to_its_own_help(helix: Helix) -> None:
    code, _, err = helix("workspace", "list", "--trashed")
    assert (code, err) == (
        2,
        "Unrecognized arguments: --trashed. See helix-desktop workspace list --help.\n",
    )


def test_an_unknown_command_is_told_with_the_one_that_may_be_meant(helix: Helix) -> None:
    deleting = helix("workspace", "delete", "Work")
    assert deleting[0] == 2
    assert "There is no command 'delete'. Did you mean 'trash'?" in deleting[2]
    assert deleting[2].endswith(" See helix-desktop workspace --help.\n")

    listing = helix("cache", "lst")[2]
    assert listing == (
        "There is no command 'lst'. Did you mean 'list'? The commands are put, get, list, search,"
        " verify, stats, collect. See helix-desktop cache --help.\n"
    )
    assert "There is no command 'xyzzy'. The commands are" in helix("cache", "xyzzy")[2]
    assert "There is no command 'workspce'. Did you mean 'workspace'?" in helix("workspce")[2]
    missing = helix("cache")[2]
    assert (
        missing
        == "A command is missing after helix-desktop cache. See helix-desktop cache --help.\n"
    )


def test_an_empty_list_says_so(tmp_path: Path, helix: Helix) -> None:
    helix("workspace", "new", "Work", "--folder", tmp_path)
    assert helix("cache", "list", "-w", "Work") == (0, "", "There are no stored outputs.\n")
    assert helix("conversation", "list", "-w", "Work") == (0, "", "There are no conversations.\n")
    copies = helix("copy", "list", "-w", "Work")
    assert copies == (0, "", "There are no copies of the repository.\n")
    assert helix("copy", "list", "-w", "Work", "--json") == (0, "[]\n", "")


def test_an_export_replaces_a_file_only_if_told(tmp_path: Path, helix: Helix) -> None:
    helix("workspace", "new", "Thesis", "--folder", tmp_path)
    (tmp_path / "mine.helix").write_text("mine")
    code, out, err = helix("workspace", "export", "Thesis", tmp_path / "mine.helix")
    assert (code, out, err) == (1, "", f"{tmp_path}/mine.helix already exists.\n{NOT_CONFIRMED}")
    assert (tmp_path / "mine.helix").read_text() == "mine"
    assert helix("workspace", "export", "Thesis", tmp_path / "mine.helix", "--yes")[0] == 0
    assert (tmp_path / "mine.helix").read_bytes() != b"mine"
    assert helix("workspace", "export", "Thesis", "/dev/null")[0] == 0


def test_a_confirmation_is_an_option_even_behind_words_that_look_like_options() -> None:
    seen: list[list[str]] = []

    def run(arguments: argparse.Namespace) -> int:
        seen.append(arguments.argv)
        return 0 if arguments.yes else workspace_access.ASKING

    asked = argparse.Namespace(argv=["changes", "restore", "--", "-file"], yes=False, json=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.StringIO())
        patch.setattr("sys.stdin.isatty", lambda: True)
        patch.setattr("builtins.input", lambda _: "y")
        assert workspace_access.run_and_confirm(asked, run) == 0
    assert seen[-1] == ["changes", "restore", "--yes", "--", "-file"]
    read = build_command_line_parser(seen[-1]).parse_args(seen[-1])
    assert (read.yes, read.paths) == (True, ["-file"])


def test_the_details_of_a_workspace_are_printed_for_people_and_for_scripts(
    tmp_path: Path, helix: Helix
) -> None:
    identity = helix("workspace", "new", "Thesis", "--folder", tmp_path)[1].strip()
    code, printed, _ = helix("workspace", "show", "Thesis", "--json")
    assert code == 0
    details = json.loads(printed)
    assert (details["id"], details["name"]) == (identity, "Thesis")
    code, printed, _ = helix("workspace", "show", "Thesis")
    assert code == 0
    assert str(tmp_path) in printed
