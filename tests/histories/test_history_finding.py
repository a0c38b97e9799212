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


def opencode_session(data: Path, name: str, messages: int, **more: object) -> int:
    """How many bytes it and its messages have."""
    times = {"created": 1767323041000, "updated": 1767323099000}
    value = {"id": name, "directory": "/home/me/project", "time": times, **more}
    files = [written.lines(data / "storage" / "session" / "p" / f"{name}.json", [value])]
    for number in range(messages):
        path = data / "storage" / "message" / name / f"msg_{number}.json"
        files.append(written.lines(path, [{"id": f"msg_{number}", "role": "user"}]))
    return sum(file.stat().st_size for file in files)


def test_older_sessions_of_opencode_are_found_each_in_its_file_where_there_is_no_database(tmp_path: Path) -> None:
    data = tmp_path / ".local" / "share" / "opencode"
    sizes = [opencode_session(data, name, messages) for name, messages in (("ses_1", 2), ("ses_2", 0))]
    opencode_session(data, "ses_3", 1, parentID="ses_1")
    found = list(history_finding.find_histories(history_finding.HistoryPlaces(tmp_path, {})))
    assert [(one.kind, one.path.stem, one.folder, one.conversations) for one in found] == [
        ("opencode", name, "/home/me/project", 1) for name in ("ses_1", "ses_2")
    ]
    assert [one.size for one in found] == sizes
    assert {(one.first, one.last) for one in found} == {(1767323041.0, 1767323099.0)}


def test_sessions_of_opencode_that_its_database_took_over_are_not_found_twice(tmp_path: Path) -> None:
    share = tmp_path / ".local" / "share"
    path = written.opencode(share)
    opencode_session(share / "opencode", "ses_1", 1)
    (found,) = history_finding.find_histories(history_finding.HistoryPlaces(tmp_path, {}))
    assert (found.path, found.size) == (path, path.stat().st_size)
