"""Rules files: which there are, what they import, and when they come into force."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.project import rules_files
from helix_desktop.project.project_item import ProjectItem, ProjectReading


def write(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_md", ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def found(root: Path, *touched: str) -> dict[str, ProjectItem]:
    reading, used = ProjectReading(root), [root / name for name in touched]
    items = [
        *rules_files.find_rules_of_root(reading, used),
        *rules_files.find_rules_of_touched_folders(reading, used),
    ]
    return {item.path.relative_to(root).as_posix(): item for item in items}


def test_all_names_of_a_root_count(tmp_path: Path) -> None:
    for name in (
        "AGENTS.md",
        "CLAUDE.md",
        "GEMINI.md",
        ".github/copilot-instructions.md",
        ".cursorrules",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"Rules of {name}.")
    assert set(found(tmp_path)) == {
        "AGENTS.md",
        "CLAUDE.md",
        "GEMINI.md",
        ".github/copilot-instructions.md",
        ".cursorrules",
    }
    assert all(not item.is_nested for item in found(tmp_path).values())


def test_those_below_come_into_force_with_a_file_below_them(tmp_path: Path) -> None:
    write(
        tmp_path,
        AGENTS_md="top",
        src__AGENTS_md="in src",
        src__deep__CLAUDE_md="deep",
        other__AGENTS_md="other",
    )
    assert list(found(tmp_path)) == ["AGENTS.md"]
    assert list(found(tmp_path, "src/a.py")) == ["AGENTS.md", "src/AGENTS.md"]
    deep = found(tmp_path, "src/deep/b.py")
    assert list(deep) == ["AGENTS.md", "src/AGENTS.md", "src/deep/CLAUDE.md"]
    assert deep["src/deep/CLAUDE.md"].is_nested
    assert "src/deep" in deep["src/deep/CLAUDE.md"].why


def test_imports_stand_behind_the_file_word_for_word(tmp_path: Path) -> None:
    write(
        tmp_path, CLAUDE_md="See @docs/style.md and @AGENTS.md, not `@code.md`, nor me@example.com."
    )
    write(
        tmp_path,
        docs__style_md="Four spaces.\n@more.md",
        docs__more_md="And no tabs.",
        AGENTS_md="Be kind.",
    )
    item = found(tmp_path)["CLAUDE.md"]
    assert "Imported from docs/style.md:\n\nFour spaces." in item.body
    assert "And no tabs." in item.body
    assert "Be kind." in item.body
    assert item.notes == ()


@pytest.mark.parametrize("name", ["@../secret.md", "@/etc/passwd", "@~/.ssh/id_rsa", "@missing.md"])
def test_what_lies_outside_or_is_missing_is_not_imported_and_said(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "secret.md").write_text("secret")
    root = tmp_path / "root"
    write(root, CLAUDE_md=f"Read {name} please")
    item = found(root)["CLAUDE.md"]
    assert "secret" not in item.body.replace(name, "")
    assert name in item.notes[0]


def test_imports_in_a_circle_end(tmp_path: Path) -> None:
    write(tmp_path, CLAUDE_md="@a.md", a_md="@b.md one", b_md="@a.md two")
    assert found(tmp_path)["CLAUDE.md"].body.count("one") == 1


def test_rules_of_cursor_hold_always_or_for_their_files(tmp_path: Path) -> None:
    place = tmp_path / ".cursor" / "rules"
    place.mkdir(parents=True)
    (place / "always.mdc").write_text("---\nalwaysApply: true\n---\nAlways this.")
    (place / "types.mdc").write_text(
        "---\ndescription: Types\nglobs: src/**/*.ts,*.tsx\nalwaysApply: false\n---\nTyped."
    )
    (place / "asked.mdc").write_text("---\ndescription: When asked\n---\nRarely.")
    assert list(found(tmp_path)) == [".cursor/rules/always.mdc"]
    assert list(found(tmp_path, "src/a/b.ts"))[1:] == [".cursor/rules/types.mdc"]
    assert list(found(tmp_path, "web/c.tsx"))[1:] == [".cursor/rules/types.mdc"]
    assert list(found(tmp_path, "src/a.py"))[1:] == []
    assert found(tmp_path)[".cursor/rules/always.mdc"].body == "Always this."
