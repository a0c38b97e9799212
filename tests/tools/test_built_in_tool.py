from __future__ import annotations

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.gateway.sent_body import list_recall_tools
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS
from helix_desktop.tools import (
    command_tools,
    delegate_tool,
    document_tool,
    fetch_tool,
    file_tools,
    recall_tools,
    search_files_tool,
    todo_tool,
    tools_on_demand,
)
from helix_desktop.tools.built_in_tool import ToolDeclaration
from helix_desktop.workbench import (
    fleet_tools,
    folder_copies,
    plan_mode,
    rules_and_skills,
    subagents,
)

MODULES = (
    command_tools,
    delegate_tool,
    document_tool,
    fetch_tool,
    file_tools,
    recall_tools,
    search_files_tool,
    todo_tool,
    tools_on_demand,
    fleet_tools,
    folder_copies,
    plan_mode,
    rules_and_skills,
    subagents,
)


def declared_tools() -> dict[str, ToolDeclaration]:
    declared: dict[str, ToolDeclaration] = {}
    for module in MODULES:
        for value in vars(module).values():
            if isinstance(value, ToolDeclaration):
                declared[value.name] = value
    return declared


def test_every_tool_of_the_program_is_declared() -> None:
    declared = declared_tools()
    assert set(ToolName) <= declared.keys()
    for name, tool in declared.items():
        assert tool.description.endswith(".") or "{where}" in tool.description, name
        assert tool.schema["type"] == "object", name
        properties = tool.schema["properties"]
        required = tool.schema["required"]
        assert isinstance(properties, dict), name
        assert isinstance(required, list), name
        assert set(required) <= properties.keys(), name


def test_an_agent_at_the_gateway_gets_the_tools_whose_calls_are_hidden_from_it() -> None:
    assert {tool.name for tool in list_recall_tools()} == HIDDEN_TOOLS
