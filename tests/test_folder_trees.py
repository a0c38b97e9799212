"""Listing and deleting folders: deep ones, over-long paths, read-only ones, links."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.folder_trees import delete_folder_tree, list_tree_files

# Deeper than Python can recurse. With names of four letters, the path is longer than
# Linux allows.
DEEP = 1_050


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    top = tmp_path / "deep"
    top.mkdir()
    handle = os.open(top, os.O_RDONLY)
    for _ in range(DEEP):
        os.mkdir("deep", dir_fd=handle)
        inner = os.open("deep", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=handle))
    os.close(handle)
    yield top
    delete_folder_tree(top, ignore_errors=True)


def test_a_folder_of_any_depth_is_listed_as_far_as_paths_reach_and_deleted(deep: Path) -> None:
    (deep / "deep/beside").write_text("text")
    errors: list[OSError] = []
    assert [path for path, _ in list_tree_files(deep, on_error=errors.append)] == [
        deep / "deep/beside"
    ]
    assert [error.strerror for error in errors] == ["File name too long"]
    delete_folder_tree(deep)
    assert not deep.exists()


def test_a_file_whose_path_is_too_long_is_reported(tmp_path: Path) -> None:
    inside = os.open(tmp_path, os.O_RDONLY)
    while len(str(Path(f"/proc/self/fd/{inside}").readlink())) < 4_000:
        os.mkdir("d" * 90, dir_fd=inside)
        inside, outer = os.open("d" * 90, os.O_RDONLY, dir_fd=inside), inside
        os.close(outer)
    os.close(os.open("f" * 200, os.O_WRONLY | os.O_CREAT, dir_fd=inside))
    os.close(inside)
    errors: list[OSError] = []
    assert not list(list_tree_files(tmp_path, on_error=errors.append))
    assert [error.strerror for error in errors] == ["File name too long"]
    delete_folder_tree(tmp_path / ("d" * 90))
    assert not list(tmp_path.iterdir())


def test_links_are_listed_and_deleted_but_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    top = tmp_path / "top"
    (outside / "inner").mkdir(parents=True)
    (outside / "kept").write_text("kept")
    (outside / "inner").chmod(0o500)
    (top / "a/b").mkdir(parents=True)
    (top / "a/b/folder").symlink_to(outside)
    (top / "a/file").symlink_to(outside / "kept")
    listed = {path: stat.S_ISLNK(about.st_mode) for path, about in list_tree_files(top)}
    assert listed == {top / "a/b/folder": True, top / "a/file": True}
    delete_folder_tree(top)
    assert not top.exists()
    assert (outside / "kept").read_text() == "kept"
    assert stat.S_IMODE((outside / "inner").stat().st_mode) == 0o500


def test_a_link_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/kept").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        delete_folder_tree(tmp_path / "link")
    delete_folder_tree(tmp_path / "link", ignore_errors=True)
    assert (tmp_path / "real/kept").exists()


def test_folders_that_cannot_be_read_or_changed_are_deleted(tmp_path: Path) -> None:
    top = tmp_path / "top"
    for mode in (0o000, 0o500, 0o300):
        inner = top / f"{mode:o}/inner"
        inner.mkdir(parents=True)
        (inner / "file").write_text("text")
        inner.chmod(mode)
        inner.parent.chmod(mode)
    delete_folder_tree(top)
    assert not top.exists()


def test_a_pattern_selects_names(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a/one.jsonl", "a/two.txt", "three.jsonl"):
        (tmp_path / name).touch()
    assert {path.name for path, _ in list_tree_files(tmp_path, "*.jsonl")} == {
        "one.jsonl",
        "three.jsonl",
    }


def test_a_missing_folder_is_an_error_unless_errors_are_ignored(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        delete_folder_tree(tmp_path / "none")
    delete_folder_tree(tmp_path / "none", ignore_errors=True)
    errors: list[OSError] = []
    assert not list(list_tree_files(tmp_path / "none", on_error=errors.append))
    assert len(errors) == 1
