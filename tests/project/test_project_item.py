from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.errors import InvalidInput
from helix_desktop.project.project_item import (
    LARGEST_FILE_BYTES,
    ProjectItem,
    ProjectReading,
    parse_name_list,
    path_fits_glob,
    split_front_matter,
)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_a_sentence(text: str) -> None:
    with suppress(InvalidInput):
        values, _ = split_front_matter(f"---\n{text}\n---\nbody")
        assert all(isinstance(name, str) for name in values)


def test_yaml_makes_texts_and_nothing_else() -> None:
    values, body = split_front_matter(
        "---\na: yes\nb: 1\nc: !!python/object/apply:os.system ['true']\n---\nrest"
    )
    assert (values["a"], values["b"], body) == ("yes", "1", "rest")
    assert values["c"] == ["true"]


def test_aliases_are_refused_since_a_few_lines_of_them_stand_for_more_than_can_be_looked_through() -> (
    None
):
    lines = [
        "a0: &a0 [x, x]",
        *(f"a{level}: &a{level} [*a{level - 1}, *a{level - 1}]" for level in range(1, 200)),
    ]
    with pytest.raises(InvalidInput, match="aliases"):
        split_front_matter("---\n" + "\n".join(lines) + "\n---\nbody")
    assert split_front_matter("---\na: &name x\nb: '*name'\n---\n")[0] == {"a": "x", "b": "*name"}


def test_two_looks_at_an_item_are_compared_by_its_text_alone() -> None:
    """Whatever its values are: 100 lists, each of which has the next one twice, would
    take longer than anybody lives.
    """

    def look(text: str) -> ProjectItem:
        value: list[object] = []
        for _ in range(100):
            value = [value, value]
        return ProjectItem("skill", "x", Path("x"), text, "", values={"a": value})

    assert look("one") == look("one") != look("two")


def test_only_plain_files_inside_are_read(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "out.md").write_text("out")
    (inside / "link.md").symlink_to(tmp_path / "out.md")
    (inside / "large.md").write_text("x" * (LARGEST_FILE_BYTES + 1))
    (inside / "good.md").write_text("good")
    os.mkfifo(inside / "pipe.md")
    assert [ProjectReading(inside).read_text(inside / name) for name in ("link.md", "large.md", "pipe.md", "gone.md", "good.md")] == [
        None, None, None, None, "good",
    ]  # fmt: skip


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    assert ProjectReading(tmp_path).read_text(tmp_path / "a") == "one"
    (tmp_path / "a").write_text("three")
    assert ProjectReading(tmp_path).read_text(tmp_path / "a") == "three"


@pytest.mark.parametrize(
    ("said", "names"),
    [
        ("Read, Bash(git add:*)", ("Read", "Bash(git add:*)")),
        (["a", "b"], ("a", "b")),
        ("", ()),
        (3, ()),
    ],
)
def test_lists_are_read_in_every_form(said: object, names: tuple[str, ...]) -> None:
    assert parse_name_list(said) == names


def test_the_state_is_said_in_words() -> None:
    item = ProjectItem("skill", "x", Path("x"), "t", "b")
    assert item.state_description == "new: not trusted yet"
    assert not item.is_in_force


@pytest.mark.parametrize(
    ("path", "glob", "yes"),
    [
        ("a/b.ts", "**/*.ts", True),
        ("b.ts", "**/*.ts", True),
        ("a/b.py", "*.py", True),
        ("a", "*.py", False),
    ],
)
def test_globs(path: str, glob: str, yes: bool) -> None:
    assert path_fits_glob(path, glob) is yes


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: x\n---\nbody\n",
        "---\r\nname: x\r\n---\r\nbody\r\n",
        "\ufeff---\r\nname: x\r\n--- \r\nbody\r\n",
    ],
)
def test_values_are_read_whatever_the_line_ends(text: str) -> None:
    """Editors of Windows write two characters at a line's end, and a mark at the beginning."""
    values, body = split_front_matter(text)
    assert values == {"name": "x"}
    assert body.splitlines() == ["body"]


def test_what_stands_between_the_lines_is_parsed_once() -> None:
    text = "---\nname: something that only this trial has\n---\nbody"
    assert split_front_matter(text)[0] is split_front_matter(text)[0]


def test_what_would_take_a_parser_seconds_is_refused() -> None:
    with pytest.raises(InvalidInput, match="longer than"):
        split_front_matter(f"---\na: {'[' * 9_000}\n---\n")
