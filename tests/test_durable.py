"""durable.py: whole or not at all, where a link leads, with the rights that are wanted."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path

import pytest

from helix_desktop import durable
from helix_desktop.errors import StoreFailed, WrongUse

of_posix = pytest.mark.skipif(sys.platform == "win32", reason="links and rights of POSIX")


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_is_written_stands_there_to_the_byte(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.toml"
    for text in ("one\nÜ\n", "two\n"):
        durable.write(path, text)
        assert path.read_bytes() == text.encode()
    assert [each.name for each in path.parent.iterdir()] == ["a.toml"]


@pytest.mark.parametrize(
    ("text", "error", "why"), [("too much", StoreFailed, "No space"), ("\udcff", WrongUse, "not UTF-8")]
)
def test_what_cannot_be_written_leaves_all_as_it_was(
    text: str, error: type[Exception], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.toml"
    durable.write(path, "as it was")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(error, match=why):
        durable.write(path, text)
    assert path.read_text() == "as it was"
    assert [each.name for each in tmp_path.iterdir()] == ["a.toml"]


@of_posix
@pytest.mark.parametrize("private", [True, False])
def test_a_link_stays_and_what_it_names_is_written(private: bool, tmp_path: Path) -> None:
    real, link = tmp_path / "kept elsewhere" / "settings", tmp_path / "settings.toml"
    real.parent.mkdir()
    link.symlink_to(real)
    for text in ("the first", "the second"):
        durable.write(link, text, private=private)
        assert link.is_symlink()
        assert real.read_text() == text


@of_posix
def test_the_rights_are_those_it_had_or_the_users_alone(tmp_path: Path) -> None:
    usual, path = tmp_path / "usual", tmp_path / "a"
    usual.touch()
    durable.write(path, "new")
    assert rights(path) == rights(usual)
    path.chmod(0o640)
    durable.write(path, "again")
    assert rights(path) == 0o640
    durable.write(path, "a key", private=True)
    assert rights(path) == 0o600
