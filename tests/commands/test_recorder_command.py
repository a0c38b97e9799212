"""`recorder`: what its status says before anything was recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.conftest import Helix


def test_the_status_says_whether_there_is_anything_to_read(
    tmp_path: Path, helix: Helix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    said = helix("recorder", "status")[1]
    assert said.startswith("The recorder is off. No conversations from other programs were found on this computer.\n")
    (tmp_path / ".claude" / "projects").mkdir(parents=True)
    said = helix("recorder", "status")[1]
    assert said.startswith(f"The recorder is off. It would read:\n- claude-code: {tmp_path}/.claude/projects\n")
