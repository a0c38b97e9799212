from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helix_desktop.tools.safe_path_opening import (
    DIRECTORY,
    OpenWithinFolder,
    choose_opener,
    open_by_kernel,
    open_by_steps,
)

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="handles of folders are POSIX")
WAYS = [open_by_steps, *([open_by_kernel] if choose_opener() is open_by_kernel else [])]


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest) -> OpenWithinFolder:
    opener: OpenWithinFolder = request.param
    return opener


@pytest.fixture
def root(tmp_path: Path) -> Iterator[int]:
    (tmp_path / "outside").write_text("secret")
    inside = tmp_path / "root"
    (inside / "a" / "b").mkdir(parents=True)
    (inside / "a" / "file").write_text("here")
    handle = os.open(inside, DIRECTORY)
    yield handle
    os.close(handle)


def open_handles() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def content(way: OpenWithinFolder, root: int, path: str) -> str:
    handle = way(root, path, os.O_RDONLY)
    try:
        return os.read(handle, 100).decode()
    finally:
        os.close(handle)


@pytest.mark.parametrize("path", ["a/file", "./a//file", "a/b/../file", "link", "a/b/up", "chain"])
def test_what_lies_inside_opens_through_links_as_well(
    way: OpenWithinFolder, root: int, path: str
) -> None:
    os.symlink("a/file", "link", dir_fd=root)
    os.symlink("../file", "a/b/up", dir_fd=root)
    os.symlink("link", "chain", dir_fd=root)
    assert content(way, root, path) == "here"


@pytest.mark.parametrize(
    "path", ["../outside", "a/../../outside", "out", "far", "dir/outside", "a/b/deep"]
)
def test_what_leads_out_does_not(way: OpenWithinFolder, root: int, path: str) -> None:
    os.symlink("../outside", "out", dir_fd=root)
    os.symlink("/etc/hostname", "far", dir_fd=root)
    os.symlink("..", "dir", dir_fd=root)
    os.symlink("../../../outside", "a/b/deep", dir_fd=root)
    with pytest.raises(OSError, match="Errno") as caught:
        way(root, path, os.O_RDONLY)
    assert caught.value.errno == errno.EXDEV


def test_a_link_in_a_circle_ends(way: OpenWithinFolder, root: int) -> None:
    os.symlink("round", "round", dir_fd=root)
    with pytest.raises(OSError, match="Errno") as caught:
        way(root, "round", os.O_RDONLY)
    assert caught.value.errno == errno.ELOOP


def test_no_handle_is_left_open(root: int) -> None:
    os.symlink("a/b/../b/../file", "link", dir_fd=root)
    before = open_handles()
    for path in ("link", "a/../a/file"):
        assert content(open_by_steps, root, path) == "here"
    with pytest.raises(OSError, match="Errno"):
        open_by_steps(root, "a/../../x", os.O_RDONLY)
    assert open_handles() == before
