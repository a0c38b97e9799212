"""durable.py: whole or not at all, where a link leads, with the rights that are wanted."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from helix_desktop import atomic_files
from helix_desktop.errors import InvalidInput, StoreFailed

of_posix = pytest.mark.skipif(sys.platform == "win32", reason="links and rights of POSIX")


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_stands_there_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.toml"
    for text in ("one\nÜ\n", "two\n"):
        atomic_files.write_file_atomically(path, text)
        assert path.read_bytes() == text.encode()
    assert [each.name for each in path.parent.iterdir()] == ["a.toml"]


@pytest.mark.parametrize(
    ("text", "error", "why"), [("too much", StoreFailed, "No space"), ("\udcff", InvalidInput, "UTF-8")]
)
def test_what_cannot_be_written_leaves_all_as_it_was(
    text: str, error: type[Exception], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.toml"
    atomic_files.write_file_atomically(path, "as it was")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(error, match=why):
        atomic_files.write_file_atomically(path, text)
    assert path.read_text() == "as it was"
    assert [each.name for each in tmp_path.iterdir()] == ["a.toml"]


@of_posix
@pytest.mark.parametrize("private", [True, False])
def test_a_link_stays_and_what_it_names_is_written(private: bool, tmp_path: Path) -> None:
    real, link = tmp_path / "kept elsewhere" / "settings", tmp_path / "settings.toml"
    real.parent.mkdir()
    link.symlink_to(real)
    for text in ("the first", "the second"):
        atomic_files.write_file_atomically(link, text, private=private)
        assert link.is_symlink()
        assert real.read_text() == text


@of_posix
def test_the_rights_are_those_it_had_or_the_users_alone(tmp_path: Path) -> None:
    usual, path = tmp_path / "usual", tmp_path / "a"
    usual.touch()
    atomic_files.write_file_atomically(path, "new")
    assert rights(path) == rights(usual)
    path.chmod(0o640)
    atomic_files.write_file_atomically(path, "again")
    assert rights(path) == 0o640
    atomic_files.write_file_atomically(path, "a key", private=True)
    assert rights(path) == 0o600


def test_a_program_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    """Where the system knows files without a name; elsewhere what is left is found once it is old."""
    script = (
        "import os, sys; from pathlib import Path; from helix_desktop.atomic_files import ReplacementFile\n"
        "beside = ReplacementFile(Path(sys.argv[1]) / 'export'); beside.file.write(b'x' * 100_000); beside.file.flush(); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False).returncode == 9
    left = list(tmp_path.iterdir())
    if sys.platform == "linux":
        assert left == []
    for path in left:
        os.utime(path, (0, 0))
    assert list(atomic_files.find_abandoned_files(tmp_path)) == left


def test_only_what_is_old_and_named_so_is_left_over(tmp_path: Path) -> None:
    for name in (".a.toml-0123abcd", ".a.toml-notahexn", "mine-0123abcd", ".new-89abcdef"):
        (tmp_path / name).touch()
        if not name.startswith(".new"):
            os.utime(tmp_path / name, (0, 0))
    assert [path.name for path in atomic_files.find_abandoned_files(tmp_path)] == [".a.toml-0123abcd"]


@of_posix
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_private_is_so_whatever_the_umask(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        atomic_files.ensure_private_folder(tmp_path / "home")
        (tmp_path / "home" / "file").touch()
        atomic_files.make_path_private(tmp_path / "home" / "file")
    finally:
        os.umask(before)
    assert (rights(tmp_path / "home"), rights(tmp_path / "home" / "file")) == (0o700, 0o600)


@of_posix
def test_what_is_everybodys_stays_so(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    atomic_files.make_path_private(tmp_path)
    assert rights(tmp_path) == 0o1777
    tmp_path.chmod(0o700)


@of_posix
def test_no_settings_file_is_waited_for_or_read_without_an_end(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    (tmp_path / "large").write_bytes(b"x" * 100)
    for name, why in (("pipe", "not a regular file"), ("zeros", "not a regular file"), ("large", "larger")):
        with pytest.raises(InvalidInput, match=why):
            atomic_files.read_small_file(tmp_path / name, most=50)
    assert atomic_files.read_small_file(tmp_path / "large") == b"x" * 100
