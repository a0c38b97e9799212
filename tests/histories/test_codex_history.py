"""Rollouts of Codex, new and old."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Reasoning, ToolCall, Usage
from helix_desktop.histories import codex_history, history_reading
from helix_desktop.histories.history_rows import HistoryRow, ReadingReport
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)
from tests.histories import written

ITEMS: tuple[Mapping[str, object], ...] = (
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "fix it"}]},
    {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "think"}],
        "encrypted_content": "x",
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look."}],
    },
    {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "c1"},
    {"type": "custom_tool_call", "name": "apply_patch", "input": "*** Begin", "call_id": "c2"},
    {
        "type": "function_call_output",
        "call_id": "c1",
        "output": {"content": "a.py", "success": True},
    },
    {"type": "custom_tool_call_output", "call_id": "c2", "output": "done"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
)
EXPECTED = [
    RecordedMessage("user", "fix it"),
    RecordedMessage(
        "assistant",
        "I look.",
        (
            ToolCall("c1", "shell", '{"command": ["ls"]}'),
            ToolCall("c2", "apply_patch", '{"input": "*** Begin"}'),
        ),
        reasoning="think",
    ),
    RecordedMessage("tool", "a.py", answers="c1"),
    RecordedMessage("tool", "done", answers="c2"),
    RecordedMessage("assistant", "Done."),
]


def read(*rows: HistoryRow) -> tuple[list[RecordedMessage], ReadingReport]:
    report = ReadingReport()
    (recording,) = codex_history.read_codex_recordings(rows, report, Path("rollout.jsonl"))
    return list(recording.messages), report


def plain(message: RecordedMessage) -> tuple[object, ...]:
    return message.role, message.text, message.calls, message.answers, message.ok, message.reasoning


@pytest.mark.parametrize("wrapped", [True, False])
def test_items_of_one_reply_are_one_message(*, wrapped: bool) -> None:
    values = [{"type": "response_item", "payload": item} if wrapped else item for item in ITEMS]
    around: list[Mapping[str, object]] = [
        {"type": "session_meta", "payload": {}},
        *values,
        {"type": "event_msg", "payload": {}},
    ]
    messages, report = read(*(HistoryRow(value, "f") for value in around))
    assert list(map(plain, messages)) == list(map(plain, EXPECTED))
    assert report.complaints == []


def test_a_shell_call_keeps_its_action() -> None:
    item = {"type": "local_shell_call", "call_id": "c", "action": {"command": ["ls"]}}
    (message,), _ = read(HistoryRow(item, "f"))
    assert message.calls == (ToolCall("c", "shell", '{"command": ["ls"]}'),)


def test_what_cannot_be_read_gets_a_sentence() -> None:
    rows = [
        HistoryRow({"type": "function_call", "name": "x"}, "f, line 1"),
        HistoryRow({"type": "function_call_output"}, "f, line 2"),
    ]
    messages, report = read(*rows)
    assert messages == []
    assert [complaint[:9] for complaint in report.complaints] == ["f, line 1", "f, line 2"]


def test_what_the_provider_ran_is_a_call_and_no_item_is_left_out_in_silence() -> None:
    items: list[Mapping[str, object]] = [
        *ITEMS[:2],
        {
            "type": "web_search_call",
            "id": "ws_1",
            "action": {"type": "search", "query": "qt"},
            "status": "completed",
        },
        {"type": "tool_search_call", "call_id": "ts_1", "arguments": {"query": "mail"}},
        {"type": "tool_search_output", "call_id": "ts_1", "tools": [{"name": "send"}]},
        {
            "type": "agent_message",
            "author": "reviewer",
            "content": [{"type": "input_text", "text": "looks good"}],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Done."}],
        },
    ]
    messages, report = read(*(HistoryRow({"type": "response_item", "payload": item}, "f") for item in items), HistoryRow({"type": "response_item", "payload": {"type": "new_thing"}}, "f"))  # fmt: skip
    assert [(message.role, [call.name for call in message.calls]) for message in messages] == [
        ("user", []),
        ("assistant", ["web_search"]),
        ("tool", []),
        ("assistant", ["tool_search"]),
        ("tool", []),
        ("user", []),
        ("assistant", []),
    ]
    assert '"name": "send"' in messages[4].text
    assert messages[5].text == "[Message of the agent reviewer]\nlooks good"
    assert report.left_out == {"item new_thing": 1}


def test_a_commands_whole_output_and_what_a_request_cost() -> None:
    whole = "\n".join(f"line {number}" for number in range(100))
    usage = {
        "input_tokens": 100,
        "cached_input_tokens": 60,
        "output_tokens": 20,
        "reasoning_output_tokens": 5,
    }
    events: list[Mapping[str, object]] = [
        {"type": "turn_context", "payload": {"model": "gpt-5"}},
        {
            "type": "response_item",
            "payload": {
                "type": "function_call",
                "name": "exec_command",
                "arguments": "{}",
                "call_id": "c",
            },
        },
        {
            "type": "event_msg",
            "payload": {"type": "exec_command_end", "call_id": "c", "aggregated_output": whole},
        },
        {
            "type": "response_item",
            "payload": {"type": "function_call_output", "call_id": "c", "output": "line 0\n…"},
        },
        {
            "type": "event_msg",
            "payload": {"type": "token_count", "info": {"last_token_usage": usage}},
        },
    ]
    messages, _ = read(*(HistoryRow(event, "f") for event in events))
    assert (messages[1].text, messages[1].shown) == (whole, "line 0\n…")
    assert (messages[0].model, messages[0].usage.input, messages[0].usage.cache_read) == (
        "gpt-5",
        100,
        60,
    )


def test_a_compaction_stands_where_it_happened() -> None:
    rows = [HistoryRow({"type": "response_item", "payload": item}, "f") for item in ITEMS]
    compacted = HistoryRow({"type": "compacted", "payload": {"message": "What happened."}}, "f")
    report = ReadingReport()
    (recording,) = codex_history.read_codex_recordings(
        [*rows, compacted], report, Path("rollout.jsonl")
    )
    (compaction,) = recording.compactions
    assert (compaction.at, compaction.text) == (5, "What happened.")


def test_a_fork_shares_what_it_copied(tmp_path: Path) -> None:
    source = written.codex(tmp_path)
    values = [json.loads(line) for line in source.read_text().splitlines()]
    about = {**values[0]["payload"], "id": "thread-2", "forked_from_id": "thread-1"}
    copied = [{**one, "timestamp": "2026-01-03T00:00:00.000Z"} for one in (values[0], *values[1:9])]
    own = [
        {
            **values[-1],
            "payload": {
                **values[-1]["payload"],
                "content": [{"type": "output_text", "text": "Other."}],
            },
        }
    ]
    path = written.lines(
        tmp_path / "sessions" / "2026" / "01" / "03" / "rollout-2026-01-03T00-00-00-thread-2.jsonl",
        [{**values[0], "payload": about}, *copied, *values[9:10], *own],
    )
    (fork,) = history_reading.read_history_file(path).recordings
    (whole,) = history_reading.read_history_file(source).recordings
    assert (fork.session, fork.forked_from, fork.forked_at) == (
        "thread-2",
        "thread-1",
        len(whole.messages) - 1,
    )
    assert fork.messages[-1].text == "Other."
    source.unlink()
    (alone,) = history_reading.read_history_file(path).recordings
    assert (alone.forked_from, len(alone.messages)) == ("", len(fork.messages))


def test_what_another_agent_said_stands_beside_the_persons_words() -> None:
    item = {
        "type": "agent_message",
        "author": "reviewer",
        "content": [{"type": "input_text", "text": "Done."}],
    }
    rows = [HistoryRow({"type": "response_item", "payload": item}, "line")]
    (session,) = codex_history.read_codex_recordings(rows, ReadingReport(), Path("rollout.jsonl"))
    (message,) = session.messages
    assert (message.role, message.text, message.beside) == (
        "user",
        "[Message of the agent reviewer]\nDone.",
        True,
    )


def event(kind: str, **payload: object) -> HistoryRow:
    return HistoryRow(
        {"type": kind, "timestamp": "1970-01-01T00:00:05.000Z", "payload": payload}, "f"
    )


def item(kind: str, **more: object) -> HistoryRow:
    return event("response_item", type=kind, **more)


def said(text: str, role: str = "user") -> HistoryRow:
    return item("message", role=role, content=[{"type": "output_text", "text": text}])


def session(*rows: HistoryRow) -> RecordedSession:
    (recording,) = codex_history.read_codex_recordings(rows, ReadingReport(), Path("rollout.jsonl"))
    return recording


def test_a_file_is_known_by_its_events_or_its_items_and_not_taken_for_anothers() -> None:
    known = codex_history.is_codex_row
    assert known({"type": "session_meta", "payload": {}})
    assert not known({"type": "session_meta"})
    assert not known({"type": "other", "payload": {}})
    assert known({"type": "message", "role": "user"})
    assert not known({"type": "message", "message": {}})
    assert not known({"type": "message", "parentId": "e1"})
    assert not known({"role": "user"})


def test_a_rollout_has_its_id_folder_version_and_instructions() -> None:
    about = {
        "id": "thread-1",
        "cwd": "/w",
        "cli_version": "0.169.0",
        "base_instructions": {"text": "Be good."},
    }
    found = session(
        event("session_meta", **about),
        event("session_meta", id="copied", base_instructions="Other."),
    )
    assert (found.name, found.kind, found.session, found.folder, found.version) == (
        "rollout.jsonl", "codex", "thread-1", "/w", "0.169.0",
    )  # fmt: skip
    assert found.messages == (RecordedMessage("system", "Be good.", time=5.0),)
    assert session(event("session_meta", instructions="Be brief.")).messages[0].text == "Be brief."
    assert (session(event("session_meta")).session, session(event("session_meta")).messages) == (
        "rollout",
        (),
    )


def test_the_first_line_of_older_files_has_no_type() -> None:
    first = HistoryRow({"id": "thread-1", "instructions": "Be good."}, "f")
    found = session(first, said("go"))
    assert (found.session, [message.text for message in found.messages]) == (
        "thread-1",
        ["Be good.", "go"],
    )
    for value in ({"id": "x"}, {"instructions": "x"}, {"record_type": "state"}):
        messages, report = read(HistoryRow(value, "f"))
        assert (messages, sum(report.left_out.values())) == ([], 1)
    report = ReadingReport()
    codex_history.read_codex_recordings([first, first], report, Path("rollout.jsonl"))
    assert report.left_out == {"no type": 1}


def test_a_sub_agents_rollout_names_its_parent_and_is_no_fork() -> None:
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": "thread-0"}}}
    found = session(
        event("session_meta", id="thread-1", source=spawn, forked_from_id="thread-0"), said("go")
    )
    assert (found.parent, found.forked_from, found.forked_at) == ("thread-0", "", 0)


def test_a_new_message_or_new_reasoning_begins_a_reply_of_its_own() -> None:
    call = item("function_call", name="f", arguments="{}", call_id="c1")
    thought = item("reasoning", summary=[{"type": "summary_text", "text": "hm"}])
    done = said("Done.", "assistant")
    found = session(
        said("I look.", "assistant"), done, call, done, call, thought, done, thought, thought, call
    )
    assert [(one.text, len(one.calls), one.reasoning) for one in found.messages] == [
        ("I look.", 0, ""),
        ("Done.", 1, ""),
        ("Done.", 1, ""),
        ("Done.", 0, "hm"),
        ("", 1, "hm\nhm"),
    ]


def test_a_reply_has_the_time_it_began_and_its_model() -> None:
    later = HistoryRow(
        {"type": "response_item", "timestamp": "1970-01-01T00:00:09.000Z", "payload": ITEMS[3]}, "f"
    )
    untimed = HistoryRow({"type": "response_item", "payload": ITEMS[5]}, "f")
    found = session(
        event("turn_context", model="m"),
        event("turn_context"),
        said("I look.", "assistant"),
        later,
        untimed,
    )
    assert [(one.role, one.model, one.time) for one in found.messages] == [
        ("assistant", "m", 5.0),
        ("tool", "", 9.0),
    ]


def test_reasoning_goes_back_only_as_it_was_sealed() -> None:
    summary = [{"type": "summary_text", "text": "hm"}]
    sealed = item(
        "reasoning", id="r1", summary=summary, encrypted_content="x", content=[], status="done"
    )
    bare = item("reasoning", summary=[], content=[{"type": "reasoning_text", "text": "so"}])
    found = session(
        event("turn_context", model="m"),
        sealed,
        said("One.", "assistant"),
        bare,
        said("Two.", "assistant"),
    )
    opaque = '{"type":"reasoning","id":"r1","summary":[{"type":"summary_text","text":"hm"}],"encrypted_content":"x"}'
    assert found.messages[0].parts[0] == Reasoning(
        "hm", opaque=opaque, provider=codex_history.TAG, model="m"
    )
    assert found.messages[1].parts[0] == Reasoning("so")


def test_who_speaks_is_told() -> None:
    beside = "<environment_context>x", "<user_instructions>x", "# AGENTS.md x"
    found = session(said("go"), *map(said, beside), said("be", "developer"), said("good", "system"))
    assert [(one.role, one.text, one.beside, one.time) for one in found.messages] == [
        ("user", "go", False, 5.0),
        *(("user", text, True, 5.0) for text in beside),
        ("system", "be", False, 5.0),
        ("system", "good", False, 5.0),
    ]
    messages, report = read(said("?", "robot"))
    assert (messages, "there is no role 'robot'" in report.complaints[0]) == ([], True)


def test_a_picture_in_a_prompt_and_in_an_output_is_kept() -> None:
    picture = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    prompt = item("message", role="user", content=[{"type": "input_text", "text": "look"}, picture])
    found = session(prompt, item("function_call_output", call_id="c1", output=[picture]))
    assert [[one.data for one in message.pictures] for message in found.messages] == [
        [b"\0\0\0"],
        [b"\0\0\0"],
    ]
    assert [message.text for message in found.messages] == ["look", ""]


@pytest.mark.parametrize(
    ("call", "name", "arguments"),
    [
        (
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a": 1}'},
            "f",
            '{"a": 1}',
        ),
        ({"type": "custom_tool_call", "id": "c", "name": "f", "input": "x"}, "f", '{"input": "x"}'),
        (
            {"type": "local_shell_call", "id": "c", "name": "other", "action": {"a": 1}},
            "shell",
            '{"a": 1}',
        ),
        (
            {"type": "tool_search_call", "call_id": "c", "arguments": {"q": 1}},
            "tool_search",
            '{"q": 1}',
        ),
        (
            {"type": "tool_search_call", "call_id": "c", "name": "find", "arguments": {}},
            "find",
            "{}",
        ),
    ],
)
def test_a_call_of_every_kind(call: Mapping[str, object], name: str, arguments: str) -> None:
    (message,), _ = read(HistoryRow(call, "f"))
    assert message.calls == (ToolCall("c", name, arguments),)


def test_an_output_of_every_shape_says_whether_its_call_failed() -> None:
    shapes: list[tuple[object, str, bool]] = [
        ("out", "out", True),
        ({"content": "out"}, "out", True),
        ({"body": "out", "success": True}, "out", True),
        ({"content": "bad", "success": False}, "bad", False),
        ([{"type": "input_text", "text": "out"}], "out", True),
    ]
    for output, text, ok in shapes:
        (message,) = session(item("function_call_output", call_id="c1", output=output)).messages
        assert message == RecordedMessage("tool", text, answers="c1", ok=ok, time=5.0), output


@pytest.mark.parametrize(
    ("whole", "shown", "text", "kept"),
    [
        ("one\ntwo\n", "one", "one\ntwo\n", "one"),
        ("one", "one", "one", ""),
        ("  one  ", "one", "one", ""),
        ("two", "onetwothree", "onetwothree", ""),
        ("one\ttwo", "one two", "one two", ""),
    ],
)
def test_what_the_model_saw_of_an_output_is_kept_where_it_was_less(
    whole: str, shown: str, text: str, kept: str
) -> None:
    for report in (
        event("event_msg", type="exec_command_end", call_id="c1", aggregated_output=whole),
        event("event_msg", type="item_completed", item={"id": "c1", "aggregated_output": whole}),
    ):
        (message,) = session(
            report, item("function_call_output", call_id="c1", output=shown)
        ).messages
        assert (message.text, message.shown) == (text, kept)


def test_what_the_provider_ran_says_what_there_is_of_it() -> None:
    drawn = item(
        "image_generation_call", id="i1", status="completed", result="AAAA", revised_prompt="a cat"
    )
    unnamed = (
        item("web_search_call", action={"type": "search"}),
        item("web_search_call", call_id="w2"),
    )
    found = session(said("I look.", "assistant"), drawn, *unnamed)
    calls = [call for message in found.messages for call in message.calls]
    assert calls == [
        ToolCall("i1", "image_generation", '{"revised_prompt": "a cat"}'),
        ToolCall("web_search-2-0", "web_search", '{"type": "search"}'),
        ToolCall("w2", "web_search", "{}"),
    ]
    results = [message for message in found.messages if message.role == "tool"]
    assert [(one.text, one.answers, one.time) for one in results] == [
        ("(a picture)", "i1", 5.0),
        (codex_history.NOT_RECORDED, "web_search-2-0", 5.0),
        (codex_history.NOT_RECORDED, "w2", 5.0),
    ]
    assert [[picture.data for picture in one.pictures] for one in results] == [[b"\0\0\0"], [], []]


def test_a_request_that_failed_is_noted_with_its_reason() -> None:
    found = session(
        said("Half", "assistant"),
        event("event_msg", type="error", message="overloaded"),
        event("event_msg", type="stream_error", reason="cut"),
        event("event_msg", type="turn_aborted"),
    )
    assert [(one.role, one.text) for one in found.messages] == [
        ("assistant", "Half"),
        ("failure", "overloaded"),
        ("failure", "cut"),
        ("failure", "turn_aborted"),
    ]


def test_events_that_say_nothing_are_counted() -> None:
    report = read(
        event("event_msg", type="agent_message"),
        event("world_state"),
        event("event_msg", type="item_completed"),
    )[1]
    assert report.left_out == {
        "event agent_message": 1,
        "event item_completed": 1,
        "world_state": 1,
    }


def test_what_a_request_cost_stands_with_its_reply() -> None:
    cost = {
        "input_tokens": 100, "cached_input_tokens": 60, "cache_write_input_tokens": 30, "output_tokens": 20,
        "reasoning_output_tokens": 5,
    }  # fmt: skip
    report = event("event_msg", type="token_count", info={"last_token_usage": cost})
    rows = (
        report,
        said("go"),
        said("One.", "assistant"),
        report,
        said("Two.", "assistant"),
        event("event_msg", type="token_count"),
    )
    found = session(*rows)
    assert [one.usage for one in found.messages] == [Usage(), Usage(100, 60, 30, 20, 5), Usage()]
    # After a compaction, Codex reports how long its history is, as a request of 0 tokens.
    none = dict.fromkeys(cost, 0) | {"total_tokens": 6_061}
    found = session(
        said("One.", "assistant"),
        report,
        event("event_msg", type="token_count", info={"last_token_usage": none}),
    )
    assert [one.usage.input for one in found.messages] == [100]
    found = session(said("One.", "assistant"), event("token_usage_record", usage=cost))
    assert [one.usage.input for one in found.messages] == [100]


def test_a_compaction_says_its_text_or_what_it_kept() -> None:
    kept = [
        {"type": "message", "content": [{"type": "input_text", "text": "one"}]},
        {"type": "reasoning", "encrypted_content": "x"},
        {"type": "message", "content": "two"},
    ]
    sealed = [{"type": "compaction", "encrypted_content": "x"}]
    rest = "\n[The rest of the summary is sealed: only its provider can read it.]"
    for about, text in (
        ({"message": "What happened."}, "What happened."),
        ({"replacement_history": kept}, "one\n\ntwo"),
        ({"message": "Sum.", "replacement_history": [*kept, *sealed]}, f"one\n\ntwo\n\nSum.{rest}"),
    ):
        found = session(said("go"), said("Half", "assistant"), event("compacted", **about))
        why = "Codex compacted the conversation here"
        assert found.compactions == (RecordedCompaction(2, 2, text, 5.0, why),)
    assert session(said("go"), event("compacted")).compactions == ()


def test_a_compaction_keeps_the_users_words_that_codex_kept_and_not_its_own_context() -> None:
    """Codex sends the user's messages and the summary. Ours was the summary alone."""

    def kept(role: str, *texts: str) -> dict[str, object]:
        content = [{"type": "input_text", "text": text} for text in texts]
        return {"type": "message", "role": role, "content": content}

    history = [
        kept("user", "use Rust 1.80"),
        kept("developer", "<skills_instructions>", "<permissions instructions>"),
        kept("user", "<environment_context>\n  <cwd>/w</cwd>"),
        kept("user", "and never push"),
        kept("user", "Another model began this:\nSum."),
    ]
    about = {"message": "Another model began this:\nSum.", "replacement_history": history}
    found = session(said("go"), said("Half", "assistant"), event("compacted", **about))
    assert [one.text for one in found.compactions] == [
        "use Rust 1.80\n\nand never push\n\nAnother model began this:\nSum."
    ]


def test_a_compaction_of_what_is_not_in_the_file_is_a_message() -> None:
    found = session(
        event("session_meta", base_instructions={"text": "Be good."}),
        event("compacted", message="Sum."),
    )
    assert found.compactions == ()
    assert found.messages[1] == RecordedMessage(
        "user", "Sum.", time=5.0, beside=True, is_summary=True
    )


def test_an_empty_reply_is_none() -> None:
    assert (
        session(
            said("", "assistant"),
            item("reasoning", summary=[{"type": "summary_text", "text": "hm"}]),
        ).messages
        == ()
    )


def test_a_fork_that_says_otherwise_from_the_beginning_shares_nothing(tmp_path: Path) -> None:
    source = written.codex(tmp_path)
    values = [json.loads(line) for line in source.read_text().splitlines()]
    about = {"id": "thread-2", "forked_from_id": "thread-1"}
    rows = [{**values[0], "payload": about}, *values[2:]]
    path = written.lines(source.with_name("rollout-thread-2.jsonl"), rows)
    (fork,) = history_reading.read_history_file(path).recordings
    assert (fork.forked_from, fork.forked_at) == ("", 0)
    lost = {**about, "forked_from_id": "thread-2"}
    path = written.lines(
        source.with_name("rollout-thread-2.jsonl"), [{**values[0], "payload": lost}, *values[2:]]
    )
    (fork,) = history_reading.read_history_file(path).recordings
    assert fork.forked_at == 0, "it is not compared with itself"


def test_a_source_outside_the_sessions_is_not_read(tmp_path: Path) -> None:
    source = written.codex(tmp_path / "elsewhere")
    values = [json.loads(line) for line in source.read_text().splitlines()]
    about = {**values[0]["payload"], "id": "thread-2", "forked_from_id": "thread-1"}
    folder = tmp_path / "sessions" / "2026"
    path = written.lines(
        folder / "rollout-thread-2.jsonl", [{**values[0], "payload": about}, *values[1:]]
    )
    (folder / "rollout-thread-1.jsonl").symlink_to(source)
    (fork,) = history_reading.read_history_file(path).recordings
    assert fork.forked_at == 0
    (folder / "rollout-thread-1.jsonl").unlink()
    source.rename(folder / "rollout-thread-1.jsonl")
    (fork,) = history_reading.read_history_file(path).recordings
    assert fork.forked_at == len(fork.messages)


def test_a_rollout_that_left_none_shares_nothing_with_those_beside_it(tmp_path: Path) -> None:
    source = written.codex(tmp_path)
    values = [json.loads(line) for line in source.read_text().splitlines()]
    spawn = {
        "source": {"subagent": {"thread_spawn": {"parent_thread_id": "thread-1"}}},
        "forked_from_id": "thread-1",
    }
    for about in ({"id": "thread-2"}, {"id": "thread-2", **spawn}):
        rows = [{**values[0], "payload": {**values[0]["payload"], **about}}, *values[1:]]
        path = written.lines(source.with_name("rollout-thread-2.jsonl"), rows)
        (found,) = history_reading.read_history_file(path).recordings
        assert (found.forked_from, found.forked_at) == ("", 0)


def test_what_interrupts_a_reply_stands_behind_what_was_said_before() -> None:
    between = (
        item("agent_message", author="a", content="x"),
        said("go on"),
        event("compacted", message="Sum."),
        event("token_usage_record", usage={"input_tokens": 1}),
    )
    for row in between:
        found = session(said("go"), said("Half", "assistant"), row, said("Rest", "assistant"))
        assert [message.text for message in found.messages][:2] == ["go", "Half"], row
        assert found.messages[-1].text == "Rest"
