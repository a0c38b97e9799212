"""What the kernel says of changed folders, and where it is not enough."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from helix_desktop.tools.changes.folder_watch import FolderWatch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify")


def entered(watch: FolderWatch, folder: Path, path: str, *, same: bool = False) -> None:
    handle = os.open(folder, os.O_RDONLY)
    watch.watch_listed_folder(path, handle, same)
    os.close(handle)


def test_a_change_names_its_folder_and_leaves_no_doubt(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    watch = FolderWatch()
    watch.begin_full_walk()
    entered(watch, tmp_path, "0")
    entered(watch, tmp_path / "a", "0/a")
    (tmp_path / "a" / "f").write_text("x")
    assert (watch.take_changed_folders(), watch.is_in_doubt) == ({"0/a"}, False)
    entered(watch, tmp_path / "a", "0/a", same=True)
    (tmp_path / "a" / "f").unlink()
    assert (watch.take_changed_folders(), watch.is_in_doubt) == ({"0/a"}, False)
    watch.close()


def test_a_moved_folder_is_a_doubt_and_its_old_watch_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    watch = FolderWatch()
    watch.begin_full_walk()
    entered(watch, tmp_path, "0")
    entered(watch, tmp_path / "a", "0/a")
    (tmp_path / "a").rename(tmp_path / "b")
    watch.take_changed_folders()
    assert watch.is_in_doubt
    watch.begin_full_walk()
    entered(watch, tmp_path / "b", "0/b", same=True)
    (tmp_path / "b" / "f").write_text("x")
    assert watch.take_changed_folders() == {"0/b"}
    watch.close()


def test_a_watch_that_nobody_closes_leaves_no_handle_open() -> None:
    """Each workspace whose opening was cut off left one, and the system has few."""
    watch = FolderWatch()
    handle = watch._handle
    os.fstat(handle)
    del watch
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)
