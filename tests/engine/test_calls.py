"""Who is speaking: turns, and what calls are about."""

from __future__ import annotations

import pytest

from helix_desktop.engine.calls import Turn, meant, text_key
from helix_desktop.engine.facts import ToolCall


def test_the_file_a_call_is_about() -> None:
    assert text_key(ToolCall("a", "write", '{"file_path": "a.py", "text": "x"}')) == "a.py"
    assert text_key(ToolCall("a", "write", '{"n": 1}')) == ""
    assert text_key(ToolCall("a", "write", "{broken")) == ""
    assert text_key(ToolCall("a", "write", "[1]")) == ""


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
def test_a_tool_is_called_by_its_name_whatever_a_server_left_around_it(said: str, called: str) -> None:
    assert meant(said, ["read_file", "list_files", "odd.name"]) == called


def test_a_turn_begins_with_its_first_words() -> None:
    assert Turn().begin == 0
    assert Turn([4, 9], 2).begin == 4
