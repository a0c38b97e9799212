"""Conversations from other programs for the window, with real files and a real desk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.desktop.history_import import HistoryImporter
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.histories import written


async def test_what_a_session_has_written_since_comes_with_the_next_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))
    for name in ("CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "GEMINI_CLI_HOME", "PI_CODING_AGENT_DIR"):
        monkeypatch.delenv(name, raising=False)
    values = written.claude_session()
    path = written.lines(tmp_path / ".claude" / "projects" / "-p" / "s.jsonl", values[:6])
    where = program_folders.find_program_folders(tmp_path / "home")
    desk = Workbenches(where, SecretStorage(where.key_file))
    histories = HistoryImporter(desk)
    groups = await histories.find_history_groups()
    first = await histories.import_history_groups(groups, lambda *_: None)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(value) + "\n" for value in values[6:])
    grown = await histories.import_history_groups(await histories.find_history_groups(), lambda *_: None)
    assert (first.new_count, grown.new_count, grown.grown_count) == (1, 0, 1)
    await desk.aclose()
