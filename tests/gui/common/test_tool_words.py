"""What people read for tools, instead of their inner names."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from types import ModuleType

import pytest

from helix_desktop import tools, workbench
from helix_desktop.gui.common.tool_words import (
    describe_offered_rule,
    name_tool_of_rule,
    words_for_tool,
)
from helix_desktop.tools.built_in_tool import ToolDeclaration


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


def declared_tools(package: ModuleType) -> Iterator[ToolDeclaration]:
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(module.name)).values():
            values = value if isinstance(value, tuple) else (value,)
            yield from (each for each in values if isinstance(each, ToolDeclaration))


def test_every_tool_of_the_program_is_named_in_words() -> None:
    """A plan to approve stood in the conversation as "present_plan"."""
    names = {each.name for package in (tools, workbench) for each in declared_tools(package)}
    assert len(names) > 20
    assert [name for name in sorted(names) if "_" in words_for_tool(name)] == []


def test_a_rule_names_a_servers_tool_in_the_same_words() -> None:
    assert name_tool_of_rule("issues__list_issues") == "list issues (issues)"
    assert name_tool_of_rule("run_command") == "Run a command"


@pytest.mark.parametrize(
    ("tool", "rule", "is_for_files", "words"),
    [
        ("edit_file", "src/*", True, "src/*"),
        ("edit_file", "edit_file", True, "Edit: any file in this workspace"),
        ("edit_file", "edit_file, write_file", True, "Edit or create any file in this workspace"),
        ("edit", "edit_file, write_file", True, "Edit or create any file in this workspace"),
        ("edit_file", "edit_file, write_file", False, "Edit or create files: every time"),
        ("run_command", "edit_file, write_file", False, "edit_file, write_file"),
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
