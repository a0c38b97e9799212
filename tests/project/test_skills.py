"""Skills: what the specification allows, and what published ones do all the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.project import skills
from helix_desktop.project.project_item import ProjectItem, ProjectReading


def wrong(folder: Path) -> list[str]:
    """Everything the program notes about a skill's folder."""
    return [
        note
        for item in skills.find_skills(folder.parent, ProjectReading(folder.parent))
        if item.path.parent == folder
        for note in item.notes
    ]


def skill(place: Path, folder: str, front: str, body: str = "Do it so.") -> Path:
    made = place / folder
    made.mkdir(parents=True)
    (made / "SKILL.md").write_text(f"---\n{front}\n---\n{body}\n", encoding="utf-8")
    return made


@pytest.mark.parametrize(
    ("folder", "front", "words"),
    [
        ("good", "name: good\ndescription: Fine", ""),
        (
            "good",
            "name: good\ndescription: Fine\nlicense: MIT\nmetadata:\n  author: me\nallowed-tools: Bash(jq:*) Read",
            "",
        ),
        ("技能", "name: 技能\ndescription: 好", ""),
        ("мой-навык", "name: мой-навык\ndescription: x", ""),
        ("café", "name: cafe\u0301\ndescription: x", ""),
        ("Good", "name: Good\ndescription: x", "lowercase"),
        ("a" * 70, f"name: {'a' * 70}\ndescription: x", "character limit"),
        ("-a", "name: -a\ndescription: x", "cannot start or end with a hyphen"),
        ("a--b", "name: a--b\ndescription: x", "consecutive hyphens"),
        ("a_b", "name: a_b\ndescription: x", "invalid characters"),
        ("other", "name: good\ndescription: x", "must match skill name"),
        ("good", "name: good", "Missing required field in frontmatter: description"),
        ("good", "description: x", "Missing required field in frontmatter: name"),
        ("good", "name: good\ndescription: ''", "non-empty"),
        ("good", f"name: good\ndescription: {'x' * 1100}", "exceeds 1024"),
        ("good", f"name: good\ndescription: x\ncompatibility: {'x' * 550}", "exceeds 500"),
        ("good", "name: good\ndescription: x\nversion: 2", "Unexpected fields"),
        ("good", "- a\n- b", "must be a YAML mapping"),
        ("good", "name: [", "Invalid YAML"),
    ],
)
def test_what_the_specification_says(tmp_path: Path, folder: str, front: str, words: str) -> None:
    found = wrong(skill(tmp_path, folder, front))
    assert found == [] if not words else any(words in one for one in found)


def test_a_skill_without_a_front_is_noted(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "SKILL.md").write_text("no front")
    assert "must start with YAML frontmatter" in wrong(tmp_path / "empty")[0]
    (tmp_path / "empty" / "SKILL.md").write_text("---\nname: x\n")
    assert "not closed properly" in wrong(tmp_path / "empty")[0]


def of(place: Path) -> list[ProjectItem]:
    return list(skills.find_skills(place, ProjectReading(place)))


def test_a_description_with_a_colon_is_taken_as_everybody_takes_it(tmp_path: Path) -> None:
    skill(tmp_path, "pdf", "name: pdf\ndescription: Use when: a PDF is there")
    (item,) = of(tmp_path)
    assert item.about == "Use when: a PDF is there"
    assert not item.broken


def test_a_skill_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    made = skill(tmp_path, "pdf", "name: pdf\ndescription: For PDFs")
    file = made / "SKILL.md"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    (item,) = of(tmp_path)
    assert (item.name, item.about, item.broken) == ("pdf", "For PDFs", False)


def test_who_trusts_a_skill_trusts_its_files(tmp_path: Path) -> None:
    made = skill(tmp_path, "pdf", "name: pdf\ndescription: x")
    (made / "scripts").mkdir()
    (made / "scripts" / "run.py").write_text("print(1)")
    (before,) = of(tmp_path)
    (made / "scripts" / "run.py").write_text("print(2)")
    (after,) = of(tmp_path)
    assert before.body == after.body == "Do it so."
    assert before.content_sha256 != after.content_sha256
    assert "scripts/run.py" in before.text


def test_links_out_of_the_folder_are_not_followed(tmp_path: Path) -> None:
    outside = skill(tmp_path / "outside", "x", "name: x\ndescription: x")
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "x").symlink_to(outside)
    assert of(inside) == []


def test_files_that_trust_does_not_cover_are_said(tmp_path: Path) -> None:
    made = skill(tmp_path, "many", "name: many\ndescription: x")
    for number in range(skills.MOST_FILES + 2):
        (made / f"{number:04}.txt").write_text("x")
    (item,) = of(tmp_path)
    assert item.notes == (
        "Your trust in this skill does not cover all of its files (2 left out), because the skill has more than 500 files or is larger than 20 MB.",
    )


def test_a_linked_folder_is_covered_by_the_trust_in_a_skill(tmp_path: Path) -> None:
    from helix_desktop.project.skills import find_skills

    skill = tmp_path / "skills/fmt"
    elsewhere = tmp_path / "elsewhere"
    skill.mkdir(parents=True)
    elsewhere.mkdir()
    (skill / "SKILL.md").write_text(
        "---\nname: fmt\ndescription: Formats\n---\nRun scripts/fmt.sh\n"
    )
    (elsewhere / "fmt.sh").write_text("one\n")
    (elsewhere / "again").symlink_to(skill)
    (skill / "scripts").symlink_to(elsewhere)
    (before,) = find_skills(tmp_path / "skills", ProjectReading(tmp_path))
    (elsewhere / "fmt.sh").write_text("two\n")
    (after,) = find_skills(tmp_path / "skills", ProjectReading(tmp_path))
    assert before.content_sha256 != after.content_sha256


def test_what_a_link_out_of_the_folder_leads_to_is_not_looked_through_but_the_link_is_trusted(
    tmp_path: Path,
) -> None:
    root = tmp_path / "root"
    outside = tmp_path / "outside"
    made = skill(root, "fmt", "name: fmt\ndescription: x")
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "file").write_text("x")
    (made / "x").symlink_to(outside)
    (item,) = of(root)
    assert "deep" not in item.text
    assert f"x  leads out of the folder, to {outside}" in item.text
