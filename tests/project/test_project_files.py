from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType

import pytest

from helix_desktop.project import project_files
from helix_desktop.tools import hidden_files
from helix_desktop.tools.hidden_files import matches_hidden_patterns
from helix_desktop.tools.workspace_roots import WorkspaceRoots


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(project_files, "user_home", lambda: tmp_path / "own")
    made = tmp_path / "project"
    for place, name, text in (
        (
            ".claude/skills/pdf",
            "SKILL.md",
            "---\nname: pdf\ndescription: Reads PDF files\n---\nBody",
        ),
        (".claude/commands", "go.md", "Go"),
        (".claude/agents", "tester.md", "Test"),
        (".", "AGENTS.md", "Rules"),
        (".", "CLAUDE.md", "Rules"),
    ):
        (made / place).mkdir(parents=True, exist_ok=True)
        (made / place / name).write_text(text)
    return made


def test_nothing_of_a_folder_is_in_force_before_it_is_trusted(root: Path) -> None:
    found = project_files.read_project_files([str(root)], {})
    assert [(item.kind, item.name) for item in found.items_to_ask_about()] == [
        ("rules", "AGENTS.md"), ("skill", "pdf"), ("command", "go"), ("agent", "tester"),
    ]  # fmt: skip
    assert all(not found.items_in_force(kind) for kind in ("rules", "skill", "command", "agent"))


def test_trust_is_in_exactly_this_content(root: Path) -> None:
    trusted = {
        item.settings_key: item.content_sha256
        for item in project_files.read_project_files([str(root)], {}).items_to_ask_about()
    }
    assert project_files.read_project_files([str(root)], trusted).items_to_ask_about() == ()
    (root / ".claude/commands/go.md").write_text("Stop")
    (item,) = project_files.read_project_files([str(root)], trusted).items_to_ask_about()
    assert (item.name, item.state_description) == ("go", "changed: not trusted yet")


def test_what_is_switched_off_asks_nobody_and_is_not_used(root: Path) -> None:
    trusted = {
        item.settings_key: item.content_sha256
        for item in project_files.read_project_files([str(root)], {}).items_to_ask_about()
    }
    found = project_files.read_project_files([str(root)], trusted, [str(root / "AGENTS.md")])
    assert [item.name for item in found.items_in_force("rules")] == []
    assert found.items_to_ask_about() == ()


def test_the_users_own_are_trusted_and_the_folders_come_first(root: Path, tmp_path: Path) -> None:
    mine = tmp_path / "own" / ".claude" / "commands"
    mine.mkdir(parents=True)
    (mine / "go.md").write_text("Mine")
    (mine / "rest.md").write_text("Rest")
    found = project_files.read_project_files([str(root)], {})
    assert {item.name: item.body for item in found.items_in_force("command")} == {
        "go": "Mine",
        "rest": "Rest",
    }
    trusted = {item.settings_key: item.content_sha256 for item in found.items_to_ask_about()}
    assert (
        project_files.read_project_files([str(root)], trusted).find_item("command", "go").body  # type: ignore[union-attr]
        == "Go"
    )


@pytest.mark.parametrize(
    "spelling",
    ["@.env", "@./.env", "@conf/../.env", "@conf/link", "@.ENV", "@conf/prod.key", "@more.md"],
)
def test_a_file_that_no_agent_sees_is_not_imported_by_rules(root: Path, spelling: str) -> None:
    (root / "conf").mkdir()
    for name in (".env", ".ENV", "conf/prod.key"):
        (root / name).write_text("SECRET=123")
    (root / "conf/link").symlink_to(root / ".env")
    (root / "more.md").write_text("More: @.env")
    (root / "AGENTS.md").write_text(f"Rules, and {spelling}")
    for place, name in ((".claude/skills/env", "SKILL.md"), (".claude/commands", "env.md"), (".claude/agents", "env.md"), (".cursor/rules", "e.mdc")):  # fmt: skip
        (root / place).mkdir(parents=True, exist_ok=True)
        (root / place / name).symlink_to(root / ".env")
    (root / ".github").mkdir()
    (root / ".github/copilot-instructions.md").symlink_to(root / ".env")
    roots = replace(
        WorkspaceRoots.from_folders([root]),
        is_hidden_inside=lambda at: matches_hidden_patterns(at, hidden_files.DEFAULT),
    )
    found = project_files.read_project_files([str(root)], {}, is_hidden=roots.is_hidden_path)
    assert "SECRET" not in repr(found)
    notes = [note for item in found.items for note in item.notes]
    assert ["hidden from agents" in note for note in notes] == [True]
    assert "SECRET" in repr(project_files.read_project_files([str(root)], {}))


def many_hooks(root: Path) -> None:
    """Each word may be a file of each folder, and each word is a folder."""
    names = [f"d{number}" for number in range(68)]
    for name in names:
        (root / name).mkdir()
    hook = {"type": "command", "command": " ".join(names)}
    (root / ".claude/settings.json").write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [hook] * 30}]}})
    )


def many_links_to_a_large_file(root: Path) -> None:
    (root / "large").write_text("---\ndescription: x\n---\n" + "x" * 250_000)
    for number in range(120):
        (root / f".claude/commands/c{number}.md").symlink_to(root / "large")


def skills_that_share_a_large_folder(root: Path) -> None:
    (root / "shared").mkdir()
    for number in range(1_900):
        (root / f"shared/{number}").touch()
    for number in range(12):
        made = root / f".claude/skills/s{number}"
        made.mkdir()
        (made / "SKILL.md").write_text(f"---\nname: s{number}\ndescription: x\n---\n")
        (made / "x").symlink_to(root / "shared")


def many_imports(root: Path) -> None:
    (root / "AGENTS.md").write_text(" ".join(f"@{number:x}/" for number in range(21_000)))


@pytest.mark.parametrize(
    "fill",
    [many_hooks, many_links_to_a_large_file, skills_that_share_a_large_folder, many_imports],
)  # fmt: skip
def test_a_folder_nobody_trusts_is_read_to_a_bound_and_says_so(
    root: Path, tmp_path: Path, fill: Callable[[Path], None]
) -> None:
    mine = tmp_path / "own/.claude/commands"
    mine.mkdir(parents=True)
    (mine / "go.md").write_text("My own go")
    fill(root)
    first, second = (project_files.read_project_files([str(root)], {}) for _ in range(2))
    (left,) = [item for item in first.items if item.path == root]
    assert left.broken
    assert "were not read" in left.notes[0]
    assert first.items_in_force("command")[0].body == "My own go"
    assert second == first


def test_a_link_to_other_folders_is_not_walked(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    for number in range(100):
        (outside / f"{number}/below").mkdir(parents=True)
    (root / ".cursor").mkdir()
    before = listings(root)
    for place in (".cursor/rules", ".agents/skills", ".agents/commands", ".claude/skills/pdf/x"):
        (root / place).parent.mkdir(exist_ok=True)
        (root / place).symlink_to(outside)
    assert listings(root) <= before


def listings(root: Path) -> int:
    """How many folders are listed when the project files are read."""
    found = 0

    def count(_frame: FrameType, event: str, argument: object) -> None:
        nonlocal found
        found += event == "c_call" and argument in (os.scandir, os.listdir)

    sys.setprofile(count)
    try:
        project_files.read_project_files([str(root)], {})
    finally:
        sys.setprofile(None)
    return found


@pytest.mark.parametrize("name", ["x" * 300, "round/x", "a\0b"])
def test_an_import_that_can_be_no_file_hides_nothing_else(root: Path, name: str) -> None:
    (root / "round").symlink_to("round")
    (root / "AGENTS.md").write_text(f"Be kind. @{name}")
    found = project_files.read_project_files([str(root)], {})
    assert [item.kind for item in found.items] == ["rules", "rules", "skill", "command", "agent"]


def test_hooks_nested_as_deep_as_can_be_read_hide_nothing_else(root: Path) -> None:
    for depth in range(100, 1_000, 15):
        table = "[" * depth + "]" * depth
        (root / ".claude/settings.json").write_text(
            f'{{"hooks": {{"Other": {table}, "Stop": [{{"hooks": [{table}]}}]}}}}'
        )
        assert project_files.read_project_files([str(root)], {}).items_of_kind("command")
