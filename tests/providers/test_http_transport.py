"""Proxies, certificates, keys that cannot be sent, and what is closed in the end."""

from __future__ import annotations

import asyncio
import gc
import gzip
import resource
import socket
import ssl
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
import zstandard

from helix_desktop import concurrency
from helix_desktop.errors import ModelFailed, ProviderKeyRefused, ProviderUnreachable
from helix_desktop.providers import http_transport
from helix_desktop.providers.http_transport import (
    ProviderConnections,
    UnmendableFailure,
    is_loopback,
    strip_and_check_key,
)
from helix_desktop.providers.json_fetching import fetch_json
from helix_desktop.providers.provider_catalog import ProviderConfig, connect_model_client
from tests.hostile_bodies import CODINGS
from tests.peers.chat_server import ChatServer, reply
from tests.peers.company_proxy import create_certificate
from tests.peers.peer import Peer, sse
from tests.peers.serving import serve_in_thread
from tests.providers.asking import QUICK, Instant, asking, heard


@pytest.fixture(autouse=True)
def _fresh_certificates() -> Iterator[None]:
    http_transport.trusted_certificates.cache_clear()
    yield
    http_transport.trusted_certificates.cache_clear()


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:11434/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:8080", True),
        ("http://ollama.localhost", True),
        ("http://192.168.1.5", False),
        ("https://localhost.example.org", False),
        ("http://[broken", False),
        ("nothing", False),
    ],
)
def test_what_is_this_machine(url: str, local: bool) -> None:
    assert is_loopback(url) is local


@pytest.mark.parametrize("key", ["sk-1\nx-evil: 1", "sk 1", "schlüssel", "sk-\u200b1", "a\x00b"])
def test_a_key_no_header_can_carry_is_refused_without_being_quoted(key: str) -> None:
    with pytest.raises(ProviderKeyRefused) as caught:
        strip_and_check_key(key, "openai")
    assert key not in str(caught.value)


def test_space_around_a_key_is_taken_off() -> None:
    assert strip_and_check_key("  sk-1\n", "openai") == "sk-1"


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/v1", "http:///v1"])
def test_an_address_that_makes_no_sense_is_a_sentence(url: str) -> None:
    way = http_transport.ProviderTransport(url, "peer", {}, ProviderConnections())
    with pytest.raises(UnmendableFailure, match="address of"):
        way.full_url("/models")


async def test_this_machine_is_reached_without_the_proxy(
    monkeypatch: pytest.MonkeyPatch, connections: ProviderConnections, clock: Instant
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    with ChatServer([reply("Hi")]) as peer:
        config = ProviderConfig("peer", base_url=peer.base_url, patience=QUICK)
        _, answered = await heard(
            connect_model_client(config, "m", connections=connections, clock=clock), asking()
        )
    assert answered.parts


async def test_others_are_reached_through_the_systems_proxy(
    monkeypatch: pytest.MonkeyPatch, connections: ProviderConnections, clock: Instant
) -> None:
    with ChatServer([reply("Through the proxy")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        config = ProviderConfig("far", base_url="http://llm.example.invalid/v1", patience=QUICK)
        _, answered = await heard(
            connect_model_client(config, "m", connections=connections, clock=clock), asking()
        )
        assert proxy.requests[0].path == "http://llm.example.invalid/v1/chat/completions"
    assert answered.parts


async def test_a_proxy_setting_nobody_understands_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, connections: ProviderConnections, clock: Instant
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:1/")
    config = ProviderConfig("far", base_url="http://llm.example.invalid/v1", patience=QUICK)
    with pytest.raises(ModelFailed, match="proxy setting") as caught:
        await heard(
            connect_model_client(config, "m", connections=connections, clock=clock), asking()
        )
    assert "socks5://" in caught.value.remedy


async def test_a_host_that_is_not_there_is_a_sentence(
    connections: ProviderConnections, clock: Instant
) -> None:
    with pytest.raises(
        ProviderUnreachable, match=r"No connection to peer at .*: connection refused"
    ):
        async with http_transport.ProviderTransport(
            "http://127.0.0.1:9", "peer", {}, connections, QUICK
        ).open_get("/models", 2.0):
            raise AssertionError("nobody answers there")
    lost = httpx.ConnectError("All connection attempts failed")
    lost.__cause__ = socket.gaierror(-2, "Name or service not known")
    wrong = http_transport.error_of_lost_connection(lost, "peer")
    assert "host not found" in str(wrong)
    assert isinstance(wrong, ProviderUnreachable)
    assert wrong.remedy == "Check the address and the network connection."


# --- certificates


class _Speaking(BaseHTTPRequestHandler):
    """A server behind a certificate, as a company's gateway is."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        chunk = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]}
        content = b"".join(sse(chunk, "[DONE]"))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name is the library's)
        """Quietly."""


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An https server whose certificate only a file of ours vouches for."""
    public, private = create_certificate(tmp_path, "localhost")
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Speaking)
    server.handle_error = lambda *_: None  # type: ignore[method-assign] # a client that does not trust us hangs up
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(public, private)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)  # noqa: TID251 (another program, in spirit)
    thread.start()
    yield f"https://localhost:{server.server_port}/v1", public
    server.shutdown()
    server.server_close()
    thread.join()


async def test_somebody_elses_certificates_are_theirs_alone(gateway: tuple[str, Path]) -> None:
    """A registration of an agent behind a company's proxy, and one of an agent that is not."""
    for variables, trusts in (({"node_extra_ca_certs": str(gateway[1])}, True), ({}, False)):
        async with http_transport.build_http_client(
            uses_environment=False, proxies=variables
        ) as client:
            if trusts:
                assert (await client.post(gateway[0], content=b"{}")).status_code == 200
                continue
            with pytest.raises(httpx.ConnectError, match="certificate"):
                await client.post(gateway[0], content=b"{}")


async def test_whoever_asks_shows_the_certificate_its_variables_name(tmp_path: Path) -> None:
    public, private = create_certificate(tmp_path, "localhost")
    shows = {
        "claude_code_client_cert": str(public),
        "claude_code_client_key": str(private),
        "ssl_cert_file": str(public),
    }
    wants = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(public))
    wants.load_cert_chain(public, private)
    wants.verify_mode = ssl.CERT_REQUIRED
    for variables, fits in ((shows, True), ({"ssl_cert_file": str(public)}, False)):
        assert (
            _shakes_hands(http_transport.trusted_certificates(frozenset(variables.items())), wants)
            is fits
        )


def _shakes_hands(asks: ssl.SSLContext, answers: ssl.SSLContext) -> bool:
    """Whether both are content with each other, in memory."""
    one = ssl.MemoryBIO()
    other = ssl.MemoryBIO()
    ends = (
        asks.wrap_bio(one, other, server_hostname="localhost"),
        answers.wrap_bio(other, one, server_side=True),
    )
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return True


async def test_a_certificate_nobody_vouches_for_is_not_trusted_and_not_tried_again(
    gateway: tuple[str, Path], connections: ProviderConnections, clock: Instant
) -> None:
    client = connect_model_client(
        ProviderConfig("peer", base_url=gateway[0], patience=QUICK),
        "m",
        connections=connections,
        clock=clock,
    )
    with pytest.raises(ModelFailed, match="not trusted") as caught:
        await heard(client, asking())
    assert "SSL_CERT_FILE" in caught.value.remedy
    assert clock.slept == []


async def test_a_certificate_of_ones_own_is_trusted(
    gateway: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    connections: ProviderConnections,
    clock: Instant,
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(gateway[1]))
    client = connect_model_client(
        ProviderConfig("peer", base_url=gateway[0], patience=QUICK),
        "m",
        connections=connections,
        clock=clock,
    )
    assert (await heard(client, asking()))[1].parts


async def test_a_certificate_file_that_is_not_there_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, connections: ProviderConnections, clock: Instant
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    with pytest.raises(ModelFailed, match="SSL_CERT_FILE"):
        await heard(
            connect_model_client(
                ProviderConfig("peer", base_url="https://localhost:1"),
                "m",
                connections=connections,
                clock=clock,
            ),
            asking(),
        )


async def test_connections_are_shared_and_can_be_used_again_after_closing(clock: Instant) -> None:
    shared = ProviderConnections()
    with ChatServer([reply("1"), reply("2"), reply("3")]) as peer:
        config = ProviderConfig("peer", base_url=peer.base_url, patience=QUICK)
        clients = [
            connect_model_client(config, name, connections=shared, clock=clock)
            for name in ("a", "b")
        ]
        assert [(await heard(client, asking()))[1].stop for client in clients] == ["end", "end"]
        assert len(shared._clients) == 1
        await shared.aclose()
        assert (await heard(clients[0], asking()))[1].parts
    await shared.aclose()


@pytest.mark.parametrize("turns_of_the_loop", range(7))
async def test_a_cancelled_request_leaves_no_stale_connection_open(
    turns_of_the_loop: int, connections: ProviderConnections
) -> None:
    """Before it sends, the library closes the connections that the server has left. Cancelled
    meanwhile, it forgot those that were still to be closed.
    """
    with Peer([]) as server:
        way = http_transport.ProviderTransport(server.base_url, "peer", {}, connections)

        async def ask() -> None:
            with suppress(ModelFailed):
                await fetch_json(way, "/info", 5)

        await asyncio.gather(*[ask() for _ in range(6)])
        assert server.connections == 6
    tasks = concurrency.OwnedTasks("a trial")
    asking_left_server = tasks.spawn_task(ask(), name="ask")
    for _ in range(turns_of_the_loop):
        await asyncio.sleep(0)
    asking_left_server.cancel()
    with suppress(asyncio.CancelledError):
        await asking_left_server
    await connections.aclose()
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    assert [str(warning.message) for warning in noted] == []


class CookieServer(BaseHTTPRequestHandler):
    cookies: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.cookies.append(self.headers.get("cookie"))
        self.send_response(200)
        self.send_header("set-cookie", "of-one=secret; Path=/")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


async def test_no_cookie_of_one_server_reaches_another() -> None:
    """Two servers on one computer differ by their ports alone, which a cookie does not know."""
    CookieServer.cookies.clear()
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), CookieServer) as one,
        ThreadingHTTPServer(("127.0.0.1", 0), CookieServer) as other,
    ):
        for server in (one, other):
            serve_in_thread(server, "cookie server")
        async with http_transport.build_http_client(uses_environment=False) as client:
            for server in (one, other, one):
                await client.get(f"http://127.0.0.1:{server.server_port}/")
        one.shutdown()
        other.shutdown()
    assert CookieServer.cookies == [None, None, None]


async def test_a_small_reply_that_stands_for_gigabytes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Httpx decompresses each piece as a whole: here a gigabyte of zeros is 33 KB."""
    monkeypatch.setattr(http_transport, "LONGEST_BODY", 1 << 20)
    content = zstandard.ZstdCompressor(level=19).compress(bytes(1 << 30))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    response = httpx.Response(
        200, headers={"content-encoding": "zstd"}, stream=httpx.ByteStream(content)
    )
    answer = http_transport.HttpAnswer(response, "work", QUICK)
    with pytest.raises(
        ProviderUnreachable, match="larger than 1,048,576 bytes when it is decompressed"
    ):
        await answer.read_whole_body()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KB
    small = httpx.Response(
        200, headers={"content-encoding": "gzip"}, stream=httpx.ByteStream(gzip.compress(b"all"))
    )
    assert await http_transport.HttpAnswer(small, "work", QUICK).read_whole_body() == b"all"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd"])
async def test_half_a_compressed_reply_is_not_taken_for_the_whole(coding: str) -> None:
    content = CODINGS[coding](b'{"models": ["a", "b"]}')
    for end in range(1, len(content)):
        response = httpx.Response(
            200, headers={"content-encoding": coding}, stream=httpx.ByteStream(content[:end])
        )
        with pytest.raises(ProviderUnreachable, match="so a part is missing"):
            await http_transport.HttpAnswer(response, "work", QUICK).read_whole_body()
