"""The file of stamps gives back what was written, or nothing at all."""

from __future__ import annotations

from pathlib import Path

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.tools.changes import known_state_file
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage

ROOTS = ("/home/\udcffme", "/b")
CHAIN = known_state_file.CheckpointChain(3, 4, 5)
KEPT = known_state_file.KnownFolderState(
    {"0": {"a\udcff": b"record", "b": b""}, "0/d": {}}, Digest(b"1" * 32), CHAIN
)


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    known_state_file.write_known_state(tmp_path / "known", KEPT, ROOTS, CheckpointCoverage())
    assert (
        known_state_file.read_known_state(tmp_path / "known", ROOTS, CheckpointCoverage()) == KEPT
    )


def test_other_folders_or_rules_begin_anew(tmp_path: Path) -> None:
    known_state_file.write_known_state(tmp_path / "known", KEPT, ROOTS, CheckpointCoverage())
    assert (
        known_state_file.read_known_state(tmp_path / "known", ROOTS[:1], CheckpointCoverage())
        is None
    )
    assert (
        known_state_file.read_known_state(
            tmp_path / "known", ROOTS, CheckpointCoverage(leave_out=("x/",))
        )
        is None
    )


def test_a_damaged_or_an_older_file_is_as_none(tmp_path: Path) -> None:
    path = tmp_path / "known"
    assert known_state_file.read_known_state(path, ROOTS, CheckpointCoverage()) is None
    known_state_file.write_known_state(path, KEPT, ROOTS, CheckpointCoverage())
    whole = path.read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 1,)) + whole[at + 1 :])
        assert known_state_file.read_known_state(path, ROOTS, CheckpointCoverage()) is None
        path.write_bytes(whole[:at])
        assert known_state_file.read_known_state(path, ROOTS, CheckpointCoverage()) is None
    path.write_bytes(whole.replace(b"helix folders 2", b"helix folders 1"))
    assert known_state_file.read_known_state(path, ROOTS, CheckpointCoverage()) is None
