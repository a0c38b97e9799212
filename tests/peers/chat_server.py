"""A scripted server that speaks OpenAI's chat completions.

with ChatServer([reply("Hello"), reply(calls=[("read", {"path": "a.txt"})]),
refused(429, retry_after=1)]) as server: client = connect(ProviderConfig("peer",
base_url=server.base_url), "scripted")
...
assert server.bodies[0]["messages"][-1]["content"] == "..."
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from tests.peers.peer import Answer, Peer, Seen, json_answer, sse

Calls = Sequence[tuple[str, Any]]
USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 20,
    "total_tokens": 120,
    "prompt_tokens_details": {"cached_tokens": 60},
}

_numbers = itertools.count(1)


def chunk(
    delta: dict[str, Any] | None = None, finish: str | None = None, **more: Any
) -> dict[str, Any]:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": choices,
        **more,
    }


def call_chunks(calls: Calls, piece: int = 8) -> list[dict[str, Any]]:
    """Each call's arguments in pieces, the calls interleaved by index as servers do for
    parallel calls.
    """
    chunks = []
    for index, (name, arguments) in enumerate(calls):
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        head = {
            "index": index,
            "id": f"call_{next(_numbers):08d}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        chunks.append(chunk({"tool_calls": [head]}))
        chunks += [
            chunk(
                {"tool_calls": [{"index": index, "function": {"arguments": text[at : at + piece]}}]}
            )
            for at in range(0, len(text), piece)
        ]
    return chunks


def words(text: str) -> list[str]:
    return [text[at : at + 7] for at in range(0, len(text), 7)]


def reply(
    text: str = "",
    *,
    calls: Calls = (),
    reasoning: str = "",
    finish: str | None = "",
    usage: dict[str, Any] | None = None,
) -> Answer:
    """A whole reply as a stream: reasoning, text, calls, the reason, the usage in a
    chunk of its own, [DONE].
    """
    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"reasoning_content": piece}) for piece in words(reasoning)]
    chunks += [chunk({"content": piece}) for piece in words(text)]
    chunks += call_chunks(calls)
    reason = ("tool_calls" if calls else "stop") if finish == "" else finish
    chunks += [chunk({}, reason), chunk(usage=USAGE if usage is None else usage)]
    return Answer(pieces=sse(*chunks, "[DONE]"))


def refused(
    status: int,
    message: str = "refused",
    *,
    code: str = "",
    kind: str = "error",
    retry_after: float | str | None = None,
) -> Answer:
    headers = {} if retry_after is None else {"retry_after": str(retry_after)}
    return json_answer(
        {"error": {"message": message, "type": kind, "code": code or None}}, status, **headers
    )


def too_long(window: int = 8192) -> Answer:
    message = f"This model's maximum context length is {window} tokens. However, your messages resulted in {window * 2} tokens."
    return refused(400, message, code="context_length_exceeded", kind="invalid_request_error")


class ChatServer(Peer):
    base_path = "/v1"
    models: Sequence[dict[str, Any]] = ({"id": "scripted", "object": "model"},)

    def listing(self, seen: Seen) -> Answer:
        if seen.path.partition("?")[0] == "/v1/models":
            return json_answer({"object": "list", "data": list(self.models)})
        return super().listing(seen)
