"""Which headers of an agent's own settings the gateway sends on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from helix_desktop.gateway.agent_upstreams import AgentSurroundings
from helix_desktop.gateway.known_agent import KnownAgent
from helix_desktop.gateway.known_agents import KNOWN_AGENTS, build_agent_of_command
from helix_desktop.gateway.own_headers import find_own_header_names

NONE: Mapping[str, str] = {}
OPENCODE = {
    "provider": {
        "corp": {
            "options": {"baseURL": "https://c/v1", "headers": {"X-Corp": "a"}},
            "models": {"m": {"headers": {"X-Model": "b"}}},
        },
        "other": 3,
    }
}
PI = {
    "providers": {
        "corp": {"headers": {"X-Corp": "a"}, "models": [{"id": "m", "headers": {"X-Model": "b"}}]}
    }
}
CODEX = """
[model_providers.corp]
base_url = "https://c/v1"
http_headers = { "X-Corp" = "a" }
env_http_headers = { "X-Model" = "VARIABLE" }
"""


def _agent_named(name: str) -> KnownAgent:
    return KNOWN_AGENTS.get(name) or build_agent_of_command([name], "openai")


@pytest.mark.parametrize(
    ("agent", "file", "content", "environ"),
    [
        ("claude", "", "", {"ANTHROPIC_CUSTOM_HEADERS": "X-Corp: a: b\nX-Model:c"}),
        ("gemini", "", "", {"GEMINI_CLI_CUSTOM_HEADERS": "X-Corp: a, X-Model: b"}),
        ("gemini", ".gemini/.env", "A=b\nGEMINI_CLI_CUSTOM_HEADERS='X-Corp: a, X-Model: b'\n", NONE),
        ("claude", ".claude/settings.json", json.dumps({"env": {"ANTHROPIC_CUSTOM_HEADERS": "X-Corp: a\nX-Model: b"}}), NONE),
        ("opencode", ".config/opencode/opencode.json", json.dumps(OPENCODE), NONE),
        ("pi", ".pi/agent/models.json", json.dumps(PI), NONE),
        ("codex", ".codex/config.toml", CODEX, NONE),
        ("qwen", "", "", {"OPENAI_CUSTOM_HEADERS": "X-Corp: a\nX-Model: b"}),
    ],
)  # fmt: skip
def test_names_of_headers_that_settings_add(
    tmp_path: Path, agent: str, file: str, content: str, environ: Mapping[str, str]
) -> None:
    if file:
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(content)
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / ".claude.json").write_text(
        json.dumps({"projects": {str(project): {"hasTrustDialogAccepted": True}}})
    )
    where = AgentSurroundings(environ, tmp_path, project)
    assert find_own_header_names(_agent_named(agent), where) == ("x-corp", "x-model")
    elsewhere = tmp_path.with_name("elsewhere")  # Gemini CLI also looks above the project.
    elsewhere.mkdir(exist_ok=True)
    assert (
        find_own_header_names(_agent_named(agent), AgentSurroundings(NONE, elsewhere, elsewhere))
        == ()
    )


def test_of_an_agent_whose_settings_nobody_knows_any_name_may_be_its_own(tmp_path: Path) -> None:
    environ = {"COPILOT_PROVIDER_HEADERS": "Corp: a\\nModel: b"}
    where = AgentSurroundings(environ, tmp_path, tmp_path)
    agent = build_agent_of_command(["copilot"], "openai")
    assert find_own_header_names(agent, where) == ("corp", "model", "x-*")
