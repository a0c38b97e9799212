"""Calls of one agent as another's, where nothing they did is told differently."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from helix_desktop.engine.facts import Reasoning, Text, ToolCall, Usage
from helix_desktop.histories.conversation_restoring import FORMATS
from helix_desktop.histories.recorded_session import (
    RecordedMessage,
    RecordedPicture,
    build_recorded_reply,
)
from helix_desktop.histories.tool_translation import MessageTranslation, translate_call

ALL = ("claude-code", "codex", "opencode", "gemini-cli", "pi")


def translated(name: str, target: str, **arguments: object) -> tuple[str, object] | None:
    found = translate_call(ToolCall("c1", name, json.dumps(arguments), tokens=3), target)
    if found is None:
        return None
    assert (found.id, found.tokens) == ("c1", 3)
    return found.name, json.loads(found.arguments)


@pytest.mark.parametrize(
    ("target", "name", "field"),
    [
        ("claude-code", "Bash", "command"),
        ("codex", "exec_command", "cmd"),
        ("opencode", "bash", "command"),
        ("gemini-cli", "run_shell_command", "command"),
        ("pi", "bash", "command"),
    ],
)
def test_a_command_is_run_by_every_agent(target: str, name: str, field: str) -> None:
    for tool in (
        "run_command",
        "Bash",
        "bash",
        "exec_command",
        "shell",
        "shell_command",
        "run_shell_command",
    ):
        assert translated(tool, target, command="ls") == (name, {field: "ls"})
    assert translated("Bash", target, cmd="ls", timeout=5, description="x", yield_time_ms=1) == (
        name,
        {field: "ls"},
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["bash", "-lc", "ls | wc"], "ls | wc"),
        (["/bin/sh", "-c", "ls | wc"], "ls | wc"),
        (["zsh", "-c", "ls"], "ls"),
        (["bash", "-x", "ls"], "bash -x ls"),
        (["python", "-c", "a b"], "python -c 'a b'"),
        (["bash", "-c", "ls", "x"], "bash -c ls x"),
        (["ls", "a b"], "ls 'a b'"),
    ],
)
def test_a_command_in_words_is_a_line(words: list[str], line: str) -> None:
    assert translated("shell", "pi", command=words) == ("bash", {"command": line})


def test_a_command_in_another_folder_goes_there_first() -> None:
    assert translated("shell", "pi", command="ls", workdir="/a b") == (
        "bash",
        {"command": "cd '/a b' && ls"},
    )
    assert translated("Read", "pi", path="a", workdir="/b") is None


def test_files_are_read_written_and_edited_where_the_agent_has_such_a_tool() -> None:
    read = {"file_path": "/ü"}
    write = {"file_path": "a", "content": "x"}
    edit = {"file_path": "a", "old_string": "x", "new_string": "y"}
    assert [translated("Read", target, **read) for target in ALL] == [
        ("Read", {"file_path": "/ü"}),
        None,
        ("read", {"filePath": "/ü"}),
        ("read_file", {"file_path": "/ü"}),
        ("read", {"path": "/ü"}),
    ]
    assert [translated("write_file", target, **write) for target in ALL] == [
        ("Write", write),
        None,
        ("write", {"filePath": "a", "content": "x"}),
        ("write_file", write),
        ("write", {"path": "a", "content": "x"}),
    ]
    assert [translated("replace", target, **edit) for target in ALL] == [
        ("Edit", edit),
        None,
        ("edit", {"filePath": "a", "oldString": "x", "newString": "y"}),
        None,
        None,
    ]
    found = translate_call(ToolCall("c1", "Read", '{"path": "ü"}'), "pi")
    assert found is not None
    assert found.arguments == '{"path": "ü"}', "in letters that people can read"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("delegate", '{"command": "ls"}'),
        ("Bash", '{"command": "ls", "run_in_background": true}'),
        ("Bash", '{"command": 5}'),
        ("Bash", '{"command": ["ls", 5]}'),
        ("Bash", '{"command": "ls", "content": "x"}'),
        ("Bash", "{}"),
        ("Bash", ""),
        ("Bash", "[]"),
        ("Bash", "no JSON"),
        ("Read", '{"path": "a", "offset": 5}'),
        ("Write", '{"path": "a"}'),
    ],
)
def test_a_call_with_anything_that_has_no_counterpart_is_not_translated(
    name: str, arguments: str
) -> None:
    assert [translate_call(ToolCall("c1", name, arguments), target) for target in ALL] == [None] * 5


def reply(*calls: str, opaque: str = "", provider: str = "") -> RecordedMessage:
    arguments = {"Bash": '{"command": "ls"}'}
    parts = [
        ToolCall(f"c{at}", name, arguments.get(name, '{"task": 1}'))
        for at, name in enumerate(calls)
    ]
    thought = Reasoning("hm", opaque=opaque, provider=provider)
    return build_recorded_reply(
        [thought, Text("I look."), *parts], model="m", time=5.0, usage=Usage(9)
    )


def test_a_reply_whose_calls_all_translate_keeps_them() -> None:
    translation = MessageTranslation("pi", same_agent=False, provider="")
    found = translation.translate_message(reply("Bash"))
    call = ToolCall("c0", "bash", '{"command": "ls"}')
    assert found == build_recorded_reply(
        [Text("I look."), call], model="m", time=5.0, usage=Usage(9)
    )
    result = RecordedMessage("tool", "out", answers="c0")
    assert translation.translate_message(result) is result
    assert (translation.as_text, translation.left_out_reasoning, translation.left_out_context) == (
        0,
        1,
        0,
    )


def test_a_reply_with_a_call_that_does_not_translate_has_all_as_text() -> None:
    translation = MessageTranslation("pi", same_agent=False, provider="")
    found = translation.translate_message(reply("Bash", "delegate"))
    assert found is not None
    assert [getattr(part, "text", "") for part in found.parts] == [
        "I look.",
        '[Call of the tool Bash]\n{"command": "ls"}',
        '[Call of the tool delegate]\n{"task": 1}',
    ]
    picture = RecordedPicture("image/png", b"x")
    results = (
        RecordedMessage("tool", "out", answers="c0", time=6.0, pictures=(picture,)),
        RecordedMessage("tool", "bad", answers="c1", ok=False, time=7.0),
    )
    assert [translation.translate_message(one) for one in results] == [
        RecordedMessage(
            "user", "[Result of the tool Bash]\nout", time=6.0, pictures=(picture,), beside=True
        ),
        RecordedMessage(
            "user", "[Result of the tool delegate, which failed]\nbad", time=7.0, beside=True
        ),
    ]
    assert translation.as_text == 2


def test_the_agent_itself_gets_its_calls_as_they_were() -> None:
    translation = MessageTranslation("pi", same_agent=True, provider="")
    found = translation.translate_message(reply("Bash", "delegate"))
    assert found is not None
    assert [call.name for call in found.calls] == ["Bash", "delegate"]
    assert translation.as_text == 0


@pytest.mark.parametrize(("tool", "is_its_own"), [("delegate", True), ("recall_history", False)])
def test_a_connected_agent_gets_its_calls_and_those_of_the_gateway_as_text(
    tool: str, *, is_its_own: bool
) -> None:
    translation = MessageTranslation("pi", same_agent=False, was_connected=True, provider="")
    found = translation.translate_message(reply("Bash", tool))
    assert found is not None
    names = [call.name for call in found.calls]
    assert names == (["Bash", tool] if is_its_own else [])


def test_only_the_provider_that_sealed_reasoning_gets_it_back() -> None:
    for opaque, provider, kept in (("x", "p", True), ("", "p", False), ("x", "q", False)):
        translation = MessageTranslation("pi", same_agent=True, provider="p")
        found = translation.translate_message(reply(opaque=opaque, provider=provider))
        assert found is not None
        assert (bool(found.reasoning), translation.left_out_reasoning) == (kept, not kept)


def test_a_reply_of_which_nothing_is_left_is_left_out() -> None:
    translation = MessageTranslation("pi", same_agent=False, provider="")
    assert translation.translate_message(build_recorded_reply([Reasoning("hm"), Text(" ")])) is None
    call = ToolCall("c1", "Bash", '{"command": "ls"}')
    found = translation.translate_message(build_recorded_reply([call]))
    assert found is not None
    assert len(found.calls) == 1


def test_what_an_agent_put_in_itself_goes_back_only_to_those_that_keep_it() -> None:
    beside = RecordedMessage("user", "x", beside=True)
    system = RecordedMessage("system", "x")
    for form in FORMATS.values():
        target = form.kind
        for same_agent in (True, False):
            for message, kept in (
                (beside, target in ("claude-code", "codex", "opencode", "pi")),
                (system, target == "codex"),
            ):
                translation = MessageTranslation(
                    target, same_agent=same_agent, provider="", kept_context=form.kept_context
                )
                found = translation.translate_message(message)
                assert found == (message if kept and same_agent else None), (
                    target,
                    same_agent,
                    message,
                )
                assert translation.left_out_context == (found is None)
    said = RecordedMessage("user", "x")
    assert MessageTranslation("pi", same_agent=False, provider="").translate_message(said) is said


def test_what_the_user_wrote_behind_a_command_goes_to_every_agent() -> None:
    words = "<command-name>/review</command-name>\n<command-args>the parser</command-args>"
    bare = "<command-name>/context</command-name>\n<command-args></command-args>"
    for target in ALL:
        translation = MessageTranslation(target, same_agent=False, provider="")
        message = RecordedMessage("user", words, beside=True)
        assert translation.translate_message(message) == message
        assert translation.translate_message(replace(message, text=bare)) is None
