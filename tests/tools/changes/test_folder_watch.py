"""What the kernel says of changed folders, and where it is not enough."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop import concurrency
from helix_desktop.tools.changes import folder_watch
from helix_desktop.tools.changes.folder_watch import FolderWatch

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="inotify")


def entered(watch: FolderWatch, folder: Path, path: str, *, same: bool = False) -> None:
    handle = os.open(folder, os.O_RDONLY)
    watch.watch_listed_folder(path, handle, same)
    os.close(handle)


def test_a_change_names_its_folder_and_leaves_no_doubt(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    watch = FolderWatch()
    watch.forget_changes_before_walk()
    entered(watch, tmp_path, "0")
    entered(watch, tmp_path / "a", "0/a")
    (tmp_path / "a" / "f").write_text("x")
    assert (watch.pop_changed_folders(), watch.is_in_doubt) == ({"0/a"}, False)
    entered(watch, tmp_path / "a", "0/a", same=True)
    (tmp_path / "a" / "f").unlink()
    assert (watch.pop_changed_folders(), watch.is_in_doubt) == ({"0/a"}, False)
    watch.close()


def test_a_moved_folder_is_a_doubt_and_its_old_watch_is_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    watch = FolderWatch()
    watch.forget_changes_before_walk()
    entered(watch, tmp_path, "0")
    entered(watch, tmp_path / "a", "0/a")
    (tmp_path / "a").rename(tmp_path / "b")
    watch.pop_changed_folders()
    assert watch.is_in_doubt
    watch.forget_changes_before_walk()
    entered(watch, tmp_path / "b", "0/b", same=True)
    (tmp_path / "b" / "f").write_text("x")
    assert watch.pop_changed_folders() == {"0/b"}
    watch.close()


def test_a_watch_that_nobody_closes_leaves_no_handle_open() -> None:
    """Each workspace whose opening was cut off left one, and the system has few."""
    watch = FolderWatch()
    handle = watch._handle
    os.fstat(handle)
    del watch
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_every_kind_of_change_in_a_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").mkdir()
    watch = FolderWatch()
    watch.forget_changes_before_walk()
    entered(watch, tmp_path / "a", "0/a")
    inside = tmp_path / "a" / "f"
    outside = tmp_path / "elsewhere" / "f"
    changes: dict[str, Callable[[], object]] = {
        "created": inside.touch,
        "written": lambda: inside.write_text("more"),
        "another mode": lambda: inside.chmod(0o600),
        "moved out": lambda: inside.rename(outside),
        "moved in": lambda: outside.rename(inside),
        "removed": inside.unlink,
        "a folder": (tmp_path / "a" / "b").mkdir,
    }
    for what, change in changes.items():
        change()
        assert (watch.pop_changed_folders(), watch.is_in_doubt) == ({"0/a"}, False), what
    assert watch.pop_changed_folders() == set()
    (tmp_path / "f").read_text()
    (tmp_path / "elsewhere" / "g").touch()
    assert watch.pop_changed_folders() == set(), "only folders that were entered, and no reading"
    watch.close()
    assert not watch.is_watching
    assert watch.pop_changed_folders() == set()


def test_a_folder_that_moves_out_and_a_queue_that_ran_over_are_doubts(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    watch = FolderWatch()
    assert watch.is_in_doubt, "nothing was walked yet"
    watch.forget_changes_before_walk()
    assert not watch.is_in_doubt
    entered(watch, tmp_path / "a", "0/a")
    (tmp_path / "a" / "b").rename(tmp_path / "b")
    assert watch.pop_changed_folders() == {"0/a"}
    assert watch.is_in_doubt, "all below it has another path now"
    watch.forget_changes_before_walk()
    watch._apply_kernel_event(-1, folder_watch._OVERFLOW, set())
    assert watch.is_in_doubt
    watch.close()


def test_a_folder_that_is_gone_is_watched_anew_when_it_is_there_again(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    watch = FolderWatch()
    watch.forget_changes_before_walk()
    entered(watch, tmp_path / "a", "0/a")
    (tmp_path / "a").rmdir()
    watch.pop_changed_folders()
    (tmp_path / "a").mkdir()
    entered(watch, tmp_path / "a", "0/a", same=True)
    (tmp_path / "a" / "f").touch()
    assert watch.pop_changed_folders() == {"0/a"}
    watch.close()


def test_waiting_ends_with_a_change_or_when_the_other_end_is_closed(tmp_path: Path) -> None:
    watch = FolderWatch()
    watch.forget_changes_before_walk()
    entered(watch, tmp_path, "0")
    until, other_end = os.pipe()
    is_waiting = threading.Event()

    def change_a_file() -> None:
        is_waiting.wait()
        (tmp_path / "f").write_text("x")

    changing = concurrency.start_thread(change_a_file, name="changes a file")
    is_waiting.set()
    watch.wait_for_change(until)
    assert watch.pop_changed_folders() == {"0"}
    changing.join()

    os.close(other_end)
    watch.wait_for_change(until)
    os.close(until)
    watch.close()
