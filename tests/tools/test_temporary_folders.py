"""What killed programs leave in the folder for temporary files is removed, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from helix_desktop.tools import temporary_folders

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no lock there")
LIVING = """
import sys
from helix_desktop.tools import temporary_folders

print(temporary_folders.create_scratch_folder()[0], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def test_the_folders_of_a_killed_program_go_and_those_of_a_living_one_stay(temporary: Path) -> None:
    words = [sys.executable, "-c", LIVING]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        scratch = Path(other.stdout.readline().strip())
        (scratch / "deep").mkdir()
        (scratch / "deep" / "file").write_text("x")
        own, lock = temporary_folders.create_scratch_folder()
        there = sorted(temporary.iterdir())
        assert len(there) == 4
        temporary_folders.remove_abandoned_scratch_folders()
        assert sorted(temporary.iterdir()) == there
        other.kill()
        other.wait()
        temporary_folders.remove_abandoned_scratch_folders()
        assert sorted(temporary.iterdir()) == [own, own.with_name(f"{own.name}-given")]
        temporary_folders.remove_scratch_folder(own, lock)
        assert list(temporary.iterdir()) == []


def test_what_only_looks_like_one_stays(temporary: Path) -> None:
    (temporary / "mine").mkdir()
    (temporary / "mine" / "lock").touch()
    (temporary / "helix-link0000-given").symlink_to(temporary / "mine")
    for name in (
        "helix-unlocked-given",
        "helix-longer-name-given",
        "helix-linked00-given",
        "helix-toolink0-given",
    ):
        (temporary / name).mkdir()
    (temporary / "helix-longer-name-given" / "lock").touch()
    (temporary / "helix-linked00-given" / "lock").symlink_to(temporary / "mine" / "lock")
    (temporary / "helix-toolink0-given" / "lock").touch()
    (temporary / "helix-toolink0").symlink_to(temporary / "mine")
    before = sorted(path.relative_to(temporary) for path in temporary.rglob("*"))
    temporary_folders.remove_abandoned_scratch_folders()
    assert sorted(path.relative_to(temporary) for path in temporary.rglob("*")) == before
