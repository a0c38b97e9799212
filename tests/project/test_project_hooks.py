"""Hooks as published files have them: what is read, how calls are named, what answers mean."""

from __future__ import annotations

import json
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


def read(tmp_path: Path, hooks: object) -> list[ProjectItem]:
    path = tmp_path / "settings.json"
    path.write_text(hooks if isinstance(hooks, str) else json.dumps({"hooks": hooks}))
    return list(read_hooks_file(path, ProjectReading(tmp_path), tmp_path))


def test_every_hook_is_an_item_with_the_script_it_runs(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "check.sh").write_text("exit 2")
    command = {"type": "command", "command": '"$CLAUDE_PROJECT_DIR"/.claude/check.sh', "timeout": 5}
    one, two = read(
        tmp_path,
        {
            "PreToolUse": [
                {"matcher": "Bash", "hooks": [command, {"type": "command", "command": "x"}]}
            ]
        },
    )
    assert (one.name, two.name, one.about) == ("PreToolUse", "PreToolUse 2", "PreToolUse Bash")
    assert build_hook_from_item(one, tmp_path).seconds == 5
    before = one.content_sha256
    (tmp_path / ".claude" / "check.sh").write_text("exit 0")
    assert (
        read(tmp_path, {"PreToolUse": [{"matcher": "Bash", "hooks": [command]}]})[0].content_sha256
        != before
    )


@pytest.mark.parametrize(
    ("hooks", "words"),
    [
        ({"TeammateIdle": []}, "TeammateIdle is not supported"),
        (
            {"Stop": [{"hooks": [{"type": "prompt", "prompt": "ok?"}]}]},
            "'prompt' are not supported",
        ),
        ("{", "not valid JSON"),
        (
            {"Stop": [{"hooks": [{"type": "command", "command": "x", "async": True}]}]},
            "async is not supported",
        ),
    ],
)
def test_what_is_not_supported_is_said_when_the_file_is_read(
    tmp_path: Path, hooks: object, words: str
) -> None:
    (item,) = read(tmp_path, hooks)
    assert words in item.notes[0]


@pytest.mark.parametrize(
    "hooks",
    [
        "[]",
        '{"hooks": 3}',
        '{"hooks": {"Stop": 3}}',
        '{"hooks": {"Stop": [3, {"hooks": 4}]}}',
        "{}",
    ],
)
def test_any_file_is_read(tmp_path: Path, hooks: str) -> None:
    assert all(item.broken for item in read(tmp_path, hooks))


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


@pytest.mark.parametrize(
    ("name", "values", "theirs", "arguments"),
    [
        ("run_command", {"command": "ls"}, "Bash", {"command": "ls", "description": ""}),
        ("read_file", {"path": "a.py"}, "Read", {"file_path": "/p/a.py"}),
        ("read_file", {"path": "a.py", "last_line": 3}, "Read", {"file_path": "/p/a.py", "limit": 3}),
        ("read_file", {"path": "a.py", "first_line": 5, "last_line": 7}, "Read", {"file_path": "/p/a.py", "offset": 5, "limit": 3}),
        ("write_file", {"path": "a", "content": "x"}, "Write", {"file_path": "/p/a", "content": "x"}),
        (
            "edit_file", {"path": "/p/a", "old_text": "x", "new_text": "y"},
            "Edit", {"file_path": "/p/a", "old_string": "x", "new_string": "y", "replace_all": False},
        ),
        ("github__create", {"a": 1}, "mcp__github__create", {"a": 1}),
        ("other", {}, "other", {}),
    ],
)  # fmt: skip
def test_calls_have_claude_codes_names_and_shapes(
    name: str, values: dict[str, object], theirs: str, arguments: dict[str, object]
) -> None:
    assert translate_call_for_claude(name, values, Path("/p")) == (theirs, arguments)


@pytest.mark.parametrize(
    ("event", "code", "printed", "complained", "answer"),
    [
        ("PreToolUse", 0, "", "", HookAnswer()),
        ("PreToolUse", 2, "", "No rm.\n", HookAnswer(blocks="No rm.")),
        ("PreToolUse", 1, "", "oops", HookAnswer(note="it ended with exit code 1. oops")),
        ("PreToolUse", 0, "plain", "", HookAnswer()),
        ("SessionStart", 0, "Branch: main", "", HookAnswer(says="Branch: main")),
        ("PreToolUse", 0, '{"decision": "block", "reason": "no"}', "", HookAnswer(blocks="no")),
        ("Stop", 0, '{"decision": "block", "reason": "test first"}', "", HookAnswer(blocks="test first")),
        ("PreToolUse", 0, '{"hookSpecificOutput": {"permissionDecision": "deny", "permissionDecisionReason": "x"}}', "", HookAnswer(blocks="x")),
        ("PreToolUse", 0, '{"hookSpecificOutput": {"permissionDecision": "ask", "permissionDecisionReason": "x"}}', "", HookAnswer(asks="x")),
        ("UserPromptSubmit", 0, '{"hookSpecificOutput": {"additionalContext": "Monday"}}', "", HookAnswer(says="Monday")),
        ("Stop", 0, '{"continue": false, "stopReason": "enough"}', "", HookAnswer(blocks="enough")),
    ],
)  # fmt: skip
def test_what_an_answer_means(
    event: str, code: int, printed: str, complained: str, answer: HookAnswer
) -> None:
    assert parse_hook_answer(event, code, printed, complained) == answer


def test_a_hook_never_allows() -> None:
    said = parse_hook_answer(
        "PreToolUse",
        0,
        '{"hookSpecificOutput": {"permissionDecision": "allow", "updatedInput": {}}}',
        "",
    )
    assert not said.blocks
    assert "cannot allow calls" in said.note
    assert "not supported" in said.note


@pytest.mark.parametrize(
    ("only", "name", "values", "yes"),
    [
        ("", "Bash", {"command": "ls"}, True),
        ("Bash(git push --force*)", "Bash", {"command": "git push --force origin"}, True),
        ("Bash(git push --force*)", "Bash", {"command": "git push"}, False),
        ("Bash(git push:*)", "Bash", {"command": "git push origin"}, True),
        ("Write(.env*)", "Write", {"file_path": "/p/.env.local"}, True),
        ("Write(.env*)", "Write", {"file_path": "/p/a.py"}, False),
        ("Write(src/*)", "Write", {"file_path": "/p/src/a.py"}, True),
        ("Write(.env*)", "Edit", {"file_path": "/p/.env"}, False),
    ],
)
def test_a_condition_is_kept(only: str, name: str, values: dict[str, str], yes: bool) -> None:
    one = ProjectHook("PreToolUse", "", "x", 1, Path("/p"), only=only)
    assert (one.matches_tool(name) and one.matches_arguments(values)) is yes


def test_a_condition_that_is_not_understood_lets_the_hook_not_run(tmp_path: Path) -> None:
    (item,) = read(
        tmp_path,
        {"PreToolUse": [{"hooks": [{"type": "command", "command": "exit 2", "if": "what (ever"}]}]},
    )
    assert item.broken


def test_hooks_of_a_file_with_a_byte_order_mark_run(tmp_path: Path) -> None:
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}
    (hook,) = read(tmp_path, "\ufeff" + json.dumps({"hooks": hooks}))
    assert not hook.broken
