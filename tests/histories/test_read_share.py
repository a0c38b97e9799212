"""An agent that begins to write its sessions in another form is noticed."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.read_share import (
    LEAST_BYTES,
    RECENT_SECONDS,
    ReadShare,
    measure_read_shares,
    sentences_about_share,
)
from tests.histories import written

NOW = 2_000_000_000.0


def write(path: Path, size: int, age: float = 0.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW - age, NOW - age))


def shares_of(home: Path) -> dict[str, ReadShare]:
    return {share.kind: share for share in measure_read_shares(HistoryPlaces(home, {}), now=NOW)}


def sentences(home: Path) -> list[str]:
    return [said for share in shares_of(home).values() for said in sentences_about_share(share)]


def test_what_the_agents_write_today_is_read_and_nothing_is_said(tmp_path: Path) -> None:
    claude = written.claude(tmp_path / ".claude")
    write(claude.with_suffix("") / "subagents" / "agent-a1.jsonl", 100)
    write(claude.with_suffix("") / "subagents" / "agent-a1.meta.json", 10)
    write(claude.with_suffix("") / "tool-results" / "toolu_1.txt", LEAST_BYTES)
    write(tmp_path / ".codex" / "sessions" / "2026" / "rollout-1.jsonl", 200)
    write(tmp_path / ".local" / "share" / "opencode" / "opencode.db-wal", LEAST_BYTES)
    write(tmp_path / ".local" / "share" / "opencode" / "storage" / "session" / "ses_1.json", 50)
    write(tmp_path / ".local" / "share" / "opencode" / "log" / "a.log", LEAST_BYTES)
    write(tmp_path / ".cline" / "data" / "tasks" / "1" / "ui_messages.json", 30)
    write(tmp_path / ".gemini" / "tmp" / "project" / "logs.json", 30)
    copilot = tmp_path / ".copilot" / "session-state" / "1"
    write(copilot / "events.jsonl", 60)
    write(copilot / "session.db", LEAST_BYTES)
    write(copilot / "rewind-file-snapshots" / "tracking.json", 30)
    shares = shares_of(tmp_path)
    assert sorted(shares) == [
        "claude-code",
        "cline",
        "codex",
        "copilot-cli",
        "gemini-cli",
        "opencode",
    ]
    assert all(share.read_bytes == share.all_files.bytes > 0 for share in shares.values())
    assert sentences(tmp_path) == []


def test_an_agent_of_which_nothing_new_is_read_is_named_with_its_largest_files(
    tmp_path: Path,
) -> None:
    sessions = tmp_path / ".codex" / "sessions"
    write(sessions / "rollout-old.jsonl", LEAST_BYTES, age=RECENT_SECONDS + 1)
    write(sessions / "threads-2.db", LEAST_BYTES)
    write(sessions / "index.json", 10)
    share = shares_of(tmp_path)["codex"]
    assert (share.read_bytes, share.recent.bytes) == (LEAST_BYTES, share.recent_unread.bytes)
    (sentence,) = sentences(tmp_path)
    assert "Codex wrote 1.0 MB" in sentence
    assert "threads-2.db, index.json" in sentence
    # As soon as one of them is read, its reader tells what it does not know.
    write(sessions / "rollout-new.jsonl", 1)
    assert sentences(tmp_path) == [
        "Codex: 2 files (1.0 MB) are not read: threads-2.db, index.json. They stay as they are."
    ]


def test_a_few_notes_of_an_agent_that_nobody_works_with_are_said_with_their_size(
    tmp_path: Path,
) -> None:
    write(tmp_path / ".codex" / "sessions" / "index.json", 1)
    assert sentences(tmp_path) == [
        "Codex: 1 file (1 byte) is not read: index.json. It stays as it is."
    ]
    for number in range(4):
        write(tmp_path / ".codex" / "sessions" / f"{number}.json", 100_000)
    assert sentences(tmp_path) == [
        "Codex: 5 files (400.0 KB) are not read: 0.json, 1.json, 2.json and others. They stay as they are."
    ]


def test_a_database_with_none_of_the_known_tables_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / ".local" / "share" / "opencode" / "opencode-next.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE session_v3 (id TEXT)")
        made.execute("INSERT INTO session_v3 VALUES ('s')")
    (said,) = sentences(tmp_path)
    assert said.startswith(
        "opencode: 1 file (8.2 KB) holds something that is not read yet: the table session_v3 (1). "
        "It stays as it is."
    )


def test_pipes_and_links_are_not_counted(tmp_path: Path) -> None:
    sessions = tmp_path / ".codex" / "sessions"
    write(tmp_path / "outside.json", LEAST_BYTES)
    sessions.mkdir(parents=True)
    os.mkfifo(sessions / "index.json")
    (sessions / "link.json").symlink_to(tmp_path / "outside.json")
    assert shares_of(tmp_path) == {}
