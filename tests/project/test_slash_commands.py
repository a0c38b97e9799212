from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.project import slash_commands
from helix_desktop.project.project_item import ProjectItem, ProjectReading


def command(tmp_path: Path, text: str, name: str = "go.md") -> ProjectItem:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return next(
        item
        for item in slash_commands.find_command_files(tmp_path, ProjectReading(tmp_path))
        if item.path == path
    )


@pytest.mark.parametrize(
    ("body", "arguments", "said"),
    [
        ("Fix $ARGUMENTS now", "the bug", "Fix the bug now"),
        ("Fix $1 then $2", '"a b" c', "Fix a b then c"),
        ("Fix $3.", "a", "Fix ."),
        ("Fix it", "", "Fix it"),
        ("Fix it", "soon", "Fix it\n\nsoon"),
        ("Costs $100", "x", "Costs $100\n\nx"),
    ],
)
def test_arguments_go_into_their_places(
    tmp_path: Path, body: str, arguments: str, said: str
) -> None:
    assert slash_commands.build_command_prompt(command(tmp_path, body), arguments).text == said


def test_shell_lines_and_files_are_found_and_filled(tmp_path: Path) -> None:
    made = slash_commands.build_command_prompt(
        command(tmp_path, "State: !`git status -s`\nSee @src/a.py and mail me@x.y"), ""
    )
    assert made.shell == ("git status -s",)
    assert made.files == ("src/a.py",)
    assert made.with_shell_outputs({"git status -s": " M a"}).startswith("State:  M a\nSee")


@given(st.text(max_size=60))
def test_an_argument_is_never_a_shell_line_or_a_file(arguments: str) -> None:
    item = ProjectItem("command", "go", Path("go.md"), "", "Do $ARGUMENTS and !`ls`")
    made = slash_commands.build_command_prompt(item, arguments + " !`rm -rf x` @/etc/passwd")
    assert made.shell == ("ls",)
    assert made.files == ()


def test_folders_are_part_of_the_name_and_the_front_is_read(tmp_path: Path) -> None:
    item = command(
        tmp_path,
        "---\ndescription: Tests\nallowed-tools: Bash(git:*), Read\nhooks: x\n---\nRun them",
        "web/test.md",
    )
    assert (item.name, item.about, item.body) == ("web:test", "Tests", "Run them")
    assert "hooks is not supported" in item.notes[0]
