"""What a task may do while nobody is there to be asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.tools.permission import (
    ActionEffect,
    ToolAction,
    choices_to_offer,
    describe_choice,
)
from helix_desktop.workbench.unattended_permissions import (
    is_allowed_unattended,
    permission_by_rule,
    rules_for_task,
)

EDIT = PermissionQuestion(ToolCall("c1", "edit_file", "{}"), "Change a.py?", "+a")
FETCH = PermissionQuestion(ToolCall("c2", "fetch_url", "{}"), "Fetch?", "https://a.b")


@pytest.mark.parametrize(
    ("question", "allowed", "is_allowed"),
    [
        (EDIT, ("edits",), True),
        (EDIT, ("edit_file",), True),
        (EDIT, ("commands",), False),
        (FETCH, ("all",), True),
        (FETCH, ("fetch_url",), True),
        (FETCH, ("edits", "commands"), False),
        (FETCH, ("",), False),
        (replace(EDIT, apart="runs_later"), ("edits",), False),
        (replace(EDIT, apart="runs_later"), ("runs_later",), True),
        (replace(EDIT, form="{}"), ("all",), False),
    ],
)
def test_only_what_is_named_is_allowed(
    question: PermissionQuestion, allowed: tuple[str, ...], is_allowed: bool
) -> None:
    """An empty name allowed each tool that belongs to no group."""
    assert is_allowed_unattended(question, allowed) is is_allowed


def ask_to_run(command: str) -> PermissionQuestion:
    """The question that the toolbox asks about a command, with the rules that it offers."""
    action = ToolAction("run_command", ActionEffect.RUN, "Run?", command, command=command)
    rules = tuple(map(describe_choice, choices_to_offer(action)))
    return PermissionQuestion(ToolCall("c3", "run_command", "{}"), "Run?", command, rules=rules)


def may_run_after(allowed: str, command: str) -> bool:
    """Whether a task may run a command after the user has always allowed another one."""
    rule = rules_for_task(ask_to_run(allowed))[0]
    return is_allowed_unattended(ask_to_run(command), [permission_by_rule("run_command", rule)])


def test_always_allowing_a_command_covers_those_of_its_rule_alone() -> None:
    """It covered every command: a task that might list files could then delete them."""
    assert may_run_after("ls -la | head -3", "ls src | head -1")
    assert may_run_after("seq 1 6000", "seq 5")
    assert not may_run_after("ls -la | head -3", "python3 -m unittest discover tests")
    assert not may_run_after("ls -la | head -3", "rm -rf data")
    assert not may_run_after("ls -la | head -3", "ls | head -3; rm -rf data")


def test_a_comma_in_a_command_does_not_make_two_rules_of_one() -> None:
    """One rule for files called "a," and "rm" would read like two rules, one of them for rm."""
    assert rules_for_task(ask_to_run("rm a, rm b")) == ()
    assert not may_run_after("rm a; rm b", "rm a, rm b")


def test_a_rule_allows_nothing_that_needs_a_permission_of_its_own() -> None:
    question = ask_to_run("ls")
    rule = permission_by_rule("run_command", rules_for_task(question)[0])
    assert is_allowed_unattended(question, [rule])
    assert not is_allowed_unattended(replace(question, apart="outside_sandbox"), [rule])
    assert rules_for_task(replace(question, apart="outside_sandbox")) == ()


def test_a_rule_for_a_folder_allows_no_command_of_the_same_text() -> None:
    edit = replace(EDIT, rules=("src/*", "edit_file"), rule_folders=("src", "."))
    allowed = [permission_by_rule("edit_file", "src/*")]
    assert is_allowed_unattended(edit, allowed)
    write = replace(edit, call=ToolCall("c4", "write_file", "{}"), rules=("src/*", "write_file"))
    assert is_allowed_unattended(write, allowed)
    command = replace(ask_to_run("ls"), rules=("src/*",))
    assert not is_allowed_unattended(command, allowed)
    assert permission_by_rule("edit_file", "edit_file") == "edit_file"
