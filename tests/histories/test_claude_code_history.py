"""Sessions of Claude Code."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Reasoning, ToolCall
from helix_desktop.histories import claude_code_history, history_reading
from helix_desktop.histories.history_rows import HistoryRow, ReadingReport
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)
from tests.histories import written


def reply(identity: str, *blocks: Mapping[str, object], **more: object) -> Mapping[str, object]:
    return {
        "type": "assistant",
        "message": {"id": identity, "role": "assistant", "content": list(blocks)},
        **more,
    }


def said(content: object, **more: object) -> Mapping[str, object]:
    return {"type": "user", "message": {"role": "user", "content": content}, **more}


def read(*values: Mapping[str, object]) -> tuple[list[RecordedMessage], list[str]]:
    report = ReadingReport()
    first = all_of(*values, report=report)[0]
    return list(first.messages), report.complaints


def all_of(
    *values: Mapping[str, object], report: ReadingReport | None = None
) -> list[RecordedSession]:
    rows = [HistoryRow(v, f"line {n}") for n, v in enumerate(values, 1)]
    return claude_code_history.read_claude_code_recordings(
        rows, report or ReadingReport(), Path("s.jsonl")
    )


def plain(message: RecordedMessage) -> tuple[object, ...]:
    return message.role, message.text, message.calls, message.answers, message.ok, message.reasoning


TEXT = {"type": "text", "text": "I look."}
THINKING = {"type": "thinking", "thinking": "hm", "signature": "s"}
CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": "a.py"}}
RESULT: Mapping[str, object] = {"type": "tool_result", "tool_use_id": "t1", "content": "text"}


def test_lines_of_one_reply_are_one_message() -> None:
    messages, complaints = read(
        said("read a.py"),
        reply("m1", THINKING),
        reply("m1", TEXT),
        reply("m1", CALL),
        said([RESULT]),
    )
    assert complaints == []
    calls = (ToolCall("t1", "Read", '{"file_path": "a.py"}'),)
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
    result = {
        **RESULT,
        "content": [{"type": "text", "text": "a"}, {"type": "image"}],
        "is_error": True,
    }
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
    boundary = written.claude_line(
        7, "system", None, subtype="compact_boundary", logicalParentUuid="u6"
    )
    summary = written.claude_said(8, 7, "What happened.", isCompactSummary=True)
    more = written.claude_said(9, 8, "go on")
    (recording,) = all_of(*written.claude_session()[:6], boundary, summary, more)
    assert [message.text for message in recording.messages][-2:] == ["Done.", "go on"]
    (compaction,) = recording.compactions
    assert (compaction.at, compaction.keep, compaction.text) == (4, 4, "What happened.")


def test_a_summary_without_what_it_sums_up_is_a_message() -> None:
    (recording,) = all_of(
        written.claude_said(1, None, "What happened.", isCompactSummary=True),
        *written.claude_session()[5:],
    )
    assert recording.compactions == ()
    assert recording.messages[0].text == "What happened."


def test_what_the_compaction_kept_is_not_folded_and_what_follows_it_is_no_branch() -> None:
    kept = {"preservedSegment": {"headUuid": "u6", "tailUuid": "u6"}, "trigger": "manual"}
    boundary = written.claude_line(
        7, "system", None, subtype="compact_boundary", logicalParentUuid="u6", compactMetadata=kept
    )
    summary = written.claude_said(8, 7, "What happened.", isCompactSummary=True)
    made = all_of(
        *written.claude_session()[:6], boundary, summary, written.claude_said(9, 6, "go on")
    )
    assert len(made) == 1
    assert (made[0].compactions[0].at, made[0].compactions[0].keep) == (4, 3)


def test_attachments_and_queued_prompts_that_the_model_saw_are_messages() -> None:
    queued = written.claude_line(
        7, "attachment", 6, attachment={"type": "queued_command", "prompt": "also this"}
    )
    file = written.claude_line(
        8,
        "attachment",
        7,
        attachment={"type": "edited_text_file", "filename": "a.py", "snippet": "1 x"},
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


def test_a_result_names_the_conversation_of_its_sub_agent_where_that_has_a_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "session.jsonl"
    (tmp_path / "session" / "subagents").mkdir(parents=True)
    (tmp_path / "session" / "subagents" / "agent-a1.jsonl").touch()
    (tmp_path / "agent-a2.jsonl").touch()
    results = [
        RecordedMessage("tool", "done", answers="c", child=child)
        for child in ("a1", "a2", "a3", "")
    ]
    (linked,) = claude_code_history._link_results_to_subagents(
        [RecordedSession("s", tuple(results))], path, ReadingReport()
    )
    assert [message.child for message in linked.messages] == ["agent-a1", "agent-a2", "", ""]
    assert {message.text for message in linked.messages} == {"done"}


@pytest.mark.parametrize(
    ("structured_result", "subagent", "missed"),
    [
        ({"agentId": "a1"}, "agent-a1", 0),
        ({"agentIdV2": "a1"}, "agent-a1", 1),
        ({"data": {"agentId": "a1"}}, "agent-a1", 1),
        ({"agentIdV2": "a1"}, "", 0),  # Its file is gone, and there is nothing to name.
    ],
)
def test_a_result_that_does_not_name_its_sub_agent_any_more_is_said(
    structured_result: dict[str, Any], subagent: str, missed: int, tmp_path: Path
) -> None:
    if subagent:
        (tmp_path / "session" / "subagents").mkdir(parents=True)
        (tmp_path / "session" / "subagents" / f"{subagent}.jsonl").touch()
    answer = written.claude_said(
        2, 1, [written.result("t1", "deep")], toolUseResult=structured_result
    )
    rows = [
        written.claude_said(0, None, "go"),
        written.claude_reply(1, 0, "m1", written.use("t1", "Task", prompt="look deep")),
        answer,
    ]
    path = written.lines(tmp_path / "session.jsonl", rows)
    report = ReadingReport()
    list(history_reading.read_sessions(path, report, "claude-code"))
    assert report.unknown["the field agentId in another place"] == missed


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
    report = ReadingReport()
    made = all_of(*written.claude_session()[:6], *others, report=report)
    assert [[message.text for message in one.messages] for one in made] == [
        [message.text for message in session(*written.claude_session()[:6])]
    ]
    assert report.left_out == {
        "attachment": 1,
        "progress": 2,
        "progress/compact_boundary": 1,
        "system/turn_duration": 1,
        "user": 1,
        "no type": 1,
    }


def test_what_follows_a_kept_row_after_the_summary_is_no_branch_beside_it() -> None:
    kept = {"preservedMessages": {"uuids": ["u4", "u5"]}, "preservedSegment": {"tailUuid": "u6"}}
    boundary = written.claude_line(
        9, "system", None, subtype="compact_boundary", logicalParentUuid="u8"
    )
    boundary["compactMetadata"] = kept
    summary = written.claude_said(10, 9, "What happened.", isCompactSummary=True)
    for parent in (4, 5, 6, 8):
        made = all_of(
            *written.claude_session(), boundary, summary, written.claude_said(11, parent, "go on")
        )
        assert len(made) == 1, parent
        assert made[0].messages[-1].text == "go on"
    made = all_of(*written.claude_session(), boundary, summary, written.claude_said(11, 1, "go on"))
    assert len(made) == 2, "where the compaction kept nothing it is another branch"


def test_a_prompt_that_follows_nothing_begins_anew_and_a_compaction_that_names_nothing_does_not() -> (
    None
):
    more = [
        written.claude_said(11, None, "start again"),
        written.claude_reply(12, 11, "m9", written.text("anew")),
    ]
    first, second = all_of(*written.claude_session(), *more)
    assert [message.text for message in second.messages] == ["start again", "anew"]
    assert [message.text for message in first.messages][-1] == "Again."
    del more[0]["parentUuid"]  # As in files that do not tell it.
    (one,) = all_of(*written.claude_session(), *more)
    assert [message.text for message in one.messages][-3:] == ["Again.", "start again", "anew"]
    boundary = written.claude_line(9, "system", None, subtype="compact_boundary")
    summary = written.claude_said(10, 9, "What happened.", isCompactSummary=True)
    (one,) = all_of(
        *written.claude_session(), boundary, summary, written.claude_said(11, 10, "go on")
    )
    assert [message.text for message in one.messages][-2:] == ["Again.", "go on"]
    assert [(each.at, each.keep) for each in one.compactions] == [(6, 6)]


def test_a_file_is_known_by_its_messages_and_not_taken_for_anothers() -> None:
    known = claude_code_history.is_claude_code_row
    assert known(said("go"))
    assert known(reply("m1", TEXT))
    assert not known({"type": "user"})
    assert not known({"type": "message", "message": {"role": "user"}})
    assert not known(said("go", payload={}))
    assert not known(said("go", parentId="e1"))


def test_a_session_is_named_by_its_rows_or_its_file_and_knows_its_folder_version_and_title() -> (
    None
):
    title = {"type": "ai-title", "aiTitle": "A title"}, {"type": "custom-title", "customTitle": ""}
    (found,) = all_of({"type": "summary", "summary": "older"}, *title, *written.claude_session())
    assert (found.name, found.kind, found.session, found.title) == (
        "s.jsonl",
        "claude-code",
        "session-1",
        "A title",
    )
    assert (found.folder, found.version) == ("/home/me/project", "2.1.197")
    (found,) = all_of(said("go"), reply("m1", TEXT))
    assert (found.session, found.title, found.folder, found.version) == ("s", "", "", "")


def test_rows_about_requests_do_not_hide_a_subagent(tmp_path: Path) -> None:
    """Since 2.1.331, its file has such rows without a mark. Only they were read, so the
    whole session was lost.
    """
    request = {
        "type": "api-request",
        "sessionId": "session-1",
        "agentId": "a1",
        "params": {"model": "m"},
    }
    rows = [{**written.claude_said(1, None, "look deep"), "isSidechain": True}, request]
    rows += [{**written.claude_reply(2, 1, "m1", written.text("deep")), "isSidechain": True}]
    for folder in ("session-9/subagents", "elsewhere"):
        path = written.lines(tmp_path / folder / "agent-a1.jsonl", rows)
        (session,) = history_reading.read_history_file(path).recordings
        assert [one.text for one in session.messages] == ["look deep", "deep"]
        assert (session.session, session.parent) == ("agent-a1", "session-1")


def test_a_sub_agents_own_file_names_its_session_and_its_task(tmp_path: Path) -> None:
    rows = [{**written.claude_said(1, None, " look\n deep " + "x" * 60), "isSidechain": True}]
    rows += [{**written.claude_reply(2, 1, "m1", written.text("deep")), "isSidechain": True}]
    path = tmp_path / "session-9" / "subagents" / "agent-a1.jsonl"
    (found,) = history_reading.read_history_file(written.lines(path, rows)).recordings
    assert (found.session, found.parent, found.parent_call) == ("agent-a1", "session-1", "")
    assert found.title == "look deep " + "x" * 50
    for row in rows:
        del row["sessionId"], row["isSidechain"]
    (found,) = history_reading.read_history_file(written.lines(path, rows)).recordings
    assert (found.session, found.parent) == ("agent-a1", "session-9")
    other = written.lines(tmp_path / "loose.jsonl", [{**row, "isSidechain": True} for row in rows])
    (found,) = history_reading.read_history_file(other).recordings
    assert (found.session, found.parent) == ("loose", tmp_path.parent.name)


def test_a_branch_of_a_sub_agents_file_stays_a_branch(tmp_path: Path) -> None:
    rows = [*written.claude_session(), written.claude_said(9, 6, [written.text("other")])]
    path = written.lines(tmp_path / "subagents" / "agent-a1.jsonl", rows)
    first, branch = history_reading.read_history_file(path).recordings
    assert (first.parent, branch.parent, branch.forked_from) == ("session-1", "", "agent-a1")
    assert branch.messages[-1].text == "other"


def test_several_sub_agents_in_one_file_are_told_apart() -> None:
    def aside(row: Mapping[str, object], **more: object) -> Mapping[str, object]:
        return {**row, "isSidechain": True, **more}

    asked = [
        written.use("t1", "Task", prompt="look"),
        written.use("t2", "Agent", prompt=" search "),
    ]
    main = [
        *written.claude_session()[:3],
        written.claude_reply(4, 3, "m1", *asked, written.use("t3", prompt="aid")),
    ]
    children = [
        aside(written.claude_said(30, None, "look")),
        aside(written.claude_said(40, None, "search"), agentId="a1"),
        aside(written.claude_reply(31, 30, "c1", written.text("seen"))),
        aside(written.claude_reply(41, 99, "c2", written.text("found")), agentId="a1"),
        aside(written.claude_said(50, None, "aid")),
        aside(written.claude_said(60, None, " ")),
    ]
    found = all_of(*main, *children)[1:]
    assert [(one.session, one.parent_call, one.title) for one in found] == [
        ("agent-u30", "t1", "look"),
        ("agent-a1", "t2", "search"),
        ("agent-u50", "", "aid"),
        ("agent-u60", "", ""),
    ]
    assert [[message.text for message in one.messages] for one in found[:2]] == [
        ["look", "seen"],
        ["search", "found"],
    ]
    assert {one.parent for one in found} == {"session-1"}
    assert found[1].name == "s.jsonl#agent-a1"


def test_a_sub_agents_file_without_a_message_has_no_title(tmp_path: Path) -> None:
    path = tmp_path / "subagents" / "agent-a1.jsonl"
    (found,) = claude_code_history.read_claude_code_recordings(
        [HistoryRow(said(" "), "line 1")], ReadingReport(), path
    )
    assert (found.title, found.messages) == ("", ())


def test_who_speaks_is_told() -> None:
    spoken: Sequence[tuple[Mapping[str, object], bool]] = [
        (said("go"), False),
        (said([TEXT]), False),
        (said("reminder", isMeta=True), True),
        (said("answered", toolUseResult={}), True),
        (said("<local-command-stdout>x"), True),
        (said("<command-name>x"), True),
        (said("[Request interrupted by user]"), True),
        (said([{"type": "text", "text": "[Request interrupted by user]"}]), True),
        (said([RESULT, TEXT]), True),
    ]
    for value, beside in spoken:
        messages, _ = read(value)
        assert (messages[-1].role, messages[-1].beside) == ("user", beside), value


def test_a_prompt_in_parts_that_goes_back_begins_a_branch_and_an_interruption_does_not() -> None:
    again = written.claude_said(9, 6, [written.text("other")])
    assert len(all_of(*written.claude_session(), again)) == 2
    for content in (
        [written.text("[Request interrupted by user]")],
        [written.result("t1")],
        "[Request interrupted",
    ):
        assert len(all_of(*written.claude_session(), written.claude_said(9, 6, content))) == 1


def test_a_row_that_is_not_shown_leads_to_its_parent_so_that_going_back_behind_it_begins_a_branch() -> (
    None
):
    """The defect: Claude Code writes a notice when it goes on, and what followed the
    notice stood behind the newest row.
    """
    notices = [
        written.claude_line(20 + n, "system", 6 if n == 0 else 19 + n, subtype="informational")
        for n in (0, 1)
    ]
    first, other = all_of(*written.claude_session(), *notices, written.claude_said(22, 21, "other"))
    assert other.forked_from == first.session
    assert other.messages[-1].text == "other"
    assert "other" not in {message.text for message in first.messages}
    at_the_end = written.claude_line(20, "system", 8, subtype="informational")
    (whole,) = all_of(*written.claude_session(), at_the_end, written.claude_said(21, 20, "more"))
    assert whole.messages[-1].text == "more"


def test_a_reply_in_words_alone_and_with_blocks_nobody_knows() -> None:
    words: Mapping[str, object] = {"type": "assistant", "message": {"id": "m1", "content": "Done."}}
    unknown = [{"type": "novelty"}, {"type": "redacted_thinking", "data": "d"}, {"type": "server_tool_use", "id": "1", "name": "web"}]  # fmt: skip
    messages, complaints = read(said("go"), words, reply("m2", *unknown, model="m"))
    assert [message.text for message in messages] == ["go", "Done.", "[novelty]"]
    assert complaints == []
    assert messages[2].calls == (ToolCall("1", "web", "{}"),)


def test_thinking_goes_back_only_as_it_was_signed() -> None:
    def thought(**block: object) -> Reasoning:
        return claude_code_history.read_claude_thinking(block, "tag", "m")

    signed = thought(type="thinking", thinking="hm", signature="s")
    assert signed == Reasoning(
        "hm",
        opaque='{"type":"thinking","thinking":"hm","signature":"s"}',
        provider="tag",
        model="m",
    )
    assert thought(type="thinking", thinking="hm") == Reasoning("hm")
    assert thought(type="redacted_thinking", data="d") == Reasoning(
        "", opaque='{"type":"redacted_thinking","data":"d"}', provider="tag", model="m"
    )


def test_a_reply_that_goes_on_keeps_its_time_and_takes_the_last_usage() -> None:
    first = written.claude_reply(2, 1, "m1", written.thinking())
    second = written.claude_reply(3, 2, "m1", written.text("I look."))
    second["message"]["usage"] = {"input_tokens": 10, "output_tokens": 90}
    (found,) = all_of(written.claude_said(1, None, "go"), first, second)
    assert (found.messages[1].time % 60, found.messages[1].usage.output) == (2.0, 90)
    assert (found.messages[1].reasoning, found.messages[1].text) == ("Let me think.", "I look.")


def test_a_reply_of_the_same_id_after_a_person_spoke_is_another() -> None:
    messages, _ = read(said("go"), reply("m1", TEXT), said("more"), reply("m1", TEXT))
    assert [message.role for message in messages] == ["user", "assistant", "user", "assistant"]
    failed = reply("e1", {"type": "text", "text": "API Error"}, isApiErrorMessage=True)
    messages, _ = read(said("go"), reply("m1", TEXT), failed, reply("m1", TEXT))
    assert [message.role for message in messages] == ["user", "assistant", "failure", "assistant"]
    messages, _ = read(said("go"), reply("", TEXT), reply("", TEXT))
    assert len(messages) == 3, "replies without an id are told apart"


def test_lines_of_a_reply_around_a_result_are_one_as_claude_code_itself_sends_them() -> None:
    def values(parent: int) -> list[Mapping[str, object]]:
        """Claude Code wrote the first call's result before the line of the second call."""
        return [
            written.claude_said(1, None, "go"),
            written.claude_reply(2, 1, "m1", written.use("t1")),
            written.claude_said(3, 2, [written.result("t1", "one")]),
            written.claude_reply(4, parent, "m1", written.use("t2")),
            written.claude_said(5, 4, [written.result("t2", "two")]),
        ]

    for parent in (2, 3):
        (found,) = all_of(*values(parent))
        assert [
            [call.id for call in message.calls] or message.text for message in found.messages
        ] == [
            "go",
            ["t1", "t2"],
            "one",
            "two",
        ]


def test_a_result_says_all_of_what_the_line_has(tmp_path: Path) -> None:
    def result(text: str, stdout: str) -> RecordedMessage:
        answered = written.claude_said(
            5, 4, [written.result("t1", text)], toolUseResult={"stdout": stdout}
        )
        return all_of(*written.claude_session()[:4], answered)[0].messages[2]

    shown = "<persisted-output>\n1"
    assert (result(shown, "1" * 99).text, result(shown, "1" * 99).shown) == ("1" * 99, shown)
    assert (result(shown, "1" * len(shown)).text, result(shown, "1" * len(shown)).shown) == (
        shown,
        "",
    )
    assert (result("plain", "1" * 99).text, result("plain", "1" * 99).shown) == ("plain", "")


def test_a_picture_that_nobody_can_read_leaves_a_note_in_the_words_that_came_with_it() -> None:
    unreadable = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    messages, _ = read(said([{"type": "text", "text": "look"}, unreadable]))
    assert messages[0].text.startswith("look\n")
    assert len(messages[0].text) > len("look\n")


def test_attachments_of_2_1_331_are_what_the_model_was_shown_and_the_notes_beside_them_are_only_kept() -> (
    None
):
    rendered = [
        {"content": "<system-reminder>\nToday is the 24th.\n</system-reminder>"},
        {"content": [TEXT]},
    ]
    system_prompt = {"type": "prompt_snapshot", "systemPrompt": ["You are an agent."]}
    context = {"type": "session_context", "context": {}}
    report = ReadingReport()
    (one,) = all_of(
        written.claude_line(1, "user", None, message={"role": "user", "content": "go"}),
        written.claude_line(
            2, "attachment", 1, attachment={"type": "date", "date": "2026-11-24"}, rendered=rendered
        ),
        written.claude_line(3, "attachment", 2, attachment=system_prompt),
        written.claude_line(4, "attachment", 3, attachment=context),
        written.claude_line(5, "user", 4, message={"role": "user", "content": "go on"}),
        report=report,
    )
    assert [message.text for message in one.messages] == [
        "go",
        "[Claude Code showed: date]\n<system-reminder>\nToday is the 24th.\n</system-reminder>\nI look.",
        "go on",
    ]
    assert report.left_out == {"attachment/prompt_snapshot": 1, "attachment/session_context": 1}


def test_attachments_show_their_text_or_all_they_have() -> None:
    def attachment(**found: object) -> RecordedMessage:
        return session(
            *written.claude_session()[:6], written.claude_line(7, "attachment", 6, attachment=found)
        )[-1]

    assert attachment(
        type="edited_text_file", filename="", path="a.py", content=" ", snippet="1 x"
    ).text == ("[Claude Code showed: edited_text_file]\na.py\n1 x")
    assert attachment(type="hook", stdout="out").text == "[Claude Code showed: hook]\nout"
    assert (
        attachment(type="changed", addedLines=["one", 2]).text
        == "[Claude Code showed: changed]\none\n2"
    )
    assert (
        attachment(type="todo", items=["ü"]).text == '[Claude Code showed: todo]\n{"items": ["ü"]}'
    )
    assert attachment(items=1).text == '[Claude Code showed: attachment]\n{"items": 1}'
    assert attachment(type="hook", stdout="out").beside
    assert attachment(type="hook", stdout="out").time % 60 == 7.0
    source = {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}
    queued = attachment(type="queued_command", prompt=[TEXT, {"type": "image", "source": source}])
    assert (queued.text, [picture.data for picture in queued.pictures]) == (
        "I look.\n[image]",
        [b"hello"],
    )
    nothing = written.claude_line(
        7, "attachment", 6, attachment={"type": "queued_command", "prompt": " "}
    )
    assert session(*written.claude_session()[:6], nothing)[-1].text == "Done."


def test_a_compaction_says_why_and_when() -> None:
    def compaction(**about: object) -> RecordedCompaction:
        boundary = written.claude_line(
            7, "system", None, subtype="compact_boundary", compactMetadata=about
        )
        summary = written.claude_said(8, 7, [written.text("What happened.")], isCompactSummary=True)
        ((found,),) = [
            one.compactions for one in all_of(*written.claude_session()[:6], boundary, summary)
        ]
        return found

    why = "Claude Code compacted the conversation here"
    assert (compaction().why, compaction(trigger="auto").why) == (why, f"{why} (auto)")
    assert (compaction().text, compaction().time % 60) == ("What happened.", 8.0)
    assert [
        compaction(preservedSegment={"headUuid": name}).keep for name in ("u1", "u3", "u5", "gone")
    ] == [0, 1, 2, 4]


def test_a_second_compaction_without_a_boundary_keeps_nothing_of_the_first() -> None:
    kept = {"preservedSegment": {"headUuid": "u6"}, "trigger": "manual"}
    boundary = written.claude_line(
        7, "system", None, subtype="compact_boundary", compactMetadata=kept
    )
    first, second = (
        written.claude_said(at, at - 1, f"Sum {at}.", isCompactSummary=True) for at in (8, 9)
    )
    (found,) = all_of(*written.claude_session()[:6], boundary, first, second)
    assert [(one.text, one.keep, one.why.endswith("(manual)")) for one in found.compactions] == [
        ("Sum 8.", 3, True),
        ("Sum 9.", 4, False),
    ]


def test_a_reply_after_a_compaction_is_another_than_before_it() -> None:
    boundary = written.claude_line(4, "system", 3, subtype="compact_boundary")
    summary = written.claude_said(5, 4, "What happened.", isCompactSummary=True)
    values = [
        *written.claude_session()[:3],
        boundary,
        summary,
        written.claude_reply(6, 5, "m1", written.text("Done.")),
    ]
    assert [message.text for message in all_of(*values)[0].messages] == [
        "list the files",
        "I look.",
        "Done.",
    ]


def test_a_reply_without_an_id_is_one_step_of_its_own_and_what_is_said_beside_it_a_branch() -> None:
    nameless = written.claude_reply(3, 2, "", written.text("more"))
    values = [
        written.claude_said(1, None, "go"),
        written.claude_reply(2, 1, "", written.text("one")),
        nameless,
    ]
    assert len(all_of(*values, written.claude_said(4, 2, "other"))) == 2
    values = [
        written.claude_said(1, None, "go"),
        written.claude_reply(2, 1, "m1", written.text("one")),
    ]
    assert len(all_of(*values, written.claude_said(3, 1, "other"))) == 2
    result = written.claude_said(3, 2, [written.result("t1")])
    assert len(all_of(*values, result, written.claude_said(4, 2, "beside the result"))) == 1


def test_a_sub_agents_title_is_the_beginning_of_its_task() -> None:
    child = {**written.claude_said(30, None, "x" * 61), "isSidechain": True}
    assert all_of(*written.claude_session(), child)[1].title == "x" * 60


def test_a_compaction_that_kept_the_first_lines_names_their_place() -> None:
    kept = {"preservedSegment": {"headUuid": "u0"}}
    attachment = written.claude_line(
        0, "attachment", None, attachment={"type": "queued_command", "prompt": ""}
    )
    first = written.claude_said(1, 0, "go")
    boundary = written.claude_line(
        7, "system", None, subtype="compact_boundary", compactMetadata=kept
    )
    summary = written.claude_said(8, 7, "What happened.", isCompactSummary=True)
    (found,) = all_of(attachment, first, *written.claude_session()[1:6], boundary, summary)
    assert [one.keep for one in found.compactions] == [0]


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def request_id(at: float, rest: int = 0x7ABC_8ABC << 48) -> str:
    """As Anthropic writes it: a UUID of version 7, in base 58."""
    number = (round(at * 1_000) << 80) | rest
    digits = ""
    while number:
        number, digit = divmod(number, 58)
        digits = claude_code_history.BASE_58[digit] + digits
    return f"req_01{digits.rjust(22, '1')}"


def test_the_id_of_a_request_says_when_it_reached_anthropic() -> None:
    # Two requests of recordings, whose lines were written 2.9 and 7.1 seconds later.
    assert (
        stamp(claude_code_history.parse_time_of_request_id("req_011CTtxo64TrsbB5c5z98AyH"))
        == "2025-10-08T02:43:52.200000+00:00"
    )
    assert (
        stamp(claude_code_history.parse_time_of_request_id("req_011CTK5S2saRFZfQvfLhXhm2"))
        == "2025-09-20T05:10:42.256000+00:00"
    )
    assert claude_code_history.parse_time_of_request_id(request_id(1.8e9)) == 1.8e9
    for other in (
        "",
        "req_01",
        "req_011CTtxo64Trs0B5c5z98AyH",
        request_id(1.8e9, 0x4ABC_8ABC << 48),
        "req_vrtx_011CTtxo64",
    ):
        assert claude_code_history.parse_time_of_request_id(other) == 0


def test_lines_that_a_resumed_session_wrote_anew_get_the_times_of_their_requests_back() -> None:
    begun = 1.8e9
    anew = {"timestamp": stamp(begun + 20_000)}
    messages, _ = read(
        said("go", timestamp=stamp(begun)),
        reply("m1", CALL, requestId=request_id(begun + 1), **anew),
        said([RESULT], **anew),
        reply("m2", TEXT, requestId=request_id(begun + 700), **anew),
        said("more", timestamp=stamp(begun + 900)),
        reply("m3", TEXT, requestId=request_id(begun + 901), timestamp=stamp(begun + 904)),
        said("by another provider", timestamp=stamp(begun + 950)),
        reply("m4", TEXT, requestId="none", timestamp=stamp(begun + 960)),
    )
    assert [one.time - begun for one in messages] == [0, 1, 700, 700, 900, 904, 950, 960]
    assert [one.seconds for one in messages] == [0, 0, 0, 0, 0, 3, 0, 0]


def test_the_last_line_of_a_session_gets_its_time_back_like_the_others() -> None:
    anew = {"timestamp": stamp(1.8e9 + 20_000)}
    rows = [said("go", timestamp=stamp(1.8e9))]
    for number in range(1, 4):
        rows.append(reply(f"m{number}", TEXT, requestId=request_id(1.8e9 + number), **anew))
        messages, _ = read(*rows)
        assert [one.time - 1.8e9 for one in messages] == list(range(number + 1))


@pytest.mark.parametrize("renamed", [False, True])
def test_a_complete_result_beside_a_file_is_kept_when_no_message_has_it_any_more(
    renamed: bool, tmp_path: Path
) -> None:
    complete = "\n".join(f"line {number}" for number in range(900))
    (tmp_path / "session" / "tool-results").mkdir(parents=True)
    saved = tmp_path / "session" / "tool-results" / "b1.txt"
    saved.write_text(complete)
    preview = f"<persisted-output>\nFull output saved to: {saved}\nline 0\n</persisted-output>"
    answer = written.claude_said(2, 1, [written.result("t1", preview)])
    if renamed:
        answer["messageV2"] = answer.pop("message")
    rows = [
        written.claude_said(0, None, "go"),
        written.claude_reply(1, 0, "m1", written.use("t1")),
        answer,
    ]
    path = written.lines(tmp_path / "session.jsonl", rows)
    report = ReadingReport()
    (session,) = history_reading.read_sessions(path, report, "claude-code")
    texts = [message.text for message in session.messages]
    kept = [json.loads(line).get("text") for line in report.unread]
    assert (complete in texts, complete in kept) == (not renamed, renamed)
