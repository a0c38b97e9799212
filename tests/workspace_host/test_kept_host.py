"""The process that has a workspace open for clients: started where nobody has, and heard if it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helix_desktop.errors import HelixError
from helix_desktop.workspace_host.kept_host import HostStarter


async def nobody() -> None:
    return None


async def test_what_a_host_says_when_it_cannot_open_the_workspace_is_said(tmp_path: Path) -> None:
    program = [sys.executable, "-I", "-c", "import sys; sys.exit('The disk is full.')"]
    starter = HostStarter(tmp_path, "w", program)
    with pytest.raises(HelixError, match=r"could not be opened\. The disk is full\."):
        await starter.connect_or_start(nobody)


async def test_a_host_is_started_once_and_waited_for(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    script = f"open({str(marks)!r}, 'a').write('started\\n'); import time; time.sleep(5)"
    starter = HostStarter(tmp_path, "w", [sys.executable, "-I", "-c", script])
    looks = 0

    async def look() -> str | None:
        nonlocal looks
        looks += 1
        if looks > 3 and marks.exists():
            return "connected"
        return None

    assert await starter.connect_or_start(look) == "connected"
    assert marks.read_text() == "started\n"
