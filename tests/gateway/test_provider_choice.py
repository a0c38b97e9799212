"""Where a request goes, and by which HTTP client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from helix_desktop.gateway import provider_choice
from helix_desktop.gateway.agent_upstreams import CODEX_SUBSCRIPTION_URL
from helix_desktop.gateway.provider_choice import ProviderChoice, ProviderHttpClients
from helix_desktop.gateway.registration import GatewayRegistration, new_token
from helix_desktop.gateway.request_parsing import IncomingRequest
from helix_desktop.gateway.request_routes import UPSTREAMS, parse_route


@pytest.mark.parametrize(
    ("path", "headers", "more", "address"),
    [
        ("/v1/messages", {}, {}, UPSTREAMS["anthropic"]),
        ("/v1/messages", {}, {"upstream": "http://own.example"}, "http://own.example"),
        ("/v1/messages", {}, {"upstreams": {"anthropic": "http://a.example"}}, "http://a.example"),
        (
            "/v1/messages",
            {},
            {"upstreams": {"openai-chat": "http://a.example"}},
            UPSTREAMS["anthropic"],
        ),
        ("/v1/responses", {}, {}, UPSTREAMS["openai-responses"]),
        ("/v1/responses", {"chatgpt-account-id": "x"}, {}, CODEX_SUBSCRIPTION_URL),
        ("/v1/chat/completions", {"chatgpt-account-id": "x"}, {}, UPSTREAMS["openai-chat"]),
        ("/v1/models", {"x-api-key": "k"}, {}, UPSTREAMS["anthropic"]),
        ("/v1/models", {}, {}, UPSTREAMS["openai-chat"]),
        ("/v1beta/models", {}, {}, UPSTREAMS["gemini"]),
    ],
)
def test_a_request_goes_where_its_registration_its_protocol_or_its_headers_say(
    path: str, headers: Mapping[str, str], more: dict[str, Any], address: str
) -> None:
    incoming = IncomingRequest(
        "POST", parse_route(path), "", (), headers, b"", GatewayRegistration("t", **more)
    )
    assert provider_choice.address_of_provider(incoming) == address


async def test_each_provider_and_each_way_to_it_has_one_client() -> None:
    clients = ProviderHttpClients()
    first = GatewayRegistration("a", "https://one.example")
    same = GatewayRegistration("b", "https://one.example")
    proxied = GatewayRegistration(
        "c", "https://one.example", proxies={"https_proxy": "http://127.0.0.1:9"}
    )
    other = GatewayRegistration("d", "https://two.example")
    assert clients.get_client_for(first) is clients.get_client_for(same)
    found = {id(clients.get_client_for(registration)) for registration in (first, proxied, other)}
    assert len(found) == 3
    await clients.aclose()
    assert all(client.is_closed for client in clients._clients.values())


async def test_no_proxy_is_asked_for_a_server_on_this_computer() -> None:
    proxies = {"http_proxy": "http://proxy.example:1", "https_proxy": "http://proxy.example:1"}
    clients = ProviderHttpClients()
    for upstream, is_proxied in (("http://127.0.0.1:1", False), ("http://far.example", True)):
        client = clients.get_client_for(GatewayRegistration("a", upstream, proxies=proxies))
        ways = [transport for transport in client._mounts.values() if transport is not None]
        assert bool(ways) is is_proxied
    await clients.aclose()


@pytest.mark.parametrize(
    ("headers", "host", "added"),
    [
        ({}, "api.example", [(b"x-api-key", b"stored")]),
        ({"x-api-key": "own"}, "api.example", []),
        ({"authorization": "Bearer own"}, "api.example", []),
        ({}, "other.example", []),
    ],
)
async def test_a_stored_key_is_added_where_the_agent_sends_none_to_its_host(
    headers: Mapping[str, str], host: str, added: list[tuple[bytes, bytes]]
) -> None:
    registration = GatewayRegistration("t", "https://api.example", key="stored", key_host=host)
    incoming = IncomingRequest(
        "POST", parse_route("/v1/messages"), "beta=true", (), headers, b"", registration
    )
    choice = ProviderChoice()
    chosen = await choice.choose_provider(incoming)
    assert chosen.url == "https://api.example/v1/messages?beta=true"
    assert list(chosen.incoming.raw_headers) == added
    await choice.aclose()


@pytest.mark.parametrize("target", ["/T/TOKEN/v1/messages", "//t/TOKEN/v1/messages", "/v1/messages?k=TOKEN", "/v1/messages?k=%TOKEN"])  # fmt: skip
async def test_an_address_that_would_tell_the_provider_its_token_is_refused(target: str) -> None:
    token = new_token()
    quoted = f"{ord(token[0]):02x}{token[1:]}"
    path, _, query = target.replace("%TOKEN", f"%{quoted}").replace("TOKEN", token).partition("?")
    registration = GatewayRegistration(token, "http://own.example")
    incoming = IncomingRequest("POST", parse_route(path), query, (), {}, b"", registration)
    choice = ProviderChoice()
    with pytest.raises(httpx.InvalidURL):
        await choice.choose_provider(incoming)
    await choice.aclose()
