"""What the agent tells every editor of itself before anything is opened."""

from __future__ import annotations

from acp import schema

from helix_desktop import __version__
from helix_desktop.acp_agent.agent_description import SIGN_IN, build_initialize_result


def test_an_editor_learns_the_agents_name_its_version_and_what_it_can_do() -> None:
    told = schema.InitializeResponse.model_validate(build_initialize_result())
    assert told.protocol_version == 1
    assert told.agent_info is not None
    assert told.agent_info.title == "Helix Desktop"
    assert told.agent_info.version == __version__
    abilities = told.agent_capabilities
    assert abilities is not None
    assert abilities.load_session is True
    assert abilities.prompt_capabilities is not None
    assert abilities.prompt_capabilities.image is True
    assert abilities.prompt_capabilities.embedded_context is True


def test_an_editor_learns_which_requests_of_sessions_are_answered() -> None:
    told = build_initialize_result()["agentCapabilities"]["sessionCapabilities"]
    assert {*told} == {"list", "delete", "fork", "resume", "close", "additionalDirectories"}


def test_an_editor_learns_how_to_sign_in() -> None:
    (method,) = build_initialize_result()["authMethods"]
    assert method["description"] == SIGN_IN
    assert "helix-desktop provider add" in SIGN_IN
