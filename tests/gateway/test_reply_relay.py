"""Replies of a provider that means harm, or of one that is broken: compressed too far, damaged, endless, deep."""

from __future__ import annotations

import gzip
import json
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx
import pytest
import zstandard

from tests.gateway.running import PROTOCOLS, Agent, running
from tests.peers.agent_provider import Asked, Block, Calls, Provider, Raw, Says

MANY = 200 << 20
EVENT = b'event: ping\ndata: {"type": "ping"}\n\n'
MOST_MEMORY = 170 << 20  # of a bomb of 200 MB: 64 MB of it are read, and no more
RECALL = Calls("search_cached_content", {"query": "x"})


@dataclass
class Replies:
    """What the provider sends, one after another; the last again and again."""

    replies: list[Raw | int | list[Block]] = field(default_factory=list)

    def __call__(self, _: Asked) -> Raw | int | list[Block]:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    """By their coding. Made where they are needed: every process that only collects the tests would make them too."""
    zeros = bytes(MANY)
    bomb = gzip.compress(zeros, 1)
    other = {"deflate": zlib.compress(zeros, 1), "zstd": zstandard.compress(zeros)}
    return {"gzip": bomb, "gzip, gzip": gzip.compress(bomb), **other}


@pytest.fixture(scope="module")
def bomb(bombs: dict[str, bytes]) -> bytes:
    return bombs["gzip"]


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Replies]]:
    replies = Replies()
    with Provider(replies, strict=False) as provider, running(tmp_path_factory.mktemp("home"), provider.url) as url:
        yield url, replies


def ask(
    url: str, *, streams: bool = False, protocol: str = "anthropic", tools: bool = True
) -> tuple[int, httpx.Headers, bytes]:
    """What the agent gets, as bytes: it decompresses nothing."""
    agent = Agent(protocol, url, streams=streams)
    agent.say("hello")
    body = agent.body() if tools else {**agent.body(), "tools": [{"name": "recall_cached_content"}]}
    with httpx.stream("POST", url + agent.path, json=body, headers={"x-api-key": "k"}, timeout=60) as reply:
        came = bytearray()
        try:
            for piece in reply.iter_raw():
                came += piece
        except httpx.RemoteProtocolError:
            came += b"(cut)"
        return reply.status_code, reply.headers, bytes(came)


@pytest.fixture
def memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MOST_MEMORY, f"{peak:,}"


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("status", [400, 413, 429, 500])
def test_a_refusal_that_stands_for_much_reaches_the_agent_as_it_came(
    there: tuple[str, Replies], bomb: bytes, status: int
) -> None:
    url, replies = there
    replies.replies = [Raw(bomb, "gzip", status)]
    got, headers, content = ask(url, tools=False)
    assert (got, headers["content-encoding"], content) == (status, "gzip", bomb)


def test_a_compressed_refusal_is_understood_and_reaches_the_agent_whole(there: tuple[str, Replies]) -> None:
    url, replies = there
    told = gzip.compress(b'{"error": {"message": "prompt is too long"}}')
    replies.replies = [Raw(told, "gzip", 400)]
    got, headers, content = ask(url)
    assert (got, headers["content-encoding"], content) == (400, "gzip", told)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("status", [400, 429, 503])
def test_a_refusal_behind_a_recall_that_stands_for_much_ends_the_reply(
    there: tuple[str, Replies], bomb: bytes, streams: bool, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helix_desktop.gateway.reply_relay.RETRY_WAITS_SECONDS", (0.0,))
    url, replies = there
    replies.replies = [[RECALL], Raw(bomb, "gzip", status)]
    got, _, content = ask(url, streams=streams)
    assert got == (200 if streams else status)
    assert b"event: error" in content if streams else content == bomb


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("coding", ["gzip", "deflate", "zstd", "gzip, gzip"])
def test_a_stream_that_stands_for_much_is_read_up_to_the_limit(
    there: tuple[str, Replies], bombs: dict[str, bytes], coding: str, tools: bool
) -> None:
    url, replies = there
    packed = bombs[coding]
    replies.replies = [Raw(packed, coding, media_type="text/event-stream")]
    _, headers, content = ask(url, streams=True, tools=tools)
    if tools:
        assert b"The provider's reply was ended" in content[-300:] or content == packed
        assert len(content) <= (64 << 20) + 300
    else:
        assert (headers["content-encoding"], content) == (coding, packed)


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("tools", [True, False])
def test_a_whole_reply_that_stands_for_much_goes_on_as_it_came(
    there: tuple[str, Replies], bomb: bytes, tools: bool
) -> None:
    url, replies = there
    replies.replies = [Raw(bomb, "gzip")]
    _, headers, content = ask(url, tools=tools)
    assert (headers["content-encoding"], content) == ("gzip", bomb)


@pytest.mark.parametrize("streams", [True, False])
def test_a_reply_without_an_end_goes_on_unread(there: tuple[str, Replies], streams: bool) -> None:
    url, replies = there
    media = "text/event-stream" if streams else "application/json"
    endless = (b'{"a": "' + b"x" * (1 << 20)) * 90
    replies.replies = [Raw(endless, media_type=media)]
    assert ask(url, streams=streams)[2] == endless


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize(
    "content", [b"[" * 5_000, b"[" + b"[]," * 3_500_000 + b"1]", b'{"content": [' + b"{}," * 3_500_000 + b"1]}"]
)
@pytest.mark.parametrize("streams", [True, False])
def test_deep_and_wide_json_goes_on_unread(there: tuple[str, Replies], streams: bool, content: bytes) -> None:
    url, replies = there
    if streams:
        content = b"data: " + content + b"\n\n"
    replies.replies = [Raw(content, media_type="text/event-stream" if streams else "application/json")]
    assert ask(url, streams=streams)[2] == content


@pytest.mark.parametrize(
    "content", [b"data: 1\n\n" * 3, b'data: [[]]\n\ndata: "a"\n\n', b"\n" * 100_000 + b"data: {}\n\n"]
)
@pytest.mark.parametrize("tools", [True, False])
def test_events_that_say_nothing_reach_the_agent_as_they_came(
    there: tuple[str, Replies], content: bytes, tools: bool
) -> None:
    url, replies = there
    replies.replies = [Raw(content, media_type="text/event-stream")]
    assert ask(url, streams=True, tools=tools)[2] == content


@pytest.mark.parametrize("coding", ["br", "gzip", "compress", "gzip, br"])
@pytest.mark.parametrize("streams", [True, False])
def test_a_coding_nobody_reads_goes_on_as_it_came(there: tuple[str, Replies], streams: bool, coding: str) -> None:
    url, replies = there
    replies.replies = [
        Raw(b"not what it says", coding, media_type="text/event-stream" if streams else "application/json")
    ]
    _, headers, content = ask(url, streams=streams)
    assert (headers["content-encoding"], content) == (coding, b"not what it says")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_an_honest_compressed_stream_is_read_and_freed_of_hidden_calls(
    there: tuple[str, Replies], protocol: str, coding: str
) -> None:
    url, replies = there
    from tests.peers.agent_provider import WRITERS

    pack: Callable[[bytes], bytes] = gzip.compress if coding == "gzip" else zstandard.compress
    usage = {"input": 100, "read": 0, "write": 0}
    told = b"".join(WRITERS[protocol].events([Calls(RECALL.name, RECALL.arguments, "c1")], usage, "1"))
    replies.replies = [Raw(pack(told), coding, media_type="text/event-stream", chunk_bytes=100), [Says("done")]]
    _, headers, content = ask(url, streams=True, protocol=protocol)
    assert "content-encoding" not in headers
    assert b"search_cached_content" not in content
    assert b"done"[:1] in content
    assert json.dumps("d")[1:-1].encode() in content
