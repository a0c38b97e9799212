"""Requests of another computer's agent are sent with the user's keys, to models and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.errors import InvalidInput, ProviderKeyRefused
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.key_lender import KeyLender, check_lent_address
from helix_desktop.providers.lent_providers import LentRequest
from helix_desktop.providers.provider_catalog import PRESETS, ProviderConfig
from helix_desktop.secrets import ProviderKey
from tests.peers.chat_server import ChatServer, reply

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
            assert b"Hello" in await answer.read_whole_body()
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
