"""Sessions of Claude Code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop.histories import claude_code_history, history_reading
from helix_desktop.histories.history_rows import HistoryRow, ReadingComplaints
from helix_desktop.histories.recorded_session import RecordedCall, RecordedMessage, RecordedSession
from tests.histories import written


def reply(identity: str, *blocks: Mapping[str, object], **more: object) -> Mapping[str, object]:
    return {"type": "assistant", "message": {"id": identity, "role": "assistant", "content": list(blocks)}, **more}


def said(content: object, **more: object) -> Mapping[str, object]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def read(*values: Mapping[str, object]) -> tuple[list[RecordedMessage], list[str]]:
    told = ReadingComplaints()
    (first, *_) = all_of(*values, told=told)
    return list(first.messages), told.complaints


def all_of(*values: Mapping[str, object], told: ReadingComplaints | None = None) -> list[RecordedSession]:
    rows = [HistoryRow(v, f"line {n}") for n, v in enumerate(values, 1)]
    return claude_code_history.read_claude_code_recordings(rows, told or ReadingComplaints(), Path("s.jsonl"))


def plain(message: RecordedMessage) -> tuple[object, ...]:
    return message.role, message.text, message.calls, message.answers, message.ok, message.reasoning


TEXT = {"type": "text", "text": "I look."}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a.py"}}
RESULT: Mapping[str, object] = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}


def test_lines_of_one_reply_are_one_message() -> None:
    messages, complaints = read(
        said("read a.py"), reply("m1", THINKING), reply("m1", TEXT), reply("m1", CALL), said([RESULT])
    )
    assert complaints == []
    calls = (RecordedCall("t1", "Read", '{"file_path": "a.py"}'),)
    assert plain(messages[1]) == ("assistant", "I look.", calls, "", True, "hm")
    assert plain(messages[2]) == ("tool", "text", (), "t1", True, "")


def test_two_replies_stay_two() -> None:
    messages, _ = read(said("go"), reply("m1", TEXT), reply("m2", TEXT))
    assert len(messages) == 3


def test_other_events_are_named_and_sub_agents_are_conversations_of_their_own() -> None:
    other: Sequence[Mapping[str, object]] = [
        {"type": "summary", "summary": "x"},
        {"type": "file-history-snapshot"},
        reply("m0", TEXT, isSidechain=True),
    ]
    messages, complaints = read(*other, said("go"), reply("m1", TEXT))
    assert [message.role for message in messages] == ["user", "assistant"]
    assert complaints == []


def test_results_in_parts_errors_and_words_beside_them() -> None:
    result = {**RESULT, "content": [{"type": "text", "text": "a"}, {"type": "image"}], "is_error": True}
    messages, _ = read(reply("m1", CALL), said([result, {"type": "text", "text": "stop that"}]))
    assert plain(messages[1]) == ("tool", "a\n[image]", (), "t1", False, "")
    assert messages[2].text == "stop that"


def test_a_call_without_an_id_gets_a_sentence() -> None:
    messages, (complaint,) = read(said("go"), reply("m1", {"type": "tool_use", "name": "Read"}))
    assert len(messages) == 1
    assert complaint.startswith("line 2: a call has no id")


def session(*values: Mapping[str, object]) -> list[RecordedMessage]:
    return list(all_of(*values)[0].messages)


def test_an_error_of_the_api_is_no_reply() -> None:
    values = written.claude_session()[:6]
    error = written.claude_reply(7, 6, "e1", written.text("API Error: 529"), isApiErrorMessage=True)
    messages = session(*values, error)
    assert [message.role for message in messages][-2:] == ["assistant", "failure"]


def test_a_summary_is_a_compaction_and_no_message_on_top_of_the_whole_history() -> None:
    boundary = written.claude_line(7, "system", None, subtype="compact_boundary", logicalParentUuid="u6")
    summary = written.claude_said(8, 7, "What happened.", isCompactSummary=True)
    more = written.claude_said(9, 8, "go on")
    (recording,) = all_of(*written.claude_session()[:6], boundary, summary, more)
    assert [message.text for message in recording.messages][-2:] == ["Done.", "go on"]
    (compaction,) = recording.compactions
    assert (compaction.at, compaction.keep, compaction.text) == (4, 4, "What happened.")


def test_a_summary_without_what_it_sums_up_is_a_message() -> None:
    (recording,) = all_of(
        written.claude_said(1, None, "What happened.", isCompactSummary=True), *written.claude_session()[5:]
    )
    assert recording.compactions == ()
    assert recording.messages[0].text == "What happened."


def test_what_the_compaction_kept_is_not_folded_and_what_follows_it_is_no_branch() -> None:
    kept = {"preservedSegment": {"headUuid": "u6", "tailUuid": "u6"}, "trigger": "manual"}
    boundary = written.claude_line(
        7, "system", None, subtype="compact_boundary", logicalParentUuid="u6", compactMetadata=kept
    )
    summary = written.claude_said(8, 7, "What happened.", isCompactSummary=True)
    made = all_of(*written.claude_session()[:6], boundary, summary, written.claude_said(9, 6, "go on"))
    assert len(made) == 1
    assert (made[0].compactions[0].at, made[0].compactions[0].keep) == (4, 3)


def test_attachments_and_queued_prompts_that_the_model_saw_are_messages() -> None:
    queued = written.claude_line(7, "attachment", 6, attachment={"type": "queued_command", "prompt": "also this"})
    file = written.claude_line(
        8, "attachment", 7, attachment={"type": "edited_text_file", "filename": "a.py", "snippet": "1 x"}
    )
    messages = session(*written.claude_session()[:6], queued, file)
    assert [message.text for message in messages][-2:] == [
        "also this",
        "[Claude Code showed: edited_text_file]\na.py\n1 x",
    ]


def test_results_between_the_lines_of_one_reply() -> None:
    values = [
        written.claude_said(1, None, "go"),
        written.claude_reply(2, 1, "m1", written.use("t1")),
        written.claude_said(3, 2, [written.result("t1", "one")]),
        written.claude_reply(4, 2, "m1", written.use("t2")),
        written.claude_said(5, 4, [written.result("t2", "two")]),
        written.claude_reply(6, 5, "m2", written.text("Done.")),
    ]
    made = all_of(*values)
    assert len(made) == 1
    assert [len(message.calls) for message in made[0].messages] == [0, 2, 0, 0, 0]


def test_a_result_in_a_file_is_read_whole_and_only_from_beside_the_session(tmp_path: Path) -> None:
    values = written.claude_session()[:5]
    shown = "<persisted-output>\nFull output saved to: /somewhere/else/tool-results/abc.txt\n\nPreview:\n1\n2"
    values[4] = written.claude_said(5, 4, [written.result("t1", shown)])
    path = written.lines(tmp_path / "session-1.jsonl", values)
    saved = tmp_path / "session-1" / "tool-results" / "abc.txt"
    saved.parent.mkdir(parents=True)
    saved.write_text("1\n2\n3\n")
    message = history_reading.read_history_file(path).recordings[0].messages[2]
    assert (message.text, message.shown) == ("1\n2\n3\n", shown)
    saved.unlink()
    assert history_reading.read_history_file(path).recordings[0].messages[2].text == shown


def test_a_picture_in_a_result_and_in_a_prompt() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    image = {"type": "image", "source": source}
    values = [
        written.claude_said(1, None, [written.text("look"), image]),
        written.claude_reply(2, 1, "m1", written.use("t1")),
        written.claude_said(3, 2, [written.result("t1", [image])]),
    ]
    messages = session(*values)
    assert messages[0].pictures[0].data == b"hello"
    assert messages[2].pictures[0].media_type == "image/png"


def test_sub_agents_in_the_same_file_are_children_of_the_call_that_asked_for_them() -> None:
    values = [
        *written.claude_session()[:3],
        written.claude_reply(4, 3, "m1", written.use("t1", "Task", prompt="look deep")),
        {**written.claude_said(30, None, "look deep"), "isSidechain": True},
        {**written.claude_reply(31, 30, "c1", written.text("deep")), "isSidechain": True},
    ]
    main, child = all_of(*values)
    assert (child.parent, child.parent_call) == (main.session, "t1")
    assert [message.text for message in child.messages] == ["look deep", "deep"]


def test_a_result_names_the_conversation_of_its_sub_agent_where_that_has_a_file(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    (tmp_path / "session" / "subagents").mkdir(parents=True)
    (tmp_path / "session" / "subagents" / "agent-a1.jsonl").touch()
    (tmp_path / "agent-a2.jsonl").touch()
    results = [RecordedMessage("tool", "done", answers="c", child=child) for child in ("a1", "a2", "a3", "")]
    (linked,) = claude_code_history._link_results_to_subagents([RecordedSession("s", tuple(results))], path)
    assert [message.child for message in linked.messages] == ["agent-a1", "agent-a2", "", ""]
    assert {message.text for message in linked.messages} == {"done"}


def test_what_is_no_message_is_left_out_and_named_and_the_rest_stays_one_conversation() -> None:
    shown = {"type": "queued_command", "prompt": "also this"}
    others = [
        written.claude_line(7, "attachment", 6, attachment="gone"),
        written.claude_line(8, "progress", 6, attachment=shown),
        written.claude_line(9, "system", 6, subtype="turn_duration"),
        written.claude_line(10, "progress", 6, subtype="compact_boundary"),
        written.claude_line(11, "user", 6),
        written.claude_line(12, "progress", 6, message={"role": "user", "content": "how it goes"}),
        {"attachment": shown},
    ]
    told = ReadingComplaints()
    made = all_of(*written.claude_session()[:6], *others, told=told)
    assert [[message.text for message in one.messages] for one in made] == [
        [message.text for message in session(*written.claude_session()[:6])]
    ]
    assert told.left_out == {
        "attachment": 1,
        "progress": 2,
        "progress/compact_boundary": 1,
        "system/turn_duration": 1,
        "user": 1,
        "no type": 1,
    }


def test_what_follows_a_kept_row_after_the_summary_is_no_branch_beside_it() -> None:
    kept = {"preservedMessages": {"uuids": ["u4", "u5"]}, "preservedSegment": {"tailUuid": "u6"}}
    boundary = written.claude_line(9, "system", None, subtype="compact_boundary", logicalParentUuid="u8")
    boundary["compactMetadata"] = kept
    summary = written.claude_said(10, 9, "What happened.", isCompactSummary=True)
    for parent in (4, 5, 6, 8):
        made = all_of(*written.claude_session(), boundary, summary, written.claude_said(11, parent, "go on"))
        assert len(made) == 1, parent
        assert made[0].messages[-1].text == "go on"
    made = all_of(*written.claude_session(), boundary, summary, written.claude_said(11, 1, "go on"))
    assert len(made) == 2, "where the compaction kept nothing it is another branch"


def test_a_prompt_that_follows_nothing_begins_anew_and_a_compaction_that_names_nothing_does_not() -> None:
    more = [written.claude_said(11, None, "start again"), written.claude_reply(12, 11, "m9", written.text("anew"))]
    first, second = all_of(*written.claude_session(), *more)
    assert [message.text for message in second.messages] == ["start again", "anew"]
    assert [message.text for message in first.messages][-1] == "Again."
    del more[0]["parentUuid"]  # As in files that do not tell it.
    (one,) = all_of(*written.claude_session(), *more)
    assert [message.text for message in one.messages][-3:] == ["Again.", "start again", "anew"]
    boundary = written.claude_line(9, "system", None, subtype="compact_boundary")
    summary = written.claude_said(10, 9, "What happened.", isCompactSummary=True)
    (one,) = all_of(*written.claude_session(), boundary, summary, written.claude_said(11, 10, "go on"))
    assert [message.text for message in one.messages][-2:] == ["Again.", "go on"]
    assert [(each.at, each.keep) for each in one.compactions] == [(6, 6)]
