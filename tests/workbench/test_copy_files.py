"""How a copy of a workspace's folders is described on the disk, and what of it is brought back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem, pack_item
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.tools.changes.change_restoring import RestoreStep
from helix_desktop.tools.private_git_copy import CopySource
from helix_desktop.workbench import copy_files
from helix_desktop.workbench.copy_files import FolderCopy, read_copy_description
from helix_desktop.workbench.undo_and_change_list import COPIES


def test_what_is_left_of_a_discarded_copy_is_no_problem(tmp_path: Path) -> None:
    """A program that was killed while it deleted one may have deleted the description first."""
    for name, problem in (("a.discarded", ""), ("b", "What describes this copy cannot be read.")):
        (tmp_path / name / "0").mkdir(parents=True)
        assert read_copy_description(tmp_path / name).problem == problem


@pytest.mark.parametrize("newer", [{"later": {}}, {"repositories": [{"source": "/a", "later": 1}]}])
def test_a_copy_that_a_newer_version_has_described_is_left_to_it(
    tmp_path: Path, newer: dict[str, object]
) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "copy.json").write_text(
        json.dumps({"repositories": [{"source": "/a"}], "is_whole": True, **newer})
    )
    copy = read_copy_description(tmp_path)
    assert (copy.is_whole, copy.problem) == (
        False,
        "This copy was last used with a newer version of Helix Desktop, and only that version can bring it back.",
    )


@pytest.mark.parametrize(
    "harm", ["", "[]", "{}", '{"repositories": 1}', '{"repositories": [1], "is_whole": true}']
)
def test_a_copy_whose_description_is_damaged_is_left_alone(tmp_path: Path, harm: str) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "copy.json").write_text(harm)
    assert read_copy_description(tmp_path).problem == "What describes this copy cannot be read."


def item(content: str, kind: PathKind = PathKind.FILE) -> TreeItem:
    return TreeItem(kind, 0o644, len(content), Digest.of_content(content.encode()).raw)


FOLDER = TreeItem(PathKind.FOLDER, 0o755)
REPOSITORY = CopySource("/home/ada/thesis", "a" * 40, "main", [], [])


def copy_of(folder: Path, **more: Any) -> FolderCopy:
    values: dict[str, Any] = {
        "roots": [["/home/ada/thesis", "0/."], ["/home/ada/thesis/src", "0/src"], ["/data", "1/."]],
        "repositories": [REPOSITORY, CopySource("/data", objects=[], notes=[])],
        "is_whole": True,
        **more,
    }
    return FolderCopy(folder.name, folder, 5.0, **values)


def test_a_description_is_read_as_it_was_saved(tmp_path: Path) -> None:
    copy = copy_of(tmp_path, parent="p", start="s", brought={"0/a": ["01"]}, replaced={"0/a": "02"})
    copy_files.save_copy_description(copy)
    assert read_copy_description(tmp_path) == copy
    assert (tmp_path / "copy.json").stat().st_mode & 0o077 == 0
    discarded = tmp_path.with_name("c.discarded")
    tmp_path.rename(discarded)
    assert not read_copy_description(discarded).is_whole


def test_each_root_knows_its_repository_and_how_its_files_begin_there(tmp_path: Path) -> None:
    copy = copy_of(tmp_path)
    assert copy.places == [(0, ""), (0, "src/"), (1, "")]
    assert copy.root_folders == [tmp_path / "0", tmp_path / "0/src", tmp_path / "1"]
    assert copy_of(tmp_path, is_whole=False).root_folders == []
    roots = [Path("/home/ada/thesis"), Path("/home/ada/thesis/src"), Path("/data")]
    assert copy.is_of(roots)
    assert not copy.is_of(roots[:2])
    assert not copy.is_of(reversed(roots))


@pytest.mark.parametrize(
    ("source", "label"),
    [
        (CopySource("/home/thesis", "a" * 40, "main"), "main"),
        (CopySource("/home/thesis", "0123456789abcdef"), "012345678"),
        (CopySource("/home/thesis"), "thesis"),
    ],
)
def test_a_copy_is_called_by_its_branch_its_commit_or_its_folder(
    tmp_path: Path, source: CopySource, label: str
) -> None:
    assert copy_of(tmp_path, repositories=[source, REPOSITORY]).label == label
    assert copy_of(tmp_path, repositories=[]).label == ""


def test_the_last_versions_that_were_brought_back_are_remembered(tmp_path: Path) -> None:
    copy_files.save_copy_description(copy_of(tmp_path))

    def bring_back(*contents: str, steps: Sequence[RestoreStep] = ()) -> FolderCopy:
        for content in contents:
            change = PathChange("0/a", None, item(content))
            copy_files.remember_brought_back(read_copy_description(tmp_path), [change], steps)
        return read_copy_description(tmp_path)

    def packed(*contents: str) -> list[str]:
        return [pack_item(item(content)).hex() for content in contents]

    assert bring_back("1", "2", "1").brought == {"0/a": packed("2", "1")}
    assert bring_back("3", "4", "5").brought == {"0/a": packed("1", "3", "4", "5")}
    step = RestoreStep("0/a", item("users"), item("6"))
    assert bring_back("6", steps=[step]).replaced == {"0/a": packed("users")[0]}
    other = RestoreStep("0/b", None, item("x"))
    copy_files.remember_brought_back(
        read_copy_description(tmp_path), [PathChange("0/b", None, item("x"))], [other]
    )
    assert read_copy_description(tmp_path).replaced == {"0/a": packed("users")[0], "0/b": ""}
    assert bring_back("7").replaced == {"0/b": ""}


NAMES: dict[int, frozenset[str] | None] = {0: frozenset(["new"]), 1: None}


@pytest.mark.parametrize(
    ("change", "brought"),
    [
        (PathChange("0/new", None, item("x")), True),
        (PathChange("0/ignored", None, item("x")), False),
        (PathChange("0/ignored", item("x"), item("y")), True),
        (PathChange("0/ignored", item("x"), None), True),
        (PathChange("1/any", None, item("x")), True),
        (PathChange("0/new", None, FOLDER), False),
        (PathChange("0/folder", FOLDER, None), True),
        (PathChange("0/new", FOLDER, item("x")), True),
        (PathChange("0/new/deep", None, item("x")), False),
    ],
)
def test_new_files_are_brought_back_if_git_would_track_them(
    change: PathChange, brought: bool
) -> None:
    assert copy_files.is_brought_back(change, NAMES) is brought


def test_a_file_of_git_that_no_checkpoint_has_is_named(tmp_path: Path) -> None:
    for name in ("covered", "other", "missing"):
        (tmp_path / name).write_text("x")
    (tmp_path / "submodule").mkdir()
    items = {"0/covered": item("x"), "0/other": item("x", PathKind.OTHER)}
    find = copy_files.find_git_file_missing_from_checkpoint
    roots = [tmp_path]
    assert find(roots, items, {0: frozenset(["covered", "deleted", "submodule"])}) == ""
    assert find(roots, items, {0: None}) == ""
    assert find(roots, items, {0: frozenset(["missing"])}) == str(tmp_path / "missing")
    assert find(roots, items, {0: frozenset(["other"])}) == str(tmp_path / "other")


def test_what_a_copy_of_a_copy_came_from_is_the_users_folder(tmp_path: Path) -> None:
    first = tmp_path / COPIES / "first"
    first.mkdir(parents=True)
    copy_files.save_copy_description(copy_of(first))
    find = copy_files._find_users_folder
    assert find("/home/ada/thesis") == "/home/ada/thesis"
    assert find(str(first / "0")) == "/home/ada/thesis"
    assert find(str(first / "1")) == "/data"
    assert find(str(first / "2")) == str(first / "2")
    assert find(str(first / "name")) == str(first / "name")


def test_the_size_of_what_is_not_whole_is_said_with_its_problem(tmp_path: Path) -> None:
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "file").write_bytes(b"x" * 100_000)
    status = copy_files.read_copy_status(copy_of(tmp_path, is_whole=False, problem="It is not."))
    assert (status.problem, status.commits, status.uncommitted) == ("It is not.", 0, ())
    assert status.bytes >= 100_000
    assert copy_files.list_changed_files(copy_of(tmp_path, is_whole=False)) == ()
