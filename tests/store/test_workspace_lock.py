from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from helix_desktop.errors import StoreBusy, StoreFailed
from helix_desktop.store.workspace_lock import WorkspaceLock


def test_a_second_owner_is_refused_even_in_the_same_process(tmp_path: Path) -> None:
    first = WorkspaceLock(tmp_path / "lock")
    with pytest.raises(StoreBusy, match=r"open in another program \(process \d+\)"):
        WorkspaceLock(tmp_path / "lock")
    first.release_lock()
    WorkspaceLock(tmp_path / "lock").release_lock()


def test_a_dead_owner_lets_go(tmp_path: Path) -> None:
    script = "import os, sys, pathlib; from helix_desktop.store import workspace_lock; workspace_lock.WorkspaceLock(pathlib.Path(sys.argv[1])); os._exit(9)"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "lock")], check=False)
    assert done.returncode == 9
    WorkspaceLock(tmp_path / "lock").release_lock()


LEFT = """
import os, sys, pathlib
from helix_desktop.store import workspace_lock
workspace_lock.WorkspaceLock(pathlib.Path(sys.argv[1]))
if os.fork():
    os._exit(9)
os.read(0, 1)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="a command there inherits no open files")
def test_a_command_that_a_dead_owner_was_starting_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", LEFT, str(tmp_path / "lock")], stdin=subprocess.PIPE
    )
    assert owner.wait() == 9
    assert owner.stdin is not None
    waited: list[float] = []
    pause = time.sleep

    def let_go(seconds: float) -> None:
        waited.append(seconds)
        owner.stdin.close()  # type: ignore[union-attr]
        pause(seconds)

    monkeypatch.setattr(time, "sleep", let_go)
    WorkspaceLock(tmp_path / "lock").release_lock()
    assert waited


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="cannot be opened"):
        WorkspaceLock(tmp_path / "none" / "lock")
