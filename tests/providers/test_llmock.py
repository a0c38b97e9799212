"""Against a server nobody here wrote, which breaks on demand and judges the client: the
package llmock.

The real clock runs here, because waiting is what is judged; the pauses are short.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from helix_desktop.engine.facts import Stop, Text, ToolCall
from helix_desktop.engine.messages import Message, Reply, Request, RetryDelay, Role, ToolResult
from helix_desktop.errors import ContextTooLong, ProviderKeyRefused
from helix_desktop.providers.http_transport import ProviderConnections, ProviderPatience
from helix_desktop.providers.provider_catalog import ProviderConfig, connect_model_client
from tests.providers.asking import QUICK, asking, heard, user

pytest.importorskip("llmock")

if TYPE_CHECKING:
    from llmock.pytest_plugin import LLMock

PROVIDERS = {
    "openai-chat": "openai",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
}
SHORT = replace(QUICK, first_pause=0.06)
Ask = Callable[[Request], object]

pytestmark = pytest.mark.parametrize("kind", PROVIDERS)


async def ask(
    llmock: LLMock,
    kind: str,
    connections: ProviderConnections,
    request: Request | None = None,
    patience: ProviderPatience = SHORT,
) -> tuple[int, Reply]:
    """How often the client waited, and the reply."""
    config = ProviderConfig("llmock", kind, llmock.base_url(PROVIDERS[kind]), patience=patience)
    deltas, reply = await heard(
        connect_model_client(config, "gpt-4o", connections=connections), request or asking(tools=())
    )
    return sum(isinstance(delta, RetryDelay) for delta in deltas), reply


async def test_text_and_usage(llmock: LLMock, kind: str, connections: ProviderConnections) -> None:
    llmock.reply("Three short words")
    _, reply = await ask(llmock, kind, connections)
    assert (reply.parts, reply.stop) == ((Text("Three short words"),), Stop.END)
    assert reply.usage.input > 0
    assert reply.usage.output > 0
    llmock.assert_resilient(strict=True)


async def test_calls_and_their_results(
    llmock: LLMock, kind: str, connections: ProviderConnections
) -> None:
    llmock.call_tool("read", {"path": "a.txt"})
    first = asking()
    _, reply = await ask(llmock, kind, connections, first)
    (call,) = [part for part in reply.parts if isinstance(part, ToolCall)]
    assert (call.name, json.loads(call.arguments), reply.stop) == (
        "read",
        {"path": "a.txt"},
        Stop.CALLS,
    )
    after = replace(
        first,
        messages=(
            *first.messages,
            Message(Role.ASSISTANT, reply.parts),
            user(ToolResult(call.id, "content")),
        ),
    )
    _, reply = await ask(llmock, kind, connections, after)
    assert reply.stop is Stop.END
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_refusals_worth_another_try(
    llmock: LLMock, kind: str, status: int, connections: ProviderConnections
) -> None:
    llmock.fail(status, times=3, retry_after=0.15 if status == 429 else None)
    if status in {503, 529}:  # for these llmock asks for a whole second unless told otherwise
        llmock.reset()
        llmock.fail(status, times=3, retry_after=0.1)
    waited, reply = await ask(llmock, kind, connections)
    assert (waited, reply.stop) == (3, Stop.END)
    llmock.assert_resilient(strict=True)


async def test_a_refused_key_is_not_tried_again(
    llmock: LLMock, kind: str, connections: ProviderConnections
) -> None:
    llmock.fail(401)
    with pytest.raises(ProviderKeyRefused):
        await ask(llmock, kind, connections)
    llmock.assert_resilient(strict=True)


async def test_a_prompt_that_is_too_long(
    llmock: LLMock, kind: str, connections: ProviderConnections
) -> None:
    llmock.context_overflow()
    with pytest.raises(ContextTooLong):
        await ask(llmock, kind, connections)
    llmock.assert_resilient(strict=True)


@pytest.mark.parametrize("fault", ["disconnect", "truncate", "malformed", "stall"])
async def test_a_broken_stream_is_marked_and_asked_again(
    llmock: LLMock,
    kind: str,
    fault: str,
    connections: ProviderConnections,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the session does with a reply that was cut: it asks again, here with the
    same request.
    """
    from llmock.chaos import StreamChaos

    llmock.reply("Enough words to be broken in the middle of them, one would say. " * 3, times=None)
    if fault == "stall":
        llmock.stall(seconds=3.0, after_chunks=6)
    elif fault == "malformed":
        llmock.corrupt(after_chunks=6)
        # Slowly enough for the server to see that nobody reads on behind the broken piece.
        monkeypatch.setattr(llmock._server.state, "stream_chaos", StreamChaos(chunk_delay_ms=15))
    else:
        getattr(llmock, fault)(after_chunks=6)
    request = asking(tools=())
    patience = replace(SHORT, silence=0.5) if fault == "stall" else SHORT
    _, broken = await ask(llmock, kind, connections, request, patience)
    assert (broken.stop, bool(broken.parts), bool(broken.why)) == (Stop.CUT, True, True)
    assert len(llmock.requests) == 1  # waits until the server has noticed the end of the first
    _, whole = await ask(llmock, kind, connections, request)
    assert whole.stop is Stop.END
    llmock.assert_resilient(strict=True)


async def test_a_stream_broken_before_its_first_word_mends_itself(
    llmock: LLMock, kind: str, connections: ProviderConnections
) -> None:
    llmock.disconnect(after_chunks=0)
    llmock.truncate(after_chunks=0)
    waited, reply = await ask(llmock, kind, connections)
    assert (waited, reply.stop) == (2, Stop.END)
    # whether the pauses grow is a matter of milliseconds here, and test_client.py's
    llmock.assert_resilient()


async def test_malformed_arguments_come_as_the_model_wrote_them(
    llmock: LLMock, kind: str, connections: ProviderConnections
) -> None:
    if kind == "gemini":
        pytest.skip("its arguments are objects on the wire; there is nothing to be malformed")
    llmock.break_tool_call("malformed_arguments")
    _, reply = await ask(llmock, kind, connections, asking())
    (call,) = [part for part in reply.parts if isinstance(part, ToolCall)]
    with pytest.raises(ValueError, match=r"."):
        json.loads(call.arguments)
