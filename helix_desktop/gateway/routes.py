"""Which requests are understood, and where they go."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from helix_desktop.values import dataclass
from helix_desktop.wire import anthropic, gemini, openai_chat, openai_responses

STATUS = "/.helix/status"
UPSTREAMS: Mapping[str, str] = {
    anthropic.NAME: "https://api.anthropic.com",
    openai_chat.NAME: "https://api.openai.com/v1",
    openai_responses.NAME: "https://api.openai.com/v1",
    gemini.NAME: "https://generativelanguage.googleapis.com",
}
PLAN_OF_CODEX = "https://chatgpt.com/backend-api/codex"
_GEMINI = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent|countTokens)$")
_PREFIX = re.compile(r"^(?:/t/(?P<token>[^/]+)|/w/(?P<workspace>[^/]+)|/a/(?P<agent>[^/]+))*(?=/|$)")
# of one connection, not of the request
HOP = frozenset(
    {
        "host",
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
    }
)
OWN = frozenset({"x-helix-token", "x-helix-agent", "x-helix-conversation", "x-helix-upstream"})


@dataclass(frozen=True, slots=True)
class Route:
    """`wire`: the protocol; empty for what passes through. `counts`: it asks for a count of tokens alone."""

    path: str
    wire: str = ""
    counts: bool = False
    model: str = ""
    streams: bool | None = None
    token: str = ""
    workspace: str = ""
    agent: str = ""


def route(raw_path: str) -> Route:
    """What a path means, as it came: what is quoted in it stays so, and goes on so. `/t/TOKEN`, `/w/WORKSPACE` and `/a/AGENT`
    may stand before it.
    """
    found = _PREFIX.match(raw_path)
    named = found.groupdict().items() if found else ()
    before: dict[str, Any] = {name: unquote(value) for name, value in named if value}
    path = (raw_path[found.end() :] if found else raw_path) or "/"
    if path.endswith("/messages"):
        return Route(path, anthropic.NAME, **before)
    if path.endswith("/messages/count_tokens"):
        return Route(path, anthropic.NAME, counts=True, **before)
    if path.endswith("/chat/completions"):
        return Route(path, openai_chat.NAME, **before)
    if path.endswith("/responses"):
        return Route(path, openai_responses.NAME, **before)
    if (model := _GEMINI.search(path)) is not None:
        kind = model[2]
        streams = kind == "streamGenerateContent"
        return Route(path, gemini.NAME, kind == "countTokens", model[1], streams, **before)
    return Route(path, **before)


def guessed(path: str, headers: Mapping[str, str]) -> str:
    """Whose API a request that only passes through is meant for."""
    if "anthropic-version" in headers or "x-api-key" in headers:
        return anthropic.NAME
    if "x-goog-api-key" in headers or "/v1beta" in path or "/v1alpha" in path:
        return gemini.NAME
    return openai_chat.NAME


def address(upstream: str, path: str, query: str) -> str:
    """Where the request goes. A version that both the upstream's address and the path begin with stands there once."""
    base = upstream.rstrip("/")
    last = urlsplit(base).path.rpartition("/")[2]
    if last and path.startswith(f"/{last}/"):
        path = path[len(last) + 1 :]
    return f"{base}{path}{'?' + query if query else ''}"
