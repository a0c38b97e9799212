"""A scripted server that speaks Anthropic's Messages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from tests.peers.peer import Answer, Peer, Seen, json_answer, sse

USAGE = {
    "input_tokens": 10,
    "cache_read_input_tokens": 60,
    "cache_creation_input_tokens": 30,
    "output_tokens": 1,
}

_numbers = itertools.count(1)


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def block(
    index: int, start: dict[str, Any], deltas: Sequence[dict[str, Any]]
) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def events(
    text: str = "",
    *,
    thinking: str = "",
    signature: str = "signed",
    redacted: str = "",
    calls: Sequence[tuple[str, Any]] = (),
    stop: str | None = "",
    output_tokens: int = 20,
) -> list[dict[str, Any]]:
    """The events of a whole reply: thinking, text, calls, the reason and the end."""
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [],
        "usage": USAGE,
    }
    made: list[dict[str, Any]] = [{"type": "message_start", "message": message}, {"type": "ping"}]
    index = itertools.count()
    if thinking:
        deltas: list[dict[str, Any]] = [
            {"type": "thinking_delta", "thinking": piece} for piece in _pieces(thinking)
        ]
        deltas.append({"type": "signature_delta", "signature": signature})
        made += block(next(index), {"type": "thinking", "thinking": "", "signature": ""}, deltas)
    if redacted:
        made += block(next(index), {"type": "redacted_thinking", "data": redacted}, [])
    if text:
        made += block(
            next(index),
            {"type": "text", "text": ""},
            [{"type": "text_delta", "text": one} for one in _pieces(text)],
        )
    for name, arguments in calls:
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in ["", *_pieces(written)]
        ]
        start = {"type": "tool_use", "id": f"toolu_{next(_numbers):08d}", "name": name, "input": {}}
        made += block(next(index), start, deltas)
    reason = ("tool_use" if calls else "end_turn") if stop == "" else stop
    made.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason},
            "usage": {"output_tokens": output_tokens},
        }
    )
    made.append({"type": "message_stop"})
    return made


def reply(text: str = "", **more: Any) -> Answer:
    return streamed(events(text, **more))


def streamed(made: Sequence[dict[str, Any]]) -> Answer:
    return Answer(pieces=sse(*made, names=[one["type"] for one in made]))


def error_event(kind: str, message: str) -> bytes:
    return sse({"type": "error", "error": {"type": kind, "message": message}}, names=["error"])[0]


def refused(
    status: int, message: str = "refused", *, kind: str = "invalid_request_error", **headers: str
) -> Answer:
    return json_answer(
        {"type": "error", "error": {"type": kind, "message": message}}, status, **headers
    )


class AnthropicServer(Peer):
    models: Sequence[dict[str, Any]] = (
        {"id": "scripted", "type": "model", "max_input_tokens": 200_000},
    )

    def listing(self, seen: Seen) -> Answer:
        if seen.path.partition("?")[0] == "/v1/models":
            return json_answer(
                {"data": list(self.models), "has_more": False, "last_id": "scripted"}
            )
        return super().listing(seen)
