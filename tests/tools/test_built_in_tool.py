from __future__ import annotations

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.tools import search_files_tool, todo_tool
from helix_desktop.tools.built_in_tool import read_tool_descriptions
from helix_desktop.workbench import fleet_tools


def test_every_tool_of_the_program_is_described() -> None:
    described = read_tool_descriptions()
    assert set(ToolName) <= described.keys()
    for name, tool in described.items():
        assert tool["description"].endswith(".") or "{where}" in tool["description"], name
        assert set(tool["schema"]["required"]) <= tool["schema"]["properties"].keys(), name


def test_the_described_limits_are_those_in_force() -> None:
    described = {
        name: tool["schema"]["properties"] for name, tool in read_tool_descriptions().items()
    }
    assert (
        str(search_files_tool.MOST_HITS) in described[ToolName.SEARCH_FILES]["limit"]["description"]
    )
    assert str(fleet_tools.MOST_SECONDS) in described["read_fleet_tasks"]["seconds"]["description"]
    states = described[ToolName.SET_TODO]["items"]["items"]["properties"]["state"]["enum"]
    assert states == list(todo_tool.STATE_MARKS)
