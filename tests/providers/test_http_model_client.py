"""What every protocol has to do, over real HTTP, and how it fails: one suite for all four."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import replace

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Stop, Text, ToolCall, Usage
from helix_desktop.engine.messages import CallDelta, Delta, Reply, RetryDelay, TextDelta
from helix_desktop.errors import (
    ContextTooLong,
    ModelFailed,
    ModelOverloaded,
    ProviderKeyRefused,
    ProviderUnreachable,
    UnknownModel,
)
from helix_desktop.protocols import reply_draft
from helix_desktop.providers.http_model_client import EVENTS_AT_ONCE
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.model_prices import ModelInfo, TokenPrices, fill_in_cost
from helix_desktop.providers.provider_catalog import connect_model_client
from tests.peers.peer import Answer, Cut, Pause, json_answer
from tests.providers.asking import PROTOCOLS, QUICK, Instant, Protocol, after_a_call, asking, heard
from tests.texts_and_calls import calls_in

TWO_CALLS = [("read", {"path": "a.txt"}), ("read", {"path": "ü/b c.txt"})]

pytestmark = pytest.mark.parametrize("protocol", PROTOCOLS, ids=[one.kind for one in PROTOCOLS])


def said(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


def calls_of(reply: Reply) -> list[tuple[str, object]]:
    return [
        (part.name, json.loads(part.arguments))
        for part in reply.parts
        if isinstance(part, ToolCall)
    ]


def busy_in(connections: ProviderConnections) -> int:
    """How many connections are still in use."""
    pools = [client._transport._pool for client in connections._clients.values()]  # type: ignore[attr-defined]
    return sum(not one.is_idle() for pool in pools for one in pool.connections)


async def test_text_streams_and_ends(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    text = "Grüße, 你好 — in several pieces.\n"
    with protocol.peer([protocol.reply(text)]) as peer:
        deltas, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert said(deltas) == text
    assert len([delta for delta in deltas if isinstance(delta, TextDelta)]) > 1
    assert (reply.parts, reply.stop, reply.why, reply.model) == (
        (Text(text),),
        Stop.END,
        "",
        "peer/scripted",
    )


async def test_much_that_arrives_at_once_leaves_others_their_turn(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    turn_count = 0

    async def count_turns() -> None:
        nonlocal turn_count
        while True:
            turn_count += 1
            await asyncio.sleep(0)

    whole = protocol.reply("Seven!\n" * 2_000)
    sent_at_once = replace(whole, pieces=(b"".join(whole.pieces),))  # type: ignore[arg-type]
    deltas_by_turn: Counter[int] = Counter()
    tasks = OwnedTasks("others")
    tasks.spawn_task(count_turns(), name="count turns")
    try:
        with protocol.peer([sent_at_once]) as peer:
            client = protocol.client(peer, connections, clock)
            async for _ in client.stream_reply(asking()):
                deltas_by_turn[turn_count] += 1
    finally:
        await tasks.aclose(limit=1)
    assert deltas_by_turn.total() >= 2_000
    assert max(deltas_by_turn.values()) <= 2 * EVENTS_AT_ONCE


async def test_usage_counts_everything_sent(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer([protocol.reply("Hello")]) as peer:
        _, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert (reply.usage.input, reply.usage.cache_read, reply.usage.output) == (100, 60, 20)


async def test_parallel_calls_come_whole_and_in_order(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer([protocol.reply("Reading both.", calls=TWO_CALLS)]) as peer:
        deltas, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert (reply.stop, calls_of(reply)) == (Stop.CALLS, TWO_CALLS)
    first, second = calls_in(reply.parts)
    assert first.id != second.id
    pieces = [delta for delta in deltas if isinstance(delta, CallDelta)]
    for index, call in enumerate((first, second)):
        mine = [piece for piece in pieces if piece.index == index]
        assert "".join(piece.arguments for piece in mine) == call.arguments
        assert (mine[0].id, mine[0].name) == (call.id, "read")


async def test_any_chunking_gives_the_same_reply(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    answer = protocol.reply("Grüße 你好", calls=TWO_CALLS)
    with protocol.peer([answer, answer.split(1)]) as peer:
        client = protocol.client(peer, connections, clock)
        whole = (await heard(client, asking()))[1]
        split = (await heard(client, asking()))[1]
    assert (split.stop, split.usage, calls_of(split)) == (whole.stop, whole.usage, calls_of(whole))
    assert split.parts[0] == whole.parts[0] == Text("Grüße 你好")


async def test_results_go_back_and_the_tools_are_offered(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer([protocol.reply("Done")]) as peer:
        await heard(protocol.client(peer, connections, clock), after_a_call())
        sent = json.dumps(peer.bodies[0])
    for words in ("content of a", "Read a file.", "Be brief.", "a.txt"):
        assert words in sent


async def test_a_busy_provider_is_asked_again_after_the_time_it_names(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    busy = replace(protocol.refused(429, "slow down"), headers=(("retry-after", "7"),))
    with protocol.peer([busy, busy, protocol.reply("Hello")]) as peer:
        deltas, reply = await heard(protocol.client(peer, connections, clock), asking())
        assert len(peer.bodies) == 3
        assert peer.bodies[0] == peer.bodies[2]
    waits = [delta for delta in deltas if isinstance(delta, RetryDelay)]
    assert len(waits) == 2
    assert all("slow down" in wait.why for wait in waits)
    assert all(7.0 <= seconds <= 8.0 for seconds in clock.slept)
    assert reply.stop is Stop.END


@pytest.mark.parametrize("status", [500, 503, 529])
async def test_a_failing_provider_is_asked_again_with_growing_pauses(
    protocol: Protocol, status: int, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer([*[protocol.refused(status, "oh no")] * 3, protocol.reply("Hello")]) as peer:
        _, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert said([TextDelta(part.text) for part in reply.parts if isinstance(part, Text)]) == "Hello"
    assert len(clock.slept) == 3
    assert all(
        later > 1.1 * earlier for earlier, later in zip(clock.slept, clock.slept[1:], strict=False)
    )


async def test_tries_are_limited(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer(default=protocol.refused(503, "overloaded for good")) as peer:
        with pytest.raises(ModelOverloaded, match="overloaded for good"):
            await heard(protocol.client(peer, connections, clock), asking())
        assert len(peer.bodies) == QUICK.attempts <= 10


async def test_a_wait_of_hours_is_told_not_waited(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    busy = replace(protocol.refused(429, "daily limit"), headers=(("retry-after", "7200"),))
    # The card above it must say that the provider is busy, not that something went wrong.
    with protocol.peer([busy]) as peer, pytest.raises(ModelOverloaded, match="120 min"):
        await heard(protocol.client(peer, connections, clock), asking())
    assert clock.slept == []


async def test_a_wait_can_be_cut_short(
    protocol: Protocol, connections: ProviderConnections
) -> None:
    busy = replace(protocol.refused(429, "slow down"), headers=(("retry-after", "300"),))
    with protocol.peer([busy, protocol.reply("Hello")]) as peer:
        stream = aiter(
            connect_model_client(
                protocol.config(peer), "scripted", connections=connections
            ).stream_reply(asking())
        )
        waiting = await anext(stream)
        assert isinstance(waiting, RetryDelay)
        assert waiting.wake is not None
        waiting.wake()
        deltas = [delta async for delta in stream]
        assert len(peer.bodies) == 2
    assert isinstance(deltas[-1], Reply)
    assert deltas[-1].stop is Stop.END


async def test_waiting_can_be_cancelled(
    protocol: Protocol, connections: ProviderConnections
) -> None:
    busy = replace(protocol.refused(429, "slow down"), headers=(("retry-after", "300"),))
    with protocol.peer([busy]) as peer:
        client = connect_model_client(protocol.config(peer), "scripted", connections=connections)
        stream = aiter(client.stream_reply(asking()))
        assert isinstance(await anext(stream), RetryDelay)
        waiting = asyncio.ensure_future(anext(stream))  # noqa: TID251 (the test is the owner)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_cancelling_closes_the_connection(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    endless = protocol.reply("word " * 50).with_piece(12, Pause(30))
    with protocol.peer([endless]) as peer:
        stream = protocol.client(peer, connections, clock).stream_reply(asking())
        async for delta in stream:
            if isinstance(delta, TextDelta):
                break
        await stream.aclose()  # type: ignore[attr-defined]
        assert busy_in(connections) == 0


async def test_a_lost_connection_keeps_what_came(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    whole = protocol.reply("The first words and many more of them, as it seems.")
    with protocol.peer([whole.cut_after(7)]) as peer:
        deltas, reply = await heard(protocol.client(peer, connections, clock), asking())
        assert len(peer.bodies) == 1
    assert reply.stop is Stop.CUT
    assert "lost" in reply.why
    assert reply.parts == (Text(said(deltas)),)
    assert said(deltas).startswith("The first words")


async def test_an_end_without_a_reason_is_no_complete_answer(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    whole = protocol.reply("The first words and many more of them, as it seems.")
    with protocol.peer([whole.ended_after(7)]) as peer:
        _, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert reply.stop is Stop.CUT
    assert "without saying why" in reply.why


async def test_a_connection_lost_before_the_first_word_is_tried_again(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    lost = Answer(pieces=(Cut(),))
    ended = Answer()
    with protocol.peer([lost, ended, protocol.reply("Hello")]) as peer:
        deltas, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert (len([one for one in deltas if isinstance(one, RetryDelay)]), reply.stop) == (
        2,
        Stop.END,
    )


async def test_a_piece_that_is_no_json_ends_the_reply(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    whole = protocol.reply("The first words and many more of them, as it seems.")
    with protocol.peer([whole.with_piece(7, b'data: {"broken": \n\n')]) as peer:
        _, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert (reply.stop, "could not be read" in reply.why) == (Stop.CUT, True)
    assert reply.parts


async def test_a_reply_without_an_end_is_ended_and_said(
    protocol: Protocol,
    connections: ProviderConnections,
    clock: Instant,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A server that never stops took 429 MB in 45 seconds."""
    monkeypatch.setattr(reply_draft, "MOST_CHARACTERS", 2_000)
    longest = "word " * 400
    with protocol.peer([protocol.reply(longest)]) as peer:
        _, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert (reply.stop, reply.parts) == (Stop.END, (Text(longest),))
    with protocol.peer([protocol.reply(longest + "and so on")]) as peer:
        _, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert reply.stop is Stop.CUT
    assert "sent a reply of more than 2,000 characters" in reply.why
    assert longest.startswith(reply.parts[0].text)  # type: ignore[union-attr]


async def test_silence_in_the_middle_ends_the_reply(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    whole = protocol.reply("The first words and many more of them, as it seems.")
    with protocol.peer([whole.silent_after(7)]) as peer:
        client = protocol.client(peer, connections, clock, patience=replace(QUICK, silence=0.1))
        _, reply = await heard(client, asking())
    assert (reply.stop, "sent nothing for" in reply.why) == (Stop.CUT, True)


async def test_silence_before_the_first_word_is_unreachable(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer(default=Answer(pieces=(Pause(30),))) as peer:
        client = protocol.client(peer, connections, clock, patience=replace(QUICK, first_byte=0.05))
        with pytest.raises(ProviderUnreachable, match=r"sent nothing|did not respond"):
            await heard(client, asking())
        async with asyncio.timeout(
            60
        ):  # a busy machine takes requests in after they are given up, and the last perhaps not
            while len(peer.bodies) < QUICK.attempts_unreachable - 1:
                await asyncio.sleep(0.01)
        assert len(peer.bodies) <= QUICK.attempts_unreachable


async def test_what_comes_after_the_reason_is_not_waited_for(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    whole = protocol.reply("Hello")
    with protocol.peer(
        [replace(whole, pieces=(*whole.pieces[:-1], whole.pieces[-1], Pause(30)))]
    ) as peer:
        client = protocol.client(
            peer, connections, clock, patience=replace(QUICK, after_end=0.05, end_of_body=0.05)
        )
        _, reply = await heard(client, asking())
    assert reply.stop is Stop.END


async def test_the_steps_of_a_turn_use_one_connection(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer([protocol.reply("One"), protocol.reply("Two")]) as peer:
        client = protocol.client(peer, connections, clock)
        for _ in range(2):
            await heard(client, asking())
        assert peer.connections == 1


async def test_a_reply_cut_by_its_length_says_so(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    at_the_end = {
        "openai-chat": {"finish": "length"},
        "openai-responses": {"incomplete": "max_output_tokens"},
        "anthropic": {"stop": "max_tokens"},
        "gemini": {"finish": "MAX_TOKENS"},
    }[protocol.kind]
    with protocol.peer([protocol.reply("As long as it", **at_the_end)]) as peer:
        _, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert reply.stop is Stop.LENGTH


async def test_a_request_that_is_too_long_is_recognised(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer([protocol.too_long]) as peer:
        with pytest.raises(ContextTooLong):
            await heard(protocol.client(peer, connections, clock), asking())
        assert len(peer.bodies) == 1


async def test_a_bad_key_is_said_and_not_tried_again(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer([protocol.bad_key]) as peer:
        with pytest.raises(ProviderKeyRefused) as caught:
            await heard(protocol.client(peer, connections, clock), asking())
        assert len(peer.bodies) == 1
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("key", "remedy"), [("", "No key was sent"), ("sk-old-0123456789", "Set a new key")]
)
async def test_a_refusal_says_whether_a_key_was_sent(
    protocol: Protocol, connections: ProviderConnections, clock: Instant, key: str, remedy: str
) -> None:
    """Where none was sent, the user was told to set a new one, as if the old one were wrong."""
    with protocol.peer([protocol.bad_key]) as peer:
        client = connect_model_client(
            protocol.config(peer), "scripted", key, connections=connections, clock=clock
        )
        with pytest.raises(ProviderKeyRefused) as caught:
            await heard(client, asking())
    assert remedy in caught.value.remedy


async def test_an_unknown_model_is_said(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer([protocol.unknown_model]) as peer, pytest.raises(UnknownModel) as caught:
        await heard(protocol.client(peer, connections, clock), asking())
    assert "model list" in caught.value.remedy


async def test_a_refused_connection_is_a_sentence(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer() as peer:
        config = protocol.config(peer)
    with pytest.raises(ProviderUnreachable, match="No connection to peer"):
        await heard(
            connect_model_client(config, "scripted", connections=connections, clock=clock), asking()
        )
    assert len(clock.slept) == 2


async def test_connections_lost_among_other_failures_do_not_end_the_tries_early(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    busy = protocol.refused(503, "busy")
    lost = Answer(pieces=(Cut(),))
    with protocol.peer([busy, lost, busy, lost, protocol.reply("Hello")]) as peer:
        _, reply = await heard(protocol.client(peer, connections, clock), asking())
    assert reply.stop is Stop.END


async def test_a_redirect_is_not_followed_with_the_key(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer() as elsewhere, protocol.peer() as peer:
        peer.script = [replace(json_answer({}, 307), headers=(("location", elsewhere.base_url),))]
        client = connect_model_client(
            protocol.config(peer),
            "scripted",
            "sk-planted-key-1234",
            connections=connections,
            clock=clock,
        )
        with pytest.raises(ModelFailed, match="not followed"):
            await heard(client, asking())
        assert elsewhere.requests == []


async def test_a_web_page_is_no_provider(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    page = Answer(
        200, (b"<!doctype html><title>Welcome</title>",), content_type="text/html; charset=utf-8"
    )
    with protocol.peer([page]) as peer:
        with pytest.raises(ModelFailed, match="web page") as caught:
            await heard(protocol.client(peer, connections, clock), asking())
        assert busy_in(connections) == 0
    assert "address" in caught.value.remedy


async def test_the_key_is_sent_and_never_said(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    key = "sk-planted-0123456789"
    echo = protocol.refused(400, f"the key {key} is not good enough")
    with protocol.peer([echo]) as peer:
        client = connect_model_client(
            protocol.config(peer), "scripted", key, connections=connections, clock=clock
        )
        with pytest.raises(ModelFailed) as caught:
            await heard(client, asking())
        assert key in " ".join(peer.requests[0].headers.values())
        assert key not in peer.requests[0].path
    assert key not in f"{caught.value} {caught.value.args} {caught.value!r}"


async def test_broken_surrogates_do_not_break_a_request(
    protocol: Protocol, connections: ProviderConnections, clock: Instant
) -> None:
    with protocol.peer([protocol.reply("Fine")]) as peer:
        _, reply = await heard(
            protocol.client(peer, connections, clock), asking(system="half \ud83d of a pair")
        )
        assert "half ? of a pair" in json.dumps(peer.bodies[0])
    assert reply.stop is Stop.END


def test_cost_follows_the_prices(protocol: Protocol) -> None:
    info = ModelInfo(
        "p",
        protocol.kind,
        prices=TokenPrices(input=2.0, output=10.0, cache_read=0.2, cache_write=2.5),
    )
    used = Usage(input=1_000_000, cache_read=600_000, cache_write=100_000, output=50_000)
    assert fill_in_cost(used, info).cost == pytest.approx(
        0.3 * 2.0 + 0.6 * 0.2 + 0.1 * 2.5 + 0.05 * 10.0
    )
    assert fill_in_cost(replace(used, cost=0.5), info).cost == 0.5
