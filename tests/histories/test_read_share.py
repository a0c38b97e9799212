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
    describe_read_share,
    measure_read_shares,
    sentences_about_unread_agents,
)
from tests.histories import written

NOW = 2_000_000_000.0


def write(path: Path, size: int, age: float = 0.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (NOW - age, NOW - age))


def shares_of(home: Path) -> dict[str, ReadShare]:
    return {share.kind: share for share in measure_read_shares(HistoryPlaces(home, {}), NOW)}


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
    shares = shares_of(tmp_path)
    assert sorted(shares) == ["claude-code", "cline", "codex", "opencode"]
    assert all(share.read_bytes == share.bytes > 0 for share in shares.values())
    assert list(sentences_about_unread_agents(list(shares.values()))) == []
    said = describe_read_share(shares["opencode"])
    assert said == "opencode: all 1.0 MB that may hold sessions are read."


def test_an_agent_of_which_nothing_new_is_read_is_named_with_its_largest_files(
    tmp_path: Path,
) -> None:
    sessions = tmp_path / ".codex" / "sessions"
    write(sessions / "rollout-old.jsonl", LEAST_BYTES, age=RECENT_SECONDS + 1)
    write(sessions / "threads-2.db", LEAST_BYTES)
    write(sessions / "index.json", 10)
    share = shares_of(tmp_path)["codex"]
    assert (share.read_bytes, share.recent_read_bytes) == (LEAST_BYTES, 0)
    (sentence,) = sentences_about_unread_agents([share])
    assert "Codex wrote 1.0 MB" in sentence
    assert "threads-2.db, index.json" in sentence
    assert describe_read_share(share) == (
        "Codex: 1.0 of 2.1 MB that may hold sessions are read. Not read: threads-2.db, index.json."
    )
    # As soon as one of them is read, its reader tells what it does not know.
    write(sessions / "rollout-new.jsonl", 1)
    assert list(sentences_about_unread_agents([shares_of(tmp_path)["codex"]])) == []


def test_a_few_notes_of_an_agent_that_nobody_works_with_are_no_reason_to_say_something(
    tmp_path: Path,
) -> None:
    write(tmp_path / ".codex" / "sessions" / "index.json", LEAST_BYTES - 1)
    assert list(sentences_about_unread_agents([shares_of(tmp_path)["codex"]])) == []


def test_a_database_with_none_of_the_known_tables_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / ".local" / "share" / "opencode" / "opencode-next.db"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE session_v3 (id TEXT)")
        made.execute("INSERT INTO session_v3 VALUES ('s')")
    said = describe_read_share(shares_of(tmp_path)["opencode"])
    assert said == (
        "opencode: 0.0 of 0.0 MB that may hold sessions are read. Not read: opencode-next.db."
    )
