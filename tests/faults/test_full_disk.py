"""The trial in its short form."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults.full_disk import INSIDE, trials


@pytest.mark.skipif(sys.platform != "linux", reason="mount namespaces are Linux's")
def test_on_a_full_disk_what_is_changed_is_recorded_or_nothing_is_changed() -> None:
    if subprocess.run(
        [*INSIDE, "mount -t tmpfs none /mnt"], capture_output=True, check=False
    ).returncode:
        pytest.skip("no file system may be mounted here, not even in a namespace of its own")
    found = trials(6, 4)
    assert found["calls"] == 6
    assert found["changed"] > 0
    assert [key for key in found if key.startswith("LOST")] == []
