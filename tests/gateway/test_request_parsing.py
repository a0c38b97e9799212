"""Which requests are understood, and which pass through as they came."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from helix_desktop.decompression import DecodedTooLarge
from helix_desktop.gateway import request_parsing
from helix_desktop.gateway.incremental_parsing import BodyParser
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.gateway.request_parsing import (
    IncomingRequest,
    ParsedRequest,
    parse_incoming_request,
)
from helix_desktop.gateway.request_routes import parse_route

TOOLS = [{"name": "Bash", "description": "runs", "input_schema": {"type": "object"}}]
SAYS = {"role": "user", "content": "look around"}
PADDING = "x" * request_parsing.SIDE_REQUEST_BYTES
GEMINI = "/v1beta/models/g:generateContent"


def parsed(
    body: object,
    path: str = "/v1/messages",
    *,
    folds: bool = True,
    coding: str = "",
    **headers: str,
) -> ParsedRequest | None:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    known = {name.replace("_", "-"): value for name, value in headers.items()} | {
        "content-encoding": coding
    }
    content = gzip.compress(raw) if coding == "gzip" else raw
    incoming = IncomingRequest(
        "POST", parse_route(path), "", (), known, content, GatewayRegistration("t")
    )
    found = parse_incoming_request(incoming, BodyParser(), folds=folds)
    return None if found is None or found.is_side else found


def anthropic(**more: Any) -> dict[str, Any]:
    return {"model": "m", "system": "You are an agent.", "tools": TOOLS, "messages": [SAYS], **more}


def test_a_request_with_tools_is_understood_however_it_is_coded() -> None:
    for coding in ("", "identity", " Identity ", "gzip"):
        found = parsed(anthropic(), coding=coding)
        assert found is not None
        assert (found.body.wire, found.arrival.model, found.arrival.system) == (
            "anthropic",
            "m",
            "You are an agent.",
        )
        assert found.body.value["messages"] == [SAYS]
        assert len(found.messages_after_instructions) == 1
    assert parsed(anthropic(), coding="unheard-of") is None
    assert parsed(b"{") is None
    assert parsed([]) is None
    assert parsed(anthropic(messages=[])) is None


def test_what_is_larger_than_a_body_may_be_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_parsing, "MOST_BODY_BYTES", 100)
    with pytest.raises(DecodedTooLarge):
        parsed(anthropic(messages=[{**SAYS, "content": PADDING}]), coding="gzip")


def test_a_small_request_without_tools_is_a_side_request() -> None:
    def with_size(size: int) -> bytes:
        short = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
        return short.replace(b'"x"', b'"' + b"x" * (size - len(short) + 1) + b'"')

    assert parsed(with_size(request_parsing.SIDE_REQUEST_BYTES - 1)) is None
    assert parsed(with_size(request_parsing.SIDE_REQUEST_BYTES)) is not None
    begins = [{"role": "assistant", "content": PADDING}, SAYS]
    assert parsed({"model": "m", "messages": begins}) is None
    assert parsed(anthropic(messages=begins)) is not None


def test_tools_are_added_where_folding_is_on_and_the_agent_has_tools_but_not_ours() -> None:
    def adds(found: ParsedRequest | None) -> bool:
        assert found is not None
        return found.adds_tools

    own = {**TOOLS[0], "name": "mcp__helix__recall_cached_content"}
    assert adds(parsed(anthropic()))
    assert not adds(parsed(anthropic(), folds=False))
    assert not adds(parsed(anthropic(tools=[*TOOLS, own])))
    assert not adds(parsed(anthropic(tools=[], messages=[{**SAYS, "content": PADDING}])))


@pytest.mark.parametrize("stored", ["previous_response_id", "conversation", "background"])
def test_what_the_provider_keeps_of_responses_is_not_folded(stored: str) -> None:
    body = {"model": "m", "input": PADDING}
    assert parsed(body, "/v1/responses") is not None
    assert parsed({**body, stored: "there"}, "/v1/responses") is None
    assert parsed({**body, stored: ""}, "/v1/responses") is not None
    assert parsed(anthropic(**{stored: "there"})) is not None, "another protocol has no such field"


def test_a_thread_that_the_provider_keeps_is_not_folded() -> None:
    assert parsed(anthropic(thread={"type": "continue", "previous_message_id": "m"})) is None
    assert parsed(anthropic(thread=None)) is not None


def test_what_gemini_keeps_is_not_folded() -> None:
    body = {"contents": [{"role": "user", "parts": [{"text": PADDING}]}]}
    found = parsed(body, GEMINI)
    assert found is not None
    assert found.arrival.model == "g", "the path names it"
    assert parsed({**body, "cachedContent": "cachedContents/1"}, GEMINI) is None


def test_conversations_are_told_apart_by_system_and_names_of_tools() -> None:
    def head(**more: Any) -> str:
        found = parsed(anthropic(**more))
        assert found is not None
        return found.arrival.head

    second = {**TOOLS[0], "name": "Read"}
    assert head(tools=[*TOOLS, second]) == head(tools=[second, *TOOLS]) != head()
    assert head(system="Another.") != head()
    assert head(system="s" * 120 + "today") == head(system="s" * 120 + "tomorrow")
    assert head(system="s" * 119 + "a") != head(system="s" * 119 + "b")


def test_whose_request_it_is() -> None:
    def agent(path: str) -> str:
        found = parsed(anthropic(), path, user_agent="claude-cli/2.0")
        assert found is not None
        return found.arrival.agent

    assert agent("/a/codex/v1/messages") == "Codex"
    assert agent("/v1/messages") == "Claude Code"


@pytest.mark.parametrize(
    ("mark", "seconds"),
    [({"type": "ephemeral", "ttl": "1h"}, 3_600), ({"type": "ephemeral"}, 300), (None, 0)],
)
def test_a_request_says_how_long_it_is_to_be_cached(mark: object, seconds: int) -> None:
    """Until the first reply, the engine took Claude Code's hour for five minutes."""
    block = {"type": "text", "text": PADDING}
    if mark is not None:
        block["cache_control"] = mark  # type: ignore[assignment]
    found = parsed(anthropic(messages=[{"role": "user", "content": [block]}]))
    assert found is not None
    assert found.arrival.cache_seconds == seconds
