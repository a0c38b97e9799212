"""Once a day it is found whether agents write something that no reader knows."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.histories import daily_read_check, unknown_shapes
from helix_desktop.histories.daily_read_check import (
    CHECKED_FILES,
    DAY_SECONDS,
    ENDED_READING,
    UNREADABLE,
    DailyReadCheck,
    read_checked_files,
    seconds_until_check,
)
from helix_desktop.histories.history_finding import history_folders
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.read_share import measure_read_shares, sentences_about_unread
from tests.histories import written

NOW = 2_000_000_000.0
YEAR = 365 * DAY_SECONDS


def write_claude_session(home: Path, name: str, *rows: dict[str, Any]) -> Path:
    path = home / ".claude" / "projects" / "-p" / f"{name}.jsonl"
    return written.lines(path, [*written.claude_session(), *rows])


def with_mood(**more: object) -> dict[str, Any]:
    return written.claude_said(10, 9, "more", mood="good", **more)


def check_of(home: Path, now: float = NOW) -> DailyReadCheck:
    folders = [
        (kind, folder)
        for kind, folders in history_folders(HistoryPlaces(home, {})).items()
        for folder in folders
    ]
    return DailyReadCheck(home / "helix", folders, now=now)


def check_all(home: Path, now: float = NOW) -> int:
    """Check everything, and return how many files were read."""
    check = check_of(home, now)
    assert check.check_for(600.0)
    return check.files_read


def sentences(home: Path) -> list[str]:
    data = home / "helix"
    shares = measure_read_shares(HistoryPlaces(home, {}), data, NOW)
    return list(sentences_about_unread(data, shares))


@pytest.mark.parametrize(
    ("finished", "now", "seconds"),
    [
        (0.0, NOW, 0.0),
        (NOW, NOW, DAY_SECONDS),
        (NOW, NOW + DAY_SECONDS - 1, 1.0),
        (NOW, NOW + DAY_SECONDS, 0.0),
        (NOW, NOW + YEAR, 0.0),
        (NOW, NOW - YEAR, 0.0),
    ],
)
def test_a_check_is_due_after_a_day_and_once_if_the_clock_is_set_back(
    finished: float, now: float, seconds: float
) -> None:
    assert seconds_until_check(finished, now) == seconds


def test_if_all_is_read_nothing_is_said_and_the_next_check_reads_no_file(tmp_path: Path) -> None:
    write_claude_session(tmp_path, "a")
    written.codex(tmp_path / ".codex")
    written.opencode(tmp_path / ".local" / "share")
    (tmp_path / ".codex" / "sessions" / "rollout-empty.jsonl").touch()
    assert check_all(tmp_path) == 4
    assert sentences(tmp_path) == []
    assert check_all(tmp_path, NOW + DAY_SECONDS) == 0
    assert read_checked_files(tmp_path / "helix").finished_at == NOW + DAY_SECONDS


def test_a_file_that_grows_is_read_again_and_what_is_unknown_in_it_is_said_once(
    tmp_path: Path,
) -> None:
    path = write_claude_session(tmp_path, "a")
    write_claude_session(tmp_path, "b")
    check_all(tmp_path)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(with_mood()) + "\n")
    assert check_all(tmp_path, NOW + DAY_SECONDS) == 1
    size = path.stat().st_size
    (sentence,) = sentences(tmp_path)
    assert sentence == (
        f"Claude Code 2.1.197: 1 file ({size / 1e3:.1f} KB) holds something that is not read yet: "
        "the field mood (1). It stays as it is. Its versions 1.0 to 2.1.332 were seen."
    )
    write_claude_session(tmp_path, "c", with_mood(), written.claude_line(9, "thought-graph", 8))
    assert check_all(tmp_path, NOW + 2 * DAY_SECONDS) == 1
    (sentence,) = sentences(tmp_path)
    assert sentence.startswith("Claude Code 2.1.197: 2 files (")
    assert ": the field mood (2), thought-graph (1). They stay as they are." in sentence
    for name in ("a", "c"):
        (path.parent / f"{name}.jsonl").unlink()
    assert check_all(tmp_path, NOW + 3 * DAY_SECONDS) == 0
    assert sentences(tmp_path) == []


def test_a_table_under_another_name_is_said_without_a_check_and_not_twice_after_it(
    tmp_path: Path,
) -> None:
    path = written.opencode(tmp_path / ".local" / "share")
    check_all(tmp_path)
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("ALTER TABLE session RENAME TO session_v3")
    for _ in range(2):
        (sentence,) = sentences(tmp_path)
        assert sentence.startswith("opencode: 1 file (")
        assert "not read yet: the table session_v3 (1). It stays as it is." in sentence
        assert check_all(tmp_path) < 2


def test_what_an_import_has_found_is_said_until_the_next_check_and_not_twice(
    tmp_path: Path,
) -> None:
    write_claude_session(tmp_path, "a", with_mood())
    check_all(tmp_path)
    told = "Something that Claude Code 2.1.198 writes is not read yet: {} (7). It is kept as it is."
    known, new = told.format("the field mood"), told.format("the field weather")
    unknown_shapes.note_sentences(tmp_path / "helix", [known, new])
    first, second = sentences(tmp_path)
    assert ": the field mood (1)." in first
    assert second == new
    check_all(tmp_path, NOW + DAY_SECONDS)
    assert sentences(tmp_path) == [first], "no file has it any more"


def test_a_newer_version_of_this_program_reads_all_files_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_claude_session(tmp_path, "a")
    write_claude_session(tmp_path, "b")
    assert check_all(tmp_path) == 2
    monkeypatch.setattr(daily_read_check, "__version__", "tomorrow")
    assert check_all(tmp_path) == 2
    assert check_all(tmp_path) == 0


def test_pipes_and_links_are_not_read_and_a_file_that_vanishes_is_left_out(tmp_path: Path) -> None:
    kept = write_claude_session(tmp_path, "a")
    gone = write_claude_session(tmp_path, "b")
    os.mkfifo(kept.with_name("pipe.jsonl"))
    outside = written.lines(tmp_path / "outside.jsonl", [with_mood()])
    kept.with_name("link.jsonl").symlink_to(outside)
    check = check_of(tmp_path)
    check.check_for(0.0)
    for path in (kept, gone):
        if str(path) not in read_checked_files(tmp_path / "helix").files:
            path.unlink()
    assert check.check_for(600.0)
    assert check.files_read == 1
    assert sentences(tmp_path) == []
    assert len(read_checked_files(tmp_path / "helix").files) == 1


def test_a_check_that_is_killed_goes_on_behind_the_file_at_which_it_was(tmp_path: Path) -> None:
    for name in "abc":
        write_claude_session(tmp_path, name)
    check = check_of(tmp_path)
    check.check_for(0.0)
    # What a kill while the second file is read leaves: its first line, and half of another.
    remembered = tmp_path / "helix" / CHECKED_FILES
    (first,) = read_checked_files(tmp_path / "helix").files
    second = min(
        path for path in (tmp_path / ".claude/projects/-p").iterdir() if str(path) != first
    )
    status = second.lstat()
    row = {"path": str(second), "size": status.st_size, "modified_ns": status.st_mtime_ns, "inode": status.st_ino}  # fmt: skip
    killed = json.dumps(row | {"unknown": {ENDED_READING: 1}}) + "\n" + '{"path": "/half'
    with remembered.open("a", encoding="utf-8") as file:
        file.write(killed)
    assert check_all(tmp_path) == 1
    (sentence,) = sentences(tmp_path)
    assert f"not read yet: {ENDED_READING} (1)." in sentence
    assert len(read_checked_files(tmp_path / "helix").files) == 3


def test_a_session_in_another_form_under_the_same_name_is_said(tmp_path: Path) -> None:
    path = tmp_path / ".codex" / "sessions" / "rollout-1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x81\xa4kind\xa7message\n" * 9)
    check_all(tmp_path)
    (sentence,) = sentences(tmp_path)
    assert f"Codex: 1 file (135 bytes) holds something that is not read yet: {UNREADABLE} (9)." in (
        sentence
    )


def test_what_the_user_has_excluded_is_not_read(tmp_path: Path) -> None:
    write_claude_session(tmp_path, "a", with_mood())
    asked: list[str] = []

    def may_read(kind: str, path: Path) -> bool:
        asked.append(f"{kind} {path.name}")
        return False

    folder = tmp_path / ".claude" / "projects"
    check = DailyReadCheck(tmp_path / "helix", [("claude-code", folder)], may_read, NOW)
    assert check.check_for(600.0)
    assert (check.files_read, asked) == (0, ["claude-code a.jsonl"])
    assert sentences(tmp_path) == []


def test_two_thousand_files_that_have_not_changed_are_looked_at_within_a_second(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ".codex" / "sessions"
    folder.mkdir(parents=True)
    for number in range(2_000):
        (folder / f"rollout-{number}.jsonl").touch()
    assert check_all(tmp_path) == 2_000
    start = time.process_time()
    assert check_all(tmp_path) == 0
    assert time.process_time() - start < 1.0
