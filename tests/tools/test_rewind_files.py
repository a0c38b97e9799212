from __future__ import annotations

import pytest

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FileChanged
from helix_desktop.tools.rewind_files import join_file_changes, undo_tool_changes
from tests.tools.world import World

A, B, C = (Digest.of_content(letter) for letter in (b"a", b"b", b"c"))


@pytest.mark.parametrize(
    ("changes", "one"),
    [
        ([FileChanged("p", None, A), FileChanged("p", A, B)], [FileChanged("p", None, B)]),
        ([FileChanged("p", A, B), FileChanged("p", B, None)], [FileChanged("p", A, None)]),
        ([FileChanged("p", A, B), FileChanged("p", B, A)], []),
        ([FileChanged("p", None, A), FileChanged("p", A, None)], []),
        ([FileChanged("p", A, B), FileChanged("q", A, C)], [FileChanged("p", A, B), FileChanged("q", A, C)]),
    ],
)
def test_several_changes_of_a_file_are_one(changes: list[FileChanged], one: list[FileChanged]) -> None:
    assert join_file_changes(changes) == (one, set())


async def test_what_somebody_changed_between_two_changes_is_left_alone(here: World) -> None:
    here.write("a", "one\n")
    first = (await here.run("edit_file", path="a", old_text="one", new_text="two")).changes
    here.write("a", "two\nthe user's\n")
    await here.run("read_file", path="a")
    second = (await here.run("edit_file", path="a", old_text="two", new_text="three")).changes
    (said,) = await undo_tool_changes([*first, *second], here.kit.resources.roots, here.cache)
    assert said.startswith("a was not changed: it was changed in the meantime")
    assert (here.folder / "a").read_text() == "three\nthe user's\n"
    assert list(await undo_tool_changes(second, here.kit.resources.roots, here.cache)) == ["a was restored."]
    assert (here.folder / "a").read_text() == "two\nthe user's\n"


async def test_everything_is_put_back(here: World) -> None:
    here.write("edited", "one\n")
    changes = [
        *(await here.run("edit_file", path="edited", old_text="one", new_text="two")).changes,
        *(await here.run("write_file", path="sub/new", content="new")).changes,
        *(await here.run("edit_file", path="edited", old_text="two", new_text="three")).changes,
    ]
    said = await undo_tool_changes(changes, here.kit.resources.roots, here.cache)
    assert list(said) == ["edited was restored.", "sub/new was deleted, because it did not exist before."]
    assert (here.folder / "edited").read_text() == "one\n"
    assert not (here.folder / "sub" / "new").exists()
    assert list(await undo_tool_changes(changes, here.kit.resources.roots, here.cache)) == [
        "edited needed no change.",
        "sub/new needed no change.",
    ]


async def test_what_somebody_changed_since_is_left_alone(here: World) -> None:
    here.write("a", "one\n")
    here.write("b", "one\n")
    changes = [
        *(await here.run("write_file", path="a", content="two\n")).changes,
        *(await here.run("write_file", path="b", content="two\n")).changes,
    ]
    (here.folder / "a").write_text("the user's\n")
    said = await undo_tool_changes(changes, here.kit.resources.roots, here.cache)
    assert said[0] == "b was restored."
    assert said[1].startswith("a was not changed: it was changed in the meantime")
    assert (here.folder / "a").read_text() == "the user's\n"


async def test_a_change_outside_the_roots_is_not_undone(here: World) -> None:
    (said,) = await undo_tool_changes([FileChanged("/etc/passwd", None, A)], here.kit.resources.roots, here.cache)
    assert "was not changed" in said


async def test_a_deleted_file_comes_back(here: World) -> None:
    stored = await here.run("write_file", path="a", content="text")
    (here.folder / "a").unlink()
    deleted = FileChanged(str(here.folder / "a"), stored.changes[0].after, None)
    assert list(await undo_tool_changes([deleted], here.kit.resources.roots, here.cache)) == ["a was restored."]
    assert (here.folder / "a").read_text() == "text"
