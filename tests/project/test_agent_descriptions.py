from __future__ import annotations

from pathlib import Path

from helix_desktop.project import agent_descriptions
from helix_desktop.project.project_item import ProjectItem, ProjectReading


def agent(tmp_path: Path, text: str, name: str = "reviewer.md") -> ProjectItem:
    (tmp_path / name).write_text(text)
    (item,) = agent_descriptions.find_agent_files(tmp_path, ProjectReading(tmp_path))
    return item


def test_an_agent_says_what_it_is_and_what_it_may_use(tmp_path: Path) -> None:
    item = agent(
        tmp_path,
        "---\nname: reviewer\ndescription: Reads\ntools: Read, Grep, Bash(git diff:*)\nmodel: haiku\n"
        "agents: tester\npolicy: helix\n---\nYou review.",
    )
    assert (item.name, item.about, item.body) == ("reviewer", "Reads", "You review.")
    assert agent_descriptions.tools_of_agent(item) == ("Read", "Grep", "Bash(git diff:*)")
    assert agent_descriptions.agents_callable_by(item) == ("tester",)
    assert item.notes == ()


def test_what_is_not_supported_or_wrong_is_said(tmp_path: Path) -> None:
    item = agent(tmp_path, "---\nname: a b\npolicy: none such\npermissionMode: bypass\n---\nx")
    assert item.broken
    assert [note.split()[0] for note in item.notes] == ["permissionMode", "'a", "There"]


def test_a_file_without_a_front_has_its_own_name(tmp_path: Path) -> None:
    assert agent(tmp_path, "You test.", "tester.md").name == "tester"
