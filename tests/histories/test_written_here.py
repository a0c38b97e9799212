"""What the programs themselves wrote on a computer of ours, against a scripted
provider; long texts are shortened.

Claude Code 2.1.197 (two calls at once, an output in a file, a sub-agent, a compaction),
Codex 0.169.0, Gemini CLI 0.61, opencode 1.18.33 and (its JSON files) 1.1.65, pi 0.73
and Cline's command line 2.18.0 (a call and its output each).
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from helix_desktop.histories import history_reading
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession

FIXTURES = Path(__file__).parent / "fixtures"
UNPACKED = {"opencode-json": "opencode/1.1.65.files", "cline": "cline/2.18.0.files"}


def recordings(kind: str, folder: Path) -> list[RecordedSession]:
    if kind == "opencode":
        return list(history_reading.read_history_file(write_database(folder)).recordings)
    if kind in UNPACKED:
        write_files(kind, folder)
        return list(history_reading.read_history_files([folder]).recordings)
    return list(history_reading.read_history_files([FIXTURES / kind]).recordings)


def write_files(kind: str, folder: Path) -> list[Path]:
    """The files a program wrote, in their folders."""
    files: list[Path] = []
    packed = FIXTURES / UNPACKED[kind]
    for name, content in json.loads(packed.read_text("utf-8")).items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content), "utf-8")
        files.append(file)
    return files


def write_database(folder: Path) -> Path:
    """The rows of opencode's database, in one of the same shape."""
    tables = json.loads((FIXTURES / "opencode" / "1.18.33.rows").read_text("utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "opencode.db"
    with closing(sqlite3.connect(path)) as made, made:
        for table, rows in tables.items():
            made.execute(f"CREATE TABLE {table}({', '.join(rows[0])})")
            made.executemany(
                f"INSERT INTO {table} VALUES({', '.join('?' * len(rows[0]))})",
                [tuple(row.values()) for row in rows],
            )
    return path


def outputs(recording: RecordedSession) -> list[RecordedMessage]:
    return [message for message in recording.messages if message.role == "tool"]


@pytest.mark.parametrize(
    "kind", ["codex", "gemini-cli", "opencode", "opencode-json", "pi", "cline"]
)
def test_a_question_a_call_its_output_and_an_answer(tmp_path: Path, kind: str) -> None:
    (recording,) = recordings(kind, tmp_path)
    said: list[RecordedMessage] = []
    for message in recording.messages:
        assert message.time
        if message.role != "system" and not message.beside:
            said.append(message)
    question, call, output, answer = said
    assert (question.role, call.role, output.role) == ("user", "assistant", "tool")
    assert answer.role == "assistant"
    assert "QUESTION-MARK" in question.text
    assert call.reasoning or kind == "cline"
    assert "OUTPUT-MARK" in output.text
    assert "All done. DONE-MARK" in answer.text
    assert call.usage.input == 100
    assert (recording.kind, recording.folder) == (kind.removesuffix("-json"), "/home/me/project")


def test_claude_code(tmp_path: Path) -> None:
    found = {bool(one.parent): one for one in recordings("claude-code", tmp_path)}
    main = found[False]
    child = found[True]
    assert (child.parent, child.session) == (main.session, "agent-a9f44328ef8f4d37c")
    assert [one.ok for one in outputs(main)] == [False, True, True, False, True]
    assert [bool(one.shown) for one in outputs(main)] == [False, True, False, False, True]
    assert outputs(main)[1].text.startswith("1\n2\n3")
    assert outputs(main)[2].child == child.session
    (compaction,) = main.compactions
    assert "SUMMARY-OF-WORK" in compaction.text
    assert not any("SUMMARY-OF-WORK" in message.text for message in main.messages)
    batch = main.messages[3]
    assert (len(batch.calls), batch.model, batch.usage.cache_read) == (2, "scripted", 60)


def test_no_line_is_left_out_in_silence() -> None:
    for file in history_reading.list_history_files(FIXTURES):
        report = " ".join(history_reading.read_history_file(file).complaints)
        lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        kinds = {line.get("type") for line in lines} & {
            "queue-operation",
            "last-prompt",
            "mode",
            "world_state",
        }
        assert all(str(kind) in report for kind in kinds)
