"""What people read for tools, instead of their inner names."""

from __future__ import annotations

import pytest

from helix_desktop.gui.common.tool_words import (
    describe_offered_rule,
    name_tool_of_rule,
    words_for_tool,
)


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("issues__list_issues", "list issues (issues)"),
        ("mcp__issues__list_issues", "list issues (issues)"),
        ("a__b__c", "a__b__c"),  # Where the server's name ends is not known.
        ("__init__", "__init__"),
        ("search_files", "Search files"),
    ],
)
def test_a_servers_tool_is_named_without_its_inner_name(tool: str, words: str) -> None:
    assert words_for_tool(tool) == words


def test_a_rule_names_a_servers_tool_in_the_same_words() -> None:
    assert name_tool_of_rule("issues__list_issues") == "list issues (issues)"
    assert name_tool_of_rule("run_command") == "Run a command"


@pytest.mark.parametrize(
    ("tool", "rule", "is_for_files", "words"),
    [
        ("edit_file", "src/*", True, "src/*"),
        ("edit_file", "edit_file", True, "Edit: any file in this workspace"),
        ("fetch_url", "fetch_url", False, "Fetch web page: every time"),
        # An agent of another program calls its tool otherwise: "write_file" stood there.
        ("edit", "write_file", True, "Write: any file in this workspace"),
        ("run_command", "write_file", False, "write_file"),
    ],
)
def test_a_rule_is_offered_in_words(
    tool: str, rule: str, *, is_for_files: bool, words: str
) -> None:
    assert describe_offered_rule(tool, rule, is_for_files=is_for_files) == words
