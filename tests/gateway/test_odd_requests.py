"""Requests nobody expects: handled, passed through or refused so that the agent falls
back; never a traceback.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import socket
import zlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import zstandard

from tests.gateway.running import PROTOCOLS, Agent, running
from tests.peers.agent_provider import Asked, Block, Provider, Says

BODY = {"model": "claude-sonnet-4-5", "max_tokens": 100, "tools": [{"name": "Bash", "description": "run it", "input_schema": {"type": "object"}}], "messages": [{"role": "user", "content": "hello"}]}  # fmt: skip
RESPONSES: dict[str, Any] = {"model": "gpt-5", "tools": [{"type": "function", "name": "Bash", "parameters": {}}], "input": [{"role": "user", "content": "hello"}]}  # fmt: skip
KEY = {"x-api-key": "k"}


def _script(_: Asked) -> Sequence[Block]:
    return [Says("fine")]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Provider]]:
    """A gateway and its provider."""
    with (
        Provider(_script, strict=False) as provider,
        running(tmp_path_factory.mktemp("home"), provider.url) as url,
    ):
        yield url, provider


@pytest.fixture(autouse=True)
def _nothing_fails_inside(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.ERROR):
        yield
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/none", "/v1/messages/batches", "/w/", "/v1/a%0d%0ab", "/v1/a%2Fb%00", "/v1/responses/compact", "/v1/files", "//v1//messages/x"])  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_path_nobody_knows_passes_through(
    there: tuple[str, Provider], method: str, path: str
) -> None:
    url, provider = there
    reply = httpx.request(
        method,
        url + path,
        headers=KEY,
        content=b'{"a": 1}' if method == "POST" else b"",
        timeout=60,
    )
    assert reply.status_code == 200
    assert provider.asked[-1].raw == (b'{"a": 1}' if method == "POST" else b"")
    assert provider.asked[-1].path.lstrip("/") == path.lstrip("/")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b'{"messages": "text", "tools": [1]}',
        b'{"messages": [1, null, "x"], "tools": [null, 3]}',
        b'{"messages": [{"role": "user", "content": {"a": 1}}], "tools": [{}]}',
        b'{"messages": [{"role": 3, "content": [[], 1, null]}], "tools": [{"name": 1}], "system": 5}',
        b'{"input": [{"type": 3}], "contents": [{"parts": [3]}], "messages": [{}], "tools": [{"name": "x"}]}',
        b'\xff\xfe{"messages": []}',
        b'{"messages": [{"role": "user", "content": "\\ud800"}], "tools": [{"name": "x"}]}',
        b"[" * 5_000,
    ],
)
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1beta/models/g:generateContent"])  # fmt: skip
def test_what_is_no_request_reaches_the_provider_as_it_is(
    there: tuple[str, Provider], path: str, content: bytes
) -> None:
    url, provider = there
    httpx.post(url + path, headers=KEY, content=content, timeout=60)
    try:
        same = json.loads(content)
    except (ValueError, RecursionError):
        assert provider.asked[-1].raw == content
        return
    sent = json.loads(provider.asked[-1].raw)
    if isinstance(same, dict):
        sent, same = ({k: v for k, v in each.items() if k != "tools"} for each in (sent, same))
    assert sent == same


@pytest.mark.parametrize(
    "block",
    [
        {"type": "of tomorrow", "x": [1]},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    ],
)
def test_a_block_nobody_knows_goes_on(there: tuple[str, Provider], block: dict[str, Any]) -> None:
    url, provider = there
    said = [{"role": "user", "content": [{"type": "text", "text": "hello"}, block]}]
    assert (
        httpx.post(
            f"{url}/v1/messages", headers=KEY, json={**BODY, "messages": said}, timeout=60
        ).status_code
        == 200
    )
    assert json.loads(provider.asked[-1].raw)["messages"] == said


@pytest.mark.parametrize(
    "more", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}, {"background": True}]
)
def test_what_the_provider_keeps_for_the_client_passes_through(
    there: tuple[str, Provider], more: dict[str, Any]
) -> None:
    url, provider = there
    assert (
        httpx.post(
            f"{url}/v1/responses", headers=KEY, json={**RESPONSES, **more}, timeout=60
        ).status_code
        == 200
    )
    assert json.loads(provider.asked[-1].raw) == {**RESPONSES, **more}


def test_store_is_the_clients_and_compaction_items_go_on(there: tuple[str, Provider]) -> None:
    url, provider = there
    item = {"type": "compaction", "encrypted_content": "opaque"}
    body = {**RESPONSES, "store": True, "input": [item, *RESPONSES["input"]]}
    assert httpx.post(f"{url}/v1/responses", headers=KEY, json=body, timeout=60).status_code == 200
    sent = json.loads(provider.asked[-1].raw)
    assert sent["store"] is True
    assert sent["input"] == body["input"]


def test_a_compaction_is_asked_for_as_the_client_asks(there: tuple[str, Provider]) -> None:
    url, provider = there
    assert (
        httpx.post(
            f"{url}/v1/responses/compact", headers=KEY, json=RESPONSES, timeout=60
        ).status_code
        == 200
    )
    assert json.loads(provider.asked[-1].raw) == RESPONSES


def test_a_web_socket_is_refused_so_that_the_client_falls_back(there: tuple[str, Provider]) -> None:
    url, provider = there
    asked_before = len(provider.asked)
    asks = (
        b"GET %b/v1/responses HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        % urlsplit(url).path.encode()
    )
    with socket.create_connection(("127.0.0.1", urlsplit(url).port or 0), timeout=60) as connection:
        connection.sendall(asks)
        line = connection.recv(4096).split(b"\r\n")[0]
    assert line.startswith(b"HTTP/1.1 426 ")  # Codex tries again five times after any other.
    assert len(provider.asked) == asked_before
    assert (
        httpx.post(f"{url}/v1/responses", headers=KEY, json=RESPONSES, timeout=60).status_code
        == 200
    )
    assert provider.asked


def test_a_target_that_is_no_path_is_refused(there: tuple[str, Provider]) -> None:
    url, token = urlsplit(there[0]), there[0].rpartition("/t/")[2]
    with Provider(_script, strict=False) as other:
        with socket.create_connection(("127.0.0.1", url.port or 0), timeout=60) as connection:
            head = f"POST *@{urlsplit(other.url).netloc}/v1/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nx-api-key: k\r\nx-helix-token: {token}\r\nContent-Length: 2\r\n\r\n{{}}"
            connection.sendall(head.encode())
            line = connection.recv(4096).split(b"\r\n")[0]
        assert b" 400 " in line
        assert not other.asked


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "zstd", "br", "gzip, zstd"])
def test_compressed_bodies(there: tuple[str, Provider], encoding: str) -> None:
    url, provider = there
    plain = json.dumps(BODY).encode()
    packers: Any = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}
    packed = packers.get(encoding, lambda x: x)(plain)  # fmt: skip
    reply = httpx.post(
        f"{url}/v1/messages",
        headers={**KEY, "content-encoding": encoding},
        content=packed,
        timeout=60,
    )
    assert reply.status_code == 200
    asked = provider.asked[-1]
    if encoding in ("gzip", "deflate", "zstd"):  # read, and tools added
        assert "content-encoding" not in asked.headers
        assert json.loads(asked.raw)["messages"] == BODY["messages"]
    else:
        assert (asked.headers["content-encoding"], asked.raw) == (encoding, packed)


def test_a_body_that_says_it_is_compressed_and_is_not(there: tuple[str, Provider]) -> None:
    url, provider = there
    reply = httpx.post(f"{url}/v1/messages", headers={**KEY, "content-encoding": "gzip"}, content=json.dumps(BODY).encode(), timeout=60)  # fmt: skip
    assert reply.status_code == 200
    assert provider.asked[-1].raw == json.dumps(BODY).encode()


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "gzip, gzip", "zstd, gzip, deflate"])
def test_a_small_body_that_stands_for_a_huge_one_is_refused(
    there: tuple[str, Provider], coding: str
) -> None:
    url, provider = there
    packers: Any = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstandard.compress}
    packed = b" " * (65 << 20)
    for name in coding.split(", "):
        packed = packers[name](packed)
    asked = len(provider.asked)
    reply = httpx.post(
        f"{url}/v1/messages",
        headers={**KEY, "content-encoding": coding},
        content=packed,
        timeout=60,
    )
    assert reply.status_code == 413
    assert "after decompression" in reply.json()["error"]["message"]
    assert len(provider.asked) == asked


def test_a_body_of_thirty_megabytes_is_folded_and_a_larger_one_than_is_taken_is_refused(
    there: tuple[str, Provider],
) -> None:
    url, provider = there
    text = "x" * (30 << 20)
    said = [{"role": "user", "content": text}]
    assert (
        httpx.post(
            f"{url}/v1/messages", headers=KEY, json={**BODY, "messages": said}, timeout=60
        ).status_code
        == 200
    )
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        in json.loads(provider.asked[-1].raw)["messages"][0]["content"]
    )
    assert (
        httpx.post(
            f"{url}/v1/messages", headers=KEY, content=b"x" * (65 << 20), timeout=60
        ).status_code
        == 413
    )


def test_tokens_are_counted_for_the_request_as_it_would_be_sent(
    there: tuple[str, Provider],
) -> None:
    url, provider = there
    assert (
        httpx.post(
            f"{url}/v1/messages/count_tokens", headers=KEY, json=BODY, timeout=60
        ).status_code
        == 200
    )
    assert provider.asked[-1].path == "/v1/messages/count_tokens"
    assert json.loads(provider.asked[-1].raw)["messages"] == BODY["messages"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_conversation_goes_on_after_a_request_nobody_understood(
    there: tuple[str, Provider], protocol: str
) -> None:
    url, _ = there
    agent = Agent(protocol, url)
    agent.say("hello")
    agent.ask()
    httpx.post(url + agent.path, headers=KEY, content=b"{no json", timeout=60)
    agent.say("and on")
    assert agent.ask() == []
