"""Sessions of GitHub Copilot CLI, as it writes them."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

from helix_desktop.histories import history_finding
from helix_desktop.histories.copilot_history import CLEARED
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.history_reading import read_sessions
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import RecordedSession
from tests.histories import written


def read(path: Path) -> tuple[list[RecordedSession], ReadingReport]:
    report = ReadingReport()
    return list(read_sessions(path, report)), report


def test_words_thoughts_calls_results_and_usage_are_read(tmp_path: Path) -> None:
    (session,), report = read(written.copilot(tmp_path))
    assert session.identity_of_session == ("copilot-cli", "copilot-1")
    assert session.folder == "/home/me/project"
    assert session.version == "1.0.102"
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
    assert first_reply.calls[0].name == "bash"
    assert first_reply.usage.input == 100
    assert first_reply.usage.cache_write == 30
    assert session.messages[2].text == written.OUTPUT
    assert session.messages[3].usage.input == 0
    assert not report.complaints
    assert not report.unknown


def test_calls_that_failed_or_ended_with_an_error_say_so(tmp_path: Path) -> None:
    rows = written.copilot_session()
    kind = "tool.execution_complete"
    refused: dict[str, Any] = {"success": False, "error": {"message": "Path already exists"}}
    ended: dict[str, Any] = {
        "success": True,
        "result": {"content": "no"},
        "shellExecution": {"exitCode": 2},
    }
    rows[4:5] = [
        written.copilot_event(4, kind, toolCallId="c1", **refused),
        written.copilot_event(4, kind, toolCallId="c2", **ended),
    ]
    (session,), _ = read(written.lines(tmp_path / "s.jsonl", rows))
    results = {message.answers: message for message in session.messages if message.role == "tool"}
    assert results["c1"].text == "Path already exists"
    assert not results["c1"].ok
    assert results["c2"].text == "no"
    assert not results["c2"].ok


def test_what_a_split_response_took_is_counted_once(tmp_path: Path) -> None:
    rows = written.copilot_session()
    split: dict[str, Any] = {"apiCallId": "r1", "model": "gpt-5", "chunkCount": 2}
    rows[3:4] = [
        written.copilot_event(3, "assistant.message", content="I", chunkIndex=0, **split),
        written.copilot_event(3, "assistant.message", content="look", chunkIndex=1, **split),
    ]
    (session,), _ = read(written.lines(tmp_path / "s.jsonl", rows))
    assert [message.usage.input for message in session.messages[1:3]] == [0, 100]


def test_a_compaction_replaces_what_was_before_it_and_a_failed_one_nothing(tmp_path: Path) -> None:
    kind = "session.compaction_complete"
    rows = written.copilot_session()
    rows += [
        written.copilot_event(8, kind, success=False, error="no reply"),
        written.copilot_event(9, kind, success=True, summaryContent="The files were listed."),
        written.copilot_event(10, "user.message", content="go on"),
        written.copilot_event(11, "session.context_cleared", messagesCleared=2),
    ]
    (session,), _ = read(written.lines(tmp_path / "s.jsonl", rows))
    compacted, cleared = session.compactions
    assert (compacted.at, compacted.keep, compacted.text) == (6, 6, "The files were listed.")
    assert (cleared.at, cleared.text) == (7, CLEARED)


def test_a_sub_agents_events_are_a_session_of_their_own(tmp_path: Path) -> None:
    rows = written.copilot_session()
    rows[5:5] = [
        written.copilot_event(5, "subagent.started", agent="a1", toolCallId="c1"),
        written.copilot_event(5, "user.message", agent="a1", content="count"),
        written.copilot_event(5, "assistant.message", agent="a1", content="Three."),
    ]
    sessions, _ = read(written.lines(tmp_path / "s.jsonl", rows))
    main, subagent = sessions
    assert len(main.messages) == 6
    assert (subagent.session, subagent.parent) == ("a1", "copilot-1")
    assert subagent.parent_call == "c1"
    assert [message.text for message in subagent.messages] == ["count", "Three."]


def test_a_picture_comes_from_the_message_or_from_an_event_that_it_names(tmp_path: Path) -> None:
    pixel = base64.b64encode(b"pixel").decode()
    in_message = {"type": "blob", "mimeType": "image/png", "data": pixel}
    named = {"type": "blob", "assetId": "p1"}
    rows = written.copilot_session()
    rows += [
        written.copilot_event(
            8, "session.binary_asset", assetId="p1", mimeType="image/png", data=pixel
        ),
        written.copilot_event(9, "user.message", content="look", attachments=[in_message, named]),
    ]
    (session,), _ = read(written.lines(tmp_path / "s.jsonl", rows))
    assert [picture.data for picture in session.messages[-1].pictures] == [b"pixel", b"pixel"]


def test_what_copilot_told_the_model_itself_stands_beside(tmp_path: Path) -> None:
    rows = written.copilot_session()
    rows.append(written.copilot_event(8, "system.notification", content="A command ended."))
    (session,), _ = read(written.lines(tmp_path / "s.jsonl", rows))
    assert session.messages[-1].beside


def test_its_sessions_are_found_with_their_folder(tmp_path: Path) -> None:
    path = written.copilot(tmp_path)
    (path.parent / "other.jsonl").write_text("{}\n")
    (found,) = history_finding.find_histories(HistoryPlaces(tmp_path, {}))
    assert (found.path, found.folder) == (path, "/home/me/project")
    assert found.program == "Copilot CLI"
    moved = HistoryPlaces(tmp_path / "elsewhere", {"COPILOT_HOME": str(tmp_path / ".copilot")})
    assert [history.path for history in history_finding.find_histories(moved)] == [path]


def test_an_event_of_another_kind_is_said_and_kept(tmp_path: Path) -> None:
    rows = written.copilot_session()
    rows.append(written.copilot_event(8, "hologram.shown", content="?"))
    (session,), report = read(written.lines(tmp_path / "s.jsonl", rows))
    assert len(session.messages) == 6
    assert "hologram.shown" in next(report.sentences_about_unknown())
    assert report.unread
