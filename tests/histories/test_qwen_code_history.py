"""Sessions of Qwen Code, as it writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from helix_desktop.histories import history_finding, subagent_files
from helix_desktop.histories.claude_code_history import is_claude_code_row
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.history_reading import read_sessions
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import RecordedSession
from tests.histories import written


def read(path: Path) -> tuple[list[RecordedSession], ReadingReport]:
    report = ReadingReport()
    return list(read_sessions(path, report)), report


def test_words_thoughts_calls_and_results_are_read(tmp_path: Path) -> None:
    (session,), report = read(written.qwen(tmp_path))
    assert session.identity_of_session == ("qwen-code", "qwen-1")
    assert session.folder == "/home/me/project"
    assert session.version == "0.24.4"
    assert [message.role for message in session.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "user",
        "assistant",
    ]
    first_reply = session.messages[1]
    assert first_reply.reasoning == "hm"
    assert first_reply.text == "I look."
    assert json.loads(first_reply.calls[0].arguments) == {"command": "ls"}
    assert first_reply.usage.input == 100
    assert first_reply.usage.cache_read == 60
    assert session.messages[2].text == written.OUTPUT
    assert session.messages[2].answers == "c1"
    assert not report.complaints
    assert not report.unknown


def test_a_call_that_failed_says_so(tmp_path: Path) -> None:
    rows = written.qwen_session()
    rows[2] = written.qwen_line(2, "tool_result", written.qwen_result("c1", error="no such file"))
    (session,), _ = read(written.lines(tmp_path / "s.jsonl", rows))
    assert session.messages[2].text == "no such file"
    assert not session.messages[2].ok


def test_a_compression_replaces_what_was_before_it(tmp_path: Path) -> None:
    history = [
        {"role": "user", "parts": [{"text": "<state_snapshot>goal</state_snapshot>"}]},
        {"role": "model", "parts": [{"text": "Got it."}]},
        {"role": "user", "parts": [{"text": "Recently accessed file: a.py"}]},
    ]
    rows = written.qwen_session()
    compression = written.qwen_line(6, "system", subtype="chat_compression")
    compression["systemPayload"] = {"compressedHistory": history}
    rows += [
        compression,
        written.qwen_line(7, "user", {"text": "go on"}),
        written.qwen_line(8, "assistant", {"text": "On."}),
    ]
    (session,), _ = read(written.lines(tmp_path / "s.jsonl", rows))
    (compaction,) = session.compactions
    assert (compaction.at, compaction.keep) == (6, 6)
    assert compaction.text == (
        "<state_snapshot>goal</state_snapshot>\n\nRecently accessed file: a.py"
    )
    assert session.messages[6].text == "go on"


def test_a_session_that_was_rewound_goes_on_behind_an_earlier_record(tmp_path: Path) -> None:
    rows = written.qwen_session()
    other_words = written.qwen_line(6, "user", {"text": "something else"})
    other_words["parentUuid"] = "q3"
    rows += [other_words, written.qwen_line(7, "assistant", {"text": "Else."})]
    sessions, _ = read(written.lines(tmp_path / "s.jsonl", rows))
    main, fork = sessions
    assert main.messages[-1].text == "Again."
    assert fork.forked_from == main.session
    assert fork.forked_at == 4
    assert [message.text for message in fork.messages[4:]] == ["something else", "Else."]


def test_what_the_program_said_in_the_users_place_stands_beside(tmp_path: Path) -> None:
    rows = written.qwen_session()
    rows.append(written.qwen_line(6, "user", {"text": "A task ended."}, subtype="notification"))
    (session,), _ = read(written.lines(tmp_path / "s.jsonl", rows))
    assert session.messages[-1].text == "A task ended."
    assert session.messages[-1].beside


def test_a_sub_agent_comes_with_its_session_and_names_its_call(tmp_path: Path) -> None:
    main_file = written.qwen(tmp_path)
    project = main_file.parent.parent
    in_subagent: dict[str, Any] = {"isSidechain": True, "agentId": "counter-c1"}
    subagent_file = written.lines(
        project / "subagents" / "qwen-1" / "agent-counter-c1.jsonl",
        [
            written.qwen_line(0, "user", {"text": "count"}, **in_subagent),
            written.qwen_line(1, "assistant", {"text": "Three."}, **in_subagent),
        ],
    )
    subagent_file.with_suffix(".meta.json").write_text('{"toolUseId": "c1"}')

    (found,) = history_finding.find_histories(HistoryPlaces(tmp_path, {}))
    assert (found.kind, found.path, found.program) == ("qwen-code", main_file, "Qwen Code")
    assert subagent_files.list_files_with_subagents(main_file) == (main_file, subagent_file)
    (subagent,), _ = read(subagent_file)
    assert (subagent.session, subagent.parent) == ("counter-c1", "qwen-1")
    assert subagent.parent_call == "c1"


def test_no_record_is_taken_for_claude_codes() -> None:
    for row in written.qwen_session():
        assert not is_claude_code_row(row)


def test_a_record_of_another_kind_is_said_and_kept(tmp_path: Path) -> None:
    rows = written.qwen_session()
    rows.append(written.qwen_line(6, "hologram", {"text": "?"}))
    (session,), report = read(written.lines(tmp_path / "s.jsonl", rows))
    assert len(session.messages) == 6
    assert "hologram" in next(report.sentences_about_unknown())
    assert report.unread
