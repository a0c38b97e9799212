"""The file of stamps gives back what was written, or nothing at all."""

from __future__ import annotations

from pathlib import Path

from helix_desktop.engine.digest import Digest
from helix_desktop.tools.changes import known
from helix_desktop.tools.changes.coverage import Coverage

ROOTS = ("/home/\udcffme", "/b")
KEPT = known.Kept({"0": {"a\udcff": b"record", "b": b""}, "0/d": {}}, Digest(b"1" * 32), (3, 4, 5))


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    known.write(tmp_path / "known", KEPT, ROOTS, Coverage())
    assert known.read(tmp_path / "known", ROOTS, Coverage()) == KEPT


def test_other_folders_or_rules_begin_anew(tmp_path: Path) -> None:
    known.write(tmp_path / "known", KEPT, ROOTS, Coverage())
    assert known.read(tmp_path / "known", ROOTS[:1], Coverage()) is None
    assert known.read(tmp_path / "known", ROOTS, Coverage(leave_out=("x/",))) is None


def test_a_damaged_or_an_older_file_is_as_none(tmp_path: Path) -> None:
    path = tmp_path / "known"
    assert known.read(path, ROOTS, Coverage()) is None
    known.write(path, KEPT, ROOTS, Coverage())
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        assert known.read(path, ROOTS, Coverage()) is None
        path.write_bytes(whole[:at])
        assert known.read(path, ROOTS, Coverage()) is None
    path.write_bytes(whole.replace(b"helix folders 2", b"helix folders 1"))
    assert known.read(path, ROOTS, Coverage()) is None
