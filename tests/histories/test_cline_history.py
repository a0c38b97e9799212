"""Tasks of Cline."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine.facts import Text, ToolCall, Usage
from helix_desktop.histories import cline_history, history_finding, history_reading, subagent_files
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.history_rows import ReadingReport
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
    build_recorded_reply,
)
from tests.histories import written

TASK = "1767323045000"  # Second 1767323045: Cline names a task by the millisecond.
CALL = "I look.\n<execute_command>\n<command>\nls\n</command>\n<requires_approval>false</requires_approval>\n</execute_command>\n"
RESULT = "[execute_command for 'ls'] Result:\n"


def read(
    tmp_path: Path,
    messages: Sequence[Mapping[str, Any]],
    shown: object = None,
    about: object = None,
    task: str = TASK,
) -> RecordedSession:
    folder = tmp_path / "tasks" / task
    folder.mkdir(parents=True)
    for name, value in (("ui_messages.json", shown), ("task_metadata.json", about)):
        if value is not None:
            (folder / name).write_text(json.dumps(value))
    path = folder / cline_history.NAME
    path.write_text(json.dumps(messages))
    (found,) = history_reading.read_sessions(path, ReadingReport())
    return found


def said(*words: str, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"role": role, "content": [written.text(one) for one in words], **more}


def reply(*words: str, **more: Any) -> dict[str, Any]:
    return said(*words, role="assistant", **more)


def test_a_task_has_its_title_folder_and_version(tmp_path: Path) -> None:
    shown = [
        {"say": "text", "text": "no title"},
        {"say": "task", "text": "  A title\n of " + "x" * 60},
        {"say": "task", "text": "later"},
    ]
    about = {"environment_history": [{"cline_version": "2.0"}, {"cline_version": "2.18.0"}]}
    where = "<environment_details>\n# Current Working Directory (/home/me) Files\na.py"
    found = read(tmp_path, [said("go", where), reply("Done.")], shown, about)
    assert (found.kind, found.session, found.folder, found.version) == (
        "cline",
        TASK,
        "/home/me",
        "2.18.0",
    )
    assert found.title == "A title of " + "x" * 49
    assert found.name == str(tmp_path / "tasks" / TASK / cline_history.NAME)


def test_a_task_with_nothing_beside_it_has_neither(tmp_path: Path) -> None:
    found = read(tmp_path, [said("go"), reply("Done.")])
    assert (found.title, found.folder, found.version, found.compactions) == ("", "", "", ())
    assert {message.time for message in found.messages} == {1767323045.0}


def test_of_two_messages_one_is_at_the_beginning_and_one_at_the_end(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [said("go"), reply("Done.")],
        [{"ts": 9_000_000_000_000}, {"ts": 9_000_000_060_000}],
    )
    assert [message.time - 9e9 for message in found.messages] == [0, 60]


def test_times_are_spread_over_what_cline_showed(tmp_path: Path) -> None:
    shown = [{"ts": 0}, {"ts": 9_000_000_000_000}, {"ts": 9_000_000_300_000}, {"say": "no time"}]
    ends = reply("Done.", ts=9_000_000_900_000)
    found = read(tmp_path, [said("one"), said("two"), said("three"), ends], shown)
    assert [message.time - 9e9 for message in found.messages] == [0, 100, 200, 900]


def test_what_cline_showed_before_the_first_time_is_not_after_the_last(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        [said("one"), reply("two")],
        [{"ts": 9_000_000_000_000}, {"ts": 8_000_000_000_000}],
    )
    assert [message.time for message in found.messages] == [9e9, 9e9]


def test_a_folder_that_is_no_number_has_no_time(tmp_path: Path) -> None:
    found = read(tmp_path, [said("one"), reply("two")], task="task-1")
    assert ([message.time for message in found.messages], found.session) == ([0.0, 0.0], "task-1")


def test_a_call_written_as_tags_is_a_call(tmp_path: Path) -> None:
    found = read(tmp_path, [said("go"), reply(CALL), said(RESULT + "a.py"), reply("Done.")])
    call = ToolCall("cline_1", "execute_command", '{"command": "ls", "requires_approval": "false"}')
    assert [(one.role, one.text, one.parts, one.answers) for one in found.messages] == [
        ("user", "go", (), ""),
        ("assistant", "I look.\n", (Text("I look.\n"), call), ""),
        ("tool", "a.py", (), "cline_1"),
        ("assistant", "Done.", (Text("Done."),), ""),
    ]


def test_what_stands_around_a_call_and_its_result_stays(tmp_path: Path) -> None:
    asked = reply("First.", CALL.removeprefix("I look.\n"), "Last.")
    found = read(
        tmp_path, [said("go"), asked, said("Before.", RESULT, "a.py", "After."), reply("Done.")]
    )
    call = ToolCall("cline_1", "execute_command", '{"command": "ls", "requires_approval": "false"}')
    assert found.messages[1].parts == (Text("First."), call, Text("Last."))
    assert sorted((one.role, one.text) for one in found.messages[2:-1]) == [
        ("tool", "a.py"),
        ("user", "Before.\nAfter."),
    ]


def test_what_follows_a_result_with_its_output_is_not_part_of_it(tmp_path: Path) -> None:
    found = read(
        tmp_path, [said("go"), reply(CALL), said(RESULT + "a.py", "After."), reply("Done.")]
    )
    assert sorted((one.role, one.text) for one in found.messages[2:-1]) == [
        ("tool", "a.py"),
        ("user", "After."),
    ]


def test_a_result_without_an_output_is_empty(tmp_path: Path) -> None:
    found = read(tmp_path, [said("go"), reply(CALL), said(RESULT), reply("Done.")])
    assert (found.messages[2].role, found.messages[2].text) == ("tool", "")


@pytest.mark.parametrize(
    "messages",
    [
        [said(CALL), said(RESULT + "a.py"), reply("Done.")],
        [reply(CALL), said("[read_file for 'x'] Result:\na.py"), reply("Done.")],
        [reply(CALL), said("no result"), reply("Done.")],
        [reply("no call"), said(RESULT + "a.py"), reply("Done.")],
    ],
)
def test_tags_that_are_no_call_with_its_result_are_words(
    tmp_path: Path, messages: Sequence[Mapping[str, Any]]
) -> None:
    found = read(tmp_path, messages)
    assert [message.text for message in found.messages] == [
        one["content"][0]["text"] for one in messages
    ]


def test_what_cline_adds_to_words_stands_beside_and_behind_them(tmp_path: Path) -> None:
    added = [
        "# task_progress\n- [ ] one",
        "\n<environment_details>\ntime",
        "# TODO LIST\n",
        "# todo\n",
    ]
    found = read(
        tmp_path, [said("go", *added, ts=9_000_000_000_000), reply("<environment_details>")]
    )
    assert found.messages[0] == RecordedMessage("user", "go", time=9e9)
    assert found.messages[1:-1] == tuple(
        RecordedMessage("user", one.strip(), time=9e9, beside=True) for one in added
    )
    assert found.messages[-1].text == "<environment_details>"


def test_what_a_reply_cost_is_read_from_its_metrics(tmp_path: Path) -> None:
    about = {
        "modelInfo": {"modelId": "m"},
        "metrics": {"tokens": {"prompt": 100, "cached": 60, "completion": 20}},
    }
    less = {
        "modelInfo": {"modelId": "m"},
        "metrics": {"tokens": {"prompt": 10, "cached": 60, "completion": 20}},
    }
    found = read(
        tmp_path,
        [said("go"), reply("one", **about), reply("two", **less), reply("three")],
        task="t",
    )
    assert found.messages[1:] == (
        build_recorded_reply([Text("one")], model="m", usage=Usage(100, 60, 0, 20)),
        build_recorded_reply([Text("two")], model="m", usage=Usage(60, 60, 0, 20)),
        build_recorded_reply([Text("three")]),
    )


def test_what_cline_cut_out_becomes_a_fold_up_to_the_last_range(tmp_path: Path) -> None:
    cut = "conversationHistoryDeletedRange"
    shown = [
        {cut: [2, 3]},
        {cut: "no"},
        {cut: [2]},
        {cut: [2, "4"]},
        {cut: [2, 4]},
        {"ts": 8_000_000_000_000},
        {"ts": 9_000_000_000_000},
    ]
    added = said("three", "<environment_details>")
    found = read(
        tmp_path,
        [said("one"), reply("two"), added, reply("four"), said("five"), reply("six")],
        shown,
    )
    assert found.compactions == (
        # Cline keeps the task itself, which is the user's.
        RecordedCompaction(7, 6, f"one\n\n{cline_history.CUT}", 9e9, "Cline cut here"),
    )


def test_a_range_means_nothing_where_a_message_could_not_be_read(tmp_path: Path) -> None:
    shown = [{"conversationHistoryDeletedRange": [0, 1]}]
    assert read(tmp_path, [said("one"), {"role": "robot"}, reply("two")], shown).compactions == ()


def test_a_file_beside_that_leads_out_of_the_folder_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.json").write_text(json.dumps([{"say": "task", "text": "secret"}]))
    folder = tmp_path / "tasks" / TASK
    folder.mkdir(parents=True)
    (folder / "ui_messages.json").symlink_to(tmp_path / "elsewhere.json")
    path = folder / cline_history.NAME
    path.write_text(json.dumps([said("one"), reply("two")]))
    (found,) = history_reading.read_sessions(path, ReadingReport())
    assert found.title == ""


def test_any_number_of_tags_is_read_in_one_pass() -> None:
    """1 MB of them took a quarter of an hour, in which the window stood still."""
    many = "<a>\n" * 200_000 + "</b>\n" * 100_000
    assert cline_history._find_tagged_call([written.text(many)]) is None
    found = cline_history._find_tagged_call([written.text(many + "<c>\n" + many + "</c>")])
    assert found == cline_history.TaggedCall(0, many, "c", many)
    assert cline_history._fields_between_tags(many + "<c>1</c>" + many + "<d>\n2<c>3</c></d>") == {
        "c": "1",
        "d": "2<c>3</c>",
    }
    assert cline_history.working_folder_in_cline_text("# Current Working Directory (" * 9_000) == ""


def fields_one_by_one(text: str) -> dict[str, str]:
    """The same as the reader's, looked for anew behind each tag."""
    found: dict[str, str] = {}
    at = 0
    while opening := re.compile(r"<(\w+)>").search(text, at):
        end = text.find(f"</{opening[1]}>", opening.end())
        at = opening.end()
        if end >= 0:
            found[opening[1]] = text[opening.end() : end].strip("\n")
            at = end + len(opening[1]) + 3
    return found


def test_a_field_ends_at_the_first_tag_behind_it_that_closes_it() -> None:
    chance = random.Random(1)
    for _ in range(200):
        text = "".join(
            chance.choice(["<a>", "</a>", "<b>", "</b>", "one", "\n"])
            for _ in range(chance.randint(1, 14))
        )
        assert cline_history._fields_between_tags(text) == fields_one_by_one(text), text


def _written_session(folder: Path) -> Path:
    """As the command line 3.0.65 writes it: a session, its description and one sub-agent."""
    session = folder / ".cline" / "data" / "sessions" / "1795_ab"
    session.mkdir(parents=True)
    model: dict[str, Any] = {"modelInfo": {"id": "gpt-5", "provider": "openai-compatible"}}
    model |= {
        "metrics": {
            "inputTokens": 900,
            "outputTokens": 10,
            "cacheReadTokens": 300,
            "cacheWriteTokens": 0,
        }
    }
    outputs = [
        {"query": "ls", "result": "a\n", "success": True},
        {"query": "rm", "result": "no", "success": False},
    ]
    answer = {
        "type": "tool_result",
        "tool_use_id": "c1",
        "name": "run_commands",
        "content": outputs,
    }
    messages = [
        {
            **said('<user_input mode="act">list\n the “files” </user_input>'),
            "ts": 1_767_323_045_000,
        },
        {
            "role": "assistant",
            "content": [written.text("I look."), written.use("c1", "run_commands")],
            **model,
        },
        {"role": "user", "content": [answer]},
        reply("Done.", **model),
    ]
    whole = {
        "version": 1,
        "agent": "lead",
        "sessionId": "1795_ab",
        "messages": messages,
        "system_prompt": "You are…",
    }
    file = session / "1795_ab.messages.json"
    file.write_text(json.dumps(whole, indent=2))
    below = {**whole, "agent": "subagent", "messages": [said("Count."), reply("Counted.", **model)]}
    (session / "agent_1_x.messages.json").write_text(json.dumps(below, indent=2))
    about: dict[str, Any] = {"session_id": "1795_ab", "cwd": str(folder / "project")}
    about["metadata"] = {"title": "list files", "sessionHistoryOrigin": {"version": "3.0.65"}}
    (session / "1795_ab.json").write_text(json.dumps(about, indent=2))
    return file


@pytest.mark.parametrize("kind", ["", "cline"])
def test_a_session_of_cline_3_is_read_with_what_the_user_typed_and_its_outputs(
    tmp_path: Path, kind: str
) -> None:
    """Before, only tasks of Cline 2 were found: nothing that Cline 3 does was recorded."""
    file = _written_session(tmp_path)
    report = ReadingReport()
    # The recorder says of which program the file is.
    (found,) = history_reading.read_sessions(file, report, kind)
    assert (list(report.sentences_about_unknown()), list(report.unknown)) == ([], [])
    assert (found.kind, found.session, found.title, found.version) == (
        "cline",
        "1795_ab",
        "list files",
        "3.0.65",
    )
    assert (found.folder, report.complaints, dict(report.left_out)) == (
        str(tmp_path / "project"),
        [],
        {},
    )
    asked, look, output, done = found.messages
    assert (asked.text, asked.time, done.text) == ("list\n the “files” ", 1_767_323_045.0, "Done.")
    assert (look.model, look.usage.input, look.usage.cache_read, look.usage.output) == (
        "gpt-5",
        900,
        300,
        10,
    )
    assert (output.text, output.answers, output.ok) == ("a\n\nno", "c1", False)
    (below,) = history_reading.read_sessions(file.with_name("agent_1_x.messages.json"), report)
    assert (below.session, below.parent) == ("1795_ab__agent_1_x", "1795_ab")


def test_sessions_of_cline_3_are_found_with_their_sub_agents(tmp_path: Path) -> None:
    file = _written_session(tmp_path)
    (found,) = history_finding.find_histories(HistoryPlaces(tmp_path, {}))
    assert (found.path, found.folder) == (file, str(tmp_path / "project"))
    agent = file.with_name("agent_1_x.messages.json")
    assert list(subagent_files.list_files_with_subagents(found.path)) == [file, agent]
    changed = [
        history_finding.find_history_of_changed_file("cline", one)
        for one in sorted(file.parent.iterdir())
    ]
    assert changed == [None, file, agent]
