from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from helix_desktop.mcp_server import client_line
from helix_desktop.mcp_server.client_line import ClientLine

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"x": 1}}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class ScriptedClient:
    """A client's end: pieces that it sends, and the messages that it got."""

    def __init__(self, *messages: dict[str, Any]) -> None:
        self._pieces = [json.dumps(message).encode() + b"\n" for message in messages]
        self.received: list[dict[str, Any]] = []

    async def read_input(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def write_output(self, data: bytes) -> None:
        self.received.append(json.loads(data))

    async def print_line(self, text: str) -> None: ...
    async def print_error(self, sentence: str) -> None: ...


def call(number: int, tool: str) -> dict[str, Any]:
    params = {"name": tool, "arguments": {}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def answer(number: object) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "result": {}}).encode() + b"\n"


async def read_until_end(line: ClientLine) -> list[dict[str, Any]]:
    """What the process that serves now reads."""
    messages = []
    async with asyncio.timeout(60):
        while piece := await line.read_input():
            messages.append(json.loads(piece))
    return messages


async def connect(*messages: dict[str, Any]) -> tuple[ClientLine, ScriptedClient]:
    client = ScriptedClient(*messages)
    line = ClientLine(client, lambda tool: tool == "search_cached_content")
    await line.receive_from_client()
    return line, client


async def test_the_next_process_gets_the_greeting_and_the_open_requests() -> None:
    search = call(1, "search_cached_content")
    line, client = await connect(INITIALIZE, INITIALIZED, search)
    assert await read_until_end(line) == [INITIALIZE, INITIALIZED, search]
    await line.write_output(answer(0))
    await line.prepare_for_next_process()
    repeated = await read_until_end(line)
    assert repeated == [{**INITIALIZE, "id": client_line.GREETING_ID}, INITIALIZED, search]
    await line.write_output(answer(client_line.GREETING_ID) + answer(1))
    assert [message["id"] for message in client.received] == [0, 1]


async def test_a_greeting_that_was_not_answered_keeps_its_id() -> None:
    line, _ = await connect(INITIALIZE)
    await line.prepare_for_next_process()
    assert await read_until_end(line) == [INITIALIZE]


async def test_a_refused_greeting_is_not_sent_to_the_next_process() -> None:
    search = call(1, "search_cached_content")
    line, client = await connect(INITIALIZE, search)
    refusal = {"jsonrpc": "2.0", "id": 0, "error": {"code": -32022, "message": "not here"}}
    await line.write_output(json.dumps(refusal).encode() + b"\n")
    await line.prepare_for_next_process()
    assert await read_until_end(line) == [search]
    assert client.received == [refusal]


async def test_a_call_that_may_have_had_an_effect_is_refused_and_not_repeated() -> None:
    line, client = await connect(call(1, "add_task"), call(2, "unknown_tool"))
    await line.prepare_for_next_process()
    assert await read_until_end(line) == []
    assert [message["id"] for message in client.received] == [1, 2]
    for message in client.received:
        assert "Check before you repeat it" in message["error"]["message"]


async def test_a_request_that_was_answered_or_cancelled_is_not_repeated() -> None:
    cancelled = {
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 2},
    }
    searches = [call(number, "search_cached_content") for number in (1, 2, 3)]
    line, client = await connect(*searches, cancelled)
    await line.write_output(answer(1))
    await line.prepare_for_next_process()
    assert await read_until_end(line) == [searches[2]]
    assert [message["id"] for message in client.received] == [1]


async def test_an_answer_in_pieces_is_passed_on_whole() -> None:
    line, client = await connect(call(1, "search_cached_content"))
    whole = answer(1)
    for start in range(0, len(whole), 5):
        await line.write_output(whole[start : start + 5])
    assert [message["id"] for message in client.received] == [1]


async def test_half_an_answer_of_a_process_that_ended_is_dropped() -> None:
    line, client = await connect(call(1, "search_cached_content"))
    await line.write_output(answer(1)[:10])
    await line.prepare_for_next_process()
    await line.write_output(answer(1))
    assert [message["id"] for message in client.received] == [1]


async def test_a_line_too_long_is_dropped_without_being_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_line, "LONGEST", 1000)
    pieces = [b"x" * 400] * 100 + [b"end\nnext\n", b"last"]

    async def read() -> bytes:
        return pieces.pop(0) if pieces else b""

    lines = [line async for line in client_line.iterate_input_lines(read)]
    assert lines == [b"too long", b"next"]


async def test_a_line_of_very_many_values_is_passed_over() -> None:
    table = b'{"text": "' + b"1,2,3;" * 300_000 + b'"}'
    pieces = [b"[" + b"[]," * 600_000 + b"0]\n", table + b"\n", b""]

    async def read() -> bytes:
        return pieces.pop(0)

    lines = [line async for line in client_line.iterate_input_lines(read)]
    assert lines == [b"too long", table]
