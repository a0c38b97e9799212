"""Sessions as Qwen Code keeps them, record by record."""

from __future__ import annotations

import json
from pathlib import Path

from helix_desktop.engine.facts import Reasoning, Text, ToolCall
from helix_desktop.histories.history_reading import read_sessions
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.qwen_code_writer import FORMAT
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)

WORK = "/home/me/My Work!"
ID = "0194c0de-0000-4000-8000-00000000abcd"
MESSAGES = (
    RecordedMessage("user", "look", time=1.0, pictures=(RecordedPicture("image/png", b"\0\0\0"),)),
    build_recorded_reply(
        [
            Reasoning("hm"),
            Text("I look"),
            ToolCall("c:1", "run_shell_command", '{"command": "ls"}'),
            ToolCall("c2", "read_file", '{"file_path": "a"}'),
        ],
        model="qwen3",
        time=2.0,
    ),
    RecordedMessage("tool", "a.txt", answers="c:1", time=3.0),
    RecordedMessage("tool", "no such file", answers="c2", ok=False, time=3.0),
    RecordedMessage("user", "go on", time=4.0),
)
SESSION = RecordedSession("s", MESSAGES, folder=WORK, title="A look")


def test_the_records_of_a_session_follow_each_other() -> None:
    records = list(FORMAT.build_lines(SESSION, ID, 1.0))
    parents = [record["parentUuid"] for record in records]
    assert parents == [None, *(record["uuid"] for record in records[:-1])]
    kinds = [record["type"] for record in records]
    assert kinds == ["user", "assistant", "tool_result", "tool_result", "user", "system"]
    said, reply, done, failed, _, title = records
    assert said["message"]["parts"][1] == {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    assert reply["message"]["role"] == "model"
    (text, call, _) = reply["message"]["parts"]
    assert text == {"text": "I look"}
    expected = {"id": "c_1", "name": "run_shell_command", "args": {"command": "ls"}}
    assert call == {"functionCall": expected}
    answer = done["message"]["parts"][0]["functionResponse"]
    assert (answer["id"], answer["name"]) == ("c_1", "run_shell_command")
    response = failed["message"]["parts"][0]["functionResponse"]["response"]
    assert response == {"error": "no such file"}
    assert title["systemPayload"] == {"customTitle": "A look"}


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / FORMAT.path_of_session(ID, WORK, tmp_path, 1.0)
    assert path.relative_to(tmp_path).as_posix() == f"projects/-home-me-My-Work-/chats/{ID}.jsonl"
    path.parent.mkdir(parents=True)
    lines = [json.dumps(record) for record in FORMAT.build_lines(SESSION, ID, 1.0)]
    path.write_text("\n".join(lines), "utf-8")
    (session,) = read_sessions(path, ReadingReport(), FORMAT.kind)
    assert (session.session, session.folder, session.title) == (ID, WORK, "A look")
    assert [message.text for message in session.messages] == [
        "look", "I look", "a.txt", "no such file", "go on",
    ]  # fmt: skip
    assert [message.ok for message in session.messages] == [True, True, True, False, True]


def test_a_compaction_takes_the_place_of_what_was_before_it() -> None:
    compactions = (RecordedCompaction(at=4, keep=4, text="they looked"),)
    session = RecordedSession("s", MESSAGES, folder=WORK, compactions=compactions)
    compression = list(FORMAT.build_lines(session, ID, 1.0))[4]
    assert compression["subtype"] == "chat_compression"
    (summary,) = compression["systemPayload"]["compressedHistory"]
    assert summary == {"role": "user", "parts": [{"text": "they looked"}]}
