"""Our own agent, over its own command, as the foreign agent: both sides of the protocol
are ours, and each checks the other.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from helix_desktop import cli, program_folders
from helix_desktop.engine.facts import FilesChanged, TurnEnd
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.program_settings import ACP_AGENTS, ProgramSettings
from tests.acp_agent.editor import ROOT
from tests.acp_client.conftest import calls, facts_of, run_turn, said
from tests.workbench.conftest import Desks


async def test_our_own_agent_works_as_a_foreign_one(
    desks: Desks, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    inner = str(tmp_path / "inner")
    assert (
        await asyncio.to_thread(
            cli.main, ["--home", inner, "workspace", "new", "w", "--folder", str(folder)]
        )
        == 0
    )
    assert (
        await asyncio.to_thread(cli.main, ["--home", inner, "model", "set", "-w", "w", "demo/demo"])
        == 0
    )
    places = program_folders.find_program_folders(tmp_path / "home")
    places.settings_file.parent.mkdir(parents=True, exist_ok=True)
    line = f"Helix = {sys.executable} -m helix_desktop --home {inner} acp"
    ProgramSettings(places.settings_file).change_setting(ACP_AGENTS, line)
    bench = await desks().create_workspace("outer", folder)
    session = await bench.start_conversation(acp_agent="Helix")
    assert (await run_turn(session, "read src/pairs.py")).reason is TurnEnd.DONE
    assert calls(session)
    assert said(session)
    ended = await run_turn(session, "write b.txt: text", PermissionAnswer(allowed=True))
    assert ended.reason is TurnEnd.DONE
    assert (folder / "b.txt").read_text() == "text\n"
    assert facts_of(session, FilesChanged)[-1].names == ("b.txt",)
    foreign = await bench.acp.open_conversation(session.conversation)
    assert {"mode", "model"} <= set(foreign.choices)
