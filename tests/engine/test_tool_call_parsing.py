"""Who is speaking: turns, and what calls are about."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.tool_call_parsing import (
    CurrentTurn,
    match_tool_name,
    restore_call_as_made,
    unwrap_call,
)


@pytest.mark.parametrize(
    ("said", "called"),
    [
        ("read_file", "read_file"),
        ("functions.read_file:0", "read_file"),
        ("default_api.read_file", "read_file"),
        ("read_file<|channel|>commentary", "read_file"),
        ("Read_File", "read_file"),
        (" read_file ", "read_file"),
        ("odd.name", "odd.name"),
        ("read", "read"),
        ("ls:0", "ls:0"),
        ("", ""),
    ],
)
def test_a_tool_is_called_by_its_name_whatever_a_server_left_around_it(
    said: str, called: str
) -> None:
    assert match_tool_name(said, ["read_file", "list_files", "odd.name"]) == called


def test_a_turn_begins_with_its_first_words() -> None:
    assert CurrentTurn().first_seq == 0
    assert CurrentTurn([4, 9], 2).first_seq == 4


@pytest.mark.parametrize(
    ("arguments", "name", "inner"),
    [
        ('{"name": "a__b", "arguments": {"x": "é"}}', "a__b", '{"x": "é"}'),
        ('{"name": "a__b", "arguments": "{\\"x\\": 1}"}', "a__b", '{"x": 1}'),
        ('{"name": "a__b"}', "a__b", "{}"),
        ('{"name": "a b"}', "call_tool", '{"name": "a b"}'),
        ("{broken", "call_tool", "{broken"),
    ],
)
def test_a_call_through_call_tool_stands_under_the_real_name(
    arguments: str, name: str, inner: str
) -> None:
    made = unwrap_call(ToolCall("a", "call_tool", arguments))
    assert (made.name, made.arguments) == (name, inner)
    again = restore_call_as_made(made)
    assert again.name == "call_tool"
    assert unwrap_call(again) == made


def test_a_call_of_its_own_is_left_alone() -> None:
    call = ToolCall("a", "read_file", "{}")
    assert unwrap_call(call) is call
    assert restore_call_as_made(call) is call


def test_what_to_keep_is_taken_off_the_outer_call() -> None:
    assert (
        unwrap_call(ToolCall("a", "call_tool", '{"name": "x", "keep": "errors"}')).keep == "errors"
    )
