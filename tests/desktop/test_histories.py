"""Conversations from other programs for the window, with real files and a real desk."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from helix_desktop import places
from helix_desktop.desktop.histories import Histories
from helix_desktop.gui.bring_in.port import Outcome
from helix_desktop.secrets import Secrets
from helix_desktop.workbench import Desk
from tests.histories import written


async def test_what_a_running_session_writes_comes_until_it_is_switched_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    for name in ("CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "GEMINI_CLI_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    values = written.claude_session()
    path = written.lines(tmp_path / ".claude" / "projects" / "-p" / "s.jsonl", values[:6])
    where = places.find(tmp_path / "home")
    desk = Desk(where, Secrets(where.key_file))
    histories = Histories(desk)
    groups = await histories.find()
    first = await histories.bring_in(groups, lambda *_: None)
    heard: asyncio.Queue[Outcome] = asyncio.Queue()
    histories.watch(groups, heard.put_nowait)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(value) + "\n" for value in values[6:])
    grown = await asyncio.wait_for(heard.get(), 60)
    assert (first.new, grown.new, grown.grown) == (1, 0, 1)
    assert histories.watching
    histories.watch((), heard.put_nowait)
    assert not histories.watching
    await desk.aclose()
