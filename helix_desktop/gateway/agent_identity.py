"""Finds out from a request which agent sent it, in which session, and how it pays."""

import re
from collections.abc import Mapping

from helix_desktop.histories.program_names import AGENTS_TO_CONTINUE_IN
from helix_desktop.json_values import text_at
from helix_desktop.protocols.gateway_message import Json
from helix_desktop.resources import read_table

CLAUDE, CODEX, OPENCODE, GEMINI, PI = "Claude Code", "Codex", "opencode", "Gemini CLI", "pi"
_HEADERS = {
    name: re.compile(words, re.IGNORECASE)
    for name, words in read_table("known_agents")["headers"].items()
}
_SESSIONS, _PARENTS = (
    read_table("known_agents")["sessions"][name].split() for name in ("own", "parent")
)
# Their requests without tools are beside their conversations.
AGENTS_WITH_TOOLS = frozenset(_HEADERS)
_SUBAGENT = "x-claude-code-agent-id"
_IN_USER = re.compile(r"session_([0-9a-fA-F-]{8,})")


def agent_from_headers(headers: Mapping[str, str]) -> str:
    named = headers.get("x-helix-agent", "")
    told = named or headers.get("user-agent", "") + " " + headers.get("x-app", "")
    known = next((name for name, pattern in _HEADERS.items() if pattern.search(told)), "")
    return known or named or headers.get("user-agent", "").partition("/")[0][:40] or "An agent"


def title_of_known_agent(name: str) -> str:
    """Return the display name of the agent for which an address was made."""
    return AGENTS_TO_CONTINUE_IN.get(name, name[:40])


def session_of_request(headers: Mapping[str, str], body: Mapping[str, Json]) -> str:
    """Return the agent's name for its conversation, or an empty string."""
    for name in _SESSIONS:
        if headers.get(name):  # Claude Code's sub-agents send their parent's session.
            return (
                f"{headers[name]}/{headers[_SUBAGENT]}" if headers.get(_SUBAGENT) else headers[name]
            )[:200]
    if key := text_at(body, "prompt_cache_key"):
        return key[:200]
    found = _IN_USER.search(text_at(body, "metadata", "user_id"))
    return found[1] if found else ""


def parent_session_of_request(headers: Mapping[str, str]) -> str:
    """Return the agent's name for the conversation whose sub-agent this is, or an empty string."""
    named = next((headers[name][:200] for name in _PARENTS if headers.get(name)), "")
    return named or (
        headers.get("x-claude-code-session-id", "")[:200] if headers.get(_SUBAGENT) else ""
    )


def uses_subscription(headers: Mapping[str, str]) -> bool:
    """Whether the agent uses a subscription. Reports differ on whether that permits
    changed requests.
    """
    bearer = headers.get("authorization", "").partition(" ")[2]
    return bearer.startswith("sk-ant-oat") or "chatgpt-account-id" in headers
