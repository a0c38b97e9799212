from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.project import project_files as brought
from helix_desktop.project.hook_dependencies import (
    find_files_named_in_command,
    read_files_named_in_command,
    runs_only_scripts_of_user,
)
from helix_desktop.project.project_item import ProjectReading


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "home/.claude/hooks").mkdir(parents=True)
    (tmp_path / "home/.claude/hooks/fmt.sh").write_text("echo mine\n")
    (tmp_path / "root/tools").mkdir(parents=True)
    return tmp_path / "root"


@pytest.mark.parametrize(
    "word", ["x" * 300, "x/" * 3000, "~nobody-of-that-name/x", "a\0b", "/proc/1/root/etc/x"]
)
def test_a_word_that_can_be_no_path_is_passed_over(root: Path, word: str) -> None:
    (root / "lint").write_text("true\n")
    if "\0" not in word:
        assert [
            path.name
            for path in find_files_named_in_command(
                f"sh -c '{word}' ./lint", root, ProjectReading(root)
            )
        ] == ["lint"]
    assert find_files_named_in_command(f"echo {word}", root, ProjectReading(root)) == []


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("./lint", "lint"),
        ("bash lint", "lint"),
        ("'my hooks/lint it'", "my hooks/lint it"),
        ('"$CLAUDE_PROJECT_DIR"/tools/check', "tools/check"),
        ("bash ${CLAUDE_PROJECT_DIR}/big.sh", "big.sh"),
        ("python -m tools.fmt", "tools/fmt.py"),
        ("python3 -m tools", "tools/__main__.py"),
        ("make -s lint", "Makefile"),
        ("npm run lint", "package.json"),
        ("cd tools && ./run", "tools/run"),
        ("sh -c './lint --fix'", "lint"),
        ("env CONFIG=conf.toml true", "conf.toml"),
        ("true;./lint", "lint"),
        ("./blob", "blob"),
    ],
)
def test_trust_covers_the_file_a_command_names(root: Path, command: str, file: str) -> None:
    path = root / file
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_bytes({"big.sh": b"# long\n" * 60_000, "blob": b"\xff\xfe\0"}.get(file, b"one\n"))
    before = read_files_named_in_command(command, root, ProjectReading(root))
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert read_files_named_in_command(command, root, ProjectReading(root)) != before
    assert len(before) < 300 * 1024


@pytest.mark.skipif(
    not Path("/dev/shm").is_dir(), reason="the system keeps no files in memory there"
)
def test_trust_covers_a_file_that_is_kept_in_memory(root: Path) -> None:
    with tempfile.NamedTemporaryFile("w", dir="/dev/shm", suffix=".sh") as script:
        assert [
            path.name
            for path in find_files_named_in_command(
                f"sh {script.name} < /dev/null", root, ProjectReading(root)
            )
        ] == [Path(script.name).name]


def test_a_hook_that_names_more_than_trust_can_cover_does_not_run(root: Path) -> None:
    """Each of these ran a file that had been edited after it was trusted, or took
    minutes to look at.
    """
    (root / "many").mkdir()
    for number in range(60):
        (root / f"many/{number:02}").write_text("true\n")
    with (root / "large").open("wb") as file:
        file.write(b"#!/bin/sh\n")
        file.truncate(65 << 20)
    folders = " ".join("many" + "/." * number for number in range(200))
    for command in ("cd many; " + " ".join(sorted(path.name for path in (root / "many").iterdir())), "./large", f"{folders} {' '.join(map(str, range(200)))}"):  # fmt: skip
        with pytest.raises(InvalidInput, match="too large to be checked"):
            read_files_named_in_command(command, root, ProjectReading(root))
        (root / ".claude").mkdir(exist_ok=True)
        hook = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}}
        (root / ".claude/settings.json").write_text(json.dumps(hook))
        (item,) = brought.read_project_files([str(root)], {}).items
        assert item.broken
        assert not item.body


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /proc elsewhere")
def test_a_link_to_a_file_of_the_kernel_is_not_read(root: Path) -> None:
    """Reading some of them waits for ever."""
    skill = root / ".claude/skills/x"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: x\ndescription: d\n---\n")
    for link in (root / "log", skill / "log"):
        link.symlink_to("/proc/version")
    assert not find_files_named_in_command("cat log /proc/version", root, ProjectReading(root))
    (item,) = brought.read_project_files([str(root)], {}).items
    assert "log  leads out of the folder, to /proc/version" in item.text


OWN = ["{home}/.claude/hooks/fmt.sh", "~/.claude/hooks/fmt.sh --quick", "bash $HOME/.claude/hooks/fmt.sh", "sh '{home}/.claude/hooks/fmt.sh' a"]  # fmt: skip
NOT_OWN = [
    "$CLAUDE_PROJECT_DIR/.claude/hooks/fmt.sh", "./fmt.sh", "fmt.sh", "{root}/x", "bash {root}/x", "make lint", "npm run fmt", "python -m fmt",
    "~/.claude/hooks/fmt.sh; ./x", "~/.claude/hooks/fmt.sh $(cat x)", "~/.claude/hooks/fmt.sh {root}/x", "~/.claude/hooks/fmt.sh --config={root}/x",
    "~/.claude/hooks/fmt.sh ../root/x", "~/.claude/hooks/fmt.sh here", "~/.claude/hooks/link.sh", "~/.claude/linked/x", "~/.claude/hooks/../../../root/x",
    "python3 -m x ~/.claude/hooks/fmt.sh", "FOO=1 ~/.claude/hooks/fmt.sh", "env ~/.claude/hooks/fmt.sh", "{home}/.local/bin/tool", "/usr/bin/make", "",
    "~/.claude/hooks/missing.sh", "~/.claude/hooks/fmt.sh\n./x", "~/.claude/hooks/fmt.sh -x{root}/x", "~/.claude/hooks/hard.sh",
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "is_own"), [*((each, True) for each in OWN), *((each, False) for each in NOT_OWN)]
)
def test_only_a_script_of_the_users_settings_folder_is_surely_theirs(
    root: Path, monkeypatch: pytest.MonkeyPatch, command: str, is_own: bool
) -> None:
    home = root.parent / "home"
    monkeypatch.setenv("HOME", str(home))
    for name in ("x", "here", "fmt.sh"):
        (root / name).write_text("echo theirs\n")
    (home / ".claude/hooks/link.sh").symlink_to(root / "x")
    (home / ".claude/hooks/hard.sh").hardlink_to(root / "fmt.sh")
    (home / ".claude/linked").symlink_to(root)
    (home / ".local/bin").mkdir(parents=True)
    (home / ".local/bin/tool").write_text("")
    said = command.replace("{home}", str(home)).replace("{root}", str(root))
    assert runs_only_scripts_of_user(said, home, [root], root) is is_own


def test_nothing_is_the_users_own_where_their_home_is_the_workspace(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = root.parent / "home"
    monkeypatch.setenv("HOME", str(home))
    assert not runs_only_scripts_of_user("~/.claude/hooks/fmt.sh", home, [home], home)


def test_a_hook_of_the_user_that_names_a_folders_file_needs_trust(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = root.parent / "home"
    monkeypatch.setenv("HOME", str(home))
    (root / "fmt.sh").write_text("echo one\n")
    line = '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "%s"}]}]}}'
    (home / ".claude/settings.json").write_text(line % "$CLAUDE_PROJECT_DIR/fmt.sh")
    (item,) = brought.read_project_files([str(root)], {}).items
    assert (item.own, item.reaches_folder, item.trusted) == (True, True, False)
    (item,) = brought.read_project_files(
        [str(root)], {item.settings_key: item.content_sha256}
    ).items
    assert item.trusted
    (root / "fmt.sh").write_text("echo two\n")
    (changed,) = brought.read_project_files(
        [str(root)], {item.settings_key: item.content_sha256}
    ).items
    assert not changed.trusted
    (home / ".claude/settings.json").write_text(line % "~/.claude/hooks/fmt.sh")
    (item,) = brought.read_project_files([str(root)], {}).items
    assert (item.reaches_folder, item.trusted) == (False, True)


def test_a_file_is_found_in_the_folder_that_the_command_changes_to_and_each_one_once(
    root: Path,
) -> None:
    for file in (root / "tools" / "run", root / "run"):
        file.write_text("true\n")
    found = find_files_named_in_command("cd tools && ./run", root, ProjectReading(root))
    assert found == [root / "run", root / "tools" / "run"]
    found = find_files_named_in_command("./run '' ./run", root, ProjectReading(root))
    assert found == [root / "run"]


def test_a_word_without_a_letter_is_no_folder_to_look_in(root: Path) -> None:
    """An empty word stands for the folder itself, so each name would be looked for twice."""
    (root / "run").write_text("true\n")
    counted: list[int] = []

    class CountingReading(ProjectReading):
        def count_file_accesses(self, count: int) -> None:
            counted.append(count)
            super().count_file_accesses(count)

    find_files_named_in_command("./run", root, CountingReading(root))
    without_empty_word = counted.copy()
    counted.clear()
    find_files_named_in_command("./run ''", root, CountingReading(root))
    assert counted[1] <= without_empty_word[1] + 1
