"""Who asks, in which conversation, and how it is paid for, from the headers alone."""

from __future__ import annotations

from typing import Any

import pytest

from helix_desktop.gateway import agent_identity as identity
from helix_desktop.gateway import known_agents


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"user-agent": "claude-cli/2.0.1 (external, cli)"}, "Claude Code"),
        ({"user-agent": "x", "x-app": "claude-code"}, "Claude Code"),
        ({"user-agent": "codex_cli_rs/0.50"}, "Codex"),
        ({"user-agent": "opencode/1.2"}, "opencode"),
        ({"user-agent": "GeminiCLI/0.9 (linux)"}, "Gemini CLI"),
        ({"user-agent": "pi/0.4"}, "pi"),
        ({"user-agent": "python-pip/24"}, "python-pip"),
        ({"user-agent": "Cline/3"}, "Cline"),
        ({"user-agent": "goose/1"}, "goose"),
        ({"user-agent": f"{'x' * 50}/1.0"}, "x" * 40),
        ({"user-agent": "claude-cli/2", "x-helix-agent": "codex"}, "Codex"),
        ({"user-agent": "claude-cli/2", "x-helix-agent": "my own"}, "my own"),
        ({}, "An agent"),
    ],
)
def test_the_name_of_an_agent(headers: dict[str, str], name: str) -> None:
    assert identity.agent_from_headers(headers) == name


def test_the_agent_an_address_was_made_for() -> None:
    named = [
        known_agents.title_of_known_agent(name)
        for name in ("claude", "codex", "opencode", "gemini", "pi", "y" * 50)
    ]
    assert named == ["Claude Code", "Codex", "opencode", "Gemini CLI", "pi", "y" * 40]


@pytest.mark.parametrize(
    ("headers", "body", "session"),
    [
        (
            {"x-helix-conversation": "ours", "x-session-id": "theirs"},
            {"prompt_cache_key": "key"},
            "ours",
        ),
        ({"x-claude-code-session-id": "", "session_id": "codex"}, {}, "codex"),
        ({"x-session-id": "s" * 300}, {}, "s" * 200),
        ({"x-claude-code-session-id": "parent", "x-claude-code-agent-id": "a1"}, {}, "parent/a1"),
        ({}, {"prompt_cache_key": "k" * 300}, "k" * 200),
        ({}, {"metadata": {"user_id": "user_1_account__session_0123abcd-4567"}}, "0123abcd-4567"),
        ({}, {"metadata": {"user_id": "user_1_session_0123"}}, ""),
        ({}, {}, ""),
    ],
)
def test_the_conversation_a_request_names(
    headers: dict[str, str], body: dict[str, Any], session: str
) -> None:
    assert identity.session_of_request(headers, body) == session


def test_the_conversation_above_a_sub_agents() -> None:
    above = identity.parent_session_of_request
    assert above({"x-codex-parent-thread-id": "", "x-parent-session-id": "p" * 300}) == "p" * 200
    claude = {"x-claude-code-session-id": "c" * 300}
    assert above(claude) == ""
    assert above({**claude, "x-claude-code-agent-id": "a1"}) == "c" * 200
    assert (
        above({**claude, "x-claude-code-agent-id": "a1", "x-parent-session-id": "named"}) == "named"
    )
    assert above({}) == ""


def test_who_is_logged_in_with_a_subscription() -> None:
    uses = identity.uses_subscription
    assert uses({"authorization": "Bearer sk-ant-oat01-x"})
    assert uses({"authorization": "Bearer sk-x", "chatgpt-account-id": ""})
    assert not uses({"authorization": "Bearer sk-ant-api03-x"})
    assert not uses({"authorization": "sk-ant-oat01-x"})
    assert not uses({})
