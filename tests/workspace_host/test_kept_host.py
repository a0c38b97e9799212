"""The process that has a workspace open for clients: started where nobody has, and heard if it fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helix_desktop.errors import HelixError
from helix_desktop.resident.resident_client import CollectingConsole
from helix_desktop.workspace_host import kept_host
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


async def test_who_can_be_told_waits_for_a_host_that_takes_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy computer, who has the workspace open may get no processor for a minute."""
    monkeypatch.setattr(kept_host, "OPEN_SECONDS", 0.0)
    monkeypatch.setattr(kept_host, "TOLD_AFTER_SECONDS", 0.0)
    program = [sys.executable, "-I", "-c", "import time; time.sleep(5)"]
    console = CollectingConsole()

    async def look() -> str | None:
        if console.complaint:
            return "connected"
        return None

    starter = HostStarter(tmp_path, "w", program, console)
    assert await starter.connect_or_start(look) == "connected"
    assert console.complaint.startswith("The workspace is not open yet. Waiting for the program")
    with pytest.raises(HelixError, match=r"could not be opened\."):
        await HostStarter(tmp_path, "w", program).connect_or_start(look)
