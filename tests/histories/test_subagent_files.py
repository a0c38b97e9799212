"""The files of a session's sub-agents are found with it, where each program puts them."""

from __future__ import annotations

from pathlib import Path

from helix_desktop.histories import gemini_cli_history, history_finding, subagent_files
from helix_desktop.histories.history_format import HistoryPlaces
from tests.histories import written


def older_subagent_of_claude(folder: Path, name: str, session: str) -> Path:
    """A sub-agent's file as Claude Code wrote it before it had a folder for each session."""
    rows = [
        written.claude_said(1, None, f"look as {name}", isSidechain=True, agentId=name),
        written.claude_reply(2, 1, "c1", written.text("Seen."), isSidechain=True, agentId=name),
    ]
    for row in rows:
        row["sessionId"] = session
    return written.lines(folder / f"agent-{name}.jsonl", rows)


def test_older_sub_agents_beside_a_session_come_with_that_session_alone(tmp_path: Path) -> None:
    path = written.claude(tmp_path / ".claude")
    other_rows = [{**row, "sessionId": "session-2"} for row in written.claude_session()]
    other = written.lines(path.with_name("session-2.jsonl"), other_rows)
    own = older_subagent_of_claude(path.parent, "a1", "session-1")
    of_other = older_subagent_of_claude(path.parent, "a2", "session-2")
    older_subagent_of_claude(path.parent, "a3", "deleted-session")
    older_subagent_of_claude(path.parent / "session-2" / "subagents", "a4", "session-2")
    outside = older_subagent_of_claude(tmp_path, "a5", "session-1")
    (path.parent / "agent-a5.jsonl").symlink_to(outside)
    newer = path.parent / "session-2" / "subagents" / "agent-a4.jsonl"

    assert subagent_files.list_files_with_subagents(path) == (path, own)
    assert subagent_files.list_files_with_subagents(other) == (other, newer, of_other)
    assert subagent_files.list_files_with_subagents(own) == (own,)
    renamed = path.rename(path.with_name("kept for later.jsonl"))
    assert subagent_files.list_files_with_subagents(renamed) == (renamed, own)


def test_sub_agents_come_with_their_session(tmp_path: Path) -> None:
    path = written.claude(tmp_path / ".claude")
    child = written.lines(
        path.parent / path.stem / "subagents" / "agent-a1.jsonl", written.claude_session()
    )
    (found,) = history_finding.find_histories(HistoryPlaces(tmp_path, {}))
    assert subagent_files.list_files_with_subagents(found.path) == (path, child)


def test_sub_agents_of_gemini_come_with_their_session_and_are_followed_by_themselves(
    tmp_path: Path,
) -> None:
    """Their files are named by their id alone, in a folder that is named by the session's."""
    chats = tmp_path / ".gemini" / "tmp" / "work" / "chats"
    chats.mkdir(parents=True)
    (chats.parent / ".project_root").write_text("/home/me/project\n")
    head = {"projectHash": "p", "startTime": "2026-01-02T03:04:01Z"}
    main = written.lines(
        chats / "session-2026-01-02T03-04-ec5bc4f6.jsonl", [{"sessionId": "ec5bc4f6-7c40", **head}]
    )
    child = written.lines(
        chats / "ec5bc4f6-7c40" / "fdf35fac-d6a7.jsonl", [{"sessionId": "fdf35fac-d6a7", **head}]
    )
    written.lines(
        chats / "aa5bc4f6-7c40" / "bdf35fac-d6a7.jsonl", [{"sessionId": "bdf35fac-d6a7", **head}]
    )
    (found,) = history_finding.find_histories(HistoryPlaces(tmp_path, {}))
    assert subagent_files.list_files_with_subagents(found.path) == (main, child)
    assert history_finding.find_history_of_changed_file(gemini_cli_history.KIND, child) == child
    (alone,) = history_finding.find_histories_in_file(gemini_cli_history.KIND, child)
    assert (alone.path, alone.folder) == (child, "/home/me/project")


def test_many_sessions_of_a_folder_bring_their_own_sub_agents(tmp_path: Path) -> None:
    path = written.claude(tmp_path / ".claude")
    own = older_subagent_of_claude(path.parent, "a1", "session-1")
    codex = written.codex(tmp_path / ".codex")
    files = subagent_files.find_files_of_sessions([path, codex, path])
    assert files == {path: (path, own), codex: (codex,)}


def test_files_of_sub_agents_come_behind_all_sessions(tmp_path: Path) -> None:
    claude = tmp_path / ".claude" / "projects" / "p"
    gemini = tmp_path / ".gemini" / "tmp" / "work" / "chats"
    files = [
        claude / "agent-a1.jsonl",
        claude / "b0" / "subagents" / "agent-a2.jsonl",
        gemini / "ec5b-7c40" / "fdf3.jsonl",
        claude / "b0.jsonl",
        gemini / "session-2026-01-02T03-04-ec5b.jsonl",
        tmp_path / ".codex" / "sessions" / "rollout-1.jsonl",
        tmp_path / ".local" / "share" / "opencode" / "opencode.db",
    ]
    assert subagent_files.put_subagents_last(files) == files[3:] + files[:3]
