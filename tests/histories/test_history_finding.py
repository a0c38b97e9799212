"""Where histories lie: each program's own place, with the folder and the days of each."""

from __future__ import annotations

from pathlib import Path

from helix_desktop.histories import history_finding
from tests.histories import written


def test_each_program_is_looked_for_where_it_writes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    written.claude(home / ".claude")
    written.codex(home / ".codex")
    written.opencode(home / ".local" / "share")
    written.gemini(home / ".gemini")
    written.pi(home / ".pi" / "agent")
    written.goose(home / ".local" / "share")
    found = {one.kind: one for one in history_finding.find_histories(history_finding.HistoryPlaces(home, {}))}
    assert sorted(found) == ["claude-code", "codex", "gemini-cli", "goose", "opencode", "pi"]
    assert {one.folder for one in found.values()} == {"/home/me/project"}
    assert {one.conversations for one in found.values()} == {1}
    assert found["claude-code"].first == 1767323041.0


def test_sub_agents_come_with_their_session(tmp_path: Path) -> None:
    path = written.claude(tmp_path / ".claude")
    child = written.lines(path.parent / path.stem / "subagents" / "agent-a1.jsonl", written.claude_session())
    (found,) = history_finding.find_histories(history_finding.HistoryPlaces(tmp_path, {}))
    assert history_finding.files_belonging_to(found) == (path, child)


def test_an_empty_home_has_none_and_variables_count(tmp_path: Path) -> None:
    assert list(history_finding.find_histories(history_finding.HistoryPlaces(tmp_path, {}))) == []
    written.claude(tmp_path / "elsewhere")
    places = history_finding.HistoryPlaces(tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")})
    assert len(list(history_finding.find_histories(places))) == 1
