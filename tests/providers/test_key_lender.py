"""Requests of another computer's agent are sent with the user's keys, to models and nowhere else."""

from __future__ import annotations

import contextlib
import json
import random
from pathlib import Path

import pytest

from helix_desktop.errors import HelixError, InvalidInput, ProviderKeyRefused
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.key_lender import KeyLender, check_lent_address
from helix_desktop.providers.lent_providers import LentRequest
from helix_desktop.providers.provider_catalog import PRESETS, ProviderConfig
from helix_desktop.secrets import ProviderKey
from tests.peers.chat_server import ChatServer, reply
from tests.peers.peer import Answer

OPENAI = PRESETS["openai"]


class OneKey:
    def __init__(self, key: str | None) -> None:
        self._key = key

    async def read_secret(self, secret: ProviderKey) -> str | None:
        return self._key


def lender_of(
    tmp_path: Path, server: ChatServer, connections: ProviderConnections, key: str | None
) -> KeyLender:
    configured = ConfiguredProviders(tmp_path / "providers.toml")
    configured.save_provider(ProviderConfig("peer", base_url=server.base_url))
    return KeyLender(configured, OneKey(key), connections)


@pytest.mark.parametrize(
    ("provider", "url", "path"),
    [
        ("openai", "https://api.openai.com/v1/responses", "/responses"),
        ("groq", "https://api.groq.com/openai/v1/chat/completions", "/chat/completions"),
        ("anthropic", "https://api.anthropic.com/v1/messages", "/v1/messages"),
        (
            "gemini",
            "https://generativelanguage.googleapis.com/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
            "/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse",
        ),
    ],
)
def test_a_request_that_asks_a_model_is_sent(provider: str, url: str, path: str) -> None:
    assert check_lent_address(PRESETS[provider], url) == path


@pytest.mark.parametrize(
    "url",
    [
        "https://api.openai.com.evil.example/v1/responses",
        "https://api.openai.com@evil.example/v1/responses",
        "https://evil.example/v1/responses",
        "http://api.openai.com/v1/responses",
        "https://api.openai.com:444/v1/responses",
        "https://me@api.openai.com/v1/responses",
        "https://api.openai.com/v1@evil.example/responses",
        "https://api.openai.com/v2/responses",
        "https://api.openai.com/v1/files",
        "https://api.openai.com/v1/files/../responses",
        "https://api.openai.com/v1/responses/../files",
        "https://api.openai.com/v1/%2e%2e/files",
        "https://api.openai.com/v1/responses%2f..%2ffiles",
        "https://api.openai.com/v1//responses",
        "https://api.openai.com/v1/responses/resp_1",
        "https://api.openai.com/v1/models/a:streamGenerateContent/../../files",
        "file:///v1/responses",
        "//api.openai.com/v1/responses",
        "https://[/v1/responses",
        "",
    ],
)
def test_any_other_address_is_refused(url: str) -> None:
    with pytest.raises(InvalidInput, match="Nothing was sent"):
        check_lent_address(OPENAI, url)


def test_a_query_of_the_other_computer_is_not_sent() -> None:
    assert check_lent_address(OPENAI, "https://api.openai.com/v1/responses?a=b") == "/responses"


async def test_headers_of_the_other_computer_neither_replace_the_key_nor_follow_it(
    tmp_path: Path, connections: ProviderConnections
) -> None:
    with ChatServer([reply("Hello")]) as server:
        lender = lender_of(tmp_path, server, connections, "sk-own")
        request = LentRequest(
            "peer",
            f"{server.base_url}/chat/completions",
            (("Authorization", "Bearer other"), ("X-Admin", "1"), ("Content-Type", "text/x")),
            b"{}",
        )
        async with lender.open_lent_answer(request) as answer:
            assert answer.status_code == 200
            assert b"Hello" in b"".join([chunk async for chunk in answer.body_chunks()])
        (seen,) = server.requests
    assert seen.headers["authorization"] == "Bearer sk-own"
    assert seen.headers["content-type"] == "text/x"
    assert "x-admin" not in seen.headers


async def test_a_provider_that_is_not_set_up_or_has_no_key_is_said(
    tmp_path: Path, connections: ProviderConnections
) -> None:
    with ChatServer() as server:
        lender = lender_of(tmp_path, server, connections, None)
        request = LentRequest("openai", "https://api.openai.com/v1/responses", (), b"{}")
        with pytest.raises(ProviderKeyRefused, match="There is no key for openai"):
            async with lender.open_lent_answer(request):
                pass
        assert not server.requests


def test_no_key_is_among_what_is_lent(tmp_path: Path) -> None:
    with ChatServer() as server:
        lender = lender_of(tmp_path, server, ProviderConnections(), "sk-own")
        names = {provider.name for provider in lender.providers}
    assert {"openai", "anthropic", "peer"} <= names
    assert "sk-own" not in repr(lender.providers)


async def test_neither_cookies_of_a_provider_nor_a_key_that_it_quotes_reach_the_other_computer(
    tmp_path: Path, connections: ProviderConnections
) -> None:
    headers = (
        ("set-cookie", "session=as-good-as-the-key"),
        ("x-account", "me"),
        ("retry-after", "7"),
    )
    quoted = json.dumps({"error": {"message": "The key sk-own-key is wrong"}}).encode()
    pieces = (quoted[:37], quoted[37:])
    refusal = Answer(401, pieces, headers, "application/json")
    with ChatServer([refusal]) as server:
        lender = lender_of(tmp_path, server, connections, "sk-own-key")
        request = LentRequest("peer", f"{server.base_url}/chat/completions", (), b"{}")
        async with lender.open_lent_answer(request) as answer:
            assert set(answer.response_headers) == {"content-type", "retry-after"}
            body = b"".join([chunk async for chunk in answer.body_chunks()])
    assert b"sk-own-key" not in body
    assert b"is wrong" in body


async def test_400_strange_requests_send_only_known_headers_and_fail_with_a_sentence(
    tmp_path: Path, connections: ProviderConnections
) -> None:
    names = (
        "content-type", "Content-Type", "ACCEPT", "anthropic-beta", "cookie", "Host", "content-length",
        "transfer-encoding", "connection", "Authorization", "x-api-key", "", "é", "\x00",
        "content-type\r\nX-Evil", "Expect", "Upgrade", "Proxy-Authorization", "x-helix-agent",
    )  # fmt: skip
    values = (
        "x", "\r\nX-Evil: 1", "\x00", "é", "\ud800", "日本", "a" * 100_000, "text/x\n", "  ", "",
    )  # fmt: skip
    allowed = {
        "accept", "accept-encoding", "anthropic-beta", "anthropic-version", "authorization", "connection",
        "content-length", "content-type", "host", "user-agent",
    }  # fmt: skip
    chance = random.Random(68)
    sent = 0
    with ChatServer() as server:
        base = server.base_url
        urls = (
            f"{base}/chat/completions", f"{base}/responses?alt=sse", f"{base}/chat/completions#x",
            f"{base}/chat/completions;x", f"\t{base}/messages", f"{base}/../x/messages", f"{base}/files",
        )  # fmt: skip
        lender = lender_of(tmp_path, server, connections, "sk-own")
        for _ in range(400):
            headers = tuple(
                (chance.choice(names), chance.choice(values)) for _ in range(chance.randrange(5))
            )
            provider = chance.choice(["peer", "peer", "peer", "nope", "", "demo", "../x"])
            content = chance.choice([b"{}", b"", b"\xff" * 10])
            request = LentRequest(provider, chance.choice(urls), headers, content)
            with contextlib.suppress(HelixError):
                async with lender.open_lent_answer(request):
                    sent += 1
        for seen in server.requests:
            assert set(seen.headers) <= allowed
            assert seen.headers["authorization"] == "Bearer sk-own"
    assert sent > 30
