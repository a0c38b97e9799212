"""Who is speaking: turns, and what calls are about."""

from __future__ import annotations

from helix_desktop.engine.calls import Turn, text_key
from helix_desktop.engine.facts import ToolCall


def test_the_file_a_call_is_about() -> None:
    assert text_key(ToolCall("a", "write", '{"file_path": "a.py", "text": "x"}')) == "a.py"
    assert text_key(ToolCall("a", "write", '{"n": 1}')) == ""
    assert text_key(ToolCall("a", "write", "{broken")) == ""
    assert text_key(ToolCall("a", "write", "[1]")) == ""


def test_a_turn_begins_with_its_first_words() -> None:
    assert Turn().begin == 0
    assert Turn([4, 9], 2).begin == 4
