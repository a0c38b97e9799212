"""Finds out from a request which agent sent it, in which session, and how it pays."""

import re
from collections.abc import Mapping, Sequence

from helix_desktop.gateway.known_agents import KNOWN_AGENTS
from helix_desktop.json_values import text_at
from helix_desktop.protocols.gateway_message import Json
from helix_desktop.resources import read_table

# Agents without a module of their own are recognized by the table.
_PATTERN_BY_TITLE: dict[str, str] = {}
for _agent in KNOWN_AGENTS.values():
    _PATTERN_BY_TITLE[_agent.title] = _agent.recognized_by
_PATTERN_BY_TITLE.update(read_table("known_agents")["headers"])
_HEADERS: Mapping[str, re.Pattern[str]] = {
    title: re.compile(words, re.IGNORECASE) for title, words in _PATTERN_BY_TITLE.items()
}
_SESSION_HEADERS = read_table("known_agents")["sessions"]["own"].split()
_PARENT_HEADERS = read_table("known_agents")["sessions"]["parent"].split()
# Their requests without tools are beside their conversations.
AGENTS_WITH_TOOLS = frozenset(_HEADERS)
_SUBAGENT = "x-claude-code-agent-id"
MOST_CHARACTERS = 200  # Of an agent's name for its conversation.
_SESSION_IN_USER = re.compile(r"session_([0-9a-fA-F-]{8,})")


def agent_from_headers(headers: Mapping[str, str]) -> str:
    """Return the display name of the agent that a request names, or what it calls itself."""
    own_name = headers.get("x-helix-agent", "")
    user_agent = headers.get("user-agent", "")
    app_name = headers.get("x-app", "")
    description = own_name or f"{user_agent} {app_name}"
    for title, pattern in _HEADERS.items():
        if pattern.search(description):
            return title
    if own_name:
        return own_name
    program_name = user_agent.partition("/")[0]  # Without its version.
    return program_name[:40] or "An agent"


def session_of_request(headers: Mapping[str, str], body: Mapping[str, Json]) -> str:
    """Return the agent's name for its conversation, or an empty string."""
    session = _first_of_headers(headers, _SESSION_HEADERS)
    if session:
        subagent = headers.get(_SUBAGENT)
        if subagent:  # Claude Code's sub-agents send their parent's session.
            session = f"{session}/{subagent}"
        return session[:MOST_CHARACTERS]
    # Agents that send no header may name the session in the body, for the provider.
    cache_key = text_at(body, "prompt_cache_key")
    if cache_key:
        return cache_key[:MOST_CHARACTERS]
    session_in_user = _SESSION_IN_USER.search(text_at(body, "metadata", "user_id"))
    if session_in_user is None:
        return ""
    return session_in_user[1]


def parent_session_of_request(headers: Mapping[str, str]) -> str:
    """Return the agent's name for the conversation whose sub-agent this is, or an empty string."""
    parent = _first_of_headers(headers, _PARENT_HEADERS)
    if not parent and headers.get(_SUBAGENT):
        parent = headers.get("x-claude-code-session-id", "")
    return parent[:MOST_CHARACTERS]


def _first_of_headers(headers: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the value of the first of these headers that is there, or an empty string."""
    for name in names:
        if headers.get(name):
            return headers[name]
    return ""


def uses_subscription(headers: Mapping[str, str]) -> bool:
    """Whether the agent uses a subscription. Reports differ on whether that permits
    changed requests.
    """
    _scheme, _, token = headers.get("authorization", "").partition(" ")
    signs_in_to_claude = token.startswith("sk-ant-oat")
    signs_in_to_chatgpt = "chatgpt-account-id" in headers
    return signs_in_to_claude or signs_in_to_chatgpt
