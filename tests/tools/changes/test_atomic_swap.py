"""Putting one name to another state: what somebody else put there meanwhile is never lost."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helix_desktop.engine.changes.folder_state import PathKind, TreeItem
from helix_desktop.tools.changes import atomic_swap
from helix_desktop.tools.changes.atomic_swap import ChangedMeanwhile
from helix_desktop.tools.changes.folder_walk import STAMP


@pytest.fixture(params=["one call", "several steps"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[int]:
    """The handle of a folder, on a system with a call that swaps names and on one without."""
    if request.param == "several steps":
        monkeypatch.setattr(atomic_swap, "_find_renameat2", lambda: None)
    handle = os.open(tmp_path, os.O_RDONLY)
    yield handle
    os.close(handle)


def put(path: Path, text: str, mode: int = 0o644) -> tuple[TreeItem, bytes]:
    """The file, and what is expected of it."""
    path.write_text(text)
    path.chmod(mode)
    return TreeItem(PathKind.FILE, mode, len(text)), hashlib.sha256(text.encode()).digest()


def held(folder: Path) -> dict[str, str]:
    return {one.name: one.read_text() for one in folder.iterdir() if one.is_file()}


def test_what_is_new_takes_the_place_of_what_is_expected(folder: int, tmp_path: Path) -> None:
    put(tmp_path / "new", "new")
    atomic_swap.swap_into_place(folder, "a", "new", *put(tmp_path / "a", "old"))
    assert held(tmp_path) == {"a": "new"}


def test_what_somebody_else_wrote_changes_back(folder: int, tmp_path: Path) -> None:
    put(tmp_path / "new", "new")
    expected = put(tmp_path / "a", "old")
    (tmp_path / "a").write_text("own")
    with pytest.raises(ChangedMeanwhile):
        atomic_swap.swap_into_place(folder, "a", "new", *expected)
    assert held(tmp_path) == {"a": "own"}


def test_where_nothing_is_expected_nothing_may_stand(folder: int, tmp_path: Path) -> None:
    put(tmp_path / "new", "new")
    atomic_swap.swap_into_place(folder, "a", "new", None, b"")
    assert held(tmp_path) == {"a": "new"}
    put(tmp_path / "newer", "newer")
    with pytest.raises(ChangedMeanwhile):
        atomic_swap.swap_into_place(folder, "a", "newer", None, b"")
    assert held(tmp_path) == {"a": "new"}


def test_what_is_gone_was_changed_too(folder: int, tmp_path: Path) -> None:
    expected = put(tmp_path / "a", "old")
    (tmp_path / "a").unlink()
    put(tmp_path / "new", "new")
    with pytest.raises(ChangedMeanwhile):
        atomic_swap.swap_into_place(folder, "a", "new", *expected)
    assert held(tmp_path) == {}


def test_an_error_of_the_system_is_told_and_leaves_no_file_behind(
    folder: int, tmp_path: Path
) -> None:
    expected = put(tmp_path / "a", "old")
    put(tmp_path / "new", "new")
    with pytest.raises(OSError, match=os.strerror(errno.ENAMETOOLONG)) as refused:
        atomic_swap.swap_into_place(folder, "a" * 300, "new", *expected)
    assert refused.value.errno == errno.ENAMETOOLONG
    assert held(tmp_path) == {"a": "old"}


def test_what_is_expected_is_taken_away_and_else_left(folder: int, tmp_path: Path) -> None:
    expected = put(tmp_path / "a", "old")
    (tmp_path / "a").write_text("own")
    with pytest.raises(ChangedMeanwhile):
        atomic_swap.remove_if_expected(folder, "a", *expected)
    assert held(tmp_path) == {"a": "own"}
    atomic_swap.remove_if_expected(folder, "a", *put(tmp_path / "a", "old"))
    assert held(tmp_path) == {}
    atomic_swap.remove_if_expected(folder, "a", *expected)


def test_a_folder_is_taken_away_only_where_it_is_empty(folder: int, tmp_path: Path) -> None:
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "own").write_text("x")
    with pytest.raises(OSError, match="not empty"):
        atomic_swap.remove_if_expected(folder, "f", TreeItem(PathKind.FOLDER, 0o755), b"")
    (tmp_path / "f" / "own").unlink()
    atomic_swap.remove_if_expected(folder, "f", TreeItem(PathKind.FOLDER, 0o755), b"")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_the_place_of_a_file_changes_places_and_is_taken_away_empty(
    folder: int, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    put(tmp_path / "new", "new")
    atomic_swap.swap_into_place(folder, "a", "new", TreeItem(PathKind.FOLDER, 0o755), b"")
    assert held(tmp_path) == {"a": "new"}
    assert len(list(tmp_path.iterdir())) == 1


def test_nothing_takes_the_place_of_what_stands_there(tmp_path: Path) -> None:
    put(tmp_path / "a", "old")
    put(tmp_path / "new", "new")
    handle = os.open(tmp_path, os.O_RDONLY)
    rename: Callable[..., None] = atomic_swap._rename_in_steps
    with pytest.raises(FileExistsError):
        rename(handle, "new", "a", 1)
    assert held(tmp_path) == {"a": "old", "new": "new"}
    rename(handle, "new", "a", 2)
    assert held(tmp_path) == {"a": "new", "new": "old"}
    os.close(handle)


def test_a_new_file_has_a_name_only_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    for named_later in (atomic_swap._CREATE_UNNAMED, 0):
        monkeypatch.setattr(atomic_swap, "_CREATE_UNNAMED", named_later)
        handle, beside = atomic_swap.create_unnamed_file(folder)
        assert bool(beside) == (not named_later)
        assert [one.name for one in tmp_path.iterdir()] == ([beside] if beside else [])
        os.write(handle, b"whole")
        os.lseek(handle, 0, os.SEEK_SET)
        assert (os.read(handle, 9), stat.S_IMODE(os.fstat(handle).st_mode)) == (b"whole", 0o600)
        name = atomic_swap.ensure_file_has_name(folder, handle, beside)
        assert name.startswith(".helix-undo-")
        assert held(tmp_path) == {name: "whole"}
        assert not os.get_inheritable(handle)
        os.close(handle)
        (tmp_path / name).unlink()
    assert atomic_swap.temporary_name() != atomic_swap.temporary_name()
    os.close(folder)


def test_a_mode_is_set_on_what_is_still_of_its_kind(folder: int, tmp_path: Path) -> None:
    put(tmp_path / "a", "x", 0o600)
    (tmp_path / "f").mkdir(0o700)
    (tmp_path / "link").symlink_to("a")
    atomic_swap.set_entry_mode(folder, "a", 0o640, PathKind.FILE)
    atomic_swap.set_entry_mode(folder, "f", 0o750, PathKind.FOLDER)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "f")] == [0o640, 0o750]
    atomic_swap.set_entry_mode(folder, "a", 0o644, PathKind.TWIN)
    for name, kind in (("f", PathKind.FILE), ("a", PathKind.FOLDER), ("link", PathKind.FILE)):
        with pytest.raises(ChangedMeanwhile):
            atomic_swap.set_entry_mode(folder, name, 0o600, kind)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("a", "f")] == [0o644, 0o750]


def test_a_file_is_as_expected_to_the_byte(folder: int, tmp_path: Path) -> None:
    item, digest = put(tmp_path / "a", "text")
    known = atomic_swap.is_as_expected
    assert known(folder, "a", item, digest)
    assert known(folder, "a", item._replace(kind=PathKind.TWIN), digest)
    assert not known(folder, "a", item._replace(size=5), digest)
    assert not known(folder, "a", item._replace(mode=0o600), digest)
    assert not known(folder, "a", item, hashlib.sha256(b"TEXT").digest())
    assert not known(folder, "a", item._replace(kind=PathKind.FOLDER), digest)
    assert not known(folder, "a", item._replace(kind=PathKind.LINK), digest)
    assert not known(folder, "missing", item, digest)


def test_links_folders_and_what_was_never_read_are_as_expected(folder: int, tmp_path: Path) -> None:
    known = atomic_swap.is_as_expected
    (tmp_path / "link").symlink_to("where")
    link = TreeItem(PathKind.LINK, 0o777, content=b"where")
    assert known(folder, "link", link, b"")
    assert not known(folder, "link", link._replace(content=b"elsewhere"), b"")
    assert not known(folder, "link", TreeItem(PathKind.FILE, 0o777, 5), b"")
    (tmp_path / "f").mkdir()
    assert known(folder, "f", TreeItem(PathKind.FOLDER, 0o755), b"")
    assert not known(folder, "f", link, b"")
    os.mkfifo(tmp_path / "pipe")
    assert known(folder, "pipe", TreeItem(PathKind.OTHER, 0o644), b"")
    put(tmp_path / "big", "big")
    st = (tmp_path / "big").stat()
    stamp = [st.st_ino, st.st_mtime_ns, 0, st.st_mode, st.st_size]
    assert known(folder, "big", TreeItem(PathKind.OTHER, 0o644, content=STAMP.pack(*stamp)), b"")
    for at in (0, 1, 3, 4):
        other = [*stamp[:at], stamp[at] + 1, *stamp[at + 1 :]]
        assert not known(
            folder, "big", TreeItem(PathKind.OTHER, 0o644, content=STAMP.pack(*other)), b""
        ), at


def test_what_an_entry_is_known_by(folder: int, tmp_path: Path) -> None:
    _, digest = put(tmp_path / "a", "x" * (1 << 20) + "y")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "f").mkdir()
    os.mkfifo(tmp_path / "pipe")
    read = {
        name: atomic_swap.read_digest_or_link_target(folder, name)
        for name in ("a", "link", "f", "pipe")
    }
    assert read == {"a": digest, "link": "a", "f": "", "pipe": ""}


def test_no_handle_is_left_open(folder: int, tmp_path: Path) -> None:
    item, digest = put(tmp_path / "a", "x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(20):
        assert atomic_swap.is_as_expected(folder, "a", item, digest)
        assert atomic_swap.read_digest_or_link_target(folder, "a") == digest
        atomic_swap.set_entry_mode(folder, "a", 0o644, PathKind.FILE)
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 20


def test_linux_has_a_call_that_swaps_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (atomic_swap._find_renameat2() is not None) == sys.platform.startswith("linux")
    put(tmp_path / "new", "new")
    expected = put(tmp_path / "a", "old")
    folder = os.open(tmp_path, os.O_RDONLY)

    def answer(code: int) -> Callable[[], Callable[..., int]]:
        return lambda: lambda *_: ctypes.set_errno(code) or -1

    monkeypatch.setattr(atomic_swap, "_find_renameat2", answer(errno.EROFS))
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        atomic_swap.remove_if_expected(folder, "a", *expected)
    for code in (errno.ENOSYS, errno.EINVAL):
        monkeypatch.setattr(atomic_swap, "_find_renameat2", answer(code))
        put(tmp_path / "new", "new")
        atomic_swap.swap_into_place(folder, "a", "new", *expected)
        assert held(tmp_path) == {"a": "new"}, "a file system without the call"
        expected = put(tmp_path / "a", "new")
    os.close(folder)
