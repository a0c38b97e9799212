from __future__ import annotations

import asyncio
import dataclasses
import gzip
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress

import pytest
import zstandard

from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.errors import InvalidInput
from helix_desktop.tools import fetch_tool
from helix_desktop.tools.fetch_tool import is_public_address
from helix_desktop.tools.permission import PermissionMode, PermissionRule
from tests.tools.world import World

PAGES = {
    "/": (200, "text/html", b"<h1>Hello</h1><script>no</script>"),
    "/json": (200, "application/json", b'{"a": 1}'),
    "/picture": (200, "image/png", b"x"),
    "/missing": (404, "text/plain", b"not here"),
    "/large": (200, "text/plain", b"x" * 5000),
    "/latin.txt": (200, "text/plain", "café ö\n".encode("latin-1")),
    "/latin.html": (200, "text/html", '<meta charset="koi8-r"><p>café ö</p>'.encode("latin-1")),
    "/unknown": (200, "text/plain", "café\n".encode()),
}
ENCODINGS = {"/latin.txt": "iso-8859-1", "/latin.html": "ISO-8859-1", "/unknown": "x-nobody-knows"}


def gigabyte_of_zeros() -> bytes:
    """33 KB of zstd, made without having the gigabyte in memory."""
    packer = zstandard.ZstdCompressor(level=3).compressobj(size=1 << 30)
    return b"".join([*(packer.compress(bytes(1 << 20)) for _ in range(1 << 10)), packer.flush()])


@asynccontextmanager
async def server() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A web server on loopback, and the requests it got."""
    requests: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            closing(writer),
            suppress(asyncio.IncompleteReadError, ConnectionError),
        ):  # a client that left
            await answer_request(reader, writer)

    async def answer_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        requests.append(head)
        path = head.split()[1].decode()
        coding = ""
        if path.startswith("/to/"):
            line = f"HTTP/1.1 302 Found\r\nlocation: {path[4:]}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            writer.write(line.encode())
        else:
            if path == "/half":
                status = 200
                kind = "text/plain"
                body = gzip.compress(b"the first half. " * 100 + b"and the second")[:-12]
                coding = "content-encoding: gzip\r\n"
            elif path == "/bomb":
                status = 200
                kind = "text/plain"
                body = await asyncio.to_thread(gigabyte_of_zeros)
                coding = "content-encoding: zstd\r\n"
            else:
                status, kind, body = PAGES[path]
            charset = ENCODINGS.get(path, "utf-8")
            head_out = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}; charset={charset}\r\ncontent-length: {len(body)}\r\n"
            writer.write((head_out + coding).encode() + b"connection: close\r\n\r\n" + body)
        await writer.drain()

    listening = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with listening:
        port = listening.sockets[0].getsockname()[1]
        yield f"http://localhost:{port}", requests


@pytest.fixture
def online(here: World) -> World:
    here.kit.options = dataclasses.replace(here.kit.options, offers_fetch=True)
    here.box = here.kit.build_toolbox()
    return here


async def test_it_is_off_unless_the_user_switches_it_on(here: World) -> None:
    assert "There is no tool 'fetch_url'" in await here.said("fetch_url", url="http://a.example")


async def test_pages_come_as_text(online: World) -> None:
    async with server() as (base, requests):
        assert await online.said("fetch_url", url=base) == "# Hello\n"
        assert (
            await online.said("fetch_url", url=f"{base}/", raw=True)
            == "<h1>Hello</h1><script>no</script>"
        )
        assert await online.said("fetch_url", url=f"{base}/json") == '{"a": 1}'
        missing = await online.run("fetch_url", url=f"{base}/missing")
        assert not missing.ok
        assert online.text(missing) == "[404 X]\nnot here"
        assert "not text" in await online.said("fetch_url", url=f"{base}/picture")
    assert base.removeprefix("http://").encode() in requests[0]


async def test_the_encoding_that_the_server_names_counts(online: World) -> None:
    async with server() as (base, _):
        assert await online.said("fetch_url", url=f"{base}/latin.txt") == "café ö\n"
        assert await online.said("fetch_url", url=f"{base}/latin.html") == "café ö\n"
        assert await online.said("fetch_url", url=f"{base}/unknown") == "café\n"


async def test_a_page_that_is_too_large_is_cut_and_that_is_said(
    online: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_tool, "LARGEST", 1000)
    async with server() as (base, _):
        assert "[cut: pages are read up to 1,000 bytes]" in await online.said(
            "fetch_url", url=f"{base}/large"
        )


@pytest.mark.parametrize("mode", list(PermissionMode))
async def test_private_addresses_are_asked_for_in_every_mode(
    online: World, mode: PermissionMode
) -> None:
    online.kit.permissions.mode = mode
    online.kit.permissions.rules = (PermissionRule("allow", "fetch_url"),)
    online.person.answer = PermissionAnswer(allowed=False)
    async with server() as (base, requests):
        assert (await online.run("fetch_url", url=base)).refused
        assert requests == []
    assert "device on your local network" in online.person.asked[0].why


async def test_a_redirect_to_a_private_address_is_asked_for_again(online: World) -> None:
    async with server() as (base, requests), server() as (other, _):
        assert await online.said("fetch_url", url=f"{base}/to/{other}/json") == '{"a": 1}'
        assert [question.preview for question in online.person.asked] == [
            f"{base}/to/{other}/json",
            f"{other}/json",
        ]
        assert "redirected too many times" in await online.said(
            "fetch_url", url=f"{base}/to//to//to//to//to//to//to//json"
        )
    assert requests


async def test_a_redirect_to_a_host_that_a_rule_denies_is_not_followed(
    online: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_tool, "is_public_address", lambda _: True)
    online.kit.permissions.rules = (
        PermissionRule("allow", "fetch_url"),
        PermissionRule("deny", "fetch_url", path="127.0.0.1"),
    )
    async with server() as (base, first), server() as (other, second):
        said = await online.run(
            "fetch_url", url=f"{base}/to/{other.replace('localhost', '127.0.0.1')}/json"
        )
        assert said.refused
        assert len(first) == 1
        assert second == []


async def test_a_redirect_to_another_host_of_the_open_internet_is_asked_for(
    online: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both hosts stand on loopback; for this test they count as public."""
    online.kit.permissions.mode = PermissionMode.ASK
    monkeypatch.setattr(fetch_tool, "is_public_address", lambda _: True)
    async with server() as (base, _), server() as (other, second):
        elsewhere = other.replace("localhost", "127.0.0.1")
        assert await online.said("fetch_url", url=f"{base}/to/{elsewhere}/json") == '{"a": 1}'
        assert [question.preview for question in online.person.asked] == [
            f"{base}/to/{elsewhere}/json",
            f"{elsewhere}/json",
        ]
        online.person.asked.clear()
        assert await online.said("fetch_url", url=f"{base}/to//json") == '{"a": 1}'
        assert [question.preview for question in online.person.asked] == [
            f"{base}/to//json"
        ]  # the same host once
    assert second


async def test_half_a_compressed_page_is_not_taken_for_the_whole(online: World) -> None:
    async with server() as (base, _):
        done = await online.run("fetch_url", url=f"{base}/half")
    assert not done.ok
    assert "cannot be read: its compressed data ends too early" in online.text(done)


async def test_a_small_page_that_stands_for_a_gigabyte_is_cut_like_any_other(online: World) -> None:
    """A gigabyte of zeros is 33 KB of zstd; a library that decompresses it in one go
    takes five times as much memory.
    """
    async with server() as (base, _):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        said = await online.run("fetch_url", url=f"{base}/bomb")
        assert said.ok
        assert (
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000
        )  # KB; 20 MB are kept, searched and shown


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://a.example", "not an http"),
        ("file:///etc/passwd", "not an http"),
        ("http://", "not an http"),
        ("http://user:secret@a.example/", "user name"),
        ("http://[::1", "not an address"),
        ("x" * 100_000, ""),
    ],
)
async def test_what_is_no_address_gets_a_sentence(online: World, url: str, words: str) -> None:
    said = await online.said("fetch_url", url=url)
    assert words in said
    assert len(said) < 500
    assert online.person.asked == []


async def test_a_machine_that_is_not_there(online: World) -> None:
    assert "could not be fetched" in await online.said("fetch_url", url="http://127.0.0.1:1/")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:2800:220:1::1", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),  # noqa: S104
        ("::1", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:93.184.216.34", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("::127.0.0.1", False),
        ("::93.184.216.34", False),
        ("fec0::1", False),
        ("::ffff:0:127.0.0.1", False),
        ("64:ff9b:1::1", False),
        ("4000::1", False),
        ("224.0.0.1", False),
    ],
)
def test_which_addresses_are_of_the_open_internet(address: str, *, public: bool) -> None:
    assert is_public_address(address) is public


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that were looked up; each of them is this machine."""
    names: list[str] = []
    really = socket.getaddrinfo

    def look_up(host: str, port: int, *options: int) -> object:
        names.append(host)
        return really("127.0.0.1", port, *options)

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return names


async def test_a_name_is_not_looked_up_before_it_is_permitted(
    online: World, looked_up: list[str]
) -> None:
    """Looking a name up sends it to whoever answers for it, and a name can carry what
    the agent has read.
    """
    online.kit.permissions.mode = PermissionMode.ASK
    online.person.answer = PermissionAnswer(allowed=False)
    assert (await online.run("fetch_url", url="http://what-was-read.evil.example/")).refused
    assert len(online.person.asked) == 1
    online.kit.permissions.rules = (PermissionRule("deny", "fetch_url"),)
    assert (await online.run("fetch_url", url="http://what-was-read.evil.example/")).refused
    assert looked_up == []


async def test_a_permitted_name_that_turns_out_private_is_asked_for_again(
    online: World, looked_up: list[str]
) -> None:
    online.kit.permissions.rules = (PermissionRule("allow", "fetch_url"),)
    async with server() as (base, requests):
        url = base.replace("localhost", "pages.example")
        assert await online.said("fetch_url", url=f"{url}/json") == '{"a": 1}'
        assert ["device on your local network" in each.why for each in online.person.asked] == [
            True
        ]
        online.person.answer = PermissionAnswer(allowed=False)
        assert (await online.run("fetch_url", url=url)).refused
        assert len(requests) == 1


@pytest.mark.parametrize(
    "host", ["127.1", "0x7f.1", "2130706433", "[::1]", "localhost.", "deep.localhost"]
)
async def test_what_needs_no_look_up_is_judged_at_once(online: World, host: str) -> None:
    online.person.answer = PermissionAnswer(allowed=False)
    assert (await online.run("fetch_url", url=f"http://{host}:9/")).refused
    assert ["device on your local network" in each.why for each in online.person.asked] == [True]


@pytest.mark.parametrize("address", ["http://*/", "http://*.org/", "http://xn--/", "http://a!b/"])
def test_a_host_that_would_be_a_pattern_or_is_none_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput):
        fetch_tool._parse_web_address(address)


@pytest.mark.parametrize(
    "address", ["http://[::1]:8080/x", "https://a-b_c.example./", "http://b\u00fccher.example/"]
)
def test_ordinary_hosts_are_taken(address: str) -> None:
    assert fetch_tool._parse_web_address(address).host
