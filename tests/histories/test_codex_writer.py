"""Rollouts for Codex."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from helix_desktop.engine.agent_additions import SEALED_SUMMARY
from helix_desktop.engine.facts import Reasoning, ReplyPart, Text, ToolCall
from helix_desktop.histories import claude_code_writer, codex_writer, pi_writer
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
    build_recorded_reply,
)

PICTURE = RecordedPicture("image/png", b"\0\0\0")
IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}


def lines(*messages: RecordedMessage, **more: Any) -> list[dict[str, Any]]:
    session = RecordedSession("s", messages, folder="/work", **more)
    return [dict(line) for line in codex_writer.build_codex_lines(session, "thread-1", 61.0)]


def items(*messages: RecordedMessage) -> list[dict[str, Any]]:
    _, *written = lines(*messages)
    assert {line["type"] for line in written} <= {"response_item"}
    return [line["payload"] for line in written]


def text(words: str, kind: str = "input_text") -> dict[str, str]:
    return {"type": kind, "text": words}


def test_the_head_says_where_when_and_with_which_instructions() -> None:
    when = "1970-01-01T00:01:01.000Z"
    about = {
        "id": "thread-1", "session_id": "thread-1", "timestamp": when, "cwd": "/work",
        "originator": "codex_exec", "cli_version": "0.171.0", "source": "exec", "helix_title": "",
    }  # fmt: skip
    assert lines() == [{"timestamp": when, "type": "session_meta", "payload": about}]
    said = RecordedMessage("user", "go", time=2.0)
    head, first = lines(RecordedMessage("system", "Be good."), said)
    assert head["payload"] == {**about, "base_instructions": {"text": "Be good."}}
    assert first["timestamp"] == "1970-01-01T00:00:02.000Z"
    assert first["payload"] == {"type": "message", "role": "user", "content": [text("go")]}


def test_what_the_provider_sealed_of_a_compaction_is_an_item_again() -> None:
    """Only its provider can read it. As a text, it told the model nothing."""
    item = '{"type":"compaction","encrypted_content":"opaque"}'
    sealed = {"type": "compaction", "encrypted_content": "opaque"}
    alone = RecordedMessage("user", SEALED_SUMMARY, sealed=(item,))
    beside_words = RecordedMessage("user", f"go\n{SEALED_SUMMARY}", sealed=(item,))
    words = {"type": "message", "role": "user", "content": [text("go\n")]}
    assert items(alone, beside_words) == [sealed, words, sealed]


@pytest.mark.parametrize("sealed", ["{", "[" * 100_000, "5"])
def test_what_is_sealed_and_is_no_object_is_left_out(sealed: str) -> None:
    """An imported workspace can bring any text. It ended the restore with a traceback."""
    message = RecordedMessage("user", f"go\n{SEALED_SUMMARY}", sealed=(sealed,))
    reply = build_recorded_reply([Reasoning("hm", opaque=sealed), Text("I look.")])
    assert items(message, reply) == [
        {"type": "message", "role": "user", "content": [text("go\n")]},
        {"type": "message", "role": "assistant", "content": [text("I look.", "output_text")]},
    ]


def test_instructions_that_are_not_the_first_words_are_a_message() -> None:
    beside = RecordedMessage("system", "Be brief.", beside=True)
    developer = {"type": "message", "role": "developer", "content": [text("Be brief.")]}
    assert items(beside) == [developer]
    assert "base_instructions" not in lines(beside)[0]["payload"]
    assert (
        items(RecordedMessage("user", "go"), RecordedMessage("system", "Be brief."))[1] == developer
    )


def test_words_and_pictures() -> None:
    assert items(RecordedMessage("user", "look", pictures=(PICTURE,)))[0]["content"] == [
        text("look"),
        IMAGE,
    ]
    assert items(RecordedMessage("user", " ", pictures=(PICTURE,)))[0]["content"] == [IMAGE]
    assert items(RecordedMessage("user", " "), RecordedMessage("failure", "cut")) == []


def test_a_reply_its_calls_and_their_results() -> None:
    sealed = Reasoning("hm", opaque='{"type":"reasoning","encrypted_content":"x"}')
    parts: list[ReplyPart] = [
        sealed,
        Reasoning("unsealed"),
        Text("I look."),
        Text(" "),
        ToolCall("c 1", "f", "{}"),
    ]
    parts += [ToolCall("c2", "apply_patch", '{"input": "*** Begin"}')]
    results = (
        RecordedMessage("tool", "out", answers="c 1"),
        RecordedMessage("tool", "seen", answers="c2", pictures=(PICTURE,)),
        RecordedMessage("tool", " ", answers="c2", pictures=(PICTURE,)),
    )
    assert items(build_recorded_reply(parts), *results) == [
        {"summary": [], "type": "reasoning", "encrypted_content": "x"},
        {"type": "message", "role": "assistant", "content": [text("I look.", "output_text")]},
        {"type": "function_call", "call_id": "c_1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
        {"type": "function_call_output", "call_id": "c_1", "output": "out"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [text("seen"), IMAGE]},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [IMAGE]},
    ]


@pytest.mark.parametrize(
    "arguments", ['{"input": 5}', '{"input": "x", "more": 1}', "{}", '{"patch": "x"}']
)
def test_a_patch_with_other_arguments_is_a_function(arguments: str) -> None:
    (call,) = items(build_recorded_reply([ToolCall("c1", "apply_patch", arguments)]))
    assert (call["type"], call["arguments"]) == ("function_call", arguments)
    (other,) = items(build_recorded_reply([ToolCall("c1", "f", '{"input": "x"}')]))
    assert other["type"] == "function_call"


def test_a_compaction_stands_for_all_before_it() -> None:
    *_, line = lines(
        RecordedMessage("user", "go"), compactions=(RecordedCompaction(1, 1, "Sum.", 2.0),)
    )
    kept = [{"type": "message", "role": "user", "content": [text("Sum.")]}]
    assert line == {
        "timestamp": "1970-01-01T00:00:02.000Z",
        "type": "compacted",
        "payload": {"message": "Sum.", "replacement_history": kept},
    }


def test_a_rollout_is_named_by_the_time_here() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5).timestamp()  # noqa: DTZ001 -- the time here
    found = codex_writer.rollout_path_below_sessions("thread-1", when)
    assert found == "2026/01/02/rollout-2026-01-02T03-04-05-thread-1.jsonl"


def test_a_compaction_has_the_users_messages_that_its_text_begins_with_as_messages() -> None:
    """Codex counts the kept messages of users, and shows them, each by itself."""
    first, lost, last = (RecordedMessage("user", words) for words in ("go", "old", "and again"))
    note = RecordedMessage("user", "<environment_context>", beside=True)
    reply = build_recorded_reply([Text("Done.")])
    compaction = RecordedCompaction(5, 5, "go\n\nand again\n\nSum.\n\nold", 9.0)
    *_, line = lines(first, note, lost, reply, last, compactions=(compaction,))
    kept = line["payload"]["replacement_history"]
    assert [one["content"][0]["text"] for one in kept] == ["go", "and again", "Sum.\n\nold"]
    assert {(one["type"], one["role"]) for one in kept} == {("message", "user")}
    assert line["payload"]["message"] == "Sum.\n\nold"


def test_a_call_has_a_name_that_openai_accepts() -> None:
    """It refuses a whole request for a name with a dot, as some other agents have."""
    reply = build_recorded_reply([ToolCall("c1", "browser.open page", "{}")])
    (call,) = items(reply)
    assert call["name"] == "browser_open_page"


def test_a_session_that_names_the_gateway_as_its_provider_is_given_back_without_it() -> None:
    """Codex refuses to resume it where nobody has set up that provider."""
    others = b'{"payload":{"text":"\\"model_provider\\":\\"helix\\","}}\n'
    first = b'{"type":"session_meta","payload":{"id":"1","model_provider":"helix","cwd":"/"}}\n'
    title = codex_writer.FORMAT.with_title(first + others, "1", "T")
    expected = b'{"type":"session_meta","payload":{"helix_title":"T","id":"1","cwd":"/"}}\n'
    assert title == expected + others
    own = first.replace(b"helix", b"openai")
    assert b'"model_provider":"openai"' in codex_writer.FORMAT.with_title(own, "1", "T")


def test_a_document_is_not_written_as_a_picture_which_a_provider_refuses() -> None:
    document = RecordedPicture("application/pdf", b"%PDF")
    result = RecordedMessage("tool", "Read.", answers="c1", pictures=(document, PICTURE))
    left_out = "[A file of type application/pdf, which this agent's sessions cannot contain]"
    (written,) = items(result)
    assert written["output"] == [text("Read."), text(left_out), IMAGE]

    (pi_result,) = pi_writer._pi_content(result)[1:2]
    assert pi_result == {"type": "text", "text": left_out}

    _, pdf, image = claude_code_writer._text_and_picture_blocks(result)
    assert (pdf["type"], pdf["source"]["media_type"]) == ("document", "application/pdf")
    assert image["type"] == "image"
    other = RecordedPicture("audio/wav", b"RIFF")
    (note,) = claude_code_writer._text_and_picture_blocks(
        RecordedMessage("user", "", pictures=(other,))
    )
    assert note["type"] == "text"
