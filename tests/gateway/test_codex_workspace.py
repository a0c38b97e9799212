"""Where the requests of a Codex go that is signed in with ChatGPT."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from helix_desktop.errors import ActionRefused, ProviderUnreachable
from helix_desktop.gateway.agent_upstreams import CODEX_SUBSCRIPTION_URL, AgentSurroundings
from helix_desktop.gateway.agents import codex_agent
from helix_desktop.gateway.codex_workspace import (
    CodexWorkspaceRoutes,
    WorkspaceRoute,
)

HEADERS = {"chatgpt-account-id": "acc", "authorization": "Bearer t"}
GOVERNMENT = "https://gov.chatgpt.com"


class ChatGpt(httpx.AsyncBaseTransport):
    """Stands where the network is, and answers as ChatGPT's backend does."""

    def __init__(self, answer: Callable[[httpx.Request], httpx.Response]) -> None:
        self._answer = answer

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._answer(request)
        return httpx.Response(answer.status_code, stream=httpx.ByteStream(answer.content))


def answering(answer: Callable[[httpx.Request], httpx.Response]) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=ChatGpt(answer))


async def route_of(accounts: object, status: int = 200) -> WorkspaceRoute:
    client = answering(lambda _: httpx.Response(status, json={"accounts": accounts}))
    return await CodexWorkspaceRoutes().find_route(CODEX_SUBSCRIPTION_URL, HEADERS, client)


async def test_a_workspace_is_asked_for_once_with_the_requests_login() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        entry = {"id": "acc", "workspace_backend_origin": GOVERNMENT}
        entry["account_routing_override"] = "us"
        return httpx.Response(200, json={"accounts": [{"id": "other"}, entry]})

    routes, client = CodexWorkspaceRoutes(), answering(answer)
    for _ in range(3):
        route = await routes.find_route(CODEX_SUBSCRIPTION_URL, HEADERS, client)
        assert route == WorkspaceRoute(f"{GOVERNMENT}/backend-api/codex", "us")
    assert [str(one.url) for one in asked] == [
        "https://chatgpt.com/backend-api/wham/accounts/check"
    ]
    assert asked[0].headers["authorization"] == "Bearer t"
    await routes.find_route(
        CODEX_SUBSCRIPTION_URL, {**HEADERS, "authorization": "Bearer u"}, client
    )
    assert len(asked) == 2, "another login may be another workspace's"
    company = await routes.find_route("https://c.example/backend-api/codex", HEADERS, client)
    assert company.base_url == f"{GOVERNMENT}/backend-api/codex"
    assert str(asked[2].url) == "https://c.example/backend-api/wham/accounts/check"


@pytest.mark.parametrize(
    "accounts",
    [
        [{"id": "acc", "workspace_backend_origin": "NO_CONSTRAINT", "account_routing_override": "NO_CONSTRAINT"}],
        {"acc": {"account": {"account_id": "acc"}}},
        [{"id": "acc", "workspace_backend_origin": None}],
        [{"id": "other", "workspace_backend_origin": GOVERNMENT}],
        [],
        "nothing",
        None,
    ],
)  # fmt: skip
async def test_without_a_constraint_requests_go_where_they_always_did(accounts: object) -> None:
    assert await route_of(accounts) == WorkspaceRoute(CODEX_SUBSCRIPTION_URL)


async def test_who_is_not_signed_in_with_chatgpt_is_not_asked_about() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise AssertionError(request.url)

    routes, client = CodexWorkspaceRoutes(), answering(refuse)
    for base_url, headers in (
        (CODEX_SUBSCRIPTION_URL, {"authorization": "Bearer t"}),
        ("https://api.openai.com/v1", HEADERS),
        ("http://127.0.0.1:9/backend-api/codex", HEADERS),
    ):
        assert await routes.find_route(base_url, headers, client) == WorkspaceRoute(base_url)


@pytest.mark.parametrize(
    "origin",
    ["http://gov.chatgpt.com", "https://evil.example", "https://chatgpt.com.evil.example", "https://evilchatgpt.com",
     "https://gov.chatgpt.com/elsewhere", "https://u@gov.chatgpt.com", "https://gov.chatgpt.com?x=1", "gov"],
)  # fmt: skip
async def test_no_reply_leads_to_a_host_of_others(origin: str) -> None:
    with pytest.raises(ProviderUnreachable, match="Nothing was sent"):
        await route_of([{"id": "acc", "workspace_backend_origin": origin}])


async def test_a_workspace_that_is_not_known_gets_no_request_at_the_wrong_host() -> None:
    assert await route_of([], status=404) == WorkspaceRoute(CODEX_SUBSCRIPTION_URL)
    assert await route_of([], status=401) == WorkspaceRoute(CODEX_SUBSCRIPTION_URL)
    with pytest.raises(ProviderUnreachable, match="status 503"):
        await route_of([], status=503)

    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no", request=request)

    with pytest.raises(ProviderUnreachable, match="ConnectError"):
        await CodexWorkspaceRoutes().find_route(CODEX_SUBSCRIPTION_URL, HEADERS, answering(fail))


@pytest.mark.parametrize(
    ("backend", "signed_in", "address"),
    [
        ("https://gov.chatgpt.com/backend-api/", True, "https://gov.chatgpt.com/backend-api/codex"),
        ("https://chatgpt.com/backend-api/", True, ""),
        ("", True, ""),
        ("https://gov.chatgpt.com/backend-api/", False, ""),
    ],
)
def test_the_backend_of_codex_settings_is_its_upstream(
    tmp_path: Path, backend: str, signed_in: bool, address: str
) -> None:
    settings = tmp_path / ".codex" / "config.toml"
    settings.parent.mkdir()
    settings.write_text(f'chatgpt_base_url = "{backend}"\n' if backend else "")
    if signed_in:
        login = {"auth_mode": "chatgpt", "tokens": {"access_token": "t"}}
        (tmp_path / ".codex" / "auth.json").write_text(json.dumps(login))
    found = codex_agent.AGENT.find_upstreams(AgentSurroundings({}, tmp_path, tmp_path))
    assert [one.address for one in found] == [address]
    if address:
        assert found[0].source == f"{settings}, line 1"


def test_a_backend_that_is_no_address_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex" / "config.toml").write_text('chatgpt_base_url = "file:///x"\n')
    (tmp_path / ".codex" / "auth.json").write_text('{"tokens": {"access_token": "t"}}')
    with pytest.raises(ActionRefused, match="cannot be used"):
        codex_agent.AGENT.find_upstreams(AgentSurroundings({}, tmp_path, tmp_path))
