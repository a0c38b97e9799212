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
    reading = ProjectReading(root)
    used = [root / name for name in touched]
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


@pytest.mark.parametrize(
    ("globs", "used", "applies"),
    [
        ('"**/*.{ts,tsx}"', "src/a.tsx", True),
        ('"*.md, src/{api,web}/*.{ts,js}"', "src/web/a.js", True),
        ('"*.md, src/{api,web}/*.{ts,js}"', "src/db/a.js", False),
        ('["lib/*.{rs,toml}"]', "lib/a.toml", True),
        ('"{a,b"', "{a", True),
    ],
)
def test_a_rule_of_cursor_may_name_alternatives(
    tmp_path: Path, globs: str, used: str, applies: bool
) -> None:
    (tmp_path / ".cursor" / "rules").mkdir(parents=True)
    rule = tmp_path / ".cursor" / "rules" / "types.mdc"
    rule.write_text(f"---\nglobs: {globs}\n---\nTyped.")
    assert bool(found(tmp_path, used)) is applies


def test_many_alternatives_of_a_rule_take_no_time(tmp_path: Path) -> None:
    (tmp_path / ".cursor" / "rules").mkdir(parents=True)
    rule = tmp_path / ".cursor" / "rules" / "types.mdc"
    rule.write_text(f"---\nglobs: '{'{a,b}' * 300}'\n---\nTyped.")
    assert found(tmp_path, "src/a.ts") == {}
    assert len(rules_files._parse_globs("{a,b}" * 300)) < 300


def test_a_link_to_rules_that_are_not_sent_otherwise_is_read(tmp_path: Path) -> None:
    write(tmp_path, AGENTS_md="top", docs__agents_md="from the docs")
    (tmp_path / "CLAUDE.md").symlink_to("docs/agents.md")
    (tmp_path / "GEMINI.md").symlink_to("AGENTS.md")
    items = found(tmp_path)
    assert list(items) == ["AGENTS.md", "CLAUDE.md"]
    assert items["CLAUDE.md"].body == "from the docs"


def test_a_rule_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / ".cursor" / "rules").mkdir(parents=True)
    rule = tmp_path / ".cursor" / "rules" / "always.mdc"
    rule.write_bytes("\ufeff---\r\nalwaysApply: true\r\n---\r\nAlways this.".encode())
    (item,) = found(tmp_path).values()
    assert item.body == "Always this."
