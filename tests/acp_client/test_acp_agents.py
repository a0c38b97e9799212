"""Which foreign agents are there, and which one a name means."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.acp_client.acp_agents import (
    add_agent_line,
    describe_acp_agents,
    find_acp_agent,
    list_acp_agents,
    remove_agent_line,
)
from helix_desktop.errors import InvalidInput, NotFound


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A PATH with Gemini CLI, opencode, and both adapters of Claude Code."""
    for name in ("gemini", "opencode", "claude-agent-acp", "claude-code-acp", "my-agent"):
        program = tmp_path / name
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    return {"PATH": str(tmp_path)}


def test_those_on_the_path_are_listed_each_once_with_the_command_that_starts_it(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    found = {agent.name: agent.argv for agent in list_acp_agents("", environment)}
    assert found == {
        "Claude Code": (str(tmp_path / "claude-agent-acp"),),
        "Gemini CLI": (str(tmp_path / "gemini"), "--experimental-acp"),
        "opencode": (str(tmp_path / "opencode"), "acp"),
    }


def test_the_users_own_lines_come_first_and_one_that_makes_no_sense_is_left_out(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    own = (
        "Gemini CLI = my-agent 'with a space'\nBroken = my-agent 'open\n= my-agent\nGone = nobody\n"
    )
    found = {agent.name: agent.argv for agent in list_acp_agents(own, environment)}
    assert found["Gemini CLI"] == (str(tmp_path / "my-agent"), "with a space")
    assert not {"Broken", "Gone", ""} & set(found)


@pytest.mark.parametrize("name", ["Gemini CLI", "gemini cli", "gemini", "GEMINI"])
def test_an_agent_is_found_by_its_title_and_by_what_people_type(
    name: str, environment: dict[str, str]
) -> None:
    """`ask --acp gemini` wanted the title "Gemini CLI"."""
    assert find_acp_agent(name, "", environment).name == "Gemini CLI"


def test_a_title_counts_more_than_a_short_name_and_a_short_name_of_two_means_none(
    environment: dict[str, str],
) -> None:
    own = "gemini = my-agent one\nMine One = my-agent\nMine Two = my-agent"
    assert find_acp_agent("gemini", own, environment).argv[1:] == ("one",)
    assert find_acp_agent("claude", "", environment).name == "Claude Code"
    with pytest.raises(NotFound, match="mine was not found"):
        find_acp_agent("mine", own, environment)


def test_an_agent_that_is_not_there_is_named_with_those_that_are(
    environment: dict[str, str],
) -> None:
    with pytest.raises(NotFound) as raised:
        find_acp_agent("x" * 200, "", environment)
    assert raised.value.remedy == "Available: Claude Code, Gemini CLI, opencode."
    assert "x" * 81 not in raised.value.what
    with pytest.raises(NotFound) as raised:
        find_acp_agent("codex", "", {"PATH": "/nowhere"})
    assert raised.value.remedy == "Available: none."


def test_the_settings_list_own_agents_installed_ones_and_how_to_install_the_others(
    environment: dict[str, str],
) -> None:
    agents = describe_acp_agents("Mine = my-agent --acp\nGone = nobody", environment)
    own = [(agent.name, agent.command_line, agent.is_installed) for agent in agents if agent.is_own]
    assert own == [("Mine", "my-agent --acp", True), ("Gone", "nobody", False)]
    by_name = {agent.name: agent for agent in agents}
    assert len(by_name) == len(agents), "each once"
    assert by_name["Gemini CLI"].is_installed
    assert by_name["Codex"].install_command == "npm install -g @agentclientprotocol/codex-acp"
    assert not by_name["Codex"].is_installed
    assert by_name["Codex"].sign_in_command == "codex login"
    assert by_name["opencode"].sign_in_command == "opencode auth login"
    assert by_name["Mine"].sign_in_command == ""


def test_a_line_is_added_replaced_and_removed_and_other_lines_stay() -> None:
    lines = add_agent_line("Odd line\nMine = old", "Mine", "new 'a b'")
    assert lines == "Odd line\nMine = new 'a b'"
    assert remove_agent_line(lines, "Mine") == "Odd line"
    for name, command in (("a = b", "c"), ("a", "b 'c"), ("a", "b\nc"), ("", "b")):
        with pytest.raises(InvalidInput):
            add_agent_line("", name, command)
