"""A step begins only if there is room to record it. On a real full disk:
tests/faults/full_disk.py.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from helix_desktop.errors import StoreFull
from helix_desktop.tools.changes.checkpoints import Checkpoints
from tests.tools.changes.conftest import Net


async def test_a_step_that_could_not_be_recorded_does_not_begin(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net.checkpoints = Checkpoints([net.folder], net.cache, stores=tmp_path)

    def allocate(handle: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", allocate)
        with pytest.raises(
            StoreFull, match=r"could not be recorded and undone\. Nothing was run\."
        ):
            await net.checkpoints.begin_step("1", "c", "command")
    assert net.checkpoints.steps.open_steps_of_conversation("c") == ()
    step = await net.checkpoints.begin_step("1", "c", "tool", 1 << 20)
    assert step is not None
    assert step.held_space is not None
    assert os.fstat(step.held_space.fileno()).st_blocks * 512 >= 5 << 20
    await net.checkpoints.end_step(step)
    assert step.held_space.closed
