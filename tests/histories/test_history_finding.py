"""Where histories lie: each program's own place, with the folder and the days of each."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.histories import gemini_cli_history, history_finding
from helix_desktop.histories.history_format import HistoryPlaces
from tests.histories import written


def test_each_program_is_looked_for_where_it_writes(tmp_path: Path) -> None:
    home = tmp_path / "home"
    written.claude(home / ".claude")
    written.codex(home / ".codex")
    written.opencode(home / ".local" / "share")
    written.gemini(home / ".gemini")
    written.pi(home / ".pi" / "agent")
    written.goose(home / ".local" / "share")
    found = {one.kind: one for one in history_finding.find_histories(HistoryPlaces(home, {}))}
    assert sorted(found) == ["claude-code", "codex", "gemini-cli", "goose", "opencode", "pi"]
    assert {one.folder for one in found.values()} == {"/home/me/project"}
    assert {one.conversations for one in found.values()} == {1}
    assert found["claude-code"].first == 1767323041.0


def test_the_program_that_wrote_a_file_is_known_by_its_folder(tmp_path: Path) -> None:
    folders = history_finding.history_folders(HistoryPlaces(tmp_path, {}))
    written.codex(tmp_path / ".codex")
    written.claude(tmp_path / ".claude")
    for found in history_finding.find_histories(HistoryPlaces(tmp_path, {})):
        assert history_finding.find_kind_by_folder(folders, found.path) == found.kind
    assert history_finding.find_kind_by_folder(folders, tmp_path / "export.jsonl") == ""


def test_an_empty_home_has_none_and_variables_count(tmp_path: Path) -> None:
    assert list(history_finding.find_histories(HistoryPlaces(tmp_path, {}))) == []
    written.claude(tmp_path / "elsewhere")
    places = HistoryPlaces(tmp_path, {"CLAUDE_CONFIG_DIR": str(tmp_path / "elsewhere")})
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


def test_older_sessions_of_opencode_are_found_each_in_its_file_where_there_is_no_database(
    tmp_path: Path,
) -> None:
    data = tmp_path / ".local" / "share" / "opencode"
    sizes = [
        opencode_session(data, name, messages) for name, messages in (("ses_1", 2), ("ses_2", 0))
    ]
    opencode_session(data, "ses_3", 1, parentID="ses_1")
    found = list(history_finding.find_histories(HistoryPlaces(tmp_path, {})))
    assert [(one.kind, one.path.stem, one.folder, one.conversations) for one in found] == [
        ("opencode", name, "/home/me/project", 1) for name in ("ses_1", "ses_2")
    ]
    assert [one.size for one in found] == sizes
    assert {(one.first, one.last) for one in found} == {(1767323041.0, 1767323099.0)}


def test_sessions_of_opencode_that_its_database_took_over_are_not_found_twice(
    tmp_path: Path,
) -> None:
    share = tmp_path / ".local" / "share"
    path = written.opencode(share)
    opencode_session(share / "opencode", "ses_1", 1)
    (found,) = history_finding.find_histories(HistoryPlaces(tmp_path, {}))
    assert (found.path, found.size) == (path, path.stat().st_size)


def find(home: Path, **variables: str) -> list[history_finding.FoundHistories]:
    return list(history_finding.find_histories(HistoryPlaces(home, variables)))


def test_the_programs_own_variables_say_where_to_look(tmp_path: Path) -> None:
    written.codex(tmp_path / "codex")
    written.opencode(tmp_path / "data")
    written.goose(tmp_path / "data")
    written.gemini(tmp_path / "g" / ".gemini")
    written.pi(tmp_path / "pi")
    variables = {
        "CODEX_HOME": str(tmp_path / "codex"), "XDG_DATA_HOME": str(tmp_path / "data"),
        "GEMINI_CLI_HOME": str(tmp_path / "g"), "PI_CODING_AGENT_DIR": str(tmp_path / "pi"),
    }  # fmt: skip
    assert sorted(one.kind for one in find(tmp_path / "home", **variables)) == ["codex", "gemini-cli", "goose", "opencode", "pi"]  # fmt: skip
    assert find(tmp_path / "home") == []


def test_tasks_of_cline_lie_in_its_own_folder_or_with_an_editor(tmp_path: Path) -> None:
    own = written.cline(tmp_path / ".cline" / "data")
    text = json.loads(own.read_text())
    text[0]["content"].append({"type": "text", "text": "# Current Working Directory (/w) Files"})
    own.write_text(json.dumps(text))
    editor = written.cline(
        tmp_path / ".config" / "Code" / "User" / "globalStorage" / "saoudrizwan.claude-dev"
    )
    found = find(tmp_path)
    assert [(one.kind, one.path, one.folder) for one in found] == [
        ("cline", own, "/w"),
        ("cline", editor, ""),
    ]
    assert found[0].size == own.stat().st_size
    assert found[0].last == found[0].first == own.stat().st_mtime


def test_empty_files_and_those_of_sub_agents_are_no_sessions(tmp_path: Path) -> None:
    path = written.claude(tmp_path / ".claude")
    (path.parent / "empty.jsonl").touch()
    written.lines(path.parent / "agent-a1.jsonl", written.claude_session())
    written.lines(path.parent / "other" / "subagents" / "x.jsonl", written.claude_session())
    written.gemini(tmp_path / ".gemini").rename(tmp_path / ".gemini" / "session-1.jsonl")
    (found,) = find(tmp_path)
    assert (found.path, found.size, found.last) == (path, path.stat().st_size, path.stat().st_mtime)


def test_links_that_lead_out_are_not_followed(tmp_path: Path) -> None:
    outside = written.claude(tmp_path / "outside")
    folder = tmp_path / ".claude" / "projects" / "p"
    folder.mkdir(parents=True)
    (folder / "s.jsonl").symlink_to(outside)
    assert find(tmp_path) == []


def test_a_database_is_shared_out_among_its_folders(tmp_path: Path) -> None:
    path = written.goose(tmp_path / ".local" / "share")
    with closing(sqlite3.connect(path)) as made, made:
        add = "INSERT INTO sessions VALUES(?, 'x', ?, ?, ?)"
        made.execute(add, ("g2", "/home/me/project", "2026-01-01 00:00:00", "2026-01-03 00:00:00"))
        made.execute(add, ("g3", None, "2026-01-05 00:00:00", "2026-01-06 00:00:00"))
    bare, project = find(tmp_path)
    size = path.stat().st_size
    assert [(one.folder, one.conversations, one.size) for one in (bare, project)] == [
        ("", 1, size // 3),
        ("/home/me/project", 2, size * 2 // 3),
    ]
    assert (project.first, project.last) == (1767225600.0, 1767398400.0)
    path.write_bytes(b"SQLite format 3\0" + b"?" * 999)
    assert find(tmp_path) == []


def test_which_changed_file_is_a_history() -> None:
    def changed(kind: str, path: str) -> str:
        found = history_finding.find_history_of_changed_file(kind, Path(path))
        return "" if found is None else str(found)

    assert (
        changed("opencode", "/d/opencode.db")
        == changed("opencode", "/d/opencode.db-wal")
        == "/d/opencode.db"
    )
    assert changed("goose", "/d/sessions.db-wal") == "/d/sessions.db"
    assert changed("goose", "/d/old.jsonl") == "/d/old.jsonl"
    assert changed("opencode", "/d/old.jsonl") == ""
    assert changed("codex", "/d/rollout-1.jsonl") == "/d/rollout-1.jsonl"
    assert changed("codex", "/d/other.jsonl") == ""
    assert changed("gemini-cli", "/d/chats/session-1.jsonl") == "/d/chats/session-1.jsonl"
    assert changed("gemini-cli", "/d/session-1.jsonl") == ""
    assert changed("unknown", "/d/x.jsonl") == ""


def test_one_file_is_looked_at_also_by_a_copy_of_it(tmp_path: Path) -> None:
    path = written.claude(tmp_path / ".claude")
    (found,) = history_finding.find_histories_in_file("claude-code", path)
    assert (found.path, found.folder, found.conversations, found.size) == (
        path,
        "/home/me/project",
        1,
        path.stat().st_size,
    )
    copy = written.lines(tmp_path / "copy", [{"cwd": "/other"}])
    (found,) = history_finding.find_histories_in_file("claude-code", path, copy)
    assert (found.path, found.folder, found.size) == (path, "/other", copy.stat().st_size)
    database = written.opencode(tmp_path / "a")
    (found,) = history_finding.find_histories_in_file("opencode", database)
    assert (found.path, found.folder) == (database, "/home/me/project")
    (found,) = history_finding.find_histories_in_file(
        "opencode", tmp_path / "gone" / "opencode.db", database
    )
    assert found.path == database


def test_the_first_folder_and_time_that_a_file_names_count(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [
        {"type": "x"},
        {"payload": {"cwd": "/inner"}, "timestamp": 5},
        {"cwd": "/later", "timestamp": 9},
    ]
    path = written.lines(tmp_path / ".claude" / "projects" / "p" / "s.jsonl", rows)
    path.write_text("no JSON\n" + path.read_text())
    (found,) = find(tmp_path)
    assert (found.folder, found.first) == ("/inner", 5.0)


def test_kilo_has_the_tables_of_opencode_in_a_folder_of_its_own(tmp_path: Path) -> None:
    share = tmp_path / ".local" / "share"
    made = written.opencode(tmp_path / "made")
    (share / "kilo").mkdir(parents=True)
    database = made.rename(share / "kilo" / "kilo.db")
    (found,) = find(tmp_path)
    assert (found.path, found.kind, found.program) == (database, "opencode", "Kilo")
    assert history_finding.find_history_of_changed_file(found.kind, database) == database
    (tmp_path / "elsewhere").mkdir()
    moved = database.rename(tmp_path / "elsewhere" / "mine.db")
    places = HistoryPlaces(tmp_path / "home", {"KILO_DB": str(moved)})
    (named,) = history_finding.find_histories(places)
    assert named.path == moved


def test_this_users_places_are_those_of_home_and_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/elsewhere")
    places = HistoryPlaces.of_this_user()
    assert places.home == Path.home()
    assert places.folder_from_variable("CLAUDE_CONFIG_DIR", ".claude") == Path("/elsewhere")
    assert places.folder_from_variable("NOBODY_SETS_THIS", ".claude") == Path.home() / ".claude"


def test_a_file_of_opencode_that_cannot_be_read_hides_no_other_history(tmp_path: Path) -> None:
    """It ended the search for the histories of all programs."""
    places = HistoryPlaces(tmp_path, {})
    folder = tmp_path / ".local" / "share" / "opencode" / "storage" / "session" / "p"
    folder.mkdir(parents=True)
    for name in "abc":
        (folder / f"ses_{name}.json").write_text(json.dumps({"directory": f"/{name}"}))
    with (folder / "ses_b.json").open("r+b") as file:
        file.truncate(1 << 40)
    assert {found.folder for found in history_finding.find_histories(places)} == {"/a", "/c"}


def test_the_folder_of_a_gemini_project_is_no_longer_than_a_path_can_be(tmp_path: Path) -> None:
    file = tmp_path / "chats" / "session.json"
    file.parent.mkdir()
    file.write_text("{}")
    for count, length in (
        (4_095, 4_095),
        (4_096, 0),
        (10, 10),
    ):  # Of the file, with the end of its line.
        (tmp_path / ".project_root").write_text("/" + "w" * (count - 1) + "\n")
        folder, time = history_finding._read_folder_and_time(gemini_cli_history.KIND, file)
        assert (len(folder), time) == (length, 0.0)


def test_a_working_folder_that_cannot_be_looked_at_counts_as_gone(tmp_path: Path) -> None:
    """As one of root. The tests' user may enter every folder, so the system refuses the name."""
    for folder, is_present in [
        (str(tmp_path), True),
        (str(tmp_path / "gone"), False),
        (str(tmp_path / ("refused" * 50)), False),
        (".", False),
        ("", False),
    ]:
        found = history_finding.FoundHistories("codex", tmp_path, folder, 1, 0, 0.0, 0.0)
        assert found.is_folder_present() == is_present
