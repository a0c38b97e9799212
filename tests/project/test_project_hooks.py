"""Hooks as published files have them: what is read, how calls are named, what answers mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from helix_desktop.project.project_hooks import (
    HookAnswer,
    ProjectHook,
    build_hook_from_item,
    parse_hook_answer,
    read_hooks_file,
    translate_call_for_claude,
)
from helix_desktop.project.project_item import ProjectItem, ProjectReading


def read_text(tmp_path: Path, text: str) -> list[ProjectItem]:
    """The items of a settings file with this text."""
    path = tmp_path / "settings.json"
    path.write_text(text)
    return list(read_hooks_file(path, ProjectReading(tmp_path), tmp_path))


def read(tmp_path: Path, event: str, *hooks: Mapping[str, object]) -> list[ProjectItem]:
    """The items of a file with these hooks for one event, and for Bash alone."""
    group = {"matcher": "Bash", "hooks": hooks}
    return read_text(tmp_path, json.dumps({"hooks": {event: [group]}}))


def command(line: str, **more: object) -> dict[str, object]:
    return {"type": "command", "command": line, **more}


def test_every_hook_is_an_item_with_its_own_name_and_time(tmp_path: Path) -> None:
    first, second = read(tmp_path, "PreToolUse", command("x", timeout=5), command("y"))
    assert first.name == "PreToolUse"
    assert second.name == "PreToolUse 2"
    assert first.about == "PreToolUse Bash"
    assert build_hook_from_item(first, tmp_path).seconds == 5


def test_a_hook_is_another_one_once_the_script_that_it_runs_has_changed(tmp_path: Path) -> None:
    script = tmp_path / ".claude" / "check.sh"
    script.parent.mkdir()
    runs_script = command('"$CLAUDE_PROJECT_DIR"/.claude/check.sh')
    script.write_text("exit 2")
    (before,) = read(tmp_path, "PreToolUse", runs_script)
    script.write_text("exit 0")
    (after,) = read(tmp_path, "PreToolUse", runs_script)
    assert before.content_sha256 != after.content_sha256


def test_an_event_that_is_not_supported_is_said_when_the_file_is_read(tmp_path: Path) -> None:
    (item,) = read_text(tmp_path, '{"hooks": {"TeammateIdle": []}}')
    assert "TeammateIdle is not supported" in item.notes[0]


def test_a_hook_of_a_kind_that_is_not_supported_is_said(tmp_path: Path) -> None:
    (item,) = read(tmp_path, "Stop", {"type": "prompt", "prompt": "ok?"})
    assert "'prompt' are not supported" in item.notes[0]


def test_an_option_that_is_not_supported_is_said(tmp_path: Path) -> None:
    (item,) = read(tmp_path, "Stop", {**command("x"), "async": True})
    assert "async is not supported" in item.notes[0]


def test_a_file_that_is_not_json_is_said(tmp_path: Path) -> None:
    (item,) = read_text(tmp_path, "{")
    assert "not valid JSON" in item.notes[0]


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        '{"hooks": 3}',
        '{"hooks": {"Stop": 3}}',
        '{"hooks": {"Stop": [3, {"hooks": 4}]}}',
        "{}",
    ],
)
def test_any_file_is_read(tmp_path: Path, text: str) -> None:
    for item in read_text(tmp_path, text):
        assert item.broken


def hook(matcher: str) -> ProjectHook:
    return ProjectHook("PreToolUse", matcher, "x", 1, Path())


def test_matchers_are_patterns_over_claude_codes_names() -> None:
    assert hook("").matches_tool("Bash")
    assert hook("*").matches_tool("Bash")
    assert hook("Edit|Write").matches_tool("Write")
    assert not hook("Edit").matches_tool("MultiEdit")
    assert hook("mcp__github__.*").matches_tool("mcp__github__create")
    assert hook("(").matches_tool("(")
    assert hook("^(Edit|Write)$").matches_tool("Write")
    assert not hook("mcp__(github|gitlab)__(create|delete)_.*").matches_tool(
        "mcp__github__list_all"
    )


@pytest.mark.parametrize(
    ("matcher", "name"),
    [
        ("(a+)+b", "a" * 64),
        ("(?:a|aa)*b", "a" * 64),
        ("(a|aa){2,}b", "a" * 64),
        ("a?" * 40 + "a" * 40 + "b", "a" * 64),
        (".*" * 12 + "b", "a" * 64),
        (".*.*.*.*b", "a" * 100_000),
        ("(|)" * 60 + "Edit", "Bash"),
        ("(a|a)" * 40 + "b", "a" * 64),
    ],
)
def test_a_matcher_that_would_take_forever_is_meant_for_every_tool(matcher: str, name: str) -> None:
    """It held the whole program: a file of the folder says what it is, and the name of
    a tool comes from a server.
    """
    assert hook(matcher).matches_tool(name)


def test_a_matcher_that_python_cannot_read_is_compared_as_it_stands() -> None:
    assert not hook("a{99999999999}").matches_tool("Bash")
    assert hook("mcp__.*__(?:read|write).*").matches_tool("mcp__files__read_all")
    assert not hook("mcp__.*__(?:read|write).*").matches_tool("mcp__files__list")


PROJECT = Path("/p")


def test_a_command_is_called_bash_and_has_a_description() -> None:
    name, arguments = translate_call_for_claude("run_command", {"command": "ls"}, PROJECT)
    assert name == "Bash"
    assert arguments == {"command": "ls", "description": ""}


def test_a_file_that_is_read_is_named_by_its_whole_path() -> None:
    name, arguments = translate_call_for_claude("read_file", {"path": "a.py"}, PROJECT)
    assert name == "Read"
    assert arguments == {"file_path": "/p/a.py"}


def test_lines_that_are_read_are_an_offset_and_a_limit() -> None:
    until_line = {"path": "a.py", "last_line": 3}
    _, arguments = translate_call_for_claude("read_file", until_line, PROJECT)
    assert arguments == {"file_path": "/p/a.py", "limit": 3}
    from_line_to_line = {"path": "a.py", "first_line": 5, "last_line": 7}
    _, arguments = translate_call_for_claude("read_file", from_line_to_line, PROJECT)
    assert arguments == {"file_path": "/p/a.py", "offset": 5, "limit": 3}


def test_a_file_that_is_written_has_its_content() -> None:
    written = {"path": "a", "content": "x"}
    name, arguments = translate_call_for_claude("write_file", written, PROJECT)
    assert name == "Write"
    assert arguments == {"file_path": "/p/a", "content": "x"}


def test_an_edit_replaces_one_place_and_keeps_a_whole_path() -> None:
    edit = {"path": "/p/a", "old_text": "x", "new_text": "y"}
    name, arguments = translate_call_for_claude("edit_file", edit, PROJECT)
    assert name == "Edit"
    assert arguments == {
        "file_path": "/p/a",
        "old_string": "x",
        "new_string": "y",
        "replace_all": False,
    }


def test_a_tool_of_a_server_has_its_name_and_any_other_tool_keeps_its_own() -> None:
    of_server = translate_call_for_claude("github__create", {"a": 1}, PROJECT)
    assert of_server == ("mcp__github__create", {"a": 1})
    assert translate_call_for_claude("other", {}, PROJECT) == ("other", {})


def test_a_hook_that_ends_well_and_says_nothing_means_nothing() -> None:
    assert parse_hook_answer("PreToolUse", 0, "", "") == HookAnswer()
    assert parse_hook_answer("PreToolUse", 0, "plain", "") == HookAnswer()


def test_the_exit_code_2_blocks_with_what_was_complained() -> None:
    assert parse_hook_answer("PreToolUse", 2, "", "No rm.\n") == HookAnswer(blocks="No rm.")


def test_any_other_exit_code_is_noted_and_blocks_nothing() -> None:
    answer = parse_hook_answer("PreToolUse", 1, "", "oops")
    assert answer == HookAnswer(note="it ended with exit code 1. oops")


def test_what_is_printed_at_the_start_is_said_to_the_model() -> None:
    assert parse_hook_answer("SessionStart", 0, "Branch: main", "") == HookAnswer(
        says="Branch: main"
    )


def answer_in_json(event: str, **fields: object) -> HookAnswer:
    return parse_hook_answer(event, 0, json.dumps(fields), "")


def answer_of_event(event: str, **fields: object) -> HookAnswer:
    """The answer in the newer form, which says for which event it is."""
    return answer_in_json(event, hookSpecificOutput=fields)


@pytest.mark.parametrize("event", ["PreToolUse", "Stop"])
def test_a_decision_to_block_has_its_reason(event: str) -> None:
    answer = answer_in_json(event, decision="block", reason="test first")
    assert answer == HookAnswer(blocks="test first")


def test_a_permission_that_is_denied_blocks() -> None:
    answer = answer_of_event("PreToolUse", permissionDecision="deny", permissionDecisionReason="x")
    assert answer == HookAnswer(blocks="x")


def test_a_permission_that_is_to_be_asked_for_is_asked_for() -> None:
    answer = answer_of_event("PreToolUse", permissionDecision="ask", permissionDecisionReason="x")
    assert answer == HookAnswer(asks="x")


def test_what_a_hook_adds_to_a_message_is_said_to_the_model() -> None:
    answer = answer_of_event("UserPromptSubmit", additionalContext="Monday")
    assert answer == HookAnswer(says="Monday")


def test_a_hook_that_does_not_continue_blocks_with_why_it_stops() -> None:
    answer = answer_in_json("Stop", **{"continue": False, "stopReason": "enough"})
    assert answer == HookAnswer(blocks="enough")


def test_a_hook_never_allows() -> None:
    answer = answer_of_event("PreToolUse", permissionDecision="allow", updatedInput={})
    assert not answer.blocks
    assert "cannot allow calls" in answer.note
    assert "not supported" in answer.note


def is_run_for(condition: str, tool: str, **values: str) -> bool:
    hook_with_condition = ProjectHook("PreToolUse", "", "x", 1, PROJECT, only=condition)
    if not hook_with_condition.matches_tool(tool):
        return False
    return hook_with_condition.matches_arguments(values)


def test_a_hook_without_a_condition_is_run_for_every_call() -> None:
    assert is_run_for("", "Bash", command="ls")


def test_a_condition_on_a_command_is_a_pattern_of_its_whole_line() -> None:
    forced = "Bash(git push --force*)"
    assert is_run_for(forced, "Bash", command="git push --force origin")
    assert not is_run_for(forced, "Bash", command="git push")
    assert is_run_for("Bash(git push:*)", "Bash", command="git push origin")


def test_a_condition_on_a_file_is_a_pattern_of_its_path_in_the_project() -> None:
    assert is_run_for("Write(.env*)", "Write", file_path="/p/.env.local")
    assert not is_run_for("Write(.env*)", "Write", file_path="/p/a.py")
    assert is_run_for("Write(src/*)", "Write", file_path="/p/src/a.py")


def test_a_condition_on_one_tool_holds_for_no_other() -> None:
    assert not is_run_for("Write(.env*)", "Edit", file_path="/p/.env")


def test_a_condition_that_is_not_understood_lets_the_hook_not_run(tmp_path: Path) -> None:
    (item,) = read(tmp_path, "PreToolUse", {**command("exit 2"), "if": "what (ever"})
    assert item.broken


def test_hooks_of_a_file_with_a_byte_order_mark_run(tmp_path: Path) -> None:
    text = json.dumps({"hooks": {"Stop": [{"hooks": [command("x")]}]}})
    (item,) = read_text(tmp_path, "\ufeff" + text)
    assert not item.broken
