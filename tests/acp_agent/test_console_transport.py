"""Messages over a console, and errors of this program as errors of the protocol."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from acp import RequestError, schema
from acp.router import MessageRouter
from pydantic import ValidationError

from helix_desktop.acp_agent.console_transport import ConsoleTransport, GuardedRouter
from helix_desktop.console import Console
from helix_desktop.errors import HelixError, InvalidInput, NotFound


class PiecesOfInput:
    """A console whose input comes in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)
        self.written = b""

    async def read_input(self) -> bytes:
        if not self._pieces:
            return b""
        return self._pieces.pop(0)

    async def write_output(self, data: bytes) -> None:
        self.written += data


async def test_messages_are_read_one_by_one_wherever_their_pieces_end() -> None:
    console = PiecesOfInput(b'{"id": 1}\n{"id"', b": 2}\n", b'{"id": 3}\n{"half')
    transport = ConsoleTransport(cast(Console, console))
    received = [await transport.receive() for _ in range(4)]
    assert received == [{"id": 1}, {"id": 2}, {"id": 3}, None]


async def test_a_message_is_written_as_one_line() -> None:
    console = PiecesOfInput()
    await ConsoleTransport(cast(Console, console)).send({"id": 1, "result": {"a": "x\ny"}})
    assert console.written == b'{"id":1,"result":{"a":"x\\ny"}}\n'


def invalid_parameters() -> ValidationError:
    """What the SDK raises for a request with many mistakes."""
    wrong = {"sessionId": 5, "prompt": [{"type": "text"}] * 9}
    try:
        schema.PromptRequest.model_validate(wrong)
    except ValidationError as error:
        return error
    raise AssertionError


async def refusal_of(error: Exception) -> RequestError:
    async def fail(*_given: Any) -> None:
        raise error

    router = GuardedRouter(cast(MessageRouter, fail), lambda _method, _params: None)
    with pytest.raises(RequestError) as refused:
        await router("session/prompt", {}, is_notification=False)
    return refused.value


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("no such choice"), -32602),
        (ValueError("no number"), -32602),
        (NotFound("no such session"), -32002),
        (HelixError("the disk is full"), -32603),
        (RequestError(-5, "as it was"), -5),
    ],
)
async def test_an_error_is_told_with_its_sentence_and_the_protocols_code(
    error: Exception, code: int
) -> None:
    refused = await refusal_of(error)
    assert refused.code == code
    assert str(error).rstrip(".") in str(refused)


async def test_wrong_parameters_are_named_by_their_place_and_not_all_of_them() -> None:
    refused = await refusal_of(invalid_parameters())
    assert refused.code == -32602
    assert str(refused).startswith("These parameters are not valid. sessionId: ")
    assert str(refused).count("; ") == 4, "five of them"
    assert "prompt.0" in str(refused)


async def test_a_notification_that_fails_is_answered_with_nothing() -> None:
    async def fail(*_given: Any) -> None:
        raise InvalidInput("no such session")

    router = GuardedRouter(cast(MessageRouter, fail), lambda _method, _params: None)
    assert await router("session/cancel", {}, is_notification=True) is None


async def test_a_request_is_looked_at_first_and_without_parameters_it_has_none() -> None:
    heard: list[tuple[str, Any]] = []

    async def answer(method: str, params: Any, _is_notification: bool) -> str:
        heard.append((method, params))
        return "fine"

    looked_at: list[str] = []
    router = GuardedRouter(
        cast(MessageRouter, answer), lambda method, _params: looked_at.append(method)
    )
    assert await router("session/list", None, is_notification=False) == "fine"
    assert heard == [("session/list", {})]
    assert looked_at == ["session/list"]
    assert json.dumps(heard)
